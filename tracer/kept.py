"""What a trace may leave in a name, an attribute or an item: a Tensor, or a tuple, list or dict that holds Tensors.

Knows trees of them and what they held before. Must not know which places there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optree

from ops.errors import TraceError

NAMESPACE = "tracer"
_TREES = (tuple, list, dict)
ABSENT = object()
"""Stands for what is not there."""


def leaves_of(value: Any) -> list[Any]:
    """What a tuple, list or dict holds, down to the last one; else the value alone."""
    return [leaf for _, leaf in leaves_with_paths(value)]


def leaves_with_paths(value: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """The same, each with the keys that lead to it."""
    if not isinstance(value, _TREES):
        return [((), value)]
    tree: Any = value
    try:
        paths, leaves, _ = optree.tree_flatten_with_path(
            tree, none_is_leaf=True, namespace=NAMESPACE
        )
    except RecursionError:  # it holds itself
        return [((), value)]
    return list(zip(paths, leaves, strict=True))


class At:
    """Reads what lies in a tree that a place holds."""

    __slots__ = ("_path", "_read")

    def __init__(self, read: Callable[[], Any], path: tuple[Any, ...]) -> None:
        self._read, self._path = read, path

    def __call__(self) -> Any:
        """Raises `KeyError`, `IndexError` or `TypeError` where there is no such thing."""
        value = self._read()
        for key in self._path:
            value = value[key]
        return value


class OneAt:
    """Reads a Tensor that several places hold."""

    __slots__ = ("_reads",)

    def __init__(self, reads: list[Callable[[], Any]]) -> None:
        self._reads = reads

    def __call__(self) -> Any:
        """Raises `KeyError` where they hold several."""
        first, *others = [read() for read in self._reads]
        if any(x is not first for x in others):
            raise KeyError
        return first


class SetAt:
    """Sets an element of a container that a place holds."""

    __slots__ = ("_key", "_read")

    def __init__(self, read: Callable[[], Any], key: Any) -> None:
        self._read, self._key = read, key

    def __call__(self, value: Any) -> None:
        """The element becomes `value`."""
        self._read()[self._key] = value


class Before:
    """What a place held before a trace; of a list or dict the elements too."""

    __slots__ = ("_elements", "name", "value")

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value
        self._elements = value.copy() if type(value) in (list, dict) else None

    def put_back(self, is_computed: Callable[[Any], bool]) -> list[tuple[Any, Any, Any]]:
        """Put elements back where a list or dict holds others that a trace has computed: (key, before, now) of each."""
        held, old = self.value, self._elements
        known = dict(enumerate(old)) if isinstance(old, list) else old or {}
        items = list(zip(known, held, strict=False)) if isinstance(held, list) else [*held.items()]
        changed = []
        for key, now in items:
            before = known.get(key, ABSENT)
            if now is before or not is_computed(now):
                continue
            if before is ABSENT:
                del held[key]
            else:
                held[key] = before
            changed.append((key, before, now))
        return changed

    def put_elements_back(self) -> None:
        """Of a list or dict that was changed itself."""
        if isinstance(self.value, list) and self._elements is not None:
            self.value[:] = self._elements
        elif isinstance(self.value, dict) and self._elements is not None:
            self.value.clear()
            self.value.update(self._elements)


def refuse_grown(places: list[Before], is_computed: Callable[[Any], bool]) -> None:
    """Raise `TraceError` for a list or dict that the trace has changed itself, so that it holds Tensors of the trace."""
    grown = [place for place in places if is_computed(place.value)]
    for place in grown:
        place.put_elements_back()
    if grown:
        raise TraceError(
            f"{grown[0].name} is a {type(grown[0].value).__name__} to which a traced function adds Tensors that it computes; its "
            "compiled program would not do it again. Assign a new one, as in `x = [*x, y]`, or return the Tensors"
        )
