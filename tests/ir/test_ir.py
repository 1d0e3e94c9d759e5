"""The IR as text and back, its identity, its invariants."""

from __future__ import annotations

import doctest
import pickle
import random
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ops.dims import Dim
from ops.errors import VerifyError
from ops.operator import TABLE, ArrayData, Attributes, Operator
from ops.types import Type
from tests.support.graphs import (
    AWKWARD,
    OPERATORS,
    chain,
    full_graph,
    random_graph,
    random_type,
    sample_graphs,
)
from tracer import ir
from tracer.ir.graph import NOWHERE, Graph, GraphBuilder, Node, Origin, Value

N = Dim.symbol("n")
F = Type("float32", (2,))
EMPTY = Graph((), (), ())


def round_trip(graph: Graph) -> Graph:
    """The graph that its text gives, after all comparisons."""
    text, constants = ir.to_text(graph), ir.constants(graph)
    again = ir.parse(text, constants)
    assert ir.equal(graph, again)
    assert ir.to_text(again) == text
    assert ir.fingerprint(again) == ir.fingerprint(graph)
    assert ir.fingerprint(again, origins=False) == ir.fingerprint(graph, origins=False)
    assert ir.equal(graph, ir.parse(ir.to_text(graph, inline=True)))
    ir.verify(again)
    return again


# ---- the form ------------------------------------------------------------------------------------


def test_the_text_has_the_form_of_torch_onnx() -> None:
    g = GraphBuilder("Net")
    weight = g.input(Type("float32", (3, 4)), "features.0.weight")
    x = g.input(Type("float32", (10, 3)), "x")
    g.origin = Origin("Net/Sequential[features]/Linear[0]", "examples/net.py:21")
    y = g.MatMul(x, weight)
    g.origin = Origin("Net/Sequential[features]/Relu[1]", "examples/net.py:21", gradient=True)
    z = g.ReduceSum(g.Relu(y), axes=(1,), keepdims=False)
    text = """\
graph(%features.0.weight : Float(3, 4)
      %x : Float(10, 3)) {  # Net
  %2 : Float(10, 4) = MatMul(%x, %features.0.weight), scope: Net/Sequential[features]/Linear[0]  # examples/net.py:21
  %3 : Float(10, 4) = Relu(%2), scope: Net/Sequential[features]/Relu[1]  # gradient of examples/net.py:21
  %4 : Float(10) = ReduceSum[axes=[1], keepdims=False](%3), scope: Net/Sequential[features]/Relu[1]  # gradient of examples/net.py:21
  return (%4);
}
"""  # noqa: E501
    assert str(g.build([z])) == text


def test_an_empty_graph() -> None:
    assert ir.to_text(EMPTY) == "graph() {\n  return ();\n}\n"
    round_trip(EMPTY)


def test_results_can_be_named_in_the_text() -> None:
    g = GraphBuilder()
    x = g.input(Type("float32", (2,)), "x")
    graph = g.build([g.Exp(x), x, g.Neg(x)])
    text = ir.to_text(graph, output_names=["output1", "unused", "not plain"])
    assert "%output1 : Float(2) = Exp(%x)" in text
    assert "return (%output1, %x, %2);" in text
    assert ir.equal(ir.parse(text), graph)


def test_blocks_are_printed_under_their_node_with_names_of_their_own() -> None:
    b = GraphBuilder()
    x = b.input(Type("float32"), "x")
    block = b.build([b.Neg(x)])
    g = GraphBuilder()
    c, y = g.input(Type("bool"), "c"), g.input(Type("float32"), "y")
    g.origin = Origin("f", "a.py:3")
    z = g.emit(TABLE["If"], (c, y), {}, (block, block))
    graph = g.build([g.Exp(z)])
    assert (
        ir.to_text(graph)
        == """\
graph(%c : Bool()
      %y : Float()) {
  %2 : Float() = If(%c, %y), scope: f  # a.py:3
    graph(%x : Float()) {
      %1 : Float() = Neg(%x)
      return (%1);
    }
    graph(%x : Float()) {
      %1 : Float() = Neg(%x)
      return (%1);
    }
  %3 : Float() = Exp(%2), scope: f  # a.py:3
  return (%3);
}
"""
    )
    round_trip(graph)


