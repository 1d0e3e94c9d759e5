"""A function of the user's on numbers: everything that decides what it computes, as a key, and the
function in a form that a compiler takes.

It may use numbers and tuples of them, the modules math and numpy, Python's builtins, and other such
functions, whatever Numba made of them. All of that is part of the key, so a changed constant is
another function. Knows Python's code objects. Must not import Numba, nor know kernels.
"""

from __future__ import annotations

import builtins
import cmath
import hashlib
import inspect
import math
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from codegen.errors import FunctionError
from codegen.text.source import compile_function
from ops.python_values import MISSING, PLAIN_CLASSES, Reference, references_of, same_value

_MODULES: dict[Any, str] = {math: "math", np: "numpy", cmath: "cmath", builtins: "builtins"}
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR

Jit = Callable[[types.FunctionType], Any]
Instead = Mapping[Any, Any]  # of math's and NumPy's functions -> what is called in their place


def python_function(value: Any) -> types.FunctionType | None:
    """The Python function in what a user calls a function: itself, in Numba's dispatcher, in an operator made of one."""
    if isinstance(value, types.FunctionType):
        return value
    inner = inspect.getattr_static(value, "py_func", None)
    if inner is None or isinstance(value, type):
        return None
    inner = value.py_func
    return inner if isinstance(inner, types.FunctionType) else None


def described(function: types.FunctionType) -> str:
    """Its name and where it stands, for messages."""
    code = function.__code__
    return f"{function.__name__} ({code.co_filename}:{code.co_firstlineno})"


def parameters(function: types.FunctionType) -> tuple[str, ...]:
    """The names of its operands: positional parameters without a default. Raises `FunctionError` for other kinds."""
    found = inspect.signature(function).parameters.values()
    for p in found:
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) or (
            p.kind is p.KEYWORD_ONLY and p.default is p.empty
        ):
            raise FunctionError(
                f"{described(function)} takes {p}, but an operator has a fixed number of operands: positional parameters. "
                "What is constant may be a parameter with a default"
            )
    names = tuple(p.name for p in found if p.default is p.empty)
    if not names:
        raise FunctionError(
            f"{described(function)} has no operand; it needs a parameter without a default"
        )
    return names


def used(function: types.FunctionType) -> Iterator[Reference]:
    """What it uses from outside. Raises `FunctionError` for a name without a value."""
    for found in references_of(function):
        if found.value is MISSING and found.kind == "closure":
            raise FunctionError(
                f"{described(function)} uses the variable {found.name} around it, which has no value (yet)"
            )
        if found.value is MISSING:
            raise FunctionError(
                f"{described(function)} uses the name {found.name}, which is not defined (yet)"
            )
        yield found


# ---- the key -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Used:
    """A function of Python's, with the code, defaults and values from outside that it had."""

    function: types.FunctionType
    code: types.CodeType
    defaults: int
    references: tuple[Reference, ...]

    def is_current(self) -> bool:
        """Whether it has them still."""
        return (
            self.function.__code__ is self.code
            and _default_count(self.function) == self.defaults
            and all(same_value(r.now(), r.value) for r in self.references)
        )


def _default_count(function: types.FunctionType) -> int:
    return len(function.__defaults__ or ()) + len(function.__kwdefaults__ or ())


@dataclass(frozen=True, slots=True)
class Content:
    """What a function is made of: a copy that keeps the values of now, a hash of it, and the functions
    that it consists of, to see whether these are still the same.
    """

    function: types.FunctionType
    digest: str
    uses: tuple[Used, ...]

    def is_current(self) -> bool:
        """Whether everything outside is what it was."""
        return all(u.is_current() for u in self.uses)


def content(function: types.FunctionType) -> Content:
    """What a function and those that it calls are made of. Raises `FunctionError` for what no kernel can hold."""
    uses: list[Used] = []
    _function_text(function, (), uses)
    frozen = rebuilt(function, lambda f: f)
    text = _function_text(frozen, (), [])
    digest = hashlib.blake2b(text.encode(), digest_size=10).hexdigest()
    return Content(frozen, digest, tuple(uses))


def _function_text(
    function: types.FunctionType, callers: tuple[types.FunctionType, ...], uses: list[Used]
) -> str:
    if function in callers:
        raise FunctionError(
            f"{described(function)} calls itself; a kernel has no room for that, write a loop"
        )
    code = function.__code__
    if code.co_flags & _GENERATORS:
        raise FunctionError(
            f"{described(function)} is a generator or a coroutine, not a function of numbers"
        )
    found = tuple(used(function))
    uses.append(Used(function, code, _default_count(function), found))
    callers = (*callers, function)
    parts = [_code_text(function, code)]
    parts += [
        f"{r.kind} {r.name}={_value_text(function, r, r.value, callers, uses)}" for r in found
    ]
    return f"function({'; '.join(parts)})"


def _code_text(function: types.FunctionType, code: types.CodeType) -> str:
    constants = [
        _code_text(function, c) if isinstance(c, types.CodeType) else _constant_text(c)
        for c in code.co_consts
    ]
    table = getattr(code, "co_exceptiontable", b"")
    return repr((code.co_code, table, code.co_names, code.co_varnames, code.co_argcount, constants))


def _constant_text(value: Any) -> str:
    if isinstance(value, frozenset):
        return f"frozenset({', '.join(sorted(map(_constant_text, value)))})"
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant_text, value))})"
    return f"{type(value).__name__} {value!r}"


