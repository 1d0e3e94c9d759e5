"""Changes in place are noticed through every view."""

from __future__ import annotations

import unittest.mock

import numpy as np
import pytest

import tracer
from tracer import trace


def test_saved_operands_and_results_that_change_through_a_view() -> None:
    def through_base(x):
        weight = tracer.tensor([[1.0, 2.0]])
        y = x * weight.reshape(2)
        return y, lambda: weight.add_(1.0)

    def through_view(x):
        weight = tracer.tensor([1.0, 2.0])
        y = x * weight
        return y, lambda: weight.reshape(2, 1)[1:].mul_(2.0)

    def through_result(x):
        y = tracer.exp(x)
        return y, lambda: y.detach().add_(1.0)

    for case in (through_base, through_view, through_result):
        x = tracer.tensor([1.0, 2.0], requires_grad=True)
        y, change = case(x)
        y.sum().backward(retain_graph=True)
        change()
        with pytest.raises(tracer.GradError, match="was changed in place"):
            y.sum().backward()


def test_changes_that_no_gradient_needs_are_fine() -> None:
    x, weight = tracer.tensor([1.0, 2.0], requires_grad=True), tracer.tensor([3.0, 4.0])
    y = x + weight
    z = x * weight.clone()
    weight.reshape(2, 1).mul_(2.0)
    (y.sum() + z.sum()).backward()
    np.testing.assert_array_equal(x.grad, [4, 5])


def test_what_is_made_in_a_trace_is_made_at_each_call() -> None:
    @trace
    def accumulate(x):
        total = tracer.Tensor(np.zeros(2, np.float32))
        total.add_(x)
        return total, np.zeros(2)

    for _ in range(3):
        total, array_ = accumulate(np.ones(2, np.float32))
        np.testing.assert_array_equal(total, [1, 1])
        np.testing.assert_array_equal(array_, [0, 0])
        array_ += 1


def test_results_that_have_not_run_are_refused() -> None:
    @trace
    def each(x):
        yield x * 2.0

    with pytest.raises(tracer.TraceError, match="got a generator"):
        each(np.ones(2, np.float32))


def test_traced_methods_of_instances_with_slots() -> None:
    class Small:
        __slots__ = ("weight",)

        def __init__(self, value: float) -> None:
            self.weight = tracer.tensor(value)

        @trace
        def scale(self, x):
            return self.weight * x

    first, second = Small(2.0), Small(3.0)
    for _ in range(2):
        np.testing.assert_array_equal(first.scale(np.ones(2, np.float32)), [2, 2])
        np.testing.assert_array_equal(second.scale(np.ones(2, np.float32)), [3, 3])
    assert first.scale.timings().traces == 1


def test_views_of_what_changes_afterwards_show_the_change_in_a_trace() -> None:
    weight = tracer.tensor([1.0, 2.0], requires_grad=True)

    @trace
    def after(x):
        view = weight.detach().reshape(1, 2)
        with tracer.no_grad():
            weight.add_(x)
        return view

    np.testing.assert_array_equal(after(np.ones(2, np.float32)), [[2, 3]])
    np.testing.assert_array_equal(weight.detach(), [2, 3])
    with tracer.no_grad():
        weight.sub_(1)

    @trace
    def before(x):
        doubled = (
            weight.reshape(1, 2) * 2.0
        )  # read before the change; its gradient needs the old value
        with tracer.no_grad():
            weight.add_(x)
        (doubled * weight.detach()).sum().backward()
        return doubled.detach(), weight.detach().reshape(2, 1)

    doubled, column = before(np.ones(2, np.float32))
    np.testing.assert_array_equal(doubled, [[2, 4]])
    np.testing.assert_array_equal(column, [[2], [3]])
    np.testing.assert_array_equal(weight.grad, [4, 6])


def test_objects_that_answer_to_every_name() -> None:
    helper = unittest.mock.MagicMock()
    helper.scale = 2.0

    @trace
    def f(x):
        helper(x)
        return x * helper.scale

    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(f(x), [2, 2])
    helper.scale = 3.0
    np.testing.assert_array_equal(f(x), [3, 3])


def test_a_long_chain_of_indices_of_indices() -> None:
    @trace
    def follow(parents, start):
        for _ in range(20):
            start = tracer.take(parents, start, axis=0)
        return start

    parents = np.roll(np.arange(50), 1)
    wanted = np.arange(50)
    for _ in range(20):
        wanted = parents[wanted]
    np.testing.assert_array_equal(follow(parents, np.arange(50)), wanted)
    parents[7] = 99
    with pytest.raises(tracer.BoundsError, match="out of range for an axis of size 50"):
        follow(parents, np.arange(50))
