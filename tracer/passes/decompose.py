"""Composites replaced by what they are made of, until none is left."""

from __future__ import annotations

from ops.compute import Composite
from ops.operator import Application
from tracer.ir.graph import Graph, GraphBuilder, Node, Value, rebuild


def decompose(graph: Graph) -> Graph:
    """Every composite operator becomes its decomposition. Safe because that is the operator's declared meaning in kernels."""
    while _has_composite(graph):
        graph = rebuild(graph, _expand)
    return graph


def _has_composite(graph: Graph) -> bool:
    return any(
        isinstance(n.op.compute, Composite) or any(map(_has_composite, n.blocks))
        for n in graph.nodes
    )


def _expand(
    builder: GraphBuilder, node: Node, inputs: tuple[Value, ...]
) -> tuple[Value, ...] | None:
    compute = node.op.compute
    if not isinstance(compute, Composite):
        return None
    result = compute.rule(builder, Application(inputs, (), node.attrs))
    return result if isinstance(result, tuple) else (result,)
