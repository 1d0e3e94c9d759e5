"""Arithmetic element by element: what every machine computes exactly or rounds once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ops import rules
from ops.compute import Attributes, Scalar
from ops.errors import DTypeError, ShapeError
from ops.operator import Application, ErrorSample, Input, Sample, operator
from ops.reference import rounded_once
from ops.types import DTYPES, FLOATING, INTEGERS, Type

Array = np.ndarray[Any, Any]
NUMERIC = INTEGERS + FLOATING

UNARY_SAMPLES = (
    Sample((Input((3, 17)),)),
    Sample((Input(()),)),
    Sample((Input((0, 3)),)),
    Sample((Input((64,), special=True),), gradient=False),
    Sample((Input((5, 6), layout="strided"),)),
)
BINARY_SAMPLES = (
    Sample((Input((3, 17)), Input((3, 17)))),
    Sample((Input((4, 1, 5)), Input((3, 1)))),
    Sample((Input(()), Input((7,)))),
    Sample((Input((0, 3)), Input((1, 3)))),
    Sample((Input((64,), special=True), Input((64,), special=True)), gradient=False),
)
BINARY_ERRORS = (
    ErrorSample((Type("float32", (2, 3)), Type("float32", (3, 2))), ShapeError, "do not broadcast"),
    ErrorSample((Type("float32", (2,)), Type("int64", (2,))), DTypeError, "one element type"),
)


def _add_text(types: Sequence[Type], result: Type, attrs: Attributes) -> str:
    return "{0} | {1}" if result.dtype == "bool" else "{0} + {1}"


@operator(
    "Add",
    type_rule=rules.elementwise,
    compute=Scalar(_add_text),
    vjp=lambda g, n: (n.dy, n.dy),
    onnx=lambda g, n: g.op("Or" if n.x.type.dtype == "bool" else "Add", *n.inputs),
    samples=BINARY_SAMPLES,
    errors=BINARY_ERRORS,
)
@rounded_once
def add(x: Array, y: Array) -> Array:
    """Sum. Integers wrap around; bools are or-ed."""
    return np.add(x, y)


@operator(
    "Sub",
    type_rule=rules.limited(*NUMERIC),
    compute=Scalar("{0} - {1}"),
    vjp=lambda g, n: (n.dy, g.Neg(n.dy)),
    onnx="Sub",
    samples=BINARY_SAMPLES,
    errors=BINARY_ERRORS,
    dtypes=NUMERIC,
)
@rounded_once
def subtract(x: Array, y: Array) -> Array:
    """Difference. Integers wrap around."""
    return np.subtract(x, y)


def _multiply_text(types: Sequence[Type], result: Type, attrs: Attributes) -> str:
    return "{0} & {1}" if result.dtype == "bool" else "{0} * {1}"


@operator(
    "Mul",
    type_rule=rules.elementwise,
    compute=Scalar(_multiply_text),
    vjp=lambda g, n: (g.Mul(n.dy, n.inputs[1]), g.Mul(n.dy, n.x)),
    onnx=lambda g, n: g.op("And" if n.x.type.dtype == "bool" else "Mul", *n.inputs),
    samples=BINARY_SAMPLES,
    errors=BINARY_ERRORS,
    dtypes=DTYPES,
)
@rounded_once
def multiply(x: Array, y: Array) -> Array:
    """Product. Integers wrap around; bools are and-ed."""
    return np.multiply(x, y)


def _divide_vjp(g: Any, n: Application) -> Any:
    divisor = n.inputs[1]
    return g.Div(n.dy, divisor), g.Neg(g.Mul(n.dy, g.Div(n.y, divisor)))


@operator(
    "Div",
    type_rule=rules.floating,
    compute=Scalar("{0} / {1}"),
    vjp=_divide_vjp,
    onnx="Div",
    samples=(
        Sample((Input((3, 17)), Input((3, 17), low=0.5))),
        Sample((Input((4, 1, 5)), Input((3, 1), low=0.5))),
        Sample((Input(()), Input((7,), low=0.5))),
        Sample((Input((0, 3)), Input((1, 3), low=0.5))),
        Sample((Input((64,), special=True), Input((64,), special=True)), gradient=False),
    ),
    errors=(ErrorSample((Type("int64", (2,)), Type("int64", (2,))), DTypeError, "must be floating"),),
    dtypes=FLOATING,
)
@rounded_once
def divide(x: Array, y: Array) -> Array:
    """Quotient of floating values."""
    return np.divide(x, y)


@operator(
    "Neg",
    type_rule=rules.limited(*NUMERIC),
    compute=Scalar("-{0}"),
    vjp=lambda g, n: (g.Neg(n.dy),),
    onnx=lambda g, n: g.op("Sub", g.like(0, n.x), n.x) if n.x.type.dtype.startswith("uint") else g.op("Neg", n.x),
    samples=UNARY_SAMPLES,
    errors=(ErrorSample((Type("bool", (2,)),), DTypeError, "must be"),),
    dtypes=NUMERIC,
)
@rounded_once
def negative(x: Array) -> Array:
    """Negation. Integers wrap around."""
    return np.negative(x)
