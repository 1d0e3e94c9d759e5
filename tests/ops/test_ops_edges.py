"""Values and gradients at the edges: zeros, ties, bounds, infinities, divisions of integers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from ops.table import TABLE
from tests.support.evaluate import ArrayBuilder, evaluate

Array = np.ndarray[Any, Any]


def value(name: str, *operands: Any, dtype: str = "float64", **attrs: Any) -> Any:
    (result,) = evaluate(TABLE[name], [np.asarray(x, dtype) for x in operands], attrs)
    return result.item() if result.ndim == 0 else result


def gradient(
    name: str, *operands: float, order: int = 1, dtype: str = "float64", **attrs: Any
) -> Any:
    """The partial derivatives by all operands; with order 2 those of their sum."""
    g = ArrayBuilder()
    inputs = [g.value(np.asarray(x, dtype)) for x in operands]
    y = g.op(name, *inputs, **attrs)
    for _ in range(order):
        found = g.pullback([y], [g.value(np.asarray(1, dtype))], inputs)
        known = [c for c in found if c is not None]
        y = known[0]
        for c in known[1:]:
            y = g.Add(y, c)
    return tuple(0.0 if c is None else c.array.item() for c in found)


def test_kinks_have_gradient_zero() -> None:
    for name in ("Abs", "Relu"):
        for zero in (0.0, -0.0):
            assert gradient(name, zero) == (0.0,)
    assert gradient("CopySign", 0.0, -1.0) == (0.0, 0.0)
    assert gradient("CopySign", 3.0, -1.0) == (-1.0, 0.0)
    assert gradient("CopySign", -3.0, -0.0) == (1.0, 0.0)


@pytest.mark.parametrize("name", ["Maximum", "Minimum"])
def test_a_tie_shares_one_gradient(name: str) -> None:
    assert gradient(name, 2.0, 2.0) == (0.5, 0.5)
    assert gradient(name, 0.0, -0.0) == (0.5, 0.5)
    assert sorted(gradient(name, 2.0, 3.0)) == [0.0, 1.0]
    assert gradient(name, math.inf, math.inf) == (0.5, 0.5)


def test_extremes_let_nan_through() -> None:
    for name in ("Maximum", "Minimum"):
        assert math.isnan(value(name, math.nan, 1.0)) and math.isnan(value(name, 1.0, math.nan))
    for operands in [(math.nan, 0, 1), (0.5, math.nan, 1), (0.5, 0, math.nan)]:
        assert math.isnan(value("Clip", *operands))


def test_clip_has_gradient_one_at_its_bounds() -> None:
    assert gradient("Clip", 1.0, 1.0, 2.0) == (1.0, 0.0, 0.0)
    assert gradient("Clip", 2.0, 1.0, 2.0) == (1.0, 0.0, 0.0)
    assert gradient("Clip", 0.0, 1.0, 2.0) == (0.0, 1.0, 0.0)
    assert gradient("Clip", 3.0, 1.0, 2.0) == (0.0, 0.0, 1.0)
    assert value("Clip", 5.0, 3.0, 2.0) == 2.0, "the upper bound wins"
    assert gradient("Clip", 0.0, 3.0, 2.0) == (0.0, 0.0, 1.0)


def test_powers_of_zero() -> None:
    assert value("Pow", 0.0, 0.0) == 1.0
    assert gradient("Pow", 0.0, 0.0) == (0.0, 0.0)
    assert gradient("Pow", 0.0, 0.0, order=2) == (0.0, 0.0)
    assert gradient("Pow", 0.0, 1.0) == (1.0, 0.0)
    assert gradient("Pow", 0.0, 2.0) == (0.0, 0.0)
    assert gradient("Pow", 0.0, 0.5)[0] == math.inf
    assert gradient("Pow", 5.0, 0.0) == (0.0, pytest.approx(math.log(5)))
    assert gradient("Pow", -2.0, 3.0)[0] == 12.0
    # the mixed derivative of x**y at y = 0 is 1/x, which a guard in the wrong place would lose
    assert gradient("Pow", 5.0, 0.0, order=2)[0] == pytest.approx(1 / 5)


def test_lengths_and_angles_at_the_origin() -> None:
    assert gradient("Hypot", 0.0, 0.0) == (0.0, 0.0)
    assert gradient("Atan2", 0.0, 0.0) == (0.0, 0.0)
    assert all(math.isfinite(c) for c in gradient("Hypot", 0.0, 0.0, order=2))
    assert value("Hypot", 3e300, 4e300) == pytest.approx(5e300)
    assert gradient("Hypot", 3e300, 4e300) == pytest.approx((0.6, 0.8))
    assert gradient("Atan2", 1e200, 1e200) == pytest.approx((5e-201, -5e-201))
    assert gradient("Asinh", 1e200)[0] == pytest.approx(1e-200)


def test_square_roots_at_zero_are_steep() -> None:
    assert gradient("Sqrt", 0.0) == (math.inf,)
    assert gradient("Sqrt", 4.0) == (0.25,)


def test_logaddexp_of_infinities() -> None:
    assert value("LogAddExp", -math.inf, -math.inf) == -math.inf
    assert gradient("LogAddExp", -math.inf, -math.inf) == (0.5, 0.5)
    assert gradient("LogAddExp", -math.inf, 1.0) == (0.0, 1.0)
    assert math.isnan(gradient("LogAddExp", math.nan, math.nan)[0])
    # sigmoid' (0) = 1/4: the guard must not hide the second derivative of a plain tie
    g = ArrayBuilder()
    x, y = g.value(np.float64(1)), g.value(np.float64(1))
    first = g.pullback([g.LogAddExp(x, y)], [g.value(np.float64(1))], [x])
    (second,) = g.pullback([first[0]], [g.value(np.float64(1))], [x])
    assert second is not None and second.array == pytest.approx(0.25)


@pytest.mark.parametrize("x", [-1e4, -750.0, 750.0, 1e4])
def test_activations_far_out_have_finite_gradients(x: float) -> None:
    for name in (
        "Sigmoid",
        "Softplus",
        "Silu",
        "Gelu",
        "Elu",
        "Selu",
        "Mish",
        "Tanh",
        "Erf",
        "HardSwish",
    ):
        for order in (1, 2):
            (found,) = gradient(name, x, order=order)
            limit = 1.06 if x > 0 else 0.0
            assert math.isfinite(found) and -1e-12 <= found <= limit, (name, order)
    (found,) = gradient("Gelu", x, approximate="tanh")
    assert found == (1.0 if x > 0 else 0.0)


def test_where_takes_nothing_from_the_other_branch() -> None:
    g = ArrayBuilder()
    x = g.value(np.array([-1.0, 0.0, 4.0]))
    root = g.Where(g.Less(g.like(0, x), x), g.Sqrt(x), g.Neg(x))
    taken, other = g.value(np.array([False, False, True])), g.value(np.ones(3))
    (dx,) = g.pullback([g.Where(taken, x, other)], [g.value(np.full(3, 7.0))], [x])
    assert dx.array.tolist() == [0.0, 0.0, 7.0]
    assert np.isfinite(root.array).all()


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint64"])
def test_integers_divided_by_zero_give_zero(dtype: str) -> None:
    for x in (0, 1, 7, int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)):
        for name in ("FloorDivide", "Remainder", "Fmod"):
            assert value(name, x, 0, dtype=dtype) == 0


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_the_most_negative_integer(dtype: str) -> None:
    least = int(np.iinfo(dtype).min)
    assert value("FloorDivide", least, -1, dtype=dtype) == least
    assert value("Remainder", least, -1, dtype=dtype) == 0
    assert value("Fmod", least, -1, dtype=dtype) == 0
    assert value("Neg", least, dtype=dtype) == least
    assert value("Abs", least, dtype=dtype) == least


def test_remainders_have_the_sign_of_divisor_or_dividend() -> None:
    for dtype in ("int32", "float32"):
        assert [value("Remainder", *p, dtype=dtype) for p in [(-7, 3), (7, -3)]] == [2, -2]
        assert [value("Fmod", *p, dtype=dtype) for p in [(-7, 3), (7, -3)]] == [-1, 1]
        assert [value("FloorDivide", *p, dtype=dtype) for p in [(-7, 3), (7, -3)]] == [-3, -3]
    # the quotient nearest to x / y would round up to 3 here
    assert gradient("Remainder", 5.999999999999999, 2.0) == (1.0, -2.0)


def test_shifts_by_the_width_or_more() -> None:
    for dtype in ("int8", "int64", "uint32"):
        bits = np.iinfo(dtype).bits
        assert value("ShiftLeft", 1, bits, dtype=dtype) == 0
        assert value("ShiftRight", 5, bits, dtype=dtype) == 0
    assert value("ShiftRight", -5, 8, dtype="int8") == -1
    assert value("ShiftLeft", 1, -1, dtype="int8") == 0


def test_integer_powers() -> None:
    assert value("IntegerPow", [2, 3, -2, 0], [10, 4, 3, 0], dtype="int32").tolist() == [
        1024,
        81,
        -8,
        1,
    ]
    assert value("IntegerPow", [2, 1, -1, -1, 0], [-1, -5, -2, -3, -1], dtype="int32").tolist() == [
        *(0, 1, 1, -1, 0)
    ]
    assert value("IntegerPow", 3, 41, dtype="int64") == 3**41 - 2**64 * round(3**41 / 2**64)


def test_rounding_goes_to_even() -> None:
    assert value("Round", [0.5, 1.5, 2.5, -0.5, -1.5]).tolist() == [0, 2, 2, 0, -2]
    assert np.signbit(value("Round", [-0.5]))[0] and np.signbit(value("Trunc", [-0.5]))[0]
