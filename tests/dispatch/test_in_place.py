"""Changes in place: what they do to memory, views, histories and callers, eager and compiled alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracer
from tracer import trace

A = np.arange(12.0).reshape(3, 4) + 1
B = np.full(4, 3.0)
Ways = pytest.mark.parametrize("way", [lambda f: f, trace], ids=["eager", "traced"])
Way = Callable[[Any], Any]


def leaf(array: Any) -> tracer.Tensor:
    return tracer.tensor(array, requires_grad=True)


def equal(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(found.detach()), wanted, rtol=1e-12)


@Ways
def test_an_argument_with_a_history_is_changed_where_it_is(way: Way) -> None:
    a, b = leaf(A), leaf(B)
    x = a * 2

    @way
    def scale(x: Any, w: Any) -> Any:
        x.mul_(w)
        return x.sum()

    total = scale(x, b)
    (total + (x * x).sum()).backward()
    equal(x, 2 * A * B)
    equal(a.grad, 2 * B + 8 * A * B**2)
    equal(b.grad, (2 * A + 8 * A**2 * B).sum(0))


@Ways
def test_views_outside_show_what_a_function_changes(way: Way) -> None:
    a, b = leaf(A), leaf(B)
    x = a * 1
    row, flat = x[1], x.reshape(-1)

    @way
    def shift(x: Any) -> None:
        x.add_(b)

    shift(x)
    assert row.requires_grad
    (row * flat[:4]).sum().backward()
    equal(row, A[1] + B)
    wanted = np.zeros_like(A)
    wanted[1], wanted[0] = A[0] + B, A[1] + B
    equal(a.grad, wanted)
    equal(b.grad, A[0] + A[1] + 2 * B)


@Ways
def test_a_buffer_from_outside_takes_part_in_the_gradient(way: Way) -> None:
    a, b = leaf(A), leaf(B)
    buffer = tracer.zeros((3, 4), dtype="float64")

    @way
    def fill(w: Any) -> None:
        buffer[1] = w
        buffer[:, 0] *= 2

    fill(b)
    assert buffer.requires_grad
    (buffer * a).sum().backward()
    equal(b.grad, A[1] * [2, 1, 1, 1])
    equal(a.grad, np.array([np.zeros(4), B * [2, 1, 1, 1], np.zeros(4)]))


@Ways
def test_a_recurrence_into_a_buffer(way: Way) -> None:
    a, b = leaf(A), leaf(B)

    @way
    def unrolled(x: Any, h: Any) -> Any:
        out = tracer.zeros((3, 4), dtype="float64")
        for t in range(3):
            h = h * x[t]
            out[t] = h
        return (out * out).sum()

    unrolled(a, b).backward()
    grads = a.grad, b.grad
    a.grad = b.grad = None
    rows = []
    h = b
    for t in range(3):
        h = h * a[t]
        rows.append(h)
    (tracer.stack(rows) ** 2).sum().backward()
    for found, leaf_ in zip(grads, (a, b), strict=True):
        equal(found, leaf_.grad)


@Ways
def test_the_same_tensor_twice(way: Way) -> None:
    @way
    def both(x: Any, y: Any) -> Any:
        x.add_(1)
        return (x * y).sum()

    x = tracer.tensor(A)
    equal(both(x, x), ((A + 1) ** 2).sum())
    equal(x, A + 1)
    equal(both(x, tracer.tensor(A)), ((A + 2) * A).sum())
    equal(both(x, x), ((A + 3) ** 2).sum())


def test_two_tensors_on_one_memory_are_an_error_if_one_is_changed() -> None:
    x = tracer.tensor(A)
    function = trace(lambda x, y: x.add_(y))
    with pytest.raises(tracer.ArgumentError, match="shares memory with x"):
        function(x[:2], x[1:])
    equal(x, A)


@Ways
def test_data_and_detach_share_memory_and_no_history(way: Way) -> None:
    a = leaf(A)

    @way
    def hidden() -> Any:
        y = a * 2
        y.data.mul_(3)
        part = y.detach()
        part[0] = 5
        other = y.detach()  # sees what the first one did
        total = (y * a).sum()
        total.backward()
        return total, y, other

    total, y, other = hidden()
    wanted = 6 * A
    wanted[0] = 5
    equal(y, wanted)
    equal(other, wanted)
    equal(total, (wanted * A).sum())
    equal(a.grad, wanted + 2 * A)
    assert not other.requires_grad


@Ways
def test_gradients_are_clipped_in_place(way: Way) -> None:
    a = leaf(A)
    (a * a).sum().backward()

    @way
    def clip() -> None:
        assert a.grad is not None
        a.grad.clamp_(-10, 10)
        a.grad[0] *= 0.5

    clip()
    wanted = np.clip(2 * A, -10, 10)
    wanted[0] *= 0.5
    equal(a.grad, wanted)


@Ways
def test_a_walk_inside_goes_on_along_the_history_outside(way: Way) -> None:
    a = leaf(A)

    @way
    def inside(x: Any) -> Any:
        total = (x * x).sum()
        total.backward()
        return total

    inside(a * 3)
    equal(a.grad, 18 * A)


@Ways
def test_leaves_and_their_views_change_in_no_grad_only(way: Way) -> None:
    a = leaf(A)
    for change in (
        lambda: a.add_(1),
        lambda: a[0].add_(1),
        lambda: a.T.zero_(),
        lambda: a.__setitem__(0, 1.0),
        lambda: a.reshape(-1).exp_(),
    ):
        with pytest.raises(
            tracer.GradError, match=r"leaf.*requires a gradient(?s:.*)test_in_place"
        ):
            way(change)()
        equal(a, A)

    @way
    def quiet() -> None:
        with tracer.no_grad():
            a[0].add_(1)
            a.T[2].mul_(2)
        (a * a).sum().backward()

    quiet()
    wanted = A.copy()
    wanted[0] += 1
    wanted[:, 2] *= 2
    equal(a, wanted)
    equal(a.grad, 2 * wanted)


def test_what_was_saved_and_changed_is_named_with_both_lines() -> None:
    a = leaf(A)
    for function, name in (
        (lambda y: y.exp(), "Exp"),
        (lambda y: (y * 1).tanh(), "Tanh"),
        (lambda y: y.sqrt(), "Sqrt"),
    ):
        y = function(a)
        y.add_(1)
        with pytest.raises(tracer.GradError, match="changed in place") as caught:
            y.sum().backward()
        lines = [part for part in str(caught.value).split() if "test_in_place.py:" in part]
        assert f"of {name} at" in str(caught.value)
        assert len({line.rstrip(",") for line in lines}) == 3  # saved, changed, asked for

    y = a * 1
    product = y * y
    y.detach().zero_()  # another name for the memory
    with pytest.raises(tracer.GradError, match="changed in place"):
        product.sum().backward()

    y = a * 1
    product = y * y
    trace(lambda t: t.add_(1))(y)
    with pytest.raises(tracer.GradError, match=r"changed in place after that, by .*lambda"):
        product.sum().backward()


def test_a_trace_has_the_old_value_of_what_was_changed() -> None:
    a = leaf(A)

    @trace
    def late(x: Any) -> None:
        y = x.exp()
        z = y * y
        y.add_(1)
        (y + z).sum().backward()

    late(a)
    equal(a.grad, np.exp(A) + 2 * np.exp(A) ** 2)


@pytest.mark.parametrize(
    "name",
    [
        "exp",
        *(
            pytest.param(name, marks=pytest.mark.kernels("python"))
            for name in ("log", "sqrt", "reciprocal", "sin", "tanh", "abs")
        ),
    ],
)
@Ways
def test_functions_whose_gradient_needs_the_old_elements(way: Way, name: str) -> None:
    a = leaf(A[0])
    plain = leaf(A[0])

    def in_place(x: Any) -> Any:
        y = x * 0.3
        getattr(y, f"{name}_")()
        y.mul_(y)
        return y.sum()

    way(in_place)(a).backward()
    out = getattr(plain * 0.3, name)()
    (out * out).sum().backward()
    np.testing.assert_allclose(a.grad, plain.grad, rtol=1e-12)


@pytest.mark.kernels("python")
@Ways
def test_indexed_assignments(way: Way) -> None:
    a, b = leaf(A), leaf(B)

    @way
    def assign(x: Any, v: Any) -> Any:
        y = x * 1
        y[1:, ::2] = v[:2]
        y[-1] += v
        y[..., -1] *= 2
        y[None, 0, 1:3] = 7.0
        y[[0, 2]] = y[[2, 1]]  # the right side is read first
        y[y > 9.0] = 0.5
        return y

    y = assign(a, b)
    (y * tracer.tensor(A)).sum().backward()
    model = A.copy()
    weights = np.zeros_like(A)
    model[1:, ::2] = B[:2]
    model[-1] += B
    model[..., -1] *= 2
    model[None, 0, 1:3] = 7.0
    model[[0, 2]] = model[[2, 1]]
    kept = model <= 9.0
    model[~kept] = 0.5
    equal(y, model)
    del weights
    check_gradient(assign, y)


def check_gradient(function: Any, result: Any) -> None:
    """The gradients of a weighted sum by both leaves, from differences."""
    arrays = [A.copy(), B.copy()]
    leaves = [leaf(x) for x in arrays]
    (function(*leaves) * tracer.tensor(A)).sum().backward()
    for x, source in zip(leaves, arrays, strict=True):
        slope = np.zeros_like(source)
        for place in np.ndindex(source.shape):
            ends = []
            for step in (1e-6, -1e-6):
                before = source[place]
                source[place] = before + step
                with tracer.no_grad():
                    ends.append(float((function(*map(tracer.tensor, arrays)) * A).sum()))
                source[place] = before
            slope[place] = (ends[0] - ends[1]) / 2e-6
        np.testing.assert_allclose(x.grad, slope, atol=1e-6)


def test_methods_that_write_at_indices() -> None:
    rows = np.array([2, 0])
    for name, arguments in (
        ("index_copy", (0, rows, tracer.tensor(A[:2] * 10))),
        ("index_add", (0, rows, tracer.tensor(A[:2] * 10))),
        ("index_fill", (0, rows, 7.0)),
        ("index_put", ((rows, rows), tracer.tensor(B[:2]))),
        ("scatter", (1, np.array([[0], [1], [3]]), tracer.tensor(A[:, :1] * 9))),
        ("masked_scatter", (A > 6, tracer.tensor(A.reshape(-1) * 5))),
        ("masked_fill", (A > 6, 5.0)),
    ):
        x = leaf(A)
        y = x * 2
        wanted = getattr(y, name)(*arguments)
        view = y[1:]
        assert getattr(y, f"{name}_")(*arguments) is y
        equal(y, np.asarray(wanted.detach()))
        equal(view, np.asarray(wanted.detach())[1:])
        (y * y).sum().backward(retain_graph=True)
        found = x.grad
        x.grad = None
        (wanted * wanted).sum().backward()
        equal(found, np.asarray(x.grad))


@Ways
def test_broadcast_views_are_not_written_to(way: Way) -> None:
    x = tracer.ones(1)
    with pytest.raises(tracer.ArgumentError, match="cannot be changed in place"):
        way(lambda: x.expand(3).add_(1))()
    equal(x, [1])


def test_a_view_made_in_no_grad_is_refused_where_gradients_are_recorded() -> None:
    a = leaf(A)
    y = a * 1
    with tracer.no_grad():
        row = y[0]
    assert not row.requires_grad
    row.detach().add_(1)
    with pytest.raises(tracer.GradError, match="made under no_grad"):
        row.mul_(a[0])
    equal(row, A[0] + 1)


def test_detach_in_place() -> None:
    y = leaf(A) * 2
    with pytest.raises(tracer.GradError, match="is a view of another Tensor"):
        y[0].detach_()
    y.detach_()
    assert y.is_leaf
    assert not y.requires_grad


def test_chains_of_changes_are_linear() -> None:
    a = leaf(np.ones(4))
    y = a * 1
    view = y[1:3]
    for _ in range(3000):
        y.add_(1)
        view.add_(1)
    y.sum().backward()
    equal(y, [3001, 6001, 6001, 3001])
    equal(a.grad, np.ones(4))


@Ways
def test_operands_that_are_named(way: Way) -> None:
    a, b = leaf(A), leaf(B)

    @way
    def scale(x: Any, w: Any) -> Any:
        y = x * 1
        y.clamp_(max=w)
        return y.sum()

    scale(a, b).backward()
    equal(a.grad, A <= B)
    equal(b.grad, [2, 2, 2, 3])


@Ways
def test_the_diagonal_is_filled_in_place(way: Way) -> None:
    a = leaf(A)

    @way
    def filled(x: Any) -> Any:
        y = x * 2
        assert y.fill_diagonal_(7.0) is y
        return y

    y = filled(a)
    y.sum().backward()
    wanted = 2 * A
    np.fill_diagonal(wanted, 7.0)
    equal(y, wanted)
    equal(a.grad, 2 * (1 - np.eye(3, 4)))


# ---- parts picked by an index that a trace does not know -----------------------------------------


def shifted(x: Any, i: Any) -> Any:
    y = x * 1
    for k in range(2):
        y[i] += k + 1
        y[i, 0] -= 1
    kept, sliced = y[i].clone(), y[i][1:] * 2
    y[:, i] = 0
    return y, kept, sliced, y[i]


def test_parts_that_are_assigned_or_read_are_the_same_in_a_trace() -> None:
    for i in (tracer.tensor(1), np.int64(2)):
        for found, wanted in zip(trace(shifted)(A, i), shifted(tracer.tensor(A), i), strict=True):
            equal(found, wanted.numpy())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda y, i: y[i].add_(1), "is changed in place"),
        (lambda y, i: y[i][1:].zero_(), "is changed in place"),
        (lambda y, i: y[:, i].mul_(2), "is changed in place"),
        (lambda y, i: (y[i], y.add_(1)), "is used after x was changed"),
        (lambda y, i: (y[1:][i], y[0].add_(1)), "is used after x was changed"),
    ],
)
def test_what_would_show_that_a_part_is_a_copy_is_an_error(
    change: Callable[[Any, Any], Any], text: str
) -> None:
    def function(x: Any, i: Any) -> Any:
        y = x * 1
        return change(y, i), y

    function(tracer.tensor(A), tracer.tensor(1))
    with pytest.raises(
        tracer.TraceError, match=rf"picked, as in x\[i\] .*test_in_place\.py:\d+.*{text}.*clone\(\)"
    ):
        trace(function)(A, tracer.tensor(1))
