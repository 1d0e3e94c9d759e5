"""Flags: what requires gradients, what is volatile or made in inference mode, and what follows for memory."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import tracer
import tracer.nn.functional as F
from ops import samples
from ops.operator import Operator
from ops.table import TABLE
from ops.types import FLOATING
from tracer import GradError, TraceError, Variable, nn, optim, trace
from tracer.dispatch.apply import apply_operator
from tracer.tensors.tensor import Tensor
from tracer.tracing.arguments.signature import Call
from tracer.tracing.programs.fast_call import MISS

OPERATORS = tuple(o for o in TABLE.values() if not o.block_names and o.inputs)


@pytest.fixture(autouse=True)
def seeded() -> None:
    tracer.manual_seed(0)


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def volatile(*shape: int, seed: int = 0) -> Tensor:
    return Variable(array(*shape, seed=seed), volatile=True)


def assert_volatile(*results: Tensor) -> None:
    for y in results:
        assert y.volatile and not y.requires_grad and y.grad_fn is None


# ---- volatile: every operator --------------------------------------------------------------------


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_one_volatile_operand_makes_every_result_volatile(operator: Operator) -> None:
    """Also of operators with several results, of views and of those whose gradient is derived."""
    sample = operator.samples[0]
    dtype = next((d for d in ("float32", *operator.dtypes) if d in operator.dtypes), "float32")
    if sample.dtypes is not None and dtype not in sample.dtypes:
        dtype = sample.dtypes[0]
    arrays = samples.draw(sample, dtype)
    for position in range(len(arrays)):
        inputs = tuple(tracer.tensor(a) for a in arrays)
        for k, x in enumerate(inputs):
            if k == position:
                x.volatile = True
            elif x.type.dtype in FLOATING:
                x.requires_grad = True
        result = apply_operator(operator, inputs, dict(sample.attrs))
        outputs = result if isinstance(result, tuple) else (result,)
        assert outputs
        assert_volatile(*outputs)
        for x in inputs:
            x.volatile = False
            x.requires_grad = False
        result = apply_operator(operator, inputs, dict(sample.attrs))
        assert not any(y.volatile for y in (result if isinstance(result, tuple) else (result,)))


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "views": lambda x, w: (x[0], x.T, x.reshape(3, 4)[..., None], *tracer.split(x, 2), x.detach()),
    "composites": lambda x, w: (F.layer_norm(x, 3, w), F.softmax(x), x.var(0), x.clone(), x.half()),
    "indices": lambda x, w: (
        F.embedding((x > 0).long(), w[:, None]),
        x > 0,
        x.argmax(),
        x.cumsum(0),
    ),
    "numpy": lambda x, w: (np.exp(x), np.add(w, x), np.concatenate([x, x]), np.where(x > 0, w, 0)),
    "masks": lambda x, w: (w.expand(4, 3)[x > 0], *tracer.nonzero(x), F.dropout(x, 1.0)),
    "losses": lambda x, w: (F.mse_loss(x * w, x), F.cross_entropy(x * w, np.array([0, 1, 2, 0]))),
    "numbers": lambda x, w: (1.0 - x, 2 / x, x**2, -x, abs(x), x @ w, np.float32(2) * x),
    "stack": lambda x, w: (tracer.stack([w, x[0]]), tracer.concat([w, x[0]]), tracer.tensor(2) + x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_a_volatile_tensor(name: str) -> None:
    x, w = volatile(4, 3), tracer.tensor(array(3), requires_grad=True)
    assert_volatile(*FUNCTIONS[name](x, w))
    assert not any(
        y.volatile for y in FUNCTIONS[name](x.data, w)
    )  # the same memory without the flag


def test_modules_are_volatile_of_a_volatile_input_and_keep_no_flag() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)
            self.register_buffer("mean", tracer.zeros(2))

        def forward(self, x: Any) -> Any:
            y = self.layer(x)
            self.mean = 0.9 * self.mean + 0.1 * y.mean(0)
            return y - self.mean

    model = nn.Sequential(Counting(), nn.GELU(), nn.LayerNorm(2), nn.Dropout(0.5), nn.Softmax(-1))
    assert_volatile(model(volatile(5, 3)))
    assert not model[0].mean.volatile
    assert model(array(5, 3)).requires_grad


def test_what_is_made_of_a_shape_alone_is_not_volatile() -> None:
    x = volatile(2, 3)
    assert not tracer.zeros_like(x).volatile and not x.new_ones(2).volatile
    assert not tracer.tensor(x).volatile and not Variable(x).volatile


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "add_": lambda x, v: x.add_(v),
    "+=": lambda x, v: x.__iadd__(v),
    "copy_": lambda x, v: x.copy_(v[0]),
    "slice": lambda x, v: x.__setitem__(slice(1, 3), v[0]),
    "integer": lambda x, v: x.__setitem__((0, 1), v[0, 0]),
    "mask": lambda x, v: x.__setitem__(v > 0, 1.0),
    "view": lambda x, v: x[1:].mul_(v[1:]),
    "masked_fill_": lambda x, v: x.masked_fill_(v > 0, 2.0),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.kernels("python")
def test_a_change_in_place_by_a_volatile_operand_makes_volatile(name: str) -> None:
    """Also what the changed Tensor is a view of, and other views, eager and traced; and its history is gone."""
    w = tracer.tensor(array(4, 3, seed=1), requires_grad=True)
    change = CHANGES[name]

    def function(x: Any, v: Any) -> Any:
        before, y = x[0], x * w
        other = y.T
        change(y, v)
        change(x, v)
        return y, other, x[1] * 1, before * 1

    traced, results = trace(function), []
    for run in (function, traced, traced, traced):
        x = tracer.tensor(array(4, 3))
        results.append(run(x, volatile(4, 3, seed=2)))
        assert_volatile(*results[-1], x, x * w)
        np.testing.assert_array_equal(np.stack(results[-1][2:]), np.stack(results[0][2:]))
        np.testing.assert_array_equal(results[-1][0], results[0][0])


def test_a_captured_tensor_is_changed_in_place_by_a_volatile_one() -> None:
    state, w = tracer.zeros(3), tracer.tensor(array(3), requires_grad=True)

    @trace
    def function(v: Any) -> Any:
        state.add_(v)
        return state * w

    assert function(tracer.ones(3)).requires_grad and not state.volatile
    for count in (2, 3, 4):
        assert_volatile(function(volatile(3)), state)
        state.volatile = count == 3
    assert function(tracer.ones(3)).requires_grad


def test_changes_that_leave_the_flag() -> None:
    """Under no_grad nothing follows: so state of a model does not become volatile by an evaluation."""
    v, leaf = volatile(3), tracer.tensor(array(3), requires_grad=True)
    x = tracer.zeros(3)
    with tracer.no_grad():
        x.add_(v)
        x[0] = v[0]
        leaf.add_(v)
    x.data.add_(v)
    x.data = v
    assert not x.volatile and leaf.requires_grad
    v.add_(leaf)
    assert_volatile(v)
    with pytest.raises(GradError, match="leaf that requires a gradient"):
        leaf.add_(v)
    with pytest.raises(GradError, match="leaf"):
        leaf[1:].add_(v[1:])
    assert not leaf.volatile and leaf.requires_grad
    with pytest.raises(tracer.ShapeError):
        x.add_(volatile(2, 3))
    assert not x.volatile


def test_a_view_follows_its_base_also_as_a_second_operand() -> None:
    w, u = (tracer.tensor(array(4, seed=k), requires_grad=True) for k in (1, 2))
    base = tracer.ones(4)
    view = base[:2]
    base.mul_(w)
    (u[:2] * view).sum().backward()
    np.testing.assert_array_equal(w.grad[:2], u.detach()[:2])
    base = tracer.ones(4)
    view = base[:2]
    base.mul_(volatile(4))
    assert_volatile(u[:2] * view)
    known = trace(lambda x: x * 2)
    plain = tracer.ones(4)
    part = plain[:2]
    for _ in range(3):
        assert not known(part).volatile
    plain.mul_(volatile(4))
    assert_volatile(known(part))


# ---- volatile: the flag --------------------------------------------------------------------------


def test_volatile_and_requires_grad_exclude_each_other() -> None:
    with pytest.raises(GradError, match="cannot require a gradient and be volatile"):
        Variable(array(2), requires_grad=True, volatile=True)
    x = volatile(2)
    for change in (lambda: setattr(x, "requires_grad", True), x.requires_grad_):
        with pytest.raises(GradError, match=r"volatile(.|\n)*test_flags\.py:\d+"):
            change()
    x.requires_grad = False
    assert x.volatile
    x.volatile = False
    x.requires_grad = True
    assert x.requires_grad and not x.volatile
    x.volatile = True  # "volatile also determines that requires_grad is False"
    assert x.volatile and not x.requires_grad
    y = tracer.tensor(array(2), requires_grad=True) * 2
    with pytest.raises(GradError, match="leaves only"):
        y.volatile = True


def test_gradients_of_what_is_volatile_are_refused() -> None:
    w = tracer.tensor(array(3), requires_grad=True)
    x = volatile(3)
    loss = (x * w).sum()
    for ask in (
        loss.backward,
        lambda: tracer.autograd.grad(loss, w),
        lambda: tracer.autograd.grad((w * 2).sum(), x),
        lambda: tracer.grad(lambda a: (a * x).sum())(w),
        lambda: tracer.grad(lambda a: (a * 2).sum())(x),
        lambda: tracer.vjp(lambda a: a * x, w)[1](tracer.ones(3)),
        loss.retain_grad,
    ):
        with pytest.raises(GradError, match=r"volatile(.|\n)*test_flags\.py:\d+"):
            ask()
    assert w.grad is None


def test_a_variable_is_a_tensor_on_given_memory() -> None:
    a = array(3)
    x = Variable(a, requires_grad=True)
    assert (
        isinstance(x, Variable) and type(x) is tracer.Tensor and issubclass(nn.Parameter, Variable)
    )
    assert not isinstance(a, Variable)
    assert tracer.autograd.Variable is Variable
    assert np.shares_memory(x.detach().numpy(), a)
    t = tracer.tensor(a, requires_grad=True)
    y = Variable(t * 2, volatile=True)
    assert y.is_leaf and y.volatile
    z = Variable(t)
    assert (
        np.shares_memory(z.numpy(), t.detach().numpy()) and not z.requires_grad and t.requires_grad
    )
    square = (t * t).sum()
    with tracer.no_grad():
        z.mul_(2)  # the same memory, so the change is seen
    with pytest.raises(GradError, match="changed in place"):
        square.backward()


def test_flags_are_shown_copied_and_pickled() -> None:
    x = volatile(2)
    assert repr(x).endswith(", volatile=True)")
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert_volatile(twin, twin + 1)
        np.testing.assert_array_equal(twin, x)
    with tracer.inference_mode():
        y = x * 2
    assert y.volatile and y.is_inference()
    assert not copy.deepcopy(y).is_inference() and copy.deepcopy(y).volatile
    assert not pickle.loads(pickle.dumps(y)).is_inference()


def test_ordinary_operators_do_not_ask_a_second_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing requires a gradient and nothing is volatile, one comparison for each operand is all there is."""
    asked: list[str] = []
    known = sys.modules["tracer.dispatch.apply"]._flags
    monkeypatch.setattr(
        "tracer.dispatch.apply._flags",
        lambda op, inputs: (asked.append(op.name), known(op, inputs))[1],
    )
    x = tracer.tensor(array(2, 3))
    (x * 2 + x).sum()
    assert not asked
    (volatile(3) + 1).sum()
    assert asked[-2:] == ["Add", "ReduceSum"]


