"""Whether memory that a program writes is also another operand's: the program would read there what it has written.

A program reads and writes its operands in an order of its own, so each piece of memory that it writes may be one operand's only.
Knows addresses and lengths of operands, and nothing of programs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from ops.errors import ArgumentError

Bounds = tuple[int, int]
_MOST_WORK: Any = 10_000  # of an exact answer; NumPy's stub knows none but 0 and -1


class Sharing:
    """The test for the operands of one program: their bytes, their names, and which are `written`."""

    def __init__(
        self, sizes: Sequence[int], names: Sequence[str], written: Collection[int]
    ) -> None:
        self._sizes, self._names, self.written = tuple(sizes), tuple(names), frozenset(written)
        self._first: tuple[int, ...] | None = None
        self._starts: list[int] = []
        self._ends: list[int] = []

    def check(self, arrays: Sequence[Any]) -> None:
        """Raise `ArgumentError` if an operand shares memory with one that is written. Operands without memory are None."""
        bounds = [
            (*_bounds(a, size), k)
            for k, (a, size) in enumerate(zip(arrays, self._sizes, strict=True))
            if a is not None and size
        ]
        bounds.sort()
        for position, (_, end, k) in enumerate(bounds):
            for start, _, other in bounds[position + 1 :]:
                if start >= end:
                    break
                if (k in self.written or other in self.written) and _meet(arrays[k], arrays[other]):
                    changed, reader = (k, other) if k in self.written else (other, k)
                    one, two = (self._names[n] or f"operand {n}" for n in (reader, changed))
                    raise ArgumentError(
                        f"{one} shares memory with {two}, which the traced function changes in place; pass a copy of one of them"
                    )

    def may_share(
        self, state: tuple[int, ...], numbers: Sequence[int], arguments: tuple[int, ...]
    ) -> bool:
        """Whether operands may share, given the addresses of the first ones, which rarely change, and of some later ones.

        Quick, and True in doubt: then `check` decides. `numbers`: of the operands that `arguments` gives.
        """
        written, sizes = self.written, self._sizes
        if state != self._first:
            pieces = [
                (p, p + sizes[k], k in written) for k, p in enumerate(state) if p and sizes[k]
            ]
            if _overlap(pieces):
                return True
            changed = sorted((start, end) for start, end, flag in pieces if flag)
            self._starts, self._ends = [start for start, _ in changed], [end for _, end in changed]
            self._first = state
        if not written.isdisjoint(numbers):
            pieces = [
                (p, p + sizes[k], k in written) for k, p in enumerate(state) if p and sizes[k]
            ]
            pieces += [
                (p, p + sizes[k], k in written)
                for k, p in zip(numbers, arguments, strict=True)
                if sizes[k]
            ]
            return _overlap(pieces)
        starts, ends = self._starts, self._ends
        for k, p in zip(numbers, arguments, strict=True):
            place = bisect_right(starts, p)
            if (place and ends[place - 1] > p) or (
                place < len(starts) and starts[place] < p + sizes[k]
            ):
                return True
        return False


def _overlap(pieces: list[tuple[int, int, bool]]) -> bool:
    """Whether one of the pieces (start, end, is written) that are written overlaps another."""
    whole = written = 0
    for start, end, flag in sorted(pieces):
        if start < written or (flag and start < whole):
            return True
        whole = max(whole, end)
        written = max(written, end) if flag else written
    return False


def _bounds(operand: Any, size: int) -> Bounds:
    if isinstance(operand, int):
        return operand, operand + size
    low, high = np.lib.array_utils.byte_bounds(operand)
    return int(low), int(high)


def _meet(one: Any, other: Any) -> bool:
    """Whether two operands whose bounds overlap have a byte in common; one that is row-major is its address."""
    if isinstance(one, int) or isinstance(other, int):
        return True
    try:
        return bool(np.shares_memory(one, other, max_work=_MOST_WORK))
    except np.exceptions.TooHardError:
        return True
