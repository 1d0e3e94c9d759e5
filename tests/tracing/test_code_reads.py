"""What code reads and writes, found without running it."""

from __future__ import annotations

import functools
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracer
from tracer import nn, trace
from tracer.tracing.state.code_reads import uses
from tracer.tracing.state.sources import Source
from tracer.tracing.state.value_kinds import Watch, is_used_up, watch_of

RATE = 0.5
TABLE = {"mode": "fast", "sizes": [1, 2], "inner": {"depth": 3}}
ITEMS = [1, 2, 3]
FILLED: defaultdict[str, int] = defaultdict(int)
ARRAYS = [np.zeros(2), np.ones(2)]
COUNT = 0


class Config:
    width = 16
    __slots__ = ("depth", "fn")

    def __init__(self) -> None:
        self.depth, self.fn = 3, twice


class Layer:
    scale = 2.0

    def __init__(self) -> None:
        self.rate, self.name = 0.25, "layer"

    @property
    def doubled(self) -> float:
        return self.rate * 2

    @staticmethod
    def fixed() -> Any:
        return RATE

    def method(self, x: Any) -> Any:
        return x * self.rate

    def __call__(self, x: Any) -> Any:
        return self.method(x)


def twice(x: Any) -> Any:
    return x * TABLE["inner"]["depth"]


def found(function: Any, **known: Any) -> dict[str, list[str]]:
    """The names of what a function uses, by kind."""
    result: dict[str, list[str]] = {}
    parameters = {name: Source(x, name) for name, x in known.items()}
    for use in uses([(Source(function), parameters)]):
        result.setdefault(use.kind, []).append(use.source.name)
    return result


def reads(function: Any, **known: Any) -> set[str]:
    return set(found(function, **known).get("read", []))


config, layer = Config(), Layer()
model = nn.Sequential(nn.Linear(2, 2))


# ---- reads ---------------------------------------------------------------------------------------


def test_names_attributes_and_constant_subscripts() -> None:
    def function(x: Any) -> Any:
        return x * RATE * TABLE["inner"]["depth"] * config.depth * config.width * TABLE["sizes"][0]

    expected = {
        "RATE",
        "TABLE['inner']['depth']",
        "config.depth",
        "config.width",
        "TABLE['sizes'][0]",
    }
    assert expected <= reads(function)


def test_through_variables_that_are_assigned_once() -> None:
    def once(x: Any) -> Any:
        c = config
        return x * c.depth

    def twice_(x: Any, c: Any = None) -> Any:
        c = config
        return x * c.depth

    assert "config.depth" in reads(once)
    assert "config.depth" not in reads(twice_)


def test_through_functions_methods_properties_and_callable_objects() -> None:
    def function(x: Any) -> Any:
        return layer(twice(x)) * layer.doubled * layer.fixed()

    names = reads(function)
    assert {"twice", "TABLE['inner']['depth']", "layer", "layer.rate", "RATE"} <= names
    assert "layer.name" not in names  # which nobody reads


def test_through_partial_applications_closures_and_defaults() -> None:
    offset = 4

    def inner(c: Any, x: Any, scale: Any = 7, *, shift: Any = 8) -> Any:
        return x * c.depth + offset + scale + shift

    function = functools.partial(inner, config)
    assert {"c.depth", "offset", "scale", "shift"} <= reads(function)