# ---- volatile: traced ----------------------------------------------------------------------------


def test_a_volatile_argument_is_a_signature_of_its_own_without_gradients() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    traced = trace(lambda x: model(x))
    x = array(5, 3)
    plain, quiet = tracer.tensor(x), Variable(x, volatile=True)
    learned = traced(plain)
    assert learned.requires_grad and learned.grad_fn is not None
    for _ in range(3):  # the general way, then the fast one
        y = traced(quiet)
        assert_volatile(y)
        np.testing.assert_array_equal(y, learned.detach())
        assert traced(plain).requires_grad
    assert sorted(traced.signatures()) == ["(float32[5, 3] volatile)", "(float32[5, 3])"]
    assert traced.plan(plain).residuals > 0 and traced.plan(quiet).residuals == 0
    assert all(
        entry.recorded.gradients.graph is None for entry in traced._find(Call((quiet,), {}))[:1]
    )
    fast = [fast_call(tuple([quiet])) for fast_call in traced._fast_calls]
    assert any(result is not MISS for result in fast)
    assert_volatile(*(result for result in fast if result is not MISS))
    with pytest.raises(GradError, match="volatile"):
        traced(quiet).sum().backward()


def test_a_volatile_captured_tensor_makes_results_volatile_until_it_is_not() -> None:
    scale, w = volatile(3), tracer.tensor(array(3, seed=1), requires_grad=True)

    @trace
    def function(x: Any) -> Any:
        return x * w, x * scale * w, x + 1

    for _ in range(3):
        learned, quiet, plain = function(array(3))
        assert learned.requires_grad and not learned.volatile
        assert_volatile(quiet)
        assert not plain.volatile and not plain.requires_grad
    learned.sum().backward()
    np.testing.assert_array_equal(w.grad, array(3))
    scale.volatile = False
    assert all(y.requires_grad for y in function(array(3))[:2])
    assert len(function.signatures()) == 2


