"""Applying an operator to Tensors: at once (eager), or as a node of the trace that is being recorded.

Also where history for gradients is attached and where errors get the user's line. Promotion happens above, in `functions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ops.compute import Composite
from ops.errors import TracerError
from ops.operator import TABLE, Application, Attributes, Derived, Operator, RuleBuilder, lookup
from ops.types import Type
from tracer.core.source_lines import located
from tracer.tensors.modes import INFERENCE, MODES, Flag, Untracked, untracked
from tracer.tensors.tensor import Tensor


def apply(name: str, *inputs: Tensor, **attrs: Any) -> Tensor:
    """Apply the operator `name`, which has one output.

    Raises the operator's error (`ShapeError`, `DTypeError` ...) with the user's line.
    """
    op = TABLE.get(name) or lookup(name)
    try:
        result: Tensor = apply_operator(op, inputs, attrs)
    except TracerError as error:
        raise located(error) from None
    return result


def apply_operator(op: Operator, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
    """`apply` with the operator itself, without the user's line in errors; a tuple of Tensors when it has several outputs."""
    interpreter = MODES.interpreter
    inputs = interpreter.operands(inputs)
    needs: tuple[bool, ...] | None = None
    mark: Flag = False
    if MODES.grad_enabled is INFERENCE:
        needs, mark = _flags(op, inputs)
    else:
        for x in inputs:
            if x._requires_grad is not False:
                needs, mark = _flags(op, inputs)
                break
    normal = op.normalize(attrs) if attrs or op.attributes else _NONE
    if needs is not None and isinstance(op.vjp, Derived) and isinstance(op.compute, Composite):
        op.infer([x.type for x in inputs], normal)
        return _expanded(op.compute, op.name, Application(inputs, (), normal))
    outputs = interpreter.apply(op, inputs, normal)
    if mark is not False:
        for y in outputs:
            y._requires_grad = mark
    elif needs is not None:
        _HISTORY.attach(op, inputs, normal, outputs, needs)
    return outputs[0] if len(outputs) == 1 else outputs


_NONE = Attributes()


class _History:
    """What gives results a history: `tracer.autograd` puts it here when it is imported."""

    attach: Callable[..., None]


_HISTORY = _History()


def attach_history_with(attach: Callable[..., None]) -> None:
    """Let `attach(op, inputs, attrs, outputs, needs)` give the results of operators their history."""
    _HISTORY.attach = attach


def attach_history(
    op: Operator,
    inputs: Sequence[Tensor],
    attrs: Attributes,
    outputs: Sequence[Tensor],
    needs: tuple[bool, ...],
) -> None:
    """Give the results of an operator their history; `needs`: which inputs want gradients."""
    _HISTORY.attach(op, inputs, attrs, outputs, needs)


def _expanded(compute: Composite, name: str, n: Application) -> Any:
    """The operators that one is made of, applied."""
    anomaly_mode = MODES.interpreter.anomaly_mode()
    if anomaly_mode is None:
        return compute.rule(BUILDER, n)
    with anomaly_mode.within():
        result = compute.rule(BUILDER, n)
    anomaly_mode.look_at(name, n.inputs, result if isinstance(result, tuple) else (result,))
    return result


def _flags(op: Operator, inputs: tuple[Tensor, ...]) -> tuple[tuple[bool, ...] | None, Flag]:
    """Which inputs need gradients, None if there is nothing to record; and the mark of the results."""
    mode = MODES.grad_enabled
    flags = [x._requires_grad for x in inputs]
    needs = tuple([flag is True for flag in flags])
    marks = [flag for flag in flags if isinstance(flag, Untracked)]
    recorded = mode is True and True in needs
    if not marks and mode is not INFERENCE:
        return needs if recorded else None, False
    volatile = any(mark.volatile for mark in marks)
    inference = inputs[0].is_inference() if op.is_view else mode is INFERENCE
    return needs if recorded and not volatile else None, untracked(volatile, inference)


class Unsaved:
    """Stands in a gradient rule for a value whose elements the wanted gradients do not use; has a type only."""

    __slots__ = ("type",)

    def __init__(self, type_: Type) -> None:
        self.type = type_


class TensorBuilder(RuleBuilder):
    """What gradient rules and decompositions build with: Tensors, eager or recorded."""

    def op(self, name: str, *inputs: Any, **attrs: Any) -> Any:
        """Apply an operator to Tensors. Of a value that was not saved, because its gradient is not wanted, nothing follows."""
        op = lookup(name)
        if any(type(x) is Unsaved for x in inputs):
            types = op.infer([x.type for x in inputs], op.normalize(attrs))
            outputs = tuple(Unsaved(t) for t in types)
            return outputs[0] if len(outputs) == 1 else outputs
        return apply_operator(op, inputs, attrs)


BUILDER = TensorBuilder()


def constant(value: Any, dtype: str) -> Tensor:
    """A Tensor holding a constant of an element type; a constant of the graph in a trace."""
    return MODES.interpreter.constant(value, dtype)
