"""ONNX expressions of functions that ONNX lacks, or has but runtimes do not offer in float64.

Each takes the exporter's builder and values and builds standard ONNX operators with it. They keep
relative accuracy where the textbook formula would cancel. Must not know the exporter or the format.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ops.operator import Application, Rule

LN2 = math.log(2)
# erfc(z) = t * exp(-z*z + P(2*t - 1)) with t = 2 / (2 + z), z >= 0: P as a Chebyshev series, found
# with 50 digits. 16 terms are enough for float32.
ERFC_SERIES = (
    -0.65132685989085471,
    0.64196979235649029,
    0.019476473204185836,
    -0.0095615147868086316,
    -0.00094659534448203687,
    0.00036683949785276145,
    4.2523324806907772e-05,
    -2.0278578112534243e-05,
    -1.6242900046470255e-06,
    1.3036558355805232e-06,
    1.5626441722066143e-08,
    -8.5238095914926543e-08,
    6.5290544390988515e-09,
    5.0593434955514689e-09,
    -9.9136415649303309e-10,
    -2.2736512229318359e-10,
    9.6467911020155268e-11,
    2.3940380830391147e-12,
    -6.8860275264975534e-12,
    8.9448792730907257e-13,
    3.1309213993429581e-13,
    -1.1270822361367252e-13,
    3.8109052551892321e-16,
    7.1060976136092370e-15,
    -1.5230282014571043e-15,
    -9.4574945712912340e-17,
    1.2102371892242790e-16,
    -2.8166630877471770e-17,
)


def float64_apart(name: str, form: Callable[..., Any]) -> Rule:
    """The ONNX operator of that name, and an expression for float64, which runtimes lack."""

    def rule(g: Any, n: Application) -> Any:
        if n.x.type.dtype == "float64":
            return form(g, n.x, **n.attrs)
        return g.op(name, n.x, **n.attrs)

    return rule


def scaled(g: Any, x: Any, factor: float) -> Any:
    """x times a number."""
    return g.Mul(x, g.like(factor, x))


def shifted(g: Any, x: Any, offset: float) -> Any:
    """x plus a number."""
    return g.Add(x, g.like(offset, x))


def with_sign(g: Any, size: Any, x: Any) -> Any:
    """The size with the sign of x."""
    return g.Where(g.Less(x, g.like(0, x)), g.Neg(size), size)


def signbit(g: Any, x: Any) -> Any:
    """Whether x is negative or -0. The sign of a NaN is not seen."""
    zero = g.like(0, x)
    return g.Or(g.Less(x, zero), g.And(g.Equal(x, zero), g.Less(g.Reciprocal(x), zero)))


def copysign(g: Any, size: Any, x: Any) -> Any:
    """The size with the sign of x, that of -0 too: a product, since runtimes lose -0 in Where."""
    return g.Mul(size, g.Where(signbit(g, x), g.like(-1, x), g.like(1, x)))


def square_of(g: Any, x: Any) -> Any:
    """x * x."""
    return g.Mul(x, x)


# ---- exponentials and logarithms -----------------------------------------------------------------


def expm1(g: Any, x: Any) -> Any:
    """exp(x) - 1, by Kahan: the error of exp cancels in the logarithm of what it gave."""
    one = g.like(1, x)
    e = g.Exp(x)
    less = g.Sub(e, one)
    kept = g.Mul(less, g.Div(x, g.Log(e)))
    kept = g.Where(g.Equal(less, g.Neg(one)), less, kept)
    return g.Where(g.Equal(e, one), x, g.Where(g.Equal(e, less), e, kept))


def log1p(g: Any, x: Any) -> Any:
    """log(1 + x), by Kahan."""
    one = g.like(1, x)
    more = g.Add(x, one)
    logarithm = g.Log(more)
    kept = g.Mul(logarithm, g.Div(x, g.Sub(more, one)))
    return g.Where(g.Equal(more, one), x, g.Where(g.Equal(more, x), logarithm, kept))


def logaddexp(g: Any, x: Any, y: Any) -> Any:
    """log(exp(x) + exp(y)) without overflow; two equal infinities are no difference."""
    apart = g.Where(g.Equal(x, y), g.like(0, x), g.Abs(g.Sub(x, y)))
    return g.Add(g.Max(x, y), log1p(g, g.Exp(g.Neg(apart))))


def softplus(g: Any, x: Any) -> Any:
    """log(1 + exp(x)) without overflow."""
    return g.Add(g.Relu(x), log1p(g, g.Exp(g.Neg(g.Abs(x)))))


# ---- hyperbolic functions and their inverses -----------------------------------------------------


def sinh(g: Any, x: Any) -> Any:
    """Hyperbolic sine."""
    size = g.Abs(x)
    less = expm1(g, size)
    small = scaled(g, g.Add(less, g.Div(less, shifted(g, less, 1))), 0.5)
    half = g.Exp(scaled(g, size, 0.5))  # overflows later than exp(x)
    large = g.Mul(scaled(g, half, 0.5), half)
    return with_sign(g, g.Where(g.Less(g.like(20, x), size), large, small), x)


def cosh(g: Any, x: Any) -> Any:
    """Hyperbolic cosine."""
    half = g.Exp(scaled(g, g.Abs(x), 0.5))
    part = scaled(g, half, 0.5)
    return g.Add(g.Mul(part, half), g.Div(g.like(0.25, x), g.Mul(part, half)))


def asinh(g: Any, x: Any) -> Any:
    """Inverse hyperbolic sine."""
    size = g.Abs(x)
    square = square_of(g, size)
    root = g.Sqrt(shifted(g, square, 1))
    small = log1p(g, g.Add(size, g.Div(square, shifted(g, root, 1))))
    large = shifted(g, g.Log(size), LN2)
    return with_sign(g, g.Where(g.Less(g.like(2.0**28, x), size), large, small), x)


def acosh(g: Any, x: Any) -> Any:
    """Inverse hyperbolic cosine."""
    less = shifted(g, x, -1)
    root = g.Mul(g.Sqrt(less), g.Sqrt(shifted(g, x, 1)))
    large = shifted(g, g.Log(x), LN2)
    return g.Where(g.Less(g.like(2.0**28, x), x), large, log1p(g, g.Add(less, root)))


def atanh(g: Any, x: Any) -> Any:
    """Inverse hyperbolic tangent."""
    size = g.Abs(x)
    ratio = g.Div(g.Add(size, size), g.Sub(g.like(1, x), size))
    return with_sign(g, scaled(g, log1p(g, ratio), 0.5), x)


# ---- trigonometric functions and their inverses --------------------------------------------------


def tan(g: Any, x: Any) -> Any:
    """Tangent."""
    return g.Div(g.Sin(x), g.Cos(x))


def atan(g: Any, x: Any) -> Any:
    """Arc tangent: atan(r) = 2 * atan(r / (1 + sqrt(1 + r*r))) twice, then the series is short."""
    size = g.Abs(x)
    inverted = g.Less(g.like(1, x), size)
    r = g.Where(inverted, g.Reciprocal(size), size)
    for _ in range(2):
        r = g.Div(r, shifted(g, g.Sqrt(shifted(g, square_of(g, r), 1)), 1))
    series = polynomial(g, square_of(g, r), [(-1) ** k / (2 * k + 1) for k in range(12)])
    angle = scaled(g, g.Mul(r, series), 4)
    return with_sign(g, g.Where(inverted, g.Sub(g.like(math.pi / 2, x), angle), angle), x)


def asin(g: Any, x: Any) -> Any:
    """Arc sine."""
    one = g.like(1, x)
    return atan(g, g.Div(x, g.Sqrt(g.Mul(g.Sub(one, x), g.Add(one, x)))))


def acos(g: Any, x: Any) -> Any:
    """Arc cosine."""
    one = g.like(1, x)
    ratio = g.Div(g.Sub(one, x), g.Add(one, x))
    return scaled(g, atan(g, g.Sqrt(ratio)), 2)


def atan2(g: Any, y: Any, x: Any) -> Any:
    """The angle of (x, y), with all its signed zeros and infinities."""
    zero, rise, run = g.like(0, x), g.Abs(y), g.Abs(x)
    ratio = g.Where(g.And(g.IsInf(x), g.IsInf(y)), g.like(1, x), g.Div(rise, run))
    ratio = g.Where(g.And(g.Equal(y, zero), g.Not(g.IsNaN(x))), zero, ratio)
    angle = atan(g, ratio) if x.type.dtype == "float64" else g.Atan(ratio)
    angle = g.Where(signbit(g, x), g.Sub(g.like(math.pi, x), angle), angle)
    return g.Where(signbit(g, y), g.Neg(angle), angle)


def hypot(g: Any, x: Any, y: Any) -> Any:
    """sqrt(x*x + y*y) without overflow."""
    long, short = g.Max(g.Abs(x), g.Abs(y)), g.Min(g.Abs(x), g.Abs(y))
    one = g.like(1, x)
    ratio = g.Where(g.Equal(long, short), one, g.Div(short, long))
    length = g.Mul(long, g.Sqrt(g.Add(one, square_of(g, ratio))))
    return g.Where(g.Or(g.IsInf(x), g.IsInf(y)), g.like(math.inf, x), length)


# ---- the error function --------------------------------------------------------------------------


def polynomial(g: Any, x: Any, coefficients: Sequence[float]) -> Any:
    """A polynomial, the constant first, by Horner's rule."""
    result = g.like(coefficients[-1], x)
    for c in reversed(coefficients[:-1]):
        result = shifted(g, g.Mul(result, x), c)
    return result


