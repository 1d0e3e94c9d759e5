"""`ir.differentiate`: gradients of graphs as graphs, against the eager engine, finite differences and the tape of traces."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tracer
from ops import samples
from ops.dims import Dim
from ops.errors import ArgumentError, GradError
from ops.operator import TABLE, ArrayData, NoGradient, Operator, ZeroGradient
from ops.types import Type, is_floating
from tests.support.graphs import chain
from tracer import Tensor, ir, trace
from tracer.autograd import Function
from tracer.dispatch.apply import BUILDER
from tracer.ir.differentiation import Differentiated
from tracer.ir.graph import Graph, GraphBuilder, Origin, Value
from tracer.ir.interpreter import interpret
from tracer.tracing.recording import output_gradients

Array = np.ndarray[Any, Any]

DIFFERENTIABLE = [
    op
    for op in TABLE.values()
    if op.samples
    and not op.random
    and not isinstance(op.vjp, NoGradient)
    and "float32" in op.dtypes
]
V3 = Type("float64", (3,))


def node_graph(op: Operator, arrays: Sequence[Array], attrs: Any) -> Graph:
    g = GraphBuilder("f")
    g.origin = Origin("Net", "net.py:3")
    results = g.op(op.name, *(g.input(Type.of(a)) for a in arrays), **attrs)
    return g.build(results if isinstance(results, tuple) else (results,))


def run(graph: Graph, arrays: Sequence[Any], **symbols: int) -> list[Array]:
    with np.errstate(all="ignore"):
        return interpret(graph, arrays, symbols=symbols)


def halves_of(graph: Graph, **how: Any) -> Differentiated:
    """Differentiated, with all that a graph must be."""
    halves = ir.differentiate(graph, **how)
    for half in (halves.forward, halves.backward, halves.joint()):
        ir.verify(half)
        assert ir.equal(half, ir.parse(ir.to_text(half), ir.constants(half)))
    assert halves.forward.signature.inputs == graph.signature.inputs
    assert halves.forward.signature.outputs[: len(graph.outputs)] == graph.signature.outputs
    return halves


def gradients(halves: Differentiated, arrays: Sequence[Any], cotangents: Sequence[Any]) -> Any:
    """The gradients, by the two halves."""
    count = len(halves.forward.outputs) - len(halves.residuals)
    return run(halves.backward, [*run(halves.forward, arrays)[count:], *cotangents])


# ---- against the eager engine --------------------------------------------------------------------


def ones(types: Sequence[Type]) -> list[Array]:
    return [np.full(t.shape, 1 + k, t.numpy) for k, t in enumerate(types)]  # type: ignore[arg-type]


def same_bits(found: Sequence[Array], wanted: Sequence[Any]) -> None:
    for a, b in zip(found, wanted, strict=True):
        b = np.zeros_like(a) if b is None else b.numpy()
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)
        assert a.tobytes() == b.tobytes() or np.isnan(a).any()


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
def test_gradients_of_every_operator_are_those_of_the_eager_engine(op: Operator) -> None:
    """First and second order, to the bit."""
    seen = 0
    for sample, dtype, arrays in samples.cases(op):
        if dtype not in ("float32", "float64"):
            continue
        graph = node_graph(op, arrays, sample.attrs)
        if not any(is_floating(v.type.dtype) for v in graph.outputs):
            continue
        halves = halves_of(graph)
        joint = halves.joint()
        floats = [joint.outputs[len(graph.outputs) + k].type for k in range(len(halves.wrt))]
        cotangents = ones([graph.outputs[k].type for k in halves.outputs])
        second = ones(floats)
        with np.errstate(all="ignore"):
            xs = [
                tracer.tensor(a, requires_grad=k in halves.wrt)
                if k in halves.wrt
                else tracer.tensor(a)
                for k, a in enumerate(arrays)
            ]
            results = BUILDER.op(op.name, *xs, **sample.attrs)
            ys = results if isinstance(results, tuple) else (results,)
            ys = tuple(ys[k] for k in halves.outputs)
            wanted = [xs[k] for k in halves.wrt]
            live = [k for k, y in enumerate(ys) if y.requires_grad]
            if not live:
                continue
            first = tracer.autograd.grad(
                [ys[k] for k in live],
                wanted,
                [tracer.tensor(cotangents[k]) for k in live],
                create_graph=True,
                materialize_grads=True,
            )
            same_bits(gradients(halves, arrays, cotangents), [g.detach() for g in first])  # type: ignore[union-attr]
            seen += 1
            again = [k for k, g in enumerate(first) if g is not None and g.requires_grad]
            if not again:
                continue
            expected = tracer.autograd.grad(
                [first[k] for k in again],
                wanted,
                [tracer.tensor(second[k]) for k in again],
                materialize_grads=True,
            )
            twice = ir.differentiate(joint, halves.wrt, [len(graph.outputs) + k for k in again])
            found = gradients(twice, [*arrays, *cotangents], [second[k] for k in again])
            same_bits(found, [g.detach() for g in expected])  # type: ignore[union-attr]
    assert seen or isinstance(op.vjp, ZeroGradient)


def finite_differences(graph: Graph, arrays: Sequence[Array], wrt: Sequence[int]) -> list[Array]:
    """Gradients of the sum of all outputs."""

    def total(changed: Sequence[Array]) -> float:
        return float(sum(y.sum() for y in run(graph, changed)))

    result = []
    for k in wrt:
        slope = np.zeros_like(arrays[k])
        for at in np.ndindex(arrays[k].shape):
            up, down = ([a.copy() for a in arrays] for _ in range(2))
            up[k][at] += 1e-5
            down[k][at] -= 1e-5
            slope[at] = (total(up) - total(down)) / 2e-5
        result.append(slope)
    return result


def test_a_graph_of_several_nodes_against_finite_differences(rng: np.random.Generator) -> None:
    g = GraphBuilder("f")
    x, w = g.input(Type("float64", (2, 3)), "x"), g.input(Type("float64", (3, 4)), "w")
    b = g.input(Type("float64", (4,)), "b")
    h = g.Tanh(g.Add(g.MatMul(x, w), b))
    p = g.Softmax(h, axis=1)
    graph = g.build([g.Mul(g.Silu(p), h), g.ReduceSum(g.Exp(x), axes=(0, 1), keepdims=False)])
    arrays = [rng.standard_normal(v.type.shape) for v in graph.inputs]
    halves = halves_of(graph)
    found = gradients(halves, arrays, [np.ones((2, 4)), np.ones(())])
    for a, wanted in zip(found, finite_differences(graph, arrays, (0, 1, 2)), strict=True):
        np.testing.assert_allclose(a, wanted, rtol=1e-7, atol=1e-9)


# ---- what is kept, and what is not ---------------------------------------------------------------


def test_residuals_are_what_rules_read() -> None:
    g = GraphBuilder("f")
    x, y = g.input(V3, "x"), g.input(V3, "y")
    e = g.Exp(g.Add(x, y))
    graph = g.build([g.Mul(g.Neg(e), g.constant(2.0, "float64"))])
    halves = halves_of(graph)
    assert halves.forward.outputs[1:] == (e,)  # not the sum, and no constant
    assert halves.forwarded == (None,) and halves.residuals == (V3,)
    assert [n.op.name for n in halves.backward.nodes].count("Constant") == 1
    only = halves_of(g.build([g.Add(x, g.Mul(x, y))]), wrt=[1])
    assert only.forward.outputs[1:] == (x,)
    assert only.forwarded == (0,) and only.backward.input_names == ("x", "")


def test_which_inputs_and_outputs() -> None:
    g = GraphBuilder("f")
    x, n = g.input(V3, "x"), g.input(Type("int64", (3,)), "n")
    g.input(V3, "w")
    graph = g.build([g.Sin(x), g.Add(n, n), g.Cos(x), x])
    halves = halves_of(graph)
    assert (halves.wrt, halves.outputs) == ((0, 2), (0, 2, 3))
    a = np.array([0.1, 0.2, 0.3])
    dx, dw = gradients(halves, [a, np.arange(3), a], [np.ones(3), np.zeros(3), 2 * np.ones(3)])
    np.testing.assert_allclose(dx, np.cos(a) + 2)
    assert not dw.any()
    some = halves_of(graph, outputs=[2], materialize_grads=False)
    assert some.wrt == (0,) and len(some.backward.outputs) == 1
    with pytest.raises(
        GradError, match=r"input 1, int64\[3\], has no gradient: it is not floating"
    ):
        ir.differentiate(graph, wrt=[1])
    with pytest.raises(GradError, match="output 1"):
        ir.differentiate(graph, outputs=[1])
    with pytest.raises(ArgumentError, match="the graph has 3 inputs, there is no input 3"):
        ir.differentiate(graph, wrt=[3])


def test_an_output_that_is_an_input_or_stands_twice() -> None:
    g = GraphBuilder()
    x = g.input(V3)
    y = g.Sin(x)
    halves = halves_of(g.build([x, y, y]))
    a, one = np.array([0.1, 0.2, 0.3]), np.ones(3)
    np.testing.assert_allclose(gradients(halves, [a], [one, one, one])[0], 1 + 2 * np.cos(a))


def test_composites_are_decomposed_where_gradients_go_through_them_only() -> None:
    name = next(
        op.name
        for op in DIFFERENTIABLE
        if type(op.vjp).__name__ == "Derived" and len(op.inputs) == 1
    )
    sample, _, (array, *_rest) = next(c for c in samples.cases(TABLE[name]) if c[1] == "float32")
    g = GraphBuilder()
    x, y = g.input(Type.of(array)), g.input(Type.of(array))
    graph = g.build([g.op(name, x, **sample.attrs), g.op(name, y, **sample.attrs)])
    names = [n.op.name for n in halves_of(graph, wrt=[0]).forward.nodes]
    assert names.count(name) == 1 and len(names) > 2


def test_weak_and_symbolic_types() -> None:
    n = Dim.symbol("n")
    g = GraphBuilder("f")
    x = g.input(Type("float32", (n, 2)), "x")
    rate = g.input(Type("float32", (), weak=True), "rate")
    graph = g.build([g.ReduceMean(g.Mul(x, rate), axes=(0,), keepdims=False), g.Mul(rate, rate)])
    halves = halves_of(graph)
    assert graph.outputs[1].type.weak
    assert not any(v.type.weak for v in halves.backward.outputs)
    assert [v.type.weak for v in halves.backward.inputs[len(halves.residuals) :]] == [False, False]
    a = np.ones((4, 2), np.float32)
    dx, drate = run(halves.joint(), [a, np.float32(3), np.ones(2, np.float32), np.float32(1)])[2:]
    np.testing.assert_array_equal(dx, np.full((4, 2), 0.75, np.float32))
    assert drate == 8


def test_origins_are_those_of_the_nodes_that_gradients_go_back_over() -> None:
    g = GraphBuilder("f")
    x = g.input(V3)
    g.origin = Origin("Net/Linear[0]", "net.py:1")
    y = g.Exp(x)
    g.origin = Origin("Net", "net.py:2")
    halves = halves_of(g.build([g.Mul(y, y)]))
    assert [n.origin for n in halves.backward.nodes] == [
        *[Origin("Net", "net.py:2", gradient=True)] * 3,
        Origin("Net/Linear[0]", "net.py:1", gradient=True),
    ]


def test_zero_times_anything_is_zero() -> None:
    g = GraphBuilder()
    x = g.input(V3)
    halves = halves_of(g.build([g.Sqrt(x)]))
    (dx,) = gradients(halves, [np.array([0.0, 4.0, 0.0])], [np.array([0.0, 1.0, 1.0])])
    np.testing.assert_array_equal(dx, [0, 0.25, np.inf])


def test_a_long_chain_takes_linear_time_and_no_recursion() -> None:
    def seconds(length: int) -> float:
        graph = chain(length)
        start = time.perf_counter()
        halves = ir.differentiate(graph)
        assert len(halves.backward.nodes) > length
        return time.perf_counter() - start

    short = min(seconds(5_000) for _ in range(2))
    assert seconds(100_000) < 60 * short + 2  # 20 if linear, 400 if quadratic


# ---- blocks --------------------------------------------------------------------------------------

Build = Callable[..., Sequence[Value]]


def choice(then: Build, other: Build, *types: Type, name: str = "f") -> Graph:
    """A graph of one If, and a product behind it."""
    g = GraphBuilder(name)
    condition = g.input(Type("bool"), "c")
    xs = [g.input(t) for t in types]
    results = g.op("If", condition, *xs, blocks=(g.block(types, then), g.block(types, other)))
    results = results if isinstance(results, tuple) else (results,)
    return g.build([g.Mul(y, y) if is_floating(y.type.dtype) else y for y in results])


def nested(g: GraphBuilder, x: Value, y: Value) -> Sequence[Value]:
    positive = g.Less(g.constant(0.0, "float64"), g.ReduceSum(x, axes=(0,), keepdims=False))
    inner = (
        g.block([V3, V3], lambda b, x, y: [b.Mul(b.Exp(x), y)]),
        g.block([V3, V3], lambda b, x, y: [b.Silu(b.Sin(y))]),
    )
    return [g.op("If", positive, x, y, blocks=inner), x]


CHOICES = {
    "both compute": choice(
        lambda g, x, y: [g.Mul(g.Sin(x), y)], lambda g, x, y: [g.Exp(g.Silu(x))], V3, V3
    ),
    "one is an operand": choice(lambda g, x, y: [x, y], lambda g, x, y: [g.Tanh(y), x], V3, V3),
    "constant": choice(
        lambda g, x: [g.expand(g.constant(3.0, "float64"), (3,))], lambda g, x: [g.Exp(x)], V3
    ),
    "decomposed": choice(
        lambda g, x, y: [g.Softplus(x), g.Mish(y)],
        lambda g, x, y: [g.Softmax(g.Mul(x, y), axis=0), g.LogSoftmax(x, axis=0)],
        V3, V3,
    ),
    "nested": choice(nested, lambda g, x, y: [g.Cos(x), g.Sin(y)], V3, V3),
    "whole numbers beside": choice(
        lambda g, x, n: [g.Gather(x, n, axis=0), n],
        lambda g, x, n: [g.Exp(x), g.Add(n, n)],
        V3, Type("int64", (3,)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("name", CHOICES)
def test_gradients_through_a_choice(name: str, taken: bool, rng: np.random.Generator) -> None:
    """First and second order, against finite differences."""
    graph = CHOICES[name]
    arrays: list[Array] = [np.array(taken)]
    for v in graph.inputs[1:]:
        whole = v.type.dtype == "int64"
        arrays.append(np.array([2, 0, 0]) if whole else rng.standard_normal(3))
    for signs in (1, -1):
        arrays = [a * signs if is_floating(a.dtype.name) else a for a in arrays]
        halves = halves_of(graph)
        one = [np.ones(3) for _ in halves.outputs]
        found = gradients(halves, arrays, one)
        part = Graph(graph.inputs, graph.nodes, tuple(graph.outputs[k] for k in halves.outputs))
        for a, wanted in zip(found, finite_differences(part, arrays, halves.wrt), strict=True):
            np.testing.assert_allclose(a, wanted, rtol=1e-6, atol=1e-8)
        joint = halves.joint()
        outputs = range(len(graph.outputs), len(joint.outputs))
        first = Graph(joint.inputs, joint.nodes, joint.outputs[len(graph.outputs) :])
        twice = halves_of(joint, wrt=halves.wrt, outputs=outputs)
        found = gradients(twice, [*arrays, *one], [np.ones(3) for _ in outputs])
        slopes = finite_differences(first, [*arrays, *one], halves.wrt)
        for a, wanted in zip(found, slopes, strict=True):
            np.testing.assert_allclose(a, wanted, rtol=1e-5, atol=1e-7)


def test_branches_keep_what_their_own_gradients_read() -> None:
    """Residuals of one type share a place, and operands are not kept again."""
    (node,) = [n for n in halves_of(CHOICES["both compute"]).forward.nodes if n.blocks]
    assert len(node.outputs) == 2  # the result; the sine, or the exponent's operand
    graph = choice(lambda g, x, y: [g.Mul(x, x)], lambda g, x, y: [g.Neg(x)], V3, V3)
    halves = halves_of(graph)
    assert halves.forward.nodes == graph.nodes
    assert halves.forward.outputs[1:] == (graph.nodes[0].output, *graph.inputs[:2])


def test_a_choice_that_no_gradient_goes_through_stays() -> None:
    graph = CHOICES["both compute"]
    halves = halves_of(graph, wrt=[])
    assert halves.forward.nodes == graph.nodes and halves.backward.nodes == ()


def test_weak_residuals_of_one_branch() -> None:
    weak = Type("float64", (), weak=True)
    graph = choice(
        lambda g, x: [g.Mul(g.Sin(x), x)],
        lambda g, x: [g.Mul(x, g.op("Constant", value=ArrayData.of(np.zeros(())), weak=True))],
        weak,
    )
    halves = halves_of(graph)
    for taken in (True, False):
        (dx,) = gradients(halves, [np.array(taken), np.array(0.5)], [np.array(1.0)])
        assert dx == (
            pytest.approx(2 * 0.5 * np.sin(0.5) * (np.sin(0.5) + 0.5 * np.cos(0.5))) if taken else 0
        )


def test_a_call_of_a_function_of_the_user_s_has_no_gradient_in_a_graph() -> None:
    g = GraphBuilder()
    x = g.input(V3)
    body = g.block([V3], lambda b, x: [b.Exp(x)])
    g.origin = Origin("Net", "net.py:3")
    graph = g.build([g.op("Call", x, function="F", symbolic=None, blocks=(body,))])
    with pytest.raises(GradError, match=r"Call has no gradient: its .*; recorded at net\.py:3"):
        ir.differentiate(graph)
    assert ir.differentiate(graph, wrt=[]).backward.outputs == ()


# ---- traces --------------------------------------------------------------------------------------


def detached(x: Tensor, w: Tensor) -> Any:
    y = x.detach() * x + w
    with tracer.no_grad():
        z = x * w
    return (y * z).sum(), y[0]


def changed(x: Tensor, w: Tensor) -> Any:
    y = x * 2
    z = y.exp()
    y[1:] = w[1:]
    y.mul_(x)
    return y * z, z


def own_leaf(x: Tensor, w: Tensor) -> Any:
    leaf = x.detach().requires_grad_()
    return leaf, (leaf * w).sum() + leaf.sin().sum()


def used_inside(x: Tensor, w: Tensor) -> Any:
    (g,) = tracer.autograd.grad((x * x * w).sum(), x, create_graph=True)
    return g, (g * g).sum(), x.floor() * w


def rows(x: Tensor, w: Tensor) -> Any:
    return [tracer.softmax(x[k] * w, 0) for k in range(2)], x.std() + x.clamp(-0.5, 0.5).sum()


PROGRAMS = [detached, changed, own_leaf, used_inside]


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which way gradients of results were found; where by a graph, it is what the tape finds, to the node."""
    taken: list[str] = []
    by_graph = output_gradients._by_graph

    def program(recorder: Any, way: Any) -> tuple[Any, Any]:
        found = [g for g in way.gradients if g is not None]
        return output_gradients.partition(
            way.nodes, way.cotangents, found, recorder.made.get, "f.backward"
        )

    def both(recorder: Any, outputs: Any, sources: Any) -> Any:
        found = by_graph(recorder, outputs, sources)
        taken.append("tape" if found is None else "graph")
        if found is not None:
            other = output_gradients._by_tape(recorder, outputs, sources)
            (mine, read), (wanted, kept) = program(recorder, found), program(recorder, other)
            assert all(a is b for a, b in zip(read, kept, strict=True))
            assert ir.fingerprint(mine, origins=False) == ir.fingerprint(wanted, origins=False)
        return found

    monkeypatch.setattr(output_gradients, "_by_graph", both)
    return taken


