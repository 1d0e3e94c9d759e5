"""Dead code: nodes that no output depends on are dropped."""

from __future__ import annotations

from tracer.ir.graph import Graph, used


def remove_dead_code(graph: Graph) -> Graph:
    """Keep the nodes that outputs depend on, in order. Safe because nodes have no effects."""
    nodes, _ = used(graph)
    return Graph(graph.inputs, tuple(nodes), graph.outputs, graph.input_names, graph.name)
