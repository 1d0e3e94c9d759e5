"""Where captured state lives: the access path from a traced function to an object, such as model._modules['fc'].

Paths are found once, after a trace, by a breadth-first walk over what the function can reach: its cells, globals that its code
names, defaults, and inside them containers, functions and instances. Guards follow the paths at each call.
"""

from __future__ import annotations

import functools
import types
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer.tensors.tensor import Tensor

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
_PLAIN = frozenset(
    (str, bytes, int, float, complex, bool, type(None))
)  # never captured, and there may be very many
_LIMIT = 100_000  # objects visited; what lies beyond is captured by identity without a path
_ATOMS = (
    str,
    bytes,
    int,
    float,
    complex,
    bool,
    type(None),
    type,
    np.dtype,
    np.generic,
    np.ndarray,
    Tensor,
)


@dataclass(frozen=True, slots=True)
class Path:
    """An expression in `fn` (the traced function) and `leaves` (its arguments), and a readable name."""

    expression: str
    name: str

    def item(self, key: Any) -> Path:
        """The path of container[key]."""
        return Path(f"{self.expression}[{key!r}]", f"{self.name}.{key}" if self.name else str(key))

    def attribute(self, name: str) -> Path:
        """The path of an instance's own attribute."""
        shown = self.name if name.startswith("_") else f"{self.name}.{name}"
        return Path(f"{self.expression}.__dict__[{name!r}]", shown.lstrip("."))


def code_names(code: types.CodeType) -> set[str]:
    """Global and attribute names that a code object and those nested in it use."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= code_names(constant)
    return names


def function_roots(fn: types.FunctionType, expression: str = "fn") -> Iterator[tuple[Any, Path]]:
    """What a function refers to directly: closure cells, globals, defaults."""
    for i, (name, cell) in enumerate(
        zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False)
    ):
        try:
            yield cell.cell_contents, Path(f"{expression}.__closure__[{i}].cell_contents", name)
        except ValueError:
            continue  # a cell that is not filled yet
    for name in sorted(code_names(fn.__code__)):
        if name in fn.__globals__:
            yield fn.__globals__[name], Path(f"{expression}.__globals__[{name!r}]", name)
    for i, value in enumerate(fn.__defaults__ or ()):
        yield value, Path(f"{expression}.__defaults__[{i}]", f"default{i}")
    for name, value in (fn.__kwdefaults__ or {}).items():
        yield value, Path(f"{expression}.__kwdefaults__[{name!r}]", name)


Trail = Path | tuple[Any, str, Any]
"""How the walk came to an object: a path, or the trail of its holder, how it is held ("item", "attribute", or an attribute's name
in the expression) and under what. Paths are text and are written for what is found only."""


def _path(trail: Trail) -> Path:
    steps: list[tuple[str, Any]] = []
    while not isinstance(trail, Path):
        trail, how, key = trail
        steps.append((how, key))
    path = trail
    for how, key in reversed(steps):
        if how == "item":
            path = path.item(key)
        elif how == "attribute":
            path = path.attribute(key)
        else:
            path = Path(f"{path.expression}.{how}", f"{path.name}.{key}" if key else path.name)
    return path


def _children(item: Any, trail: Trail, names: set[str]) -> Iterator[tuple[Any, Trail]]:
    if isinstance(item, types.FunctionType):
        names |= code_names(item.__code__)
        yield from function_roots(item, _path(trail).expression)
        if "__wrapped__" in item.__dict__:
            yield item.__dict__["__wrapped__"], (trail, "__wrapped__", "")
    elif isinstance(item, types.MethodType):
        yield item.__self__, (trail, "__self__", "")
        yield item.__func__, (trail, "__func__", "")
    elif isinstance(item, functools.partial):
        for field in ("func", "args", "keywords"):
            yield getattr(item, field), (trail, field, field)
    elif isinstance(item, types.ModuleType):
        if item.__name__.split(".")[0] not in _LIBRARIES:
            for name in names & item.__dict__.keys():
                yield item.__dict__[name], (trail, f"__dict__[{name!r}]", name)
    elif isinstance(item, type):
        for name, value in _of_class(item, {}):
            if not isinstance(value, types.MemberDescriptorType):
                yield value, (trail, name, name)
    elif isinstance(item, Mapping):
        for key, value in list(item.items()):
            if isinstance(key, str | int | bool | float) or key is None:
                yield value, (trail, "item", key)
    elif isinstance(item, list | tuple):
        for i, value in enumerate(item):
            if type(value) not in _PLAIN:
                yield value, (trail, "item", i)
    elif type(item).__module__ == "tracer.tracing.traced_function":
        yield item._function, (trail, "_function", "")  # not what it has compiled
    elif not type(item).__module__.startswith(("codegen.", "ops.", "tracer.tracing.")):
        attributes = getattr(item, "__dict__", None)
        if isinstance(attributes, dict):
            # modules before what refers to their parameters (optimisers), so that a replaced module is noticed
            for name in sorted(
                map(str, attributes), key=lambda n: (not n.startswith("_modules"), n)
            ):
                if name in attributes:
                    yield attributes[name], (trail, "attribute", name)
        for name, value in _of_class(type(item), attributes or {}):
            if isinstance(value, types.MemberDescriptorType):  # a slot
                value = getattr(item, name, None)
            yield value, (trail, name, name)


def _of_class(kind: type, own: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The data and the slots that a user's class gives its instances, but for what they have themselves."""
    told = set(own)
    for base in kind.__mro__:
        if base.__module__.split(".")[0] in _NOT_USERS:
            continue
        for name, value in list(vars(base).items()):
            if name not in told and not name.startswith("__") and not isinstance(value, _CODE):
                yield name, value
            told.add(name)


def _is_users_class(item: Any) -> bool:
    return isinstance(item, type) and item.__module__.split(".")[0] not in _NOT_USERS


def find_paths(
    roots: list[tuple[Any, Path]], targets: Mapping[int, Any], fn: Any = None
) -> dict[int, Path]:
    """The shortest path to each target (by id) that can be reached."""
    found: dict[int, Path] = {}
    seen: set[int] = set()
    keep: list[Any] = []
    names: set[str] = code_names(fn.__code__) if isinstance(fn, types.FunctionType) else set()
    queue: deque[tuple[Any, Trail]] = deque(roots)
    while queue and len(found) < len(targets) and len(seen) < _LIMIT:
        item, trail = queue.popleft()
        if id(item) in seen:
            continue
        seen.add(id(item))
        keep.append(item)
        if id(item) in targets:
            found[id(item)] = _path(trail)
        if not isinstance(item, _ATOMS) or _is_users_class(item):
            queue.extend(_children(item, trail, names))
    return found