def test_a_result_that_is_a_volatile_argument_keeps_or_drops_its_flag() -> None:
    traced = trace(lambda x: (x, x.data, x.detach(), x[:]))
    for function in (traced, traced, traced._function):
        x = volatile(3)
        same, data, detached, view = function(x)
        assert same is x and x.volatile
        assert not data.volatile
        assert_volatile(detached, view)


def test_backward_inside_a_trace_through_a_volatile_tensor_is_refused() -> None:
    w = tracer.tensor(array(3), requires_grad=True)

    @trace
    def step(x: Any) -> Any:
        loss = (x * w).sum()
        loss.backward()
        return loss

    with pytest.raises(GradError, match=r"volatile(.|\n)*test_flags\.py:\d+"):
        step(volatile(3))
    assert w.grad is None
    step(tracer.tensor(array(3)))
    np.testing.assert_array_equal(w.grad, array(3))


def test_flags_that_a_traced_function_changes() -> None:
    """The caller's flags are changed when it would see it without a trace: at every call, and not by a failing one."""
    frozen, other = (tracer.tensor(array(3, seed=k), requires_grad=True) for k in (1, 2))

    def adversary(x: Any, fail: bool = False) -> Any:
        frozen.requires_grad = False
        loss = (x * frozen * other).sum()
        other.grad = None
        loss.backward()
        if fail:
            raise ZeroDivisionError
        frozen.requires_grad = True
        other.requires_grad_(False)
        x.requires_grad_()
        return loss

    traced = trace(adversary)
    for function in (adversary, traced, traced, traced):
        other.requires_grad = True
        x = tracer.tensor(array(3))
        assert not function(x).volatile
        assert (frozen.requires_grad, other.requires_grad, x.requires_grad) == (True, False, True)
        assert frozen.grad is None
        np.testing.assert_array_equal(other.grad, np.float32(x.data * frozen.data))
    other.requires_grad = True
    with pytest.raises(ZeroDivisionError):
        traced(tracer.tensor(array(3)), fail=True)
    assert frozen.requires_grad and other.requires_grad


