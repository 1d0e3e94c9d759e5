"""Generators, iterators and random numbers of others in traced functions."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracer
from codegen.runtime.pool import WorkerThread
from tests.support.traced_values import agree, tensor
from tracer import ArgumentError, TraceError, trace

# What is shown here lies above kernels. Compiled too: whatever is about memory, results, failures and threads.
pytestmark = pytest.mark.kernels("python")


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    tracer.manual_seed(0)
    yield


def test_generators_inside_a_function() -> None:
    def program(decorate: Any) -> Any:
        def halves(x: Any) -> Iterator[Any]:
            for k in range(3):
                yield x * 0.5**k

        function = decorate(lambda x, rest: sum(halves(x)) + sum(y for y in rest if y is not None))
        x = tensor(3)
        return [function(x, [x, None, x]), function(x, (x,)), function(x, [x, None, x])]

    agree(program)


def test_what_can_be_taken_once_is_refused() -> None:
    numbers = iter([1.0, 2.0])
    with pytest.raises(TraceError, match=r"numbers is a list_iterator(.|\n)*test_generators"):
        trace(lambda x: x + next(numbers))(tensor(3))
    assert list(numbers) == [1.0, 2.0]
    total = trace(lambda xs: sum(xs))
    for once in ((x for x in (tensor(3), tensor(3))), iter([tensor(3)]), zip((1.0,), strict=True)):
        with pytest.raises(ArgumentError, match="pass a list or a tuple"):
            total(once)

    @trace
    def stepwise(x: Any) -> Any:
        yield x * 2

    with pytest.raises(TraceError, match="got a generator"):
        stepwise(tensor(3))


def test_numbers_of_global_generators_are_refused() -> None:
    np.random.seed(0)
    random.seed(0)
    for draw in (np.random.rand, random.random):
        function = trace(lambda x, draw=draw: x * draw())
        with pytest.raises(TraceError, match=r"drawn from (numpy\.)?random(.|\n)*tracer\.random"):
            function(tensor(3))
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        with pytest.warns(RuntimeWarning, match="or another thread drew them"):
            trace(lambda x: x * random.random())(tensor(3))
        random.seed(0)
    finally:
        done.set()
        other.join()
    first = np.random.rand(), random.random()
    np.random.seed(0)
    random.seed(0)
    assert first == (np.random.rand(), random.random())  # nothing was taken from them
    seeded = trace(lambda x: x * np.float32(np.random.default_rng(0).random()))
    np.testing.assert_array_equal(seeded(tensor(3)), seeded(tensor(3)))


def test_workers_of_programs_draw_no_numbers_that_another_thread_could_have_drawn() -> None:
    """So what a function draws is an error while they are parked, as it is before the first program runs."""
    before = tracer.get_num_threads()
    tracer.set_num_threads(2)
    try:
        np.asarray(trace(lambda x: x * 2.0)(np.ones(1 << 20, np.float32)))
        assert any(isinstance(thread, WorkerThread) for thread in threading.enumerate())
        with pytest.raises(tracer.TraceError, match="drawn"):
            trace(lambda x: x * np.random.rand())(np.ones(3))
    finally:
        tracer.set_num_threads(before)
