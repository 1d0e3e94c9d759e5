"""Results that lie in the memory of an argument, of state or of another result: views of it, as they would be without a trace.

A program gives every result memory of its own. Where the caller could tell the difference, by changing the one and looking at
the other, the view is made again of what it is a view of when the program has run.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ops.operator import Attributes, Operator
from tracer.dispatch.apply import apply_operator
from tracer.tensors.grad_mode import enable_grad, no_grad
from tracer.tensors.tensor import Tensor
from tracer.tensors.view import steps_of


@dataclass(frozen=True, slots=True)
class ViewOperation:
    """An operator that rearranges, or, where it is None, `detach`; and whether gradients were recorded."""

    op: Operator | None
    attrs: Attributes
    recorded: bool


@dataclass(frozen=True, slots=True)
class Alias:
    """What a result is a view of ("argument", its leaf; "object", a Tensor; "program", the number of a result), and how."""

    kind: str
    base: Any
    operations: tuple[ViewOperation, ...]

    def of(self, base: Tensor) -> Tensor:
        """The view."""
        result = base
        for operation in self.operations:
            if operation.op is None:
                result = result.detach()
                continue
            with enable_grad() if operation.recorded else no_grad():
                result = apply_operator(operation.op, (result,), operation.attrs)
        return result


def alias_of(x: Tensor, known: Callable[[Tensor], tuple[str, Any] | None]) -> Alias | None:
    """What a traced result is a view of, None if it is a view of nothing that `known` knows (kind and base)."""
    operations: list[ViewOperation] = []
    item = x
    while (view := item._view) is not None:
        if view.op is None:
            operations.append(ViewOperation(None, view.attrs, view.recorded))
        operations += [ViewOperation(s.op, s.attrs, s.recorded) for s in reversed(steps_of(view))]
        item = view.base
        found = known(item)
        if found is not None:
            return Alias(*found, tuple(reversed(operations)))
    return None


def overlapping_bases(views: list[Tensor]) -> list[Tensor]:
    """What several of these are views of, where they overlap in its memory."""
    groups: dict[int, tuple[Tensor, list[Tensor]]] = {}
    for x in views:
        if x._view is not None:
            base = x._view.base
            groups.setdefault(id(base), (base, []))[1].append(x)
    return [
        base
        for base, group in groups.values()
        if any(_overlap(x, y) for x, y in itertools.combinations(group, 2))
    ]


def _overlap(x: Tensor, y: Tensor) -> bool:
    """Whether two views of one Tensor have elements in common, as far as that is known."""
    one, other = _place(x), _place(y)
    if one is None or other is None:
        return True
    try:
        return np.shares_memory(one, other, max_work=10_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _place(x: Tensor) -> np.ndarray[Any, Any] | None:
    """An array that lies as a view does in its base, of bytes that nobody reads; None where sizes are symbols."""
    layout = None if x._view is None else x._view.layout
    if layout is None:
        return None
    start = as_strided(_BYTE, (layout.offset + 1,), (1,))[layout.offset :]
    return as_strided(start, layout.shape, layout.strides)


_BYTE = np.zeros(1, np.int8)
