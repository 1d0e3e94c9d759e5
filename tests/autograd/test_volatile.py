"""Volatile Tensors: through every operator, as a flag, and traced."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracer
import tracer.nn.functional as F
from ops import samples
from ops.operator import Operator
from ops.table import TABLE
from ops.types import FLOATING
from tests.support.flags import array
from tracer import GradError, Variable, nn, trace
from tracer.dispatch.apply import apply_operator
from tracer.tensors.tensor import Tensor
from tracer.tracing.arguments.signature import Call
from tracer.tracing.programs.fast_call import MISS


@pytest.fixture(autouse=True)
def seeded() -> None:
    tracer.manual_seed(0)


OPERATORS = tuple(o for o in TABLE.values() if not o.block_names and o.inputs)


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
        with pytest.raises(GradError, match=r"volatile(.|\n)*test_volatile\.py:\d+"):
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
        with pytest.raises(GradError, match=r"volatile(.|\n)*test_volatile\.py:\d+"):
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

    with pytest.raises(GradError, match=r"volatile(.|\n)*test_volatile\.py:\d+"):
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
