"""Functions of the user's own, with their own gradients: eager, in traces, in the IR and in ONNX."""

from __future__ import annotations

import gc
import re
import weakref

import numpy as np
import pytest

import tracer
from ops.forms import Form, FormNode, Reference
from tracer import ir, trace
from tracer.autograd import Function, once_differentiable
from tracer.autograd import grad as grad_of

X = np.array([-1.0, 0.5, 2.0], np.float32)
SCALE = 2.0


def leaf(values=X, dtype=np.float32):
    return tracer.tensor(np.array(values, dtype), requires_grad=True)


class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, dy):
        (y,) = ctx.saved_tensors
        return dy * y


class Odd(Function):
    """x * factor, with a gradient that nobody could guess: 10 * dy + x."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        return x * factor

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        return 10 * dy + x, None


def near(got, wanted, rtol=1e-6):
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=rtol, atol=1e-6)


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


class Split(Function):
    """(x + y, x * y, the sign of x, a string)."""

    seen: tuple = ()

    @staticmethod
    def forward(ctx, x, y, name):
        sign = x.sign()
        ctx.mark_non_differentiable(sign)
        ctx.save_for_backward(x, None, y)
        return x + y, x * y, sign, name

    @staticmethod
    def backward(ctx, d_sum, d_product, d_sign, nothing):
        Split.seen = (d_sum, d_product, d_sign, nothing)
        x, none, y = ctx.saved_tensors
        assert none is None
        dy = d_sum + d_product * x if ctx.needs_input_grad[1] else None
        return d_sum + d_product * y, dy, None


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


def failing(forward=lambda ctx, x: x * 2, backward=lambda ctx, dy: dy):
    return type(
        "Failing",
        (Function,),
        {"forward": staticmethod(forward), "backward": staticmethod(backward)},
    )


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


# ---- in traces -----------------------------------------------------------------------------------


def test_traced_it_is_one_node_and_one_kernel() -> None:
    @trace
    def f(x):
        return Exp.apply(x * 2) + 1

    graph = f.ir(X)
    ir.verify(graph)
    assert [n.op.name for n in graph.nodes] == ["Constant", "Mul", "Call", "Constant", "Add"]
    call = graph.nodes[2]
    assert call.attrs.function == "Exp" and [n.op.name for n in call.blocks[0].nodes] == ["Exp"]
    assert "test_custom_functions.py" in call.source
    assert "test_custom_functions.py" in call.blocks[0].nodes[0].source
    text = ir.to_text(graph)
    assert '= Call[function="Exp"](%' in text
    assert ir.equal(ir.parse(text), graph)
    near(tracer.interpret.interpret(graph, [X])[0], np.exp(2 * X) + 1)
    near(f(X), np.exp(2 * X) + 1)
    assert len(f.plan(X).parts) == 1


def test_backward_inside_a_trace_and_of_a_traced_function() -> None:
    def step(x):
        loss = (Odd.apply(Exp.apply(x), SCALE) * 3).sum()
        loss.backward()
        return x.grad

    wanted = step(leaf())
    traced = trace(step)
    x = leaf()
    near(traced(x), wanted)
    near(x.grad, wanted)
    sources = [n.source for n in traced.ir(leaf()).nodes if n.origin.gradient]
    assert sources and all("test_custom_functions.py" in s for s in sources)

    forward = trace(lambda x: Odd.apply(Exp.apply(x), SCALE) * 3)
    x = leaf()
    y = forward(x)
    y.sum().backward()
    near(x.grad, wanted)


@pytest.mark.kernels("python")
def test_second_gradients_of_a_traced_function_use_backward_again() -> None:
    def second(f):
        x = leaf()
        (g,) = grad_of((f(x) ** 2).sum(), x, create_graph=True)
        return grad_of(g.sum(), x)[0]

    def f(x):
        return Odd.apply(x, 3)

    near(second(f), 200 + X + 1)
    near(second(trace(f)), 200 + X + 1)
    inside = trace(
        lambda x: tracer.grad(lambda x: tracer.grad(lambda x: (f(x) ** 2).sum())(x).sum())(x)
    )
    near(inside(X), 200 + X + 1)


def test_values_of_its_inside_that_are_used_elsewhere() -> None:
    class Leaky(Function):
        @staticmethod
        def forward(ctx, x, leaked):
            middle = x * 2
            leaked.append(middle)
            ctx.middle = middle + 1
            return Exp.apply(middle), x.sign()

        @staticmethod
        def backward(ctx, dy, d_sign):
            return dy * ctx.middle, None

    def f(x):
        leaked = []
        y, sign = Leaky.apply(x, leaked)
        return y + leaked[0], sign

    traced = trace(f)
    graph = traced.ir(leaf())
    ir.verify(graph)
    assert ir.equal(ir.parse(ir.to_text(graph)), graph)
    outer = graph.nodes[0]
    assert [n.op.name for n in outer.blocks[0].nodes].count("Call") == 1  # the inner Exp
    x = leaf()
    y, sign = traced(x)
    near(y.detach(), np.exp(2 * X) + 2 * X)
    near(sign.detach(), np.sign(X))
    y.sum().backward()
    near(x.grad, 2 * X + 1)


def test_a_trace_reads_tensors_from_around_forward() -> None:
    weight = tracer.tensor(X)

    class Weighted(Function):
        @staticmethod
        def forward(ctx, x):
            return x * weight

        @staticmethod
        def backward(ctx, dy):
            return dy * weight

    traced = trace(lambda x: Weighted.apply(x))
    x = leaf([1, 1, 1])
    y = traced(x)
    near(y.detach(), X)
    y.sum().backward()
    near(x.grad, X)
    with tracer.no_grad():
        weight.mul_(2)
    near(traced(x).detach(), 2 * X)


def test_numbers_that_forward_reads_are_noticed_when_they_change() -> None:
    global SCALE

    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            return x * SCALE

        @staticmethod
        def backward(ctx, dy):
            return dy * SCALE * 10

    traced = trace(lambda x: Scaled.apply(x))
    x = leaf()
    before, SCALE = SCALE, 2.0
    try:
        near(traced(x).detach(), 2 * X)
        SCALE = 5.0
        y = traced(x)
        near(y.detach(), 5 * X)
        y.sum().backward()
        near(x.grad, [50, 50, 50])
    finally:
        SCALE = before


def test_another_function_under_the_same_name_is_noticed() -> None:
    function = Exp
    traced = trace(lambda x: function.apply(x))
    near(traced(X), np.exp(X))
    function = failing()
    near(traced(X), 2 * X)


def test_a_float_argument_may_be_a_value_of_the_trace() -> None:
    traced = trace(lambda x, factor: Odd.apply(x, factor))
    for factor in (2.0, 3.0):
        x = leaf()
        y = traced(x, factor)
        near(y.detach(), factor * X)
        y.sum().backward()
        near(x.grad, 10 + X)
    assert traced.timings().traces == 1


def test_a_backward_that_computes_again_with_history_of_its_own() -> None:
    """Checkpointing: what lies between is not kept; parameters get their gradients from the inner backward."""
    weight = leaf([0.5, 1.0, 2.0])

    class Checkpoint(Function):
        @staticmethod
        def forward(ctx, function, x):
            ctx.function = function
            ctx.save_for_backward(x)
            return function(x)

        @staticmethod
        def backward(ctx, dy):
            x = ctx.saved_tensors[0].detach()
            x.requires_grad = True
            with tracer.enable_grad():
                y = ctx.function(x)
            tracer.autograd.backward(y, dy)
            return None, x.grad

    def layer(x):
        return (x * weight).tanh()

    def plain(x):
        return layer(layer(x)).sum()

    def sparing(x):
        return Checkpoint.apply(layer, Checkpoint.apply(layer, x)).sum()

    def step(loss, x):
        loss(x).backward()
        return x.grad

    results = []
    for run in (plain, sparing):
        for f in (step, trace(step)):
            weight.grad = None
            results.append((np.asarray(f(run, leaf())), np.asarray(weight.grad)))
    for dx, dw in results[1:]:
        near(dx, results[0][0])
        near(dw, results[0][1])
    with pytest.raises(tracer.TraceError, match=r"Call backward\(\) inside the traced function"):
        trace(sparing)(leaf())


def test_nested_traces_and_errors_inside() -> None:
    inner = trace(lambda x: Exp.apply(x))
    outer = trace(lambda x: inner(x).sum())
    x = leaf()
    outer(x).backward()
    near(x.grad, np.exp(X))
    bad = failing(backward=lambda ctx, dy: dy[:2])
    with pytest.raises(tracer.GradError, match="it must have the argument's shape"):
        trace(lambda x: tracer.grad(lambda x: bad.apply(x).sum())(x))(X)


# ---- ONNX ----------------------------------------------------------------------------------------


class QuickGelu(Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x)
        ctx.alpha = alpha
        return x * (x * alpha).sigmoid()

    @staticmethod
    def backward(ctx, dy):
        (x,) = ctx.saved_tensors
        s = (x * ctx.alpha).sigmoid()
        return dy * (s + x * s * (1 - s) * ctx.alpha), None

    @staticmethod
    def symbolic(g, x, alpha):
        assert x.type().sizes()[-1] == 3 and x.type().dtype == "float32"
        return g.op("com.microsoft::QuickGelu", x, alpha_f=alpha)


def model_of(f, *args, **kwargs):
    import onnx

    model = tracer.onnx.export(trace(f), args, **kwargs)
    onnx.checker.check_model(model, full_check=True)
    return model


def run(model, *arrays):
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString())
    feeds = {i.name: a for i, a in zip(session.get_inputs(), arrays, strict=True)}
    return session.run(None, feeds)


def nodes_of(model):
    return [f"{n.domain}::{n.op_type}".removeprefix("::") for n in model.graph.node]


def test_symbolic_says_what_it_is_in_onnx() -> None:
    def f(x):
        return QuickGelu.apply(x, 1.702) * 2

    model = model_of(f, X[None], dynamic_shapes={"x": {0: "n"}})
    assert nodes_of(model) == ["com.microsoft::QuickGelu", "Mul"]
    assert [(i.domain, i.version) for i in model.opset_import][1:] == [("com.microsoft", 1)]
    assert model_of(f, X[None], custom_opsets={"com.microsoft": 2}).opset_import[1].version == 2
    for wrong in ({"": 3}, {"my": 0}, {"my": "1"}):
        with pytest.raises(tracer.ExportError, match="custom_opsets"):
            model_of(f, X[None], custom_opsets=wrong)
    more = np.stack([X, X + 1])
    near(run(model, more)[0], np.asarray(f(more)))


def test_without_symbolic_it_exports_what_forward_recorded() -> None:
    model = model_of(lambda x: Exp.apply(x) + 1, X)
    assert nodes_of(model) == ["Exp", "Add"]
    near(run(model, X)[0], np.exp(X) + 1)


def test_a_training_step_exports_with_it() -> None:
    def step(x):
        return tracer.value_and_grad(lambda x: QuickGelu.apply(x, 1.5).sum())(x)

    model = model_of(step, X)
    assert nodes_of(model)[0] == "com.microsoft::QuickGelu"
    for got, wanted in zip(run(model, X), step(X), strict=True):
        near(got, np.asarray(wanted), rtol=1e-5)


class Everything(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x + y, x - y, x * y

    @staticmethod
    def symbolic(g, x, y):
        two = g.op("Constant", value_t=np.array([2.0], np.float32))
        a, b = g.op(
            "my.domain::Two", x, None, 0.5, y, outputs=2, n=3, names_s=["a", "b"], f=[0.5, 1.5]
        )
        clipped = g.op("Clip", b, -1.0, np.float32(1))
        cast = g.op("Cast", g.op("onnx::Mul", clipped, two), to_i=1)
        table = g.op(
            "my.domain::Table", cast, table_t=np.arange(20.0), k_i=7, t_t=2.5, s_s="x", w_f=1
        )
        return a, None, table


def test_the_forms_that_symbolic_can_build() -> None:
    graph = trace(lambda x, y: Everything.apply(x, y)).ir(X, X)
    form = graph.nodes[0].attrs.symbolic
    assert [n.operator for n in form.nodes][:2] == ["Constant", "my.domain::Two"]
    assert form.outputs[1] is None and dict(form.nodes[1].attributes)["n_i"] == 3
    text = ir.to_text(graph)
    assert "%3, %4 = my.domain::Two[n_i=3, names_s=[" in text and "(%0, None, 0.5, %1)" in text
    assert ir.equal(ir.parse(text, ir.constants(graph)), graph)
    assert ir.equal(ir.parse(ir.to_text(graph, inline=True)), graph)
    assert ir.fingerprint(graph) == ir.fingerprint(ir.parse(ir.to_text(graph, inline=True)))

    model = model_of(lambda x, y: Everything.apply(x, y), X, X)
    assert nodes_of(model) == [
        *("my.domain::Two", "Clip", "Mul", "Cast", "my.domain::Table"),
        "Sub",  # the result that has no form is what forward recorded
    ]
    (two,) = (n for n in model.graph.node if n.op_type == "Two")
    assert {a.name: a.type for a in two.attribute} == {"n": 2, "names": 8, "f": 6}
    assert two.input[1] == "" and len(two.output) == 2
    assert [o.type.tensor_type.elem_type for o in model.graph.output] == [1, 1, 1]


@pytest.mark.parametrize(
    "attribute",
    [
        *({"value_t": t} for t in (2.0, [2.0], np.float32(2))),
        *({"value": 2.0}, {"value_f": 2.0}, {"value_float_f": 2.0}, {"value_t": None}),
    ],
    ids=str,
)
def test_constants_of_forms_are_of_the_type_that_tensors_have(attribute) -> None:
    class Doubled(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def symbolic(g, x):  # a Tensor that is made here is a constant, also in a trace
            given = {k: tracer.tensor(1.0) * 2 if v is None else v for k, v in attribute.items()}
            return g.op("Mul", x, g.op("Constant", **given))

    near(run(model_of(lambda x: Doubled.apply(x), X), X)[0], 2 * X)


def exported(symbolic):
    function = type(
        "Made",
        (Function,),
        {"forward": staticmethod(lambda ctx, x: x * 2), "symbolic": staticmethod(symbolic)},
    )
    traced = trace(lambda x: function.apply(x))
    near(traced(X), 2 * X)  # whatever symbolic does, it runs
    return tracer.onnx.export(traced, (X,))


@pytest.mark.parametrize(
    ("symbolic", "message"),
    [
        (lambda g, x: g.op("Relu", x, slope_f=1.0), "Relu has no attribute 'slope_f'"),
        (lambda g, x: g.op("NoSuch", x), "ONNX has no operator NoSuch"),
        (lambda g, x: (x, x), "gave 2 values, forward gives 1 Tensors"),
        (lambda g, x: 1.0, "it gave 1.0; a result is what g.op gave"),
        (lambda g: None, "Made.symbolic failed: TypeError"),
        (lambda g, x: g.op("my::A", x, alpha_i=0.5), "the attribute alpha_i is integers, got 0.5"),
        (lambda g, x: g.op("my::A", x, alpha_f=x), "a value of the graph is no attribute"),
        (lambda g, x: g.op("my::A", "x"), "an input is a value of symbolic's"),
        (lambda g, x: g.op("no good", x), "the name of an operator"),
        (lambda g, x: g.op("my::A", x, outputs=0), "outputs is how many results"),
        (
            lambda g, x: g.op("my::A", g.op("Relu", x).type()),
            "the type of what g.op gave is not known",
        ),
    ],
)
def test_what_is_wrong_with_a_form_is_told_when_it_is_exported(symbolic, message: str) -> None:
    with pytest.raises(tracer.ExportError, match=re.escape(message)) as error:
        exported(symbolic)
    assert "test_custom_functions.py" in str(error.value)


def test_damaged_forms_in_a_text_are_refused() -> None:
    graph = trace(lambda x: QuickGelu.apply(x, 1.5)).ir(X[None])
    text = ir.to_text(graph)
    for old, new in (
        ("(%0); %1", "(%1); %1"),
        ("alpha_f=1.5", "alpha=1.5"),
        ("alpha_f=1.5", 'alpha_f="x"'),
        ("return (%1)}", "return (%2)}"),
        ("return (%1)}", "return (%1)"),
        ("QuickGelu[alpha_f=1.5](%0)", "QuickGelu[alpha_f=1.5](%5)"),
        ("symbolic={", "symbolic={3 inputs, "),
    ):
        assert old in text
        with pytest.raises(tracer.ParseError, match="line"):
            ir.parse(text.replace(old, new, 1))
    broken = Form(1, (FormNode("Relu", (Reference(0),), ()),), (Reference(1), Reference(1)))
    attrs = {"function": "F", "symbolic": broken}
    node = graph.nodes[0]
    with pytest.raises(tracer.ShapeError, match="more inputs or results than body"):
        node.op.infer([v.type for v in node.inputs], attrs, [b.signature for b in node.blocks])


# ---- against PyTorch -----------------------------------------------------------------------------


@pytest.mark.torch
@pytest.mark.parametrize("case", ["exp", "odd", "split", "same", "dirty", "power"])
def test_values_and_gradients_are_torch_s(case: str) -> None:
    import torch

    def results(base, tensor, grad, no_tensor):
        class Exp(base):
            forward = staticmethod(lambda ctx, x: save(ctx, x.exp()))
            backward = staticmethod(lambda ctx, dy: dy * ctx.saved_tensors[0])

        def save(ctx, y):
            ctx.save_for_backward(y)
            return y

        class Odd(base):
            forward = staticmethod(lambda ctx, x, k: save(ctx, x) * k)
            backward = staticmethod(lambda ctx, dy: (10 * dy + ctx.saved_tensors[0], None))

        class Split(base):
            @staticmethod
            def forward(ctx, x, k):
                sign = x.sign()
                ctx.mark_non_differentiable(sign)
                ctx.save_for_backward(x)
                return x + k, sign, no_tensor, x * x

            @staticmethod
            def backward(ctx, a, b, c, d):
                return a * 3 + b + d * 2 * ctx.saved_tensors[0], None

        class Same(base):
            forward = staticmethod(lambda ctx, x, k: (x, x.view(-1)))
            backward = staticmethod(lambda ctx, a, b: (a * 2 + b, None, None))

        class Dirty(base):
            @staticmethod
            def forward(ctx, x, k):
                x.mul_(k)
                ctx.mark_dirty(x)
                ctx.save_for_backward(x)
                return x

            @staticmethod
            def backward(ctx, dy):
                return dy * 20 * ctx.saved_tensors[0], None

        class Power(base):
            @staticmethod
            def forward(x, k):
                return x**k

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(inputs[0], output)
                ctx.k = inputs[1]

            @staticmethod
            def backward(ctx, dy):
                x, y = ctx.saved_tensors
                return dy * ctx.k * y / x, None

        x = tensor(X)
        if case == "exp":
            y = Exp.apply(x)
        elif case == "odd":
            y = Odd.apply(x, 3)
        elif case == "split":
            a, sign, _, b = Split.apply(x, 2)
            assert not sign.requires_grad
            y = a * b + sign
        elif case == "same":
            a, b = Same.apply(x, 2)
            y = a * b
        elif case == "dirty":
            y = x * 3
            Dirty.apply(y[1:], 2)
        else:
            y = Power.apply(x, 3)
        (g,) = grad((y * y).sum(), x, create_graph=True)
        (gg,) = grad(g.sum(), x)
        return [np.asarray(v.detach()) for v in (y, g, gg)]

    ours = results(Function, leaf, grad_of, "text")
    theirs = results(
        torch.autograd.Function,
        lambda a: torch.tensor(a, requires_grad=True),
        torch.autograd.grad,
        "text",
    )
    for got, wanted in zip(ours, theirs, strict=True):
        near(got, wanted, rtol=1e-5)