def _tail(g: Any, size: Any) -> Any:
    """erfc of values >= 0. The series is summed by Clenshaw's recurrence."""
    t = g.Div(g.like(2, size), shifted(g, size, 2))
    s = shifted(g, scaled(g, t, 2), -1)
    twice = g.Add(s, s)
    terms = ERFC_SERIES if size.type.dtype == "float64" else ERFC_SERIES[:16]
    after, current = None, g.like(terms[-1], size)
    for c in reversed(terms[1:-1]):
        following = shifted(g, g.Mul(twice, current), c)
        if after is not None:
            following = g.Sub(following, after)
        after, current = current, following
    series = g.Sub(shifted(g, g.Mul(s, current), terms[0]), after)
    return g.Mul(t, g.Exp(g.Sub(series, square_of(g, size))))


def erfc(g: Any, x: Any) -> Any:
    """1 - erf(x), with relative accuracy for large x too."""
    tail = _tail(g, g.Abs(x))
    return g.Where(g.Less(x, g.like(0, x)), g.Sub(g.like(2, x), tail), tail)


def erf(g: Any, x: Any) -> Any:
    """The error function: its series near 0, where 1 - erfc(x) would cancel."""
    taylor = [
        (-1) ** k * 2 / math.sqrt(math.pi) / math.factorial(k) / (2 * k + 1) for k in range(13)
    ]
    near = g.Mul(x, polynomial(g, square_of(g, x), taylor))
    size = g.Abs(x)
    far = with_sign(g, g.Sub(g.like(1, x), _tail(g, size)), x)
    return g.Where(g.Less(size, g.like(0.5, x)), near, far)


