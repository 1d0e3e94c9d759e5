"""The reverse walk: nodes in the opposite order of recording, cotangents summed where paths meet.

One mechanism for eager and traced code: gradient rules build with Tensors, which run at once or are recorded.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from ops.errors import GradError, TracerError
from ops.types import short
from tracer.autograd.history import Node
from tracer.dispatch import BUILDER, located
from tracer.modes import MODES, enable_grad, no_grad
from tracer.tensor import Tensor


def backward(
    tensors: Sequence[Tensor],
    gradients: Sequence[Any] | None = None,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> None:
    """Accumulate gradients in `.grad` of all leaves that the tensors depend on.

    `gradients`: cotangents, one for each tensor; None is 1 for a 0-d tensor. Raises `GradError`.
    """
    try:
        leaves = _walk(tensors, gradients, None, retain_graph, create_graph)
        with enable_grad() if create_graph else no_grad():
            known = {id(g) for g in gradients or ()}
            for leaf, grad in leaves:
                old = leaf.grad
                leaf.grad = _own(grad, leaf, known) if old is None else BUILDER.op("Add", old, grad)
                known.add(id(grad))
    except TracerError as error:
        raise located(error) from None


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


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """Gradients of outputs with respect to inputs, `.grad` untouched.

    Returns one Tensor for each input, None (with `allow_unused`) where outputs do not depend on it. Raises `GradError`.
    """
    outs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    ins = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if grad_outputs is not None and (
        isinstance(grad_outputs, Tensor) or not isinstance(grad_outputs, Sequence)
    ):
        grad_outputs = [grad_outputs]
    refuse_volatile(ins)
    for x in ins:
        if not x.requires_grad:
            raise GradError(
                f"an input {short(x.type)} does not require a gradient; set requires_grad"
            )
    try:
        found = {
            id(x): g
            for x, g in _walk(
                outs,
                grad_outputs,
                ins,
                create_graph if retain_graph is None else retain_graph,
                create_graph,
            )
        }
    except TracerError as error:
        raise located(error) from None
    result = tuple(found.get(id(x)) for x in ins)
    if not allow_unused and any(g is None for g in result):
        unused = next(i for i, g in enumerate(result) if g is None)
        raise GradError(
            f"outputs do not depend on input {unused}; pass allow_unused=True to get None for it"
        )
    return result


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


def _seed(tensor: Tensor, gradient: Any) -> Tensor:
    from tracer.functions.creation import as_tensor

    if not tensor.requires_grad:
        refuse_volatile([tensor])
        raise GradError(f"{short(tensor.type)} does not require a gradient and has no history")
    if gradient is None:
        if tensor.type.shape != ():
            raise GradError(
                f"a gradient is computed of a 0-d Tensor, got {short(tensor.type)}; reduce it first (t.sum()), or pass "
                "`gradient` with its shape"
            )
        one: Tensor = BUILDER.like(1, tensor)
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


def _walk(
    tensors: Sequence[Tensor],
    gradients: Sequence[Any] | None,
    wanted: Sequence[Tensor] | None,
    retain_graph: bool,
    create_graph: bool,
) -> list[tuple[Tensor, Tensor]]:
    """(Tensor, gradient) pairs: for leaves and retained Tensors, or for `wanted`."""
    if gradients is None:
        gradients = [None] * len(tensors)
    if len(gradients) != len(tensors):
        raise GradError(
            f"one gradient for each of {len(tensors)} tensors is needed, got {len(gradients)}"
        )
    with enable_grad() if create_graph else no_grad():
        return _propagate(tensors, gradients, wanted, retain_graph or create_graph)


def _propagate(
    tensors: Sequence[Tensor],
    gradients: Sequence[Any],
    wanted: Sequence[Tensor] | None,
    retain: bool,
) -> list[tuple[Tensor, Tensor]]:
    pending: dict[Node, list[Tensor | None]] = {}
    heap: list[tuple[int, int, Node]] = []
    leaves: dict[int, tuple[Tensor, Tensor]] = {}
    targets = {(id(x.grad_fn), x.output_number): x for x in wanted or () if x.grad_fn is not None}
    wanted_leaves = None if wanted is None else {id(x) for x in wanted if x.grad_fn is None}
    reaches = None if wanted is None else _reaching(tensors, wanted)

    def give(edge: Any, cotangent: Tensor) -> None:
        if isinstance(edge, Tensor):
            if wanted_leaves is None or id(edge) in wanted_leaves:
                old = leaves.get(id(edge))
                leaves[id(edge)] = (
                    edge,
                    cotangent if old is None else BUILDER.op("Add", old[1], cotangent),
                )
            return
        node, number = edge
        if reaches is not None and node not in reaches:
            return
        slots = pending.get(node)
        if slots is None:
            slots = pending[node] = [None] * len(node.types)
            heapq.heappush(heap, (-node.sequence, id(node), node))
        old_cotangent = slots[number]
        slots[number] = (
            cotangent if old_cotangent is None else BUILDER.op("Add", old_cotangent, cotangent)
        )

    for tensor, gradient in zip(tensors, gradients, strict=True):
        seed = _seed(tensor, gradient)
        give(tensor if tensor.grad_fn is None else (tensor.grad_fn, tensor.output_number), seed)
    found: list[tuple[Tensor, Tensor]] = []
    recorder = MODES.recorder
    while heap:
        _, _, node = heapq.heappop(heap)
        slots = pending.pop(node)
        for number, cotangent in enumerate(slots):
            target = targets.get((id(node), number))
            if target is not None and cotangent is not None:
                found.append((target, cotangent))
        if wanted is None and node.retained:
            retained = [(tensor(), slots[number]) for number, tensor in node.retained.items()]
            found += [(t, c) for t, c in retained if t is not None and c is not None]
        if reaches is not None and not reaches[node]:
            continue
        cotangents = tuple(
            BUILDER.zeros(t) if c is None else c for c, t in zip(slots, node.types, strict=True)
        )
        with recorder.gradient_of(node) if recorder is not None else nullcontext():
            for edge, x, dx in zip(
                node.edges,
                node.inputs or node.needs,
                node.backward(BUILDER, cotangents),
                strict=True,
            ):
                if edge is not None and dx is not None:
                    if dx.type.shape != x.type.shape:
                        dx = BUILDER.sum_to(dx, x.type.shape)
                    give(edge, dx)
        if not retain:
            node.release()
    return [*leaves.values(), *found]


def _reaching(tensors: Sequence[Tensor], wanted: Sequence[Tensor]) -> dict[Node, bool]:
    """Nodes on a path from the tensors to what is wanted; True where the walk must go on below the node."""
    ends = {id(x.grad_fn) for x in wanted if x.grad_fn is not None}
    leaves = {id(x) for x in wanted if x.grad_fn is None}
    seen: dict[int, Node] = {}
    stack = [x.grad_fn for x in tensors if x.grad_fn is not None]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen[id(node)] = node
        stack.extend(e[0] for e in node.edges if isinstance(e, tuple) and id(e[0]) not in seen)
    result: dict[Node, bool] = {}
    for node in sorted(seen.values(), key=lambda n: n.sequence):
        below = any(
            (isinstance(e, Tensor) and id(e) in leaves) or (isinstance(e, tuple) and e[0] in result)
            for e in node.edges
        )
        if below or id(node) in ends:
            result[node] = below
    return result