@pytest.mark.kernels("python")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_results_of_traces_are_differentiated_as_graphs(program: Any, ways: list[str]) -> None:
    x = tracer.tensor(np.float32([0.25, -1.5, 2]), requires_grad=True)
    w = tracer.tensor(np.float32([3, 0.5, -2]), requires_grad=True)
    totals = []
    for f in (program, trace(program)):
        x.grad = w.grad = None
        results = f(x, w)
        sum((y * y).sum() for y in results if y.requires_grad).backward()
        totals.append([x.grad, w.grad])
    assert ways == ["graph"]
    for a, b in zip(*totals, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-6)


class Doubled(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 2


def hooked(x: Tensor) -> Tensor:
    y = x.sin()
    y.register_hook(lambda g: g * 2)
    return y * x


@pytest.mark.kernels("python")
@pytest.mark.parametrize("f", [lambda x: Doubled.apply(x.sin()), hooked], ids=["Function", "hook"])
def test_what_runs_python_stays_on_the_tape(f: Any, ways: list[str]) -> None:
    x = tracer.tensor(np.float32([0.25, -1.5, 2]), requires_grad=True)
    trace(f)(x).sum().backward()
    assert ways == ["tape"]
    traced, x.grad = x.grad, None
    f(x).sum().backward()
    np.testing.assert_allclose(traced.detach(), x.grad.detach(), rtol=1e-6)  # type: ignore[union-attr]
