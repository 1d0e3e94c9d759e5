"""Trigonometric and hyperbolic functions and their inverses. The oracle is NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import onnx_forms, rules
from ops.compute import Scalar
from ops.families import FLOATING_PAIR_ERRORS, each, floating_function
from ops.onnx_forms import float64_apart
from ops.operator import Application, operator
from ops.reference import precise
from ops.samples import BINARY, unary
from ops.types import FLOATING

Array = np.ndarray[Any, Any]


@floating_function("Sin", "sin", vjp=lambda g, n: (g.chain(n.dy, g.Cos(n.x)),), onnx="Sin", ulp=2)
@precise
def sin(x: Array) -> Array:
    """Sine of an angle in radians."""
    return np.sin(x)


@floating_function(
    "Cos", "cos", vjp=lambda g, n: (g.Neg(g.chain(n.dy, g.Sin(n.x))),), onnx="Cos", ulp=2
)
@precise
def cos(x: Array) -> Array:
    """Cosine of an angle in radians."""
    return np.cos(x)


@floating_function(
    "Tan",
    "tan",
    vjp=lambda g, n: (g.chain(n.dy, _one_plus_square(g, n.y)),),
    onnx=float64_apart("Tan", onnx_forms.tan),
    ulp=4,
    samples=unary(-1.2, 1.2),
)
@precise
def tan(x: Array) -> Array:
    """Tangent of an angle in radians."""
    return np.tan(x)


def _one_plus_square(g: Any, x: Any) -> Any:
    return g.Add(g.like(1, x), g.Mul(x, x))


def _one_minus_square(g: Any, x: Any) -> Any:
    """1 - x*x, without cancellation near 1."""
    one = g.like(1, x)
    return g.Mul(g.Sub(one, x), g.Add(one, x))


def _asin_vjp(g: Any, n: Application) -> Any:
    return (g.Xdivy(n.dy, g.Sqrt(_one_minus_square(g, n.x))),)


@floating_function(
    "Asin",
    "asin",
    vjp=_asin_vjp,
    onnx=float64_apart("Asin", onnx_forms.asin),
    ulp=3,
    samples=unary(-0.9, 0.9),
)
@precise
def asin(x: Array) -> Array:
    """Angle between -pi/2 and pi/2 whose sine is x; NaN outside [-1, 1]."""
    return np.arcsin(x)


@floating_function(
    "Acos",
    "acos",
    vjp=lambda g, n: (g.Neg(_asin_vjp(g, n)[0]),),
    onnx=float64_apart("Acos", onnx_forms.acos),
    ulp=3,
    samples=unary(-0.9, 0.9),
)
@precise
def acos(x: Array) -> Array:
    """Angle between 0 and pi whose cosine is x; NaN outside [-1, 1]."""
    return np.arccos(x)


@floating_function(
    "Atan",
    "atan",
    vjp=lambda g, n: (g.Xdivy(n.dy, _one_plus_square(g, n.x)),),
    onnx=float64_apart("Atan", onnx_forms.atan),
    ulp=3,
)
@precise
def atan(x: Array) -> Array:
    """Angle between -pi/2 and pi/2 whose tangent is x."""
    return np.arctan(x)


def _atan2_partial(g: Any, n: Application, k: int) -> Any:
    """The other operand over the squared distance from the origin; no overflow, no 0 / 0.

    At an infinite distance it is 0.
    """
    distance = g.Hypot(*n.inputs)
    zero = g.Equal(distance, g.like(0, distance))
    safe = g.Where(zero, g.like(1, distance), distance)
    far = g.IsInf(distance)
    part = g.chain(
        n.dy, g.Div(g.Div(g.Where(far, g.like(0, distance), n.inputs[1 - k]), safe), safe)
    )
    return part if k == 0 else g.Neg(part)


@operator(
    "Atan2",
    type_rule=rules.floating,
    compute=Scalar("atan2({0}, {1})", effort="high"),
    vjp=each(lambda g, n: _atan2_partial(g, n, 0), lambda g, n: _atan2_partial(g, n, 1)),
    onnx=lambda g, n: onnx_forms.atan2(g, *n.inputs),
    samples=BINARY,
    errors=FLOATING_PAIR_ERRORS,
    dtypes=FLOATING,
    ulp=4,
)
@precise
def atan2(y: Array, x: Array) -> Array:
    """Angle of the point (x, y), between -pi and pi, with the signs of zeros. 0 has gradient 0."""
    return np.arctan2(y, x)


@floating_function(
    "Sinh",
    "sinh",
    vjp=lambda g, n: (g.chain(n.dy, g.Cosh(n.x)),),
    onnx=float64_apart("Sinh", onnx_forms.sinh),
    ulp=4,
)
@precise
def sinh(x: Array) -> Array:
    """Hyperbolic sine."""
    return np.sinh(x)


@floating_function(
    "Cosh",
    "cosh",
    vjp=lambda g, n: (g.chain(n.dy, g.Sinh(n.x)),),
    onnx=float64_apart("Cosh", onnx_forms.cosh),
    ulp=4,
)
@precise
def cosh(x: Array) -> Array:
    """Hyperbolic cosine."""
    return np.cosh(x)


@floating_function(
    "Tanh",
    "tanh",
    vjp=lambda g, n: (g.chain(n.dy, g.Sub(g.like(1, n.y), g.Mul(n.y, n.y))),),
    onnx="Tanh",
    ulp=3,
)
@precise
def tanh(x: Array) -> Array:
    """Hyperbolic tangent."""
    return np.tanh(x)


@floating_function(
    "Asinh",
    "asinh",
    vjp=lambda g, n: (g.Xdivy(n.dy, g.Hypot(n.x, g.like(1, n.x))),),
    onnx=float64_apart("Asinh", onnx_forms.asinh),
    ulp=4,
)
@precise
def asinh(x: Array) -> Array:
    """Inverse of the hyperbolic sine."""
    return np.arcsinh(x)


def _acosh_vjp(g: Any, n: Application) -> Any:
    one = g.like(1, n.x)
    return (g.Xdivy(n.dy, g.Mul(g.Sqrt(g.Sub(n.x, one)), g.Sqrt(g.Add(n.x, one)))),)


@floating_function(
    "Acosh",
    "acosh",
    vjp=_acosh_vjp,
    onnx=float64_apart("Acosh", onnx_forms.acosh),
    ulp=4,
    samples=unary(1.2, 9),
)
@precise
def acosh(x: Array) -> Array:
    """Inverse of the hyperbolic cosine, >= 0; NaN below 1."""
    return np.arccosh(x)


@floating_function(
    "Atanh",
    "atanh",
    vjp=lambda g, n: (g.Xdivy(n.dy, _one_minus_square(g, n.x)),),
    onnx=float64_apart("Atanh", onnx_forms.atanh),
    ulp=4,
    samples=unary(-0.9, 0.9),
)
@precise
def atanh(x: Array) -> Array:
    """Inverse of the hyperbolic tangent; infinite at -1 and 1, NaN outside."""
    return np.arctanh(x)
