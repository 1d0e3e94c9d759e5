"""Traced functions: what is an input, what is state, what is noticed, and that a failed trace leaves nothing half-done."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import types
import weakref

import numpy as np
import pytest

import tracer
from tracer import nn, optim, trace

pytestmark = pytest.mark.cpu


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def mlp() -> tuple[nn.Module, optim.SGD]:
    tracer.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3))
    return model, optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def training_step(model, optimizer):
    def step(x, y):
        difference = model(x) - y
        loss = tracer.sum(difference * difference)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def test_a_traced_training_step_equals_the_eager_one() -> None:
    x, y = array(4, 6), array(4, 3, seed=1)
    eager_model, eager_optimizer = mlp()
    model, optimizer = mlp()
    eager, step = (
        training_step(eager_model, eager_optimizer),
        trace(training_step(model, optimizer)),
    )
    for _ in range(5):
        np.testing.assert_allclose(step(x, y), np.asarray(eager(x, y).detach()), rtol=2e-5)
    for a, b in zip(model.parameters(), eager_model.parameters(), strict=True):
        np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(a.grad, b.grad, rtol=1e-4, atol=1e-5)
    assert step.timings().traces == 1


def test_modules_are_traced_as_functions_are() -> None:
    """Their attributes are none of the traced function's; what a plain function carries goes along."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5))
    with tracer.no_grad():
        for p in model.parameters():  # whole numbers: their products are the same in any order
            p.mul_(8).round_()
    traced = trace(model)
    x = np.round(8 * array(2, 3))
    tracer.manual_seed(3)
    found = traced(x)
    tracer.manual_seed(3)
    np.testing.assert_array_equal(found.detach(), model(x).detach())
    model.eval()
    np.testing.assert_array_equal(traced(x).detach(), model(x).detach())
    assert traced.ir().outputs and traced.__doc__ == nn.Sequential.__doc__

    def marked(x):
        return x + 1

    marked.mark = 7
    assert trace(marked).mark == 7


def test_signatures_tell_modes_apart() -> None:
    traced = trace(lambda x: x * 2)
    x = array(3)
    for mode in (tracer.enable_grad, tracer.no_grad, tracer.inference_mode):
        with mode():
            traced(x)
    plain = "(float32[3])"
    assert sorted(traced.signatures()) == [
        plain,
        f"{plain} in inference mode",
        f"{plain} in no_grad mode",
    ]


def test_the_only_signature_is_shown_without_its_arguments() -> None:
    @trace
    def scaled(x, factor=2):
        return tracer.exp(x) * factor

    with pytest.raises(
        tracer.errors.ArgumentError,
        match=r"scaled.ir\(\): it has not been called yet. Call it, or say which",
    ):
        scaled.ir()
    x = array(3)
    scaled(x)
    assert scaled.ir() == scaled.ir(x) and str(scaled.plan()) == str(scaled.plan(x))
    assert scaled.kernels() == scaled.kernels(x)
    scaled(x.astype(np.float64))
    with pytest.raises(
        tracer.errors.ArgumentError,
        match="has 2 signatures; say which call, as in kernels\\(x, factor\\)",
    ) as raised:
        scaled.kernels()
    assert all(signature in str(raised.value) for signature in scaled.signatures())
    assert trace(lambda x=2: tracer.full((3,), x)).ir().outputs  # all that it needs
    optional = trace(lambda x=None, *more: tracer.exp(x))
    optional(x)
    assert optional.ir() == optional.ir(x) and len(optional.signatures()) == 1


def test_parameters_keep_their_identity_and_memory() -> None:
    model, optimizer = mlp()
    weight = model[0].weight
    seen = weight.detach().array
    step = trace(training_step(model, optimizer))
    before = seen.copy()
    step(array(4, 6), array(4, 3))
    assert model[0].weight is weight and not np.array_equal(seen, before)
    np.testing.assert_array_equal(seen, weight.detach().array)


def test_results_are_never_overwritten() -> None:
    double = trace(lambda x: x * 2.0)
    kept = [double(np.full(1000, k, np.float32)) for k in range(20)]
    for k, result in enumerate(kept):
        assert (result.array == 2 * k).all()


def test_an_output_fed_back_as_input() -> None:
    advance = trace(lambda x: x * 2.0 + 1.0)
    x, wanted = tracer.tensor([1.0, 2.0]), np.array([1.0, 2.0])
    for _ in range(5):
        x, wanted = advance(x), wanted * 2 + 1
    np.testing.assert_array_equal(x, wanted)


