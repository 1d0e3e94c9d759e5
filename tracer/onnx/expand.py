"""A pass: operators whose ONNX form is that of their decomposition are decomposed.

    %1 : Float(3) = Silu(%x)      becomes      %1 : Float(3) = Sigmoid(%x)
                                               %2 : Float(3) = Mul(%x, %1)

Safe because a composite's decomposition is its definition for everything but its own reference.
Must not know the format.
"""

from __future__ import annotations

from collections.abc import Iterator

from ops.compute import Composite
from ops.errors import ExportError
from ops.operator import Expanded
from tracer.graph import Graph, GraphBuilder, Node, Value, application, rebuild

# Decompositions that use composites are expanded again; deeper than this, they go round in circles.
_DEEPEST = 20


def expand(graph: Graph) -> Graph:
    """The graph without operators that have their ONNX form from a decomposition."""
    for _ in range(_DEEPEST):
        if not any(isinstance(node.op.onnx, Expanded) for node in _all_nodes(graph)):
            return graph
        graph = rebuild(graph, _visit)
    names = sorted({n.op.name for n in _all_nodes(graph) if isinstance(n.op.onnx, Expanded)})
    raise ExportError(f"decomposing {', '.join(names)} does not come to an end")


def _all_nodes(graph: Graph) -> Iterator[Node]:
    pending = [graph]
    while pending:
        current = pending.pop()
        for node in current.nodes:
            yield node
            pending.extend(node.blocks)


def _visit(
    builder: GraphBuilder, node: Node, inputs: tuple[Value, ...]
) -> tuple[Value, ...] | None:
    if not isinstance(node.op.onnx, Expanded):
        return None
    if not isinstance(node.op.compute, Composite):
        raise ExportError(
            f"{node.op.name} says that its ONNX form follows from its decomposition, but has none"
        )
    result = node.op.compute.rule(builder, application(node, inputs))
    return tuple(result) if isinstance(result, tuple | list) else (result,)
