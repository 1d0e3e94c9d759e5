"""The reverse walk: nodes in the opposite order of recording, cotangents summed where paths meet.

One mechanism for eager and traced code: gradient rules build with Tensors, which run at once or are recorded.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ops.errors import ArgumentError, GradError, TraceError, TracerError
from ops.types import short
from tracer.autograd import anomaly, hooks
from tracer.autograd.history import Node, edge_of
from tracer.dispatch import BUILDER, located
from tracer.modes import MODES, enable_grad, no_grad
from tracer.tensor import Tensor

Tensors = Tensor | Sequence[Tensor]
Pairs = list[tuple[Tensor, Tensor]]


def backward(
    tensors: Tensors,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Tensors | None = None,
) -> None:
    """Accumulate gradients in `.grad` of all leaves that the tensors depend on, or of `inputs` only.

    `grad_tensors`: cotangents, one for each tensor; None is 1 for a tensor of one element. `retain_graph`: keep what was
    saved, so that the walk can be repeated; as `create_graph` unless given. Nothing is written if an error comes, except
    to leaves that hooks wait for. Raises `GradError`.
    """
    try:
        outs = _listed(tensors, "backward")
        wanted = None if inputs is None else _listed(inputs, "backward(inputs=...)")
        if wanted is not None:
            if not wanted:
                raise GradError("backward got no inputs; leave `inputs` out for all leaves")
            _require_gradients(wanted)
            for x in wanted:
                x.retain_grad()
        retain = create_graph if retain_graph is None else retain_graph
        seeds = _seeds(outs, grad_tensors, create_graph)
        with enable_grad() if create_graph else no_grad():
            known = {id(seed) for seed in seeds}
            walk = _Walk(outs, seeds, wanted, accumulate=_Accumulation(known))
            walk.run(retain)
            for tensor, gradient in walk.found:
                _write(tensor, gradient, known)
    except TracerError as error:
        raise located(error) from None


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of outputs with respect to inputs, `.grad` of leaves untouched.

    Returns one Tensor for each input. Where outputs do not depend on it: None with `allow_unused`, zeros with
    `materialize_grads`, else an error. Raises `GradError`.
    """
    try:
        outs = _listed(outputs, "grad")
        ins = _listed(inputs, "grad(inputs=...)")
        if not ins:
            raise GradError("grad got no inputs: it gives the gradients with respect to these")
        if materialize_grads and allow_unused is False:
            raise ArgumentError(
                "materialize_grads=True gives zeros for unused inputs, so allow_unused=False contradicts it; leave one out"
            )
        _require_gradients(ins)
        retain = create_graph if retain_graph is None else retain_graph
        seeds = _seeds(outs, grad_outputs, create_graph)
        with enable_grad() if create_graph else no_grad():
            walk = _Walk(outs, seeds, ins)
            walk.run(retain)
            known = {id(g) for g in (*seeds, *walk.captured.values())}
            for tensor, gradient in walk.found:
                _write(tensor, gradient, known)
        result = tuple(walk.captured.get(_key(x)) for x in ins)
        if materialize_grads:
            return tuple(
                BUILDER.zeros(x.type) if g is None else g for g, x in zip(result, ins, strict=True)
            )
        if not allow_unused and any(g is None for g in result):
            unused = next(i for i, g in enumerate(result) if g is None)
            raise GradError(
                f"outputs do not depend on input {unused}, {short(ins[unused].type)}; pass allow_unused=True to get None "
                "for it, or materialize_grads=True to get zeros"
            )
        return result
    except TracerError as error:
        raise located(error) from None


def cotangents_at(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], seeds: Sequence[Tensor]
) -> list[Tensor | None]:
    """What arrives at inputs as a piece of a larger walk sees it: nothing behind them is visited, and none of their hooks run."""
    with no_grad():
        walk = _Walk(outputs, seeds, inputs, inputs_are_ends=True)
        walk.run(retain=True)
    return [walk.captured.get(_key(x)) for x in inputs]


# ---- arguments -----------------------------------------------------------------------------------


def _listed(tensors: Any, what: str) -> list[Tensor]:
    listed = [tensors] if isinstance(tensors, Tensor) else tensors
    if not isinstance(listed, list | tuple) or not all(isinstance(x, Tensor) for x in listed):
        wrong = (
            next(type(x).__name__ for x in listed if not isinstance(x, Tensor))
            if isinstance(listed, list | tuple)
            else type(listed).__name__
        )
        raise ArgumentError(f"{what} takes a Tensor or a list of Tensors, got {wrong}")
    return list(listed)


