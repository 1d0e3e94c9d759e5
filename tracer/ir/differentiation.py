"""The gradient of a graph is a graph: `differentiate` gives one that runs forward and keeps what backward reads (residuals), and
one that runs backward on these and on cotangents.

Graph to graph, like a pass: what comes out prints, is parsed, verified, interpreted, compiled and differentiated again. Knows
graphs and the operators' gradient rules, with which it builds. Must not know Tensors, what the user detached, hooks, or
Functions with a backward in Python: these are on the tape (`tracer.autograd.tape`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from ops.compute import Composite
from ops.errors import ArgumentError, GradError
from ops.operator import Application, Derived, NoGradient, Operator, ZeroGradient
from ops.types import Type, is_floating, short
from tracer.ir.graph import Graph, GraphBuilder, Node, Origin, Value, used


@dataclass(frozen=True, slots=True)
class Differentiated:
    """What `differentiate` gives.

    `forward`: the graph, with residuals behind its outputs. `backward`: from the residuals, then a cotangent for each of
    `outputs`, to a gradient for each of `wrt`; both are numbers, of outputs and inputs of the graph.

        >>> from tracer.ir import GraphBuilder, Type, differentiate
        >>> g = GraphBuilder()
        >>> halves = differentiate(g.build([g.Exp(g.input(Type("float32", (3,)), "x"))]))
        >>> len(halves.forward.outputs), len(halves.backward.inputs)
        (2, 2)
    """

    forward: Graph
    backward: Graph
    wrt: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def residuals(self) -> tuple[Type, ...]:
        """The types of the residuals, in order."""
        count = len(self.backward.inputs) - len(self.outputs)
        return tuple(v.type for v in self.backward.inputs[:count])

    @property
    def forwarded(self) -> tuple[int | None, ...]:
        """For each residual the number of the input that it is, None for one that is computed."""
        numbers = {v: k for k, v in enumerate(self.forward.inputs)}
        kept = self.forward.outputs[len(self.forward.outputs) - len(self.residuals) :]
        return tuple(numbers.get(v) for v in kept)

    def joint(self) -> Graph:
        """Both in one: from the graph's inputs, then the cotangents, to the graph's outputs, then the gradients.

        Differentiated again, it gives gradients of gradients.
        """
        g = GraphBuilder(self.backward.name)
        names = self.forward.input_names
        inputs = [g.input(v.type, n) for v, n in zip(self.forward.inputs, names, strict=True)]
        kept = len(self.residuals)
        cotangents = [g.input(v.type) for v in self.backward.inputs[kept:]]
        results = g.inline(self.forward, inputs)
        count = len(results) - kept
        gradients = g.inline(self.backward, (*results[count:], *cotangents))
        return g.build((*results[:count], *gradients))


def differentiate(
    graph: Graph,
    wrt: Sequence[int] | None = None,
    outputs: Sequence[int] | None = None,
    *,
    materialize_grads: bool = True,
) -> Differentiated:
    """The gradients of a graph's outputs with respect to its inputs, as graphs.

    Residuals are those values of `forward` whose elements the wanted gradients read, inputs among them; constants are computed
    again. Cotangents and gradients have the types of what they belong to, never weak. Products with cotangents are those of
    `docs/numerics.md`: 0 times anything is 0. An operator whose gradient follows from its decomposition is decomposed in
    `forward`. A node with blocks is differentiated through its blocks, by its operator's rule. Nodes of `backward` have the
    origins of those that they go back over, marked as gradient.

    Args:
        graph: What is differentiated.
        wrt: Numbers of the inputs that gradients are wanted of; None for all floating ones.
        outputs: Numbers of the outputs that `backward` takes cotangents of; None for all floating ones.
        materialize_grads: Zeros for an input that the outputs do not depend on; else it is left out of the result's `wrt`.

    Returns:
        `Differentiated`, whose `forward` has the inputs of the graph.

    Raises:
        ArgumentError: There is no input or output of such a number.
        GradError: An input or output is not floating, or an operator on the way has no gradient.

        >>> from tracer.ir import GraphBuilder, Type, differentiate
        >>> g = GraphBuilder("square")
        >>> x = g.input(Type("float32", (3,)), "x")
        >>> halves = differentiate(g.build([g.Mul(x, x)]))
        >>> print(halves.backward, end="")
        graph(%x : Float(3)
              %1 : Float(3)) {  # square.backward
          %2 : Float(3) = MulNoNan(%1, %x)  # gradient
          %3 : Float(3) = MulNoNan(%1, %x)  # gradient
          %4 : Float(3) = Add(%2, %3)  # gradient
          return (%4);
        }

    """
    wrt = _chosen(wrt, graph.inputs, "input")
    outputs = _chosen(outputs, graph.outputs, "output")
    walk = _Reverse(graph, {graph.inputs[k] for k in wrt})
    cotangents = walk.start([graph.outputs[k] for k in outputs])
    walk.run()
    found = [walk.cotangents.get(graph.inputs[k]) for k in wrt]
    if materialize_grads:
        walk.origin = Origin(gradient=True)
        types = [graph.inputs[k].type for k in wrt]
        found = [walk.zeros(t) if c is None else c for c, t in zip(found, types, strict=True)]
    nodes = walk.forward_nodes()
    backward, residuals = partition(
        walk.nodes,
        cotangents,
        [c for c in found if c is not None],
        {v: node for node in nodes for v in node.outputs}.get,
        f"{graph.name}.backward" if graph.name else "",
        dict(zip(graph.inputs, graph.input_names, strict=True)),
    )
    results = tuple(walk.now(v) for v in (*graph.outputs, *residuals))
    return Differentiated(
        Graph(graph.inputs, nodes, results, graph.input_names, graph.name),
        backward,
        tuple(k for k, c in zip(wrt, found, strict=True) if c is not None),
        outputs,
    )


def _chosen(numbers: Sequence[int] | None, values: Sequence[Value], what: str) -> tuple[int, ...]:
    if numbers is None:
        return tuple(k for k, v in enumerate(values) if is_floating(v.type.dtype))
    for k in numbers:
        if not 0 <= k < len(values):
            raise ArgumentError(f"the graph has {len(values)} {what}s, there is no {what} {k}")
        if not is_floating(values[k].type.dtype):
            raise GradError(
                f"{what} {k}, {short(values[k].type)}, has no gradient: it is not floating"
            )
    return tuple(numbers)


def partition(
    nodes: Sequence[Node],
    cotangents: Sequence[Value],
    gradients: Sequence[Value],
    made: Callable[[Value], Node | None],
    name: str,
    input_names: Mapping[Value, str] = MappingProxyType({}),
) -> tuple[Graph, list[Value]]:
    """A graph of its own of the nodes that compute gradients of cotangents and of values of another graph; and these values.

    `made` gives the node there that makes a value: one without operands, such as a constant, is run again rather than its value
    handed over.
    """
    kept, _ = used(Graph((), tuple(nodes), tuple(gradients)))
    known = {v for node in nodes for v in node.outputs}
    known.update(cotangents)
    wanted = [*(v for node in kept for v in node.inputs), *gradients]
    makers = dict.fromkeys(made(v) for v in wanted if v not in known)
    free = [node for node in makers if node is not None and _is_free(node)]
    known.update(v for node in free for v in node.outputs)
    residuals = list(dict.fromkeys(v for v in wanted if v not in known))
    inputs = (*residuals, *cotangents)
    names = tuple(input_names.get(v, "") for v in inputs)
    return Graph(inputs, (*free, *kept), tuple(gradients), names, name), residuals


def _is_free(node: Node) -> bool:
    return not (node.inputs or node.blocks or node.op.random)


def pullback(g: Any, op: Operator, n: Application, source: str) -> Sequence[Any]:
    """The cotangents of an operator's inputs, by its gradient rule; None where it gives none. `source`: the user's line.

    Raises `GradError` for an operator that has no gradient.
    """
    if isinstance(op.vjp, NoGradient):
        raise GradError(f"{op.name} has no gradient: {op.vjp.reason}; recorded at {source}")
    if isinstance(op.vjp, ZeroGradient):
        return tuple(
            g.zeros(x.type) if need else None for x, need in zip(n.inputs, n.needs, strict=True)
        )
    found: Sequence[Any] = op.vjp(g, n)  # type: ignore[operator]
    return found


class _Reverse(GraphBuilder):
    """The reverse walk over one graph, and what gradient rules build with on it.

    A rule for a node with blocks also has `block` and `inline` of `GraphBuilder`, `differentiate` and `forward`. `nodes`: of
    backward. `active`: the values that gradients go through. `cotangents`: by value, what has arrived so far.
    """

    def __init__(self, graph: Graph, wrt: set[Value]) -> None:
        super().__init__()
        self.active = wrt
        self.cotangents: dict[Value, Value] = {}
        self._aliases: dict[Value, Value] = {}  # what a value of the graph is in forward
        self._instead: dict[Node, list[Node]] = {}  # what runs in forward in the place of a node
        self._node: Node | None = None
        self._forward = self._decomposed(graph)

    # ---- forward
    def _decomposed(self, graph: Graph) -> list[Node]:
        """The graph's nodes; where gradients go through an operator whose gradient is that of its decomposition, that instead."""
        result: list[Node] = []
        pending = list(reversed(graph.nodes))
        while pending:
            node = self._on_forward(pending.pop())
            if any(v in self.active for v in node.inputs):
                if isinstance(node.op.vjp, Derived) and isinstance(node.op.compute, Composite):
                    pending += reversed(self._expansion(node, node.op.compute))
                    continue
                self.active.update(v for v in node.outputs if is_floating(v.type.dtype))
            result.append(node)
        return result

    def _expansion(self, node: Node, compute: Composite) -> list[Node]:
        g = GraphBuilder()
        g.origin = node.origin
        self._stand_for(node, compute.rule(g, Application(node.inputs, (), node.attrs)))
        return g.nodes

    def _stand_for(self, node: Node, results: Any) -> list[Value]:
        """From now on the first results are what the node's outputs were; the others."""
        given = list(results) if isinstance(results, tuple | list) else [results]
        count = len(node.outputs)
        self._aliases.update(
            (v, y) for v, y in zip(node.outputs, given, strict=False) if v is not y
        )
        return given[count:]

    def now(self, value: Value) -> Value:
        """What a value of the graph is in forward."""
        while value in self._aliases:
            value = self._aliases[value]
        return value

    def _on_forward(self, node: Node) -> Node:
        if not any(v in self._aliases for v in node.inputs):
            return node
        return replace(node, inputs=tuple(map(self.now, node.inputs)))

    def forward_nodes(self) -> tuple[Node, ...]:
        """The nodes of forward, once the walk is over."""
        nodes = (n for node in self._forward for n in self._instead.get(node, (node,)))
        return tuple(map(self._on_forward, nodes))

    # ---- what rules for nodes with blocks use beside
    def differentiate(
        self, block: Graph, wrt: Sequence[int], outputs: Sequence[int]
    ) -> Differentiated:
        """`differentiate` for a block; `wrt` and `outputs` number what the block takes and gives."""
        return differentiate(block, wrt, outputs)

    def forward(self, build: Callable[[GraphBuilder], Any]) -> list[Value]:
        """Run something else forward in the place of the node that the rule is for: `build(builder)` gives its results.

        The first ones stand for what the node gave; the others, which are for backward, are returned.
        """
        node = self._node
        assert node is not None
        g = GraphBuilder()
        g.origin = node.origin
        further = self._stand_for(node, build(g))
        self._instead[node] = g.nodes
        return further

    # ---- backward
    def start(self, outputs: Sequence[Value]) -> list[Value]:
        """Inputs for the cotangents of these values, which have arrived there."""
        result = []
        self.origin = Origin(gradient=True)
        for v in outputs:
            result.append(self.input(v.type.strong()))
            self._give(self.now(v), result[-1])
        return result

    def run(self) -> None:
        """Visit the nodes in reverse."""
        for node in reversed(self._forward):
            arrived = [self.cotangents.pop(v, None) for v in node.outputs]
            needs = tuple([v in self.active for v in node.inputs])
            if any(needs) and any(c is not None for c in arrived):
                self._visit(node, arrived, needs)

    def _visit(self, node: Node, arrived: Sequence[Value | None], needs: tuple[bool, ...]) -> None:
        self._node = node
        self.origin = Origin(node.origin.scope, node.origin.source, gradient=True)
        # a rule for blocks need not go back from results that nothing depends on
        cotangents = tuple(
            self.zeros(v.type) if c is None and not node.blocks else c
            for c, v in zip(arrived, node.outputs, strict=True)
        )
        n = Application(node.inputs, node.outputs, node.attrs, cotangents, needs, node.blocks)
        given = [
            None if dx is None or not need else self.sum_to(dx, v.type.shape)
            for v, need, dx in zip(
                node.inputs, needs, pullback(self, node.op, n, node.source), strict=True
            )
        ]
        for v, dx in zip(node.inputs, given, strict=True):
            if dx is not None:
                self._give(v, dx)

    def _give(self, value: Value, cotangent: Value) -> None:
        known = self.cotangents.get(value)
        self.cotangents[value] = cotangent if known is None else self.op("Add", known, cotangent)
