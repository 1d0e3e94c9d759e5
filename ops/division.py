"""Division to whole numbers, and remainders. Integers are exact, and a divisor of 0 gives 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import rules
from ops.compute import Scalar
from ops.families import MISMATCHED, NUMERIC, Declare
from ops.operator import Application, Input, Rule, ZeroGradient, operator
from ops.reference import rounded_once
from ops.samples import binary
from ops.types import FLOATING, UNSIGNED

Array = np.ndarray[Any, Any]


def _division(name: str, text: str, *, vjp: Rule | ZeroGradient, onnx: Rule) -> Declare:
    return operator(
        name,
        type_rule=rules.limited(*NUMERIC),
        compute=Scalar(text, effort="medium"),
        vjp=vjp,
        onnx=onnx,
        samples=binary(Input(low=-6, high=6), Input(low=1, high=3)),
        errors=MISMATCHED,
        dtypes=NUMERIC,
    )


def _remainder_vjp(g: Any, n: Application) -> Any:
    """x - q*y with a whole q, which the remainder itself gives more surely than x / y would."""
    x, y = n.inputs
    quotient = g.Round(g.Div(g.Sub(x, n.y), y)) if n.needs[1] else None
    return n.dy, None if quotient is None else g.Neg(g.chain(n.dy, quotient))


def _safe_divisor(g: Any, n: Application) -> Any:
    """1 for the divisors 0 and -1: a runtime may die of x / 0, or of the most negative x by -1."""
    y = n.inputs[1]
    one = g.like(1, y)
    y = g.Where(g.Equal(y, g.like(0, y)), one, y)
    return y if n.x.type.dtype in UNSIGNED else g.Where(g.Equal(y, g.like(-1, y)), one, y)


def _floor_divide_onnx(g: Any, n: Application) -> Any:
    x, y = n.inputs
    zero, dtype = g.like(0, x), x.type.dtype
    if dtype in FLOATING:
        rest = g.op("Mod", x, y, fmod=1)
        off = g.And(g.Not(g.Equal(rest, zero)), g.Not(g.Equal(g.Less(rest, zero), g.Less(y, zero))))
        near = g.Div(g.Sub(x, rest), y)
        whole = g.Round(g.Where(off, g.Sub(near, g.like(1, x)), near))
        return g.Where(g.Equal(y, zero), g.Div(x, y), whole)
    divisor = _safe_divisor(g, n)
    whole = g.Div(x, divisor)  # towards zero
    if dtype not in UNSIGNED:
        rest = g.Sub(x, g.Mul(whole, divisor))
        opposite = g.Not(g.Equal(g.Less(rest, zero), g.Less(divisor, zero)))
        off = g.And(g.Not(g.Equal(rest, zero)), opposite)
        whole = g.Where(off, g.Sub(whole, g.like(1, x)), whole)
        whole = g.Where(g.Equal(y, g.like(-1, y)), g.Neg(x), whole)
    return g.Where(g.Equal(y, zero), zero, whole)


@_division(
    "FloorDivide",
    "{0} // {1}",
    vjp=ZeroGradient(),
    onnx=_floor_divide_onnx,
)
@rounded_once
def floor_divide(x: Array, y: Array) -> Array:
    """The quotient rounded down.

    Of integers by 0: 0. Of the most negative integer by -1: itself, wrapped around. Of floats by 0:
    x / 0, an infinity or NaN.
    """
    return np.floor_divide(x, y)


def _remainder_onnx(g: Any, n: Application) -> Any:
    x, y = n.inputs
    if x.type.dtype not in FLOATING:
        return g.op("Mod", x, _safe_divisor(g, n))
    zero = g.like(0, x)
    rest = g.op("Mod", x, y, fmod=1)
    off = g.And(g.Not(g.Equal(rest, zero)), g.Not(g.Equal(g.Less(rest, zero), g.Less(y, zero))))
    return g.Where(off, g.Add(rest, y), rest)


@_division("Remainder", "{0} % {1}", vjp=_remainder_vjp, onnx=_remainder_onnx)
@rounded_once
def remainder(x: Array, y: Array) -> Array:
    """x - y * floor(x / y), with the sign of y. Of integers by 0: 0; of floats by 0: NaN."""
    return np.remainder(x, y)


def _fmod_onnx(g: Any, n: Application) -> Any:
    integral = n.x.type.dtype not in FLOATING
    return g.op("Mod", n.x, _safe_divisor(g, n) if integral else n.inputs[1], fmod=1)


@_division("Fmod", "fmod({0}, {1})", vjp=_remainder_vjp, onnx=_fmod_onnx)
@rounded_once
def fmod(x: Array, y: Array) -> Array:
    """x - y * trunc(x / y), with the sign of x. Of integers by 0: 0; of floats by 0: NaN."""
    return np.fmod(x, y)
