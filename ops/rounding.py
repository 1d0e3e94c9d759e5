"""Rounding to whole numbers. All results are exact, and all gradients are zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import onnx_forms, rules
from ops.compute import Scalar
from ops.families import NOT_FLOATING, Declare
from ops.operator import Rule, ZeroGradient, operator
from ops.reference import rounded_once
from ops.samples import unary
from ops.types import FLOATING

Array = np.ndarray[Any, Any]


def _rounding(name: str, text: str, *, onnx: str | Rule) -> Declare:
    return operator(
        name,
        type_rule=rules.floating,
        compute=Scalar(text),
        vjp=ZeroGradient(),
        onnx=onnx,
        samples=unary(-9, 9),
        errors=NOT_FLOATING,
        dtypes=FLOATING,
    )


@_rounding("Floor", "floor({0})", onnx="Floor")
@rounded_once
def floor(x: Array) -> Array:
    """The largest whole number that is not above x."""
    return np.floor(x)


@_rounding("Ceil", "ceil({0})", onnx="Ceil")
@rounded_once
def ceil(x: Array) -> Array:
    """The smallest whole number that is not below x."""
    return np.ceil(x)


@_rounding("Round", "rint({0})", onnx="Round")
@rounded_once
def round_(x: Array) -> Array:
    """The nearest whole number, of two the even one."""
    return np.rint(x)


@_rounding(
    "Trunc",
    "trunc({0})",
    onnx=lambda g, n: onnx_forms.copysign(g, g.Floor(g.Abs(n.x)), n.x),
)
@rounded_once
def trunc(x: Array) -> Array:
    """x without its fraction."""
    return np.trunc(x)