def test_through_traced_functions_modules_operators_and_functions_with_a_gradient() -> None:
    @trace
    def traced(x: Any) -> Any:
        return x * RATE

    @tracer.op
    def half(x: float) -> float:
        return x * FACTOR

    class Double(tracer.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * config.depth

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            return dy * config.width

    def function(x: Any) -> Any:
        return traced(x) + half(x) + Double.apply(x)

    names = reads(function)
    assert {"RATE", "FACTOR", "config.depth", "config.width", "half", "Double"} <= names


FACTOR = 0.5


def test_objects_that_are_passed_on_are_what_any_called_function_may_get() -> None:
    def helper(c: Any) -> Any:
        return c.depth

    def function(x: Any) -> Any:
        return helper(config) * x

    assert "config.depth" in reads(function)
    assert found(function, x=layer)["read"].count("helper") == 1  # each place once


def test_code_of_libraries_is_not_looked_into() -> None:
    def function(x: Any) -> Any:
        return model(tracer.relu(np.clip(x, 0, 1)))

    assert not any("weight" in name or "_" in name for name in reads(function))


def test_what_code_finds_out_in_other_ways_is_not_followed() -> None:
    def function(x: Any) -> Any:
        key = "mode"
        return getattr(config, "depth"), TABLE[key], FILLED["new"]  # noqa: B009

    names = reads(function)
    assert not {"config.depth", "TABLE['mode']", "FILLED['new']"} & names
    assert "new" not in FILLED  # asking would put it there


def test_attributes_of_methods_are_no_places() -> None:
    def function(x: Any) -> Any:
        layer.method.calls = 1  # type: ignore[attr-defined]
        return layer.method.calls * x  # type: ignore[attr-defined]

    assert not any("calls" in name for names in found(function).values() for name in names)


def test_recursion_and_many_ways_to_one_function_end() -> None:
    def even(n: Any) -> Any:
        return odd(n) * RATE

    def odd(n: Any) -> Any:
        return even(n) * layer.rate

    assert {"RATE", "layer.rate"} <= reads(even)


# ---- containers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x: [y * x for y in ITEMS], {"ITEMS"}),
        (lambda x: sum(ITEMS), {"ITEMS"}),
        (lambda x: len(TABLE.items()), {"TABLE"}),
        (lambda x: TABLE["sizes"] + x, {"TABLE['sizes']"}),
        (lambda x: TABLE["sizes"][1], set()),
        (lambda x: ITEMS.append(x), set()),
    ],
)
def test_elements_count_where_they_are_read(function: Any, names: set[str]) -> None:
    assert set(found(function).get("elements", [])) == names


def test_arrays_in_a_container_that_is_named_are_read() -> None:
    assert {"ARRAYS", "ARRAYS[0]", "ARRAYS[1]"} <= reads(lambda x: [x * a for a in ARRAYS])


def test_a_container_that_is_emptied() -> None:
    def function(x: Any) -> Any:
        ITEMS.clear()
        return x

    assert found(function)["clear"] == ["ITEMS"]


# ---- places --------------------------------------------------------------------------------------


def test_places_that_code_assigns_to() -> None:
    state = None

    def function(x: Any) -> Any:
        global COUNT
        nonlocal state
        COUNT = 1
        state = x
        layer.rate = x
        config.depth = 4
        TABLE["mode"] = x
        del ITEMS[0]
        model.training = True  # modules note themselves what is set
        x.grad = None
        return state

    assert found(function)["write"] == [
        "COUNT",
        "state",
        "layer.rate",
        "config.depth",
        "TABLE['mode']",
        "ITEMS[0]",
    ]


# ---- how each is watched -------------------------------------------------------------------------


class Called:
    def __call__(self) -> None:
        pass


class Endless:
    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("value", "watch"),
    [
        (1, Watch.VALUE),
        (-0.0, Watch.VALUE),
        ("x", Watch.VALUE),
        (None, Watch.VALUE),
        (..., Watch.VALUE),
        ((1, "a"), Watch.VALUE),
        (np.float32(1), Watch.VALUE),
        (((1,),), None),
        (tuple(range(65)), None),
        (np.zeros(2), Watch.ARRAY),
        (tracer.zeros(2), Watch.TENSOR),
        ([1], Watch.CONTAINER),
        ({}, Watch.CONTAINER),
        (list(range(513)), None),
        (frozenset(), None),
        (twice, Watch.IDENTITY),
        (np.sin, Watch.IDENTITY),
        (Config, Watch.IDENTITY),
        (Called(), Watch.CLASS),
        (Endless(), Watch.IDENTITY),
        (np.random.default_rng(0), Watch.IDENTITY),
        (model, None),
        (SimpleNamespace(), None),
        (np, None),
    ],
)
def test_how_a_value_is_watched(value: Any, watch: Watch | None) -> None:
    assert watch_of(value) is watch


def test_what_an_installed_module_has_is_watched_if_it_is_the_users() -> None:
    assert watch_of(np.sin, fixed=True) is None
    assert watch_of(twice, fixed=True) is Watch.IDENTITY
    assert watch_of(3, fixed=True) is Watch.VALUE


def test_what_gives_its_elements_once() -> None:
    assert is_used_up(iter([1])) and is_used_up(x for x in "a") and is_used_up(zip("a", "b"))  # noqa: B905
    assert not is_used_up([1]) and not is_used_up(range(3)) and not is_used_up(Endless())