# ---- modes ---------------------------------------------------------------------------------------


def recorded() -> bool:
    return (tracer.tensor([1.0], requires_grad=True) * 2).requires_grad


@pytest.mark.parametrize("mode", [tracer.no_grad, tracer.inference_mode])
def test_as_context_as_decorator_with_and_without_parentheses(mode: Any) -> None:
    with mode():
        assert not recorded() and not tracer.is_grad_enabled()
        with tracer.inference_mode(False):
            assert recorded() and tracer.is_grad_enabled()
    for decorate in (mode, mode()):

        @decorate
        def function(x: int, *, y: int = 1) -> tuple[int, bool]:
            """Text."""
            return x + y, recorded()

        assert function.__name__ == "function" and function.__doc__ == "Text."
        assert function(1, y=2) == (3, False)
        assert recorded()

    class Model:
        @mode()
        def method(self) -> tuple[Any, bool]:
            return self, recorded()

        @staticmethod
        @mode
        def static() -> bool:
            return recorded()

    m = Model()
    assert m.method() == (m, False) and not Model.static()
    with pytest.raises(tracer.ArgumentError, match="decorates functions"):
        mode()(Model)
    with pytest.raises(tracer.ArgumentError, match=r"decorates functions(.|\n)*test_flags"):
        mode()(3)


