"""What a trace may leave in a name, an attribute or an item: a Tensor, or a tuple, list, dict or other tree that holds Tensors.

Knows such trees and what they held before, and finds Tensors of a trace in what is no tree. Must not know which places there are.
"""

from __future__ import annotations

import copy
import functools
import gc
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import optree

from ops.errors import TraceError
from tracer.tensors.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Change:
    """Something that a trace has put somewhere: how it is put there and read from there, and what was there before."""

    assign: Callable[[Any], object]
    read: Callable[[], Any]
    before: Any
    now: Any


NAMESPACE = "tracer"
ABSENT = object()
"""Stands for what is not there."""


def leaves_of(value: Any) -> list[Any]:
    """What a tree holds, down to the last one; of what is no tree the value alone."""
    return [leaf for _, leaf in leaves_with_accessors(value)]


def leaves_with_accessors(value: Any) -> list[tuple[optree.PyTreeAccessor, Any]]:
    """The same, each with what gets it out of such a tree."""
    try:
        accessors, leaves, _ = optree.tree_flatten_with_accessor(
            value, none_is_leaf=True, namespace=NAMESPACE
        )
    except RecursionError:  # it holds itself
        return [(optree.PyTreeAccessor(), value)]
    return list(zip(accessors, leaves, strict=True))


class At:
    """Reads what lies in something that a place holds."""

    __slots__ = ("_access", "_read")

    def __init__(self, read: Callable[[], Any], access: Callable[[Any], Any]) -> None:
        self._read, self._access = read, access

    def __call__(self) -> Any:
        """Raises `KeyError`, `IndexError`, `AttributeError` or `TypeError` where there is no such thing."""
        return self._access(self._read())


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


def refuse_objects(assigned: list[tuple[str, Any]], is_computed: Callable[[Any], bool]) -> None:
    """Raise `TraceError` for an object, assigned to a place of that name, that holds Tensors of the trace and is no tree."""
    for name, value in assigned:
        where = place_of_computed(value, is_computed)
        if where is not None:
            raise TraceError(
                f"a traced function assigns to {name} a {type(value).__name__}{where} a Tensor that it computes; assign Tensors, "
                "or tuples, lists, dicts and other trees of them (optree.register_pytree_node)"
            )


_CHANGEABLE = (list, dict, OrderedDict, defaultdict, deque, set)


class SetAnew:
    """Puts into a place what a trace has put there; of a list or the like a copy."""

    __slots__ = ("_assign", "_value")

    def __init__(self, assign: Callable[[Any], object], value: Any) -> None:
        self._assign, self._value = assign, _copied(value)

    def __call__(self) -> None:
        """The place has it."""
        self._assign(_copied(self._value))


def _copied(value: Any) -> Any:
    return copy.copy(value) if type(value) in _CHANGEABLE else value


class Before:
    """What a place held before a trace; of a list, dict, deque or set the elements too."""

    __slots__ = ("_elements", "name", "value")

    def __init__(self, name: str, value: Any) -> None:
        self.name, self.value = name, value
        self._elements = _copied(value) if type(value) in _CHANGEABLE else None

    def put_back(self, is_computed: Callable[[Any], bool]) -> list[tuple[Any, Any, Any]]:
        """Put elements back where a list or dict holds others that a trace has computed: (key, before, now) of each."""
        held, old = self.value, self._elements
        known = dict(enumerate(old)) if isinstance(old, list) else old or {}
        if isinstance(held, list):
            items = list(zip(known, held, strict=False))
        else:
            items = [*held.items()] if isinstance(held, dict) else []
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
        if self._elements is None:
            return
        if isinstance(self.value, list):
            self.value[:] = self._elements
        else:
            self.value.clear()
            add = self.value.extend if isinstance(self.value, deque) else self.value.update
            add(self._elements)


def refuse_grown(places: list[Before], is_computed: Callable[[Any], bool]) -> None:
    """Raise `TraceError` for a list or the like that the trace has changed itself, so that it holds Tensors of the trace."""
    grown = [place for place in places if place_of_computed(place.value, is_computed) is not None]
    for place in grown:
        place.put_elements_back()
    if grown:
        raise TraceError(
            f"{grown[0].name} is a {type(grown[0].value).__name__} to which a traced function adds Tensors that it computes; its "
            "compiled program would not do it again. Assign a new one, as in `x = [*x, y]`, or return the Tensors"
        )


# ---- Tensors in what is no tree ------------------------------------------------------------------

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type, types.ModuleType)
_CONTAINERS = (list, tuple, dict, set, frozenset)
_MOST = 256  # objects that are looked at


def place_of_computed(x: Any, is_computed: Callable[[Any], bool]) -> str | None:
    """Where an object holds a Tensor of the trace, as words of a message; None if it does not."""
    if isinstance(x, _PLAIN):
        return None
    waiting = [(f" whose attribute {name} is", value) for name, value in _attributes(x)]
    waiting += [(" that holds", value) for value in _held(x)]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST:
        words, value = waiting.pop()
        if id(value) in seen or isinstance(value, _PLAIN):
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            if is_computed(value):
                return words
        else:
            words = words.replace(" is", " holds")
            waiting += [(words, inner) for inner in _held(value)]
            waiting += [(words, inner) for _, inner in _attributes(value)]
    return None


def _attributes(x: Any) -> Iterator[tuple[str, Any]]:
    """Of instances of users' classes. Modules note themselves what is set."""
    own = getattr(x, "__dict__", None)
    if isinstance(own, dict):
        if "_modules" in own or isinstance(x, types.FunctionType | functools.partial):
            return
        yield from own.items()
    for kind in type(x).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, types.MemberDescriptorType) and not name.startswith("__"):
                try:
                    yield name, member.__get__(x)
                except AttributeError:
                    continue  # a slot that is not filled


def _held(x: Any) -> Iterator[Any]:
    """What containers, functions and Python's own iterators and views refer to."""
    if isinstance(x, dict):
        yield from x.values()
    elif isinstance(x, _CONTAINERS):
        yield from x
    elif isinstance(x, types.FunctionType):
        for cell in x.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:
                continue  # it is not filled
        yield from x.__defaults__ or ()
        yield from (x.__kwdefaults__ or {}).values()
    elif isinstance(x, types.MethodType):
        yield x.__self__
    elif isinstance(x, functools.partial):
        yield from (x.func, x.args, x.keywords)
    elif type(x).__module__ in ("builtins", "itertools", "collections") and not callable(x):
        yield from gc.get_referents(x)
