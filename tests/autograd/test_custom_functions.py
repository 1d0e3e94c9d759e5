"""Functions of the user's with a backward of their own: eager."""

from __future__ import annotations

import gc
import re
import weakref

import numpy as np
import pytest

import tracer
from tests.support.custom_functions import Exp, Odd, Split, X, failing, leaf, near
from tracer import ir, trace
from tracer.autograd import Function, once_differentiable
from tracer.autograd import grad as grad_of

# ---- forward and backward ------------------------------------------------------------------------


def test_the_gradient_is_what_backward_gives() -> None:
    x = leaf()
    y = Exp.apply(x)
    near(y.detach(), np.exp(X))
    assert y.requires_grad and not y.is_leaf
    y.sum().backward()
    near(x.grad, np.exp(X))
    x.grad = None
    Odd.apply(x, 3).sum().backward()
    near(x.grad, 10 + X)


def test_without_gradients_there_is_no_history() -> None:
    assert Exp.apply(tracer.tensor(X)).grad_fn is None
    x = leaf()
    with tracer.no_grad():
        assert Exp.apply(x).grad_fn is None
    near(Odd.apply(tracer.tensor(X), 3), 3 * X)


def test_forward_leaves_no_history_of_its_own() -> None:
    seen = []

    class Look(Function):
        @staticmethod
        def forward(ctx, x):
            seen.append((x * 2).requires_grad)
            with tracer.enable_grad():
                return (x * 2).relu()

        @staticmethod
        def backward(ctx, dy):
            return dy * 7

    x = leaf()
    y = Look.apply(x)
    assert seen == [False]
    assert y.grad_fn.next_functions == ((x.grad_fn, 0),) or len(y.grad_fn.next_functions) == 1
    y.sum().backward()
    near(x.grad, [7, 7, 7])


def test_setup_context_stands_beside_a_forward_without_ctx() -> None:
    class Power(Function):
        @staticmethod
        def forward(x, n):
            return x**n, n + 1

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, n = inputs
            ctx.save_for_backward(x, output[0])
            ctx.n, ctx.next = n, output[1]

        @staticmethod
        def backward(ctx, dy, nothing):
            assert nothing is None and ctx.next == ctx.n + 1
            x, _ = ctx.saved_tensors
            return dy * ctx.n * x ** (ctx.n - 1), None

    x = leaf()
    y, n = Power.apply(x, 3)
    assert n == 4
    y.sum().backward()
    near(x.grad, 3 * X**2)


def test_several_results_and_arguments_that_are_no_tensors() -> None:
    x, y = leaf(), leaf([1, 2, 3])
    total, product, sign, name = Split.apply(x, y, "a name")
    assert name == "a name" and total.requires_grad and product.requires_grad
    assert not sign.requires_grad and sign.grad_fn is None
    assert (total.output_number, product.output_number) == (0, 1)
    (2 * total + 3 * product).sum().backward()
    near(x.grad, 2 + 3 * np.array([1, 2, 3]))
    near(y.grad, 2 + 3 * X)
    x.grad = y.grad = None
    _, product, _, _ = Split.apply(x, y.detach(), "")
    product.sum().backward()
    near(x.grad, [1, 2, 3])
    near(Split.seen[0], [0, 0, 0])
    near(Split.seen[2], [0, 0, 0])
    assert Split.seen[3] is None


def test_gradients_that_nobody_asks_for_can_stay_none() -> None:
    seen = []

    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, first, second):
            seen.append((first is None, second is None))
            return None if first is None else first * 2

    x = leaf()
    Two.apply(x)[1].sum().backward()
    Two.apply(x)[0].sum().backward()
    assert seen == [(True, False), (False, True)]
    near(x.grad, [2, 2, 2])


def test_arguments_and_repeated_results_come_back_as_results() -> None:
    class Same(Function):
        @staticmethod
        def forward(ctx, x, plain):
            return x, x, plain

        @staticmethod
        def backward(ctx, first, second, third):
            return first * 5 + second * 7, None

    x, plain = leaf(), tracer.tensor(X)
    first, second, third = Same.apply(x, plain)
    assert first is not x and first is not second and x.is_leaf and not plain.requires_grad
    assert third is not plain
    near(first.detach(), X)
    (first + 2 * second).sum().backward()
    near(x.grad, [19, 19, 19])