def test_enable_grad_inside_no_grad_but_not_in_inference_mode() -> None:
    with tracer.no_grad():
        with tracer.enable_grad():
            assert recorded()

        @tracer.enable_grad
        def function() -> bool:
            return recorded()

        assert function() and not recorded()
    with tracer.inference_mode(), tracer.enable_grad(), tracer.set_grad_enabled(True):
        assert not recorded() and tracer.is_inference_mode_enabled()
        with tracer.no_grad():
            assert tracer.is_inference_mode_enabled()
    assert recorded() and not tracer.is_inference_mode_enabled()


def test_set_grad_enabled_acts_at_once_or_inside() -> None:
    tracer.set_grad_enabled(False)
    try:
        assert not recorded()
        with tracer.set_grad_enabled(True):
            assert recorded()
        assert not recorded()
    finally:
        tracer.set_grad_enabled(True)
    assert recorded()

    @tracer.set_grad_enabled(False)
    def function() -> bool:
        return recorded()

    assert recorded() and not function() and recorded()
    mode = tracer.set_grad_enabled(False)
    with mode:
        assert not recorded()
    assert recorded()
    with mode:
        assert not recorded()
    assert recorded()
    with pytest.raises(tracer.ArgumentError, match="True or False"):
        tracer.set_grad_enabled(recorded)  # type: ignore[arg-type]


