"""Rewrites that change no bit of any result.

Only what holds for every value of the type, NaN, infinities and signed zeros included, stands here: x*0 is not 0, x+0 is not x
for -0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


from tracer.graph import Graph, GraphBuilder, Node, Value, rebuild

Producers = dict[Value, Node]


def simplify(graph: Graph) -> Graph:
    """Apply the rules of `RULES` at each node, first to last."""
    made: Producers = {}

    def visit(builder: GraphBuilder, node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
        for rule in RULES.get(node.op.name, ()):
            result = rule(builder, node, inputs, made)
            if result is not None:
                return (result,)
        count = len(builder.nodes)
        outputs = builder.append(node, inputs)
        for new in builder.nodes[count:]:
            for v in new.outputs:
                made[v] = new
        return outputs

    return rebuild(graph, visit)


Rule = Callable[[GraphBuilder, Node, Sequence[Value], Producers], "Value | None"]


def _same_type(builder: GraphBuilder, node: Node, inputs: Sequence[Value], made: Producers) -> Value | None:
    """Cast to its own type, Reshape or Expand to its own shape, Transpose by the identity: the operand."""
    x = inputs[0]
    if x.type != node.output.type:
        return None
    if node.op.name == "Transpose" and tuple(node.attrs["perm"]) != tuple(range(x.type.rank)):
        return None
    return x


def _twice(builder: GraphBuilder, node: Node, inputs: Sequence[Value], made: Producers) -> Value | None:
    """Neg(Neg(x)) and Not(Not(x)) are x."""
    inner = made.get(inputs[0])
    return inner.inputs[0] if inner is not None and inner.op is node.op else None


def _merge(builder: GraphBuilder, node: Node, inputs: Sequence[Value], made: Producers) -> Value | None:
    """Reshape of Reshape and Transpose of Transpose are one."""
    inner = made.get(inputs[0])
    if inner is None or inner.op is not node.op:
        return None
    if node.op.name == "Reshape":
        result: Value = builder.reshape(inner.inputs[0], node.attrs["shape"])
        return result
    perm = tuple(inner.attrs["perm"][p] for p in node.attrs["perm"])
    if perm == tuple(range(len(perm))):
        return inner.inputs[0]
    moved: Value = builder.op("Transpose", inner.inputs[0], perm=perm)
    return moved


def _constant(made: Producers, v: Value) -> Any:
    node = made.get(v)
    return node.attrs["value"].array[()] if node is not None and node.op.name == "Constant" and not v.type.shape else None


def _uniform(made: Producers, v: Value) -> Any:
    """The value of all elements, if v is a broadcast 0-d constant."""
    node = made.get(v)
    while node is not None and node.op.name in ("Expand", "Reshape"):
        v = node.inputs[0]
        node = made.get(v)
    return _constant(made, v)


def _times_one(builder: GraphBuilder, node: Node, inputs: Sequence[Value], made: Producers) -> Value | None:
    """x * 1 and x / 1 are x."""
    x, y = inputs
    if x.type.dtype == "bool":
        return None
    if x.type == node.output.type and _uniform(made, y) == 1:
        return x
    if node.op.name == "Mul" and y.type == node.output.type and _uniform(made, x) == 1:
        return y
    return None


def _broadcast_operand(builder: GraphBuilder, node: Node, inputs: Sequence[Value], made: Producers) -> Value | None:
    """An Expand whose consumer broadcasts anyway is skipped, where another operand keeps the result's shape."""
    changed = list(inputs)
    for k, x in enumerate(inputs):
        inner = made.get(x)
        if inner is None or inner.op.name != "Expand":
            continue
        rest = [v for j, v in enumerate(changed) if j != k]
        source = inner.inputs[0]
        if any(v.type.shape == node.output.type.shape for v in rest):
            changed[k] = source
    if all(a is b for a, b in zip(changed, inputs, strict=True)):
        return None
    outputs = builder.append(node, changed)
    made[outputs[0]] = builder.nodes[-1]
    return outputs[0]


def _cast_constant(builder: GraphBuilder, node: Node, inputs: Sequence[Value], made: Producers) -> Value | None:
    """The conversion of a 0-d constant is done now."""
    value = _constant(made, inputs[0])
    if value is None:
        return None
    from ops.operator import ArrayData
    from tracer.dispatch import run_reference

    source = made[inputs[0]].attrs["value"].array
    (array,) = run_reference(node.op, [source], node.attrs)
    result: Value = builder.op("Constant", value=ArrayData.of(array))
    made[result] = builder.nodes[-1]
    return result


RULES: dict[str, tuple[Rule, ...]] = {
    "Cast": (_same_type, _cast_constant),
    "Reshape": (_same_type, _merge),
    "Expand": (_same_type,),
    "Transpose": (_same_type, _merge),
    "Neg": (_twice,),
    "Not": (_twice,),
    "Mul": (_times_one, _broadcast_operand),
    "Div": (_times_one, _broadcast_operand),
    "Add": (_broadcast_operand,),
    "Sub": (_broadcast_operand,),
    "Where": (_broadcast_operand,),
    "Equal": (_broadcast_operand,),
    "Less": (_broadcast_operand,),
}


