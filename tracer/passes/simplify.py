"""Rewrites that change no bit of any result.

What may be left out follows from the operators' records: the equalities that they declare (`ops.algebra`), where views lay their
elements, and which results are exact. No operator is known by name here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ops.compute import Constant, Replacement, Scalar, Strided, View
from ops.operator import ArrayData, run_reference
from tracer.ir.graph import Graph, GraphBuilder, Node, Value, rebuild

Producers = dict[Value, Node]
Rule = Callable[[GraphBuilder, Node, Sequence[Value], Producers], Value | None]


def simplify(graph: Graph) -> Graph:
    """Apply the rules of `RULES` for each node's kind, first to last, until one gives another value.

    %2 = Neg(%x);  %3 = Neg(%2)  ->  %x
    """
    made: Producers = {}

    def visit(
        builder: GraphBuilder, node: Node, inputs: tuple[Value, ...]
    ) -> tuple[Value, ...] | None:
        start = len(builder.nodes)
        result = None
        for rule in RULES.get(type(node.op.compute), ()):
            result = rule(builder, node, inputs, made)
            if result is not None:
                break
        outputs = builder.append(node, inputs) if result is None else (result,)
        for new in builder.nodes[start:]:
            made.update(dict.fromkeys(new.outputs, new))
        return outputs

    return rebuild(graph, visit)


# ---- views ---------------------------------------------------------------------------------------


def _view_of_nothing_else(
    builder: GraphBuilder, node: Node, inputs: Sequence[Value], made: Producers
) -> Value | None:
    """A view, or one of a view, in which every element lies where it was: the operand."""
    x = inputs[0]
    layout = _laid_out(node, _whole(x))
    if x.type == node.output.type and layout is not None and _is_whole(layout):
        return x
    inner = made.get(x)
    if inner is None or not isinstance(inner.op.compute, View):
        return None
    base = inner.inputs[0]
    between = _laid_out(inner, _whole(base))
    layout = _laid_out(node, between) if between is not None else None
    return (
        base if base.type == node.output.type and layout is not None and _is_whole(layout) else None
    )


def _reshape_of_reshape(
    builder: GraphBuilder, node: Node, inputs: Sequence[Value], made: Producers
) -> Value | None:
    """Two views that keep the elements' order are one."""
    inner = made.get(inputs[0])
    if inner is None or not (_keeps_order(node) and _keeps_order(inner)):
        return None
    result: Value = builder.reshape(inner.inputs[0], node.output.type.shape)
    return result


def _keeps_order(node: Node) -> bool:
    return isinstance(node.op.compute, View) and node.op.compute.keeps_order


def _view_of_what_was_put_there(
    builder: GraphBuilder, node: Node, inputs: Sequence[Value], made: Producers
) -> Value | None:
    """A view of exactly the part that was replaced: what replaced it."""
    inner = made.get(inputs[0])
    if inner is None or not isinstance(inner.op.compute, Replacement):
        return None
    where, part = _part_of(inner, inputs[0]), inner.inputs[1]
    if where is None or part.type != node.output.type:
        return None
    return part if _laid_out(node, _whole(inputs[0])) == where else None


# ---- parts replaced ------------------------------------------------------------------------------


def _replaced_by_itself(
    builder: GraphBuilder, node: Node, inputs: Sequence[Value], made: Producers
) -> Value | None:
    """All elements replaced: what replaces them. None, or a part by what it was: the operand."""
    x, part = inputs
    if 0 in part.type.shape and x.type == node.output.type:
        return x
    where = _part_of(node, x)
    if where is None:
        return None
    if part.type == node.output.type and _is_whole(where):
        return part
    inner = made.get(part)
    view = inner is not None and isinstance(inner.op.compute, View) and inner.inputs[0] is x
    return x if view and _laid_out(inner, _whole(x)) == where else None  # type: ignore[arg-type]


def _replaced_again(
    builder: GraphBuilder, node: Node, inputs: Sequence[Value], made: Producers
) -> Value | None:
    """The same part replaced twice: the second time counts."""
    inner = made.get(inputs[0])
    if inner is None or not isinstance(inner.op.compute, Replacement):
        return None
    where = _part_of(node, inputs[0])
    if where is None or where != _part_of(inner, inner.inputs[0]):
        return None
    return builder.append(node, (inner.inputs[0], inputs[1]))[0]


def _part_of(node: Node, x: Value) -> Strided | None:
    """Where the part that a node replaces lies in its operand; None if that is not known."""
    assert isinstance(node.op.compute, Replacement)
    part = node.inputs[1].type
    if not (x.type.is_static and part.is_static):
        return None
    return node.op.compute.rule(_whole(x), tuple(part.shape), node.attrs)  # type: ignore[arg-type]


