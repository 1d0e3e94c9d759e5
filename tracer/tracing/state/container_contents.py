"""Lists, dicts and the like whose elements the code of a traced function reads, in a loop or by handing them on.

A guard compares their elements, plain ones by value and all others by identity, down to containers in containers. Only small
ones: the others would have to be read at every call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ops.errors import TraceError
from ops.python_values import same_value
from tracer.tensors.tensor import Tensor
from tracer.tracing.state.code_reads import Use
from tracer.tracing.state.sources import Source
from tracer.tracing.state.value_kinds import CONTAINERS, is_plain

MOST_ELEMENTS = 512  # of a container and those in it


class Contents:
    """The elements that a container had. `followed`: ids of those for which any Tensor will do."""

    __slots__ = ("_followed", "_ids", "_inner", "_kind", "items")

    def __init__(self, container: Any, followed: frozenset[int] = frozenset()) -> None:
        self._kind = type(container)
        self.items = _elements(container)  # alive, so that their ids stay theirs
        self._ids = [*map(id, self.items)]
        self._followed = followed
        self._inner = [
            (k, Contents(x, followed)) for k, x in enumerate(self.items) if type(x) in CONTAINERS
        ]

    def are_in(self, container: Any) -> bool:
        """Whether a container has them now."""
        if type(container) is not self._kind:
            return False
        items = _elements(container)
        if [*map(id, items)] != self._ids and (
            len(items) != len(self.items) or not all(map(self._equal, items, self.items))
        ):
            return False
        return all(contents.are_in(items[k]) for k, contents in self._inner)

    def _equal(self, x: Any, y: Any) -> bool:
        if x is y or (type(x) in CONTAINERS and type(x) is type(y)):  # the latter are looked into
            return True
        if id(y) in self._followed:
            return isinstance(x, Tensor)
        return is_plain(x) and same_value(x, y)


def contents_of(container: Any, followed: frozenset[int] = frozenset()) -> Contents | None:
    """Its elements; None where there are too many, or where it holds itself."""
    count, waiting = 0, [container]
    while waiting:
        items = _elements(waiting.pop())
        count += len(items)
        if count > MOST_ELEMENTS:
            return None
        waiting += [x for x in items if type(x) in CONTAINERS]
    return Contents(container, followed)


def _elements(container: Any) -> list[Any]:
    return [*container, *container.values()] if isinstance(container, dict) else [*container]


class NamedLists:
    """The lists whose elements a function reads, as they are before it is traced."""

    def __init__(self, uses: list[Use]) -> None:
        lists = [u.source for u in uses if u.kind == "elements" and type(u.source.value) is list]
        found = [(source, contents_of(source.value)) for source in lists]
        self._before = [(source, contents) for source, contents in found if contents is not None]

    def restore(self) -> None:
        """Put back the elements of those that the trace has changed."""
        for source, contents in self._changed():
            source.value[:] = contents.items

    def check(self) -> None:
        """Raise `TraceError` for one that the trace has changed."""
        for source, _ in self._changed():
            raise TraceError(
                f"the list {source.name} is read and changed while the function is traced, which its compiled program would "
                "not do again; pass its elements as arguments and return the new ones, or change it outside"
            )

    def _changed(self) -> Iterator[tuple[Source, Contents]]:
        return ((s, contents) for s, contents in self._before if not contents.are_in(s.value))
