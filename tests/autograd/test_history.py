"""The history of Tensors: its nodes, its leaves, what backward and grad do with it, and their errors; eager and in traces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracer
from tracer import autograd, grad, nn, trace


def leaf(*values: float) -> tracer.Tensor:
    return tracer.tensor(list(map(float, values)), requires_grad=True)


def equal(got: Any, *wanted: float) -> None:
    assert isinstance(got, tracer.Tensor)
    np.testing.assert_allclose(np.asarray(got.detach()).ravel(), wanted, 1e-6)


# ---- nodes ---------------------------------------------------------------------------------------


def test_nodes_lead_to_leaves_and_say_what_they_are() -> None:
    x, w, k = leaf(1, 2), leaf(3, 4), tracer.tensor([5.0, 6.0])
    y = x * k
    z = y + w
    assert z.grad_fn is not None and y.grad_fn is not None
    assert z.grad_fn.name() == "AddBackward" and repr(y.grad_fn) == "<MulBackward>"
    (first, number), (end, _) = z.grad_fn.next_functions
    assert (first, number) == (y.grad_fn, 0)
    assert isinstance(end, autograd.hooks.AccumulateGrad) and end.variable is w
    assert end.name() == "AccumulateGrad" and end.next_functions == ()
    assert y.grad_fn.next_functions[1] == (None, 0)  # k requires no gradient
    assert (w * 2).grad_fn.next_functions[0][0] is end  # type: ignore[union-attr]
    assert z.output_nr == 0


def test_a_leaf_that_is_gone_is_not_kept_by_its_hooks() -> None:
    import gc
    import weakref

    x = leaf(1)
    x.register_hook(lambda g: g * 2)
    seen = weakref.ref(x)
    del x
    gc.collect()
    assert seen() is None


def test_the_graph_is_recorded_anew_at_each_run() -> None:
    def power(x: tracer.Tensor, n: int) -> tracer.Tensor:
        y = x
        while float(y.detach().sum()) < n:
            y = y * x
        return y.sum()

    for n, wanted in ((1, 1.0), (10, 32.0), (100, 448.0)):  # of x, x**4 and x**7 at 2
        x = leaf(2)
        power(x, n).backward()
        equal(x.grad, wanted)


# ---- backward and grad ---------------------------------------------------------------------------


def test_backward_adds_to_grad_and_grad_leaves_it() -> None:
    x = leaf(1, 2)
    (x * x).sum().backward()
    (x * 3).sum().backward()
    equal(x.grad, 5, 7)
    (g,) = autograd.grad((x * 4).sum(), x)
    equal(g, 4, 4)
    equal(x.grad, 5, 7)


def test_backward_into_chosen_inputs() -> None:
    x, w = leaf(1, 2), leaf(3, 4)
    y = x * w
    (y * w).sum().backward(inputs=[w, y])
    assert x.grad is None
    equal(w.grad, 6, 16)
    equal(y.grad, 3, 4)


def test_unused_inputs() -> None:
    x, w = leaf(1, 2), leaf(3, 4)
    y = (x * 2).sum()
    a, b = autograd.grad(y, [x, w], retain_graph=True, allow_unused=True)
    equal(a, 2, 2)
    assert b is None
    a, b = autograd.grad(y, [x, w], materialize_grads=True)
    equal(b, 0, 0)


def test_one_element_needs_no_gradient() -> None:
    x = tracer.tensor([[3.0]], requires_grad=True)
    y = x * x
    y.register_hook(lambda g: g * 1)  # of the shape of y
    y.backward()
    equal(x.grad, 6)
    assert x.grad is not None and x.grad.shape == (1, 1)


def test_an_error_leaves_every_grad_as_it_was() -> None:
    x, w = leaf(1, 2), leaf(3, 4)
    y = x * x
    y.sum().backward()
    x.grad = None
    with pytest.raises(tracer.GradError, match="second time"):
        (y * w).sum().backward()
    assert x.grad is None and w.grad is None


def test_gradients_of_both_arguments_are_two_tensors() -> None:
    x, w = leaf(1, 2), leaf(3, 4)
    (x + w).backward(tracer.tensor([1.0, 1.0]))
    assert x.grad is not None and w.grad is not None
    with tracer.no_grad():
        x.grad.mul_(10)
    equal(w.grad, 1, 1)


LETTERS: list[tuple[Callable[[tracer.Tensor, tracer.Tensor], Any], str]] = [
    (lambda x, k: (x * x).backward(), r"of a Tensor of one element, got float32\[2\]; reduce it"),
    (lambda x, k: k.sum().backward(), "does not require a gradient and has no history"),
    (
        lambda x, k: (x * 2).backward(tracer.tensor([1.0])),
        r"the gradient must have the shape of float32\[2\], got float32\[1\]",
    ),
    (lambda x, k: autograd.grad((x * 2).sum(), k), r"input 0, float32\[2\], does not require"),
    (lambda x, k: autograd.grad((x * 2).sum(), leaf(1)), "do not depend on input 0"),
    (lambda x, k: autograd.grad((x * 2).sum(), []), "got no inputs"),
    (lambda x, k: autograd.grad([x * 2, 3], x), "takes a Tensor or a list of Tensors, got int"),
    (lambda x, k: autograd.backward([x.sum(), x.sum()], [None]), "of 2 tensors is needed, got 1"),
    (lambda x, k: x.sum().backward(inputs=[]), "leave `inputs` out for all leaves"),
    (lambda x, k: x.sum().backward(inputs=[k]), "does not require a gradient"),
    (
        lambda x, k: autograd.grad(x.sum(), x, allow_unused=False, materialize_grads=True),
        "contradicts it",
    ),
    (lambda x, k: setattr(x, "grad", 3), r"must be float32\[2\] like its Tensor, or None, got int"),
    (lambda x, k: setattr(x, "grad", tracer.tensor([1.0])), r"or None, got float32\[1\]"),
    (lambda x, k: k.retain_grad(), "requires no gradient, so there is none to keep"),
]


@pytest.mark.parametrize("number", range(len(LETTERS)))
@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_mistakes_are_told_with_the_line(number: int, traced: bool) -> None:
    wrong, words = LETTERS[number]

    def program() -> Any:
        return wrong(leaf(1, 2), tracer.tensor([1.0, 1.0]))

    with pytest.raises(tracer.TracerError, match=words) as caught:
        (trace(program) if traced else program)()
    assert str(caught.value).count("\n  at ") == 1
    assert "test_history.py:" in str(caught.value)


def test_a_second_backward_needs_what_was_saved() -> None:
    x = leaf(1, 2)
    for keep, fine in ((None, False), (False, False), (True, True)):
        y = (x * x).sum()
        y.backward(retain_graph=keep)
        if fine:
            y.backward()
            continue
        with pytest.raises(tracer.GradError, match="second time through") as caught:
            y.backward()
        assert "retain_graph=True" in str(caught.value)


# ---- traces --------------------------------------------------------------------------------------


def test_history_in_a_trace_is_the_same_history() -> None:
    w = leaf(3, 4)

    @trace
    def step(x: tracer.Tensor) -> Any:
        y = x * w
        y.retain_grad()
        z = (y * y).sum()
        (g,) = autograd.grad(z, w, create_graph=True)
        g.sum().backward(inputs=[w, y], retain_graph=True)
        return y.grad, g, y.is_leaf, w.is_leaf, z.grad_fn.name()  # type: ignore[union-attr]

    for _ in range(2):
        w.grad = None
        x = tracer.tensor([1.0, 2.0])
        of_y, g, *flags = step(x)
        equal(g, 6, 32)
        equal(w.grad, 2, 8)
        equal(of_y, 6 + 2, 16 + 4)  # both walks came by
        assert flags == [False, True, "ReduceSumBackward"]


def test_a_walk_goes_on_behind_an_argument() -> None:
    x = leaf(1, 2)
    y = x * 2

    @trace
    def inside(t: tracer.Tensor) -> Any:
        assert t.is_leaf is not True or t.grad_fn is None
        (t * t).sum().backward()

    inside(x)
    equal(x.grad, 2, 4)
    inside(y)
    equal(x.grad, 2 + 8, 4 + 16)
    x.grad, y = None, x * 2
    (x * x).sum().backward()
    inside(y.detach().requires_grad_())
    equal(x.grad, 2, 4)

    @trace
    def gradient(t: tracer.Tensor) -> Any:
        assert t.is_leaf is False
        return autograd.grad((t * t).sum(), t)

    equal(gradient(y)[0], 4, 8)
    y.sum().backward()  # its own history is still there


def test_what_was_computed_outside_is_not_walked_twice() -> None:
    w = leaf(3)
    h = w * 2

    @trace
    def product() -> tracer.Tensor:
        return (h * w).sum()

    @trace
    def inside() -> None:
        (h * w).sum().backward()

    product().backward(retain_graph=True)
    equal(w.grad, 12)  # of 2 w w
    with pytest.raises(tracer.TraceError, match=r"reaches MulBackward at .*, which ran outside"):
        inside()
    h.sum().backward()
    equal(w.grad, 14)


def test_functional_gradients_see_the_history_of_arguments() -> None:
    x = leaf(1, 2)
    y = x * 3

    @trace
    def outer(t: tracer.Tensor) -> tracer.Tensor:
        return grad(lambda s: (s * s * t).sum())(tracer.tensor([1.0, 1.0])).sum()

    outer(y).backward()
    equal(x.grad, 6, 6)


def test_a_module_used_in_no_grad_leaves_nothing_to_go_back() -> None:
    model = nn.Linear(2, 1)
    with tracer.no_grad():
        out = model(tracer.ones((3, 2)))
    assert out.grad_fn is None and out.is_leaf
    with pytest.raises(tracer.GradError, match="computed under no_grad"):
        out.sum().backward()


def own_history(x: Any, w: Any) -> Any:
    return x.detach().mul_(w)


def changed_argument(x: Any, w: Any) -> Any:
    y = x[0:1]
    y.mul_(w[0])
    return y


def becomes_a_leaf(x: Any, w: Any) -> Any:
    x.requires_grad_()
    return x * x * w


@pytest.mark.parametrize("function", [own_history, changed_argument, becomes_a_leaf])
def test_arguments_that_required_no_gradient_before(function: Any) -> None:
    """Their history begins inside a traced function as it does outside."""
    found = []
    for f in (function, trace(function)):
        x, w = tracer.tensor([1.0, 2.0]), leaf(3, 4)
        y = f(x, w)
        (y * y).sum().backward()
        assert w.grad is not None
        seen = [y, x, w.grad, *([] if x.grad is None else [x.grad])]
        found.append([np.asarray(t.detach()).tolist() for t in seen] + [x.requires_grad, x.is_leaf])
    assert found[0] == found[1]
