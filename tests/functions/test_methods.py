"""Python's operators, subscripts and PyTorch's methods of Tensor, eager and in traces."""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracer
from tracer import Tensor, trace
from tracer.autograd.tensor_methods import GradientMethods
from tracer.functions.methods import attach

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(1)
A, B = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4))
N, J = RNG.integers(-9, 9, (3, 4)), RNG.integers(1, 5, (3, 4))
CUBE = RNG.standard_normal((2, 3, 4, 5))


def check(got: Any, wanted: Any, tolerance: float = 1e-12) -> None:
    if isinstance(wanted, tuple | list):
        assert len(got) == len(wanted)
        for g, w in zip(got, wanted, strict=True):
            check(g, w, tolerance)
        return
    assert isinstance(got, Tensor)
    assert got.shape == np.shape(wanted)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=tolerance, atol=tolerance)


# ---- operators -----------------------------------------------------------------------------------

ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "lt", "le", "gt", "ge", "eq", "ne")
BITS = ("and_", "or_", "xor", "lshift", "rshift")


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name: str) -> None:
    function = getattr(operator, name)
    t = tracer.tensor(A)
    check(function(t, B), function(A, B))
    check(function(A, tracer.tensor(B)), function(A, B))
    check(function(t, 0.75), function(A, 0.75))
    check(function(0.75, t), function(0.75, A))
    check(function(t, [1.0, 2.0, 3.0, 4.0]), function(A, [1.0, 2.0, 3.0, 4.0]), 1e-6)
    assert isinstance(function(np.float64(2), t), Tensor)


@pytest.mark.parametrize("name", BITS)
def test_bits(name: str) -> None:
    function = getattr(operator, name)
    check(function(tracer.tensor(N), J), function(N, J))
    check(function(5, tracer.tensor(J)), function(5, J))


def test_powers_products_and_signs() -> None:
    t, positive = tracer.tensor(A), np.abs(A)
    check(tracer.tensor(positive) ** B, positive**B)
    check(2 ** tracer.tensor(A), 2**A)
    check(t**2, A**2)
    check(t @ B.T, A @ B.T)
    check(A @ tracer.tensor(B.T), A @ B.T)
    check(-t, -A)
    check(+t, A)
    check(abs(t), np.abs(A))
    check(~tracer.tensor(N), ~N)
    check(round(t, 1), np.round(A, 1))
    check(divmod(t, B), divmod(A, B))
    check(divmod(7, tracer.tensor(J)), divmod(7, J))


class Foreign:
    """A class of somebody else's that knows how to meet a Tensor."""

    def __radd__(self, other: Any) -> str:
        return "foreign"

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_foreign_operands_have_their_turn() -> None:
    t = tracer.tensor(A)
    assert t + Foreign() == "foreign"
    assert (t == Foreign()) is True
    assert (t == None) is False  # noqa: E711 - what is tested
    assert (t == "text") is False
    for wrong in (lambda: t + "text", lambda: None * t, lambda: t @ object()):
        with pytest.raises(TypeError, match="unsupported operand"):
            wrong()


def test_tensors_are_containers() -> None:
    t = tracer.tensor(A)
    check(list(t), list(A))
    assert len(t) == 3
    assert float(A[1, 2]) in t
    assert 1e9 not in t
    assert {t: 1}[t] == 1
    assert f"{t[0, 0]:.3f}" == f"{A[0, 0]:.3f}"
    assert f"{t}" == str(t)
    with pytest.raises(tracer.ShapeError, match="0-d and cannot be iterated"):
        iter(tracer.tensor(1.0))
    assert t.__array_namespace__() is tracer


# ---- subscripts ----------------------------------------------------------------------------------