def _whole(v: Value) -> Strided:
    return Strided.row_major(v.type.shape)  # sizes may be symbols


def _is_whole(layout: Strided) -> bool:
    return layout.offset == 0 and layout.is_row_major


def _laid_out(node: Node, operand: Strided) -> Strided | None:
    """Where a view lays the elements of an operand; None if that is not known."""
    target = node.output.type
    assert isinstance(node.op.compute, View)
    if not (target.is_static and all(isinstance(d, int) for d in operand.shape)):
        return None
    return node.op.compute.rule(operand, tuple(target.shape), node.attrs)  # type: ignore[arg-type]


# ---- element by element --------------------------------------------------------------------------


def _twice(
    builder: GraphBuilder, node: Node, inputs: Sequence[Value], made: Producers
) -> Value | None:
    """What an involution gives of its own result: the operand."""
    inner = made.get(inputs[0]) if node.op.algebra.involution else None
    return inner.inputs[0] if inner is not None and inner.op is node.op else None


def _converted_to_itself(
    builder: GraphBuilder, node: Node, inputs: Sequence[Value], made: Producers
) -> Value | None:
    """A conversion to the operand's own type: the operand."""
    return inputs[0] if node.op.algebra.conversion and inputs[0].type == node.output.type else None


def _with_neutral(
    builder: GraphBuilder, node: Node, inputs: Sequence[Value], made: Producers
) -> Value | None:
    """One operand is neutral: the other one, or something cheaper."""
    for position, value in node.op.algebra.neutral.items():
        other = inputs[1 - position]
        if other.type == node.output.type and _uniform(made, inputs[position]) == value:
            return other
    for position, (value, name, second) in node.op.algebra.cheaper.items():
        other = inputs[1 - position]
        if other.type == node.output.type and _uniform(made, inputs[position]) == value:
            result: Value = builder.op(name, other, builder.like(second, other))
            return result
    return None


def _computed_now(
    builder: GraphBuilder, node: Node, inputs: Sequence[Value], made: Producers
) -> Value | None:
    """An exact result of 0-d constants: a constant."""
    if node.op.ulp or node.op.effect is not None or not inputs:
        return None
    operands = [_constant(made, v) for v in inputs]
    if any(array is None for array in operands):
        return None
    (array,) = run_reference(node.op, operands, node.attrs)
    result: Value = builder.op("Constant", value=ArrayData.of(array), weak=node.output.type.weak)
    return result if result.type == node.output.type else None


def _read_unspread(
    builder: GraphBuilder, node: Node, inputs: Sequence[Value], made: Producers
) -> Value | None:
    """An operand that was broadcast is read as it was, where another one has the result's shape anyway."""
    shape = node.output.type.shape
    changed = list(inputs)
    for k, x in enumerate(inputs):
        inner = made.get(x)
        others = (v for j, v in enumerate(changed) if j != k)
        if inner is not None and _spreads(inner) and any(v.type.shape == shape for v in others):
            changed[k] = inner.inputs[0]
    if all(a is b for a, b in zip(changed, inputs, strict=True)):
        return None
    if node.op.infer([v.type for v in changed], node.attrs) != (node.output.type,):
        return None
    return builder.append(node, changed)[0]


def _spreads(node: Node) -> bool:
    """Whether a view does what broadcasting does."""
    if not isinstance(node.op.compute, View):
        return False
    operand = _whole(node.inputs[0])
    layout = _laid_out(node, operand)
    if layout is None or layout.offset or len(layout.shape) < len(operand.shape):
        return False
    lead = len(layout.shape) - len(operand.shape)
    sizes = (1,) * lead + operand.shape
    strides = (0,) * lead + operand.strides
    return all(
        d in (1, size) and (size == 1 or s == (0 if d == 1 else own))
        for size, s, d, own in zip(layout.shape, layout.strides, sizes, strides, strict=True)
    )


def _constant(made: Producers, v: Value) -> Any:
    """The array of a 0-d constant, else None."""
    node = made.get(v)
    return (
        node.attrs["value"].array
        if node is not None and isinstance(node.op.compute, Constant) and not v.type.shape
        else None
    )


def _uniform(made: Producers, v: Value) -> Any:
    """The value of all elements, if v is a 0-d constant or a view of one; else None."""
    node = made.get(v)
    while node is not None and isinstance(node.op.compute, View):
        v = node.inputs[0]
        node = made.get(v)
    array = _constant(made, v)
    return None if array is None else array[()]


RULES: dict[type, tuple[Rule, ...]] = {
    View: (_view_of_nothing_else, _reshape_of_reshape, _view_of_what_was_put_there),
    Replacement: (_replaced_by_itself, _replaced_again),
    Scalar: (_twice, _converted_to_itself, _computed_now, _with_neutral, _read_unspread),
}