def test_a_new_learning_rate_is_no_new_program_and_takes_effect() -> None:
    model, optimizer = mlp()
    step = trace(training_step(model, optimizer))
    x, y = array(4, 6), array(4, 3)
    step(x, y)
    optimizer.param_groups[0]["lr"] = 0.0
    optimizer.param_groups[0]["momentum"] = 0.5
    before = model[0].weight.detach().array.copy()
    step(x, y)
    np.testing.assert_array_equal(model[0].weight.detach(), before)
    assert step.timings().traces == 1
    optimizer.param_groups[0]["momentum"] = 0.0
    step(x, y)
    assert step.timings().traces == 2  # the structure changed


def test_a_replaced_layer_takes_effect() -> None:
    model, _ = mlp()
    forward = trace(lambda x: model(x))
    x = array(4, 6)
    forward(x)
    model[2] = nn.Linear(5, 2)
    assert forward(x).shape == (4, 2)
    np.testing.assert_allclose(forward(x).detach(), np.asarray(model(x).detach()), rtol=1e-5)


def test_closures_globals_defaults_and_modes_are_noticed() -> None:
    scale, table = 2, tracer.tensor([1.0, 2.0])

    @trace
    def f(x):
        return x * scale * table

    np.testing.assert_array_equal(f(np.ones(2, np.float32)), [2, 4])
    scale = 3
    np.testing.assert_array_equal(f(np.ones(2, np.float32)), [3, 6])
    table = tracer.tensor([10.0, 20.0])
    np.testing.assert_array_equal(f(np.ones(2, np.float32)), [30, 60])
    model = nn.Sequential(nn.Linear(2, 2))
    mode = trace(lambda x: model(x) * (1.0 if model.training else 0.0))
    assert np.any(mode(np.ones((1, 2), np.float32)).detach().array)
    model.eval()
    assert not np.any(mode(np.ones((1, 2), np.float32)).detach().array)


def test_python_floats_are_inputs_and_other_numbers_static() -> None:
    power = trace(lambda x, s: x * s)
    x = np.ones(3, np.float32)
    for k in range(50):
        np.testing.assert_allclose(power(x, k / 7), np.full(3, np.float32(k / 7)))
    assert len(power.signatures()) == 1
    power(x, 2)
    power(x, 3)
    assert len(power.signatures()) == 3


def test_a_float_used_as_a_number_becomes_static() -> None:
    @trace
    def f(x, s):
        return x + 1.0 if s > 0.5 else x - 1.0

    x = np.zeros(2, np.float32)
    np.testing.assert_array_equal(f(x, 0.9), [1, 1])
    np.testing.assert_array_equal(f(x, 0.1), [-1, -1])
    np.testing.assert_array_equal(f(x, 0.9), [1, 1])


