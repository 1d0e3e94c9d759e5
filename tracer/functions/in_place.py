"""Changing a Tensor in place: its memory when eager, its value from here on in a trace; its history in both.

A change computes a new value from the old one and writes it. Where gradients are recorded the old elements stay available to the
gradient rules that need them, so every function of a Tensor has an in-place form that differentiates.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ops.errors import ArgumentError, DTypeError, GradError, ShapeError
from ops.types import is_floating, is_integer, short
from tracer.dispatch.apply import apply
from tracer.dispatch.view_updates import snapshot
from tracer.functions.creation import as_tensor, cast
from tracer.tensors.grad_mode import no_grad
from tracer.tensors.modes import INFERENCE, MODES, Untracked
from tracer.tensors.tensor import Tensor
from tracer.tensors.view import not_writable_error


def change(x: Tensor, function: Any, *operands: Any, **options: Any) -> Tensor:
    """x = function(x, *operands, **options) in place.

    Raises `GradError`, `DTypeError`, `ShapeError`, `ArgumentError` where that does not fit; nothing has changed then.
    """
    given = (*operands, *options.values()) if options else operands
    if not require_changeable(x, given):
        return _put(x, function(x, *operands, **options), False)
    MODES.interpreter.require_writeable(x)
    old = snapshot(x)
    new = function(
        old,
        *(old if y is x else y for y in operands),
        **{name: old if y is x else y for name, y in options.items()},
    )
    fresh = new is not old and all(new is not y for y in given)
    # Who still holds `old` when our own references are gone is a history node, whose rule reads it.
    del given, operands, options
    new = _fitted(x, new)
    old_reference = weakref.ref(old)
    del old
    saved = old_reference()
    if saved is not None:
        MODES.interpreter.keep_elements(saved)
    MODES.interpreter.write(x, new, recorded=True, fresh=fresh)
    return x


def require_changeable(x: Tensor, operands: Sequence[Any] = ()) -> bool:
    """Whether a change of x by operands is recorded for gradients, or makes x volatile.

    Raises `GradError` where a change would spoil gradients, and `ArgumentError` where x cannot be written to.
    """
    MODES.interpreter.change_begins(x)
    if x.type.weak:
        raise ArgumentError("a Python number is not changed in place; make a new one (x = x + y)")
    x = MODES.interpreter.current(x)
    view = x._view
    if view is not None and view.overlaps:
        raise not_writable_error(x)
    mark = x._requires_grad
    if isinstance(mark, Untracked) and mark.inference and MODES.grad_enabled is not INFERENCE:
        raise GradError(
            f"{short(x.type)} was made in inference mode and cannot be changed in place outside of it; use x.clone()"
        )
    if not MODES.grad_enabled:
        return False
    flags = [y._flag_now() for y in operands if isinstance(y, Tensor)]
    recorded = is_floating(x.type.dtype) and (x._requires_grad is True or True in flags)
    if not recorded and not any(isinstance(flag, Untracked) and flag.volatile for flag in flags):
        return False
    require_history(x)
    return True


def require_history(x: Tensor) -> None:
    """Raise `GradError` where a change of x that is recorded has no history to go on from: a leaf's, a view's of a leaf."""
    x = MODES.interpreter.current(x)
    _require_history(x)
    view = x._view
    if view is None or view.op is not None:
        passed = MODES.interpreter.note_recorded_change(x if view is None else view.base)
        if passed is not None:
            _require_history(passed)


def _require_history(x: Tensor) -> None:
    view = x._view
    if x.grad_fn is None and x.requires_grad:
        raise GradError(
            f"{short(x.type)} is a leaf that requires a gradient and is changed in place; do it under tracer.no_grad(), or "
            "make a new Tensor (x = x + y)"
        )
    if view is not None and view.op is not None:
        base = MODES.interpreter.current(view.base)
        if base.grad_fn is None and base.requires_grad:
            raise GradError(
                f"{short(x.type)} is a view of a leaf {short(base.type)} that requires a gradient, and is changed in place; do "
                "it under tracer.no_grad(), or change a copy (x.clone())"
            )
        if not view.recorded:
            raise GradError(
                f"{short(x.type)} is a view that was made under no_grad, and a change of it in place is recorded for gradients; "
                "make the view again outside, or change it under tracer.no_grad()"
            )


def _rank_of_kind(dtype: str) -> int:
    return 2 if is_floating(dtype) else 1 if is_integer(dtype) else 0


def _fitted(x: Tensor, new: Tensor) -> Tensor:
    """A new value in x's element type. Raises `DTypeError` or `ShapeError` if it does not fit."""
    if new.type is x.type:
        return new
    if _rank_of_kind(new.type.dtype) > _rank_of_kind(x.type.dtype):
        raise DTypeError(
            f"a result {short(new.type)} does not fit into {short(x.type)} in place; cast one of them first"
        )
    if new.type.shape != x.type.shape:
        raise ShapeError(
            f"a result {short(new.type)} does not fit into {short(x.type)} in place: shapes must be equal"
        )
    return cast(new, x.type.dtype)


def _put(x: Tensor, new: Tensor, recorded: bool) -> Tensor:
    new = _fitted(x, new)
    MODES.interpreter.require_writeable(x)
    MODES.interpreter.write(x, new, recorded)
    return x


def update(x: Any, function: Callable[..., Tensor], other: Any) -> Tensor:
    """x += other and its like, in place; a Python number gets a new Tensor."""
    if x.type.weak:
        return function(x, other)
    return change(x, function, other)


def copy_into(x: Tensor, source: Any) -> Tensor:
    """x with source's elements, broadcast and converted, in place."""
    new = as_tensor(source)
    recorded = require_changeable(x, (new,))
    MODES.interpreter.require_writeable(x)
    if recorded:
        return _put(x, _spread(x, new), True)
    with no_grad():
        return _put(x, _spread(x, new), False)


def _spread(x: Tensor, new: Tensor) -> Tensor:
    new = cast(new, x.type.dtype)
    if new.type.shape == x.type.shape:
        return new
    return apply("Expand", new, shape=x.type.shape)
