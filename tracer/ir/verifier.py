"""The invariants of the IR, checked: what every pass may rely on and must leave behind.

Every value is defined once, before it is used, and belongs to this graph; types are those that the operators infer;
attributes are in normal form; blocks are closed. Messages show the line of the text.
"""

from __future__ import annotations

from typing import NoReturn

from ops.errors import TracerError, VerifyError
from ops.operator import TABLE, Attributes
from tracer.graph import Graph, Node, Value
from tracer.ir.literals import attribute_text
from tracer.ir.parser import MAXIMUM_NESTING
from tracer.ir.printer import line, lines, names


def verify(graph: Graph) -> None:
    """Raise `VerifyError` unless the graph keeps the invariants of the IR."""
    _Verifier(graph).check(graph, 0)


class _Verifier:
    def __init__(self, root: Graph) -> None:
        self.root = root
        self.defined: set[Value] = set()  # anywhere in the root and its blocks

    def check(self, graph: Graph, depth: int) -> None:
        if depth > MAXIMUM_NESTING:
            raise VerifyError(f"blocks nest deeper than {MAXIMUM_NESTING}")
        if len(graph.input_names) != len(graph.inputs):
            raise VerifyError(
                f"the graph has {len(graph.inputs)} inputs and {len(graph.input_names)} names for them"
            )
        known: set[Value] = set()
        for value in graph.inputs:
            if value in self.defined:
                raise VerifyError(f"input %{self._name(value)} is defined twice")
            self.defined.add(value)
            known.add(value)
        for node in graph.nodes:
            self._node(node, known, depth)
        for position, value in enumerate(graph.outputs):
            if value not in known:
                raise VerifyError(f"output {position} of the graph is not defined in it")

    def _node(self, node: Node, known: set[Value], depth: int) -> None:
        op = node.op
        if TABLE.get(op.name) is not op:
            self._fail(node, f"the operator {op.name} is not the one of that name in the table")
        for position, value in enumerate(node.inputs):
            if value not in known:
                where = "in another graph, or later" if value in self.defined else "nowhere before"
                self._fail(node, f"operand {position} is defined {where}")
        self._arity(node)
        self._attributes(node)
        for block in node.blocks:
            self.check(block, depth + 1)
        try:
            types = op.infer(
                [v.type for v in node.inputs], node.attrs, [b.signature for b in node.blocks]
            )
        except TracerError as error:
            self._fail(node, str(error))
        given = tuple(v.type for v in node.outputs)
        if types != given:
            expected = ", ".join(map(str, types)) or "nothing"
            self._fail(
                node, f"the operator gives {expected}, the node {', '.join(map(str, given))}"
            )
        for value in node.outputs:
            if value in self.defined:
                self._fail(node, f"%{self._name(value)} is defined twice")
            self.defined.add(value)
            known.add(value)

    def _arity(self, node: Node) -> None:
        op, count = node.op, len(node.inputs)
        least = len(op.inputs) - op.optional - op.variadic
        if count < least or (count > len(op.inputs) and not op.variadic):
            listed = ", ".join(op.inputs)
            self._fail(node, f"{op.name} takes the operands ({listed}), got {count}")

    def _attributes(self, node: Node) -> None:
        if not isinstance(node.attrs, Attributes):
            self._fail(node, f"attributes are {type(node.attrs).__name__}, not Attributes")
        try:
            normal = node.op.normalize(node.attrs)
        except TracerError as error:
            self._fail(node, str(error))
        for (name, value), (wanted_name, wanted) in zip(
            node.attrs.items(), normal.items(), strict=False
        ):
            same = name == wanted_name and type(value) is type(wanted)
            # A NaN differs from itself; as texts, equal bits are equal.
            if not same or (value != wanted and attribute_text(value) != attribute_text(wanted)):
                self._fail(node, f"attribute {name} is not in normal form: {value!r}")
        if len(node.attrs) != len(normal):
            absent = sorted(normal.keys() - node.attrs.keys())
            self._fail(node, f"attributes are missing: {', '.join(absent)}")

    def _name(self, value: Value) -> str:
        return names(self.root).get(value, "?")

    def _fail(self, node: Node, message: str) -> NoReturn:
        known = names(self.root)
        number = next((k for k, (_, n) in enumerate(lines(self.root, known), 1) if n is node), 0)
        raise VerifyError(f"{message}\n  line {number}: {line(node, known)}")
