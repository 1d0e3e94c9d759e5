"""Applying an operator to Tensors: at once (eager), or as a node of the trace that is being recorded.

Also where history for gradients is attached and where errors get the user's line. Promotion happens above, in `functions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ops.compute import Composite
from ops.errors import TracerError
from ops.operator import TABLE, Application, Attributes, Derived, Operator, RuleBuilder, lookup
from ops.types import Type, is_floating
from tracer.core.config import CONFIG
from tracer.core.source_lines import located
from tracer.tensors.modes import INFERENCE, MODES, Flag, Untracked, untracked
from tracer.tensors.tensor import Tensor
from tracer.tensors.view import link


def apply(name: str, *inputs: Tensor, **attrs: Any) -> Any:
    """Apply the operator `name`; a Tensor, or a tuple of Tensors when it has several outputs.

    Raises the operator's error (`ShapeError`, `DTypeError` ...) with the user's line.
    """
    op = lookup(name)
    try:
        return apply_operator(op, inputs, attrs)
    except TracerError as error:
        raise located(error) from None


def apply_operator(op: Operator, inputs: tuple[Tensor, ...], attrs: dict[str, Any]) -> Any:
    """`apply` for a record."""
    recorder = MODES.recorder
    if recorder is not None:
        inputs = tuple(x._current() for x in inputs)
    needs: tuple[bool, ...] | None = None
    mark: Flag = False
    if MODES.grad_enabled is INFERENCE:
        needs, mark = _flags(op, inputs)
    else:
        for x in inputs:
            view = x._view
            if view is not None and x._seen != view.base._generation:
                x._current()  # whose flags may have changed with its base
            if x._requires_grad is not False:
                needs, mark = _flags(op, inputs)
                break
    if needs is not None and isinstance(op.vjp, Derived) and isinstance(op.compute, Composite):
        normal = op.normalize(attrs)
        op.infer([x.type for x in inputs], normal)
        return _expanded(op.compute, op.name, Application(inputs, (), normal))
    normal = op.normalize(attrs)
    if recorder is not None:
        outputs = recorder.apply(op, inputs, normal)
    else:
        types = _types(op, inputs, normal)
        if _by_kernel(op, types):
            outputs = run_kernel(op, inputs, normal)
        else:
            outputs = _run_here(op, inputs, normal, types)
        if MODES.anomaly is not None:
            from tracer.autograd.anomaly import look_at

            look_at(op.name, inputs, outputs)
    if op.is_view:
        for number, y in enumerate(outputs):
            if recorder is not None:
                link(inputs[0], y, op, normal, number)
            elif y._changes is not None and not link(inputs[0], y, op, normal, number):
                # memory that is not row-major: what is no view in a trace is none here
                y._array, y._changes = np.array(y._data(), order="C"), None
    if mark is not False:
        for y in outputs:
            y._requires_grad = mark
    elif needs is not None:
        from tracer.autograd.tape import attach

        attach(op, inputs, normal, outputs, needs)
    return outputs[0] if len(outputs) == 1 else outputs


_TYPES: dict[tuple[str, tuple[Type, ...]], tuple[Type, ...]] = {}


def _types(op: Operator, inputs: tuple[Tensor, ...], attrs: Attributes) -> tuple[Type, ...]:
    """The types of an eager operation's results. Kept where nothing but the operands' types decides: to find them takes longer
    than a small sum."""
    types = tuple([x.type for x in inputs])
    if attrs or op.name not in TABLE:  # a user's operator is not kept alive
        return op.infer(types, attrs)
    key = op.name, types
    found = _TYPES.get(key)
    if found is None:
        if len(_TYPES) > _MOST_TYPES:
            _TYPES.clear()
        found = _TYPES[key] = op.infer(types, attrs)
    return found


def _run_here(
    op: Operator, inputs: tuple[Tensor, ...], attrs: Any, types: Sequence[Type]
) -> tuple[Tensor, ...]:
    """The operator's reference, at once."""
    arrays = [x.array for x in inputs]
    results = run_reference(op, arrays, attrs)
    if not op.is_view:
        results = tuple([_own(a, arrays) for a in results])
        return tuple([Tensor.of_array(a, t) for a, t in zip(results, types, strict=True)])
    outputs = tuple([Tensor.of_array(a, t) for a, t in zip(results, types, strict=True)])
    operand = arrays[0]
    for y in outputs:
        array = y._data()  # what a NumPy scalar became is nobody else's
        # the first question is the second one's answer nearly always
        if array.base is operand or np.may_share_memory(array, operand):
            y._changes = inputs[0].changes()
    return outputs


