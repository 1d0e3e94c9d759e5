"""Powers, roots, reciprocals and the length of a pair."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import onnx_forms, rules
from ops.compute import Scalar
from ops.errors import DTypeError
from ops.families import (
    FLOATING_PAIR_ERRORS,
    MISMATCHED,
    MISMATCHED_INTEGERS,
    NOT_FLOATING,
    each,
    floating_function,
    scaled,
)
from ops.operator import Application, ErrorSample, Input, ZeroGradient, operator
from ops.reference import precise, rounded_once
from ops.samples import BINARY, binary, unary, without_gradient
from ops.types import FLOATING, INTEGERS, SIZE_OF, UNSIGNED, Type

Array = np.ndarray[Any, Any]


@operator(
    "Reciprocal",
    type_rule=rules.floating,
    compute=Scalar("{T}(1) / {0}", effort="medium"),
    vjp=lambda g, n: (g.Neg(g.chain(n.dy, g.Mul(n.y, n.y))),),
    onnx="Reciprocal",
    samples=unary(0.5, 4),
    errors=NOT_FLOATING,
    dtypes=FLOATING,
)
@rounded_once
def reciprocal(x: Array) -> Array:
    """1 / x."""
    return np.divide(np.ones((), x.dtype), x)


@floating_function(
    "Sqrt",
    "sqrt",
    vjp=lambda g, n: (g.Xdivy(scaled(g, n.dy, 0.5), n.y),),
    onnx="Sqrt",
    ulp=0,
    samples=unary(0.25, 9),
    effort="medium",
)
@rounded_once
def sqrt(x: Array) -> Array:
    """Square root, correctly rounded; NaN below 0. The gradient at 0 is infinite."""
    return np.sqrt(x)


@floating_function(
    "Rsqrt",
    "rsqrt",
    vjp=lambda g, n: (g.chain(scaled(g, n.dy, -0.5), g.Mul(n.y, g.Mul(n.y, n.y))),),
    onnx=lambda g, n: g.Reciprocal(g.Sqrt(n.x)),
    ulp=2,
    samples=unary(0.25, 9),
    effort="medium",
)
@precise
def rsqrt(x: Array) -> Array:
    """1 / sqrt(x): infinite at 0, NaN below."""
    return np.divide(1.0, np.sqrt(x))


def _pow_by_base(g: Any, n: Application) -> Any:
    """y * x**(y-1), where x**0 is the constant 1 for every x."""
    x, y = n.inputs
    zero, one = g.like(0, x), g.like(1, x)
    constant = g.And(g.Equal(x, zero), g.Equal(y, zero))
    exponent = g.Where(constant, one, g.Sub(y, one))
    return g.chain(n.dy, g.MulNoNan(y, g.Pow(x, exponent)))


def _pow_by_exponent(g: Any, n: Application) -> Any:
    """x**y * log(x), where 0**y is the constant 0 for y > 0."""
    x, y = n.inputs
    zero = g.like(0, x)
    constant = g.And(g.Equal(x, zero), g.LessOrEqual(zero, y))
    logarithm = g.Log(g.Where(constant, g.like(1, x), x))
    return g.chain(n.dy, g.MulNoNan(n.y, logarithm))


@operator(
    "Pow",
    type_rule=rules.floating,
    compute=Scalar("pow({0}, {1})", effort="high"),
    vjp=each(_pow_by_base, _pow_by_exponent),
    onnx="Pow",
    samples=binary(Input(low=0.2, high=3)),
    errors=(
        *MISMATCHED,
        ErrorSample((Type("int64"), Type("int64")), DTypeError, "must be floating"),
    ),
    dtypes=FLOATING,
    ulp=4,
)
@precise
def power(x: Array, y: Array) -> Array:
    """x to the power of y, as C's pow: 1 for y = 0, NaN for x < 0 unless y is whole.

    The gradient of x**0 is 0 everywhere; that by y is 0 at x = 0 for y >= 0.
    """
    return np.power(x, y)


def _integer_power_onnx(g: Any, n: Application) -> Any:
    """Square and multiply over every bit of the exponent: ONNX's Pow goes through floating point."""
    x, y = n.inputs
    dtype = x.type.dtype
    zero, one = g.like(0, x), g.like(1, x)
    signed = dtype not in UNSIGNED
    result, square = one, x
    for bit in range(8 * SIZE_OF[dtype] - signed):
        skipped = g.Equal(g.BitwiseAnd(y, g.like(1 << bit, y)), zero)
        result = g.Mul(result, g.Where(skipped, one, square))
        square = g.Mul(square, square)
    if signed:  # a whole part of 1 / x**|y|: 0, but for 1 and -1, where the parity of y counts
        sign = g.Where(g.Equal(g.BitwiseAnd(y, one), zero), one, x)
        unit = g.Or(g.Equal(x, one), g.Equal(x, g.like(-1, x)))
        result = g.Where(g.Less(y, zero), g.Where(unit, sign, zero), result)
    return result


@operator(
    "IntegerPow",
    type_rule=rules.limited(*INTEGERS),
    compute=Scalar("integer_power({0}, {1})", effort="high"),
    vjp=ZeroGradient(),
    onnx=_integer_power_onnx,
    samples=without_gradient(binary(Input(low=-9, high=9), Input(low=-3, high=12))),
    errors=(
        *MISMATCHED_INTEGERS,
        ErrorSample((Type("float32"), Type("float32")), DTypeError, "must be int8"),
    ),
    dtypes=INTEGERS,
)
def integer_power(x: Array, y: Array) -> Array:
    """x to the power of y, wrapped around. For y < 0 it is 0, unless x is 1 or -1."""
    modulus = 2 ** (8 * x.dtype.itemsize)
    pairs = np.broadcast(x, y)
    result = np.empty(pairs.shape, f"u{x.dtype.itemsize}")
    for k, (base, exponent) in enumerate(pairs):
        b, e = int(base), int(exponent)
        if e < 0:
            whole = (1 if e % 2 == 0 else b) if abs(b) == 1 else 0
            result.reshape(-1)[k] = whole % modulus
        else:
            result.reshape(-1)[k] = pow(b, e, modulus)
    return result.view(x.dtype)


def _hypot_partial(g: Any, n: Application, k: int) -> Any:
    """The operand over the length; 0 at the origin."""
    zero = g.Equal(n.y, g.like(0, n.y))
    return g.chain(n.dy, g.Div(n.inputs[k], g.Where(zero, g.like(1, n.y), n.y)))


@operator(
    "Hypot",
    type_rule=rules.floating,
    compute=Scalar("hypot({0}, {1})", effort="high"),
    vjp=each(lambda g, n: _hypot_partial(g, n, 0), lambda g, n: _hypot_partial(g, n, 1)),
    onnx=lambda g, n: onnx_forms.hypot(g, *n.inputs),
    samples=BINARY,
    errors=FLOATING_PAIR_ERRORS,
    dtypes=FLOATING,
    ulp=2,
)
@precise
def hypot(x: Array, y: Array) -> Array:
    """sqrt(x*x + y*y) without overflow; infinite for an infinity beside NaN. 0 has gradient 0."""
    return np.hypot(x, y)
