"""NumPy arrays and tuples that a traced function names: what NumPy makes of them belongs to the trace, and is noticed."""

from __future__ import annotations

import functools
import random
from typing import Any

import numpy as np
import pytest

import tracer
from tracer import trace

ONES = np.ones(3, np.float32)
TABLE = np.arange(3, dtype=np.float32)
SHAPE = (3,)
SCALE = np.float32(2)


def traces(function: Any) -> int:
    return function.timings().traces


def test_what_numpy_computes_with_an_outside_array_follows_the_array() -> None:
    table = np.array([1, 2, 3], np.float32)

    @trace
    def f(x: Any) -> Any:
        return x * (table + 1)

    np.testing.assert_array_equal(f(ONES), [2, 3, 4])
    np.testing.assert_array_equal(f(ONES), [2, 3, 4])
    assert traces(f) == 1
    table[0] = 10
    np.testing.assert_array_equal(f(ONES), [11, 3, 4])
    table = np.array([5, 2, 3], np.float32)
    np.testing.assert_array_equal(f(ONES), [6, 3, 4])


def test_the_same_for_globals_attributes_items_and_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Holder:
        def __init__(self) -> None:
            self.table = np.zeros(3, np.float32)

    holder, tables = Holder(), {"a": np.zeros(3, np.float32)}

    def helper() -> float:
        return float(TABLE.sum())

    @trace
    def f(x: Any) -> Any:
        return x + helper() + holder.table.max() + float(np.max(tables["a"]))

    np.testing.assert_array_equal(f(ONES), [4, 4, 4])
    monkeypatch.setitem(globals(), "TABLE", TABLE * 2)
    np.testing.assert_array_equal(f(ONES), [7, 7, 7])
    holder.table[1] = 100
    np.testing.assert_array_equal(f(ONES), [107, 107, 107])
    tables["a"][2] = 1000
    np.testing.assert_array_equal(f(ONES), [1107, 1107, 1107])
    assert traces(f) == 4


def test_the_same_for_classes_loops_partial_applications_and_defaults() -> None:
    class Settings:
        weights = np.ones(3, np.float32)

        @property
        def doubled(self) -> Any:
            return self.weights * 2

    settings, rows = Settings(), [np.ones(3, np.float32), np.ones(3, np.float32)]
    given, default = np.ones(3, np.float32), np.ones(3, np.float32)

    def function(factor: Any, x: Any, shift: Any = default) -> Any:
        for row in rows:
            x = x * (row + 1)
        return x * settings.doubled + (factor + 1) + (shift - 1)

    f = trace(functools.partial(function, given))
    np.testing.assert_array_equal(f(ONES), [10, 10, 10])
    for array in (Settings.weights, rows[1], given, default):
        array[0] = 3
    np.testing.assert_array_equal(f(ONES), [54, 10, 10])
    f(ONES)
    assert traces(f) == 2


def test_an_array_that_is_an_input_may_change_at_every_call() -> None:
    table, rows = np.ones(3, np.float32), np.ones((2, 3), np.float32)

    @trace
    def f(x: Any) -> Any:
        return x * table + rows[0]

    for k in range(4):
        table[0], rows[0, 1] = k, k
        np.testing.assert_array_equal(f(ONES), [k + 1, k + 1, 2])
    assert traces(f) == 1


def test_a_large_array_that_only_gives_its_shape_costs_nothing() -> None:
    data = np.zeros((1000, 1000))

    @trace
    def f(x: Any) -> Any:
        return x * (1.0 / len(data))

    f(ONES)
    data[0, 0] = 1
    f(ONES)
    assert traces(f) == 1


def test_numpy_writing_into_an_outside_array_is_an_error_with_the_function() -> None:
    counts = np.zeros(2)

    @trace
    def f(x: Any) -> Any:
        counts[0] += 1
        return x * 2.0

    with pytest.raises(
        tracer.TraceError, match=r"NumPy changed the array counts(?s:.*)test_trace_arrays\.py:\d+"
    ):
        f(ONES)


@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState, random.Random])
def test_drawing_from_a_generator_of_ones_own_is_an_error_with_the_line(kind: Any) -> None:
    mine, twin = kind(3), kind(3)

    @trace
    def f(x: Any) -> Any:
        return x * (mine.random() if isinstance(mine, random.Random) else mine.uniform())

    with pytest.raises(
        tracer.TraceError, match=r"drawn from mine while(?s:.*)test_trace_arrays\.py:\d+"
    ):
        f(ONES)
    assert mine.random() == twin.random()  # as it was


def test_tuples_and_numpy_scalars_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    @trace
    def f(x: Any) -> Any:
        return x * SCALE, tracer.zeros(SHAPE)

    assert f(ONES)[1].shape == (3,)
    monkeypatch.setitem(globals(), "SHAPE", (4, 1))
    monkeypatch.setitem(globals(), "SCALE", np.float32(7))
    scaled, zeros = f(ONES)
    assert zeros.shape == (4, 1)
    np.testing.assert_array_equal(scaled, [7, 7, 7])
    monkeypatch.setitem(globals(), "SHAPE", (4, 1))  # an equal one
    f(ONES)
    assert traces(f) == 2
