"""The largest and the smallest element over axes, and where they are. All results are exact."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ops import rules
from ops.compute import Folding, Reduction
from ops.errors import ShapeError
from ops.operator import Application, ErrorSample, Input, Ints, Rule, Sample, ZeroGradient, operator
from ops.reductions import (
    REDUCTION_ERRORS,
    REDUCTION_SAMPLES,
    all_onnx,
    any_onnx,
    keep,
    lane,
    single,
)
from ops.types import DTYPES, FLOATING, Type, is_floating, normalize_axes, short

Array = np.ndarray[Any, Any]

# Finite differences must not straddle a tie, so gradients are compared where all elements differ.
# Ties have tests of their own.
_SAMPLES = (
    *REDUCTION_SAMPLES,
    Sample((Input((4, 33), special=True),), {"axes": (1,), "keepdims": False}, gradient=False),
    Sample(
        (Input((2, 4), values=(1, 3, 3, 0, 2, 2, 2, 1)),),
        {"axes": (1,), "keepdims": False},
        gradient=False,
    ),
    Sample(
        (Input((3, 0)),),
        {"axes": (1,), "keepdims": False},
        dtypes=(*FLOATING, "bool", "int32", "int64", "uint8"),
        gradient=False,
    ),
)


def extreme(dtype: str, largest: bool) -> Any:
    """The largest or smallest value of an element type: an infinity, a limit, or a bool."""
    if is_floating(dtype):
        return np.inf if largest else -np.inf
    if dtype == "bool":
        return largest
    info = np.iinfo(dtype)
    return int(info.max if largest else info.min)


def _folding(function: str, logic: str, largest: bool) -> Any:
    def folding(x: Type, result: Type) -> Folding:
        combine = f"{{a}} {logic} {{b}}" if x.dtype == "bool" else f"{function}({{a}}, {{b}})"
        start = str(extreme(x.dtype, not largest))
        found = single("best", x, result, lane(x.dtype), start, combine, exact=True)
        # The order is free, so which of 0 and -0 is found is not: it becomes 0.
        return replace(found, finish=("best + 0",)) if is_floating(x.dtype) else found

    return folding


def extremum_vjp(g: Any, n: Application) -> Any:
    """The cotangent, shared equally by all elements that tie: together they have a mass of 1.

    Where the extremum is NaN, the NaNs share it.
    """
    hit = g.Or(g.Equal(n.x, keep(g, n.y, n)), g.Not(g.Equal(n.x, n.x)))
    wide = "float64" if n.x.type.dtype == "float64" else "float32"
    count = g.ReduceSum(g.Cast(hit, to=wide), axes=n.attrs.axes, keepdims=True)
    share = g.Div(g.cast(keep(g, n.dy, n), wide), count)
    return (g.Where(hit, g.cast(share, n.x.type.dtype), g.like(0, n.x)),)


def _extremum_onnx(name: str) -> Rule:
    """ONNX says nothing about NaN, so NaNs are searched for beside; and it counts bools."""

    def rule(g: Any, n: Application) -> Any:
        dtype = n.x.type.dtype
        if dtype == "bool":
            return (any_onnx if name == "ReduceMax" else all_onnx)(g, n.x, n)
        found = g.reduction(name, n)
        if not is_floating(dtype):
            return found
        return g.op("Where", any_onnx(g, g.op("IsNaN", n.x), n), g.like(np.nan, n.x), found)

    return rule


def _extremum(x: Array, axes: Ints, keepdims: bool, largest: bool) -> Array:
    axes = normalize_axes(axes, x.ndim)
    unsigned = np.zeros((), x.dtype) if is_floating(Type.of(x).dtype) else None
    if not axes:
        return x if unsigned is None else np.asarray(x + unsigned)
    if 0 in (x.shape[a] for a in axes):
        shape = rules.reduced_shape(Type.of(x), axes, keepdims)
        return np.full(shape, extreme(Type.of(x).dtype, not largest)).astype(x.dtype)
    function = np.max if largest else np.min
    with np.errstate(all="ignore"):
        found = np.asarray(function(x, axis=axes, keepdims=keepdims)).astype(x.dtype)
        return found if unsigned is None else np.asarray(found + unsigned)


@operator(
    "ReduceMax",
    type_rule=rules.reduction,
    compute=Reduction(_folding("maximum", "|", largest=True)),
    vjp=extremum_vjp,
    onnx=_extremum_onnx("ReduceMax"),
    samples=_SAMPLES,
    errors=REDUCTION_ERRORS,
    dtypes=DTYPES,
)
def reduce_max(x: Array, *, axes: Ints, keepdims: bool) -> Array:
    """Largest element over axes; NaN wins, -0 becomes 0. Of nothing: -inf, the smallest integer or False."""
    return _extremum(x, axes, keepdims, largest=True)


@operator(
    "ReduceMin",
    type_rule=rules.reduction,
    compute=Reduction(_folding("minimum", "&", largest=False)),
    vjp=extremum_vjp,
    onnx=_extremum_onnx("ReduceMin"),
    samples=_SAMPLES,
    errors=REDUCTION_ERRORS,
    dtypes=DTYPES,
)
def reduce_min(x: Array, *, axes: Ints, keepdims: bool) -> Array:
    """Smallest element over axes; NaN wins, -0 becomes 0. Of nothing: +inf, the largest integer or True."""
    return _extremum(x, axes, keepdims, largest=False)


# ---- positions -----------------------------------------------------------------------------------

_NOWHERE = str(np.iinfo(np.int64).max)  # the position of no element, behind all others


def _position_folding(better: str, largest: bool) -> Any:
    """The best element so far and where it is: the first of equal ones, and a NaN before all."""

    def folding(x: Type, result: Type) -> Folding:
        take, wins, tie = f"{{0}} {better} best", f"other_best {better} best", "other_best == best"
        if is_floating(x.dtype):
            take = f"({take}) | (({{0}} != {{0}}) & (best == best))"
            wins = f"({wins}) | ((other_best != other_best) & (best == best))"
            tie = f"({tie}) | ((other_best != other_best) & (best != best))"
        take = f"({take}) | (at == {_NOWHERE})"
        wins = f"({wins}) | (({tie}) & (other_at < at))"
        return Folding(
            "argmax" if largest else "argmin",
            (("best", lane(x.dtype)), ("at", "i64")),
            (str(extreme(x.dtype, not largest)), _NOWHERE),
            (f"select({take}, {{0}}, best)", f"select({take}, {{1}}, at)"),
            (f"select({wins}, other_best, best)", f"select({wins}, other_at, at)"),
            ("at",),
            exact=True,
        )

    return folding


def _position_type(x: Type, *, axes: Ints, keepdims: bool) -> Type:
    if len(axes) != 1:
        raise ShapeError(f"one axis is searched, got axes {tuple(axes)}; reshape to search several")
    result = rules.index_reduction(x, axes=axes, keepdims=keepdims)
    if x.shape[axes[0]] == 0:
        raise ShapeError(f"axis {axes[0]} of {short(x)} has no elements, so none is the best")
    return result


def _position_onnx(name: str) -> Rule:
    """ONNX says nothing about NaN, so NaNs are searched for first."""

    def rule(g: Any, n: Application) -> Any:
        axis = n.attrs.axes[0] % n.x.type.rank
        keepdims = int(n.attrs.keepdims)
        x = g.cast(n.x, "int32") if n.x.type.dtype == "bool" else n.x
        found = g.op(name, x, axis=axis, keepdims=keepdims)
        if not is_floating(n.x.type.dtype):
            return found
        nan = g.op("IsNaN", x)
        first_nan = g.op("ArgMax", g.cast(nan, "int32"), axis=axis, keepdims=keepdims)
        return g.op("Where", any_onnx(g, nan, n), first_nan, found)

    return rule


def _position_samples() -> tuple[Sample, ...]:
    nan = float("nan")
    return (
        Sample((Input((3, 37)),), {"axes": (1,), "keepdims": False}, gradient=False),
        Sample((Input((5, 7)),), {"axes": (0,), "keepdims": True}, gradient=False),
        Sample((Input((2, 3, 4)),), {"axes": (-2,), "keepdims": False}, gradient=False),
        Sample(
            (Input((4, 6), layout="strided"),), {"axes": (1,), "keepdims": False}, gradient=False
        ),
        Sample((Input((0, 3)),), {"axes": (1,), "keepdims": False}, gradient=False),
        Sample((Input((4, 33), special=True),), {"axes": (1,), "keepdims": False}, gradient=False),
        Sample(
            (Input((2, 5), values=(1, 3, 3, 1, 0, 2, 2, 2, 2, 2)),),
            {"axes": (1,), "keepdims": False},
            gradient=False,
        ),
        Sample(
            (Input((3, 4), values=(1, nan, 2, nan, -np.inf, -np.inf, nan, 0, *[-np.inf] * 4)),),
            {"axes": (1,), "keepdims": False},
            dtypes=("float16", "bfloat16", "float32", "float64"),
            gradient=False,
        ),
    )


_POSITION_ERRORS = (
    ErrorSample(
        (Type("float32", (2, 3)),), ShapeError, "out of range", {"axes": (2,), "keepdims": False}
    ),
    ErrorSample(
        (Type("float32", (2, 3)),), ShapeError, "one axis", {"axes": (0, 1), "keepdims": False}
    ),
    ErrorSample(
        (Type("float32", (2, 0)),), ShapeError, "no elements", {"axes": (1,), "keepdims": False}
    ),
)


def _position(x: Array, axes: Ints, keepdims: bool, largest: bool) -> Array:
    function = np.argmax if largest else np.argmin
    return np.asarray(function(x, axis=axes[0], keepdims=keepdims), np.int64)


@operator(
    "ArgMax",
    type_rule=_position_type,
    compute=Reduction(_position_folding(">", largest=True), positions=True),
    vjp=ZeroGradient(),
    onnx=_position_onnx("ArgMax"),
    samples=_position_samples(),
    errors=_POSITION_ERRORS,
)
def argmax(x: Array, *, axes: Ints, keepdims: bool) -> Array:
    """Position of the largest element along one axis, as int64.

    Of equal ones it is the first; the first NaN comes before all. Raises `ShapeError` where the
    axis has no elements.
    """
    return _position(x, axes, keepdims, largest=True)


@operator(
    "ArgMin",
    type_rule=_position_type,
    compute=Reduction(_position_folding("<", largest=False), positions=True),
    vjp=ZeroGradient(),
    onnx=_position_onnx("ArgMin"),
    samples=_position_samples(),
    errors=_POSITION_ERRORS,
)
def argmin(x: Array, *, axes: Ints, keepdims: bool) -> Array:
    """Position of the smallest element along one axis, as int64.

    Of equal ones it is the first; the first NaN comes before all. Raises `ShapeError` where the
    axis has no elements.
    """
    return _position(x, axes, keepdims, largest=False)
