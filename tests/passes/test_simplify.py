"""Simplification: each declared equality evaluated on both sides, and what the rules make of graphs."""

from __future__ import annotations

import numpy as np
import pytest

from ops import table
from ops.compute import View
from ops.operator import ArrayData, Operator, run_reference
from ops.samples import cases, special_values
from ops.types import Type
from tracer.ir import verify
from tracer.ir.graph import Graph, GraphBuilder, Origin
from tracer.ir.interpreter import interpret
from tracer.passes.common_subexpressions import share_subexpressions
from tracer.passes.dead_code import remove_dead_code
from tracer.passes.decompose import decompose
from tracer.passes.simplify import simplify

OPERATORS = list(table.TABLE.values())


def same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    return (
        one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    )


def applied(op: Operator, *arrays: np.ndarray, **attrs: object) -> np.ndarray:
    return np.asarray(run_reference(op, list(arrays), op.normalize(attrs))[0])


# ---- what operators declare ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "op", [op for op in OPERATORS if op.algebra.neutral], ids=lambda op: op.name
)
def test_neutral_operands(op: Operator) -> None:
    for dtype in op.dtypes:
        x = special_values(dtype)
        for position, value in op.algebra.neutral.items():
            operands = [x, np.full(x.shape, value, x.dtype)]
            found = applied(op, *(operands if position else reversed(operands)))
            number = ~np.isnan(x.astype(np.float64))  # of NaN, NaN
            assert same_bits(found[number], x[number]), (dtype, position)
            assert np.isnan(found.astype(np.float64)[~number]).all()


@pytest.mark.parametrize(
    "op", [op for op in OPERATORS if op.algebra.cheaper], ids=lambda op: op.name
)
def test_cheaper_operators(op: Operator) -> None:
    for dtype in op.dtypes:
        x = special_values(dtype)
        for position, (value, name, second) in op.algebra.cheaper.items():
            operands = [x, np.full(x.shape, value, x.dtype)]
            found = applied(op, *(operands if position else reversed(operands)))
            other = applied(table.TABLE[name], x, np.full(x.shape, second, x.dtype))
            number = ~np.isnan(x.astype(np.float64))  # of NaN, NaN
            assert same_bits(found[number], other[number]), (dtype, position)
            assert np.isnan(other.astype(np.float64)[~number]).all()


@pytest.mark.parametrize(
    "op", [op for op in OPERATORS if op.algebra.involution], ids=lambda op: op.name
)
def test_involutions(op: Operator) -> None:
    for dtype in op.dtypes:
        x = special_values(dtype)
        assert same_bits(applied(op, applied(op, x)), x), dtype


@pytest.mark.parametrize(
    "op", [op for op in OPERATORS if op.algebra.conversion], ids=lambda op: op.name
)
def test_conversions_to_the_same_type(op: Operator) -> None:
    for dtype in op.dtypes:
        x = special_values(dtype)
        assert same_bits(applied(op, x, to=dtype), x), dtype


@pytest.mark.parametrize(
    "op",
    [op for op in OPERATORS if isinstance(op.compute, View) and op.compute.keeps_order],
    ids=lambda op: op.name,
)
def test_views_that_keep_the_order(op: Operator) -> None:
    for sample, _, (x,) in cases(op):
        assert same_bits(applied(op, x, **sample.attrs).ravel(), x.ravel())


def test_some_operators_declare_each_equality() -> None:
    for field in ("neutral", "cheaper", "involution", "conversion"):
        assert any(getattr(op.algebra, field) for op in OPERATORS)


# ---- graphs --------------------------------------------------------------------------------------

F = Type("float32", (2, 3))


def names(graph: Graph) -> list[str]:
    return [node.op.name for node in graph.nodes]


def simplified(build, *types: Type) -> tuple[Graph, Graph]:
    b = GraphBuilder()
    graph = b.build([build(b, *(b.input(t) for t in types))])
    simple = remove_dead_code(simplify(graph))
    verify(simple)
    arrays = [np.random.default_rng(0).standard_normal(t.shape).astype(t.numpy) for t in types]
    for one, other in zip(interpret(graph, arrays), interpret(simple, arrays), strict=True):
        assert same_bits(one, other)
    return graph, simple


