"""Reductions, means, softmax, norms: folds read as text, edges of values and gradients, accuracy.

What holds for every operator is tested by the walk of the table; here is what is particular.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from codegen.vector import CHUNK, LANE_ELEMENT, NAMES, WIDTH, Lanes
from ops import samples
from ops.compute import Folding, Reduction
from ops.operator import Operator, lookup
from ops.table import TABLE
from ops.types import FLOATING, Type, dtype_name, normalize_axes, numpy_dtype
from tests.support.accuracy import difference_in_ulp
from tests.support.evaluate import ArrayBuilder, TypeBuilder, Value, evaluate, gradients

pytestmark = pytest.mark.cpu

Array = np.ndarray[Any, Any]
REDUCTIONS = tuple(o for o in TABLE.values() if isinstance(o.compute, Reduction))
inf, nan = np.inf, np.nan


# ---- folds as text -------------------------------------------------------------------------------


@cache
def code(text: str) -> Any:
    return compile(text, "<folding>", "eval")


class Reader:
    """A folding run on Lanes by its texts, in the order of the numerics contract."""

    def __init__(self, folding: Folding) -> None:
        self.folding = folding
        self.names = [name for name, _ in folding.state]

    def start(self) -> list[Any]:
        result = []
        for (_, element), init in zip(self.folding.state, self.folding.init, strict=True):
            value = eval(init, NAMES)
            dtype = np.bool_ if element == "bool" else NAMES[element](0).dtype
            result.append(Lanes(np.full(WIDTH, value, dtype)))
        return result

    def say(self, texts: tuple[str, ...], names: dict[str, Any], *arguments: Any) -> list[Any]:
        bound = {f"x{k}": a for k, a in enumerate(arguments)}
        return [eval(code(t.format(*bound)), NAMES, names | bound) for t in texts]

    def named(self, states: list[Any], prefix: str = "") -> dict[str, Any]:
        return {prefix + name: s for name, s in zip(self.names, states, strict=True)}

    def merge(self, states: list[Any], other: list[Any]) -> list[Any]:
        names = self.named(states) | self.named(other, "other_")
        return self.say(self.folding.merge, names)

    def chunk(self, row: Array, positions: Array) -> list[Any]:
        """The states of up to 4096 elements, all lanes combined."""
        states = self.start()
        for at in range(0, len(row), WIDTH):
            live = np.arange(WIDTH) < len(row) - at
            padded, places = np.resize(row[at : at + WIDTH], WIDTH), np.zeros(WIDTH, np.int64)
            places[: live.sum()] = positions[at : at + WIDTH]
            stepped = self.say(self.folding.step, self.named(states), Lanes(padded), Lanes(places))
            states = [
                Lanes(np.where(live, new.array, old.array).astype(old.array.dtype))
                for new, old in zip(stepped, states, strict=True)
            ]
        for count in (8, 4, 2, 1):
            states = self.merge(states, [Lanes(np.roll(s.array, -count)) for s in states])
        return states

    def fold(self, row: Array, size: int = CHUNK) -> list[Any]:
        positions = np.arange(len(row), dtype=np.int64)
        parts = [
            self.chunk(row[k : k + size], positions[k : k + size])
            for k in range(0, max(len(row), 1), size)
        ]
        while len(parts) > 1:
            pairs = [self.merge(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
            parts = pairs + parts[len(parts) // 2 * 2 :]
        return parts[0]

    def finish(self, states: list[Any]) -> Any:
        (result,) = self.say(self.folding.finish, self.named(states))
        return result.array[0]


def reader_of(operator: Operator, dtype: str) -> Reader:
    assert isinstance(operator.compute, Reduction)
    result = "int64" if operator.compute.positions else dtype
    return Reader(operator.compute.folding(Type(dtype), Type(result)))


def lanes_of(array: Array) -> Array:
    element = LANE_ELEMENT[dtype_name(array.dtype)]
    return array.astype(np.bool_ if element == "bool" else NAMES[element](0).dtype)


@pytest.mark.parametrize("operator", REDUCTIONS, ids=lambda o: o.name)
def test_folding_agrees_with_the_reference(operator: Operator) -> None:
    for sample, dtype, (x,) in samples.cases(operator):
        axes = normalize_axes(sample.attrs["axes"], x.ndim)
        (expected,) = evaluate(operator, (x,), sample.attrs)
        kept = [k for k in range(x.ndim) if k not in axes]
        rows = np.transpose(x, (*kept, *axes)).reshape(
            math.prod(x.shape[k] for k in kept), math.prod(x.shape[k] for k in axes)
        )
        reader = reader_of(operator, dtype)
        found = [reader.finish(reader.fold(lanes_of(row))) for row in rows]
        with np.errstate(all="ignore"):
            got = np.array(found, lanes_of(expected).dtype).astype(expected.dtype)
        assert difference_in_ulp(got.reshape(expected.shape), expected) == 0, (sample, dtype)


@pytest.mark.parametrize("name", ["ReduceSum", "ReduceProd"])
@pytest.mark.parametrize("size", [15, 16, 17, CHUNK - 1, CHUNK + 1, 3 * CHUNK + 7])
def test_order_of_sums_and_products(name: str, size: int, rng: np.random.Generator) -> None:
    x = rng.uniform(0.5, 1.5, size).astype(np.float32)
    (expected,) = evaluate(lookup(name), (x,), {"axes": (0,), "keepdims": False})
    reader = reader_of(lookup(name), "float32")
    assert reader.finish(reader.fold(x)) == expected


def test_integers_wrap_around() -> None:
    for dtype in ("int8", "uint8", "int32", "int64", "uint64"):
        info = np.iinfo(dtype)
        row = np.array([info.max, 3, info.min, info.max, 7] * 5, dtype)
        for name, python in (("ReduceSum", sum), ("ReduceProd", math.prod)):
            exact = python(row.tolist())
            wrapped = (exact - info.min) % 2**info.bits + info.min
            (found,) = evaluate(lookup(name), (row,), {"axes": (0,), "keepdims": False})
            assert found == wrapped
            reader = reader_of(lookup(name), dtype)
            assert reader.finish(reader.fold(row)) == wrapped


@pytest.mark.parametrize("name", ["ArgMax", "ArgMin", "ReduceMax", "ReduceMin"])
def test_merging_is_free_of_order_ties_and_nan_included(
    name: str, rng: np.random.Generator
) -> None:
    reader = reader_of(lookup(name), "float32")
    for _ in range(20):
        values = rng.choice([0.0, 1.0, 2.0, -inf, inf, nan], rng.integers(1, 40))
        if rng.random() < 0.5:
            values = np.where(np.isnan(values), 1.0, values)
        row = values.astype(np.float32)
        (expected,) = evaluate(lookup(name), (row,), {"axes": (0,), "keepdims": False})
        for size in (1, 3, 16, 20):
            assert np.array_equal(reader.finish(reader.fold(row, size)), expected, equal_nan=True)


# ---- values --------------------------------------------------------------------------------------


def reduced(name: str, x: Any, expanded: bool = True, **attrs: Any) -> Array:
    x = np.asarray(x)
    attrs = {"axes": tuple(range(x.ndim)), "keepdims": False} | attrs
    return evaluate(lookup(name), (x,), attrs, expanded=expanded)[0]


def along(name: str, x: Any, expanded: bool = True) -> Array:
    return evaluate(lookup(name), (np.asarray(x),), {"axis": -1}, expanded=expanded)[0]


def test_sums_and_variances_of_many_numbers_far_from_zero(rng: np.random.Generator) -> None:
    x = (1e6 + rng.standard_normal(10_000_000)).astype(np.float32)
    wide = x.astype(np.longdouble)
    total, size = wide.sum(), x.size
    average = total / size
    wide -= average
    spread = np.square(wide).sum() / size
    for name, exact in (
        ("ReduceSum", total),
        ("ReduceMean", average),
        ("Variance", spread),
        ("StandardDeviation", np.sqrt(spread)),
    ):
        found = reduced(name, x)
        assert difference_in_ulp(found, np.asarray(exact, np.float32)) <= 1, name


def test_half_sums_do_not_stop_growing() -> None:
    ones = np.ones(5000, np.float16)
    assert reduced("ReduceSum", ones) == 5000
    assert reduced("ReduceMean", np.full(5000, 100, np.float16)) == 100  # the sum overflows
    assert reduced("ReduceL2", np.full(4, 3e4, np.float16)) == 6e4
    assert reduced("StandardDeviation", np.array([3e38, -3e38], np.float32)) == np.float32(3e38)


def test_variance_counts() -> None:
    x = np.array([1.0, 2.0, 4.0, 9.0])
    for correction in (0.0, 1.0, 1.5):
        expected = np.square(x - 4).sum() / (4 - correction)
        assert reduced("Variance", x, correction=correction) == pytest.approx(expected, rel=1e-15)
    for size, correction in ((0, 0.0), (1, 1.0), (1, 2.0), (0, 1.0)):
        assert np.isnan(reduced("Variance", np.ones(size), correction=correction))


def test_of_nothing() -> None:
    nothing = np.ones((2, 0), np.float32)
    wanted = {
        "ReduceSum": 0,
        "ReduceProd": 1,
        "ReduceMax": -inf,
        "ReduceMin": inf,
        "ReduceMean": nan,
        "ReduceL1": 0,
        "ReduceL2": 0,
        "ReduceLogSumExp": -inf,
    }
    for name, value in wanted.items():
        for expanded in (False, True):
            found = reduced(name, nothing, expanded, axes=(1,))
            assert np.array_equal(found, np.full(2, value), equal_nan=True), name
    assert reduced("ReduceMax", np.ones(0, np.int8)) == -128
    assert not reduced("ReduceAny", np.ones(0, bool)) and reduced("ReduceAll", np.ones(0, bool))


def test_log_of_sums_of_exponentials_at_the_edges() -> None:
    for row, expected in (
        ([-inf, -inf], -inf),
        ([inf, 0.0], inf),
        ([inf, -inf], inf),
        ([1e4, 1e4], 1e4 + math.log(2)),
        ([-1e4, -1e4], -1e4 + math.log(2)),
        ([3e38, -3e38], 3e38),
    ):
        for expanded in (False, True):
            found = reduced("ReduceLogSumExp", np.array(row, np.float32), expanded)
            assert found == np.float32(expected)


def test_softmax_at_the_edges() -> None:
    for row, expected in (
        ([1e4, -1e4], [1, 0]),
        ([-inf, 0.0], [0, 1]),
        ([3e38, -3e38], [1, 0]),
        ([-3e38, -3e38], [0.5, 0.5]),
        ([-inf, -inf], [nan, nan]),
    ):
        for expanded in (False, True):
            x = np.array(row, np.float32)
            assert np.array_equal(along("Softmax", x, expanded), expected, equal_nan=True)
            with np.errstate(divide="ignore"):
                logs = np.log(np.array(expected, np.float32))
            if 1e4 not in row and 3e38 not in row:
                assert np.array_equal(along("LogSoftmax", x, expanded), logs, equal_nan=True)
    assert along("LogSoftmax", np.array([1e4, -1e4], np.float32)).tolist() == [0, -2e4]


def test_log_softmax_keeps_relative_accuracy_near_zero() -> None:
    for gap in (5.0, 20.0, 40.0, 80.0):
        found = along("LogSoftmax", np.array([0, -gap], np.float32))[0]
        expected = -math.log1p(math.exp(-gap))
        if gap <= 30:  # from there on 1 + exp(-gap) is 1 in float64 too
            assert found == pytest.approx(expected, rel=1e-6)
        assert abs(found - expected) < 1e-16


def test_layer_normalization_far_from_zero(rng: np.random.Generator) -> None:
    x = (1e6 + rng.standard_normal((4, 1000))).astype(np.float32)
    attrs = {"axis": -1, "epsilon": 1e-5}
    (expected,) = evaluate(lookup("LayerNormalization"), (x,), attrs)
    (found,) = evaluate(lookup("LayerNormalization"), (x,), attrs, expanded=True)
    assert np.abs(found - expected).max() < 3e-7


# ---- gradients at the edges ----------------------------------------------------------------------


def gradient(name: str, x: Any, weights: Any = None, **attrs: Any) -> Array:
    """The gradient of the sum of the results, or of their sum by weights."""
    x = np.asarray(x, np.float64) if not isinstance(x, np.ndarray) else x
    operator = lookup(name)
    (y,) = evaluate(operator, (x,), attrs)
    w = np.ones(y.shape) if weights is None else np.asarray(weights)
    (found,) = gradients(operator, (x,), attrs, (w.astype(y.dtype),))
    assert found is not None
    return found


ALL = {"axes": (0,), "keepdims": False}


@pytest.mark.parametrize("dtype", FLOATING)
def test_norms_and_deviations_of_equal_values_have_gradient_zero(dtype: str) -> None:
    zeros, fives = np.zeros(3, numpy_dtype(dtype)), np.full(3, 5, numpy_dtype(dtype))
    for name, x in (("ReduceL2", zeros), ("ReduceL1", zeros), ("StandardDeviation", fives)):
        assert gradient(name, x, **ALL).tolist() == [0, 0, 0], name


def test_gradient_of_log_of_sums_is_finite() -> None:
    assert gradient("ReduceLogSumExp", [-inf, -inf], **ALL).tolist() == [0, 0]
    assert gradient("ReduceLogSumExp", [inf, 0.0], **ALL).tolist() == [1, 0]
    assert gradient("ReduceLogSumExp", [-inf, 3.0, 3.0], **ALL) == pytest.approx([0, 0.5, 0.5])
    assert gradient("ReduceLogSumExp", [1e4, -1e4], **ALL).tolist() == [1, 0]


@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin"])
def test_ties_share_the_gradient(name: str) -> None:
    sign = 1 if name == "ReduceMax" else -1
    found = gradient(name, [2.0 * sign, 1.0 * sign, 2.0 * sign, 2.0 * sign], [6.0], **ALL)
    assert found.tolist() == [2, 0, 2, 2]
    assert gradient(name, [0.0, -0.0], **ALL).tolist() == [0.5, 0.5]
    assert gradient(name, [nan, 1.0, nan], **ALL).tolist() == [0.5, 0, 0.5]
    many = np.zeros(70_000, np.float16)  # more ties than float16 counts
    assert (gradient(name, many, **ALL).astype(float) == np.float16(1 / 70_000)).all()


def test_products_with_zeros_have_exact_gradients() -> None:
    assert gradient("ReduceProd", [2.0, 3.0, 4.0], **ALL).tolist() == [12, 8, 6]
    assert gradient("ReduceProd", [2.0, 0.0, 4.0], **ALL).tolist() == [0, 8, 0]
    assert gradient("ReduceProd", [0.0, 3.0, 0.0], **ALL).tolist() == [0, 0, 0]
    assert gradient("ReduceProd", [0.0], **ALL).tolist() == [1]
    large = np.array([1e30, 1e30, 1e-30], np.float32)  # the product overflows, its parts do not
    assert gradient("ReduceProd", large, **ALL) == pytest.approx([1, 1, inf])


@pytest.mark.parametrize("row", [[2.0, 3.0, 4.0], [2.0, 0.0, 4.0], [0.0, 3.0, 0.0], [0.0] * 3])
def test_second_gradient_of_products_is_the_product_of_the_others(row: list[float]) -> None:
    for k in range(3):
        g = ArrayBuilder()
        x = g.value(np.array(row))
        y = g.ReduceProd(x, **ALL)
        (first,) = g.pullback([y], [g.value(np.array(1.0))], [x])
        pick = g.value(np.eye(3)[k])
        (second,) = g.pullback([first], [pick], [x])
        others = [
            math.prod(v for i, v in enumerate(row) if i not in (j, k)) if j != k else 0
            for j in range(3)
        ]
        assert second.array.tolist() == others


def test_softmax_gradients_at_the_edges() -> None:
    for row in ([1e4, -1e4, 0], [3e38, -3e38, 0], [-inf, 0, 1], [-3e38, -3e38, -3e38]):
        for name in ("Softmax", "LogSoftmax"):
            x = np.array(row, np.float32)
            assert np.isfinite(gradient(name, x, [1.0, 2.0, -1.0], axis=0)).all(), (name, row)


# ---- cross-entropy -------------------------------------------------------------------------------


def cross_entropy(logits: Any, labels: Any, **attrs: Any) -> tuple[Array, Array]:
    """Losses, and the gradient of their sum."""
    arrays = (np.asarray(logits, np.float32), np.asarray(labels))
    operator = lookup("SoftmaxCrossEntropy")
    (loss,) = evaluate(operator, arrays, attrs)
    (other,) = evaluate(operator, arrays, attrs, expanded=True)
    assert difference_in_ulp(other, loss) <= 4
    found, none = gradients(operator, arrays, attrs, (np.ones(loss.shape, np.float32),))
    assert none is None and found is not None
    return loss, found


def test_cross_entropy_at_the_edges() -> None:
    loss, dx = cross_entropy([[1e4, -1e4], [1e4, -1e4], [3e38, -3e38]], [0, 1, 0])
    assert loss.tolist() == [0, 2e4, 0]
    assert dx.tolist() == [[0, 0], [1, -1], [0, 0]]
    loss, dx = cross_entropy([[0.0, -inf, 0.0]], [0])
    assert loss == pytest.approx([math.log(2)]) and dx.tolist() == [[-0.5, 0, 0.5]]


def test_ignored_rows_count_for_nothing() -> None:
    loss, dx = cross_entropy([[nan, 1.0], [1.0, 1.0]], [7, 0], ignore_index=7)
    assert loss == pytest.approx([0, math.log(2)])
    assert dx.tolist() == [[0, 0], [-0.5, 0.5]]
    loss, _ = cross_entropy([[0.0, 0.0]], [1], ignore_index=1)
    assert loss.tolist() == [0]


def test_a_label_that_is_no_class_gives_nan() -> None:
    loss, dx = cross_entropy([[0.0, 0.0]] * 3, [2, -1, 1])
    assert np.isnan(loss).tolist() == [True, True, False]
    assert np.isnan(dx).all(axis=1).tolist() == [True, True, False]


def test_smoothed_labels() -> None:
    logits, s = np.array([[1.0, 2.0, 4.0]]), 0.3
    logs = logits - np.log(np.exp(logits).sum())
    target = np.array([s / 3, 1 - s + s / 3, s / 3])
    loss, dx = cross_entropy(logits, [1], label_smoothing=s)
    assert loss == pytest.approx(-(logs * target).sum(axis=1), rel=1e-6)
    assert dx == pytest.approx(np.exp(logs) - target, rel=1e-5)


# ---- kernels do not depend on sizes --------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("ReduceMean", ALL),
        ("Variance", {**ALL, "correction": 1.0}),
        ("StandardDeviation", {**ALL, "correction": 0.5}),
        ("LayerNormalization", {"axis": 0, "epsilon": 1e-5}),
    ],
)
def test_counts_are_no_constants(name: str, attrs: dict[str, Any]) -> None:
    def constants(size: int) -> list[Any]:
        g = TypeBuilder(expanded=True)
        x = Value(Type("float32", (size,)))
        y = g.op(name, x, **attrs)
        g.pullback([y], [Value(y.type)], [x])
        return [s.attrs for s in g.steps if s.operator.name == "Constant"]

    assert constants(7) == constants(1000)
