"""Reductions over axes, each a fold with a fixed or free order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import rules
from ops.compute import Folding, Reduction
from ops.errors import ShapeError
from ops.operator import Application, ErrorSample, Input, Ints, Sample, operator
from ops.reference import fold, round_to
from ops.types import DTYPES, FLOATING, INTEGERS, UNSIGNED, Type, is_floating, normalize_axes

Array = np.ndarray[Any, Any]
NUMERIC = INTEGERS + FLOATING

REDUCTION_SAMPLES = (
    Sample((Input((3, 17)),), {"axes": (1,), "keepdims": False}),
    Sample((Input((5, 7)),), {"axes": (0,), "keepdims": True}),
    Sample((Input((2, 3, 4)),), {"axes": (0, 2), "keepdims": False}),
    Sample((Input((4, 5)),), {"axes": (0, 1), "keepdims": False}),
    Sample((Input(()),), {"axes": (), "keepdims": False}),
)
EMPTY_SAMPLES = (Sample((Input((3, 0)),), {"axes": (1,), "keepdims": False}),)
SPECIAL_SAMPLES = (
    Sample((Input((4, 33), special=True),), {"axes": (1,), "keepdims": False}, gradient=False),
)
REDUCTION_ERRORS = (
    ErrorSample((Type("float32", (2, 3)),), ShapeError, "out of range", {"axes": (2,), "keepdims": False}),
    ErrorSample((Type("float32", (2, 3)),), ShapeError, "named twice", {"axes": (1, -1), "keepdims": False}),
)


def lane(dtype: str) -> str:
    """The short name of an element type's lanes in kernel text."""
    if dtype == "bool":
        return "bool"
    if is_floating(dtype):
        return "f64" if dtype == "float64" else "f32"
    return dtype.replace("uint", "u").replace("int", "i")


def accumulator(dtype: str) -> str:
    """The lane type in which sums and products are taken."""
    return "f64" if is_floating(dtype) else "u64" if dtype in UNSIGNED else "i64"


def _sum_folding(x: Type, result: Type) -> Folding:
    wide, exact = accumulator(x.dtype), not is_floating(x.dtype)
    return Folding(
        "sum",
        (("sum", wide),),
        ("0",),
        (f"sum + to_{wide}({{0}})",),
        ("sum + other_sum",),
        (f"to_{lane(result.dtype)}(sum)",),
        exact=exact,
    )


def keep(g: Any, x: Any, n: Application) -> Any:
    """A reduced value with its reduced axes put back as size 1."""
    return g.reshape(x, rules.reduced_shape(n.x.type, n.attrs.axes, True))


@operator(
    "ReduceSum",
    type_rule=rules.reduction,
    compute=Reduction(_sum_folding),
    vjp=lambda g, n: (g.expand(keep(g, n.dy, n), n.x.type.shape),),
    onnx=lambda g, n: g.reduction("ReduceSum", n),
    samples=REDUCTION_SAMPLES + EMPTY_SAMPLES + SPECIAL_SAMPLES,
    errors=REDUCTION_ERRORS,
    dtypes=NUMERIC,
)
def reduce_sum(x: Array, *, axes: Ints, keepdims: bool) -> Array:
    """Sum over axes, accumulated in float64 (floats) or 64-bit integers. Of nothing: 0."""
    return round_to(fold(x, axes, keepdims, np.add, 0), x.dtype)


def lowest(dtype: str) -> str:
    """Kernel text of the identity of max: -inf, the smallest integer, or False."""
    if is_floating(dtype):
        return "-inf"
    return "False" if dtype == "bool" else str(int(np.iinfo(dtype).min))


def _max_folding(x: Type, result: Type) -> Folding:
    name = lane(x.dtype)
    step, merge = ("best | {0}", "best | other_best") if name == "bool" else (
        "maximum(best, {0})",
        "maximum(best, other_best)",
    )
    return Folding("max", (("best", name),), (lowest(x.dtype),), (step,), (merge,), ("best",), exact=True)


def extremum_vjp(g: Any, n: Application) -> Any:
    """The cotangent shared equally by all elements equal to the extremum: ties have a mass of 1 together."""
    dtype = n.x.type.dtype
    hit = g.Cast(g.Equal(n.x, keep(g, n.y, n)), to=dtype)
    count = g.ReduceSum(hit, axes=n.attrs.axes, keepdims=True)
    return (g.Mul(hit, g.Div(keep(g, n.dy, n), count)),)


@operator(
    "ReduceMax",
    type_rule=rules.reduction,
    compute=Reduction(_max_folding),
    vjp=extremum_vjp,
    onnx=lambda g, n: g.reduction("ReduceMax", n),
    samples=REDUCTION_SAMPLES + SPECIAL_SAMPLES,
    errors=REDUCTION_ERRORS,
    dtypes=DTYPES,
)
def reduce_max(x: Array, *, axes: Ints, keepdims: bool) -> Array:
    """Largest element over axes; NaN wins. Of nothing: -inf, the smallest integer or False."""
    axes = normalize_axes(axes, x.ndim)
    if not axes:
        return x
    if 0 in (x.shape[a] for a in axes):
        start = -np.inf if x.dtype.kind not in "biu" else False if x.dtype.kind == "b" else np.iinfo(x.dtype).min
        shape = rules.reduced_shape(Type.of(x), axes, keepdims)
        return np.full(shape, start).astype(x.dtype)
    return np.asarray(np.max(x, axis=axes, keepdims=keepdims)).astype(x.dtype)