def refuse_volatile(tensors: Sequence[Tensor]) -> None:
    """Raise `GradError` for a Tensor of which no gradient was to be asked for."""
    for tensor in tensors:
        if tensor.volatile:
            raise located(
                GradError(
                    f"{short(tensor.type)} is volatile, or was computed from a volatile Tensor, and keeps no history for "
                    "gradients; compute it from Tensors that are not (x.data is the same memory without the flag)"
                )
            )


def _require_gradients(inputs: Sequence[Tensor]) -> None:
    refuse_volatile(inputs)
    for number, x in enumerate(inputs):
        if not x.requires_grad:
            raise GradError(
                f"input {number}, {short(x.type)}, does not require a gradient; set requires_grad before it is used"
            )


def _seeds(tensors: Sequence[Tensor], gradients: Any, create_graph: bool) -> list[Tensor]:
    """One cotangent for each tensor."""
    if gradients is None:
        gradients = [None] * len(tensors)
    elif isinstance(gradients, Tensor) or not isinstance(gradients, list | tuple):
        gradients = [gradients]
    if len(gradients) != len(tensors):
        raise GradError(
            f"one gradient for each of {len(tensors)} tensors is needed, got {len(gradients)}"
        )
    with enable_grad() if create_graph else no_grad():
        return [_seed(t, g) for t, g in zip(tensors, gradients, strict=True)]


def _seed(tensor: Tensor, gradient: Any) -> Tensor:
    from tracer.functions.creation import as_tensor

    if not tensor.requires_grad:
        refuse_volatile([tensor])
        raise GradError(
            f"{short(tensor.type)} does not require a gradient and has no history: nothing that it was computed from has "
            "requires_grad, or it was computed under no_grad"
        )
    if gradient is None:
        if tensor.type.size != 1:
            raise GradError(
                f"a gradient is computed of a Tensor of one element, got {short(tensor.type)}; reduce it first (t.sum()), "
                "or pass `gradient` with its shape"
            )
        one: Tensor = BUILDER.like(1, tensor)
        if tensor.type.shape != ():
            one = BUILDER.op("Expand", one, shape=tensor.type.shape)
        return one
    seed = as_tensor(gradient)
    if seed.type.shape != tensor.type.shape:
        raise GradError(
            f"the gradient must have the shape of {short(tensor.type)}, got {short(seed.type)}"
        )
    if seed.type.dtype != tensor.type.dtype:
        cast: Tensor = BUILDER.op("Cast", seed, to=tensor.type.dtype)
        return cast
    return seed


# ---- .grad ---------------------------------------------------------------------------------------


class _Accumulation:
    """What a walk does with complete gradients of leaves: they go to `.grad`, at once where hooks wait for it."""

    def __init__(self, known: set[int]) -> None:
        self.known = known

    def __call__(self, leaf: Tensor, gradient: Tensor, found: Pairs) -> None:
        waiting = leaf._accumulator
        if waiting is None:
            found.append((leaf, gradient))
            return
        (before,) = hooks.run_before(waiting.hooks.before, (gradient,), (leaf.type,))
        gradient = gradient if before is None else before
        if not waiting.is_awaited:
            found.append((leaf, gradient))
            return
        self.known.add(id(gradient))  # the walk goes on with it
        _write(leaf, gradient, self.known)
        hooks.run_after(waiting.hooks.after, (), (), (gradient,))
        for hook in list(waiting.accumulated.values()):
            hook(leaf)


def _write(tensor: Tensor, gradient: Tensor, known: set[int]) -> None:
    """Add to `.grad`. `known`: identities of gradients that somebody else has."""
    old = tensor.grad
    tensor.grad = _own(gradient, tensor, known) if old is None else BUILDER.op("Add", old, gradient)
    known.add(id(gradient))


def _own(gradient: Tensor, leaf: Tensor, known: set[int]) -> Tensor:
    """A gradient for `.grad`, which may be changed in place: it shares neither object nor memory with anything else."""
    array = gradient._array
    if MODES.recorder is not None:
        alone = id(gradient) not in known and not leaf.is_symbolic
    else:
        alone = id(gradient) not in known and (
            array is None or (array.flags.owndata and array.flags.writeable)
        )
        alone = alone and id(array) not in known
    result: Tensor = gradient if alone else BUILDER.op("Cast", gradient, to=gradient.type.dtype)
    return result


def _attributed(node: Node) -> AbstractContextManager[None]:
    """What is computed inside is the node's gradient, for those who ask where a value comes from."""
    if MODES.recorder is not None:
        return MODES.recorder.gradient_of(node)
    return nullcontext() if MODES.anomaly is None else anomaly.within(node)


# ---- the walk ------------------------------------------------------------------------------------


