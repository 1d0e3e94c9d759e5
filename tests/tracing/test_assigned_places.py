"""What a trace leaves in Python's places, and that it is taken away again."""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ops.errors import TraceError
from tracer.tracing.state.assigned_places import AssignedPlaces, Generators, NamedObjects
from tracer.tracing.state.side_effects import ABSENT


class Computed:
    """Stands for a Tensor of the trace."""


def is_computed(value: Any) -> bool:
    return isinstance(value, Computed)


def places(function: Any) -> AssignedPlaces:
    return AssignedPlaces(NamedObjects(function, {}))


state = SimpleNamespace(n=0, kept=[1, 2], table={"a": 1}, pair=(1, 2))
COUNT = 0


@pytest.fixture(autouse=True)
def fresh() -> None:
    global COUNT
    COUNT = 0
    state.__dict__.clear()
    state.__dict__.update(n=0, kept=[1, 2], table={"a": 1}, pair=(1, 2))


def effects(function: Any) -> list[tuple[Any, Any]]:
    """(before, now) of what a function leaves behind; all is as it was then, and can be done again."""
    found = places(function)
    before = {name: repr(x) for name, x in vars(state).items()}, COUNT
    function()
    after = {name: repr(x) for name, x in vars(state).items()}, COUNT
    changes = found.restore(is_computed)
    assert ({name: repr(x) for name, x in vars(state).items()}, COUNT) == before
    for change in changes:
        change.assign(change.now)
        assert change.read() is change.now
    assert ({name: repr(x) for name, x in vars(state).items()}, COUNT) == after
    return [(change.before, change.now) for change in changes]


def test_attributes_globals_and_variables_around() -> None:
    local = None

    def function() -> None:
        global COUNT
        nonlocal local
        COUNT, local = 1, "x"
        state.n += 5
        state.new = 3

    assert effects(function) == [(0, 1), (None, "x"), (ABSENT, 3), (0, 5)]
    assert local == "x"


def test_items_and_elements_under_computed_keys() -> None:
    value = Computed()

    def function() -> None:
        state.table["a"] = 2
        state.kept[COUNT + 1] = value
        state.table["b" * (COUNT + 1)] = value

    assert effects(function) == [(1, 2), (ABSENT, value), (2, value)]


def test_equal_values_are_no_effects() -> None:
    def function() -> None:
        state.n = int("0")
        state.pair = tuple([1, 2])

    assert effects(function) == []


def test_a_container_that_is_replaced_takes_its_elements_with_it() -> None:
    value = Computed()

    def function() -> None:
        state.table = {"a": value}
        state.table["a"] = value

    ((before, now),) = effects(function)
    assert before == {"a": 1} and now == {"a": value}


def test_objects_that_are_put_somewhere_are_noted_by_name() -> None:
    def function() -> None:
        state.n = [value, state]

    value = Computed()
    found = places(function)
    function()
    found.restore(is_computed)
    assert [name for name, _ in found.objects] == ["state.n"]


def test_an_iterator_is_refused() -> None:
    items = iter([1, 2])

    def function() -> Any:
        return next(items)

    with pytest.raises(TraceError, match="items is a list_iterator, whose elements are used up"):
        NamedObjects(function, {})


# ---- random numbers ------------------------------------------------------------------------------

own = [
    random.Random(1),
    np.random.default_rng(1),
    np.random.Generator(np.random.MT19937(1)),
    np.random.Generator(np.random.Philox(1)),
    np.random.RandomState(1),
]


@pytest.mark.parametrize("generator", own, ids=lambda x: type(x).__name__)
def test_a_generator_that_is_drawn_from_is_as_before(generator: Any) -> None:
    def function() -> float:
        return float(generator.random())

    state_of = NamedObjects(function, {})
    expected = generator.random()
    Generators(state_of).check()  # nothing was drawn since
    before = Generators(state_of)
    first = generator.random()
    assert first != expected
    with pytest.raises(TraceError, match="drawn from generator while"):
        before.check()
    assert generator.random() == first


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no other thread that may have drawn, whatever tests before this one have left behind."""
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.current_thread()])


def test_another_thread_may_have_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Generators(NamedObjects(lambda: None, {}))
    first = random.random()
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.Thread()])
    with pytest.warns(RuntimeWarning, match="or another thread drew them"):
        before.check()
    assert random.random() != first  # nobody's numbers are given twice


@pytest.mark.parametrize(
    ("draw", "name"), [(random.random, "random"), (np.random.random, r"numpy\.random")]
)
def test_the_global_generators(alone: None, draw: Any, name: str) -> None:
    before = Generators(NamedObjects(lambda: None, {}))
    first = draw()
    with pytest.raises(TraceError, match=f"drawn from {name} while"):
        before.check()
    assert draw() == first


def test_both_global_generators_are_put_back(alone: None) -> None:
    before = Generators(NamedObjects(lambda: None, {}))
    first = random.random(), np.random.random()
    with pytest.raises(TraceError):
        before.check()
    assert (random.random(), np.random.random()) == first


def test_what_has_no_state_is_no_generator() -> None:
    system = random.SystemRandom()

    def function() -> float:
        return system.random()

    before = Generators(NamedObjects(function, {}))
    system.random()
    before.check()