def test_one_mode_is_entered_in_itself_left_by_exceptions_and_shared_by_threads() -> None:
    mode = tracer.no_grad()
    with mode:
        with mode, tracer.enable_grad(), mode:
            assert not recorded()
        with pytest.raises(ZeroDivisionError), tracer.enable_grad():
            raise ZeroDivisionError
        assert not recorded()
    assert recorded()
    barrier = threading.Barrier(2, timeout=60)
    found: list[bool] = []

    def work(first: bool) -> None:
        if first:
            barrier.wait()
        with mode:
            found.append(recorded())
            if not first:
                barrier.wait()
            barrier.wait()
        found.append(not recorded())

    threads = [threading.Thread(target=work, args=(first,)) for first in (True, False)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [False] * 4 and recorded() and not mode._previous


def test_a_generator_has_its_mode_while_it_runs() -> None:
    closed: list[bool] = []

    @tracer.no_grad()
    def numbers(first: int) -> Any:
        try:
            got = yield first, recorded()
            with tracer.enable_grad():
                try:
                    got = yield got, recorded()
                except KeyError:
                    got = yield "caught", recorded()
                got = yield got, recorded()  # the inner mode is still on
            yield got, recorded()
            return "end"
        finally:
            closed.append(recorded())

    g = numbers(1)
    assert recorded() and next(g) == (1, False)
    assert recorded() and g.send(2) == (2, True)
    assert recorded() and g.throw(KeyError) == ("caught", True)
    assert g.send(3) == (3, True)
    with tracer.no_grad():
        assert g.send(4) == (4, False) and not recorded()
    with pytest.raises(StopIteration, match="end"):
        next(g)
    assert closed == [False] and recorded()
    g = numbers(1)
    next(g)
    g.close()
    assert closed == [False] * 2 and recorded()


def test_coroutines_and_asynchronous_generators_have_their_mode_between_others() -> None:
    import asyncio

    @tracer.inference_mode()
    async def quiet(name: str) -> list[bool]:
        found = []
        for _ in range(3):
            found.append(recorded())
            await asyncio.sleep(0)
        return found

    async def loud() -> list[bool]:
        found = []
        for _ in range(3):
            found.append(recorded())
            await asyncio.sleep(0)
        return found

    @tracer.no_grad
    async def stream() -> Any:
        for k in range(2):
            await asyncio.sleep(0)
            try:
                yield k, recorded()
            except KeyError:
                yield "caught", recorded()

    async def main() -> Any:
        results = await asyncio.gather(quiet("a"), loud(), quiet("b"))
        items = [item async for item in stream()]
        s = stream()
        first = await s.__anext__()
        thrown = await s.athrow(KeyError())
        await s.aclose()
        return results, items, first, thrown, recorded()

    results, items, first, thrown, after = asyncio.run(main())
    assert results == [[False] * 3, [True] * 3, [False] * 3]
    assert items == [(0, False), (1, False)] and first == (0, False) and thrown == ("caught", False)
    assert after


def test_modes_in_around_and_below_a_trace() -> None:
    w = tracer.tensor(array(3), requires_grad=True)

    @trace
    def inside(x: Any) -> Any:
        with tracer.no_grad():
            quiet = x * w
        with tracer.inference_mode():
            inferred = x * w
        return quiet, inferred, x * w

    @tracer.no_grad()
    @trace
    def around(x: Any) -> Any:
        return x * w

    @trace
    @tracer.inference_mode
    def below(x: Any) -> Any:
        return x * w

    x = tracer.tensor(array(3))
    for _ in range(3):
        quiet, inferred, learned = inside(x)
        assert learned.requires_grad and not quiet.requires_grad and not quiet.is_inference()
        assert inferred.is_inference() and not inferred.requires_grad
        assert not around(x).requires_grad and not around(x).is_inference()
        assert below(x).is_inference() and recorded()
        with tracer.inference_mode():  # a program of its own
            assert all(y.is_inference() for y in inside(x))
    assert len(inside.signatures()) == 2
    inside(x)[2].sum().backward()
    np.testing.assert_array_equal(w.grad, array(3))


def test_a_trace_that_leaves_the_mode_changed_is_refused() -> None:
    @trace
    def careless(x: Any) -> Any:
        tracer.set_grad_enabled(False)
        return x * 2

    with pytest.raises(TraceError, match=r"gradient mode(.|\n)*test_flags\.py:\d+"):
        careless(array(3))
    assert recorded()


# ---- inference mode ------------------------------------------------------------------------------


def test_what_is_an_inference_tensor() -> None:
    w = tracer.tensor(array(3), requires_grad=True)
    x = tracer.tensor(array(3))
    with tracer.inference_mode():
        made = (x * 2, w * 2, tracer.ones(3), tracer.tensor([1.0]), tracer.randn(3), tracer.eye(2))
        assert all(y.is_inference() and not y.requires_grad and y.grad_fn is None for y in made)
        assert not x[1:].is_inference()  # x's own memory
        model = nn.Linear(2, 2)  # is trained later
        leaf = tracer.randn(3, requires_grad=True)
    assert not any(p.is_inference() or not p.requires_grad for p in model.parameters())
    assert leaf.requires_grad and not leaf.is_inference()
    y = made[0]
    assert y[1:].is_inference() and y.detach().is_inference()
    assert not (y + 1).is_inference() and not y.clone().is_inference()
    assert model(array(1, 2)).requires_grad


def test_inference_tensors_have_no_part_in_gradients() -> None:
    w = tracer.tensor(array(3), requires_grad=True)
    with tracer.inference_mode():
        y = tracer.tensor(array(3)) * 2
    with pytest.raises(GradError, match=r"inference mode(.|\n)*test_flags\.py:\d+"):
        y.requires_grad = True
    with pytest.raises(GradError, match=r"inference mode(.|\n)*clone(.|\n)*test_flags\.py:\d+"):
        w * y
    with pytest.raises(GradError, match="inference mode"):
        trace(lambda a: a * w)(y)
    for change in (lambda: y.add_(1), lambda: y.__setitem__(0, 1)):
        with pytest.raises(GradError, match=r"inference mode(.|\n)*test_flags\.py:\d+"):
            change()
    with tracer.inference_mode():
        y.add_(1)
        x = tracer.ones(3).add_(y)
    y = tracer.tensor(x) * 0 + 1
    (w + y).sum().backward()  # keeps nothing of y
    np.testing.assert_array_equal(w.grad, np.ones(3))
    assert (w * y.clone()).requires_grad


def test_functional_gradients_work_in_every_mode() -> None:
    x = array(3)
    with tracer.inference_mode():
        y = tracer.tensor(x)
        gradient = tracer.grad(lambda a: (a * a).sum())(y)
        hessian = tracer.hessian(lambda a: (a * a).sum())(y)
    with tracer.no_grad():
        np.testing.assert_array_equal(tracer.grad(lambda a: (a * a).sum())(x), 2 * x)
    np.testing.assert_array_equal(gradient, 2 * x)
    np.testing.assert_array_equal(hessian, 2 * np.eye(3))


def test_buffers_assigned_in_inference_mode_can_be_used_in_training() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.register_buffer("scale", tracer.ones(3))

        def forward(self, x: Any) -> Any:
            self.scale = self.scale * 0.5
            return self.layer(x) * self.scale

    model = Scaled()
    with tracer.inference_mode():
        model(array(2, 3))
        trace(lambda x: model(x))(array(2, 3))
    model(array(2, 3)).sum().backward()
    assert model.layer.weight.grad is not None


# ---- freezing ------------------------------------------------------------------------------------


class Stack(nn.Module):
    """A base of residual layers, and a classifier."""

    def __init__(self, depth: int, width: int = 32) -> None:
        super().__init__()
        layers = [nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width)) for _ in range(depth)]
        self.base = nn.ModuleList(layers)
        self.fc = nn.Linear(width, 5)

    def forward(self, x: Any) -> Any:
        for layer in self.base:
            x = x + tracer.tanh(layer(x))
        return self.fc(x)


