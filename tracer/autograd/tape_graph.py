"""The tape of a trace as a graph, so that its gradient is `tracer.ir.differentiate`'s.

The graph of a trace does not say what was detached, computed under `no_grad` or made a leaf; the tape does. What it holds is the
part of the trace that gradients go through: a graph whose other operands are inputs. Knows the tape's own nodes. Where others
are on it (a Function with a backward in Python, an argument's history outside) or hooks, it has no graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracer.autograd.backward_walk import key_of, nodes_between
from tracer.autograd.tape import OperationNode
from tracer.dispatch.apply import Unsaved
from tracer.ir.graph import Graph, Node, Value
from tracer.tensors.tensor import Tensor


def tape_graph(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], start: int
) -> tuple[Graph, dict[Value, Value]] | None:
    """A graph of what was recorded between inputs and outputs; and what its values are in the trace, as far as rules read them.

    Its first inputs are those given, further ones are constants for gradients. `start`: where the trace begins. None where the
    tape says more than a graph can.
    """
    result = _TapeGraph(inputs)
    for node in nodes_between(outputs, inputs):
        if not isinstance(node, OperationNode) or node.hooks is not None or node.sequence < start:
            return None
        if not result.add(node):
            return None
    ends = [result.value(key_of(t), t) for t in outputs]
    if any(v.type != t.type for v, t in zip(ends, outputs, strict=True)):
        return None
    return Graph(tuple(result.inputs), tuple(result.nodes), tuple(ends)), result.recorded


class _TapeGraph:
    """The graph so far. `values`: by where their gradients arrive. `recorded`: what values are in the trace."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        self.inputs = [Value(x.type) for x in inputs]
        self.nodes: list[Node] = []
        self.values = {key_of(x): v for x, v in zip(inputs, self.inputs, strict=True)}
        self.recorded: dict[Value, Value] = {}

    def value(self, key: tuple[int, int] | None, like: Any) -> Value:
        """The value whose gradient arrives there; a new constant if none does, or nothing wanted lies behind."""
        found = None if key is None else self.values.get(key)
        if found is None:
            found = Value(like.type)
            self.inputs.append(found)
        return found

    def add(self, node: OperationNode) -> bool:
        """Whether the node fits: each value has one type and is one value of the trace."""
        operands = []
        for x, state, edge in zip(node.inputs, node.states, node.edges, strict=False):
            v = self.value(_key(edge), x)
            if v.type != x.type or not (isinstance(x, Unsaved) or self._is(v, state)):
                return False
            operands.append(v)
        outputs = tuple([Value(t) for t in node.types])
        for number, (v, y) in enumerate(zip(outputs, node.outputs, strict=True)):
            self.values[id(node), number] = v
            if not (isinstance(y, Unsaved) or (isinstance(y, Tensor) and self._is(v, y._value))):
                return False  # a Tensor that the user has packed, perhaps
        self.nodes.append(Node(node.op, tuple(operands), node.attrs, outputs, node.origin))
        return True

    def _is(self, value: Value, recorded: Any) -> bool:
        return (
            isinstance(recorded, Value)
            and recorded.type == value.type
            and self.recorded.setdefault(value, recorded) is recorded
        )


def _key(edge: Any) -> tuple[int, int] | None:
    if edge is None:
        return None
    return (id(edge[0]), edge[1]) if type(edge) is tuple else (id(edge), -1)
