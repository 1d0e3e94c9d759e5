"""Which plain values the code of a traced function reads: numbers, strings and arrays that decided its trace.

Read off the code itself: names and the attributes and constant subscripts that follow them, such as `SCALE`, `config.depth`,
`self.rate` or `options["mode"]`, also through a local variable that is assigned once, in the function and in those that it
names in turn, as far as these are the user's. Containers that are gone through or handed on count with their elements. What
code finds out in other ways (`getattr`, attributes of a container's elements) is not followed.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tracer.tensors.tensor import Tensor
from tracer.tracing.state.bytecode import assigned_once, operations
from tracer.tracing.state.value_kinds import (
    KEYED,
    MOST_ITEMS,
    SCALARS,
    is_changeable,
    is_custom,
    is_function_class,
    is_generator,
    is_operator,
    is_plain,
    is_users,
    is_users_function,
    is_users_instance,
)

MOST_FUNCTIONS = 2000
MOST_HANDED = 8  # objects that a function hands to others
_INDEXED = (*KEYED, tuple)
_DATA = (np.ndarray, Tensor, list, dict, tuple, set, frozenset, deque)  # that a class may hold
_READING = frozenset(
    (
        "items",
        "values",
        "keys",
        "get",
        "setdefault",
        "pop",
        "popitem",
        "copy",
        "index",
        "count",
        "union",
        "__getitem__",
    )
)


@dataclass(frozen=True, slots=True)
class Found:
    """A value, the expression of the guard that gives it, and what the user calls it."""

    value: Any
    expression: str
    name: str
    owner: Found | None = None  # of a method: where its object was found
    content: bool = False  # of a container: its elements are read
    written: bool = False  # a place that is assigned to; `value` means nothing
    fixed: bool = False  # what an installed module has, which nobody replaces
    handed: bool = False  # an object that is used as a whole, as an argument is
    cleared: bool = False  # a container that the code empties


@dataclass(frozen=True, slots=True)
class _Scope:
    """Code, and what its names stand for. `known`: parameters and variables of closures."""

    code: types.CodeType
    globals: Found
    known: Mapping[str, Found]


def reads(
    starts: list[tuple[Found, Mapping[str, Found]]], keep: Callable[[Any], str]
) -> Iterator[Found]:
    """Plain values, arrays and functions that code reads, each expression once.

    `starts`: functions, or objects that are called, with what is known of their parameters. `keep` gives an expression for an
    object, which is how functions that are found become part of further expressions.
    """
    waiting: deque[_Scope] = deque()
    seen: set[tuple[Any, ...]] = set()
    told: set[tuple[str, bool, bool]] = set()

    def enter(item: Found, parameters: Mapping[str, Found]) -> None:
        for function, known in _called(item, keep):
            visit(function, known, parameters)

    def visit(function: Found, known: Mapping[str, Found], parameters: Mapping[str, Found]) -> None:
        code = function.value.__code__
        bound = (f"{n} {id(f.value)}" for n, f in (*known.items(), *parameters.items()))
        key = (code, id(function.value), *bound)
        if key in seen or len(seen) > MOST_FUNCTIONS or not is_users(code.co_filename):
            return
        seen.add(key)
        waiting.append(_scope(function, {**parameters, **known}))

    def hand(objects: list[Found], item: Found) -> None:
        for function, known in _called(item, keep):
            for name in _parameters(function.value.__code__):
                if name not in known:
                    for given in objects:
                        visit(function, known, {name: given})

    for start, parameters in starts:
        enter(start, parameters)
        while waiting:
            scope = waiting.popleft()
            objects: dict[int, Found] = {}
            functions: list[Found] = []
            for found in _names(scope):
                if found.handed:
                    objects[id(found.value)] = found
                    continue
                if found.cleared:
                    yield found
                    continue
                told_only = found.content or found.written
                items = (found,) if told_only else (found, *_arrays_in(found))
                for item in items:
                    key = item.expression, item.content, item.written
                    matters = told_only or _matters(item)
                    if matters and item.expression and key not in told:
                        told.add(key)
                        yield item
                if not told_only:
                    enter(found, {})
                    if callable(found.value) and not found.fixed:
                        functions.append(found)
            given = list(objects.values())[:MOST_HANDED]
            if given:  # any of these may be what any of the functions gets
                for found in functions:
                    hand(given, found)
            for code in scope.code.co_consts:
                if isinstance(code, types.CodeType):
                    waiting.append(_Scope(code, scope.globals, scope.known))
                    waiting.extend(
                        _Scope(code, scope.globals, {**scope.known, name: x})
                        for name in _parameters(code)
                        for x in given
                    )


def _matters(found: Found) -> bool:
    value = found.value
    return (
        is_plain(value)
        or isinstance(value, (np.ndarray, Tensor, Iterator))
        or is_generator(value)
        or is_users_function(value)
        or is_custom(value)
        or is_changeable(value)
        or (
            callable(value) and not found.fixed and "_modules" not in getattr(value, "__dict__", ())
        )
    )


def _arrays_in(container: Found) -> Iterator[Found]:
    """The arrays in a short list, tuple or dict, over which code may loop."""
    value = container.value
    if type(value) not in (list, tuple, dict) or len(value) > MOST_ITEMS:
        return
    for key, x in list(value.items() if isinstance(value, dict) else enumerate(value)):
        if isinstance(x, np.ndarray) and isinstance(key, SCALARS):
            yield Found(x, f"{container.expression}[{key!r}]", f"{container.name}[{key!r}]")


def _parameters(code: types.CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _is_handed(steps: tuple[tuple[str, Any], ...], number: int) -> bool:
    """Whether code that has come to an object does not go on to its attributes or elements."""
    following = steps[number + 1][0] if number + 1 < len(steps) else ""
    return following in ("", "name", "local", "constant")


def _called(item: Found, keep: Callable[[Any], str]) -> Iterator[tuple[Found, Mapping[str, Found]]]:
    """The functions that run when an object is called, with what is known of their parameters."""
    value = _untraced(item.value)
    if isinstance(value, types.FunctionType):
        yield Found(value, keep(value), item.name), {}
        wrapped = value.__dict__.get("__wrapped__")
        if isinstance(wrapped, types.FunctionType):
            yield Found(wrapped, keep(wrapped), item.name), {}
    elif isinstance(value, types.MethodType):
        yield from _method(
            value.__func__, item.owner or Found(value.__self__, keep(value.__self__), ""), keep
        )
    elif is_operator(value):
        for function in value.functions():
            yield Found(function, keep(function), item.name), {}
    elif isinstance(value, functools.partial):
        for function, known in _called(Found(value.func, keep(value.func), item.name), keep):
            yield function, {**known, **_bound(function.value, value, keep(value))}
    elif isinstance(value, type) and is_function_class(value):
        for name in ("forward", "setup_context", "backward"):
            function = inspect.getattr_static(value, name)
            if isinstance(function, staticmethod):
                yield from _called(Found(function.__func__, keep(function.__func__), name), keep)
    elif not isinstance(value, type | types.ModuleType | Tensor | types.BuiltinFunctionType):
        for name in ("forward", "__call__"):
            function = inspect.getattr_static(type(value), name, None)
            if function is not None:
                owner = (
                    item
                    if item.expression and value is item.value
                    else Found(value, keep(value), item.name)
                )
                yield from _method(_untraced(function), owner, keep)


def _bound(function: Any, partial: Any, expression: str) -> dict[str, Found]:
    """The parameters of a function that a partial application of it gives."""
    names = function.__code__.co_varnames
    found = {
        name: Found(x, f"{expression}.args[{k}]", name)
        for k, (name, x) in enumerate(zip(names, partial.args, strict=False))
    }
    given = {
        name: Found(x, f"{expression}.keywords[{name!r}]", name)
        for name, x in partial.keywords.items()
    }
    return found | given


def _untraced(value: Any) -> Any:
    """Of a traced function what it traces. No attribute of anybody else's object is asked for, which could run their code."""
    while type(value).__module__ == "tracer.tracing.traced_function":
        value = value._function
    return value


