"""Functions across lanes, un-jitted: making vectors from scalars, moving lanes, combining them in
the fixed tree.

Lanes combine in halves: l with l+8, then l+4, l+2, l+1. The compiled meaning is in `emit_lanes.py`.
Must not know LLVM.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from codegen.vector.elements import DTYPE, ELEMENT, WIDTH, i64
from codegen.vector.primitives import maximum, minimum
from codegen.vector.readings import Lanes


def full(x: Any) -> Lanes:
    """All lanes equal to the scalar."""
    value = np.asarray(x)
    return Lanes(np.full(WIDTH, value, value.dtype if value.dtype in ELEMENT else DTYPE["f32"]))


def below(left: int) -> Lanes:
    """Mask of the first `left` lanes."""
    return Lanes(np.arange(WIDTH) < left)


def lane_index(i: int) -> Lanes:
    """i, i+1, ... as i64 lanes."""
    return Lanes(i64(i) + np.arange(WIDTH, dtype=i64))


def rotate(v: Lanes, count: int) -> Lanes:
    """Lane l gets lane (l + count) % 16; `count` is written out."""
    return Lanes(np.roll(v.array, -count))


def first(v: Lanes) -> Any:
    """Lane 0 as a scalar."""
    return v.array[0]


def _tree(v: Lanes, combine: Callable[[Any, Any], Any]) -> Any:
    a = v.array
    with np.errstate(all="ignore"):
        while len(a) > 1:
            a = combine(a[: len(a) // 2], a[len(a) // 2 :])
    return a[0]


def lane_sum(v: Lanes) -> Any:
    """The sum of all lanes, a scalar."""
    return _tree(v, np.add)


def lane_product(v: Lanes) -> Any:
    """The product of all lanes, a scalar."""
    return _tree(v, np.multiply)


def lane_max(v: Lanes) -> Any:
    """The largest lane, a scalar; NaN wins."""
    return _tree(v, maximum.meaning)


def lane_min(v: Lanes) -> Any:
    """The smallest lane, a scalar; NaN wins."""
    return _tree(v, minimum.meaning)


def lane_any(v: Lanes) -> Any:
    """Whether any lane of a mask is true."""
    return _tree(v, np.bitwise_or)


def lane_all(v: Lanes) -> Any:
    """Whether all lanes of a mask are true."""
    return _tree(v, np.bitwise_and)