# ---- activations ---------------------------------------------------------------------------------


def leaky_relu(g: Any, x: Any, alpha: float) -> Any:
    """x, or alpha * x below 0."""
    return g.Where(g.Less(x, g.like(0, x)), scaled(g, x, alpha), x)


def elu(g: Any, x: Any, alpha: float) -> Any:
    """x, or alpha * (exp(x) - 1) below 0."""
    return g.Where(g.Less(x, g.like(0, x)), scaled(g, expm1(g, x), alpha), x)


def selu(g: Any, x: Any, alpha: float, gamma: float) -> Any:
    """gamma * elu(x)."""
    return scaled(g, elu(g, x, alpha), gamma)


def softsign(g: Any, x: Any) -> Any:
    """x / (1 + |x|)."""
    return g.Div(x, shifted(g, g.Abs(x), 1))


def hard_sigmoid(g: Any, x: Any, alpha: float, beta: float) -> Any:
    """alpha * x + beta, limited to [0, 1]."""
    line = shifted(g, scaled(g, x, alpha), beta)
    return g.Min(g.Max(line, g.like(0, x)), g.like(1, x))


def hard_swish(g: Any, x: Any) -> Any:
    """x * hard_sigmoid(x)."""
    return g.Mul(x, hard_sigmoid(g, x, 1 / 6, 0.5))


def mish(g: Any, x: Any) -> Any:
    """x * tanh(softplus(x))."""
    return g.Mul(x, g.Tanh(softplus(g, x)))


def gelu(g: Any, x: Any, approximate: str) -> Any:
    """x times the normal distribution function."""
    if approximate == "none":
        return g.Mul(scaled(g, x, 0.5), erfc(g, scaled(g, x, -math.sqrt(0.5))))
    inner = shifted(g, scaled(g, square_of(g, x), 0.044715), 1)
    return g.Mul(x, g.Sigmoid(g.Mul(scaled(g, x, math.sqrt(8 / math.pi)), inner)))
