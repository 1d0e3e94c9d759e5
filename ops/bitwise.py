"""The bits of integers. All results are exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import rules
from ops.compute import Scalar
from ops.errors import DTypeError
from ops.families import MISMATCHED_INTEGERS, Declare
from ops.operator import Application, ErrorSample, Input, Rule, Sample, ZeroGradient, operator
from ops.samples import BINARY, UNARY, binary, without_gradient
from ops.types import INTEGERS, SIZE_OF, UNSIGNED, Type

Array = np.ndarray[Any, Any]


def _bitwise(
    name: str, text: str, samples: tuple[Sample, ...] = BINARY, *, onnx: str | Rule | None = None
) -> Declare:
    operands = len(samples[0].inputs)
    return operator(
        name,
        type_rule=rules.limited(*INTEGERS),
        compute=Scalar(text),
        vjp=ZeroGradient(),
        onnx=onnx or name,
        samples=without_gradient(samples),
        errors=(
            ErrorSample((Type("float32"),) * operands, DTypeError, "must be int8"),
            *(MISMATCHED_INTEGERS if operands == 2 else ()),
        ),
        dtypes=INTEGERS,
    )


@_bitwise("BitwiseAnd", "{0} & {1}")
def bitwise_and(x: Array, y: Array) -> Array:
    """Bits set in both."""
    return np.bitwise_and(x, y)


@_bitwise("BitwiseOr", "{0} | {1}")
def bitwise_or(x: Array, y: Array) -> Array:
    """Bits set in one or both."""
    return np.bitwise_or(x, y)


@_bitwise("BitwiseXor", "{0} ^ {1}")
def bitwise_xor(x: Array, y: Array) -> Array:
    """Bits set in one of both."""
    return np.bitwise_xor(x, y)


@_bitwise("BitwiseNot", "~{0}", UNARY)
def bitwise_not(x: Array) -> Array:
    """All bits turned over."""
    return np.invert(x)


def _shifted(g: Any, direction: str, x: Any, count: Any) -> Any:
    """ONNX shifts unsigned integers only, and is silent about counts of the width or more."""
    dtype = x.type.dtype
    unsigned = f"uint{8 * SIZE_OF[dtype]}"
    if dtype not in UNSIGNED:
        x, count = g.cast(x, unsigned), g.cast(count, unsigned)
    inside = g.Less(count, g.like(8 * SIZE_OF[dtype], count))
    zero = g.like(0, x)
    moved = g.op("BitShift", x, g.Where(inside, count, zero), direction=direction)
    moved = g.Where(inside, moved, zero)
    return moved if dtype in UNSIGNED else g.cast(moved, dtype)


def _shift_right_onnx(g: Any, n: Application) -> Any:
    x, count = n.inputs
    if x.type.dtype in UNSIGNED:
        return _shifted(g, "RIGHT", x, count)
    negative = g.Less(x, g.like(0, x))  # shifts ones in: turned over before and after
    moved = _shifted(g, "RIGHT", g.Where(negative, g.BitwiseNot(x), x), count)
    return g.Where(negative, g.BitwiseNot(moved), moved)


_SHIFTS = binary(y=Input(low=0, high=7))


@_bitwise("ShiftLeft", "{0} << {1}", _SHIFTS, onnx=lambda g, n: _shifted(g, "LEFT", *n.inputs))
def shift_left(x: Array, y: Array) -> Array:
    """Bits moved up, zeros moved in. A negative count, or the width or more, moves all out."""
    return np.left_shift(x, y)


@_bitwise("ShiftRight", "{0} >> {1}", _SHIFTS, onnx=_shift_right_onnx)
def shift_right(x: Array, y: Array) -> Array:
    """Bits moved down, the sign moved in. A negative count, or the width or more: only the sign."""
    return np.right_shift(x, y)
