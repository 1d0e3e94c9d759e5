"""Comparisons, logic, classes of numbers, and choice. All results are exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import onnx_forms, rules
from ops.algebra import NONE, Algebra
from ops.compute import Scalar
from ops.errors import DTypeError, ShapeError
from ops.families import MISMATCHED, NOT_FLOATING, Declare, each
from ops.operator import ErrorSample, Input, Rule, Sample, ZeroGradient, operator
from ops.reference import rounded_once
from ops.samples import BINARY, UNARY, each_beside_each, without_gradient
from ops.types import FLOATING, Type, broadcast_shapes, short

Array = np.ndarray[Any, Any]


# ---- comparisons ---------------------------------------------------------------------------------


def _comparison(name: str, text: str, *, onnx: str | Rule | None = None) -> Declare:
    return operator(
        name,
        type_rule=rules.comparison,
        compute=Scalar(text),
        vjp=ZeroGradient(),
        onnx=onnx or name,
        samples=without_gradient(BINARY),
        errors=MISMATCHED,
    )


@_comparison("Equal", "{0} == {1}")
@rounded_once
def equal(x: Array, y: Array) -> Array:
    """Whether elements are equal; NaN equals nothing."""
    return np.asarray(x == y)


@_comparison("NotEqual", "{0} != {1}", onnx=lambda g, n: g.Not(g.Equal(*n.inputs)))
@rounded_once
def not_equal(x: Array, y: Array) -> Array:
    """Whether elements differ; NaN differs from everything."""
    return np.asarray(x != y)


@_comparison("Less", "{0} < {1}")
@rounded_once
def less(x: Array, y: Array) -> Array:
    """Whether x < y; False beside NaN. False < True."""
    return np.asarray(x < y)


@_comparison("LessOrEqual", "{0} <= {1}")
@rounded_once
def less_equal(x: Array, y: Array) -> Array:
    """Whether x <= y; False beside NaN."""
    return np.asarray(x <= y)


@_comparison("Greater", "{0} > {1}")
@rounded_once
def greater(x: Array, y: Array) -> Array:
    """Whether x > y; False beside NaN. True > False."""
    return np.asarray(x > y)


@_comparison("GreaterOrEqual", "{0} >= {1}")
@rounded_once
def greater_equal(x: Array, y: Array) -> Array:
    """Whether x >= y; False beside NaN."""
    return np.asarray(x >= y)


# ---- logic ---------------------------------------------------------------------------------------


def _logic(
    name: str, text: str, samples: tuple[Sample, ...] = BINARY, algebra: Algebra = NONE
) -> Declare:
    operands = len(samples[0].inputs)
    return operator(
        name,
        type_rule=rules.limited("bool"),
        compute=Scalar(text),
        algebra=algebra,
        vjp=ZeroGradient(),
        onnx=name,
        samples=without_gradient(samples),
        errors=(ErrorSample((Type("int64", (2,)),) * operands, DTypeError, "must be bool"),),
        dtypes=("bool",),
    )


@_logic("And", "{0} & {1}")
def logical_and(x: Array, y: Array) -> Array:
    """Whether both hold."""
    return np.logical_and(x, y)


@_logic("Or", "{0} | {1}")
def logical_or(x: Array, y: Array) -> Array:
    """Whether one or both hold."""
    return np.logical_or(x, y)


@_logic("Xor", "{0} ^ {1}")
def logical_xor(x: Array, y: Array) -> Array:
    """Whether just one of both holds."""
    return np.logical_xor(x, y)


@_logic("Not", "~{0}", UNARY, Algebra(involution=True))
def logical_not(x: Array) -> Array:
    """Whether it does not hold."""
    return np.logical_not(x)


# ---- classes of numbers --------------------------------------------------------------------------


def _one_truth(x: Type) -> Type:
    return rules.floating(x).with_dtype("bool")


def _class_of_number(name: str, text: str, *, onnx: str | Rule | None = None) -> Declare:
    return operator(
        name,
        type_rule=_one_truth,
        compute=Scalar(f"{text}({{0}})"),
        vjp=ZeroGradient(),
        onnx=onnx or name,
        samples=without_gradient(UNARY),
        errors=NOT_FLOATING,
        dtypes=FLOATING,
    )


@_class_of_number("IsNaN", "isnan")
def isnan(x: Array) -> Array:
    """Whether x is not a number."""
    return np.isnan(x)


@_class_of_number("IsInf", "isinf")
def isinf(x: Array) -> Array:
    """Whether x is infinite, of either sign."""
    return np.isinf(x)


@_class_of_number("IsFinite", "isfinite", onnx=lambda g, n: g.Not(g.Or(g.IsNaN(n.x), g.IsInf(n.x))))
def isfinite(x: Array) -> Array:
    """Whether x is neither infinite nor NaN."""
    return np.isfinite(x)


@_class_of_number("Signbit", "signbit", onnx=lambda g, n: onnx_forms.signbit(g, n.x))
def signbit(x: Array) -> Array:
    """Whether the sign of x is minus, that of -0 too. The sign of a NaN means nothing."""
    return np.signbit(x)


# ---- choice --------------------------------------------------------------------------------------


def _where_type(condition: Type, x: Type, y: Type) -> Type:
    if condition.dtype != "bool":
        raise DTypeError(f"the condition must be bool, got {short(condition)}")
    dtype = rules.same_dtype(x, y)
    shape = broadcast_shapes(condition.shape, x.shape, y.shape)
    return Type(dtype, shape, x.weak and y.weak)


@operator(
    "Where",
    type_rule=_where_type,
    compute=Scalar("select({0}, {1}, {2})"),
    vjp=each(
        lambda g, n: None,
        lambda g, n: g.Where(n.x, n.dy, g.like(0, n.dy)),
        lambda g, n: g.Where(n.x, g.like(0, n.dy), n.dy),
    ),
    onnx="Where",
    samples=(
        Sample((Input((3, 17), "bool"), Input((3, 17)), Input((3, 17)))),
        Sample((Input((4, 1), "bool"), Input(()), Input((1, 5)))),
        Sample((Input((0, 2), "bool"), Input((0, 2)), Input((2,)))),
        Sample((Input((5, 6), "bool", layout="strided"), Input((5, 6), layout="strided"), Input())),
        each_beside_each(2, Input(dtype="bool")),
    ),
    errors=(
        ErrorSample((Type("float32", (2,)),) * 3, DTypeError, "must be bool"),
        ErrorSample((Type("bool"), Type("float32"), Type("int64")), DTypeError, "one element type"),
        ErrorSample(
            (Type("bool", (3,)), Type("int8", (2,)), Type("int8")), ShapeError, "do not broadcast"
        ),
    ),
)
def where(condition: Array, x: Array, y: Array) -> Array:
    """x where the condition holds, else y. The gradient of the branch not taken is exactly 0."""
    return np.where(condition, x, y)