BATCH, WIDTH = 64, 32
FEATURES = BATCH * WIDTH * 4  # bytes of one layer's result
IMAGES, LABELS = array(BATCH, WIDTH), np.arange(BATCH) % 5


def stack(depth: int, frozen: bool) -> Stack:
    model = Stack(depth)
    model.base.requires_grad_(not frozen)
    return model


def memory_of(tensors: Iterable[Tensor]) -> dict[int, int]:
    """Bytes of the memory that Tensors lie in, by the array that owns it."""
    found = {}
    for x in tensors:
        owner = x._data()
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        found[id(owner)] = owner.nbytes
    return found


def kept_by_history(result: Tensor, model: nn.Module) -> int:
    """Bytes that a result's history keeps alive, the parameters not counted: all that it refers to, however."""
    waiting: list[Any] = [result.grad_fn]
    seen: set[int] = set()
    tensors: list[Tensor] = []
    while waiting:
        item = waiting.pop()
        ours = type(item).__module__.startswith("tracer.")
        if id(item) in seen or not (ours or isinstance(item, tuple | list | dict | set)):
            continue
        seen.add(id(item))
        if isinstance(item, Tensor):
            tensors.append(item)
        waiting += gc.get_referents(item)
    parameters = memory_of(model.parameters())
    return sum(size for owner, size in memory_of(tensors).items() if owner not in parameters)


def test_eager_history_of_a_frozen_base_is_its_last_result_whatever_its_depth() -> None:
    def kept(depth: int, frozen: bool, images: Any = IMAGES) -> int:
        model = stack(depth, frozen)
        return kept_by_history(F.cross_entropy(model(images), LABELS), model)

    shallow, deep = kept(2, frozen=True), kept(8, frozen=True)
    assert FEATURES <= shallow == deep < 2 * FEATURES
    assert kept(8, frozen=False) >= kept(2, frozen=False) + 6 * 2 * FEATURES
    assert kept(8, frozen=False, images=Variable(IMAGES, volatile=True)) == 0
    with tracer.no_grad():
        assert kept(8, frozen=False) == 0


def loss_of(model: Stack) -> Any:
    return trace(lambda x, y: F.cross_entropy(model(x), y))


def step_of(model: Stack) -> Any:
    optimizer = optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)

    @trace
    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def peak(call: Callable[[], Any]) -> int:
    """Bytes that a call needs of what programs share."""
    call()
    gc.collect()
    tracer.reset_peak_memory_stats()
    before = tracer.memory_allocated()
    result = call()
    assert tracer.memory_allocated() >= before
    del result
    return tracer.max_memory_reserved() - before


