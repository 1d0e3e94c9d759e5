"""Changing a Tensor in place: its memory when eager, its value from here on in a trace.

What gradients need must not change under them: Tensors with history are refused, leaves that
require gradients change only under `no_grad`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.errors import ArgumentError, DTypeError, GradError, ShapeError, TraceError
from ops.types import is_floating, is_integer, short
from tracer import recording
from tracer.dispatch import apply
from tracer.functions.creation import as_tensor, cast
from tracer.modes import MODES, no_grad
from tracer.tensor import Tensor


def refuse_change(x: Tensor) -> None:
    """Raise `GradError` if changing x in place would spoil gradients."""
    if x.grad_fn is not None:
        raise GradError(
            f"{short(x.type)} has history, and changing it in place would spoil its gradients; "
            "make a new one "
            "(x = x + y), or change x.detach().clone()"
        )
    if x.requires_grad and MODES.grad_enabled:
        raise GradError(
            f"{short(x.type)} requires a gradient and is changed in place; do it under "
            "tracer.no_grad(), or make a new one (x = x + y)"
        )


def gradients_forbid(x: Tensor, *others: Any) -> bool:
    """Whether a change of x by others would have to be recorded for gradients."""
    if x.grad_fn is not None:
        return True
    return MODES.grad_enabled is True and (
        x.requires_grad or any(isinstance(y, Tensor) and y.requires_grad for y in others)
    )


def _rank_of_kind(dtype: str) -> int:
    return 2 if is_floating(dtype) else 1 if is_integer(dtype) else 0


def assign(x: Tensor, new: Tensor) -> Tensor:
    """x with new's elements, in place.

    Raises `GradError`, `DTypeError`, `ShapeError` where that does not fit.
    """
    if x.type.weak:
        raise ArgumentError("a Python number is not changed in place; make a new one (x = x + y)")
    refuse_change(x)
    refuse_value(x, new)
    if _rank_of_kind(new.type.dtype) > _rank_of_kind(x.type.dtype):
        raise DTypeError(
            f"a result {short(new.type)} does not fit into {short(x.type)} in place; cast one of "
            "them first"
        )
    if new.type.shape != x.type.shape:
        raise ShapeError(
            f"a result {short(new.type)} does not fit into {short(x.type)} in place: shapes must "
            "be equal"
        )
    write(x, cast(new, x.type.dtype))
    return x


def write(x: Tensor, new: Tensor) -> None:
    """new's elements into x, both of one type, whatever that does to gradients."""
    if MODES.recorder is None:
        writeable(x)
    elif is_view(x):
        raise TraceError(
            f"{short(x.type)} is a view of another Tensor, which a change in place would change "
            "too; that is not recorded. "
            "Make a new Tensor (y = y + 1), or assign to the part (x[...] = y)"
        )
    recording.assign(x, new)


def refuse_value(x: Tensor, new: Any) -> None:
    """Raise `GradError` if a value that is written to x in place requires a gradient."""
    if isinstance(new, Tensor) and new.requires_grad and MODES.grad_enabled:
        raise GradError(
            f"what is written to {short(x.type)} in place requires a gradient, which that does not "
            "carry; make a new Tensor, or "
            "write under tracer.no_grad()"
        )


def writeable(x: Tensor) -> np.ndarray[Any, Any]:
    """x's memory as an array. Raises `ArgumentError` where it must not be written to."""
    target = x.array
    if not target.flags.writeable:
        raise ArgumentError(
            f"{short(x.type)} cannot be changed in place: several of its elements share memory (it "
            "was broadcast), or its memory is "
            "read-only; use x.clone() first"
        )
    return target


def is_view(x: Tensor) -> bool:
    """Whether a value of the running trace is another arrangement or part of another one."""
    recorder = MODES.recorder
    if recorder is None or x._recorder is not recorder:
        return False
    if any(gradient is x for _, gradient in recorder.grads.values()):
        return False  # what is in .grad has memory of its own
    node = recorder.made.get(x._value) if x._value is not None else None
    return node is not None and node.op.is_view


def change(x: Tensor, function: Any, *operands: Any) -> Tensor:
    """x = function(x, *operands) in place. The computation itself leaves no history."""
    refuse_change(x)
    for operand in operands:
        refuse_value(x, operand)
    with no_grad():
        return assign(x, function(x, *operands))


def update(x: Any, function: Any, other: Any) -> Tensor:
    """x += other and its like: in place where no gradient is concerned, else a new Tensor.

    In a trace a view of another value, and a Python number, get a new Tensor too. Raises `GradError`
    for a leaf that requires a gradient.
    """
    if x.type.weak:
        number: Tensor = function(x, other)
        return number
    if x.is_leaf and x.requires_grad and MODES.grad_enabled:
        refuse_change(x)
    if gradients_forbid(x, other) or is_view(x):
        result: Tensor = function(x, other)
        if result.type.shape != x.type.shape or _rank_of_kind(result.type.dtype) > _rank_of_kind(
            x.type.dtype
        ):
            raise ShapeError(
                f"a result {short(result.type)} does not fit into {short(x.type)} in place"
            )
        return cast(result, x.type.dtype)
    return change(x, function, other)


def copy_into(x: Tensor, source: Any) -> Tensor:
    """x with source's elements, broadcast and converted, in place."""
    new = as_tensor(source)
    refuse_change(x)
    refuse_value(x, new)
    with no_grad():
        new = cast(new, x.type.dtype)
        return assign(
            x, new if new.type.shape == x.type.shape else apply("Expand", new, shape=x.type.shape)
        )
