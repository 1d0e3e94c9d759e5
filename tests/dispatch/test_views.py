"""Views where they are easily forgotten: captured, passed as arguments, behind their base, kept when memory is replaced."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracer
from tracer import nn, trace
from tracer.ir.interpreter import interpret
from tracer.onnx.targets import function_graph

A = np.arange(12.0).reshape(3, 4) + 1
B = np.full(4, 3.0)
Ways = pytest.mark.parametrize("way", [lambda f: f, trace], ids=["eager", "traced"])
Way = Callable[[Any], Any]


def leaf(array: Any) -> tracer.Tensor:
    return tracer.tensor(array, requires_grad=True)


def equal(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(found.detach()), wanted, rtol=1e-12)


# ---- captured views ------------------------------------------------------------------------------


@Ways
def test_captured_views_and_their_base_are_one_memory(way: Way) -> None:
    x = tracer.tensor(A)
    row, column = x[1], x[:, 1]

    @way
    def change() -> Any:
        row.mul_(2)
        column.add_(1)
        x[2] = row
        return row.sum() + x[2, 1]

    model = A.copy()
    for _ in range(2):
        model[1] *= 2
        model[:, 1] += 1
        model[2] = model[1]
        equal(change(), model[1].sum() + model[2, 1])
        equal(x, model)


@Ways
@pytest.mark.kernels("python")
def test_captured_views_have_gradients(way: Way) -> None:
    b = leaf(B)
    x = tracer.tensor(A)
    row = x[1]

    @way
    def change(w: Any) -> Any:
        x.mul_(2)
        row.add_(w)
        assert row.requires_grad
        return row.sum() + x.sum()

    total = change(b)
    (total + (row * row).sum()).backward()
    equal(b.grad, 2 + 2 * (2 * A[1] + B))


def test_a_captured_view_is_found_by_its_name() -> None:
    x = tracer.tensor(A)
    row = x[0]

    @trace
    def change() -> None:
        x.add_(1)
        row.mul_(2)

    change()
    row = x[2]
    change()
    wanted = A + 2
    wanted[0] = (A[0] + 1) * 2 + 1
    wanted[2] *= 2
    equal(x, wanted)


def test_a_program_notices_that_the_base_of_a_view_has_a_history_now() -> None:
    buffer = tracer.zeros(4, dtype="float64")
    part = buffer[:2]
    double = trace(lambda: part * 2)
    assert not double().requires_grad
    buffer.add_(leaf(B))
    assert double().requires_grad


def test_a_trace_leaves_views_outside_alone() -> None:
    b = leaf(B)
    x = tracer.tensor(A)
    row = x[1]

    @trace
    def fails() -> None:
        x.add_(b)
        assert row.requires_grad
        raise ValueError

    with pytest.raises(ValueError):
        fails()
    assert not row.requires_grad
    assert row.grad_fn is None
    x.add_(b)
    row.sum().backward()
    equal(b.grad, np.ones(4))


def test_exported_functions_give_what_they_changed() -> None:
    x = tracer.tensor(A)
    row = x[1]

    def change(y: Any) -> Any:
        x.add_(y)
        y.mul_(2)
        return y, row, x, row * 1

    exported = function_graph(trace(change), (tracer.tensor(B),), None)
    given = {"x": A, "y": B, **exported.initializers}
    names = exported.graph.input_names
    results = interpret(exported.graph, [given[name] for name in names])
    y, part, whole, copied, new, changed = results
    assert exported.output_names[-2:] == ("x.next", "y.next")
    np.testing.assert_array_equal(y, 2 * B)
    np.testing.assert_array_equal(changed, 2 * B)
    np.testing.assert_array_equal(whole, A + B)
    np.testing.assert_array_equal(new, A + B)
    np.testing.assert_array_equal(part, A[1] + B)
    np.testing.assert_array_equal(copied, A[1] + B)


# ---- arguments -----------------------------------------------------------------------------------


@Ways
def test_arguments_that_are_views_of_leaves_or_made_in_no_grad_are_refused(way: Way) -> None:
    a = leaf(A)
    y = a * 1
    with tracer.no_grad():
        quiet = y[0]
    scale = way(lambda x, w: x.mul_(w))
    b = leaf(B)
    scale(y[1], b)  # there is a program
    with pytest.raises(tracer.GradError, match="a view of a leaf"):
        scale(a[1], b)
    with pytest.raises(tracer.GradError, match="made under no_grad"):
        scale(quiet, b)
    equal(a, A)
    equal(quiet, A[0])
    y.sum().backward()
    equal(b.grad, A[1])


@Ways
@pytest.mark.kernels("python")
def test_an_argument_that_decides_after_it_was_changed(way: Way) -> None:
    @way
    def scale(x: Any, w: Any) -> Any:
        x.mul_(w)
        if x[0] > 5:
            x[1:] = w[1:] * 3
        return x.sum()

    for start, slope in ((1.0, 5.0), (2.0, 18.0), (3.0, 39.0)):
        b, base = leaf(np.array([2.0, 3.0])), leaf(np.full(2, start))
        x = base * 1
        (scale(x, b) + (x * x).sum()).backward()
        equal(b.grad[0], slope)


@Ways
def test_detach_in_place_inside(way: Way) -> None:
    a = leaf(B)
    state = a * 2

    @way
    def step(x: Any, fail: bool) -> Any:
        y = x * state
        x.detach_()
        state.detach_()
        if fail:
            raise ValueError
        return y.sum() + x.sum()

    x = a * 1
    if way is trace:
        with pytest.raises(ValueError):
            step(x, True)
        assert x.requires_grad
        assert state.requires_grad
    step(x, False).backward()
    equal(a.grad, 4 * B)
    assert not x.requires_grad
    assert not state.requires_grad
    again = a * 1
    step(again, False)
    assert again.is_leaf


# ---- histories -----------------------------------------------------------------------------------


@Ways
@pytest.mark.kernels("python")
def test_the_gradient_that_is_kept_is_of_what_was_changed(way: Way) -> None:
    @way
    def kept(a: Any, b: Any) -> Any:
        y = a * 2
        row = y[0]
        y.retain_grad()
        row.retain_grad()
        y.mul_(b)
        (row * row).sum().backward()
        return y.grad, row.grad

    whole, row = kept(leaf(A), leaf(B))
    equal(row, 12 * A[0])
    equal(whole[0], 12 * A[0])
    equal(whole[1:], 0 * A[1:])


def test_a_view_that_is_behind_knows_that_it_requires_a_gradient() -> None:
    x = tracer.tensor(A)
    rows = [x[0], x[1], x[2]]
    x.add_(leaf(B))
    with pytest.raises(tracer.GradError, match="requires a gradient"):
        rows[0].numpy()
    assert "requires_grad=True" in repr(rows[1])
    rows[2].retain_grad()
    (rows[2] ** 2).sum().backward()
    equal(rows[2].grad, 2 * (A[2] + B))


@Ways
@pytest.mark.kernels("python")
def test_functions_of_the_users_own_that_change_views_and_bases(way: Way) -> None:
    class Scale(tracer.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            x.mul_(w)
            ctx.mark_dirty(x)
            ctx.save_for_backward(w)
            return x

        @staticmethod
        def backward(ctx: Any, dy: Any) -> Any:
            (w,) = ctx.saved_tensors
            return dy * w, None

    a, buffer, w = leaf(A), tracer.tensor(A), tracer.tensor(B)

    @way
    def scale(x: Any) -> Any:
        y = x * 1
        row = y[1]
        scaled = Scale.apply(row, w)  # the base follows
        Scale.apply(y, w)  # and so do views
        buffer.add_(y)
        Scale.apply(buffer, w)
        return (row * scaled).sum()

    (scale(a) + buffer.sum()).backward()
    wanted = np.full_like(A, 9.0)
    wanted[1] = 27 + 2 * 81 * A[1]
    equal(a.grad, wanted)
    with pytest.raises(tracer.GradError, match="a view of a leaf"):
        way(lambda x: Scale.apply(x, w))(a[0])


# ---- memory --------------------------------------------------------------------------------------


@Ways
def test_a_view_that_was_expanded_by_nothing_is_written_to(way: Way) -> None:
    x = tracer.tensor(A)
    way(lambda x: x.expand(1, 3, 4).add_(1))(x)
    equal(x, A + 1)


def test_memory_that_is_not_row_major_is_no_hidden_view() -> None:
    b = leaf(np.full(12, 2.0))
    x = tracer.asarray(np.asfortranarray(A))
    flat = x.T.reshape(-1)
    flat.mul_(b)
    equal(x, A)
    assert not x.requires_grad


def test_views_of_memory_that_was_replaced() -> None:
    module = nn.Module()
    module.register_buffer("state", tracer.zeros(4))
    old = module.state[:2]
    module.to("float64")
    module.state.add_(leaf(B))
    assert not old.requires_grad
    assert old.tolist() == [0, 0]
    new = module.state[:2]
    assert new.requires_grad
    assert new.tolist() == [3, 3]


def test_a_captured_base_and_a_view_of_all_of_it_have_one_history() -> None:
    b = leaf(B)
    y = b * 2
    whole = y[:]
    whole.add_(1)

    @trace
    def negated() -> Any:
        y.mul_(1)
        return -whole

    negated().sum().backward()
    equal(b.grad, np.full(4, -2.0))


@Ways
def test_a_detached_view_lies_where_the_view_does(way: Way) -> None:
    x = tracer.tensor(A)

    @way
    def change(x: Any) -> None:
        detached = x.T.detach()
        detached.reshape(-1).mul_(0)  # of a copy
        detached[1].mul_(2)

    change(x)
    wanted = A.copy()
    wanted[:, 1] *= 2
    equal(x, wanted)


def test_memory_that_decides_and_is_changed_under_another_name_is_an_error() -> None:
    x = tracer.tensor(A)
    other = x.detach()

    @trace
    def change() -> None:
        x.add_(1)
        if other.sum() > 0:
            x.mul_(2)

    with pytest.raises(tracer.ArgumentError, match="shares memory with x"):
        change()
    equal(x, A)


def test_a_history_that_saved_a_view_of_what_it_became_is_no_cycle() -> None:
    w = leaf(B)
    states = tracer.zeros((3, 4), dtype="float64")
    for k in (1, 2):
        states[k] = states[k - 1] * w
    kept = weakref.ref(states)
    gc.disable()
    try:
        del states
        assert kept() is None
    finally:
        gc.enable()
