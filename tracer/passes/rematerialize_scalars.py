"""Cheap 0-d computations are repeated for each consumer, so that they cost no memory and cut no kernel."""

from __future__ import annotations

from ops.compute import Constant, Scalar, Size
from tracer.ir.graph import Graph, GraphBuilder, Node, Value, producers

LONGEST = 8  # operations in a chain that is worth repeating


def spread_scalars(graph: Graph) -> Graph:
    """Clone 0-d nodes that follow from inputs and constants alone, one copy for each consumer.

    A learning rate converted to float32 is then part of each kernel that uses it. Safe because
    these operators are functions.
    """
    roots = {v for v in graph.inputs if v.type.shape == ()}
    cheap: dict[Value, Node] = {}
    length: dict[Value, int] = {}
    outputs = set(graph.outputs)
    for node in graph.nodes:
        compute = node.op.compute
        if isinstance(compute, Constant | Size) and node.outputs[0].type.shape == ():
            roots.add(node.outputs[0])
        elif (
            isinstance(compute, Scalar)
            and compute.effort != "high"
            and node.inputs
            and node.outputs[0].type.shape == ()
            and node.outputs[0] not in outputs
            and all(v in roots or v in cheap for v in node.inputs)
            and sum(length.get(v, 0) for v in node.inputs) < LONGEST
        ):
            cheap[node.outputs[0]] = node
            length[node.outputs[0]] = 1 + sum(length.get(v, 0) for v in node.inputs)
    if not cheap:
        return graph
    builder = GraphBuilder(graph.name)
    builder.inputs, builder.input_names = list(graph.inputs), list(graph.input_names)
    for node in graph.nodes:
        if node.outputs and node.outputs[0] in cheap:
            continue
        if not any(v in cheap for v in node.inputs):
            builder.nodes.append(node)
            continue
        inputs = tuple(_clone(builder, v, cheap) for v in node.inputs)
        builder.nodes.append(
            Node(node.op, inputs, node.attrs, node.outputs, node.origin, node.blocks)
        )
    return builder.build(graph.outputs)


def _clone(builder: GraphBuilder, v: Value, cheap: dict[Value, Node]) -> Value:
    """A fresh copy of the chain that makes v."""
    known: dict[Value, Value] = {}
    for node in producers(v, cheap.get, ()):
        copies = builder.append(node, [known.get(u, u) for u in node.inputs])
        known.update(zip(node.outputs, copies, strict=True))
    return known.get(v, v)
