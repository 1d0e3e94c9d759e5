"""What the code of a function does with Python state: which values it reads, which containers it goes through, where it writes.

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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from ops.python_values import PLAIN_CLASSES
from tracer.custom.operators import CustomOperator
from tracer.tensors.tensor import Tensor
from tracer.tracing.state.bytecode import assigned_once, operations
from tracer.tracing.state.sources import Place, Source, globals_of, references_of
from tracer.tracing.state.value_kinds import (
    CONTAINERS,
    KEYED,
    MOST_ITEMS,
    Watch,
    is_changeable,
    is_function_class,
    is_plain,
    is_users,
    is_users_instance,
    untraced,
    watch_of,
)

MOST_FUNCTIONS = 2000
MOST_PASSED = 8  # objects that a function passes to others
_INDEXED = (*KEYED, tuple, Counter)
_DATA = (Watch.VALUE, Watch.TENSOR, Watch.ARRAY, Watch.CONTAINER)  # which nobody calls
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
_END = ("", None)


class Use(NamedTuple):
    """What code does with a place: "read" a value that a guard can watch, read the "elements" of a container, "clear" one,
    "write" (the value means nothing then), or "pass" on an object of the user's as an argument.
    """

    kind: Literal["read", "elements", "clear", "write", "pass"]
    source: Source


Known = Mapping[str, Source]
"""What is known of a function's parameters, and of variables of functions around it."""


@dataclass(frozen=True, slots=True)
class _Scope:
    """Code, and what its names stand for."""

    code: types.CodeType
    globals: Source
    known: Known


def uses(starts: Iterable[tuple[Source, Known]]) -> Iterator[Use]:
    """What code reads and writes, each place once, beginning with functions or other objects that are called."""
    walk = _Walk()
    for start, parameters in starts:
        walk.enter(start, parameters)
        while walk.waiting:
            yield from walk.look_into(walk.waiting.popleft())


class _Walk:
    """Which functions are still to be looked into, and what has been seen."""

    def __init__(self) -> None:
        self.waiting: deque[_Scope] = deque()
        # with what their keys name by identity, which must stay alive
        self._seen: dict[tuple[Any, ...], tuple[Source, Known]] = {}
        self._told: dict[tuple[str, Place], Source] = {}

    def enter(self, item: Source, parameters: Known) -> None:
        """Look into the functions that run when an object is called."""
        for function, known in _called(item):
            self._visit(function, {**parameters, **known})

    def _visit(self, function: Source, known: Known) -> None:
        code = function.value.__code__
        key = (code, id(function.value), *((name, id(x.value)) for name, x in known.items()))
        if key in self._seen or len(self._seen) > MOST_FUNCTIONS or not is_users(code.co_filename):
            return
        self._seen[key] = function, known
        self.waiting.append(_scope(function, known))

    def look_into(self, scope: _Scope) -> Iterator[Use]:
        """What code does; the functions that it names wait to be looked into."""
        passed: dict[int, Source] = {}
        functions: list[Source] = []
        for use in _uses_in(scope):
            source = use.source
            if use.kind == "pass":
                passed[id(source.value)] = source
            elif use.kind != "read":
                yield from self._new(use)
            else:
                fixed = _is_fixed(source)
                watch = watch_of(source.value, fixed)
                if watch is not None:
                    yield from self._new(use)
                for array in _arrays_in(source):
                    yield from self._new(Use("read", array))
                is_called = callable(source.value)
                if is_called or watch not in _DATA:
                    self.enter(source, {})
                if is_called and not fixed:
                    functions.append(source)
        given = list(passed.values())[:MOST_PASSED]  # any function may get any of these
        for function, known in (x for f in functions if given for x in _called(f)):
            for name in _parameters(function.value.__code__):
                if name not in known:
                    for x in given:
                        self._visit(function, {**known, name: x})
        for code in scope.code.co_consts:
            if isinstance(code, types.CodeType):
                self.waiting.append(_Scope(code, scope.globals, scope.known))
                self.waiting.extend(
                    _Scope(code, scope.globals, {**scope.known, name: x})
                    for name in _parameters(code)
                    for x in given
                )

    def _new(self, use: Use) -> Iterator[Use]:
        if use.source.step != "bound":
            key = use.kind, use.source.place
            if key not in self._told:
                self._told[key] = use.source
                yield use


