"""Functions of the user's in traces."""

from __future__ import annotations

import numpy as np
import pytest

import tracer
from tests.support.custom_functions import Exp, Odd, X, failing, leaf, near
from tracer import ir, trace
from tracer.autograd import Function
from tracer.autograd import grad as grad_of

SCALE = 2.0


def test_traced_it_is_one_node_and_one_kernel() -> None:
    @trace
    def f(x):
        return Exp.apply(x * 2) + 1

    graph = f.ir(X)
    ir.verify(graph)
    assert [n.op.name for n in graph.nodes] == ["Constant", "Mul", "Call", "Constant", "Add"]
    call = graph.nodes[2]
    assert call.attrs.function == "Exp" and [n.op.name for n in call.blocks[0].nodes] == ["Exp"]
    assert "test_custom_functions_traced.py" in call.source
    assert "custom_functions.py" in call.blocks[0].nodes[0].source
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
    assert sources and all("test_custom_functions_traced.py" in s for s in sources)

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