def _method(
    function: Any, owner: Found, keep: Callable[[Any], str]
) -> Iterator[tuple[Found, Mapping[str, Found]]]:
    if isinstance(function, types.FunctionType) and function.__code__.co_argcount:
        yield Found(function, keep(function), ""), {function.__code__.co_varnames[0]: owner}


def _scope(function: Found, known: Mapping[str, Found]) -> _Scope:
    fn, expression = function.value, function.expression
    names = dict(known)
    for number, (name, cell) in enumerate(
        zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=False)
    ):
        try:
            names[name] = Found(
                cell.cell_contents, f"{expression}.__closure__[{number}].cell_contents", name
            )
        except ValueError:
            continue  # a cell that is not filled yet
    code = fn.__code__
    positional = code.co_varnames[: code.co_argcount]
    defaults = fn.__defaults__ or ()
    for number, (name, value) in enumerate(
        zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
    ):
        names.setdefault(name, Found(value, f"{expression}.__defaults__[{number}]", name))
    for name, value in (fn.__kwdefaults__ or {}).items():
        names.setdefault(name, Found(value, f"{expression}.__kwdefaults__[{name!r}]", name))
    return _Scope(code, Found(fn.__globals__, f"{expression}.__globals__", ""), names)


def _names(scope: _Scope) -> Iterator[Found]:
    """Everything that chains of names, attributes and constant subscripts lead to."""
    current: Found | None = None
    container: Found | None = None
    key: Any = None
    variables: dict[str, Found] = {}
    once = assigned_once(scope.code)
    following = operations(scope.code)
    for number, (kind, argument) in enumerate(following):
        if kind == "constant":
            container, key, current = current, argument, None
            continue
        if kind == "store":
            if current is not None and argument in once:
                variables[argument] = current
            current = container = None
            continue
        if kind == "name":
            current = _global(scope.globals, argument)
        elif kind == "local":
            current = variables.get(argument) or scope.known.get(argument)
        elif kind == "attribute":
            current = None if current is None else _attribute(current, argument)
        elif kind == "subscript":
            current = None if container is None else _item(container, key)
        else:
            place = _written(kind, argument, scope, current, container, key)
            if place is not None:
                yield place
            current = None
        container = None
        if current is not None:
            yield current
            if is_users_instance(current.value) and _is_handed(following, number):
                yield replace(current, handed=True)
            if is_changeable(current.value) and following[number + 1 :][:1] == (
                ("attribute", "clear"),
            ):
                yield replace(current, cleared=True)
            if _is_container(current.value) and _reads_content(following[number + 1 : number + 3]):
                yield replace(current, content=True)