# ---- round trips ---------------------------------------------------------------------------------


@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: op.name)
def test_every_sample_of_the_table_survives(op: Operator) -> None:
    for graph in sample_graphs(op):
        ir.verify(graph)
        round_trip(graph)


def test_everything_that_a_graph_can_hold_survives() -> None:
    graph = full_graph()
    ir.verify(graph)
    again = round_trip(graph)
    assert again.name == graph.name
    assert again.input_names == graph.input_names
    for a, b in zip(graph.nodes, again.nodes, strict=True):
        assert a.origin == b.origin
        assert [v.type for v in a.outputs] == [v.type for v in b.outputs]
        assert list(a.attrs) == list(b.attrs)


def test_constants_keep_their_bits() -> None:
    g = GraphBuilder()
    graph = g.build([g.op("Constant", value=value) for value in AWKWARD])
    again = round_trip(graph)
    for node, value in zip(again.nodes, AWKWARD, strict=True):
        assert node.attrs.value == value


def test_large_constants_stand_beside_the_text() -> None:
    large = np.arange(100.0)
    g = GraphBuilder()
    graph = g.build([g.op("Constant", value=ArrayData.of(a)) for a in (large, large[:16], large)])
    table = ir.constants(graph)
    ((key, value),) = table.items()
    assert value.array.tolist() == large.tolist()
    text = ir.to_text(graph)
    assert text.count(f"Double(100)@{key}") == 2
    assert len(text) < 1000
    assert ir.equal(ir.parse(text, {key: large}), graph), "an array will do"


@given(st.integers(0, 2**32), st.integers(1, 30))
def test_random_graphs_survive(seed: int, count: int) -> None:
    graph = random_graph(seed, count)
    ir.verify(graph)
    round_trip(graph)


@given(st.text(max_size=20), st.text(max_size=20), st.text(max_size=20), st.booleans())
@example("1", "2", "0", False)
@example("", "", "0.weight", False)
@example("", "", "3", False)
@example("gradient", "a, b", "gradient of a.py:1", True)
def test_any_names_scopes_and_sources_survive(
    name: str, scope: str, source: str, gradient: bool
) -> None:
    g = GraphBuilder(name)
    x = g.input(Type("float32"), source)
    y = g.input(Type("float32"), source)
    g.origin = Origin(scope, source, gradient)
    round_trip(g.build([g.Add(x, y)]))


@given(st.integers(0, 2**32))
def test_any_types_survive(seed: int) -> None:
    draw = random.Random(seed)
    g = GraphBuilder()
    inputs = [g.input(random_type(draw)) for _ in range(5)]
    round_trip(g.build(inputs))


@pytest.mark.parametrize(
    "value", [0.1, -0.0, 1e-320, 1e300, float("inf"), float("-inf"), float("nan"), 1.0, 3e22]
)
def test_float_attributes_keep_their_bits(value: float) -> None:
    g = GraphBuilder()
    x = g.input(Type("float32", (3,)), "x")
    round_trip(g.build([g.LeakyRelu(x, alpha=value)]))


def test_float_attributes_that_are_other_nans_keep_their_bits() -> None:
    odd = np.array([0x7FF8 << 48 | 5, 0xFFF8 << 48], np.uint64).view(np.float64)
    g = GraphBuilder()
    x = g.input(Type("float32", (3,)), "x")
    for value in odd:
        x = g.LeakyRelu(x, alpha=float(value))
    text = ir.to_text(g.build([x]))
    assert "alpha=nan:0x7ff8000000000005" in text and "alpha=nan:0xfff8000000000000" in text
    round_trip(g.build([x]))


def test_a_graph_survives_pickling() -> None:
    graph = full_graph()
    assert ir.equal(pickle.loads(pickle.dumps(graph)), graph)


# ---- identity ------------------------------------------------------------------------------------


