"""Gradients of results of compiled calls, and of what fails."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import tracer
from tracer import trace


def test_gradients_of_results_that_are_no_leaves() -> None:
    def f(x):
        y = x * 3.0
        y.retain_grad()
        tracer.sum(y * y).backward()
        return y.grad

    for function in (f, trace(f)):
        x = tracer.tensor([1.0, 2.0], requires_grad=True)
        np.testing.assert_array_equal(function(x), [6, 12])
        np.testing.assert_array_equal(x.grad, [18, 36])
    y = trace(lambda x: x * 3.0)(x)
    y.retain_grad()
    (y * y).sum().backward()
    np.testing.assert_array_equal(y.grad, [6, 12])
    with pytest.raises(tracer.GradError, match="requires no gradient"):
        tracer.tensor([1.0]).retain_grad()


def test_a_parameter_that_changes_between_a_compiled_call_and_its_backward() -> None:
    weight = tracer.tensor([1.0, 2.0], requires_grad=True)
    square = trace(lambda x: tracer.sum(weight * weight * x))
    late, early = square(np.ones(2, np.float32)), square(np.ones(2, np.float32))
    early.backward()
    np.testing.assert_array_equal(weight.grad, [2, 4])
    with tracer.no_grad():
        weight.add_(10.0)
    with pytest.raises(tracer.GradError, match="changed in place after the call"):
        late.backward()


def test_a_gradient_that_fails_in_a_trace_leaves_no_mark_on_what_follows() -> None:
    @trace
    def f(x):
        y = tracer.sum(x * 2.0)
        y.backward()
        with contextlib.suppress(tracer.GradError):
            y.backward()
        return x.detach() + 1.0

    x = tracer.tensor([1.0], requires_grad=True)
    assert not f.ir(x).nodes[-1].origin.gradient


def test_what_no_view_gives_is_never_its_operand() -> None:
    for function in (
        lambda x: tracer.roll(x, 0),
        lambda x: tracer.max(x, axis=()),
        lambda x: tracer.min(x, axis=()),
    ):
        for run in (function, trace(function)):
            x = tracer.tensor([1.0, 2.0])
            y = run(x)
            y += 1.0
            np.testing.assert_array_equal(x, [1, 2])
