"""The invariants of the IR, checked: what every pass may rely on and must leave behind.

Every value is defined once, before it is used, and belongs to this graph; types are those that the
operators infer; attributes are in normal form; blocks are closed. Messages show the line of the
text.
"""

from __future__ import annotations

from ops.errors import TracerError, VerifyError
from ops.operator import Operator, find
from tracer.ir.graph import Graph, Node, Value
from tracer.ir.literals import attribute_text
from tracer.ir.printer import line, lines, names

MAXIMUM_NESTING = 64  # of blocks in blocks; programs nest a handful


def verify(graph: Graph) -> None:
    """Raise `VerifyError` unless the graph keeps the invariants of the IR.

    >>> tracer.ir.verify(tracer.trace(lambda x: -x).ir(np.zeros(2)))
    """
    _check(graph, graph, 0)


def _check(graph: Graph, root: Graph, depth: int) -> None:
    if depth > MAXIMUM_NESTING:
        raise VerifyError(f"blocks nest deeper than {MAXIMUM_NESTING}")
    if len(graph.input_names) != len(graph.inputs):
        raise VerifyError(
            f"the graph has {len(graph.inputs)} inputs and {len(graph.input_names)} names for them"
        )
    if len(set(graph.inputs)) != len(graph.inputs):
        raise VerifyError("the graph has the same value as input twice")
    known = set(graph.inputs)
    for node in graph.nodes:
        for block in node.blocks:
            _check(block, root, depth + 1)
        problem = _problem(node, known)
        if problem:
            raise VerifyError(f"{problem}\n{_where(node, graph, root)}")
        known.update(node.outputs)
    for position, value in enumerate(graph.outputs):
        if value not in known:
            raise VerifyError(f"output {position} of the graph is not defined in it")


def _problem(node: Node, known: set[Value]) -> str:
    """What is wrong with a node, or nothing. `known` are the values defined before it."""
    op = node.op
    if find(op.name) is not op:
        return f"the operator {op.name} is not the one of that name in the table"
    for position, value in enumerate(node.inputs):
        if value not in known:
            return f"operand {position} is not defined before this line"
    problem = arity_problem(op, len(node.inputs)) or _attribute_problem(node)
    if problem:
        return problem
    try:
        types = op.infer(
            [v.type for v in node.inputs], node.attrs, [b.signature for b in node.blocks]
        )
    except TracerError as error:
        return str(error)
    given = tuple(v.type for v in node.outputs)
    if types != given:
        expected = ", ".join(map(str, types)) or "nothing"
        return f"the operator gives {expected}, the node {', '.join(map(str, given)) or 'nothing'}"
    if known.intersection(node.outputs) or len(set(node.outputs)) != len(node.outputs):
        return "a result of the node is defined already"
    return ""


def _attribute_problem(node: Node) -> str:
    try:
        normal = node.op.normalize(node.attrs)
    except TracerError as error:
        return str(error)
    if list(normal) != list(node.attrs):
        return f"the attributes must be {', '.join(normal)}, in this order"
    for name, wanted in normal.items():
        value = node.attrs[name]
        # A NaN differs from itself; as texts, equal bits are equal.
        same = value == wanted or attribute_text(value) == attribute_text(wanted)
        if type(value) is not type(wanted) or not same:
            return f"attribute {name} must be {wanted!r}, in normal form, not {value!r}"
    return ""


def _where(node: Node, graph: Graph, root: Graph) -> str:
    number = next((k for k, (_, n) in enumerate(lines(root), 1) if n is node), 0)
    return f"  line {number}: {line(node, names(graph))}"


def arity_problem(op: Operator, count: int) -> str:
    """What is wrong with a number of operands, or nothing."""
    least = len(op.inputs) - op.optional - op.variadic
    if count >= least and (op.variadic or count <= len(op.inputs)):
        return ""
    listed = ", ".join(op.inputs)
    return f"{op.name} takes {f'the operands ({listed})' if listed else 'no operands'}, got {count}"
