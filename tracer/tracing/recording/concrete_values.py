"""The values of a running trace on the actual arguments and state, as far as Python asks for them.

Knows the nodes that were recorded and the operators' references. Must not know who asks. What was computed for one question is
kept for the next, so that a loop of many turns costs what its turns cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tracer.dispatch.eager import EAGER, compute
from tracer.ir.graph import Graph, Node, Value, producers
from tracer.ir.interpreter import interpret
from tracer.tensors.modes import interpreted_by

Array = np.ndarray[Any, Any]
MOST_BYTES = 256 << 20  # kept between questions; what is dropped is computed again


class Evaluation:
    """Elements of values. `made` gives the node of a value, `outside` the elements of one that no node made."""

    def __init__(
        self, made: Callable[[Value], Node | None], outside: Callable[[Value], Array]
    ) -> None:
        self._made, self._outside = made, outside
        self._known: dict[Value, Array] = {}
        self._bytes = 0

    def __call__(self, value: Value) -> Array:
        """The value's elements. Raises what an operator's reference raises, such as `BoundsError`."""
        with interpreted_by(EAGER), np.errstate(all="ignore"):
            self._evaluate(value)
        result = self._known[value]
        while self._bytes > MOST_BYTES:  # the oldest first: a loop goes on from its last turn
            self._bytes -= self._known.pop(next(iter(self._known))).nbytes
        return result

    def _evaluate(self, value: Value) -> None:
        for node in producers(value, self._made, self._known):
            arrays = [self._elements(v) for v in node.inputs]
            for v, array in zip(node.outputs, _results(node, arrays), strict=True):
                self._keep(v, np.asarray(array))
        self._elements(value)

    def _elements(self, value: Value) -> Array:
        if value not in self._known:
            self._keep(value, self._outside(value))
        return self._known[value]

    def _keep(self, value: Value, array: Array) -> None:
        self._known[value] = array
        self._bytes += array.nbytes


def _results(node: Node, arrays: list[Array]) -> tuple[Any, ...] | list[Any]:
    if node.blocks:
        return interpret(Graph(node.inputs, (node,), node.outputs), arrays)
    return compute(node.op, arrays, [v.type for v in node.inputs], node.attrs)