def test_something_from_outside_is_not_changed_by_being_returned() -> None:
    kept, parameter = tracer.tensor(X), leaf()

    class Outside(Function):
        @staticmethod
        def forward(ctx, x):
            return kept, parameter

        @staticmethod
        def backward(ctx, first, second):
            return first + second

    x = leaf()
    first, second = Outside.apply(x)
    assert first.requires_grad and second.grad_fn is first.grad_fn
    assert not kept.requires_grad and kept.grad_fn is None and parameter.is_leaf
    (first * second).sum().backward()
    near(x.grad, 2 * X)
    assert parameter.grad is None


def test_arrays_from_numpy_count_as_tensors() -> None:
    class NumpySin(Function):
        @staticmethod
        def forward(ctx, x):
            array = x.detach().numpy()
            ctx.cos = np.cos(array)
            return np.sin(array)

        @staticmethod
        @once_differentiable
        def backward(ctx, dy):
            return dy.numpy() * ctx.cos

    x = leaf()
    y = NumpySin.apply(x)
    assert isinstance(y, tracer.Tensor)
    y.sum().backward()
    near(x.grad, np.cos(X))
    total = failing(
        lambda ctx, x, a, b: (x * a).detach().numpy().sum() + b, lambda ctx, d: (d, d, d)
    )
    assert total.apply(x, X, np.float32(1)).requires_grad
    with pytest.raises(tracer.GradError, match=r"NumpySin, which is marked once_differentiable"):
        (g,) = grad_of(NumpySin.apply(x).sum(), x, create_graph=True)
        g.sum().backward()


def test_the_node_is_like_every_other() -> None:
    x = leaf()
    inner = x * 2
    y = Exp.apply(inner)
    assert repr(y.grad_fn) == "<ExpBackward>"
    assert y.grad_fn.next_functions == ((inner.grad_fn, 0),)
    near(y.grad_fn.saved_tensors[0].detach(), np.exp(2 * X))
    y.retain_grad()
    (y * y).sum().backward()
    near(y.grad, 2 * np.exp(2 * X))
    assert y.grad_fn.name() == "ExpBackward"


def test_hooks_wait_at_its_node() -> None:
    def f(x):
        y, z, _, _ = Split.apply(x, x, "a name")
        y.register_hook(lambda g: g * 2)
        y.grad_fn.register_prehook(lambda gs: (gs[0] + 1, *gs[1:]))
        y.grad_fn.register_hook(lambda found, _: (found[0], found[1] * 0, found[2]))
        return (y + z * 0).sum()

    for g in (f, trace(f)):
        x = leaf()
        g(x).backward()
        near(x.grad, [3, 3, 3])


def test_volatile_arguments_and_inference_mode() -> None:
    x = tracer.tensor(X)
    x.volatile = True
    y = Odd.apply(leaf(), x)
    assert y.volatile and y.grad_fn is None
    with tracer.inference_mode():
        made = Exp.apply(leaf())
    assert made.is_inference()
    with pytest.raises(tracer.GradError, match=r"Keep saves a Tensor .* inference mode"):
        Keep.apply(leaf(), made)


class Keep(Function):
    @staticmethod
    def forward(ctx, x, kept):
        ctx.save_for_backward(kept)
        return x * 2

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.saved_tensors[0], None