def _is_fixed(source: Source) -> bool:
    """Whether it is what an installed module has, which nobody replaces."""
    owner = None if source.base is None else source.base.value
    return (
        source.step == "own"
        and isinstance(owner, types.ModuleType)
        and not is_users(str(owner.__dict__.get("__file__", "")))
    )


def _arrays_in(container: Source) -> Iterator[Source]:
    """The arrays in a short list, tuple or dict, over which code may loop."""
    value = container.value
    if type(value) not in (list, tuple, dict) or len(value) > MOST_ITEMS:
        return
    for key, x in list(value.items() if isinstance(value, dict) else enumerate(value)):
        if isinstance(x, np.ndarray) and isinstance(key, PLAIN_CLASSES):
            yield container.item(key, x)


def _parameters(code: types.CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


# ---- what is called ------------------------------------------------------------------------------


def _called(item: Source) -> Iterator[tuple[Source, Known]]:
    """The functions that run when an object is called, with what is known of their parameters."""
    value = untraced(item.value)
    if isinstance(value, types.FunctionType):
        yield Source(value), {}
        wrapped = value.__dict__.get("__wrapped__")
        if isinstance(wrapped, types.FunctionType):
            yield Source(wrapped), {}
    elif isinstance(value, types.MethodType):
        owner = item.base
        if owner is None or owner.value is not value.__self__:
            owner = Source(value.__self__)
        yield from _method(value.__func__, owner)
    elif isinstance(value, CustomOperator):
        for function in value.functions():
            yield Source(function), {}
    elif isinstance(value, functools.partial):
        for found, known in _called(Source(value.func, item.name)):
            yield found, {**known, **_bound(found.value, Source(value))}
    elif is_function_class(value):
        for name in ("forward", "setup_context", "backward"):
            method = inspect.getattr_static(value, name)
            if isinstance(method, staticmethod):
                yield from _called(Source(method.__func__))
    elif not isinstance(value, type | types.ModuleType | Tensor | types.BuiltinFunctionType):
        for name in ("forward", "__call__"):
            method = inspect.getattr_static(type(value), name, None)
            if method is not None:
                is_known = item.step != "bound" and value is item.value
                yield from _method(untraced(method), item if is_known else Source(value, item.name))


def _bound(function: Any, partial: Source) -> dict[str, Source]:
    """The parameters of a function that a partial application of it gives."""
    value, names = partial.value, function.__code__.co_varnames
    args, keywords = partial.attribute("args", value.args), partial.attribute("keywords", None)
    placed = enumerate(zip(names, value.args, strict=False))
    found = {name: args.item(k, x, name) for k, (name, x) in placed}
    return found | {name: keywords.item(name, x, name) for name, x in value.keywords.items()}


def _method(function: Any, owner: Source) -> Iterator[tuple[Source, Known]]:
    if isinstance(function, types.FunctionType) and function.__code__.co_argcount:
        yield Source(function), {function.__code__.co_varnames[0]: owner}


def _scope(function: Source, known: Known) -> _Scope:
    code, names = function.value.__code__, {x.name: x for x in references_of(function)}
    names |= {name: x for name, x in known.items() if name not in code.co_freevars}
    return _Scope(code, globals_of(function), names)


# ---- one piece of code ---------------------------------------------------------------------------


def _uses_in(scope: _Scope) -> Iterator[Use]:
    """Everything that chains of names, attributes and constant subscripts lead to."""
    current: Source | None = None
    container: Source | None = None
    key: Any = None
    variables: dict[str, Source] = {}
    once = assigned_once(scope.code)
    steps = (*operations(scope.code), _END, _END)
    for number, (kind, argument) in enumerate(steps[:-2]):
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
                yield Use("write", place)
            current = None
        container = None
        if current is not None:
            yield Use("read", current)
            following = steps[number + 1 : number + 3]
            if is_users_instance(current.value) and _is_passed(following[0]):
                yield Use("pass", current)
            if is_changeable(current.value) and following[0] == ("attribute", "clear"):
                yield Use("clear", current)
            if type(current.value) in CONTAINERS and _reads_elements(*following):
                yield Use("elements", current)


def _is_passed(following: tuple[str, Any]) -> bool:
    """Whether code that has come to an object does not go on to its attributes or elements."""
    return following[0] in ("", "name", "local", "constant")


def _reads_elements(first: tuple[str, Any], second: tuple[str, Any]) -> bool:
    """Whether code that has come to a container, and goes on like this, sees its elements."""
    if first[0] == "attribute":
        return first[1] in _READING
    if first[0] == "constant":
        return second[0] not in ("subscript", "write")  # x["key"] is followed by itself
    if first[0] in ("name", "local"):
        return second[0] != "write"
    return first[0] not in ("store", "write")


def _written(
    kind: str, name: Any, scope: _Scope, owner: Source | None, container: Source | None, key: Any
) -> Source | None:
    """The place that code which has come here assigns to, if it is known."""
    if kind == "cell":
        return scope.known.get(name) if name in scope.code.co_freevars else None
    if kind == "global":
        return scope.globals.item(name, None, name)
    if kind != "write":
        return None
    if name is not None:
        return owner.attribute(name, None) if owner is not None and _takes(owner, name) else None
    if container is None or type(container.value) not in _INDEXED:
        return None
    return container.item(key, None)


def _takes(owner: Source, name: str) -> bool:
    """Whether an attribute of an object is a place of its own. Modules note themselves what is set."""
    if owner.step == "bound" or isinstance(owner.value, (types.ModuleType, Tensor, *PLAIN_CLASSES)):
        return False
    own = getattr(owner.value, "__dict__", None)
    if isinstance(own, dict) and "_modules" in own:
        return False
    held = inspect.getattr_static(type(owner.value), name, None)
    return isinstance(held, types.MemberDescriptorType) or not hasattr(type(held), "__set__")


def _global(names: Source, name: str) -> Source | None:
    return names.item(name, names.value[name], name) if name in names.value else None


def _item(container: Source, key: Any) -> Source | None:
    value = container.value
    if type(value) not in _INDEXED or not isinstance(key, PLAIN_CLASSES):
        return None
    if type(value) is defaultdict and key not in value:  # asking would put it there
        return None
    try:
        return container.item(key, value[key])
    except (KeyError, IndexError, TypeError):
        return None


def _attribute(owner: Source, name: str) -> Source | None:
    """An attribute as it lies, found without running code."""
    value = owner.value
    if owner.step == "bound" or isinstance(value, (Tensor, *PLAIN_CLASSES)):
        return None
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict):
        if name in own:
            return owner.own(name, own[name])
        modules = own.get("_modules")
        if isinstance(modules, dict) and name in modules:
            label = f"{owner.name}.{name}".lstrip(".")
            return owner.own("_modules", modules).item(name, modules[name], label)
    is_class = isinstance(value, type)
    of_class = inspect.getattr_static(value if is_class else type(value), name, None)
    if of_class is not None and (
        is_plain(of_class) or isinstance(of_class, (np.ndarray, Tensor, *CONTAINERS))
    ):
        return owner.attribute(name, of_class)
    if isinstance(of_class, types.MemberDescriptorType) and not is_class:
        return owner.attribute(name, getattr(value, name, None))
    if isinstance(of_class, staticmethod):
        return owner.bound(name, of_class.__func__)
    function = of_class.fget if isinstance(of_class, property) else untraced(of_class)
    if isinstance(function, types.FunctionType) and not is_class:
        return owner.bound(name, types.MethodType(function, value))
    return None