def _expanded(compute: Composite, name: str, n: Application) -> Any:
    """The operators that one is made of, applied."""
    if MODES.anomaly is None or MODES.recorder is not None:
        return compute.rule(BUILDER, n)
    from tracer.autograd.anomaly import look_at, within

    with within():
        result = compute.rule(BUILDER, n)
    look_at(name, n.inputs, result if isinstance(result, tuple) else (result,))
    return result


def _flags(op: Operator, inputs: tuple[Tensor, ...]) -> tuple[tuple[bool, ...] | None, Flag]:
    """Which inputs need gradients, None if there is nothing to record; and the mark of the results."""
    mode = MODES.grad_enabled
    flags = [(x if x._view is None else x._current())._requires_grad for x in inputs]
    needs = tuple([flag is True for flag in flags])
    marks = [flag for flag in flags if isinstance(flag, Untracked)]
    recorded = mode is True and True in needs
    if not marks and mode is not INFERENCE:
        return needs if recorded else None, False
    volatile = any(mark.volatile for mark in marks)
    inference = inputs[0].is_inference() if op.is_view else mode is INFERENCE
    return needs if recorded and not volatile else None, untracked(volatile, inference)


def _by_kernel(op: Operator, types: Sequence[Type]) -> bool:
    """Whether an eager operation runs its kernel. Random operators and those that call functions of the user's have one body for
    all: its bits, also here."""
    if op.calls_user:
        return CONFIG.jit
    return op.random and (bool(op.ulp) or int(types[0].size) > _FEW)


def compute(
    op: Operator, arrays: list[np.ndarray[Any, Any]], types: Sequence[Type], attrs: Attributes
) -> tuple[Any, ...]:
    """What an eager operation computes, from arrays to arrays."""
    if not (op.random or op.calls_user) or not _by_kernel(op, op.infer(list(types), attrs)):
        return run_reference(op, arrays, attrs)
    tensors = tuple(Tensor.of_array(a, t) for a, t in zip(arrays, types, strict=True))
    return tuple(y._data() for y in run_kernel(op, tensors, attrs))


def run_reference(op: Operator, arrays: list[np.ndarray[Any, Any]], attrs: Any) -> tuple[Any, ...]:
    """The operator's meaning on arrays, always a tuple."""
    with np.errstate(all="ignore"):
        result = op.reference(*arrays, **attrs)
    return result if isinstance(result, tuple) else (result,)


def _own(result: Any, operands: list[np.ndarray[Any, Any]]) -> Any:
    """A result in row-major memory of its own: a maximum over no axes is its operand, and a change of the one must not change the
    other; and a reshape must be a view of it or not whatever the order of its operands was, as in a compiled program."""
    if not isinstance(result, np.ndarray):
        return result
    alone = result.flags.owndata or not any(np.may_share_memory(result, x) for x in operands)
    if alone and result.flags.writeable and result.flags.c_contiguous:
        alone = all(result is not x for x in operands)
        if alone:
            return result
    return np.array(result, order="C")


_KERNELS: dict[Any, Any] = {}
_MOST_TYPES = 4096
_FEW = (
    1 << 16
)  # random elements that NumPy draws sooner than a kernel is loaded; the bits are the same


def run_kernel(op: Operator, inputs: tuple[Tensor, ...], attrs: Any) -> tuple[Tensor, ...]:
    """The operator as a compiled program of its own."""
    from tracer.ir.graph import GraphBuilder
    from tracer.runtime.executable import Executable

    key = (op, tuple(x.type for x in inputs), attrs.key, CONFIG.compile)
    executable = _KERNELS.get(key)
    if executable is None:
        builder = GraphBuilder(op.name)
        result = builder.emit(op, [builder.input(x.type) for x in inputs], attrs)
        executable = Executable(
            builder.build(result if isinstance(result, tuple) else (result,)), {}
        )
        executable.examined = False  # its results are looked at, at the user's line
        if len(_KERNELS) > 256:
            _KERNELS.clear()
        _KERNELS[key] = executable
    return tuple(executable(inputs))


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
    if MODES.recorder is not None:
        result: Tensor = BUILDER.constant(value, dtype)
        return result
    if isinstance(value, int) and is_floating(dtype):
        value = float(value)  # large ones have no type of NumPy's
    with np.errstate(over="ignore"):  # an infinity, as in conversions
        array = np.asarray(value).astype(Type(dtype).numpy)
    return Tensor.of_array(array, Type(dtype, array.shape))
