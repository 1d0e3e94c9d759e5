"""The graph: values defined once, frozen nodes in topological order, closed graphs as blocks.

Names exist only in print (`tracer.ir`), except those of inputs, which the user gave. Identity is the object. An edit is a new
graph, built with `GraphBuilder`, the only mutable thing here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ops import table as table
from ops.operator import Application, Attributes, BlockType, Operator, RuleBuilder, lookup
from ops.types import Type


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A value: what one input or one output of a node holds.

    >>> graph = tracer.trace(lambda x: -x).ir(np.zeros(2))
    >>> str(graph.inputs[0].type)
    'Double(2)'
    """

    type: Type

    def __repr__(self) -> str:
        return f"<value {self.type} at {id(self):#x}>"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a node comes from: module path, the user's file:line, and whether it computes a gradient of that line.

    >>> graph = tracer.onnx.to_graph(tracer.nn.ReLU(), tracer.zeros(3)).graph
    >>> graph.nodes[0].origin.scope
    'ReLU'
    """

    scope: str = ""
    source: str = ""
    gradient: bool = False


NOWHERE = Origin()


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One application of an operator.

    >>> graph = tracer.trace(lambda x: -x).ir(np.zeros(2))
    >>> graph.nodes[0].op.name, graph.nodes[0].inputs == graph.inputs
    ('Neg', True)
    """

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
    def has_effect(self) -> bool:
        """Whether the world outside notices it, or anything in its blocks."""
        return self.op.has_ordered_effect or any(n.has_effect for b in self.blocks for n in b.nodes)

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

    >>> graph = tracer.trace(lambda x: -x).ir(np.zeros(2))
    >>> graph.input_names, len(graph.nodes), graph.outputs[0].type
    (('x',), 1, Type(dtype='float64', shape=(2,), weak=False))
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
    """Builds one graph. `op` infers types and appends a node; `origin` is what new nodes get.

    >>> g = tracer.ir.GraphBuilder("double")
    >>> x = g.input(tracer.zeros(2).type, "x")
    >>> graph = g.build([g.Add(x, x)])
    >>> tracer.interpret.interpret(graph, [np.ones(2, np.float32)])
    [array([2., 2.], dtype=float32)]
    """

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

    def op(self, name: str, *inputs: Value, blocks: tuple[Graph, ...] = (), **attrs: Any) -> Any:
        """Append an application of the operator `name`."""
        return self.emit(lookup(name), inputs, attrs, blocks)

    def block(
        self, types: Sequence[Type], build: Callable[..., Sequence[Value]], name: str = ""
    ) -> Graph:
        """A closed graph for a node of this one: what `build(builder, *inputs)` makes of inputs of these types."""
        inner = GraphBuilder(name)
        inner.origin = self.origin
        return inner.build(build(inner, *(inner.input(t) for t in types)))

    def inline(self, graph: Graph, inputs: Sequence[Value]) -> list[Value]:
        """Append copies of a graph's nodes, with these values for its inputs; its outputs."""
        return evaluate(graph, inputs, self.append)

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


T = TypeVar("T")


def evaluate(
    graph: Graph,
    inputs: Sequence[T],
    apply: Callable[[Node, tuple[T, ...]], Sequence[T]],
    *,
    release: bool = False,
) -> list[T]:
    """The graph's outputs where its inputs are something else: arrays, Tensors, values of another graph.

    `apply(node, operands)` gives what the outputs of a node are then, node by node in order. With `release` each is dropped after
    its last use.
    """
    known: dict[Value, T] = dict(zip(graph.inputs, inputs, strict=True))
    nothing: Sequence[Value] = ()
    dead = _last_uses(graph) if release else itertools.repeat(nothing, len(graph.nodes))
    for node, ending in zip(graph.nodes, dead, strict=True):
        operands = tuple([known[v] for v in node.inputs])
        known.update(zip(node.outputs, apply(node, operands), strict=True))
        for value in ending:
            del known[value]
    return [known[v] for v in graph.outputs]


def _last_uses(graph: Graph) -> list[list[Value]]:
    """For each node, the values that nothing after it needs."""
    alive = set(graph.outputs)
    dead: list[list[Value]] = []
    for node in reversed(graph.nodes):
        ending = [v for v in dict.fromkeys((*node.inputs, *node.outputs)) if v not in alive]
        alive.update(ending)
        dead.append(ending)
    dead.reverse()
    return dead


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

    def apply(node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...]:
        builder.origin = node.origin
        if node.blocks:
            blocks = tuple(rebuild(block, visit) for block in node.blocks)
            node = Node(node.op, node.inputs, node.attrs, node.outputs, node.origin, blocks)
        outputs = visit(builder, node, inputs)
        return builder.append(node, inputs) if outputs is None else outputs

    return builder.build(evaluate(graph, graph.inputs, apply))


def used(graph: Graph, effects: bool = False) -> tuple[list[Node], set[Value]]:
    """Nodes that outputs depend on, in order, and the values that they read or the graph returns. `effects`: and those that
    nodes with effects depend on.
    """
    needed = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if any(v in needed for v in node.outputs) or (effects and node.has_effect):
            kept.append(node)
            needed.update(node.inputs)
    kept.reverse()
    return kept, needed


def producers(
    value: Value, made: Callable[[Value], Node | None], known: Container[Value]
) -> list[Node]:
    """The nodes that a value follows from, as far as nobody knows them, in an order in which they can run.

    `made` gives the node of a value, None for one that no node made. Nothing recurses over depth.
    """
    found: dict[Node, None] = {}
    stack = [value]
    while stack:
        node = None if stack[-1] in known else made(stack[-1])
        missing = (
            []
            if node is None or node in found
            else [v for v in node.inputs if v not in known and made(v) not in found and made(v)]
        )
        if missing:
            stack.extend(missing)
            continue
        stack.pop()
        if node is not None:
            found[node] = None
    return list(found)


def application(node: Node, inputs: Sequence[Value] | None = None) -> Application:
    """The node as rules see it."""
    return Application(
        tuple(inputs) if inputs is not None else node.inputs,
        node.outputs,
        node.attrs,
        blocks=node.blocks,
    )
