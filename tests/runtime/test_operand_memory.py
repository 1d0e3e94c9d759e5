"""Operands of programs as they lie in memory: otherwise than programs read them, read-only, shared, freed."""

from __future__ import annotations

import gc
import pickle
import weakref

import numpy as np
import pytest

import tracer
from tests.support.arrays import array
from tracer import nn, optim, trace


def test_arrays_that_lie_otherwise_than_programs_read_them() -> None:
    double = trace(lambda x: x * 2.0)
    swapped = np.arange(4, dtype=">f4")
    for _ in range(2):
        np.testing.assert_array_equal(double(swapped), [0, 2, 4, 6])
    raw = np.zeros(17, np.uint8)
    odd = raw[1:].view(np.float32)
    odd[:] = [1, 2, 3, 4]
    np.testing.assert_array_equal(double(odd), [2, 4, 6, 8])


def test_the_address_of_a_transposed_tensor_is_not_taken_for_row_major() -> None:
    x = tracer.Tensor.of_array(array(2, 3).T)
    assert x.pointer
    scale = trace(lambda x: x * 1.5)
    for _ in range(2):
        np.testing.assert_array_equal(scale(x), x.array * np.float32(1.5))


def test_read_only_memory_is_never_written() -> None:
    content = bytes(64)
    frozen = np.frombuffer(content, np.float32)

    @trace
    def increase(x):
        x += 1.0

    for x in (frozen, tracer.Tensor.of_array(frozen)):
        with pytest.raises(
            tracer.ArgumentError, match="x is changed in place, and its array is read-only"
        ):
            increase(x)
    ordinary = np.zeros(16, np.float32)
    for _ in range(3):
        increase(ordinary)
    assert (ordinary == 3).all() and content == bytes(64)
    with pytest.raises(tracer.ArgumentError, match="read-only"):
        increase(frozen)


def test_what_is_changed_shares_no_memory_with_another_operand() -> None:
    @trace
    def add_to(x, y):
        x += y

    memory = np.ones((100, 2), np.float32)
    ones = np.ones(99, np.float32)
    row = np.ones(100, np.float32)
    for _ in range(2):  # the second time on the fast way
        with pytest.raises(
            tracer.ArgumentError, match="y shares memory with x, which the traced function changes"
        ):
            add_to(row[1:], row[:-1])
        add_to(row[1:], ones)
    assert row[0] == 1 and (row[1:] == 3).all()
    add_to(memory[:, 0], memory[:, 1])  # interleaved, but nothing in common
    assert (memory[:, 0] == 2).all() and (memory[:, 1] == 1).all()
    state = tracer.tensor(np.zeros(5, np.float32))

    @trace
    def accumulate(x):
        state.add_(x)

    x = tracer.tensor(np.ones(5, np.float32))
    for _ in range(3):
        accumulate(x)
        with pytest.raises(tracer.ArgumentError, match="x shares memory with state"):
            accumulate(state)
    np.testing.assert_array_equal(state, np.full(5, 3))


def test_the_fast_way_keeps_what_its_program_points_to() -> None:
    table = np.arange(1000, dtype=np.float32)

    @trace(max_traces=1)
    def shift(x):
        return x + tracer.tensor(table)

    x = np.zeros(1000, np.float32)
    shift(x)
    kept = weakref.ref(next(iter(shift._programs))[0].executable.lowering)
    shift(x=np.zeros(1000))  # drops the first program; a call by name leaves the fast way as it is
    gc.collect()
    assert kept() is not None
    np.testing.assert_array_equal(shift(x), table)


def test_a_pickled_tensor_keeps_its_shape() -> None:
    for x in (tracer.tensor(3.0), tracer.Tensor.of_array(array(2, 3).T)):
        again = pickle.loads(pickle.dumps(x))
        assert again.shape == x.shape
        np.testing.assert_array_equal(again, x)


def test_a_learning_rate_of_numpy_is_no_new_program() -> None:
    model = nn.Linear(2, 2)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    @trace
    def step(x):
        optimizer.zero_grad()
        tracer.sum(model(x)).backward()
        optimizer.step()

    x = np.ones((1, 2), np.float32)
    step(x)
    before = np.array(model.bias.detach())
    for rate in np.linspace(0, 1, 5):
        optimizer.param_groups[0]["lr"] = rate
        step(x)
    assert step.timings().traces == 1
    np.testing.assert_allclose(model.bias.detach(), before - 2.5, rtol=1e-6)


def test_minus_zero_is_another_static_argument() -> None:
    sign = trace(static_argnames=("s",))(lambda x, s: tracer.divide(x, s))
    x = np.ones(1, np.float32)
    for _ in range(2):
        assert sign(x, 0.0).item() == np.inf
        assert sign(x, -0.0).item() == -np.inf
