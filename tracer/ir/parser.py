"""Text to graph: the inverse of `printer`.

Reads line by line with a stack of open graphs, so that neither length nor nesting can overflow
anything. Whatever is not the IR is a `ParseError` with its line number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from ops import table as table
from ops.errors import ArgumentError, ParseError, TracerError
from ops.operator import ArrayData, Attributes, Operator, find
from ops.types import Type
from tracer.ir.graph import NOWHERE, Graph, Node, Origin, Value
from tracer.ir.reader import Constants, Reader
from tracer.ir.verifier import MAXIMUM_NESTING, arity_problem


@dataclass(slots=True)
class _Pending:
    """A node of which blocks may still follow."""

    number: int
    op: Operator
    inputs: tuple[Value, ...]
    attrs: Attributes
    outputs: tuple[Value, ...]
    origin: Origin
    blocks: list[Graph] = field(default_factory=list)


@dataclass(slots=True)
class _Open:
    """A graph whose closing brace has not come yet."""

    number: int
    inputs: list[Value] = field(default_factory=list)
    input_names: list[str] = field(default_factory=list)
    name: str = ""
    known: dict[str, Value] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    pending: _Pending | None = None
    outputs: tuple[Value, ...] | None = None
    head_done: bool = False


def parse(
    text: str, constants: Mapping[str, ArrayData | np.ndarray[Any, Any]] | None = None
) -> Graph:
    """The graph that a text describes, identical to the one that it was printed from.

    Args:
        text: What `to_text` gave.
        constants: The arrays that the text names by hash, as `tracer.ir.constants` gives them.

    Raises:
        ParseError: The text is not the IR; the message has the line.

    >>> graph = tracer.trace(lambda x: -x).ir(np.zeros(2))
    >>> tracer.ir.parse(tracer.ir.to_text(graph)).nodes[0].op.name
    'Neg'
    """
    if not isinstance(text, str):
        raise ParseError(f"the IR is a text, got {type(text).__name__}")
    if not isinstance(constants, Mapping | None):
        raise ArgumentError(
            f"constants is a dict such as tracer.ir.constants(graph) gives, got {constants!r:.60}"
        )
    given = {
        key: value if isinstance(value, ArrayData) else ArrayData.of(np.asarray(value))
        for key, value in (constants or {}).items()
    }
    return _Parser(given).run(text)


class _Parser:
    def __init__(self, constants: Constants) -> None:
        self.constants = constants
        self.types: dict[str, Type] = {}
        self.origins: dict[tuple[str, str, bool], Origin] = {("", "", False): NOWHERE}
        self.stack: list[_Open] = []
        self.result: Graph | None = None

    def run(self, text: str) -> Graph:
        number = 0
        for number, raw in enumerate(text.split("\n"), 1):
            line = raw.rstrip(" \t\r")
            indent = len(line) - len(line.lstrip(" \t"))
            if line and line[indent] != "#":
                self._line(Reader(line, number, indent, self.constants, self.types))
        if self.stack:
            raise ParseError(
                f"line {number}: the text ends, but the graph opened in line "
                f"{self.stack[-1].number} does not"
            )
        if self.result is None:
            raise ParseError(f"line {number}: there is no graph")
        return self.result

    def _line(self, reader: Reader) -> None:
        if self.result is not None:
            reader.fail("expected nothing after the end of the graph")
        if self.stack and not self.stack[-1].head_done:
            self._inputs(reader, self.stack[-1])
        elif reader.accept("graph("):
            self._open(reader)
        elif not self.stack:
            reader.fail("expected 'graph('")
        elif reader.looking_at("%") or reader.looking_at("= "):
            self._node(reader, self.stack[-1])
        elif reader.accept("return ("):
            self._return(reader, self.stack[-1])
        elif reader.accept("}"):
            self._close(reader)
        else:
            reader.fail("expected a node, 'return (...);' or '}'")

    # ---- heads -----------------------------------------------------------------------------------

    def _open(self, reader: Reader) -> None:
        if self.stack and self.stack[-1].pending is None:
            reader.fail("a block follows the node that it belongs to")
        if len(self.stack) > MAXIMUM_NESTING:
            reader.fail(f"blocks nest deeper than {MAXIMUM_NESTING}")
        self.stack.append(_Open(reader.number))
        self._inputs(reader, self.stack[-1])

    def _inputs(self, reader: Reader, graph: _Open) -> None:
        if not reader.looking_at(")"):
            printed = reader.value_name()
            given = reader.accept(" ")
            name = "" if printed.isdigit() else printed
            if given and reader.looking_at('"'):
                name = reader.string()
                reader.expect(" ")
            reader.expect(": ")
            self._define(reader, graph, printed, value := Value(reader.type()))
            graph.inputs.append(value)
            graph.input_names.append(name)
        if reader.at_end():
            return
        reader.expect(") {")
        if reader.accept("  # "):
            graph.name = reader.comment()
        self._end(reader)
        graph.head_done = True

    # ---- nodes -----------------------------------------------------------------------------------

    def _node(self, reader: Reader, graph: _Open) -> None:
        self._finish(graph)
        if graph.outputs is not None:
            reader.fail("expected '}' after 'return'")
        results: list[tuple[str, Value]] = []
        if not reader.accept("= "):  # of a node without results, there for its effect
            while not results or reader.accept(", "):
                name = reader.value_name()
                reader.expect(" : ")
                results.append((name, Value(reader.type())))
            reader.expect(" = ")
        op = find(word := reader.word("the name of an operator"))
        if op is None:
            reader.position -= len(word)
            reader.fail(
                f"there is no operator {word!r}; one of your own must be made with tracer.op before"
            )
        attrs = self._attributes(reader, op)
        reader.expect("(")
        inputs = self._operands(reader, graph)
        origin = self._origin(reader)
        for name, value in results:
            self._define(reader, graph, name, value)
        outputs = tuple(v for _, v in results)
        graph.pending = _Pending(reader.number, op, inputs, attrs, outputs, origin)

    def _attributes(self, reader: Reader, op: Operator) -> Attributes:
        given: dict[str, Any] = {}
        if reader.accept("["):
            while not given or reader.accept(", "):
                name = reader.word("the name of an attribute")
                if name not in op.attributes or name in given:
                    reader.position -= len(name)
                    known = ", ".join(op.attributes) or "none"
                    reader.fail(
                        f"{op.name} has the attributes {known}, each once; not {name!r} here"
                    )
                reader.expect("=")
                given[name] = reader.attribute(op.attributes[name].kind)
            reader.expect("]")
        try:
            return op.normalize(given)
        except TracerError as error:
            reader.fail(str(error))

    def _operands(self, reader: Reader, graph: _Open) -> tuple[Value, ...]:
        """Values separated by commas, up to the closing parenthesis, which is stepped over."""
        result: list[Value] = []
        while not reader.accept(")"):
            if result:
                reader.expect(", ")
            name = reader.value_name()
            if name not in graph.known:
                reader.position -= len(name) + 1
                reader.fail(f"%{name} is not defined before this line")
            result.append(graph.known[name])
        return tuple(result)

    def _origin(self, reader: Reader) -> Origin:
        scope, source, gradient = "", "", False
        if reader.accept(", scope: "):
            scope = reader.scope()
        if reader.accept("  # "):
            gradient = reader.accept("gradient")
            if not gradient or reader.accept(" of "):
                source = reader.comment()
        self._end(reader)
        # Neighbours mostly share their origin; so do the objects.
        return self.origins.setdefault((scope, source, gradient), Origin(scope, source, gradient))

    def _define(self, reader: Reader, graph: _Open, name: str, value: Value) -> None:
        if name in graph.known:
            reader.fail(f"%{name} is defined twice")
        graph.known[name] = value

    def _finish(self, graph: _Open) -> None:
        """Check and append the node whose blocks are now complete."""
        node = graph.pending
        if node is None:
            return
        graph.pending = None
        if problem := arity_problem(node.op, len(node.inputs)):
            _fail(node, problem)
        try:
            types = node.op.infer(
                [v.type for v in node.inputs], node.attrs, [b.signature for b in node.blocks]
            )
        except TracerError as error:
            _fail(node, str(error))
        except (TypeError, ValueError, OverflowError, ArithmeticError, AttributeError) as error:
            _fail(node, f"{node.op.name} cannot be applied to these operands: {error}")
        given = tuple(v.type for v in node.outputs)
        if types != given:
            expected = ", ".join(map(str, types))
            _fail(node, f"the type of the result is {expected}, not {', '.join(map(str, given))}")
        blocks = tuple(node.blocks)
        graph.nodes.append(
            Node(node.op, node.inputs, node.attrs, node.outputs, node.origin, blocks)
        )

    # ---- ends ------------------------------------------------------------------------------------

    def _return(self, reader: Reader, graph: _Open) -> None:
        self._finish(graph)
        if graph.outputs is not None:
            reader.fail("expected '}' after 'return'")
        graph.outputs = self._operands(reader, graph)
        reader.expect(";")
        self._end(reader)

    def _close(self, reader: Reader) -> None:
        self._end(reader)
        closed = self.stack.pop()
        if closed.outputs is None:
            reader.fail("expected 'return (...);' before '}'")
        graph = Graph(
            tuple(closed.inputs),
            tuple(closed.nodes),
            closed.outputs,
            tuple(closed.input_names),
            closed.name,
        )
        if not self.stack:
            self.result = graph
            return
        pending = self.stack[-1].pending
        assert pending is not None
        pending.blocks.append(graph)

    def _end(self, reader: Reader) -> None:
        if not reader.at_end():
            reader.fail("expected the end of the line")


def _fail(node: _Pending, message: str) -> NoReturn:
    raise ParseError(f"line {node.number}: {message}")
