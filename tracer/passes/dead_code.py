"""Dead code: nodes that no output depends on are dropped, unless they have effects."""

from __future__ import annotations

from tracer.ir.graph import Graph, used


def remove_dead_code(graph: Graph) -> Graph:
    """Keep the nodes that outputs and effects depend on, in order. Safe because nothing notices the others."""
    nodes, _ = used(graph, effects=True)
    return Graph(graph.inputs, tuple(nodes), graph.outputs, graph.input_names, graph.name)
