"""Loads and stores of kernel text, un-jitted: a pointer is a flat NumPy array, and a stray index
raises.

Buffers of float16 and bfloat16 give float32 lanes; stores round to the nearest, ties to even. A
bool is one byte. The compiled meaning is in `emit_memory.py`. Must not know LLVM or Numba.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from codegen.vector.elements import DTYPE, OF_MEMORY, WIDTH, memory_element
from codegen.vector.readings import Lanes

Array = np.ndarray[Any, Any]


def lanes_from(p: Array, values: Array) -> Lanes:
    """Memory values of buffer `p` as lanes."""
    return Lanes(values.astype(DTYPE[OF_MEMORY[memory_element(p)]]))


def check(p: Array, low: int, high: int) -> None:
    """Refuse elements that the buffer does not have."""
    if not 0 <= low <= high <= len(p):
        raise IndexError(f"elements {low} to {high} of a buffer of {len(p)}")


def live(left: int) -> Array:
    """The lanes below `left`."""
    return np.arange(WIDTH) < left


def load(p: Array, i: int) -> Lanes:
    """16 lanes from p[i]."""
    check(p, i, i + WIDTH)
    return lanes_from(p, p[i : i + WIDTH])


def store(p: Array, i: int, v: Lanes) -> None:
    """16 lanes to p[i]."""
    store_masked(p, i, live(WIDTH), v)


def load_part(p: Array, i: int, left: int, fill: Any) -> Lanes:
    """The first `left` lanes from p[i], the others `fill`; reads nothing beyond."""
    return load_masked(p, i, live(left), fill)


def store_part(p: Array, i: int, left: int, v: Lanes) -> None:
    """The first `left` lanes to p[i]."""
    store_masked(p, i, live(left), v)


def load_masked(p: Array, i: int, mask: Any, fill: Any) -> Lanes:
    """Lane l from p[i + l] where the mask is true, else `fill`."""
    return _gather(p, i + np.arange(WIDTH), mask, fill)


def store_masked(p: Array, i: int, mask: Any, v: Lanes) -> None:
    """Lane l to p[i + l] where the mask is true."""
    _scatter(p, i + np.arange(WIDTH), mask, v)


def gather(p: Array, index: Lanes) -> Lanes:
    """Lane l from p[index of lane l]; `index` has i64 lanes."""
    return _gather(p, index.array, live(WIDTH), 0)


def gather_part(p: Array, index: Lanes, left: int, fill: Any) -> Lanes:
    """The first `left` lanes from p[index], the others `fill`; the index of the others is not
    looked at.
    """
    return _gather(p, index.array, live(left), fill)


def gather_masked(p: Array, index: Lanes, mask: Lanes, fill: Any) -> Lanes:
    """Lane l from p[index of lane l] where the mask is true, else `fill`."""
    return _gather(p, index.array, mask, fill)


def scatter(p: Array, index: Lanes, v: Lanes) -> None:
    """Lane l to p[index of lane l], in the order of lanes: of equal indices the last lane stays."""
    _scatter(p, index.array, live(WIDTH), v)


def scatter_part(p: Array, index: Lanes, left: int, v: Lanes) -> None:
    """The first `left` lanes to p[index]."""
    _scatter(p, index.array, live(left), v)


def scatter_masked(p: Array, index: Lanes, mask: Lanes, v: Lanes) -> None:
    """Lane l to p[index of lane l] where the mask is true."""
    _scatter(p, index.array, mask, v)


def load_one(p: Array, i: int) -> Lanes:
    """All lanes p[i]."""
    check(p, i, i + 1)
    return lanes_from(p, np.full(WIDTH, p[i]))


def store_one(p: Array, i: int, v: Lanes) -> None:
    """Lane 0 to p[i]."""
    store_masked(p, i, live(1), v)


def _gather(p: Array, index: Array, mask: Any, fill: Any) -> Lanes:
    mask = mask.array if isinstance(mask, Lanes) else mask
    result = np.full(WIDTH, fill, DTYPE[OF_MEMORY[memory_element(p)]])
    for lane in np.flatnonzero(mask):
        check(p, int(index[lane]), int(index[lane]) + 1)
        result[lane] = p[index[lane]]
    return Lanes(result)


def _scatter(p: Array, index: Array, mask: Any, v: Lanes) -> None:
    mask = mask.array if isinstance(mask, Lanes) else mask
    if v.element != OF_MEMORY[memory_element(p)]:
        raise TypeError(
            f"a buffer of {p.dtype} takes {OF_MEMORY[memory_element(p)]} lanes; got {v.element}"
        )
    with np.errstate(all="ignore"):  # a float16 store may overflow to infinity
        values = v.array.astype(p.dtype)
    for lane in np.flatnonzero(mask):
        check(p, int(index[lane]), int(index[lane]) + 1)
        p[index[lane]] = values[lane]
