"""Where captured objects lie."""

from __future__ import annotations

import enum
import functools
import types
from typing import Any

import pytest

from tracer import trace
from tracer.tracing.state.object_paths import code_names, find_paths
from tracer.tracing.state.sources import Source


class Target:
    """An object that is looked for."""


class Slots:
    __slots__ = ("held", "unset")
    shared = [Target()]  # noqa: RUF012

    def __init__(self, held: Any) -> None:
        self.held = held


class Holder:
    def __init__(self, **held: Any) -> None:
        self.__dict__.update(held)

    def method(self) -> None: ...


class Key(enum.IntEnum):
    A = 1


target = Target()


def named() -> Any:
    return target


def wrapped(fn: Any) -> Any:
    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args)

    return wrapper


def default(x: Any = target) -> Any:
    return x


module = types.ModuleType("users_module")
module.kept, module.other = target, 3  # type: ignore[attr-defined]


def uses_module() -> Any:
    return module.kept


def path(root: Any, sought: Any = target) -> str | None:
    found = find_paths([Source(root, "root")], {id(sought): sought})
    if id(sought) not in found:
        return None
    source = found[id(sought)]
    assert source.value is sought is source.now()
    known = {"root": root}

    def constant(value: Any) -> str:
        name = "root" if value is root else f"k{len(known)}"
        known[name] = value
        return name

    assert eval(source.text(constant), known) is sought  # and so does the text
    return source.dotted_name


@pytest.mark.parametrize(
    ("root", "name"),
    [
        (target, "root"),
        ([0, (target,)], "root.1.0"),
        ({"a": {2: target}}, "root.a.2"),
        ({Key.A: target}, f"root.{Key.A}"),
        (Holder(a=[target]), "root.a.0"),
        (Slots(target), "root.held"),
        (Holder(inner=Slots(target)).method, "root.inner.held"),
        (named, "target"),
        (trace(named), "target"),
        (wrapped(named), "target"),
        (default, "x"),
        (functools.partial(print, target), "root.args.0"),
        (functools.partial(print, k=target), "root.keywords.k"),
        (uses_module, "module.kept"),
        (lambda: named(), "target"),
        ({frozenset(): target}, None),  # no text leads there
        ({"a": 1}, None),
    ],
)
def test_the_way_to_an_object(root: Any, name: str | None) -> None:
    assert path(root) == name


def test_data_of_the_class() -> None:
    assert path(Slots(0), Slots.shared[0]) == "root.shared.0"
    assert path([Slots], Slots.shared[0]) == "root.0.shared.0"


def test_the_shortest_way_is_found_and_the_one_through_modules_of_equal_ones() -> None:
    assert path({"a": [[target]], "b": target}) == "root.b"
    assert path(Holder(A={"first": target}, _modules={"second": target})) == "root.second"


def test_circles_and_long_chains_end() -> None:
    chain: Any = target
    for _ in range(50_000):
        chain = [chain]
    found = find_paths([Source(chain, "root")], {id(target): target})
    assert len(found[id(target)].steps()) == 50_001
    circle: list[Any] = []
    circle.append(circle)
    assert path(circle) is None


def test_the_names_that_code_uses_with_those_of_inner_functions() -> None:
    def function() -> Any:
        return lambda: (named, module.kept)

    assert code_names(function.__code__) == {"named", "module", "kept"}
