"""Where temporaries lie in the workspace: buffers whose lifetimes do not overlap share memory."""

from __future__ import annotations

from collections.abc import Sequence

from tracer.lowering.layout import Buffer

ALIGNMENT = 64


def plan_memory(lifetimes: Sequence[tuple[Buffer, int, int]]) -> int:
    """Set `place` of each buffer, given the first and the last row that uses it; returns the bytes of the workspace.

    Largest buffers first, each at the lowest place that is free during its life.
    """
    placed: list[tuple[int, int, int, int]] = []  # place, end, first, last
    total = 0
    for buffer, first, last in sorted(lifetimes, key=lambda item: (-item[0].nbytes, item[1])):
        size = -(-max(buffer.nbytes, 1) // ALIGNMENT) * ALIGNMENT
        taken = sorted((p, e) for p, e, f, l in placed if f <= last and first <= l)
        place = 0
        for start, end in taken:
            if place + size <= start:
                break
            place = max(place, end)
        buffer.place = place
        placed.append((place, place + size, first, last))
        total = max(total, place + size)
    return total
