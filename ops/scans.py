"""Sums of all elements up to each one. Each depends on the one before: a call of the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.compute import Host
from ops.errors import DTypeError, ShapeError
from ops.operator import Application, ErrorSample, Input, Sample, operator
from ops.reference import accumulator, round_to
from ops.types import FLOATING, INTEGERS, Type, normalize_axis, short

Array = np.ndarray[Any, Any]


def _scan_type(x: Type, *, axis: int, exclusive: bool, reverse: bool) -> Type:
    if x.dtype == "bool":
        raise DTypeError(f"the operand must be a number, got {short(x)}; cast it first")
    normalize_axis(axis, x.rank)
    return Type(x.dtype, x.shape)


def _cumulative_sum_vjp(g: Any, n: Application) -> Any:
    """An element takes part in the sums behind it: those of dy from the other end."""
    attrs = {**n.attrs, "reverse": not n.attrs.reverse}
    return (g.CumSum(n.dy, **attrs),)


def _cumulative_sum_onnx(g: Any, n: Application) -> Any:
    flags = {name: int(n.attrs[name]) for name in ("exclusive", "reverse")}
    return g.op("CumSum", n.x, g.scalar(normalize_axis(n.attrs.axis, n.x.type.rank)), **flags)


@operator(
    "CumSum",
    type_rule=_scan_type,
    compute=Host("each element needs the sum before it, and kernels have no such axis"),
    vjp=_cumulative_sum_vjp,
    onnx=_cumulative_sum_onnx,
    samples=(
        Sample((Input((3, 17)),), {"axis": 1}),
        Sample((Input((5, 4)),), {"axis": -2, "exclusive": True}),
        Sample((Input((2, 3, 4)),), {"axis": 1, "reverse": True}),
        Sample((Input((6,)),), {"axis": 0, "exclusive": True, "reverse": True}),
        Sample((Input((0, 3)),), {"axis": 0}),
        Sample((Input((3, 0)),), {"axis": 1, "exclusive": True}),
        Sample((Input((4, 6), layout="strided"),), {"axis": 1}),
        Sample((Input((1, 40), special=True),), {"axis": 1}, dtypes=FLOATING, gradient=False),
    ),
    errors=(
        ErrorSample((Type("float32", (3,)),), ShapeError, "out of range", {"axis": 1}),
        ErrorSample((Type("bool", (3,)),), DTypeError, "a number", {"axis": 0}),
    ),
    dtypes=INTEGERS + FLOATING,
)
def cumulative_sum(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False) -> Array:
    """The sum of all elements up to each one along an axis; integers wrap around.

    `exclusive`: without the element itself. `reverse`: from the end. Floats are added one after the
    other in float64, and each sum is rounded.
    """
    rows = np.moveaxis(x, axis, -1)
    rows = rows[..., ::-1] if reverse else rows
    with np.errstate(all="ignore"):
        sums = np.cumsum(rows, axis=-1, dtype=accumulator(x.dtype))
    if exclusive:
        sums[..., 1:] = sums[..., :-1].copy()
        sums[..., :1] = 0
    sums = sums[..., ::-1] if reverse else sums
    return round_to(np.moveaxis(sums, -1, axis), x.dtype)
