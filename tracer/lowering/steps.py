"""Nodes as steps of kernels: the maps of their operands and results, and how a fold is run."""

from __future__ import annotations

import math

from ops.compute import Gather, Reduction, Scalar, View
from tracer.ir.graph import Node, Value
from tracer.lowering.axes import Dims, atoms_of, fresh, view_maps
from tracer.lowering.groups import Step, StepKind

SPLIT_ELEMENTS = (
    4 * 4096
)  # a fold of at least so many elements into few results is split over tasks
SPLIT_RESULTS = 16


def steps_of(node: Node, number: int) -> list[Step] | None:
    """The node as steps with maps of their own, or None when no fused kernel computes it."""
    compute = node.op.compute
    if len(node.outputs) != 1:
        return None
    out = node.output.type
    if isinstance(compute, Scalar):
        result = fresh(out.shape)  # type: ignore[arg-type]
        operands = tuple(_aligned(v, result) for v in node.inputs)
        return [Step(node, "map", operands, result, index=number)]
    if isinstance(compute, Gather):
        result = fresh(out.shape)  # type: ignore[arg-type]
        indices = compute.rule([v.type for v in node.inputs], out, node.attrs)
        maps: list[Dims | None] = [None] * len(node.inputs)
        for index in indices:
            if index.operand is not None:
                maps[index.operand] = tuple(result[a] for a in index.operand_axes)
        return [Step(node, "map", tuple(maps), result, index=number)]
    if isinstance(compute, View):
        found = view_maps(node, node.inputs[0].type, out)
        if found is None:
            return None
        return [Step(node, "view", (found[0],), found[1], index=number)]
    if isinstance(compute, Reduction):
        return _reduction(node, number, compute)
    return None


def _reduction(node: Node, number: int, compute: Reduction) -> list[Step]:
    x = node.inputs[0].type
    operand = fresh(x.shape)  # type: ignore[arg-type]
    axes = tuple(a % x.rank for a in node.attrs["axes"])
    keepdims = node.attrs["keepdims"]
    result = tuple(
        () if k in axes else d for k, d in enumerate(operand) if keepdims or k not in axes
    )
    reduced = [a for k in axes for a in operand[k]]
    kept = [a for k, d in enumerate(operand) if k not in axes for a in d]
    count, kept_count = (math.prod(a.size for a in atoms) for atoms in (reduced, kept))
    if not reduced:
        return [Step(node, "point", (operand,), result, index=number)]
    if not count:
        return [Step(node, "row", (operand,), result, index=number)]
    innermost = atoms_of(operand)[-1]
    folding = compute.folding(x, node.outputs[0].type)
    several = len(folding.state) > 1
    if compute.positions or several:
        kind: StepKind = "row"
    elif innermost not in reduced and kept_count >= 8:
        kind = "column"
    elif kept_count < SPLIT_RESULTS and count >= SPLIT_ELEMENTS:
        kind = "split"
    else:
        kind = "row"
    if kind == "row":
        return [Step(node, kind, (operand,), result, index=number)]
    partial = Step(node, kind, (operand,), result, index=number)
    finished = fresh(node.outputs[0].type.shape)  # type: ignore[arg-type]
    return [partial, Step(node, "finish", (), finished, partial, number)]


def _aligned(v: Value, result: Dims) -> Dims:
    """The map of an operand that broadcasts to the result."""
    lead = len(result) - v.type.rank
    return tuple(() if d == 1 else result[lead + k] for k, d in enumerate(v.type.shape))
