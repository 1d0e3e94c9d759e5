"""Exponentials, logarithms, the error function, the sigmoid. The oracle is NumPy, SciPy or C in float64."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ops import onnx_forms, rules
from ops.compute import Scalar
from ops.families import FLOATING_PAIR_ERRORS, each, floating_function, scaled
from ops.operator import Application, operator
from ops.reference import precise
from ops.samples import BINARY, unary
from ops.types import FLOATING

Array = np.ndarray[Any, Any]
LN2, LN10 = math.log(2), math.log(10)


@floating_function("Exp", "exp", vjp=lambda g, n: (g.chain(n.dy, n.y),), onnx="Exp", ulp=2)
@precise
def exp(x: Array) -> Array:
    """Exponential."""
    return np.exp(x)


@floating_function(
    "Exp2",
    "exp2",
    vjp=lambda g, n: (g.chain(n.dy, scaled(g, n.y, LN2)),),
    onnx=lambda g, n: g.Pow(g.like(2, n.x), n.x),
    ulp=2,
)
@precise
def exp2(x: Array) -> Array:
    """2 to the power of x; exact for whole x."""
    return np.exp2(x)


@floating_function(
    "Expm1",
    "expm1",
    vjp=lambda g, n: (g.chain(n.dy, g.Add(n.y, g.like(1, n.y))),),
    onnx=lambda g, n: onnx_forms.expm1(g, n.x),
    ulp=3,
)
@precise
def expm1(x: Array) -> Array:
    """exp(x) - 1 without cancellation near 0."""
    return np.expm1(x)


@floating_function(
    "Log",
    "log",
    vjp=lambda g, n: (g.Xdivy(n.dy, n.x),),
    onnx="Log",
    ulp=2,
    samples=unary(0.1, 9),
)
@precise
def log(x: Array) -> Array:
    """Natural logarithm; NaN below 0, -inf at 0."""
    return np.log(x)


@floating_function(
    "Log2",
    "log2",
    vjp=lambda g, n: (g.Xdivy(n.dy, scaled(g, n.x, LN2)),),
    onnx=lambda g, n: g.Div(g.Log(n.x), g.like(LN2, n.x)),
    ulp=2,
    samples=unary(0.1, 9),
)
@precise
def log2(x: Array) -> Array:
    """Logarithm to base 2; NaN below 0, -inf at 0."""
    return np.log2(x)


@floating_function(
    "Log10",
    "log10",
    vjp=lambda g, n: (g.Xdivy(n.dy, scaled(g, n.x, LN10)),),
    onnx=lambda g, n: g.Div(g.Log(n.x), g.like(LN10, n.x)),
    ulp=2,
    samples=unary(0.1, 9),
)
@precise
def log10(x: Array) -> Array:
    """Logarithm to base 10; NaN below 0, -inf at 0."""
    return np.log10(x)


@floating_function(
    "Log1p",
    "log1p",
    vjp=lambda g, n: (g.Xdivy(n.dy, g.Add(n.x, g.like(1, n.x))),),
    onnx=lambda g, n: onnx_forms.log1p(g, n.x),
    ulp=3,
    samples=unary(-0.9, 9),
)
@precise
def log1p(x: Array) -> Array:
    """log(1 + x) without cancellation near 0; NaN below -1, -inf at -1."""
    return np.log1p(x)


def _logaddexp_weight(g: Any, n: Application, k: int) -> Any:
    """Operand k's share of the sum; a half for two equal infinities, whose difference is NaN."""
    x, y = n.inputs[k], n.inputs[1 - k]
    equal_infinities = g.And(g.Equal(x, y), g.IsInf(x))
    apart = g.Where(equal_infinities, g.like(0, x), g.Sub(x, y))
    return g.chain(n.dy, g.Sigmoid(apart))


@operator(
    "LogAddExp",
    type_rule=rules.floating,
    compute=Scalar("logaddexp({0}, {1})", effort="high"),
    vjp=each(lambda g, n: _logaddexp_weight(g, n, 0), lambda g, n: _logaddexp_weight(g, n, 1)),
    onnx=lambda g, n: onnx_forms.logaddexp(g, *n.inputs),
    samples=BINARY,
    errors=FLOATING_PAIR_ERRORS,
    dtypes=FLOATING,
    ulp=16,
)
@precise
def logaddexp(x: Array, y: Array) -> Array:
    """log(exp(x) + exp(y)) without overflow. Of two -inf: -inf, with a finite gradient.

    Near 0 the result is the difference of larger numbers, and its relative error grows.
    """
    return np.logaddexp(x, y)


def logistic(x: Array) -> Array:
    """1 / (1 + exp(-x)) down to the smallest numbers, where SciPy's gives 0."""
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x < 0, e, 1) / (1 + e))


@floating_function(
    "Sigmoid",
    "sigmoid",
    vjp=lambda g, n: (g.chain(n.dy, g.Mul(n.y, g.Sub(g.like(1, n.y), n.y))),),
    onnx="Sigmoid",
    ulp=3,
)
@precise
def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    return logistic(x)


@floating_function(
    "Softplus",
    "softplus",
    vjp=lambda g, n: (g.chain(n.dy, g.Sigmoid(n.x)),),
    onnx=lambda g, n: (
        onnx_forms.softplus(g, n.x) if n.x.type.dtype == "float64" else g.Softplus(n.x)
    ),
    ulp=4,
)
@precise
def softplus(x: Array) -> Array:
    """log(1 + exp(x)) without overflow."""
    return np.logaddexp(x, 0.0)


def erfc_of(x: Array) -> Array:
    """erfc(x) within a few units of the last place: SciPy's, and the C library's where SciPy's loses digits."""
    from scipy import special

    found = np.array(special.erfc(x))
    far = x > 0.4
    found[far] = _C_ERFC(x[far])
    return found


_C_ERFC = np.frompyfunc(math.erfc, 1, 1)


def _gaussian(g: Any, x: Any, factor: float) -> Any:
    """factor * exp(-x*x)."""
    return scaled(g, g.Exp(g.Neg(g.Mul(x, x))), factor)


@floating_function(
    "Erf",
    "erf",
    vjp=lambda g, n: (g.chain(n.dy, _gaussian(g, n.x, 2 / math.sqrt(math.pi))),),
    onnx=onnx_forms.float64_apart("Erf", onnx_forms.erf),
    ulp=3,
)
@precise
def erf(x: Array) -> Array:
    """The error function, 2/sqrt(pi) times the integral of exp(-t*t) from 0 to x."""
    from scipy import special

    return special.erf(x)  # type: ignore[no-any-return]


@floating_function(
    "Erfc",
    "erfc",
    vjp=lambda g, n: (g.chain(n.dy, _gaussian(g, n.x, -2 / math.sqrt(math.pi))),),
    onnx=lambda g, n: onnx_forms.erfc(g, n.x),
    ulp=4,
)
@precise
def erfc(x: Array) -> Array:
    """1 - erf(x), accurate where erf(x) is near 1."""
    return erfc_of(x)
