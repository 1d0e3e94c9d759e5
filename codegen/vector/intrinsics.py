"""What kernel text says beside `codegen.vector`: its argument block, stacks, index division,
additions that may meet.

Here is the un-jitted meaning, on NumPy; `words_jit.py` tells Numba the compiled one. An un-jitted
block of arguments is a sequence whose pointers are `Buffer`s. Must not know Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.vector import CHUNK, ELEMENTS, NAMES, WIDTH, Lanes
from codegen.vector.elements import DTYPE, MEMORY_ELEMENTS, memory_element
from codegen.vector.lanes import full, lane_product, lane_sum
from codegen.vector.names import MEMORY_FUNCTIONS


@dataclass(frozen=True, slots=True)
class Buffer:
    """A pointer, un-jitted: element `origin` of a flat array. Indices may be negative down to the
    array's start.
    """

    array: np.ndarray[Any, Any]
    origin: int = 0


def word(args: Sequence[Any], position: int) -> int:
    """Argument number `position` as an integer."""
    value = args[position]
    if isinstance(value, Buffer):
        raise TypeError(f"argument {position} is a buffer, not a size or a stride")
    return int(value)


def _pointer(element: str) -> Callable[[Sequence[Any], int], Buffer]:
    def pointer(args: Sequence[Any], position: int) -> Buffer:
        value = args[position]
        found = memory_element(value.array) if isinstance(value, Buffer) else type(value).__name__
        if found != element:
            raise TypeError(f"argument {position} should be a buffer of {element}; got {found}")
        assert isinstance(value, Buffer)
        return value

    pointer.__doc__ = f"Argument number `position` as a pointer to {element}."
    return pointer


def _stack(element: str) -> Callable[[int], Buffer]:
    def stack(size: int) -> Buffer:
        return Buffer(np.zeros(size, DTYPE[element]))

    stack.__doc__ = (
        f"Room for `size` (written out) elements of {element}, for the tree over chunks."
    )
    return stack


POINTERS = {e: _pointer(e) for e in MEMORY_ELEMENTS}
STACKS = {e: _stack(e) for e in ELEMENTS}


def tree_sum(stack: Buffer, chunk: int, n: int, v: Lanes) -> Lanes:
    """The sum of the elements of 0 ... n so far, of which `v` has the lanes of chunk `chunk //
    4096`, in the fixed tree.

    The lanes combine in halves, chunks in pairs of neighbours: chunk number k merges with as many
    earlier ones, kept in `stack`, as k has trailing one bits, and the last one with all that are
    left. All lanes of the result are equal.
    """
    return _tree(stack, chunk, n, lane_sum(v), np.add)


def tree_product(stack: Buffer, chunk: int, n: int, v: Lanes) -> Lanes:
    """`tree_sum` for products."""
    return _tree(stack, chunk, n, lane_product(v), np.multiply)


def _tree(stack: Buffer, chunk: int, n: int, value: Any, merge: Callable[[Any, Any], Any]) -> Lanes:
    number, level = chunk // CHUNK, 0
    pending = number if chunk + CHUNK >= n else number & ~(number + 1)
    with np.errstate(all="ignore"):
        while pending:
            if pending & 1:
                value = merge(stack.array[level], value)
            pending >>= 1
            level += 1
    stack.array[level] = value
    return full(value)


def quotient(index: Lanes, n: int) -> Lanes:
    """index // n for indices: i64 lanes from 0 to 2**50, n from 1 to 2**50."""
    return Lanes(index.array // n)


def scatter_add(p: Buffer, index: Lanes, left: int, v: Lanes) -> None:
    """p[index of lane l] += lane l for the first `left` lanes, one after the other: indices may be
    equal.
    """
    load_one, store_one = BUFFER_FUNCTIONS["load_one"], BUFFER_FUNCTIONS["store_one"]
    for lane in range(min(left, WIDTH)):
        where = int(index.array[lane])
        added = Lanes(np.full(WIDTH, v.array[lane]))
        store_one(p, where, load_one(p, where) + added)


def _on_buffer(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda p, i, *more: function(p.array, i + p.origin, *more)


BUFFER_FUNCTIONS = {name: _on_buffer(f) for name, f in MEMORY_FUNCTIONS.items()}

INTRINSICS: dict[str, Any] = {
    "word": word,
    "tree_sum": tree_sum,
    "tree_product": tree_product,
    "quotient": quotient,
    "scatter_add": scatter_add,
    **{f"pointer_{e}": f for e, f in POINTERS.items()},
    **{f"stack_{e}": f for e, f in STACKS.items()},
}
# What CPU kernel text may name, compiled and un-jitted.
JIT_NAMES = NAMES | INTRINSICS
PLAIN_NAMES = NAMES | INTRINSICS | BUFFER_FUNCTIONS
