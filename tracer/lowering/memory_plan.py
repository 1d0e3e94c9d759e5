"""Where temporaries lie in the workspace: buffers whose lifetimes do not overlap share memory.

Knows buffers and the rows during which they live, and nothing of what rows do.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Sequence

from tracer.lowering.layout import Buffer

ALIGNMENT = 64
MOST_COMPARED = 1000  # so many buffers are compared each with each: 0.2 s
Lifetime = tuple[Buffer, int, int]  # the first and the last row that uses the buffer


def plan_memory(lifetimes: Sequence[Lifetime]) -> int:
    """Set `place` of each buffer; returns the bytes of the workspace.

    Of few buffers the largest is placed first, each as low as it goes: within 1 % of the least possible for programs as they
    occur. Of many, for which that takes quadratic time, each gets the smallest gap when its life begins: within 15 %.
    """
    return _largest_first(lifetimes) if len(lifetimes) <= MOST_COMPARED else _in_turn(lifetimes)


def _aligned(buffer: Buffer) -> int:
    return -(-max(buffer.nbytes, 1) // ALIGNMENT) * ALIGNMENT


def _largest_first(lifetimes: Sequence[Lifetime]) -> int:
    placed: list[tuple[int, int, int, int]] = []  # place, end, first, last
    total = 0
    for buffer, first, last in sorted(lifetimes, key=lambda item: (-item[0].nbytes, item[1])):
        size = _aligned(buffer)
        taken = sorted((p, e) for p, e, since, until in placed if since <= last and first <= until)
        place = 0
        for start, end in taken:
            if place + size <= start:
                break
            place = max(place, end)
        buffer.place = place
        placed.append((place, place + size, first, last))
        total = max(total, place + size)
    return total


def _in_turn(lifetimes: Sequence[Lifetime]) -> int:
    gaps = _Gaps()
    living: list[tuple[int, int, int]] = []  # last row, place, end
    total = 0
    for buffer, first, last in sorted(lifetimes, key=lambda item: (item[1], -item[0].nbytes)):
        while living and living[0][0] < first:
            _, start, end = heapq.heappop(living)
            gaps.add(start, end)
        size = _aligned(buffer)
        gap = gaps.smallest(size)
        if gap is None:
            start = gaps.starts_of.get(total, total)  # a gap at the end grows
            if start < total:
                gaps.remove(start, total)
            total = start + size
        else:
            start, end = gap
            gaps.remove(start, end)
            if start + size < end:
                gaps.add(start + size, end)
        buffer.place = start
        heapq.heappush(living, (last, start, start + size))
    return total


class _Gaps:
    """Free pieces, neighbours joined."""

    def __init__(self) -> None:
        self.by_size: list[tuple[int, int]] = []  # size, start
        self.ends_of: dict[int, int] = {}
        self.starts_of: dict[int, int] = {}

    def add(self, start: int, end: int) -> None:
        """A piece is free from now on."""
        if start in self.starts_of:
            before = self.starts_of[start]
            self.remove(before, start)
            start = before
        if end in self.ends_of:
            after = self.ends_of[end]
            self.remove(end, after)
            end = after
        self.ends_of[start], self.starts_of[end] = end, start
        insort(self.by_size, (end - start, start))

    def remove(self, start: int, end: int) -> None:
        """A whole gap is free no more."""
        del self.ends_of[start], self.starts_of[end]
        del self.by_size[bisect_left(self.by_size, (end - start, start))]

    def smallest(self, size: int) -> tuple[int, int] | None:
        """(start, end) of the smallest gap of at least a size."""
        number = bisect_left(self.by_size, (size, -1))
        if number == len(self.by_size):
            return None
        length, start = self.by_size[number]
        return start, start + length
