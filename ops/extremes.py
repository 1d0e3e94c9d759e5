"""The larger, the smaller, and values limited to a range. All results are exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import rules
from ops.compute import Scalar
from ops.errors import DTypeError, ShapeError
from ops.families import MISMATCHED, NUMERIC, by_dtype, each, scaled
from ops.operator import Application, ErrorSample, Input, Rule, Sample, operator
from ops.reference import rounded_once
from ops.samples import BINARY, each_beside_each
from ops.types import FLOATING, Type

Array = np.ndarray[Any, Any]


def _share(reaches: str, k: int) -> Rule:
    """The cotangent that operand k gets: all of it, half in a tie, none where it is beaten.

    A NaN beats every number and ties with another NaN, so both together always get a mass of 1.
    """

    def beaten(g: Any, x: Any, other: Any) -> Any:
        return g.And(g.Not(g.op(reaches, x, other)), g.Equal(x, x))

    def rule(g: Any, n: Application) -> Any:
        x, other = n.inputs[k], n.inputs[1 - k]
        gained = g.Where(beaten(g, other, x), n.dy, scaled(g, n.dy, 0.5))
        return g.Where(beaten(g, x, other), g.like(0, n.dy), gained)

    return rule


@operator(
    "Maximum",
    type_rule=rules.elementwise,
    compute=Scalar(by_dtype("bool".__eq__, "{0} | {1}", "maximum({0}, {1})")),
    vjp=each(_share("GreaterOrEqual", 0), _share("GreaterOrEqual", 1)),
    onnx=lambda g, n: g.op("Or" if n.x.type.dtype == "bool" else "Max", *n.inputs),
    samples=BINARY,
    errors=MISMATCHED,
)
@rounded_once
def maximum(x: Array, y: Array) -> Array:
    """The larger one; NaN wins. In a tie the first, and each gets half of the gradient."""
    return np.where((y > x) | (y != y), y, x)


@operator(
    "Minimum",
    type_rule=rules.elementwise,
    compute=Scalar(by_dtype("bool".__eq__, "{0} & {1}", "minimum({0}, {1})")),
    vjp=each(_share("LessOrEqual", 0), _share("LessOrEqual", 1)),
    onnx=lambda g, n: g.op("And" if n.x.type.dtype == "bool" else "Min", *n.inputs),
    samples=BINARY,
    errors=MISMATCHED,
)
@rounded_once
def minimum(x: Array, y: Array) -> Array:
    """The smaller one; NaN wins. In a tie the first, and each gets half of the gradient."""
    return np.where((y < x) | (y != y), y, x)


def _clip_vjp(g: Any, n: Application) -> Any:
    x, low, high = n.inputs
    zero = g.like(0, n.dy)
    above = g.Less(high, g.Maximum(x, low))
    below = g.And(g.Not(above), g.Less(x, low))
    return (
        g.Where(g.Or(above, below), zero, n.dy) if n.needs[0] else None,
        g.Where(below, n.dy, zero) if n.needs[1] else None,
        g.Where(above, n.dy, zero) if n.needs[2] else None,
    )


def _clip_onnx(g: Any, n: Application) -> Any:
    x, low, high = n.inputs
    if low.type.rank == high.type.rank == 0 and x.type.dtype not in FLOATING:
        return g.Clip(x, low, high)
    # ONNX Clip is silent about a NaN in a bound, and takes no arrays as bounds.
    return g.Min(g.Max(x, low), high)


@operator(
    "Clip",
    type_rule=rules.limited(*NUMERIC),
    compute=Scalar("minimum(maximum({0}, {1}), {2})"),
    vjp=_clip_vjp,
    onnx=_clip_onnx,
    samples=(
        Sample((Input((3, 17)), Input((), values=(-1,)), Input((), values=(1,)))),
        Sample(
            (
                Input((4, 1, 5)),
                Input((3, 1), values=(-1, 0, 1.25)),
                Input((5,), values=(0.5, 1, 1.75, 2, -1.75)),
            )
        ),
        Sample((Input((0, 3)), Input(), Input())),
        each_beside_each(3),
    ),
    errors=(
        ErrorSample((Type("bool"), Type("bool"), Type("bool")), DTypeError, "must be int8"),
        ErrorSample(
            (Type("int32", (2,)), Type("int32", (3,)), Type("int32")),
            ShapeError,
            "do not broadcast",
        ),
    ),
    dtypes=NUMERIC,
)
@rounded_once
def clip(x: Array, min: Array, max: Array) -> Array:
    """x limited to [min, max]; max where min > max. NaN in any operand gives NaN; all broadcast.

    The gradient goes to x within the bounds and at them, else to the bound that was taken.
    """
    above = np.where((min > x) | (min != min), min, x)
    return np.where((max < above) | (max != max), max, above)
