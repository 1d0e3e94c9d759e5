"""Comparisons, logic and choice. All results are exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ops import rules
from ops.arithmetic import BINARY_ERRORS, BINARY_SAMPLES
from ops.compute import Attributes, Scalar
from ops.errors import DTypeError
from ops.operator import Application, ErrorSample, Input, Sample, ZeroGradient, operator
from ops.types import Type, broadcast_shapes, short

Array = np.ndarray[Any, Any]

_BOOL = (
    Sample((Input((3, 17), "bool"), Input((3, 17), "bool")),),
    Sample((Input((4, 1, 5), "bool"), Input((3, 1), "bool")),),
)
_COMPARED = tuple(Sample(s.inputs, s.attrs, gradient=False) for s in BINARY_SAMPLES)


@operator(
    "Equal",
    type_rule=rules.comparison,
    compute=Scalar("{0} == {1}"),
    vjp=ZeroGradient(),
    onnx="Equal",
    samples=_COMPARED,
    errors=BINARY_ERRORS,
)
def equal(x: Array, y: Array) -> Array:
    """Whether elements are equal; NaN equals nothing."""
    return np.asarray(x == y)


@operator(
    "Less",
    type_rule=rules.comparison,
    compute=Scalar("{0} < {1}"),
    vjp=ZeroGradient(),
    onnx="Less",
    samples=_COMPARED,
    errors=BINARY_ERRORS,
)
def less(x: Array, y: Array) -> Array:
    """Whether x < y; False beside NaN. False < True."""
    return np.asarray(x < y)


@operator(
    "LessOrEqual",
    type_rule=rules.comparison,
    compute=Scalar("{0} <= {1}"),
    vjp=ZeroGradient(),
    onnx="LessOrEqual",
    samples=_COMPARED,
    errors=BINARY_ERRORS,
)
def less_equal(x: Array, y: Array) -> Array:
    """Whether x <= y; False beside NaN."""
    return np.asarray(x <= y)


@operator(
    "And",
    type_rule=rules.limited("bool"),
    compute=Scalar("{0} & {1}"),
    vjp=ZeroGradient(),
    onnx="And",
    samples=_BOOL,
    errors=(ErrorSample((Type("int64", (2,)), Type("int64", (2,))), DTypeError, "must be bool"),),
    dtypes=("bool",),
)
def logical_and(x: Array, y: Array) -> Array:
    """Logical and of bools."""
    return np.logical_and(x, y)


@operator(
    "Or",
    type_rule=rules.limited("bool"),
    compute=Scalar("{0} | {1}"),
    vjp=ZeroGradient(),
    onnx="Or",
    samples=_BOOL,
    errors=(ErrorSample((Type("int64", (2,)), Type("int64", (2,))), DTypeError, "must be bool"),),
    dtypes=("bool",),
)
def logical_or(x: Array, y: Array) -> Array:
    """Logical or of bools."""
    return np.logical_or(x, y)


@operator(
    "Not",
    type_rule=rules.limited("bool"),
    compute=Scalar("~{0}"),
    vjp=ZeroGradient(),
    onnx="Not",
    samples=(Sample((Input((3, 17), "bool"),)), Sample((Input((), "bool"),))),
    errors=(ErrorSample((Type("int64", (2,)),), DTypeError, "must be bool"),),
    dtypes=("bool",),
)
def logical_not(x: Array) -> Array:
    """Logical not of bools."""
    return np.logical_not(x)


def _where_type(condition: Type, x: Type, y: Type) -> Type:
    if condition.dtype != "bool":
        raise DTypeError(f"the condition must be bool, got {short(condition)}")
    return Type(
        rules.same_dtype(x, y),
        broadcast_shapes(condition.shape, x.shape, y.shape),
        x.weak and y.weak,
    )


def _where_vjp(g: Any, n: Application) -> Any:
    zero = g.like(0, n.dy)
    return None, g.Where(n.x, n.dy, zero), g.Where(n.x, zero, n.dy)


def _where_text(types: Sequence[Type], result: Type, attrs: Attributes) -> str:
    return "select({0}, {1}, {2})"


@operator(
    "Where",
    type_rule=_where_type,
    compute=Scalar(_where_text),
    vjp=_where_vjp,
    onnx="Where",
    samples=(
        Sample((Input((3, 17), "bool"), Input((3, 17)), Input((3, 17)))),
        Sample((Input((4, 1), "bool"), Input(()), Input((1, 5)))),
        Sample((Input((0, 2), "bool"), Input((0, 2)), Input((2,)))),
        Sample((Input((64,), "bool"), Input((64,), special=True), Input((64,), special=True)), gradient=False),
    ),
    errors=(
        ErrorSample(
            (Type("float32", (2,)), Type("float32", (2,)), Type("float32", (2,))), DTypeError, "must be bool"
        ),
    ),
)
def where(condition: Array, x: Array, y: Array) -> Array:
    """x where the condition holds, else y. The gradient of the branch not taken is exactly 0."""
    return np.where(condition, x, y)


_SIGNED = ("int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")


@operator(
    "Relu",
    type_rule=rules.limited(*_SIGNED),
    compute=Scalar("select({0} <= {T}(0), {T}(0), {0})"),
    vjp=lambda g, n: (g.Where(g.Less(g.like(0, n.x), n.x), n.dy, g.like(0, n.dy)),),
    onnx="Relu",
    samples=(
        Sample((Input((3, 17)),)),
        Sample((Input(()),)),
        Sample((Input((64,), special=True),), gradient=False),
    ),
    errors=(ErrorSample((Type("bool", (2,)),), DTypeError, "must be"),),
    dtypes=_SIGNED,
)
def relu(x: Array) -> Array:
    """max(x, 0): 0 for negative values and zeros, NaN for NaN. The gradient at 0 is 0."""
    return np.where(x <= 0, np.zeros((), x.dtype), x)
