"""Equal computations are done once."""

from __future__ import annotations

from typing import Any

from tracer.ir.graph import Graph, GraphBuilder, Node, Value, rebuild


def share_subexpressions(graph: Graph) -> Graph:
    """A node with the operator, attributes and inputs of an earlier one is replaced by it.

    Safe because operators without effects are functions: random ones are functions of their state. Blocks are graphs of
    their own: what is equal in two of them stands in both.
    """
    seen: dict[Any, tuple[Value, ...]] = {}

    def visit(
        builder: GraphBuilder, node: Node, inputs: tuple[Value, ...]
    ) -> tuple[Value, ...] | None:
        if node.blocks or node.has_effect:
            return None
        key = (builder, node.op, inputs, node.attrs.key)
        outputs = seen.get(key)
        if outputs is None:
            outputs = seen[key] = builder.append(node, inputs)
        return outputs

    return rebuild(graph, visit)