SUBSCRIPTS: list[Any] = [
    0,
    -1,
    (slice(1, 3), 1),
    slice(None, None, -1),
    (None, 0),
    (..., None, 1),
    ...,
    (),
    [0, 2],
    ([0, 2], [1, 3]),
    (slice(None), [1, 1, 0]),
    (1, [0, 1]),
    ([[0], [1]], [[1, 2]]),
    (-1, -1),
    (slice(None), None, [0, 1]),
    [],
    slice(5, 0, -2),
    slice(7, 9),
    (slice(-100, 100), slice(None, None, 3)),
]
SUBSCRIPTS_OF_CUBE: list[Any] = [
    (0, slice(None), [0, 1]),
    (slice(None), [0, 1], slice(None), [2, 3]),
    (slice(None), [0, 1], [2, 3]),
    ([0, 1], None, [1, 2]),
    (slice(None, None, -2), slice(5, 0, -1), ..., [1, -1]),
    (..., [0], None),
    (0, None, [1, 0], ..., slice(0, 4, 2)),
    ([1, 0], slice(None), 2),
]
CASES = [(A, k) for k in SUBSCRIPTS] + [(CUBE, k) for k in SUBSCRIPTS_OF_CUBE]


@pytest.mark.parametrize(("x", "key"), CASES, ids=[str(k) for _, k in CASES])
def test_subscripts(x: Array, key: Any) -> None:
    check(tracer.tensor(x)[key], x[key])


@pytest.mark.kernels("python")
def test_subscripts_in_a_trace_equal_those_outside() -> None:
    keys = [k for k in SUBSCRIPTS if k != []]
    compiled = trace(lambda x: [x[k] for k in keys])(A)
    check(compiled, [A[k] for k in keys])
    cube = trace(
        lambda x, i: [x[k] for k in SUBSCRIPTS_OF_CUBE] + [x[i], x[:, i[0], i], x[0, :, i[1]]]
    )
    index = np.array([1, 0])
    wanted = [CUBE[k] for k in SUBSCRIPTS_OF_CUBE]
    check(cube(CUBE, index), [*wanted, CUBE[index], CUBE[:, 1, index], CUBE[0, :, 0]])


def test_masks() -> None:
    t = tracer.tensor(A)
    check(t[A > 0], A[A > 0])
    check(t[t > 0], A[A > 0])
    check(t[[True, False, True]], A[[True, False, True]])
    check(t[0, A[0] > 0], A[0, A[0] > 0])
    check(tracer.tensor(CUBE)[:, CUBE[0, :, :, 0] > 0], CUBE[:, CUBE[0, :, :, 0] > 0])
    check(trace(lambda x: x[x > 0])(A), A[A > 0])  # how many there are is asked in the trace


def test_subscripts_of_tensors_as_indices() -> None:
    t = tracer.tensor(A)
    check(t[tracer.tensor(2)], A[2])
    check(t[tracer.tensor([2, 0])], A[[2, 0]])
    check(t[: tracer.tensor(2)], A[:2])


@pytest.mark.parametrize(
    ("key", "place"),
    [
        (1, 1),
        (slice(None, None, -2), slice(None, None, -2)),
        (([0, 0, 1], 2), ([0, 0, 1], 2)),
        (A > 0, A > 0),
        ((None, ..., [1, 1]), (..., [1, 1])),
    ],
)
def test_gradients_through_subscripts(key: Any, place: Any) -> None:
    x = tracer.tensor(A, requires_grad=True)
    x[key].sum().backward()
    wanted = np.zeros_like(A)
    np.add.at(wanted, place, 1.0)
    check(x.grad, wanted)


ASSIGNMENTS: list[tuple[Any, Any]] = [
    (0, 1.5),
    ((slice(None), 1), B[:, 0]),
    (slice(None, None, -1), B),
    ((slice(0, 3, 2), slice(1, None)), B[:2, :3]),
    (..., 2),
    ((None, 1), B[0]),
    ((-1, -1), 7),
    (slice(5, 9), B[:0]),
    ((slice(None), slice(None, None, -2)), B[:, :1]),
]