def _written(
    kind: str, name: Any, scope: _Scope, owner: Found | None, container: Found | None, key: Any
) -> Found | None:
    """The place that code which has come here assigns to, if it is known. Modules note themselves what is set."""
    if kind == "cell":
        known = scope.known.get(name) if name in scope.code.co_freevars else None
        return None if known is None else Found(None, known.expression, name, written=True)
    if kind == "global":
        return Found(None, f"{scope.globals.expression}[{name!r}]", name, written=True)
    if kind != "write":
        return None
    if name is None:
        if container is None or type(container.value) not in (*_INDEXED, Counter):
            return None
        place = f"[{key!r}]"
        return Found(
            None, f"{container.expression}{place}", f"{container.name}{place}", written=True
        )
    if owner is None or isinstance(owner.value, (types.ModuleType, Tensor, *SCALARS)):
        return None
    own = getattr(owner.value, "__dict__", None)
    held = inspect.getattr_static(type(owner.value), name, None)
    in_slot = isinstance(held, types.MemberDescriptorType)
    if (isinstance(own, dict) and "_modules" in own) or (
        hasattr(type(held), "__set__") and not in_slot
    ):
        return None
    return Found(None, f"{owner.expression}.{name}", f"{owner.name}.{name}", written=True)


def _is_container(value: Any) -> bool:
    return type(value).__module__ in ("builtins", "collections") and isinstance(
        value, list | dict | set | frozenset | deque | tuple
    )


def _reads_content(following: tuple[tuple[str, Any], ...]) -> bool:
    """Whether code that has come to a container, and goes on like this, sees its elements."""
    first, second = (*following, ("", None), ("", None))[:2]
    if first[0] == "attribute":
        return first[1] in _READING
    if first[0] == "constant":
        return second[0] not in ("subscript", "write")  # x["key"] is followed by itself
    if first[0] in ("name", "local"):
        return second[0] != "write"
    return first[0] not in ("store", "write")


def _global(names: Found, name: str) -> Found | None:
    if name not in names.value:
        return None
    return Found(names.value[name], f"{names.expression}[{name!r}]", name)


def _item(container: Found, key: Any) -> Found | None:
    value = container.value
    if type(value) not in (*_INDEXED, Counter) or not isinstance(key, SCALARS):
        return None
    if type(value) is defaultdict and key not in value:  # asking would put it there
        return None
    try:
        return Found(value[key], f"{container.expression}[{key!r}]", f"{container.name}[{key!r}]")
    except (KeyError, IndexError, TypeError):
        return None


def _attribute(owner: Found, name: str) -> Found | None:
    """An attribute as it lies, found without running code."""
    value, shown = owner.value, f"{owner.name}.{name}" if owner.name else name
    if isinstance(value, (Tensor, *SCALARS)):
        return None
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict) and name in own:
        fixed = isinstance(value, types.ModuleType) and not is_users(str(own.get("__file__", "")))
        return Found(own[name], f"{owner.expression}.__dict__[{name!r}]", shown, fixed=fixed)
    if isinstance(own, dict) and isinstance(own.get("_modules"), dict) and name in own["_modules"]:
        return Found(
            own["_modules"][name], f"{owner.expression}.__dict__['_modules'][{name!r}]", shown
        )
    of_class = inspect.getattr_static(value if isinstance(value, type) else type(value), name, None)
    if of_class is not None and (is_plain(of_class) or isinstance(of_class, _DATA)):
        return Found(of_class, f"{owner.expression}.{name}", shown)
    if isinstance(of_class, types.MemberDescriptorType) and not isinstance(value, type):
        held = getattr(value, name, None)
        return Found(held, f"{owner.expression}.{name}", shown)
    if isinstance(of_class, staticmethod):
        return Found(of_class.__func__, "", shown)
    function = of_class.fget if isinstance(of_class, property) else _untraced(of_class)
    if isinstance(function, types.FunctionType) and not isinstance(value, type):
        return Found(types.MethodType(function, value), "", shown, owner)
    return None
