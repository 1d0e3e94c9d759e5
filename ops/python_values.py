"""Python's own values and functions: when two plain values are one, and what a function refers to.

Knows Python's classes, code objects and NumPy's scalars. Must not know what a value is used for:
which ones a kernel can hold, or a guard compares, is said where that is done.
"""

from __future__ import annotations

import dis
import functools
import struct
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

# ---- plain values --------------------------------------------------------------------------------

PLAIN_CLASSES = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    type(Ellipsis),
    np.generic,
)
"""The classes of values that are nothing but what they say. A tuple of such values is plain too."""

_BY_EQUALITY = frozenset((int, str, bytes))
_PADDED = (np.longdouble, np.clongdouble)  # with bytes that mean nothing


def same_value(a: Any, b: Any) -> bool:
    """Whether two plain values, or tuples of them, are one: no program can tell them apart.

    1, True and 1.0 are three, and so are 1.0 and np.float64(1.0); -0.0 is not 0.0; a NaN is the
    same as one of the same bits. What is not plain is the same as itself only.
    """
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind in _BY_EQUALITY:
        return bool(a == b)
    if kind is float or kind is complex:
        return _bits(a) == _bits(b)
    if isinstance(a, np.generic) and not isinstance(a, _PADDED):
        return bool(a.dtype == b.dtype) and a.tobytes() == b.tobytes()
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same_value, a, b))
    return isinstance(a, PLAIN_CLASSES) and repr(a) == repr(b)


def _bits(value: complex) -> bytes:
    return struct.pack("2d", value.real, value.imag)


class PlainValue:
    """A plain value as a key: equal to another one of the same value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PlainValue) and same_value(self.value, other.value)

    def __hash__(self) -> int:
        return _hash(self.value)

    def __repr__(self) -> str:
        return repr(self.value)


def _hash(value: Any) -> int:
    if type(value) in _BY_EQUALITY:
        return hash(value)
    if isinstance(value, tuple):
        return hash(tuple(map(_hash, value)))
    return hash(repr(value))


# ---- what a function refers to -------------------------------------------------------------------


class _Missing:
    """The class of `MISSING`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()
"""Stands for the value of a variable that has none (yet)."""

_LOADS_GLOBAL = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))


@dataclass(frozen=True, slots=True)
class Reference:
    """A variable outside a function, or a default of a parameter, that its code uses.

    `value` is what it was when it was looked up, `MISSING` if it had none. `place` is Python text that reads
    it, written behind an expression for the function: f"fn{reference.place}".
    """

    kind: Literal["closure", "global", "builtin", "default"]
    name: str
    value: Any
    place: str
    function: types.FunctionType
    key: int | str

    def now(self) -> Any:
        """The value now, `MISSING` if there is none."""
        if self.kind == "closure":
            assert isinstance(self.key, int)
            return _content((self.function.__closure__ or ())[self.key])
        if self.kind == "default":
            if isinstance(self.key, str):
                return (self.function.__kwdefaults__ or {}).get(self.key, MISSING)
            defaults = self.function.__defaults__ or ()
            return defaults[self.key] if self.key < len(defaults) else MISSING
        return _lookup(self.function, self.name)[0]


def references_of(function: types.FunctionType) -> Iterator[Reference]:
    """All that a function refers to: variables of closures, globals and builtins, defaults; each once."""
    yield from closure_references(function)
    yield from global_references(function)
    yield from default_references(function)


def closure_references(function: types.FunctionType) -> Iterator[Reference]:
    """Its variables that belong to functions around it, in the order of its cells."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for k, (name, cell) in enumerate(cells):
        place = f".__closure__[{k}].cell_contents"
        yield Reference("closure", name, _content(cell), place, function, k)


def global_references(function: types.FunctionType) -> Iterator[Reference]:
    """The global names that its code loads, in the order of the code. A name that is not defined is a global one."""
    for name in global_names(function.__code__):
        value, is_builtin = _lookup(function, name)
        where = "__builtins__" if is_builtin else "__globals__"
        kind: Literal["builtin", "global"] = "builtin" if is_builtin else "global"
        yield Reference(kind, name, value, f".{where}[{name!r}]", function, name)


def default_references(function: types.FunctionType) -> Iterator[Reference]:
    """The defaults of its parameters, under the parameters' names."""
    code, defaults = function.__code__, function.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    names = positional[len(positional) - len(defaults) :]
    for k, (name, value) in enumerate(zip(names, defaults, strict=True)):
        yield Reference("default", name, value, f".__defaults__[{k}]", function, k)
    for name, value in (function.__kwdefaults__ or {}).items():
        yield Reference("default", name, value, f".__kwdefaults__[{name!r}]", function, name)


@functools.lru_cache(4096)
def global_names(code: types.CodeType) -> tuple[str, ...]:
    """The names that code, and the code of functions defined in it, looks up among globals and builtins; in order, each once."""
    names: dict[str, None] = {}
    pending = [code]
    while pending:
        current = pending.pop()
        names.update(
            (i.argval, None) for i in dis.get_instructions(current) if i.opname in _LOADS_GLOBAL
        )
        pending.extend(c for c in current.co_consts if isinstance(c, types.CodeType))
    return tuple(names)


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _lookup(function: types.FunctionType, name: str) -> tuple[Any, bool]:
    """The value of a global name, and whether it is one of Python's builtins."""
    value = function.__globals__.get(name, MISSING)
    if value is not MISSING:
        return value, False
    builtins: dict[str, Any] = getattr(function, "__builtins__")  # noqa: B009
    value = builtins.get(name, MISSING)
    return value, value is not MISSING