def changed() -> dict[str, Graph]:
    """The same small graph, and others that differ from it in one thing each."""

    def build(
        name: str = "",
        inputs: tuple[str, ...] = ("x", "y"),
        type_: Type = F,
        op: str = "Add",
        swap: bool = False,
        origin: Origin = NOWHERE,
        constant: float = 0.0,
        alpha: float = 0.01,
        output: int = -1,
    ) -> Graph:
        g = GraphBuilder(name)
        x, y = (g.input(type_, n) for n in inputs)
        g.origin = origin
        a = g.op(op, *((y, x) if swap else (x, y)))
        b = g.Where(g.Less(a, x), x, g.LeakyRelu(y, alpha=alpha))
        c = g.constant(constant, "float64")
        return g.build([a, b, c][output:])

    return {
        "same": build(),
        "name": build(name="f"),
        "input name": build(inputs=("x", "z")),
        "shape": build(type_=Type("float32", (3,))),
        "dtype": build(type_=Type("float16", (2,))),
        "weak": build(type_=Type("float32", (2,), weak=True)),
        "symbol": build(type_=Type("float32", (N,))),
        "operator": build(op="Sub"),
        "operands": build(swap=True),
        "scope": build(origin=Origin("f")),
        "source": build(origin=Origin("", "a.py:1")),
        "gradient": build(origin=Origin("", "", gradient=True)),
        "sign of zero": build(constant=-0.0),
        "NaN": build(constant=float("nan")),
        "attribute": build(alpha=0.02),
        "outputs": build(output=-2),
    }


def test_graphs_that_differ_in_one_thing_are_different() -> None:
    graphs = changed()
    for first, a in graphs.items():
        for second, b in graphs.items():
            same = first == second
            assert ir.equal(a, b) == same, (first, second)
            assert (ir.fingerprint(a) == ir.fingerprint(b)) == same, (first, second)
            assert (ir.to_text(a) == ir.to_text(b)) == same, (first, second)
    assert ir.equal(graphs["same"], changed()["same"])
    assert ir.fingerprint(graphs["same"]) == ir.fingerprint(changed()["same"])


def test_a_fingerprint_without_origins_is_of_what_is_computed() -> None:
    graphs = changed()
    alike = {"same", "name", "input name", "scope", "source", "gradient"}
    base = ir.fingerprint(graphs["same"], origins=False)
    for name, graph in graphs.items():
        assert (ir.fingerprint(graph, origins=False) == base) == (name in alike), name


def test_fingerprints_are_the_same_in_every_process(run_python) -> None:
    code = "from tests.support.graphs import full_graph; from tracer import ir; "
    code += "print(ir.fingerprint(full_graph()))"
    seeds = [{"PYTHONHASHSEED": seed} for seed in "12"]
    found = {run_python(code, environment=e).stdout.strip() for e in seeds}
    assert found == {ir.fingerprint(full_graph())}


# ---- invariants ----------------------------------------------------------------------------------


def node(name: str, inputs: tuple[Value, ...], type_: Type, **attrs: object) -> Node:
    op = TABLE[name]
    return Node(op, inputs, op.normalize(attrs), (Value(type_),), Origin("", "a.py:9"))


X = Value(F)
ADD = node("Add", (X, X), F)
STRANGER = Value(F)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (Graph((X,), (node("Add", (X, STRANGER), F),), ()), "operand 1 is not defined before"),
        (Graph((X,), (node("Neg", (ADD.output,), F), ADD), ()), "operand 0 is not defined before"),
        (Graph((X,), (ADD, ADD), ()), "defined already"),
        (Graph((X,), (replace(ADD, outputs=(X,)),), ()), "defined already"),
        (Graph((X, X), (), ()), "same value as input twice"),
        (Graph((X,), (), (STRANGER,)), "output 0 of the graph is not defined"),
        (Graph((X,), (), (), ("x", "y")), "1 inputs and 2 names"),
        (
            Graph((X,), (node("Add", (X, X), Type("float32", (3,))),), ()),
            "gives Float.2., the",
        ),
        (Graph((X,), (node("Add", (X, X), Type("float64", (2,))),), ()), "the node Double"),
        (Graph((X,), (node("Add", (X, X), replace(F, weak=True)),), ()), "the node Float~"),
        (Graph((X,), (node("Add", (X, X, X), F),), ()), "takes the operands .x, y., got 3"),
        (Graph((X,), (node("Exp", (), F),), ()), "takes the operands .x., got 0"),
        (Graph((X,), (replace(ADD, outputs=()),), ()), "the node nothing"),
        (Graph((X,), (replace(ADD, op=replace(ADD.op)),), ()), "not the one of that name"),
        (Graph((X,), (replace(ADD, attrs=Attributes(axis=1)),), ()), "no attribute 'axis'"),
        (
            Graph((X,), (replace(ADD, blocks=(EMPTY,)),), ()),
            "its blocks are none, got 1",
        ),
        (Graph((X,), (node("If", (X,), F),), ()), "then_branch and else_branch, got 0"),
    ],
)
def test_broken_graphs_are_refused(graph: Graph, message: str) -> None:
    with pytest.raises(VerifyError, match=message) as caught:
        ir.verify(graph)
    str(graph)  # prints all the same
    if graph.nodes:
        line = str(caught.value).splitlines()[-1]
        assert "  # a.py:9" in line and line.startswith("  line ")


