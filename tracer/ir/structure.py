"""Identity of graphs: whether two are the same in everything, and a hash of that.

Independent of the printer on purpose, so that what a text leaves out is found.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any

from ops.dims import Dim
from ops.forms import Form, Reference
from ops.operator import ArrayData
from ops.types import Type
from tracer.ir.graph import Graph, Value
from tracer.ir.literals import digest

Record = tuple[Any, ...]


def equal(first: Graph, second: Graph) -> bool:
    """Whether two graphs are the same in everything.

    Operators, attributes and constants bit by bit, types, names, scopes, sources, blocks.

    >>> graph = tracer.trace(lambda x: x + 1).ir(np.zeros(2))
    >>> tracer.ir.equal(graph, tracer.ir.parse(tracer.ir.to_text(graph)))
    True
    """
    if first is second:
        return True
    content = _Records(lambda a: (a.dtype, a.shape, a.data), origins=True)
    pairs = zip_longest(content.of(first), content.of(second))
    return all(a == b for a, b in pairs)


def fingerprint(graph: Graph, *, origins: bool = True) -> str:
    """A hash of everything that `equal` compares, the same in every process.

    `origins=False` leaves out names, scopes, sources and gradient marks: what remains is what the
    graph computes.

    >>> graph = tracer.trace(lambda x: x + 1).ir(np.zeros(2))
    >>> again = tracer.trace(lambda x: x + 1).ir(np.zeros(2))
    >>> tracer.ir.fingerprint(graph, origins=False) == tracer.ir.fingerprint(again, origins=False)
    True
    """
    key = f"fingerprint {origins}"
    if key not in graph._cache:
        result = hashlib.blake2b(digest_size=16)
        for record in _Records(digest, origins).of(graph):
            result.update(repr(record).encode("utf-8", "surrogatepass"))
        graph._cache[key] = result.hexdigest()
    return str(graph._cache[key])


class _Records:
    """A graph as a flat stream of plain tuples, in which values are numbers."""

    def __init__(self, array: Callable[[ArrayData], Any], origins: bool) -> None:
        self.array = array
        self.origins = origins

    def of(self, graph: Graph) -> Iterator[Record]:
        numbers: dict[Value, int] = {}
        yield ("graph", len(graph.inputs), len(graph.nodes), len(graph.outputs))
        if self.origins:
            yield ("name", graph.name, graph.input_names)
        for value in graph.inputs:
            yield ("input", self._define(value, numbers))
        for node in graph.nodes:
            yield (
                "node",
                node.op.name,
                tuple(numbers.get(v, -1) for v in node.inputs),
                tuple((k, self._attribute(v)) for k, v in node.attrs.items()),
                tuple(self._define(v, numbers) for v in node.outputs),
                len(node.blocks),
            )
            if self.origins:
                yield ("origin", node.origin.scope, node.origin.source, node.origin.gradient)
            for block in node.blocks:
                yield from self.of(block)
        yield ("return", tuple(numbers.get(v, -1) for v in graph.outputs))

    def _define(self, value: Value, numbers: dict[Value, int]) -> Record:
        numbers[value] = len(numbers)
        return _type(value.type)

    def _attribute(self, value: Any) -> Any:
        """The value with its Python type (True, 1 and 1.0 are three things), floats as bits."""
        match value:
            case float():
                return ("float", struct.pack("<d", value))
            case tuple():
                return tuple(self._attribute(v) for v in value)
            case ArrayData():
                return ("array", self.array(value))
            case Form():
                return self._form(value)
        return (type(value).__name__, str(value))

    def _form(self, form: Form) -> Any:
        nodes = tuple(
            (
                node.operator,
                node.outputs,
                self._operands(node.operands),
                tuple((k, self._attribute(v)) for k, v in node.attributes),
            )
            for node in form.nodes
        )
        return ("form", form.inputs, nodes, self._operands(form.outputs), form.problem)

    def _operands(self, operands: tuple[Any, ...]) -> Any:
        return tuple(
            ("value", x.number) if isinstance(x, Reference) else self._attribute(x)
            for x in operands
        )


def _type(type_: Type) -> Record:
    return type_.dtype, tuple(str(d) if isinstance(d, Dim) else d for d in type_.shape), type_.weak
