"""Exponential, logarithmic and hyperbolic functions. The oracle is NumPy or SciPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import rules
from ops.arithmetic import UNARY_SAMPLES
from ops.compute import Scalar
from ops.errors import DTypeError
from ops.operator import ErrorSample, Input, Sample, operator
from ops.reference import precise
from ops.types import FLOATING, Type

Array = np.ndarray[Any, Any]
FLOATING_ERRORS = (ErrorSample((Type("int64", (2,)),), DTypeError, "must be floating"),)


@operator(
    "Exp",
    type_rule=rules.floating,
    compute=Scalar("exp({0})", expensive=True),
    vjp=lambda g, n: (g.Mul(n.dy, n.y),),
    onnx="Exp",
    samples=UNARY_SAMPLES,
    errors=FLOATING_ERRORS,
    dtypes=FLOATING,
    ulp=2,
)
@precise
def exp(x: Array) -> Array:
    """Exponential."""
    return np.exp(x)


@operator(
    "Log",
    type_rule=rules.floating,
    compute=Scalar("log({0})", expensive=True),
    vjp=lambda g, n: (g.Div(n.dy, n.x),),
    onnx="Log",
    samples=(
        Sample((Input((3, 17), low=0.1, high=9),)),
        Sample((Input((0, 3), low=0.1),)),
        Sample((Input((64,), special=True),), gradient=False),
    ),
    errors=FLOATING_ERRORS,
    dtypes=FLOATING,
    ulp=2,
)
@precise
def log(x: Array) -> Array:
    """Natural logarithm; NaN below 0, -inf at 0."""
    return np.log(x)


@operator(
    "Tanh",
    type_rule=rules.floating,
    compute=Scalar("tanh({0})", expensive=True),
    vjp=lambda g, n: (g.Mul(n.dy, g.Sub(g.like(1, n.y), g.Mul(n.y, n.y))),),
    onnx="Tanh",
    samples=UNARY_SAMPLES,
    errors=FLOATING_ERRORS,
    dtypes=FLOATING,
    ulp=3,
)
@precise
def tanh(x: Array) -> Array:
    """Hyperbolic tangent."""
    return np.tanh(x)