def test_an_exception_in_a_trace_leaves_everything_as_it_was() -> None:
    model, optimizer = mlp()
    fail = True

    @trace
    def step(x, y):
        loss = tracer.sum((model(x) - y) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if fail:
            raise ValueError("mine")
        return loss

    before = [p.detach().array.copy() for p in model.parameters()]
    with pytest.raises(ValueError, match="mine"):
        step(array(4, 6), array(4, 3))
    for p, old in zip(model.parameters(), before, strict=True):
        np.testing.assert_array_equal(p.detach(), old)
        assert p.grad is None
    fail = False
    step(array(4, 6), array(4, 3))
    assert not np.array_equal(model[0].weight.detach(), before[0])


def test_gradients_of_a_traced_function_from_outside() -> None:
    w = tracer.tensor(array(3, 2), requires_grad=True)
    f = trace(lambda x: tracer.sum(tracer.tanh(x @ w)))
    x = tracer.tensor(array(4, 3), requires_grad=True)
    f(x).backward()
    gx, gw = x.grad.array.copy(), w.grad.array.copy()
    x.grad = w.grad = None
    tracer.sum(tracer.tanh(x @ w)).backward()
    np.testing.assert_allclose(gx, x.grad, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(gw, w.grad, rtol=1e-5, atol=1e-6)


def test_accumulated_gradients() -> None:
    w = tracer.tensor([1.0, 2.0], requires_grad=True)

    @trace
    def accumulate(x):
        tracer.sum(w * x).backward()

    for k in range(4):
        assert accumulate(np.array([1, 10], np.float32)) is None
        np.testing.assert_array_equal(w.grad, [k + 1, 10 * (k + 1)])
    assert accumulate.timings().traces == 2


def test_trees_of_arguments_and_results() -> None:
    @trace
    def f(batch, *, scale):
        return {"sum": batch["a"] + batch["b"][0] * scale, "n": 3, "same": batch["a"]}

    a = tracer.tensor([1.0])
    result = f({"a": a, "b": [np.ones(1, np.float32)]}, scale=2.0)
    assert result["n"] == 3 and result["same"] is a
    np.testing.assert_array_equal(result["sum"], [3])


def test_methods_of_two_instances() -> None:
    class Scaler:
        def __init__(self, factor):
            self.factor = tracer.tensor(factor)

        @trace
        def __call__(self, x):
            return x * self.factor

        @trace
        def apply(self, x):
            return x * self.factor

    first, second = Scaler(2.0), Scaler(3.0)
    for _ in range(2):
        np.testing.assert_array_equal(first.apply(np.ones(2, np.float32)), [2, 2])
        np.testing.assert_array_equal(second.apply(np.ones(2, np.float32)), [3, 3])


def test_nested_traced_functions_are_one_program() -> None:
    inner = trace(lambda x: tracer.exp(x) * 2.0)
    outer = trace(lambda x: inner(x) + 1.0)
    np.testing.assert_allclose(outer(np.zeros(3, np.float32)), [3, 3, 3])
    assert outer.plan(np.zeros(3, np.float32)).kernels == 1 and not inner.signatures()


def test_numpy_on_outside_data_in_a_trace_is_an_error_with_the_line() -> None:
    outside = tracer.tensor([1.0])

    @trace
    def f(x):
        return x * float(np.asarray(outside).sum())

    with pytest.raises(
        tracer.TraceError, match=r"while a function is traced(?s:.*)test_trace\.py:\d+"
    ):
        f(np.ones(1, np.float32))


def test_the_nodes_of_a_gradient_are_marked() -> None:
    """Sums of what several backwards give too; each has the scope and line of forward code."""

    def cube(x):
        return (x * x * x).sum()

    graph = trace(tracer.grad(cube)).ir(np.ones(3, np.float32))
    sums = [node for node in graph.nodes if node.op.name == "Add"]
    line = cube.__code__.co_firstlineno + 1
    assert len(sums) == 2
    for node in sums:
        assert node.origin.gradient and node.origin.source.endswith(f"test_trace.py:{line}")


def test_a_leaked_tensor_is_an_error() -> None:
    leaked = types.SimpleNamespace()

    @trace
    def f(x):
        setattr(leaked, "x", x * 2.0)  # noqa: B010, a way that is not followed
        return x + 1.0

    f(np.ones(1, np.float32))
    with pytest.raises(tracer.TraceError, match="trace"):
        np.asarray(leaked.x)
    with pytest.raises(tracer.TraceError, match="trace"):
        trace(lambda x: x + leaked.x)(np.ones(1, np.float32))


def test_threads_share_a_function() -> None:
    f = trace(lambda x: tracer.tanh(x) * x)
    wrong = []

    def work(seed: int) -> None:
        x = array(1000 + seed, seed=seed)
        for _ in range(20):
            if not np.allclose(f(x), np.tanh(x) * x, atol=1e-5):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_pickle_and_copy() -> None:
    model, optimizer = mlp()
    step = trace(training_step(model, optimizer))
    step(array(4, 6), array(4, 3))
    twin = copy.deepcopy(model)
    assert twin[0].weight is not model[0].weight
    np.testing.assert_array_equal(twin[0].weight.detach(), model[0].weight.detach())
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again[2].bias.detach(), model[2].bias.detach())
    assert again[2].bias.requires_grad


def test_many_scalars_and_shapes_stay_bounded() -> None:
    f = trace(lambda x, s: x * s, max_traces=8)
    for k in range(300):
        f(np.ones(4, np.float32), float(k))
    assert len(f.signatures()) == 1
    with pytest.warns(RuntimeWarning, match="traced 8 times"):
        for k in range(1, 30):
            f(np.ones(k, np.float32), 1.0)
    assert len(f.signatures()) <= 8


def test_programs_are_freed() -> None:
    f = trace(lambda x: x + 1.0)
    f(np.ones(2, np.float32))
    (entry,) = next(iter(f._programs))
    reference = weakref.ref(entry.executable)
    f.clear()
    del entry
    gc.collect()
    assert reference() is None


def test_wrong_arguments_name_the_function() -> None:
    f = trace(lambda x, y: x + y, name="adder")
    with pytest.raises(TypeError, match="adder"):
        f(np.ones(1, np.float32))
    with pytest.raises(tracer.ShapeError, match=r"do not broadcast(?s:.*)test_trace\.py"):
        f(np.ones(2, np.float32), np.ones(3, np.float32))
    with pytest.raises(tracer.ArgumentError, match="static_argnames"):
        trace(lambda x: x, static_argnames=["z"])
