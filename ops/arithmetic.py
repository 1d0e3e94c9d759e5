"""Sums, products, quotients and signs: what every machine computes exactly or rounds once."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import onnx_forms, rules
from ops.algebra import Algebra
from ops.compute import Scalar
from ops.errors import DTypeError
from ops.families import MISMATCHED, NOT_NUMERIC, NUMERIC, by_dtype, each
from ops.operator import Application, ErrorSample, Input, ZeroGradient, operator
from ops.reference import rounded_once
from ops.samples import BINARY, UNARY, binary
from ops.types import DTYPES, FLOATING, UNSIGNED, Type

Array = np.ndarray[Any, Any]


@operator(
    "Add",
    type_rule=rules.elementwise,
    compute=Scalar(by_dtype("bool".__eq__, "{0} | {1}", "{0} + {1}")),
    vjp=lambda g, n: (n.dy, n.dy),
    onnx=lambda g, n: g.op("Or" if n.x.type.dtype == "bool" else "Add", *n.inputs),
    samples=BINARY,
    errors=MISMATCHED,
)
@rounded_once
def add(x: Array, y: Array) -> Array:
    """Sum. Integers wrap around; bools are or-ed."""
    return np.add(x, y)


@operator(
    "Sub",
    type_rule=rules.limited(*NUMERIC),
    compute=Scalar("{0} - {1}"),
    vjp=each(lambda g, n: n.dy, lambda g, n: g.Neg(n.dy)),
    onnx="Sub",
    samples=BINARY,
    errors=(*MISMATCHED, ErrorSample((Type("bool"), Type("bool")), DTypeError, "must be int8")),
    dtypes=NUMERIC,
)
@rounded_once
def subtract(x: Array, y: Array) -> Array:
    """Difference. Integers wrap around."""
    return np.subtract(x, y)


@operator(
    "Mul",
    type_rule=rules.elementwise,
    compute=Scalar(by_dtype("bool".__eq__, "{0} & {1}", "{0} * {1}")),
    algebra=Algebra(neutral={0: 1, 1: 1}),
    vjp=each(lambda g, n: g.chain(n.dy, n.inputs[1]), lambda g, n: g.chain(n.dy, n.x)),
    onnx=lambda g, n: g.op("And" if n.x.type.dtype == "bool" else "Mul", *n.inputs),
    samples=BINARY,
    errors=MISMATCHED,
    dtypes=DTYPES,
)
@rounded_once
def multiply(x: Array, y: Array) -> Array:
    """Product. Integers wrap around; bools are and-ed."""
    return np.multiply(x, y)


@operator(
    "Div",
    type_rule=rules.floating,
    compute=Scalar("{0} / {1}", effort="medium"),
    algebra=Algebra(neutral={1: 1}),
    vjp=each(
        lambda g, n: g.Xdivy(n.dy, n.inputs[1]),
        lambda g, n: g.Neg(g.chain(n.dy, g.Div(n.y, n.inputs[1]))),
    ),
    onnx="Div",
    samples=binary(y=Input(low=0.5)),
    errors=(
        *MISMATCHED,
        ErrorSample((Type("int64", (2,)), Type("int64", (2,))), DTypeError, "must be floating"),
    ),
    dtypes=FLOATING,
)
@rounded_once
def divide(x: Array, y: Array) -> Array:
    """Quotient of floating values. For integers there is FloorDivide."""
    return np.divide(x, y)


@operator(
    "Neg",
    type_rule=rules.limited(*NUMERIC),
    compute=Scalar("-{0}"),
    algebra=Algebra(involution=True),
    vjp=lambda g, n: (g.Neg(n.dy),),
    onnx=lambda g, n: (
        g.Sub(g.like(0, n.x), n.x) if n.x.type.dtype in UNSIGNED else g.op("Neg", n.x)
    ),
    samples=UNARY,
    errors=NOT_NUMERIC,
    dtypes=NUMERIC,
)
@rounded_once
def negative(x: Array) -> Array:
    """Negation. Integers wrap around."""
    return np.negative(x)


@operator(
    "Abs",
    type_rule=rules.limited(*NUMERIC),
    compute=Scalar(by_dtype(UNSIGNED.__contains__, "{0}", "absolute({0})")),
    vjp=lambda g, n: (g.chain(n.dy, g.Sign(n.x)),),
    onnx="Abs",
    samples=UNARY,
    errors=NOT_NUMERIC,
    dtypes=NUMERIC,
)
@rounded_once
def absolute(x: Array) -> Array:
    """Absolute value; the most negative integer stays what it is. The gradient at 0 is 0."""
    return np.absolute(x)


@operator(
    "Sign",
    type_rule=rules.limited(*NUMERIC),
    compute=Scalar("sign({0})"),
    vjp=ZeroGradient(),
    onnx=lambda g, n: (
        g.Where(g.IsNaN(n.x), n.x, g.op("Sign", n.x))
        if n.x.type.dtype in FLOATING
        else g.op("Sign", n.x)
    ),
    samples=UNARY,
    errors=NOT_NUMERIC,
    dtypes=NUMERIC,
)
@rounded_once
def sign(x: Array) -> Array:
    """-1, 0 or 1 by the sign of x; 0 for zeros, NaN for NaN."""
    return np.sign(x)


def _copysign_vjp(g: Any, n: Application) -> Any:
    flips = g.Xor(g.Signbit(n.x), g.Signbit(n.inputs[1]))
    share = g.Where(flips, g.Neg(n.dy), n.dy)
    return g.Where(g.Equal(n.x, g.like(0, n.x)), g.like(0, n.dy), share), None


@operator(
    "CopySign",
    type_rule=rules.floating,
    compute=Scalar("copysign({0}, {1})"),
    vjp=_copysign_vjp,
    onnx=lambda g, n: onnx_forms.copysign(g, g.Abs(n.x), n.inputs[1]),
    samples=BINARY,
    errors=MISMATCHED,
    dtypes=FLOATING,
)
@rounded_once
def copysign(x: Array, y: Array) -> Array:
    """The size of x with the sign of y, that of -0 included. The gradient at x = 0 is 0."""
    return np.copysign(x, y)