@pytest.mark.parametrize(("key", "value"), ASSIGNMENTS, ids=[str(k) for k, _ in ASSIGNMENTS])
def test_assignments_to_parts(key: Any, value: Any) -> None:
    wanted = A.copy()
    wanted[key] = value
    t = tracer.tensor(A)
    version = t._version
    t[key] = value
    check(t, wanted)
    assert t._version == version + 1

    @trace
    def assign(x: Any) -> Any:
        y = x * 1
        y[key] = value
        return y

    check(assign(A), wanted)

    given = A.copy()
    trace(_set_in_argument(key, value))(given)
    check(tracer.tensor(given), wanted)


def _set_in_argument(key: Any, value: Any) -> Callable[[Any], None]:
    def assign(x: Any) -> None:
        x[key] = value

    return assign


def test_assignments_where_a_mask_holds() -> None:
    wanted = np.where(A > 0, 9.0, A)
    t = tracer.tensor(A)
    t[t > 0] = 9
    check(t, wanted)

    def masked(x: Any) -> Any:
        y = x + 0
        y[y > 0] = 9
        return y

    check(trace(masked)(A), wanted)
    t[[0, 1]] = 0
    assert not np.asarray(t)[:2].any()


def test_assigning_casts_to_the_target() -> None:
    t = tracer.tensor([1, 2, 3])
    t[0] = 5.9
    t[1:] = np.array([7, 8], np.int8)
    assert t.tolist() == [5, 7, 8]


# ---- reductions under PyTorch's names ------------------------------------------------------------


def test_reductions() -> None:
    t = tracer.tensor(A)
    check(t.sum(), A.sum())
    check(t.sum(0), A.sum(0))
    check(t.sum(dim=1, keepdim=True), A.sum(1, keepdims=True))
    check(t.sum(axis=(0, 1), keepdims=True), A.sum((0, 1), keepdims=True))
    check(t.sum([0, 1]), A.sum())
    check(t.mean(-1), A.mean(-1))
    check(t.prod(dim=0), A.prod(0))
    check(t.var(), A.var(ddof=1))
    check(t.var(0, unbiased=False), A.var(0))
    check(t.var(dim=1, correction=0), A.var(1))
    check(t.std(axis=1, keepdims=True), A.std(1, ddof=1, keepdims=True))
    check(t.amax(0), A.max(0))
    check(t.amin((0, 1)), A.min())
    check(t.argmax(), A.argmax())
    check(t.argmin(1, keepdim=True), A.argmin(1, keepdims=True))
    check((t > 0).all(1), (A > 0).all(1))
    check((t > 0).any(), (A > 0).any())
    check(t.count_nonzero(dim=0), np.count_nonzero(A, 0))
    check(t.cumsum(1), np.cumsum(A, 1))
    check(t.norm(), np.sqrt((A * A).sum()))
    check(t.norm(1, dim=0), np.abs(A).sum(0))
    check(t.norm("inf", dim=1), np.abs(A).max(1))
    check(t.logsumexp(1), np.log(np.exp(A).sum(1)))
    check(t.softmax(0), np.exp(A) / np.exp(A).sum(0))
    check(t.log_softmax(dim=1), A - np.log(np.exp(A).sum(1, keepdims=True)))
    assert tracer.tensor([1, 2]).mean(dtype="float64").dtype == np.float64


def test_extremes_give_values_and_indices() -> None:
    t = tracer.tensor(A)
    check(t.max(), A.max())
    found = t.max(dim=1)
    check(found.values, A.max(1))
    check(found.indices, A.argmax(1))
    values, indices = t.min(axis=0, keepdims=True)
    check(values, A.min(0, keepdims=True))
    check(indices, A.argmin(0, keepdims=True))
    check(t.max(tracer.tensor(B)), np.maximum(A, B))
    x = tracer.tensor([[1.0, 3.0, 3.0]], requires_grad=True)
    x.max(dim=1).values.sum().backward()
    assert np.asarray(x.grad).tolist() == [[0, 1, 0]]  # the element that was taken; amax shares


