"""`backward` and `grad`: what they take, what they do with gradients, and their errors. `walk` finds the gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ops.errors import ArgumentError, GradError, TracerError
from ops.types import short
from tracer.autograd import hooks
from tracer.autograd.backward_walk import Pairs, Walk, key_of
from tracer.core.source_lines import located
from tracer.dispatch.apply import BUILDER
from tracer.tensors.grad_mode import enable_grad, no_grad
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor

Tensors = Tensor | Sequence[Tensor]


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
    to leaves that hooks wait for. Raises `GradError`, and `ArgumentError` for what is no Tensor.

    >>> x = tracer.tensor([1.0, 2.0], requires_grad=True)
    >>> tracer.autograd.backward((x * x).sum())
    >>> x.grad
    tensor([2., 4.])
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
            walk = Walk(outs, seeds, wanted, accumulate=_Accumulation(known))
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
    `materialize_grads`, else an error. Raises `GradError`, and `ArgumentError` for what is no Tensor.

    >>> x = tracer.tensor([1.0, 2.0], requires_grad=True)
    >>> tracer.autograd.grad((x * x).sum(), x)
    (tensor([2., 4.]),)
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
            walk = Walk(outs, seeds, ins)
            walk.run(retain)
            known = {id(g) for g in (*seeds, *walk.captured.values())}
            for tensor, gradient in walk.found:
                _write(tensor, gradient, known)
        result = tuple(walk.captured.get(key_of(x)) for x in ins)
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
        walk = Walk(outputs, seeds, inputs, inputs_are_ends=True)
        walk.run(retain=True)
    return [walk.captured.get(key_of(x)) for x in inputs]


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
    alone = MODES.interpreter.is_unshared_gradient(gradient, leaf, known)
    result: Tensor = gradient if alone else BUILDER.op("Cast", gradient, to=gradient.type.dtype)
    return result