def test_saved_tensors_go_when_backward_has_run() -> None:
    x = leaf()
    y = Exp.apply(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    near(x.grad, 2 * np.exp(X))
    with pytest.raises(tracer.GradError, match=r"second time through Exp at .*test_custom"):
        y.sum().backward()
    with pytest.raises(tracer.GradError, match="are gone"):
        _ = y.grad_fn.saved_tensors


def test_nothing_is_kept_alive_by_a_cycle() -> None:
    gc.disable()
    try:
        x = leaf()
        y = Exp.apply(x)
        node = weakref.ref(y.grad_fn)
        del y
        assert node() is None
    finally:
        gc.enable()


def test_gradients_of_gradients() -> None:
    x = leaf()
    (g,) = grad_of(Exp.apply(x).sum(), x, create_graph=True)
    (gg,) = grad_of(g.sum(), x, create_graph=True)
    (ggg,) = grad_of(gg.sum(), x)
    near(ggg, np.exp(X))
    (g,) = grad_of((Odd.apply(x, 3) ** 2).sum(), x, create_graph=True)  # 10 * 2 y + x
    (gg,) = grad_of(g.sum(), x)  # through y, Odd again: 10 * 20 + x; and x itself
    near(gg, 200 + X + 1)


def test_functional_gradients_use_it() -> None:
    near(tracer.grad(lambda x: Odd.apply(x, 3).sum())(X), 10 + X)
    _, pull = tracer.vjp(lambda x: Odd.apply(x, 3), X)
    near(pull(np.ones(3, np.float32))[0], 10 + X)
    near(tracer.hessian(lambda x: Exp.apply(x).sum())(X), np.diag(np.exp(X)), rtol=1e-5)


def test_a_gradient_that_was_broadcast_is_summed() -> None:
    class Spread(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, d):
            return d, d

    x, y = leaf(), leaf([[1.0], [2.0]])
    Spread.apply(x, y).sum().backward()
    near(x.grad, [2, 2, 2])
    near(y.grad, [[3], [3]])


# ---- what goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda dy: (dy, dy), r"gave 2 gradients, forward has 1 arguments"),
        (lambda dy: (), r"gave 0 gradients, forward has 1 arguments"),
        (lambda dy: dy[:2], r"argument 0, float32\[3\], a gradient float32\[2\]; it must have"),
        (lambda dy: dy.sum(), r"a gradient float32\[\]; it must have the argument's shape"),
        (lambda dy: dy > 0, r"a gradient bool\[3\], which is not floating"),
        (lambda dy: 1.0, r"a gradient of class float; it must be a Tensor"),
    ],
)
def test_backward_must_give_fitting_gradients(given, message: str) -> None:
    function = failing(backward=lambda ctx, dy: given(dy))
    y = function.apply(leaf())
    with pytest.raises(tracer.GradError, match=message) as error:
        y.sum().backward()
    assert "Failing" in str(error.value)
    assert len(re.findall(r"test_custom_functions\.py:\d+", str(error.value))) == 2


def test_trailing_nones_and_other_floats_are_fine() -> None:
    x = leaf()
    failing(backward=lambda ctx, dy: (dy.double(), None, None)).apply(x).sum().backward()
    assert x.grad.dtype == np.float32
    near(x.grad, [1, 1, 1])


def test_wrong_uses_are_told() -> None:
    with pytest.raises(
        tracer.ArgumentError, match=r"Bad.forward must be a static method.*\n.*test_"
    ):

        class Bad(Function):
            def forward(self, x):
                return x

    with pytest.raises(tracer.ArgumentError, match=r"call Exp.apply\("):
        Exp()(X)
    with pytest.raises(tracer.ArgumentError, match=r"positional arguments only.*'x'"):
        Exp.apply(x=X)
    with pytest.raises(tracer.ArgumentError, match="Empty has no forward"):
        type("Empty", (Function,), {}).apply(leaf())
    with pytest.raises(tracer.ArgumentError, match="gives a list that holds Tensors"):
        failing(forward=lambda ctx, x: [x * 2]).apply(leaf())
    with pytest.raises(tracer.GradError, match="save_for_backward takes Tensors and None, got int"):
        failing(forward=lambda ctx, x: ctx.save_for_backward(3)).apply(leaf())
    forward_only = type("ForwardOnly", (Function,), {"forward": staticmethod(lambda ctx, x: x * 2)})
    y = forward_only.apply(leaf())
    with pytest.raises(tracer.GradError, match=r"ForwardOnly has no backward(?s:.*)test_custom"):
        y.sum().backward()


