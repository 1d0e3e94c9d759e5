"""Many calls and signatures stay bounded."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Iterator

import numpy as np
import pytest

import tracer
from codegen.runtime import memory_pool
from tests.support.traced_values import tensor
from tracer import trace

# What is shown here lies above kernels. Compiled too: whatever is about memory, results, failures and threads.
pytestmark = pytest.mark.kernels("python")


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    tracer.manual_seed(0)
    yield


@pytest.mark.kernels("compiled")
def test_ten_thousand_scalars_are_one_program_in_flat_time_and_memory() -> None:
    function, x = trace(lambda x, s: x * s + 1), tensor(3)
    for k in range(100):
        function(x, k + 0.5)

    def run(numbers: range) -> tuple[float, int]:
        start = time.perf_counter()
        for k in numbers:
            y = function(x, k + 0.5)
        assert float(y[0]) == pytest.approx(float(x[0]) * (numbers[-1] + 0.5) + 1)
        gc.collect()
        return time.perf_counter() - start, len(gc.get_objects())

    first, objects = run(range(100, 2100))
    last, later = run(range(8000, 10_000))
    assert len(function.signatures()) == 1 and function.timings().traces == 1
    assert later <= objects + 100
    assert last < 3 * first + 0.05


@pytest.mark.slow
@pytest.mark.kernels("compiled")
def test_thousands_of_shapes_keep_a_bounded_number_of_programs() -> None:
    function = trace(lambda x: x * 2 + 1, max_traces=8)
    held: list[int] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for size in range(1, 2001):
            y = function(np.ones(size, np.float32))
            if size in (1000, 2000):
                gc.collect()
                held.append(len(gc.get_objects()))
        assert y.shape == (2000,) and len(function.signatures()) == 8
    assert held[1] < held[0] * 1.02
    assert memory_pool.statistics().idle < 64 << 20