@pytest.mark.parametrize(
    "build",
    [
        lambda b, x: b.op("Neg", b.op("Neg", x)),
        lambda b, x: b.op("Transpose", b.op("Transpose", x, perm=(1, 0)), perm=(1, 0)),
        lambda b, x: b.op("Transpose", x, perm=(0, 1)),
        lambda b, x: b.op("Reshape", b.op("Reshape", x, shape=(6,)), shape=(2, 3)),
        lambda b, x: b.op("Squeeze", b.op("Unsqueeze", x, axes=(1,)), axes=(1,)),
        lambda b, x: b.op("Mul", x, b.expand(b.like(1, x), (2, 3))),
        lambda b, x: b.op("Mul", b.like(1, x), x),
        lambda b, x: b.op("Div", x, b.op("Reshape", b.like(1, x), shape=(1, 1))),
        lambda b, x: b.op("Cast", x, to="float32"),
    ],
)
def test_what_changes_nothing_goes(build) -> None:
    _, simple = simplified(build, F)
    assert simple.outputs == simple.inputs


@pytest.mark.parametrize(
    "build",
    [
        lambda b, x: b.op("Mul", x, b.like(0, x)),  # not 0 for infinities
        lambda b, x: b.op("Add", x, b.like(0, x)),  # not x for -0.0
        lambda b, x: b.op("Div", b.like(1, x), x),
        lambda b, x: b.op(
            "Transpose",
            b.op("Transpose", b.op("Reshape", x, shape=(1, 2, 3)), perm=(1, 2, 0)),
            perm=(1, 2, 0),
        ),
        lambda b, x: b.op(
            "Mul", b.expand(b.op("Reshape", x, shape=(1, 2, 3)), (4, 2, 3)), b.like(1, x)
        ),
        lambda b, x: b.op("Cast", b.op("Cast", x, to="float16"), to="float32"),
        lambda b, x: b.op("Neg", b.op("Exp", x)),
    ],
)
def test_what_changes_something_stays(build) -> None:
    _, simple = simplified(build, F)
    assert simple.outputs[0] not in simple.inputs and simple.nodes


def test_constants_are_computed_where_results_are_exact() -> None:
    _, simple = simplified(
        lambda b, x: b.op("Mul", x, b.op("Sub", b.like(1, x), b.like(0.75, x))), F
    )
    assert names(simple).count("Sub") == 0 and 0.25 in [
        n.attrs["value"].array for n in simple.nodes if n.op.name == "Constant"
    ]
    _, simple = simplified(lambda b, x: b.op("Mul", x, b.op("Exp", b.like(1, x))), F)
    assert "Exp" in names(simple)


def test_broadcast_operands_are_read_as_they_were() -> None:
    _, simple = simplified(
        lambda b, x, y: b.op("Maximum", x, b.expand(y, (2, 3))), F, Type("float32", (3,))
    )
    assert names(simple) == ["Maximum"]
    _, simple = simplified(
        lambda b, x, y: b.op("Add", b.expand(x, (2, 3)), b.expand(y, (2, 3))),
        *[Type("float32", (3,))] * 2,
    )
    assert names(simple).count("Expand") == 1  # one of them gives the shape


def test_attributes_that_differ_in_a_bit_are_two() -> None:
    b = GraphBuilder()
    x = b.input(Type("float32", (2,)))
    padded = [b.op("Pad", x, pads=(1, 1), value=value) for value in (0.0, -0.0, 0.0)]
    shared = share_subexpressions(b.build(padded))
    assert len(shared.nodes) == 2 and shared.outputs[0] is shared.outputs[2]
    found = interpret(shared, [np.ones(2, np.float32)])
    assert not np.signbit(found[0][0]) and np.signbit(found[1][0])


def test_blocks_share_nothing_and_lose_their_composites() -> None:
    def branch(value: float) -> Graph:
        b = GraphBuilder()
        x = b.input(Type("float32", (2,)))
        return b.build([b.op("Softmax", b.op("Add", x, b.constant(value, "float32")), axis=0)])

    b = GraphBuilder()
    condition, x = b.input(Type("bool")), b.input(Type("float32", (2,)))
    one = b.constant(1.0, "float32")
    chosen = b.emit(
        table.TABLE["If"],
        (condition, b.op("Mul", x, one)),
        {},
        (branch(1.0), branch(1.0)),
        Origin(),
    )
    graph = b.build([chosen if not isinstance(chosen, tuple) else chosen[0]])
    verify(graph)
    for step in (decompose, simplify, share_subexpressions):
        after = step(graph)
        verify(after)
        for flag in (True, False):
            arrays = [np.array(flag), np.array([1.0, 2.0], np.float32)]
            np.testing.assert_allclose(
                interpret(after, arrays)[0], interpret(graph, arrays)[0], rtol=1e-6
            )
    assert not any(
        n.op.name == "Softmax" for block in decompose(graph).nodes[-1].blocks for n in block.nodes
    )


def test_array_data_is_kept_exactly() -> None:
    assert ArrayData.of(np.array(-0.0)) != ArrayData.of(np.array(0.0))