def _value_text(
    function: types.FunctionType,
    reference: Reference,
    value: Any,
    callers: tuple[types.FunctionType, ...],
    uses: list[Used],
) -> str:
    if isinstance(value, np.generic):
        if value.dtype.kind in "biufcSU":
            return f"{value.dtype} {value!r}"
    elif isinstance(value, PLAIN_CLASSES):
        return _constant_text(value)
    if isinstance(value, tuple):
        return f"({', '.join(_value_text(function, reference, v, callers, uses) for v in value)})"
    hint = "it may use numbers, tuples of numbers, math, numpy and functions of numbers"
    if isinstance(value, types.ModuleType):
        if value in _MODULES:
            return f"module {_MODULES[value]}"
        hint = f"use `from {value.__name__} import ...` for what it needs of it"
    inner = python_function(value)
    if inner is not None:
        return _function_text(inner, callers, uses)
    where = _library_name(value)
    if where:
        return where
    raise _refused(function, reference.name, value, hint)


def _library_name(value: Any) -> str:
    """Where something of Python's or NumPy's stands, "" for anything else."""
    name = getattr(value, "__name__", None)
    if not isinstance(name, str):
        return ""
    for module, label in _MODULES.items():
        if vars(module).get(name) is value:
            return f"{label}.{name}"
    origin = type(value).__module__.partition(".")[0]
    return (
        f"numba {value!r}" if origin == "numba" and "Dispatcher" not in type(value).__name__ else ""
    )


def _refused(function: types.FunctionType, name: str, value: Any, hint: str) -> FunctionError:
    kind = (
        "the module" if isinstance(value, types.ModuleType) else f"of class {type(value).__name__}:"
    )
    shown = value.__name__ if isinstance(value, types.ModuleType) else f"{value!r:.40}"
    return FunctionError(
        f"{described(function)} uses {name}, {kind} {shown}, which a kernel cannot hold; {hint}"
    )


# ---- for compilers -------------------------------------------------------------------------------


def entry(function: types.FunctionType, jit: Jit, instead: Instead | None = None) -> Any:
    """The function of its operands alone, compiled by `jit`; defaults are constants."""
    operands = parameters(function)
    whole = rebuilt(function, jit, instead)
    if len(operands) == len(inspect.signature(function).parameters):
        return whole
    given = ", ".join(f"x{k}" for k in range(len(operands)))
    text = f"def entry({given}):\n    return whole({given})\n"
    return jit(compile_function(text, "entry", {"whole": whole}))


def functions(function: types.FunctionType) -> list[types.FunctionType]:
    """The function and all those that it calls, each once."""
    found = {function: None}
    pending = [function]
    while pending:
        for u in used(pending.pop()):
            values = u.value if isinstance(u.value, tuple) else (u.value,)
            new = [f for v in values if (f := python_function(v)) is not None and f not in found]
            found.update(dict.fromkeys(new))
            pending += new
    return list(found)


def rebuilt(function: types.FunctionType, jit: Jit, instead: Instead | None = None) -> Any:
    """The function compiled by `jit`, and so are all those that it calls, whatever was made of them before."""
    instead = instead or {}
    names: dict[str, Any] = {"__builtins__": builtins}
    cells: list[types.CellType] = []
    for u in used(function):
        value = _compilable(u.value, jit, instead)
        if u.kind == "closure":
            cells.append(types.CellType(value))
        elif u.kind == "global":
            names[u.name] = value
    code, defaults = _positional(function)
    made = types.FunctionType(code, names, function.__name__, defaults, tuple(cells) or None)
    if code is function.__code__:
        made.__kwdefaults__ = function.__kwdefaults__
    made.__module__ = function.__module__
    return jit(made)


def _positional(function: types.FunctionType) -> tuple[types.CodeType, tuple[Any, ...] | None]:
    """Code and defaults with keyword-only parameters as positional ones, where all have defaults: Numba knows no others."""
    code, defaults = function.__code__, function.__defaults__
    given = function.__kwdefaults__ or {}
    start, count = code.co_argcount, code.co_kwonlyargcount
    only = code.co_varnames[start : start + count]
    if not only or code.co_flags & inspect.CO_VARARGS or any(name not in given for name in only):
        return code, defaults
    positional = code.replace(co_argcount=start + count, co_kwonlyargcount=0)
    return positional, (*(defaults or ()), *(given[name] for name in only))


def _compilable(value: Any, jit: Jit, instead: Instead) -> Any:
    if isinstance(value, tuple):
        return tuple(_compilable(v, jit, instead) for v in value)
    if isinstance(value, types.ModuleType) and instead:
        return _with(value, instead)
    inner = python_function(value)
    if inner is not None:
        return rebuilt(inner, jit, instead)
    return instead.get(value, value) if callable(value) else value


def _with(module: types.ModuleType, instead: Instead) -> types.ModuleType:
    """A module with some of its functions replaced."""
    result = types.ModuleType(module.__name__)
    members = vars(module)
    result.__dict__.update(members)
    replaced = {k: instead[v] for k, v in members.items() if _is_key(v) and v in instead}
    result.__dict__.update(replaced)
    return result


def _is_key(value: Any) -> bool:
    return callable(value) and not isinstance(value, type)
