"""Exponentials, logarithms, trigonometric and error functions, under the array API's names.

Integers, bools and Python numbers become float32.
"""

from __future__ import annotations

from typing import Any

from tracer.functions.elementwise import elementwise, unary_floating
from tracer.functions.promotion import prepare
from tracer.functions.public import public
from tracer.tensors.tensor import Tensor


@public
def exp(x: Any, /) -> Tensor:
    """Exponential."""
    return unary_floating("Exp", x)


@public
def exp2(x: Any, /) -> Tensor:
    """2 to the power of x."""
    return unary_floating("Exp2", x)


@public
def expm1(x: Any, /) -> Tensor:
    """exp(x) - 1, accurate near 0."""
    return unary_floating("Expm1", x)


@public
def log(x: Any, /) -> Tensor:
    """Natural logarithm: -inf at 0, NaN below."""
    return unary_floating("Log", x)


@public
def log2(x: Any, /) -> Tensor:
    """Logarithm to base 2."""
    return unary_floating("Log2", x)


@public
def log10(x: Any, /) -> Tensor:
    """Logarithm to base 10."""
    return unary_floating("Log10", x)


@public
def log1p(x: Any, /) -> Tensor:
    """log(1 + x), accurate near 0."""
    return unary_floating("Log1p", x)


@public
def sin(x: Any, /) -> Tensor:
    """Sine of an angle in radians."""
    return unary_floating("Sin", x)


@public
def cos(x: Any, /) -> Tensor:
    """Cosine of an angle in radians."""
    return unary_floating("Cos", x)


@public
def tan(x: Any, /) -> Tensor:
    """Tangent of an angle in radians."""
    return unary_floating("Tan", x)


@public
def asin(x: Any, /) -> Tensor:
    """Angle whose sine is x; NaN outside [-1, 1]."""
    return unary_floating("Asin", x)


@public
def acos(x: Any, /) -> Tensor:
    """Angle whose cosine is x; NaN outside [-1, 1]."""
    return unary_floating("Acos", x)


@public
def atan(x: Any, /) -> Tensor:
    """Angle whose tangent is x."""
    return unary_floating("Atan", x)


@public
def sinh(x: Any, /) -> Tensor:
    """Hyperbolic sine."""
    return unary_floating("Sinh", x)


@public
def cosh(x: Any, /) -> Tensor:
    """Hyperbolic cosine."""
    return unary_floating("Cosh", x)


@public
def tanh(x: Any, /) -> Tensor:
    """Hyperbolic tangent."""
    return unary_floating("Tanh", x)


@public
def asinh(x: Any, /) -> Tensor:
    """Inverse hyperbolic sine."""
    return unary_floating("Asinh", x)


@public
def acosh(x: Any, /) -> Tensor:
    """Inverse hyperbolic cosine; NaN below 1."""
    return unary_floating("Acosh", x)


@public
def atanh(x: Any, /) -> Tensor:
    """Inverse hyperbolic tangent; NaN outside [-1, 1]."""
    return unary_floating("Atanh", x)


@public
def erf(x: Any, /) -> Tensor:
    """Error function."""
    return unary_floating("Erf", x)


@public
def erfc(x: Any, /) -> Tensor:
    """1 - erf(x), accurate where that is small."""
    return unary_floating("Erfc", x)


@public
def atan2(x1: Any, x2: Any, /) -> Tensor:
    """Angle of the point (x2, x1) against the first axis, broadcast."""
    return elementwise("Atan2", x1, x2, floating=True)


@public
def logaddexp(x1: Any, x2: Any, /) -> Tensor:
    """log(exp(x1) + exp(x2)) without overflow, broadcast."""
    return elementwise("LogAddExp", x1, x2, floating=True)


@public
def xlogy(x1: Any, x2: Any, /) -> Tensor:
    """x1 * log(x2), and 0 where x1 is 0, whatever x2 is; broadcast."""
    x, y = prepare(x1, x2, floating=True)
    return elementwise("MulNoNan", x, elementwise("Log", y))


__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "sin",
    "sinh",
    "tan",
    "tanh",
    "xlogy",
]
