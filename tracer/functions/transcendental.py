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
    """Exponential.

    Element by element; integers and bools become float32.

    >>> tracer.exp([0.0, 1.0])
    tensor([1.       , 2.7182817])
    """
    return unary_floating("Exp", x)


@public
def exp2(x: Any, /) -> Tensor:
    """2 to the power of x.

    Element by element; integers and bools become float32.

    >>> tracer.exp2([0.0, 3.0])
    tensor([1., 8.])
    """
    return unary_floating("Exp2", x)


@public
def expm1(x: Any, /) -> Tensor:
    """exp(x) - 1, accurate near 0.

    Element by element; integers and bools become float32.

    >>> tracer.expm1([0.0, 1e-7])
    tensor([0.0000000e+00, 1.0000001e-07])
    """
    return unary_floating("Expm1", x)


@public
def log(x: Any, /) -> Tensor:
    """Natural logarithm: -inf at 0, NaN below.

    Element by element; integers and bools become float32.

    >>> tracer.log([1.0, 2.0])
    tensor([0.       , 0.6931472])
    """
    return unary_floating("Log", x)


@public
def log2(x: Any, /) -> Tensor:
    """Logarithm to base 2.

    Element by element; integers and bools become float32.

    >>> tracer.log2([1.0, 8.0])
    tensor([0., 3.])
    """
    return unary_floating("Log2", x)


@public
def log10(x: Any, /) -> Tensor:
    """Logarithm to base 10.

    Element by element; integers and bools become float32.

    >>> tracer.log10([1.0, 1000.0])
    tensor([0., 3.])
    """
    return unary_floating("Log10", x)


@public
def log1p(x: Any, /) -> Tensor:
    """log(1 + x), accurate near 0.

    Element by element; integers and bools become float32.

    >>> tracer.log1p([0.0, 1e-7])
    tensor([0.0000000e+00, 9.9999994e-08])
    """
    return unary_floating("Log1p", x)


@public
def sin(x: Any, /) -> Tensor:
    """Sine of an angle in radians.

    Element by element; integers and bools become float32.

    >>> tracer.sin([0.0, 1.0])
    tensor([0.        , 0.84147096])
    """
    return unary_floating("Sin", x)


@public
def cos(x: Any, /) -> Tensor:
    """Cosine of an angle in radians.

    Element by element; integers and bools become float32.

    >>> tracer.cos([0.0, 1.0])
    tensor([1.       , 0.5403023])
    """
    return unary_floating("Cos", x)


@public
def tan(x: Any, /) -> Tensor:
    """Tangent of an angle in radians.

    Element by element; integers and bools become float32.

    >>> tracer.tan([0.0, 1.0])
    tensor([0.       , 1.5574077])
    """
    return unary_floating("Tan", x)


@public
def asin(x: Any, /) -> Tensor:
    """Angle whose sine is x; NaN outside [-1, 1].

    Element by element; integers and bools become float32.

    >>> tracer.asin([0.0, 1.0])
    tensor([0.       , 1.5707964])
    """
    return unary_floating("Asin", x)


@public
def acos(x: Any, /) -> Tensor:
    """Angle whose cosine is x; NaN outside [-1, 1].

    Element by element; integers and bools become float32.

    >>> tracer.acos([1.0, 0.0])
    tensor([0.       , 1.5707964])
    """
    return unary_floating("Acos", x)


@public
def atan(x: Any, /) -> Tensor:
    """Angle whose tangent is x.

    Element by element; integers and bools become float32.

    >>> tracer.atan([0.0, 1.0])
    tensor([0.       , 0.7853982])
    """
    return unary_floating("Atan", x)


@public
def sinh(x: Any, /) -> Tensor:
    """Hyperbolic sine.

    Element by element; integers and bools become float32.

    >>> tracer.sinh([0.0, 1.0])
    tensor([0.       , 1.1752012])
    """
    return unary_floating("Sinh", x)


@public
def cosh(x: Any, /) -> Tensor:
    """Hyperbolic cosine.

    Element by element; integers and bools become float32.

    >>> tracer.cosh([0.0, 1.0])
    tensor([1.       , 1.5430807])
    """
    return unary_floating("Cosh", x)


@public
def tanh(x: Any, /) -> Tensor:
    """Hyperbolic tangent.

    Element by element; integers and bools become float32.

    >>> tracer.tanh([0.0, 1.0])
    tensor([0.       , 0.7615942])
    """
    return unary_floating("Tanh", x)


@public
def asinh(x: Any, /) -> Tensor:
    """Inverse hyperbolic sine.

    Element by element; integers and bools become float32.

    >>> tracer.asinh([0.0, 1.0])
    tensor([0.       , 0.8813736])
    """
    return unary_floating("Asinh", x)


@public
def acosh(x: Any, /) -> Tensor:
    """Inverse hyperbolic cosine; NaN below 1.

    Element by element; integers and bools become float32.

    >>> tracer.acosh([1.0, 2.0])
    tensor([0.      , 1.316958])
    """
    return unary_floating("Acosh", x)


@public
def atanh(x: Any, /) -> Tensor:
    """Inverse hyperbolic tangent; NaN outside [-1, 1].

    Element by element; integers and bools become float32.

    >>> tracer.atanh([0.0, 0.5])
    tensor([0.        , 0.54930615])
    """
    return unary_floating("Atanh", x)


@public
def erf(x: Any, /) -> Tensor:
    """Error function.

    Element by element; integers and bools become float32.

    >>> tracer.erf([0.0, 1.0])
    tensor([0.       , 0.8427008])
    """
    return unary_floating("Erf", x)


@public
def erfc(x: Any, /) -> Tensor:
    """1 - erf(x), accurate where that is small.

    Element by element; integers and bools become float32.

    >>> tracer.erfc([0.0, 1.0])
    tensor([1.       , 0.1572992])
    """
    return unary_floating("Erfc", x)


@public
def atan2(x1: Any, x2: Any, /) -> Tensor:
    """Angle of the point (x2, x1) against the first axis, broadcast.

    Element by element; integers and bools become float32.

    >>> tracer.atan2([1.0, 1.0], [1.0, -1.0])
    tensor([0.7853982, 2.3561945])
    """
    return elementwise("Atan2", x1, x2, floating=True)


@public
def logaddexp(x1: Any, x2: Any, /) -> Tensor:
    """log(exp(x1) + exp(x2)) without overflow, broadcast.

    Element by element; integers and bools become float32.

    >>> tracer.logaddexp(0.0, [0.0, 100.0])
    tensor([  0.6931472, 100.       ])
    """
    return elementwise("LogAddExp", x1, x2, floating=True)


@public
def xlogy(x1: Any, x2: Any, /) -> Tensor:
    """x1 * log(x2), and 0 where x1 is 0, whatever x2 is; broadcast.

    Element by element; integers and bools become float32.

    >>> tracer.xlogy([0.0, 2.0], [0.0, 1.0])
    tensor([0., 0.])
    """
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
