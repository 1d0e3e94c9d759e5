"""How far apart two arrays are, in units in the last place. Must not know operators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def difference_in_ulp(found: Array, expected: Array) -> float:
    """The largest difference in units in the last place of the element type; 0 means equal bits.

    -0 and 0 are one unit apart, as are the largest number and infinity. A NaN equals any NaN and
    is infinitely far from anything else, as are different types, shapes and integers.
    """
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return math.inf
    if found.dtype.kind in "biu":
        return 0.0 if np.array_equal(found, expected) else math.inf
    with np.errstate(all="ignore"):
        nan, other = found != found, expected != expected
    if not np.array_equal(nan, other):
        return math.inf
    a, b = (np.where(nan, 0, _ordered(x)) for x in (found, expected))
    return float((np.maximum(a, b) - np.minimum(a, b)).max(initial=0))


def _ordered(x: Array) -> Array:
    """Unsigned integers in the order of the floats."""
    unsigned = np.dtype(f"u{x.itemsize}")
    pattern = x.view(unsigned) if x.ndim else x.reshape(1).view(unsigned)[0]
    sign = unsigned.type(1 << (8 * x.itemsize - 1))
    return np.where(pattern & sign, ~pattern, pattern | sign)
