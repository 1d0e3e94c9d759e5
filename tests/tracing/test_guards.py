"""The guard of a trace: what it compares, and what it says of what has changed."""

from __future__ import annotations

import enum
import inspect
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracer
from tracer import nn, trace

Guarded = tuple[Callable[[], str | None], str]


class Key(enum.IntEnum):
    A = 1


class Degrees(float):
    """A number that does not show what it is."""

    def __repr__(self) -> str:
        return "degrees"


def guarded(function: Any, *args: Any) -> Guarded:
    """What the guard of a function's one trace says now, and its text."""
    traced = trace(function)
    traced.ir(*args)
    ((entry, *_),) = traced._programs
    return lambda: entry.guard(entry.fn, list(args)), inspect.getsource(entry.guard)


X = tracer.ones(2)


@pytest.mark.parametrize(
    ("before", "equal", "others"),
    [
        (3, int("3"), [4, True, 3.0, None]),
        (300, int("300"), [301, 300.0, "300"]),
        (True, True, [1, False]),
        (None, None, [0, ...]),
        ("word", "".join("word"), ["other", b"word"]),
        (0.1, float("0.1"), [0.2, np.float64(0.1)]),
        (0.0, float("0"), [-0.0, 0]),
        (math.nan, float("nan"), [0.0]),
        (1 + 0j, complex("1+0j"), [1.0, complex(1, -0.0)]),
        (np.float32(1), np.float32(1), [np.float64(1), np.float32(2)]),
        ((1, 2.5), (1, float("2.5")), [(1, 2.0), (True, 2.5), [1, 2.5], (1,)]),
        (Degrees(1), Degrees(1), [Degrees(2), 1.0]),
    ],
)
def test_plain_values_are_compared_as_values(before: Any, equal: Any, others: list[Any]) -> None:
    config = SimpleNamespace(value=before)

    def function(x: Any) -> Any:
        return x, config.value

    says, _ = guarded(function, X)
    assert says() is None
    config.value = equal
    assert says() is None
    for other in others:
        config.value = other
        assert says() == f"config.value was {before!r}"
    del config.value
    assert says() == "an object that the trace used is gone"


@pytest.mark.parametrize("kind", [tracer.ones, np.ones])
def test_keys_that_have_no_text(kind: Any) -> None:
    """They were written into the guard as they are shown, `<Key.A: 1>`."""
    table = {Key.A: kind(2)}

    def function(x: Any) -> Any:
        for value in table.values():
            x = x * value
        return x

    says, _ = guarded(function, X)
    assert says() is None
    table[Key.A] = kind(2)
    assert says() is not None or kind is np.ones  # of arrays the elements count


def test_what_each_kind_of_object_is_compared_by() -> None:
    class Callable_:  # noqa: N801
        rate = 2.0

        def __call__(self, x: Any) -> Any:
            return x * self.rate

    def helper(x: Any) -> Any:
        return x * 2

    def other(x: Any) -> Any:
        return x * 2

    held: dict[str, Any] = {
        "function": helper,
        "object": Callable_(),
        "array": np.ones(2),
        "items": [1, 2],
        "tensor": tracer.ones(2),
        "unread": tracer.ones(2),
    }

    def function(x: Any) -> Any:
        x = held["function"](held["object"](x)) + held["array"].sum() + held["tensor"]
        for item in held["items"]:
            x = x * item
        return x, held["unread"].shape

    says, _ = guarded(function, X)
    assert says() is None
    held |= {"object": Callable_(), "array": np.ones(2), "items": [1, 2], "unread": tracer.zeros(2)}
    assert says() is None  # of the same class, with the same elements, of the same type
    for name, value, reason in [
        ("function", other, "held['function'] was another function"),
        ("object", helper, "held['object'] was of another class"),
        ("array", np.zeros(2), "the array held['array'] had other elements"),
        ("items", [1, 3], "held['items'] had other elements"),
        ("tensor", tracer.ones(2), "held['tensor'] was another object"),
        ("unread", tracer.zeros(3), "the type of held['unread'] changed"),
    ]:
        before, held[name] = held[name], value
        assert says() == reason
        held[name] = before
    assert says() is None


def test_modules() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc, self.depth = nn.Linear(2, 2), 1

        def forward(self, x: Any) -> Any:
            return self.fc(x) * self.depth

    model = Net()
    says, text = guarded(model, X)
    assert says() is None
    model.depth = 2
    assert "depth was 1" in str(says())
    model.depth = 1
    weight = model.fc.weight
    model.fc.weight = nn.Parameter(tracer.ones((2, 2)))
    assert "weight was another object" in str(says())
    model.fc.weight = weight
    assert says() is None
    model.fc = nn.Linear(2, 2)
    assert "fc was another" in str(says())
    assert text.startswith("def guard(fn, leaves):\n    try:\n")


def test_the_guard_costs_one_line_for_each_thing_that_it_compares() -> None:
    """Nothing is followed or compared twice, whatever the code does with it."""
    config = SimpleNamespace(rate=2.0, depth=3)

    def function(x: Any) -> Any:
        for _ in range(config.depth):
            x = x * config.rate + config.rate - config.rate
        return x

    _, text = guarded(function, X)
    assert text.count("return 'config.rate was 2.0'") == 1
    assert text.count("return 'config.depth was 3'") == 1
    assert text.count("    if ") == 3  # and whether there are hooks
