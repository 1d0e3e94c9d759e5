"""A pass: operators whose ONNX form is that of their decomposition are decomposed, calls without a form become their bodies.

    %1 : Float(3) = Silu(%x)      becomes      %1 : Float(3) = Sigmoid(%x)
                                               %2 : Float(3) = Mul(%x, %1)

Safe because a composite's decomposition is its definition for everything but its own reference.
Must not know the format.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ops.compute import Composite, Control
from ops.errors import ExportError
from ops.operator import Expanded
from tracer.ir.graph import Graph, GraphBuilder, Node, Value, application, rebuild

# Decompositions that use composites are expanded again; deeper than this, they go round in circles.
_DEEPEST = 20


def expand(graph: Graph) -> Graph:
    """The graph without operators that have their ONNX form from a decomposition or a body."""
    if any(_is_transparent(node) for node in _all_nodes(graph)):
        graph = rebuild(graph, _visit_call)
    for _ in range(_DEEPEST):
        if not any(isinstance(node.op.onnx, Expanded) for node in _all_nodes(graph)):
            return graph
        graph = rebuild(graph, _visit)
    names = sorted({n.op.name for n in _all_nodes(graph) if isinstance(n.op.onnx, Expanded)})
    raise ExportError(f"decomposing {', '.join(names)} does not come to an end")


def _is_transparent(node: Node) -> bool:
    return isinstance(node.op.compute, Control) and node.op.compute.transparent


def _visit_call(
    builder: GraphBuilder, node: Node, inputs: tuple[Value, ...]
) -> tuple[Value, ...] | None:
    """A call with a form of its own stays, with the results that the form gives; its other results, and all those of other
    calls, are those of the nodes in its body.
    """
    if not _is_transparent(node):
        return None
    (body,), form = node.blocks, node.attrs.symbolic
    if form is None:
        return tuple(builder.inline(body, inputs))
    if form.problem:
        return builder.append(node, inputs)  # the exporter says why it cannot be
    chosen = [k for k, y in enumerate(form.outputs) if y is not None]
    attrs = {**node.attrs, "symbolic": form.picked(chosen)}
    cut = replace(body, outputs=tuple(body.outputs[k] for k in chosen), _cache={})
    kept = builder.emit(node.op, inputs, attrs, (cut,)) if chosen else ()
    made = dict(zip(chosen, kept if isinstance(kept, tuple) else (kept,), strict=True))
    if len(made) == len(body.outputs):
        return tuple(made.values())
    others = builder.inline(body, inputs)
    return tuple(made.get(k, y) for k, y in enumerate(others))


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