# ---- arrangement under PyTorch's names -----------------------------------------------------------


def test_shapes() -> None:
    t = tracer.tensor(CUBE)
    check(t.reshape(6, -1), CUBE.reshape(6, -1))
    check(t.view((2, 60)), CUBE.reshape(2, 60))
    check(t.view(-1), CUBE.reshape(-1))
    check(t.flatten(1), CUBE.reshape(2, -1))
    check(t.ravel(), CUBE.ravel())
    check(t.unflatten(2, (2, -1)), CUBE.reshape(2, 3, 2, 2, 5))
    check(t.permute(3, 0, 1, 2), CUBE.transpose(3, 0, 1, 2))
    check(t.permute((3, 0, 1, 2)), CUBE.transpose(3, 0, 1, 2))
    check(t.transpose(0, -1), CUBE.swapaxes(0, -1))
    check(t.movedim(0, -1), np.moveaxis(CUBE, 0, -1))
    check(t.T, CUBE.T)
    check(t.mT, CUBE.swapaxes(-1, -2))
    check(t[0, 0].t(), CUBE[0, 0].T)
    check(t.unsqueeze(-1), CUBE[..., None])
    check(t.unsqueeze(axis=0), CUBE[None])
    check(t[:1].squeeze(), CUBE[0])
    check(t[:1].squeeze(dim=1), CUBE[:1])
    check(t[:, :1].expand(2, 3, -1, 5), np.broadcast_to(CUBE[:, :1], CUBE.shape))
    check(t[:, :1].expand_as(t), np.broadcast_to(CUBE[:, :1], CUBE.shape))
    check(t.repeat(2, 1, 1, 3), np.tile(CUBE, (2, 1, 1, 3)))
    check(t.repeat_interleave(2, dim=1), np.repeat(CUBE, 2, 1))
    check(t.flip(0, 1), np.flip(CUBE, (0, 1)))
    check(t.flip((2,)), np.flip(CUBE, 2))
    check(t.roll(1, 0), np.roll(CUBE, 1, 0))
    check(t.diagonal(), np.diagonal(CUBE))
    check(t.tril(1), np.tril(CUBE, 1))
    assert t.size() == (2, 3, 4, 5)
    assert t.size(-1) == 5
    assert t.dim() == 4
    assert t.numel() == 120
    assert t.view_as(t.reshape(-1)).shape == (120,)


def test_parts() -> None:
    t, line = tracer.tensor(CUBE), np.arange(7)
    parts = [line[:3], line[3:6], line[6:]]
    check(tracer.tensor(line).split(3), parts)
    check(tracer.tensor(line).chunk(3), parts)
    check(tracer.tensor(line).split([2, 5]), [line[:2], line[2:]])
    check(tracer.tensor(line).tensor_split(3), np.array_split(line, 3))
    check(tracer.tensor(line).chunk(9), list(line[:, None]))
    check(t.split(2, dim=-1), [CUBE[..., :2], CUBE[..., 2:4], CUBE[..., 4:]])
    check(t.unbind(1), [CUBE[:, k] for k in range(3)])
    check(t.narrow(3, -3, 2), CUBE[..., 2:4])
    check(t.select(1, -1), CUBE[:, -1])


def test_indexing_methods() -> None:
    t, order = tracer.tensor(A), np.argsort(A, 1)
    check(t.index_select(1, [3, 0]), A[:, [3, 0]])
    check(t.take([0, 11]), A.reshape(-1)[[0, 11]])
    check(t.gather(1, order), np.sort(A, 1))
    check(t.take_along_dim(order[:, :1], dim=1), A.min(1, keepdims=True))
    check(t.take_along_dim(tracer.tensor([3])), A.reshape(-1)[[3]])
    wanted = A.copy()
    np.add.at(wanted, (slice(None), [0, 0]), 2 * B[:, :2])
    check(t.index_add(1, [0, 0], B[:, :2], alpha=2), wanted)
    wanted = A.copy()
    np.put_along_axis(wanted, order, np.sort(A, 1) + B, 1)
    check(t.scatter_add(1, order, B), wanted)
    check(t.masked_fill(A > 0, -1), np.where(A > 0, -1, A))
    check(t.nonzero(), np.argwhere(A))
    check(t.where(A > 0, B), np.where(A > 0, A, B))


