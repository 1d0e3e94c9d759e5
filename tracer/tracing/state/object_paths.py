"""Where captured state lies: the way from a traced function to an object, such as model._modules['fc'].

Ways are found once, after a trace, by a breadth-first walk over what the function can reach: its cells, globals that its code
names, defaults, and inside them containers, functions and instances. Guards follow them at each call.

Knows objects and what they hold. Must not know what code does with them.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from ops.python_values import PLAIN_CLASSES
from tracer.tensors.tensor import Tensor
from tracer.tracing.state.sources import Source, named_globals_of, references_of
from tracer.tracing.state.value_kinds import RunsPrograms

_LIBRARIES = ("numpy", "tracer", "ops", "codegen")
_NOT_USERS = frozenset((*_LIBRARIES, "builtins", "abc", "typing", "enum", "collections"))
_CODE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.GetSetDescriptorType,
    classmethod,
    staticmethod,
    property,
    functools.cached_property,
)
_LIMIT = 100_000  # objects visited; what lies beyond is captured by identity without a path
_PLAIN = frozenset(PLAIN_CLASSES)  # never captured, and there may be very many
_ATOMS = (*PLAIN_CLASSES, np.dtype, np.ndarray, Tensor)
_FIELDS: tuple[tuple[type, tuple[str, ...]], ...] = (
    (types.MethodType, ("__self__", "__func__")),
    (functools.partial, ("func", "args", "keywords")),
    (RunsPrograms, ("__wrapped__",)),  # not what it has compiled
)


@functools.lru_cache(4096)
def code_names(code: types.CodeType) -> frozenset[str]:
    """Global and attribute names that a code object and those nested in it use."""
    names = frozenset(code.co_names)
    return names.union(*(code_names(c) for c in code.co_consts if isinstance(c, types.CodeType)))


def find_paths(
    roots: Iterable[Source], targets: Mapping[int, Any], names: Iterable[str] = ()
) -> dict[int, Source]:
    """The shortest way to each target (by id) that can be reached. `names`: what the code whose references are roots uses."""
    found: dict[int, Source] = {}
    seen: set[int] = set()
    keep: list[Any] = []  # so that ids stay theirs
    used = set(names)
    queue = deque(roots)
    while queue and len(found) < len(targets) and len(seen) < _LIMIT:
        source = queue.popleft()
        value = source.value
        if id(value) in seen:
            continue
        seen.add(id(value))
        keep.append(value)
        if id(value) in targets:
            found[id(value)] = source
        if isinstance(value, types.FunctionType):
            used |= code_names(value.__code__)
        if not isinstance(value, _ATOMS):
            queue.extend(_held_by(source, used))
    return found


def _held_by(source: Source, names: set[str]) -> Iterator[Source]:
    """What an object holds. `names`: those that the code on the way uses, which decide what of a module counts."""
    value = source.value
    for kind, fields in _FIELDS:
        if isinstance(value, kind):
            for field in fields:
                yield source.attribute(field, getattr(value, field))
            return
    if isinstance(value, types.FunctionType):
        yield from (*references_of(source), *named_globals_of(source))
        if "__wrapped__" in value.__dict__:
            yield source.attribute("__wrapped__", value.__dict__["__wrapped__"])
    elif isinstance(value, types.ModuleType):
        if _package(value.__name__) not in _LIBRARIES:
            for name in sorted(names & value.__dict__.keys()):
                yield source.attribute(name, value.__dict__[name])
    elif isinstance(value, type):
        if _package(value.__module__) not in _NOT_USERS:
            yield from _of_class(source, value)
    elif isinstance(value, Mapping):
        for key, x in list(value.items()):
            if type(x) not in _PLAIN and (key is None or isinstance(key, str | int | float)):
                yield source.item(key, x)
    elif isinstance(value, list | tuple):
        for k, x in enumerate(value):
            if type(x) not in _PLAIN:
                yield source.item(k, x)
    elif _package(type(value).__module__) not in ("codegen", "ops"):
        yield from _of_instance(source)


def _of_instance(source: Source) -> Iterator[Source]:
    own = getattr(source.value, "__dict__", None)
    if isinstance(own, dict):
        # modules before what refers to their parameters (optimisers), so that a replaced module is noticed
        for name in sorted(map(str, own), key=lambda n: (not n.startswith("_modules"), n)):
            if name in own and type(own[name]) not in _PLAIN:
                yield source.own(name, own[name])
    yield from _of_class(source, type(source.value), own or {})


def _of_class(source: Source, kind: type, own: Iterable[str] = ()) -> Iterator[Source]:
    """The data that a user's class gives its instances, and what is in their slots, but for what they have themselves."""
    told = set(own)
    for base in kind.__mro__:
        if _package(base.__module__) in _NOT_USERS:
            continue
        for name, value in list(vars(base).items()):
            if name in told or name.startswith("__") or isinstance(value, _CODE):
                pass
            elif not isinstance(value, types.MemberDescriptorType):
                yield source.attribute(name, value)
            elif kind is not source.value:  # a slot
                yield source.attribute(name, getattr(source.value, name, None))
            told.add(name)


def _package(module: str) -> str:
    return module.partition(".")[0]