def test_a_saved_tensor_must_not_change() -> None:
    x = leaf()
    weight = tracer.tensor(X)

    class Times(Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(weight)
            return x * weight

        @staticmethod
        def backward(ctx, dy):
            return dy * ctx.saved_tensors[0], None

    y = Times.apply(x, weight)
    weight.add_(1)
    message = (
        r"that Times at .*test_custom\w+.py:\d+ saved .* after that, at .*test_custom\w+.py:\d+"
    )
    with pytest.raises(tracer.GradError, match=message):
        y.sum().backward()

    @trace
    def inside(x, weight):
        y = Times.apply(x, weight)
        weight.add_(1)  # a value of the program is still there
        return tracer.autograd.grad(y.sum(), x)[0]

    near(inside(leaf(), tracer.tensor(X)), X)


# ---- changes in place ----------------------------------------------------------------------------


def doubling(base):
    """x *= 2, with a gradient that nobody could guess: 20."""

    class Double(base):
        @staticmethod
        def forward(ctx, x, marked=True):
            x.mul_(2)
            if marked:
                ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, dy):
            return dy * 20, None

    return Double


Double = doubling(Function)


def changed(x):
    """Through a view, whose base and other views follow."""
    y = x * 1
    row, other = y[0], y.T[1]
    assert Double.apply(row) is row
    y[1].mul_(3)
    return (y * y).sum() + row.sum() + other.sum()


CHANGED = [[20, 120, 180], [54, 75, 90]]


@pytest.mark.kernels("python")
def test_an_argument_that_forward_changes_has_the_history_of_the_call() -> None:
    start = np.arange(6, dtype=np.float32).reshape(2, 3)
    for f in (changed, trace(changed)):
        x = leaf(start)
        f(x).backward()
        near(x.grad, CHANGED)
    near(trace(tracer.grad(changed))(start), CHANGED)
    graph = trace(changed).ir(start)
    ir.verify(graph)
    assert ir.equal(ir.parse(ir.to_text(graph)), graph)
    near(tracer.interpret.interpret(graph, [start])[0], changed(tracer.tensor(start)))

    def second(f):
        x = leaf()
        (g,) = grad_of((f(x) ** 2).sum(), x, create_graph=True)
        return grad_of(g.sum(), x)[0]

    def copied(x):
        return Double.apply(x * 1)

    near(second(copied), np.full(3, 2 * 20 * 20))
    near(second(trace(copied)), np.full(3, 2 * 20 * 20))


def test_what_lies_outside_a_trace_is_changed_too() -> None:
    for f in (Double.apply, trace(Double.apply), trace(lambda x: Double.apply(x))):
        state = tracer.tensor(X)
        near(f(state), 2 * X)
        near(state, 2 * X)


def test_changes_must_be_told_and_fit() -> None:
    x = leaf()
    with pytest.raises(
        tracer.GradError, match=r"Double changes an argument in place: .* is a leaf"
    ):
        Double.apply(x)
    with pytest.raises(tracer.GradError, match="is a view of a leaf"):
        Double.apply(leaf()[1:])
    with pytest.raises(
        tracer.ArgumentError, match=r"changes argument 0, float32\[3\], in place without"
    ):
        Double.apply(x * 1, False)
    near(Double.apply(tracer.tensor(X), False), 2 * X)  # no gradient, no harm

    class Wrong(Function):
        @staticmethod
        def forward(ctx, x, other):
            ctx.mark_dirty(other)
            return x * 2

    with pytest.raises(
        tracer.ArgumentError, match=r"marked as changed in place .* does not return it"
    ):
        Wrong.apply(leaf(), tracer.tensor(X))
    stranger = failing(forward=lambda ctx, x: ctx.mark_dirty(tracer.tensor(X)))
    with pytest.raises(tracer.ArgumentError, match="takes arguments of forward that it changes"):
        stranger.apply(leaf())


def test_a_part_of_an_argument_as_result_is_not_changed_afterwards() -> None:
    part = failing(
        forward=lambda ctx, x: x[1:], backward=lambda ctx, dy: tracer.concatenate([dy[:1] * 0, dy])
    )
    y = part.apply(leaf() * 1)
    with pytest.raises(tracer.GradError, match="is a view that was made under no_grad"):
        y.mul_(2)