def test_elementwise_methods() -> None:
    t = tracer.tensor(A)
    check(t.add(B, alpha=2), A + 2 * B)
    check(t.sub(B, alpha=0.5), A - 0.5 * B)
    check(t.mul(B).div(2), A * B / 2)
    check(t.div(B, rounding_mode="floor"), A // B)
    check(t.div(B, rounding_mode="trunc"), np.trunc(A / B))
    check(tracer.tensor(N).div(J, rounding_mode="trunc"), np.trunc(N / J))
    check(t.addcmul(A, B, value=3), A + 3 * A * B)
    check(t.addcdiv(A, B, value=-1), A - A / B)
    check(t.clamp(-1, 1).clamp_min(0), np.clip(A, 0, 1))
    check(t.lerp(B, 0.5), (A + B) / 2)
    check(t.exp().log1p().tanh(), np.tanh(np.log1p(np.exp(A))))
    check(t.relu() + t.sigmoid(), np.maximum(A, 0) + 1 / (1 + np.exp(-A)))
    assert t.allclose(A + 1e-12)
    assert t.equal(A)
    assert not t.equal(A[:1])
    check(t.eq(A), np.ones_like(A, bool))


def test_products() -> None:
    t = tracer.tensor(A)
    check(t.mm(B.T), A @ B.T)
    check(t.mv(B[0]), A @ B[0])
    check(t[0].dot(B[0]), A[0] @ B[0])
    check(tracer.tensor(CUBE[0]).bmm(CUBE[1].swapaxes(1, 2)), CUBE[0] @ CUBE[1].swapaxes(1, 2))
    check(t[:, :3].addmm(A, B.T, beta=2, alpha=3), 2 * A[:, :3] + 3 * A @ B.T)
    with pytest.raises(tracer.ShapeError, match="mm takes operands of 2 and 2 axes"):
        t.mm(B[0])


def test_conversions() -> None:
    t = tracer.tensor(A)
    names = {
        "float": "float32",
        "double": "float64",
        "half": "float16",
        "bfloat16": "bfloat16",
        "int": "int32",
        "long": "int64",
        "short": "int16",
        "char": "int8",
        "byte": "uint8",
        "bool": "bool",
    }
    for method, dtype in names.items():
        assert getattr(t, method)().dtype == getattr(tracer, dtype)
    assert (
        t.to("float32").dtype
        == t.to(tracer.float32).dtype
        == t.to(tracer.ones(1)).dtype
        == np.float32
    )
    assert t.to("cpu") is t.cpu() is t.double() is t
    assert t.to("cpu", np.float16).dtype == np.float16
    assert t.to(t, copy=True) is not t
    assert t.type_as(tracer.ones(1)).dtype == np.float32
    assert t.device == "cpu"
    assert t.element_size() == 8
    assert t.is_floating_point()
    assert t.new_zeros(2, 3).shape == (2, 3)
    assert t.new_ones((2,), dtype="int8").dtype == np.int8
    assert t.new_full((2,), 3).dtype == np.float64
    assert t.new_tensor([1]).dtype == np.float64
    assert not t.T.is_contiguous()
    check(t.T.contiguous(), A.T)
    assert t.T.contiguous().is_contiguous()
    with pytest.raises(tracer.ArgumentError, match="only device"):
        t.to("cuda")


# ---- in place ------------------------------------------------------------------------------------

IN_PLACE: list[tuple[str, Callable[[Any], Any], Callable[[Array], Array]]] = [
    ("add_", lambda t: t.add_(B, alpha=2), lambda a: a + 2 * B),
    ("sub_", lambda t: t.sub_(1), lambda a: a - 1),
    ("mul_", lambda t: t.mul_(B), lambda a: a * B),
    ("div_", lambda t: t.div_(B), lambda a: a / B),
    ("pow_", lambda t: t.pow_(2), lambda a: a**2),
    ("copy_", lambda t: t.copy_(B[:1]), lambda a: np.broadcast_to(B[:1], a.shape)),
    ("fill_", lambda t: t.fill_(3), lambda a: np.full_like(a, 3)),
    ("zero_", lambda t: t.zero_(), np.zeros_like),
    ("addcmul_", lambda t: t.addcmul_(A, B, value=2), lambda a: a + 2 * A * B),
    ("addcdiv_", lambda t: t.addcdiv_(A, B), lambda a: a + A / B),
    ("lerp_", lambda t: t.lerp_(B, 0.25), lambda a: a + 0.25 * (B - a)),
    ("clamp_", lambda t: t.clamp_(-0.5, 0.5), lambda a: np.clip(a, -0.5, 0.5)),
    ("masked_fill_", lambda t: t.masked_fill_(A > 0, 0), lambda a: np.where(A > 0, 0, a)),
    ("neg_", lambda t: t.neg_(), np.negative),
    ("exp_", lambda t: t.exp_(), np.exp),
    ("sqrt_", lambda t: t.abs().sqrt_(), lambda a: np.sqrt(np.abs(a))),
]


@pytest.mark.parametrize(("name", "change", "wanted"), IN_PLACE, ids=[c[0] for c in IN_PLACE])
def test_changes_in_place(
    name: str, change: Callable[[Any], Any], wanted: Callable[[Array], Array]
) -> None:
    t = tracer.tensor(A)
    alias = t.detach()
    result = change(t)
    check(result, wanted(A))
    if name != "sqrt_":
        assert result is t
        assert t._version == 1
        check(alias, wanted(A))


def test_changes_in_place_in_a_trace_reach_what_lies_outside() -> None:
    state = tracer.tensor(A)

    @trace
    def step(x: Any) -> Any:
        state.mul_(0.5).add_(x)
        x.zero_()
        return state * 2

    x = B.copy()
    result = step(x)
    check(state, A * 0.5 + B)
    check(result, A + 2 * B)
    assert not x.any()
    assert state._version == 1


def test_augmented_assignment_is_in_place() -> None:
    t = tracer.tensor(A)
    same = t
    t += 1
    t *= 2
    t -= B
    t /= 4
    assert t is same
    check(t, ((A + 1) * 2 - B) / 4)
    n = tracer.tensor(N)
    n //= 2
    n <<= 1
    n &= 7
    check(n, ((N // 2) << 1) & 7)

    x = tracer.tensor(A, requires_grad=True)
    y = x * 2
    before = y
    y += x
    assert y is before
    y.sum().backward()
    check(x.grad, np.full_like(A, 3))


def test_augmented_assignment_of_numbers() -> None:
    @trace
    def schedule(x: Any, rate: float) -> Any:
        rate *= 0.5
        rate += 1
        return x * rate

    check(schedule(A, 3.0), A * 2.5)
    assert schedule(A.astype(np.float32), 3.0).dtype == np.float32
    with pytest.raises(tracer.ArgumentError, match="a Python number is not changed in place"):
        trace(lambda rate: rate.add_(1))(3.0)


def test_augmented_assignment_to_parts() -> None:
    def function(x: Any) -> Any:
        y = x + 0
        y[1] += 5
        y[:, 0] *= 2
        return y

    wanted = A.copy()
    wanted[1] += 5
    wanted[:, 0] *= 2
    check(function(tracer.tensor(A)), wanted)
    check(trace(function)(A), wanted)


def test_what_gradients_need_is_not_changed() -> None:
    x = tracer.tensor(A, requires_grad=True)
    with pytest.raises(
        tracer.GradError, match=r"requires a gradient and is changed in place.*no_grad"
    ):
        x.add_(1)
    with pytest.raises(tracer.GradError, match="changed in place"):
        x += 1
    with pytest.raises(tracer.GradError, match="changed in place"):
        x[0] = 1
    with pytest.raises(tracer.GradError, match="is a view of a leaf"):
        x.reshape(-1).add_(1)
    with tracer.no_grad():
        x.add_(1)
        x -= 0.5
        x[0] = 0
    wanted = A + 0.5
    wanted[0] = 0
    check(x, wanted)
    assert x.requires_grad
    assert x.is_leaf


def test_what_does_not_fit_in_place() -> None:
    with pytest.raises(tracer.DTypeError, match=r"float32\[2\] does not fit into int64\[2\]"):
        tracer.tensor([1, 2]).add_(0.5)
    with pytest.raises(tracer.ShapeError, match="does not fit"):
        tracer.tensor([1.0]).add_(tracer.ones((2, 1)))
    with pytest.raises(tracer.ArgumentError, match="cannot be changed in place"):
        tracer.broadcast_to(tracer.ones(1), (3,)).add_(1)
    with pytest.raises(tracer.ArgumentError, match="cannot be changed in place"):
        trace(lambda x: x.expand(2, 3, 4).add_(1))(A)


def test_data_is_shared_memory_without_history() -> None:
    x = tracer.tensor(A, requires_grad=True)
    x.data -= 1
    check(x, A - 1)
    assert x.requires_grad
    x.data = tracer.tensor(B)
    check(x, B)

    @trace
    def step(rate: float) -> None:
        x.data -= rate * x

    step(0.5)
    check(x, 0.5 * B)
    with pytest.raises(tracer.ArgumentError, match=r"takes a Tensor of x's type"):
        x.data = tracer.ones(2)


def test_copies_have_memory_and_history() -> None:
    x = tracer.tensor(A, requires_grad=True)
    y = x.clone()
    assert not np.shares_memory(np.asarray(y), np.asarray(x))
    (y * 2).sum().backward()
    check(x.grad, np.full_like(A, 2))


# ---- attaching -----------------------------------------------------------------------------------


def test_attached_names_do_not_hide_tensors_own() -> None:
    own = set()
    for kind in (Tensor, GradientMethods):
        tree = ast.parse(inspect.getsource(inspect.getmodule(kind)))
        (cls,) = (
            node
            for node in tree.body
            if isinstance(node, ast.ClassDef) and node.name == kind.__name__
        )
        own |= {node.name for node in cls.body if isinstance(node, ast.FunctionDef)}
    assert {"backward", "item"} <= own
    assert own & set(attach.names()) == set()


def test_both_names_of_an_axis_at_once_are_refused() -> None:
    with pytest.raises(tracer.ArgumentError, match="two names of one argument"):
        tracer.tensor(A).sum(dim=0, axis=1)
    with pytest.raises(tracer.ArgumentError, match="an axis is needed"):
        tracer.tensor(A).unsqueeze()


def test_methods_have_the_signature_of_their_family() -> None:
    for name in ("amax", "amin", "all", "any", "logsumexp"):
        assert list(inspect.signature(getattr(Tensor, name)).parameters) == [
            "x",
            "dim",
            "keepdim",
            "axis",
            "keepdims",
        ]
    with pytest.raises(
        tracer.ArgumentError,
        match=r"^Tensor.softmax\(\) .* 'dims'; it is called as softmax\(x, dim",
    ):
        tracer.tensor(A).softmax(dims=1)


def test_attaching_leaves_the_names_of_functions_alone() -> None:
    assert tracer.clip.__qualname__ == "clip" and Tensor.clamp is tracer.clip
    for name in ("sum", "add_", "reshape", "__add__", "float"):
        method = getattr(Tensor, name)
        assert (method.__name__, method.__qualname__) == (name, f"Tensor.{name}")
