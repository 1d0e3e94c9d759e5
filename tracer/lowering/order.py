"""The order in which groups can run, kept while groups merge.

Each group stands behind all those that it reads from. Two groups may merge unless a third one reads from the one and is read by
the other; such a third one stands between them, so only those that do are looked at. Knows nothing of what groups compute.
"""

from __future__ import annotations

from typing import Any, Generic, Protocol, Self, TypeVar

_GAP = (
    1 << 60
)  # between neighbours' places: room for 60 insertions at one spot before places are given anew


class Reader(Protocol):
    """A group as this file sees it. `producers` may name groups that have merged; `find` gives what has become of one."""

    producers: set[Any]

    def find(self) -> Self:
        """The group that this one has been merged into, or itself."""
        ...


G = TypeVar("G", bound=Reader)


class Order(Generic[G]):
    """A list of groups, each behind its producers."""

    def __init__(self) -> None:
        self._place: dict[G, int] = {}
        self._before: dict[G, G | None] = {}
        self._after: dict[G, G | None] = {}
        self._first: G | None = None
        self._last: G | None = None

    def append(self, group: G) -> None:
        """Add a group that nothing reads from yet."""
        self._place[group] = self._place[self._last] + _GAP if self._last is not None else 0
        self._insert(group, self._last)

    def between(self, one: G, other: G) -> list[G] | None:
        """The groups between the two that the later one depends on; None if one of these depends on the earlier one.

        With None the two cannot merge: the group would read from what reads from it.
        """
        early, late = self._sorted(one, other)
        start = self._place[early]
        found: set[G] = set()
        stack = [p.find() for p in late.producers]
        while stack:
            group = stack.pop()
            if group is early or group is late or group in found or self._place[group] < start:
                continue
            found.add(group)
            for producer in group.producers:
                p = producer.find()
                if p is early:
                    return None
                stack.append(p)
        return sorted(found, key=self._place.__getitem__)

    def merge(self, target: G, other: G, between: list[G]) -> None:
        """`other` becomes part of `target`, which stands where the earlier of the two stood, behind `between`."""
        early, late = self._sorted(target, other)
        self._remove(late)
        for group in between:
            self._remove(group)
        anchor = self._before[early]
        low = self._place[anchor] if anchor is not None else self._place[early] - _GAP
        step = (self._place[early] - low) // (len(between) + 1)
        for group in between:
            low += step
            self._place[group] = low
            self._insert(group, anchor)
            anchor = group
        place = self._place[early]
        self._remove(early)
        del self._place[other]
        self._place[target] = place
        self._insert(target, anchor)
        if not step:
            self._spread()

    def _sorted(self, one: G, other: G) -> tuple[G, G]:
        return (one, other) if self._place[one] < self._place[other] else (other, one)

    def _insert(self, group: G, anchor: G | None) -> None:
        """Put a group behind another one, or first."""
        after = self._first if anchor is None else self._after[anchor]
        self._before[group], self._after[group] = anchor, after
        if anchor is None:
            self._first = group
        else:
            self._after[anchor] = group
        if after is None:
            self._last = group
        else:
            self._before[after] = group

    def _remove(self, group: G) -> None:
        before, after = self._before.pop(group), self._after.pop(group)
        if before is None:
            self._first = after
        else:
            self._after[before] = after
        if after is None:
            self._last = before
        else:
            self._before[after] = before

    def _spread(self) -> None:
        """Places anew, evenly."""
        group, place = self._first, 0
        while group is not None:
            self._place[group] = place
            group, place = self._after[group], place + _GAP
