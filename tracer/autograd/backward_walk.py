"""The reverse walk: nodes in the opposite order of recording, cotangents summed where paths meet, hooks on the way.

One mechanism for eager and traced code: gradient rules build with Tensors, which run at once or are recorded. Must not know
who asked for gradients, or what `.grad` is.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tracer.autograd import hooks
from tracer.autograd.gradient_node import GradientNode, edge_of
from tracer.dispatch.apply import BUILDER
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor

Pairs = list[tuple[Tensor, Tensor]]


def key_of(x: Tensor) -> tuple[int, int]:
    """Where the gradient of x arrives: an output of a node, or a leaf."""
    edge = edge_of(x)
    return (id(edge[0]), edge[1]) if type(edge) is tuple else (id(x), -1)


class Walk:
    """One walk from `outputs` back: to all leaves, or to `wanted`, whose gradients are `captured`.

    `accumulate` is told complete gradients of leaves. `found`: what is left to add to `.grad`: of leaves, and of results that
    keep theirs. `inputs_are_ends`: see `cotangents_at`.
    """

    def __init__(
        self,
        outputs: Sequence[Tensor],
        seeds: Sequence[Tensor],
        wanted: Sequence[Tensor] | None,
        accumulate: Callable[[Tensor, Tensor, Pairs], None] | None = None,
        inputs_are_ends: bool = False,
    ) -> None:
        self.accumulate = accumulate
        self.ends = {key_of(x) for x in wanted or ()} if inputs_are_ends else None
        self.targets = {key_of(x) for x in wanted or ()}
        self.captured: dict[tuple[int, int], Tensor] = {}
        self.found: Pairs = []
        self._pending: dict[GradientNode, list[Tensor | None]] = {}
        self._heap: list[tuple[int, int, GradientNode]] = []
        self._survey(outputs, None if wanted is None else {id(x) for x in wanted if x.is_leaf})
        self._leaves: dict[int, tuple[Tensor, Tensor | None]] = {}
        for tensor, seed in zip(outputs, seeds, strict=True):
            self._give(edge_of(tensor), seed)

    def _survey(self, outputs: Sequence[Tensor], leaves: set[int] | None) -> None:
        """Find the nodes to visit, and count how many cotangents each leaf will get from them."""
        visited = self._reachable(outputs)
        self._reaches: dict[GradientNode, bool] | None = None
        if leaves is not None:
            self._reaches = self._leading_to(leaves, visited)
            visited = [node for node, below in self._reaches.items() if below]
        awaited = self._awaited = dict[int, int]()
        for x in outputs:
            if x.grad_fn is None:
                awaited[id(x)] = awaited.get(id(x), 0) + 1
        for node in visited:
            for edge in node.edges:
                if isinstance(edge, Tensor) and (leaves is None or id(edge) in leaves):
                    awaited[id(edge)] = awaited.get(id(edge), 0) + 1

    def _reachable(self, outputs: Sequence[Tensor]) -> list[GradientNode]:
        found: dict[int, GradientNode] = {}
        stack = [
            x.grad_fn for x in outputs if x.grad_fn is not None and not self._is_end(key_of(x))
        ]
        while stack:
            node = stack.pop()
            if id(node) in found:
                continue
            found[id(node)] = node
            for edge in node.edges:
                if type(edge) is tuple and id(edge[0]) not in found:
                    if self.ends is not None and self._is_end((id(edge[0]), edge[1])):
                        continue
                    stack.append(edge[0])
        return list(found.values())

    def _leading_to(self, leaves: set[int], nodes: list[GradientNode]) -> dict[GradientNode, bool]:
        """The nodes on a way to what is wanted: True where the walk goes on below, False where it stops."""
        result: dict[GradientNode, bool] = {}
        goals = {node for node, number in self.targets if number >= 0}
        for node in sorted(nodes, key=lambda n: n.sequence):
            below = any(
                (e[0] in result or self._is_end((id(e[0]), e[1])))
                if type(e) is tuple
                else id(e) in leaves
                for e in node.edges
            )
            if below or (id(node) in goals and self.ends is None):
                result[node] = below
        return result

    def _is_end(self, key: tuple[int, int]) -> bool:
        return self.ends is not None and key in self.ends

    def _give(self, edge: Any, cotangent: Tensor | None, giver: GradientNode | None = None) -> None:
        """A cotangent for a leaf or a node's result; None for one that turned out to be zero. `giver`: whose backward gave it."""
        if type(edge) is not tuple:
            self._give_leaf(edge, cotangent, giver)
            return
        if cotangent is None:
            return
        node, number = edge
        if self.ends is not None and (id(node), number) in self.ends:
            self._capture((id(node), number), cotangent)
            return
        if self._reaches is not None and node not in self._reaches:
            return
        slots = self._pending.get(node)
        if slots is None:
            slots = self._pending[node] = [None] * len(node.types)
            heapq.heappush(self._heap, (-node.sequence, id(node), node))
        old = slots[number]
        slots[number] = cotangent if old is None else _sum(old, cotangent, giver)

    def _give_leaf(
        self, leaf: Tensor, cotangent: Tensor | None, giver: GradientNode | None
    ) -> None:
        left = self._awaited.get(id(leaf))
        if left is None:
            return  # not wanted
        self._awaited[id(leaf)] = left - 1
        known = self._leaves.get(id(leaf))
        total = known[1] if known is not None else None
        if cotangent is not None:
            total = cotangent if total is None else _sum(total, cotangent, giver)
        if left > 1:
            self._leaves[id(leaf)] = leaf, total
            return
        self._leaves.pop(id(leaf), None)
        if total is not None:
            self._complete(leaf, total)

    def _complete(self, leaf: Tensor, gradient: Tensor) -> None:
        """All that a leaf gets has arrived."""
        waiting = None if self.ends is not None else leaf._accumulator
        if waiting is not None:
            gradient = hooks.run_on_gradient(waiting.hooks.table(0), gradient, leaf.type)
        key = id(leaf), -1
        if key in self.targets:
            self._capture(key, gradient)
        if self.accumulate is not None:
            self.accumulate(leaf, gradient, self.found)

    def _capture(self, key: tuple[int, int], gradient: Tensor) -> None:
        old = self.captured.get(key)
        self.captured[key] = gradient if old is None else BUILDER.op("Add", old, gradient)

    def run(self, retain: bool) -> None:
        """Visit the nodes, those recorded last first."""
        while self._heap:
            _, _, node = heapq.heappop(self._heap)
            gradients = self._pending.pop(node)
            if node.hooks is not None:
                self.found += node.hooks.arrive(node, gradients, node.types)
            for number, gradient in enumerate(gradients):
                if gradient is not None and (id(node), number) in self.targets:
                    self._capture((id(node), number), gradient)
            if self._reaches is None or self._reaches[node]:
                self._visit(node, tuple(gradients))
                if not retain:
                    node.release()
        # leaves for which less came than the history led to expect, since a gradient was zero
        for leaf, total in list(self._leaves.values()):
            if total is not None:
                self._complete(leaf, total)

    def _visit(self, node: GradientNode, gradients: tuple[Tensor | None, ...]) -> None:
        """The node's backward, between its hooks; what it gives goes on to those that made its inputs."""
        MODES.interpreter.require_inside(node)
        if node.hooks is not None:
            gradients = hooks.run_before(node.hooks.before, gradients, node.types)
        cotangents = node.completed(gradients)
        types = node.input_types
        with _attributed(node):
            results = node.backward(BUILDER, cotangents)
            found: tuple[Tensor | None, ...] = tuple(
                None
                if edge is None or dx is None or type_ is None
                else BUILDER.sum_to(dx, type_.shape)
                if dx.type.shape != type_.shape
                else dx
                for edge, type_, dx in zip(node.edges, types, results, strict=True)
            )
        anomaly_mode = MODES.interpreter.anomaly_mode()
        if anomaly_mode is not None:
            anomaly_mode.look_at_gradients(node, found)
        if node.hooks is not None:
            found = hooks.run_after(node.hooks.after, found, types, gradients)
        for edge, dx in zip(node.edges, found, strict=True):
            if edge is not None:
                self._give(edge, dx, node)


def _sum(old: Tensor, more: Tensor, giver: GradientNode | None) -> Tensor:
    """What several backwards give to one place; it is part of the last one's gradient."""
    with nullcontext() if giver is None else _attributed(giver):
        total: Tensor = BUILDER.op("Add", old, more)
    return total


def _attributed(node: GradientNode) -> AbstractContextManager[None]:
    """What is computed inside is the node's gradient, for those who ask where a value comes from."""
    return MODES.interpreter.computing_gradient_of(node)


def nodes_between(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[GradientNode]:
    """The nodes on the ways back from outputs to inputs, in the order of recording."""
    walk = Walk((), (), inputs, inputs_are_ends=True)
    leaves = {id(x) for x in inputs if x.is_leaf}
    nodes = walk._leading_to(leaves, walk._reachable(outputs))
    return [node for node, below in nodes.items() if below]


def is_used_up(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> bool:
    """Whether a walk back from outputs comes, on its way to inputs, to what an earlier backward has used up."""
    return any(node.released for node in nodes_between(outputs, inputs))
