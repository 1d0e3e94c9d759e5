"""What results of traced functions know of where they come from: histories, leaves and gradients are what they are eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracer
from tracer import Tensor, trace
from tracer.autograd import Function

X = np.array([-2.0, -0.5, 0.0, 1.5], np.float32)
BOTH = pytest.mark.parametrize("wrap", [lambda f: f, trace], ids=["eager", "traced"])
Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


class Rearranged(Function):
    """A view of its argument and the argument itself; its backward is not theirs."""

    @staticmethod
    def forward(ctx, x):
        return x.reshape(2, 2).T, x

    @staticmethod
    def backward(ctx, g, h):
        return g.T.reshape(4) * 2 + h * 3


@BOTH
@pytest.mark.parametrize("inner", [lambda w: w, lambda w: w[:], lambda w: w * 2])
def test_results_of_functions_that_are_views_have_the_function_s_gradient(
    wrap: Wrap, inner: Callable[[Tensor], Tensor]
) -> None:
    w = tracer.tensor(X, requires_grad=True)

    def f(w):
        turned, same = Rearranged.apply(inner(w))
        return turned, turned[0], same.reshape(2, 2)

    whole, row, same = wrap(f)(w)
    (whole.sum() + row.sum() + same.sum()).backward()
    factor = np.asarray(inner(tracer.ones(4))) * 1
    np.testing.assert_allclose(w.grad, factor * [7, 5, 7, 5])
    with pytest.raises(tracer.GradError):
        whole.add_(1)  # recorded, though the view is not


@BOTH
def test_a_history_that_was_used_up_inside_is_no_leaf_outside(wrap: Wrap) -> None:
    w = tracer.tensor(X, requires_grad=True)

    def f(w):
        view, _ = Rearranged.apply(w)
        y = w * 2
        (view.sum() + y.sum()).backward()
        return view, y, y[1:], (y * y).sum(), (w * w).sum()

    *used, alive = wrap(f)(w)
    for y in used:
        assert y.requires_grad and not y.is_leaf
        with pytest.raises(tracer.GradError, match=r"second time|are gone"):
            y.sum().backward()
    np.testing.assert_allclose(w.grad, [4, 4, 4, 4])
    alive.backward()
    np.testing.assert_allclose(w.grad, 4 + 2 * X)


@BOTH
def test_leaves_that_a_function_makes(wrap: Wrap) -> None:
    def f(x):
        return (x * 2).detach().requires_grad_(), tracer.zeros(4).requires_grad_()

    for _ in range(2):
        for leaf in wrap(f)(tracer.tensor(X)):
            assert leaf.is_leaf and leaf.requires_grad
            (leaf * X).sum().backward()
            np.testing.assert_allclose(leaf.grad, X)


SHIFT = tracer.tensor([1.0, 2.0, 3.0, 4.0])


class Doubled(Function):
    """Its backward reads what nothing else reads."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * SHIFT


class Failing(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        raise ValueError("not today")


class Forward(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2


@BOTH
def test_what_only_a_backward_reads(wrap: Wrap) -> None:
    w = tracer.tensor(X, requires_grad=True)
    f = wrap(lambda x: Doubled.apply(w * x))
    wanted = np.zeros(4, np.float32)
    for factor in (1.0, 2.0):
        f(tracer.tensor(X)).sum().backward()
        wanted += X * np.asarray(SHIFT)
        np.testing.assert_allclose(w.grad, wanted)
        with tracer.no_grad():
            SHIFT.mul_(factor)
    SHIFT.copy_(tracer.tensor([1.0, 2.0, 3.0, 4.0]))


@BOTH
@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (Failing, ValueError, "not today"),
        (Forward, tracer.GradError, "Forward has no backward"),
    ],
)
def test_a_backward_that_fails_fails_when_it_is_asked_for(
    wrap: Wrap, function: type[Function], error: type[Exception], message: str
) -> None:
    w = tracer.tensor(X, requires_grad=True)
    f = wrap(lambda x: function.apply(w * x))
    for _ in range(2):
        y = f(tracer.tensor(X))
        np.testing.assert_allclose(y.detach(), 2 * X * X)
        assert y.requires_grad and not y.is_leaf
        with pytest.raises(error, match=message):
            y.sum().backward()
    assert w.grad is None


def test_a_question_of_a_backward_after_the_call_is_told_when_it_is_asked() -> None:
    w = tracer.tensor(X, requires_grad=True)

    @trace
    def f(x):
        y = w * x
        y.register_hook(lambda g: g * 2 if g.sum() > 0 else g)
        return y * 3

    y = f(tracer.tensor(X))
    np.testing.assert_allclose(y.detach(), 3 * X * X)
    with pytest.raises(tracer.TraceError, match="its path is decided when it runs"):
        y.sum().backward()
