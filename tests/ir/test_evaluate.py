"""`evaluate` and `producers`: the two ways in which everything walks a graph forward."""

from __future__ import annotations

import weakref
from typing import Any

from ops.types import Type
from tests.support.graphs import chain
from tracer import ir
from tracer.ir.graph import Graph, GraphBuilder, Node, Value, evaluate, producers

V3 = Type("float32", (3,))


def diamond() -> tuple[Graph, list[Value]]:
    g = GraphBuilder("diamond")
    x = g.input(V3, "x")
    a = g.Neg(x)
    b, c = g.Exp(a), g.Sin(a)
    return g.build([g.Add(b, c), a]), [x, a, b, c]


def test_values_may_be_anything() -> None:
    graph, _ = diamond()

    def text(node: Node, operands: tuple[str, ...]) -> list[str]:
        return [f"{node.op.name}({', '.join(operands)})"]

    for release in (False, True):
        assert evaluate(graph, ["x"], text, release=release) == [
            "Add(Exp(Neg(x)), Sin(Neg(x)))",
            "Neg(x)",
        ]


class Thing:
    """Something that can be seen to be gone."""


def test_what_nothing_needs_any_more_is_dropped() -> None:
    graph, alive = chain(20), []

    def apply(node: Node, operands: tuple[Any, ...]) -> list[Thing]:
        result = Thing()
        alive.append(weakref.ref(result))
        return [result]

    most = 0

    def watched(node: Node, operands: tuple[Any, ...]) -> list[Thing]:
        nonlocal most
        result = apply(node, operands)
        most = max(most, sum(r() is not None for r in alive))
        return result

    evaluate(graph, [Thing()], watched, release=True)
    assert most <= 3  # the constant, what is read, what is made


def test_producers_come_in_an_order_in_which_they_can_run() -> None:
    graph, (x, a, b, c) = diamond()
    made = {v: node for node in graph.nodes for v in node.outputs}.get
    order = [n.op.name for n in producers(graph.outputs[0], made, ())]
    assert sorted(order) == ["Add", "Exp", "Neg", "Sin"]
    assert order[0] == "Neg" and order[-1] == "Add"
    assert [n.op.name for n in producers(graph.outputs[0], made, {a, b})] == ["Sin", "Add"]
    assert producers(x, made, ()) == producers(c, made, {c}) == []
    long = chain(20_000)
    made = {v: node for node in long.nodes for v in node.outputs}.get
    assert len(producers(long.outputs[0], made, ())) == len(long.nodes)


def test_a_graph_becomes_part_of_another_and_of_a_block() -> None:
    graph, _ = diamond()
    g = GraphBuilder("outer")
    c, y = g.input(Type("bool")), g.input(V3)
    branches = (
        g.block([V3], lambda b, x: b.inline(graph, [x])),
        g.block([V3], lambda b, x: [x, b.Neg(x)], name="other"),
    )
    total, _ = g.inline(graph, [y])
    outer = g.build([*g.op("If", c, total, blocks=branches)])
    ir.verify(outer)
    assert [n.op.name for n in outer.nodes] == ["Neg", "Exp", "Sin", "Add", "If"]
    assert ir.equal(outer, ir.parse(ir.to_text(outer), ir.constants(outer)))