@pytest.mark.parametrize("function", [loss_of, step_of])
def test_compiled_programs_of_a_frozen_base_plan_and_use_memory_of_one_layer(function: Any) -> None:
    def measured(depth: int, frozen: bool) -> tuple[int, int]:
        call = function(stack(depth, frozen))
        plan = call.plan(IMAGES, LABELS)
        return plan.workspace + plan.residuals, peak(lambda: call(IMAGES, LABELS))

    (planned, used), (planned_deep, used_deep) = measured(4, True), measured(8, True)
    assert planned == planned_deep and used == used_deep  # as much as the deepest point needs
    for unfrozen, frozen in zip(measured(8, False), (planned_deep, used_deep), strict=True):
        assert unfrozen >= frozen + 4 * FEATURES
    assert used < planned + 4 * FEATURES  # results and rounding


def test_no_gradient_node_of_a_frozen_base_is_recorded() -> None:
    def gradients(graph: Any) -> set[str]:
        return {n.origin.scope for n in graph.nodes if n.origin.gradient}

    def below(scopes: set[str]) -> list[str]:
        return [s for s in scopes if "base" in s]

    for frozen in (True, False):
        model = stack(2, frozen)
        scopes = gradients(step_of(model).ir(IMAGES, LABELS))
        later = gradients(loss_of(model)(IMAGES, LABELS).grad_fn.graph)
        for found in (scopes, later):
            assert any("fc" in s for s in found)
            assert bool(below(found)) is not frozen


def test_a_frozen_layer_above_a_trained_one_keeps_what_the_gradient_passes_through() -> None:
    model = Stack(3)
    model.base[2].requires_grad_(False)
    model.fc.requires_grad_(False)
    F.cross_entropy(model(IMAGES), LABELS).backward()
    trained = {name for name, p in model.named_parameters() if p.grad is not None}
    assert trained == {n for n, _ in model.named_parameters() if n.startswith(("base.0", "base.1"))}


def test_a_frozen_base_that_was_trained_helps_a_new_head() -> None:
    """The example on a smaller network: digits 0 to 4 first, then only a head for 5 to 9."""
    from examples import finetune

    def network() -> finetune.ResidualNetwork:
        return finetune.ResidualNetwork(classes=5, width=64, depth=2)

    learnt = finetune.fine_tune(network(), 300, 150, "trained base")
    random = finetune.fine_tune(network(), 0, 150, "random base")
    assert learnt.base > 0.9
    assert learnt.head > random.head + 0.08, (learnt, random)
    assert learnt.trained[1] == 5 * 64 + 5 < learnt.trained[0] / 200
    assert learnt.memory[1] < learnt.memory[0] / 2


# ---- PyTorch -------------------------------------------------------------------------------------


@pytest.mark.torch
def test_nested_modes_record_what_pytorch_records() -> None:
    """Random nestings of modes, as contexts, decorators and statements: what requires a gradient, and what is of inference."""
    import random

    import torch

    chosen = random.Random(0)

    def observe(package: Any, w: Any, x: Any) -> list[tuple[bool, bool]]:
        results = [w * 2, x * 2, package.ones(3), w + x, x[1:], w * x[1]]
        return [(y.requires_grad, y.is_inference()) for y in results]

    def run(package: Any, plan: list[tuple[str, str, bool]]) -> list[Any]:
        w, x = package.tensor([1.0, 2.0, 3.0], requires_grad=True), package.ones(3)
        seen = [observe(package, w, x)]

        def level(depth: int) -> None:
            if depth == len(plan):
                return
            name, form, flag = plan[depth]
            arguments = (flag,) if name in ("set_grad_enabled", "inference_mode") else ()
            make = getattr(package, name)

            def inside() -> None:
                seen.append(observe(package, w, x))
                level(depth + 1)
                seen.append(observe(package, w, x))

            if form == "decorator":
                make(*arguments)(inside)()
            else:
                with make(*arguments):
                    inside()
            seen.append(observe(package, w, x))

        level(0)
        return seen

    for _ in range(200):
        plan = [
            (
                chosen.choice(["no_grad", "enable_grad", "set_grad_enabled", "inference_mode"]),
                chosen.choice(["with", "decorator"]),
                chosen.random() < 0.5,
            )
            for _ in range(chosen.randint(1, 5))
        ]
        assert run(tracer, plan) == run(torch, plan), plan
