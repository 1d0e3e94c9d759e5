"""A node of the history of a Tensor: what every kind of node is, whatever its backward does.

Knows hooks of nodes and where edges lead. Must not know what a node keeps for its backward.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ops.types import Type
from tracer.autograd.hooks import (
    AccumulateGrad,
    NodeHooks,
    RemovableHandle,
    accumulator_of,
    require_callable,
)
from tracer.dispatch.apply import BUILDER
from tracer.tensors.modes import MODES, here
from tracer.tensors.tensor import Tensor

_sequence = itertools.count()
next_sequence: Callable[[], int] = _sequence.__next__


class GradientNode:
    """Where gradients of some results go back to the inputs that these were made of.

    `edges`: for each input, the node and output number that made it, a leaf Tensor, or None where no gradient is wanted.
    `input_types`: one for each, None for what is no Tensor. `types`: of the results. `sequence`: the place in the order of
    recording. `released`: what it kept for backward is gone.
    """

    __slots__ = (
        "__weakref__",
        "edges",
        "hooks",
        "input_types",
        "origin",
        "released",
        "sequence",
        "types",
    )

    def __init__(
        self,
        edges: tuple[Any, ...],
        input_types: tuple[Type | None, ...],
        types: tuple[Any, ...],
    ) -> None:
        self.edges, self.input_types, self.types = edges, input_types, types
        self.sequence, self.origin = next_sequence(), here()
        self.released = False
        self.hooks: NodeHooks | None = None

    def name(self) -> str:
        """The name of the operation that this goes back over, such as MulBackward."""
        raise NotImplementedError

    def backward(self, builder: Any, cotangents: tuple[Any, ...]) -> Sequence[Any]:
        """Cotangents of the inputs, None where there is none, for those of the results."""
        raise NotImplementedError

    def release(self) -> None:
        """Drop what is kept for backward."""

    def completed(self, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        """Cotangents with zeros for results that nothing depends on."""
        return tuple(
            BUILDER.zeros(t) if c is None else c
            for c, t in zip(cotangents, self.types, strict=True)
        )

    @property
    def next_functions(self) -> tuple[tuple[GradientNode | AccumulateGrad | None, int], ...]:
        """(node, output number) for each input: an `AccumulateGrad` for a leaf, None where no gradient is needed."""
        return tuple(
            (None, 0) if e is None else e if isinstance(e, tuple) else (accumulator_of(e), 0)
            for e in self.edges
        )

    # ---- hooks
    def waiting(self) -> NodeHooks:
        """What waits here for gradients, to be added to."""
        if self.hooks is None:
            self.hooks = NodeHooks()
        return self.hooks

    def retain(self, tensor: Tensor, number: int) -> None:
        """`backward` keeps the gradient of this result too, as long as the result is there."""
        self.waiting().retained[number] = weakref.ref(tensor)

    def forget(self, tensor: Tensor, number: int) -> None:
        """Undo `retain`: the tensor has another history now."""
        retained = self.waiting().retained
        known = retained.get(number)
        if known is not None and known() is tensor:
            del retained[number]

    def register_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`hook(gradients of the inputs, gradients of the results)` runs after the node's backward.

        Both are tuples, with None where there is no gradient. A tuple that it returns stands in for the first.
        """
        require_callable(hook)
        return self.waiting().after.add(hook)

    def register_prehook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`hook(gradients of the results)` runs before the node's backward, which gets what it returns instead."""
        require_callable(hook)
        return self.waiting().before.add(hook)

    def __repr__(self) -> str:
        return f"<{self.name()}>"


def edge_of(x: Tensor) -> Any:
    """Where x's gradient goes: to the node and the number of its output, or to the leaf x; None if none is wanted."""
    x = MODES.interpreter.current(x)
    if x._grad_fn is not None:
        return x._grad_fn, x.output_number
    return x if x._requires_grad is True else None