def _key(x: Tensor) -> tuple[int, int]:
    """Where the gradient of x arrives: an output of a node, or a leaf."""
    edge = edge_of(x)
    return (id(edge[0]), edge[1]) if type(edge) is tuple else (id(x), -1)


class _Walk:
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
        self.ends = {_key(x) for x in wanted or ()} if inputs_are_ends else None
        self.targets = {_key(x) for x in wanted or ()}
        self.captured: dict[tuple[int, int], Tensor] = {}
        self.found: Pairs = []
        self._pending: dict[Node, list[Tensor | None]] = {}
        self._heap: list[tuple[int, int, Node]] = []
        self._survey(outputs, None if wanted is None else {id(x) for x in wanted if x.is_leaf})
        self._leaves: dict[int, tuple[Tensor, Tensor | None]] = {}
        self._recorder = MODES.recorder
        for tensor, seed in zip(outputs, seeds, strict=True):
            self._give(edge_of(tensor), seed)

    def _survey(self, outputs: Sequence[Tensor], leaves: set[int] | None) -> None:
        """Count how many cotangents each leaf will get; with wanted ones, find the nodes that lead to them.

        `_reaches`: True for nodes whose inputs are to be visited, False where the walk stops, nothing where it need not go.
        """
        reachable: dict[int, Node] = {}
        stack = [x.grad_fn for x in outputs if x.grad_fn is not None and not self._is_end(_key(x))]
        while stack:
            node = stack.pop()
            if id(node) in reachable:
                continue
            reachable[id(node)] = node
            for edge in node.edges:
                if type(edge) is tuple and id(edge[0]) not in reachable:
                    if self.ends is not None and self._is_end((id(edge[0]), edge[1])):
                        continue
                    stack.append(edge[0])
        self._reaches: dict[Node, bool] | None = None
        visited = reachable.values()
        if leaves is not None:
            self._reaches = reaches = {}
            goals = {node for node, number in self.targets if number >= 0}
            for node in sorted(visited, key=lambda n: n.sequence):
                below = any(
                    (e[0] in reaches or self._is_end((id(e[0]), e[1])))
                    if type(e) is tuple
                    else id(e) in leaves
                    for e in node.edges
                )
                if below or (id(node) in goals and self.ends is None):
                    reaches[node] = below
            visited = [node for node, below in reaches.items() if below]  # type: ignore[assignment]
        self._awaited: dict[int, int] = {}
        awaited = self._awaited
        for x in outputs:
            if x.grad_fn is None:
                awaited[id(x)] = awaited.get(id(x), 0) + 1
        for node in visited:
            for edge in node.edges:
                if isinstance(edge, Tensor) and (leaves is None or id(edge) in leaves):
                    awaited[id(edge)] = awaited.get(id(edge), 0) + 1

    def _is_end(self, key: tuple[int, int]) -> bool:
        return self.ends is not None and key in self.ends

    def _give(self, edge: Any, cotangent: Tensor | None) -> None:
        """A cotangent for a leaf or a node's result; None for one that turned out to be zero."""
        if type(edge) is not tuple:
            self._give_leaf(edge, cotangent)
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
        slots[number] = cotangent if old is None else BUILDER.op("Add", old, cotangent)

    def _give_leaf(self, leaf: Tensor, cotangent: Tensor | None) -> None:
        left = self._awaited.get(id(leaf))
        if left is None:
            return  # not wanted
        self._awaited[id(leaf)] = left - 1
        known = self._leaves.get(id(leaf))
        total = known[1] if known is not None else None
        if cotangent is not None:
            total = cotangent if total is None else BUILDER.op("Add", total, cotangent)
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

    def _visit(self, node: Node, gradients: tuple[Tensor | None, ...]) -> None:
        """The node's backward, between its hooks; what it gives goes on to those that made its inputs."""
        recorder = self._recorder
        if recorder is not None and node.sequence < recorder.history_start:
            raise TraceError(
                f"a backward inside a traced function reaches {node.name()} at {node.origin.source}, which ran outside, before "
                "the call: the compiled program would repeat that call's history. Call backward on the traced function's "
                "result, compute this inside too, or pass x.detach()"
            )
        if node.hooks is not None:
            gradients = hooks.run_before(node.hooks.before, gradients, node.types)
        cotangents = node.completed(gradients)
        types = [None if x is None else x.type for x in node.inputs]
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
        if MODES.anomaly is not None and recorder is None:
            anomaly.look_at_gradients(node, found)
        if node.hooks is not None:
            found = hooks.run_after(node.hooks.after, found, types, gradients)
        for edge, dx in zip(node.edges, found, strict=True):
            if edge is not None:
                self._give(edge, dx)
