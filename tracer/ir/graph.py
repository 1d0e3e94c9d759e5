"""The graph: values defined once, frozen nodes in topological order, closed graphs as blocks.

Names exist only in print (`tracer.ir`), except those of inputs, which the user gave. Identity is the object. An edit is a new
graph, built with `GraphBuilder`, the only mutable thing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ops import table as table
from ops.operator import Application, Attributes, BlockType, Operator, RuleBuilder, lookup
from ops.types import Type


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value: what one input or one output of a node holds."""

    type: Type

    def __repr__(self) -> str:
        return f"<value {self.type} at {id(self):#x}>"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a node comes from: module path, the user's file:line, and whether it computes a gradient of that line."""

    scope: str = ""
    source: str = ""
    gradient: bool = False


NOWHERE = Origin()


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One application of an operator."""

    op: Operator
    inputs: tuple[Value, ...]
    attrs: Attributes
    outputs: tuple[Value, ...]
    origin: Origin = NOWHERE
    blocks: tuple[Graph, ...] = ()

    @property
    def output(self) -> Value:
        """The first output."""
        return self.outputs[0]

    @property
    def scope(self) -> str:
        """The module path, such as Net/Sequential[features]/Linear[0]."""
        return self.origin.scope

    @property
    def source(self) -> str:
        """The user's file:line."""
        return self.origin.source

    def __repr__(self) -> str:
        return f"<node {self.op.name}>"


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Inputs, nodes in an order in which every value is defined before it is used, outputs.

    `input_names`: one for each input, "" for none. `name`: of what was traced.
    """

    inputs: tuple[Value, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    input_names: tuple[str, ...] = ()
    name: str = ""
    _cache: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not self.input_names:
            object.__setattr__(self, "input_names", ("",) * len(self.inputs))

    def __repr__(self) -> str:
        return (
            f"<graph {self.name or 'unnamed'}: {len(self.inputs)} inputs, {len(self.nodes)} nodes>"
        )

    def __getstate__(self) -> tuple[Any, ...]:
        return self.inputs, self.nodes, self.outputs, self.input_names, self.name

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        for slot, value in zip(
            ("inputs", "nodes", "outputs", "input_names", "name"), state, strict=True
        ):
            object.__setattr__(self, slot, value)
        object.__setattr__(self, "_cache", {})

    @property
    def signature(self) -> BlockType:
        """Types of the inputs and outputs."""
        return BlockType(tuple(v.type for v in self.inputs), tuple(v.type for v in self.outputs))

    def values(self) -> Iterator[Value]:
        """Every value in order of definition."""
        yield from self.inputs
        for node in self.nodes:
            yield from node.outputs


class GraphBuilder(RuleBuilder):
    """Builds one graph. `op` infers types and appends a node; `origin` is what new nodes get."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.inputs: list[Value] = []
        self.input_names: list[str] = []
        self.nodes: list[Node] = []
        self.origin = NOWHERE

    def input(self, type_: Type, name: str = "") -> Value:
        """A new input."""
        value = Value(type_)
        self.inputs.append(value)
        self.input_names.append(name)
        return value

    def op(self, name: str, *inputs: Value, **attrs: Any) -> Any:
        """Append an application of the operator `name`."""
        return self.emit(lookup(name), inputs, attrs)

    def emit(
        self,
        op: Operator,
        inputs: Sequence[Value],
        attrs: Mapping[str, Any],
        blocks: tuple[Graph, ...] = (),
        origin: Origin | None = None,
    ) -> Any:
        """Append a node; one value, or a tuple when the operator has several outputs."""
        normal = op.normalize(attrs)
        types = op.infer([x.type for x in inputs], normal, [block.signature for block in blocks])
        outputs = tuple(Value(t) for t in types)
        self.nodes.append(Node(op, tuple(inputs), normal, outputs, origin or self.origin, blocks))
        return outputs[0] if len(outputs) == 1 else outputs

    def append(self, node: Node, inputs: Sequence[Value]) -> tuple[Value, ...]:
        """Append a copy of a node with other inputs of the same types."""
        outputs = tuple(Value(v.type) for v in node.outputs)
        self.nodes.append(
            Node(node.op, tuple(inputs), node.attrs, outputs, node.origin, node.blocks)
        )
        return outputs

    def build(self, outputs: Sequence[Value]) -> Graph:
        """The finished graph."""
        return Graph(
            tuple(self.inputs),
            tuple(self.nodes),
            tuple(outputs),
            tuple(self.input_names),
            self.name,
        )


def rebuild(
    graph: Graph,
    visit: Callable[[GraphBuilder, Node, tuple[Value, ...]], tuple[Value, ...] | None],
) -> Graph:
    """A new graph from the old one's nodes in order: the loop that every pass shares.

    `visit(builder, node, inputs)` emits what replaces the node and gives its outputs; None copies it. Inputs of the graph are
    kept as they are. Blocks are rebuilt by the same visit.
    """
    builder = GraphBuilder(graph.name)
    builder.inputs, builder.input_names = list(graph.inputs), list(graph.input_names)
    known: dict[Value, Value] = {v: v for v in graph.inputs}
    for node in graph.nodes:
        inputs = tuple(known[v] for v in node.inputs)
        builder.origin = node.origin
        if node.blocks:
            blocks = tuple(rebuild(block, visit) for block in node.blocks)
            node = Node(node.op, node.inputs, node.attrs, node.outputs, node.origin, blocks)
        outputs = visit(builder, node, inputs)
        if outputs is None:
            outputs = builder.append(node, inputs)
        known.update(zip(node.outputs, outputs, strict=True))
    return builder.build([known[v] for v in graph.outputs])


def used(graph: Graph) -> tuple[list[Node], set[Value]]:
    """Nodes that outputs depend on, in order, and the values that they read or the graph returns."""
    needed = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if any(v in needed for v in node.outputs):
            kept.append(node)
            needed.update(node.inputs)
    kept.reverse()
    return kept, needed


def application(node: Node, inputs: Sequence[Value] | None = None) -> Application:
    """The node as rules see it."""
    return Application(
        tuple(inputs) if inputs is not None else node.inputs,
        node.outputs,
        node.attrs,
        blocks=node.blocks,
    )
