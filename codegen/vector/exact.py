"""Fused multiply-add in NumPy, rounded once: the un-jitted meaning of `fma`. Knows NumPy only."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np


def exact_fma(x: Any, y: Any, z: Any) -> Any:
    """x*y + z with one rounding, on float32 or float64 arrays."""
    x, y, z = np.broadcast_arrays(x, y, z)
    with np.errstate(all="ignore"):
        return _float32(x, y, z) if x.dtype == np.float32 else _float64(x, y, z)


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """a + b and the error of that sum, exactly."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def _two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """a * b and the error of that product, exactly (Dekker), far from overflow and underflow."""
    product = a * b
    a_high = (a * 134217729.0) - (a * 134217729.0 - a)
    b_high = (b * 134217729.0) - (b * 134217729.0 - b)
    a_low, b_low = a - a_high, b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _to_odd(total: Any, error: Any) -> Any:
    """`total` rounded to odd instead of to nearest, given the error of the rounding."""
    pattern = total.view(np.int64)
    inexact = np.isfinite(total) & (error != 0) & (pattern & 1 == 0)
    outward = (error > 0) == (total > 0)
    return np.where(inexact, (pattern + np.where(outward, 1, -1)).view(np.float64), total)


def _float32(x: Any, y: Any, z: Any) -> Any:
    """The product is exact in float64; the sum is rounded to odd there, so that the step to float32
    rounds once.
    """
    total, error = _two_sum(x.astype(np.float64) * y, z.astype(np.float64))
    return _to_odd(total, error).astype(np.float32)


def _float64(x: Any, y: Any, z: Any) -> Any:
    """Boldo and Melquiond: the low parts are summed with rounding to odd. Extreme exponents take
    exact fractions.
    """
    product, low = _two_product(x, y)
    high, rest = _two_sum(z, low)
    total, error = _two_sum(product, high)
    result = total + _to_odd(*_two_sum(rest, error))
    plain = x * y + z
    finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(z)
    moderate = finite & (abs(product) < 2.0**900) & (abs(product) > 2.0**-800)
    for v in (x, y, z):
        moderate &= (abs(v) < 2.0**900) & ((abs(v) > 2.0**-800) | (v == 0))
    result = np.where(moderate, result, plain)
    for i in map(tuple, np.argwhere(finite & ~moderate & (x != 0) & (y != 0))):
        exact = Fraction(float(x[i])) * Fraction(float(y[i])) + Fraction(float(z[i]))
        if exact:
            try:
                result[i] = float(exact)  # correctly rounded
            except OverflowError:
                result[i] = np.copysign(np.inf, float(exact > 0) - 0.5)
    return result