def test_attributes_must_be_in_normal_form() -> None:
    right = node("ReduceSum", (X,), Type("float32", ()), axes=(0,), keepdims=False)
    ir.verify(Graph((X,), (right,), ()))
    for wrong in ({"axes": [0], "keepdims": False}, {"axes": (0,), "keepdims": 0}):
        graph = Graph((X,), (replace(right, attrs=Attributes(wrong)),), ())
        with pytest.raises(VerifyError, match="attribute"):
            ir.verify(graph)
    swapped = Attributes({"keepdims": False, "axes": (0,)})
    with pytest.raises(VerifyError, match="in this order"):
        ir.verify(Graph((X,), (replace(right, attrs=swapped),), ()))


def test_blocks_must_be_closed_and_fit() -> None:
    condition = Value(Type("bool"))
    inner = Value(F)
    closed = Graph((inner,), (node("Neg", (inner,), F),), (inner,))
    other = Value(Type("float64", (2,)))
    op = TABLE["If"]

    def verify(*blocks: Graph) -> None:
        it = Node(op, (condition, X), op.normalize({}), (Value(F),), Origin("", "a.py:9"), blocks)
        ir.verify(Graph((condition, X), (it,), ()))

    verify(closed, closed)
    for blocks, message in (
        ((closed, Graph((Value(F),), (), (X,))), "output 0 of the graph is not defined"),
        ((closed, Graph((inner,), (node("Neg", (X,), F),), (inner,))), "operand 0 is not defined"),
        ((closed, Graph((other,), (), (other,))), "else_branch takes"),
        ((closed, Graph((inner,), (), ())), "results of one type"),
    ):
        with pytest.raises(VerifyError, match=message):
            verify(*blocks)


def test_the_message_shows_the_line_of_the_text() -> None:
    g = GraphBuilder()
    x = g.input(F, "x")
    y = g.Exp(x)
    wrong = node("Add", (y, x), Type("float32", (5,)))
    graph = Graph((x,), (*g.nodes, wrong), (), ("x",))
    with pytest.raises(VerifyError) as caught:
        ir.verify(graph)
    assert "line 3: %2 : Float(5) = Add(%1, %x)  # a.py:9" in str(caught.value)
    assert str(graph).splitlines()[2].strip() == "%2 : Float(5) = Add(%1, %x)  # a.py:9"


# ---- length --------------------------------------------------------------------------------------


def test_a_long_chain_takes_linear_time_and_no_recursion() -> None:
    def seconds(length: int) -> float:
        graph = chain(length)
        start = time.perf_counter()
        again = ir.parse(ir.to_text(graph))
        ir.verify(again)
        assert ir.equal(graph, again)
        ir.fingerprint(again)
        return time.perf_counter() - start

    short = min(seconds(5_000) for _ in range(2))
    assert seconds(100_000) < 60 * short + 2  # 20 if linear, 400 if quadratic


@pytest.mark.parametrize("page", ["ir.md", "onnx.md"])
def test_the_pages_about_the_ir_and_its_export_are_true(page: str) -> None:
    path = Path(__file__).resolve().parents[2] / "docs" / page
    options = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL
    found = doctest.testfile(str(path), module_relative=False, optionflags=options)
    assert found.attempted and not found.failed
