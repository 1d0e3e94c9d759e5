"""Sums, products and logic over axes, each a fold with a fixed or free order.

Largest and smallest are in `reduce_extremes.py`, means in `statistics.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ops import rules
from ops.compute import Folding, Reduction
from ops.errors import DTypeError, ShapeError
from ops.operator import Application, ErrorSample, Input, Ints, Sample, ZeroGradient, operator
from ops.reference import fold, round_to
from ops.types import FLOATING, INTEGERS, UNSIGNED, Type, is_floating, normalize_axes

Array = np.ndarray[Any, Any]
NUMERIC = INTEGERS + FLOATING

REDUCTION_SAMPLES = (
    Sample((Input((3, 17)),), {"axes": (1,), "keepdims": False}),
    Sample((Input((5, 7)),), {"axes": (0,), "keepdims": True}),
    Sample((Input((2, 3, 4)),), {"axes": (0, 2), "keepdims": False}),
    Sample((Input((4, 5)),), {"axes": (0, 1), "keepdims": False}),
    Sample((Input((4, 6), layout="strided"),), {"axes": (-1,), "keepdims": True}),
    Sample((Input((2, 3)),), {"axes": (), "keepdims": False}),
    Sample((Input(()),), {"axes": (), "keepdims": False}),
    Sample((Input((0, 3)),), {"axes": (1,), "keepdims": False}),
)
EMPTY_SAMPLES = (Sample((Input((3, 0)),), {"axes": (1,), "keepdims": False}),)
# Integers that overflow have a test of their own: runtimes of ONNX sum integers as floats.
SPECIAL_SAMPLES = (
    Sample(
        (Input((4, 33), special=True),),
        {"axes": (1,), "keepdims": False},
        dtypes=FLOATING,
        gradient=False,
    ),
)
REDUCTION_ERRORS = (
    ErrorSample(
        (Type("float32", (2, 3)),), ShapeError, "out of range", {"axes": (2,), "keepdims": False}
    ),
    ErrorSample(
        (Type("float32", (2, 3)),), ShapeError, "named twice", {"axes": (1, -1), "keepdims": False}
    ),
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


def convert(text: str, source: str, target: str) -> str:
    """Kernel text of a value brought from one lane type to another."""
    return text if source == target else f"to_{target}({text})"


def single(
    state: str, x: Type, result: Type, wide: str, init: str, combine: str, exact: bool
) -> Folding:
    """A folding with one state of lane type `wide`.

    It takes in an operand and another part by the same text, which names them {a} and {b}.
    """
    return Folding(
        state,
        ((state, wide),),
        (init,),
        (combine.format(a=state, b=convert("{0}", lane(x.dtype), wide)),),
        (combine.format(a=state, b=f"other_{state}"),),
        (convert(state, wide, lane(result.dtype)),),
        exact=exact,
    )


def _sum_folding(x: Type, result: Type) -> Folding:
    exact = not is_floating(x.dtype)
    return single("sum", x, result, accumulator(x.dtype), "0", "{a} + {b}", exact)


def keep(g: Any, x: Any, n: Application) -> Any:
    """A reduced value with its reduced axes put back as size 1."""
    return g.reshape(x, rules.reduced_shape(n.x.type, n.attrs.axes, True))


def numeric(x: Type, *, axes: Ints, keepdims: bool) -> Type:
    """The type rule of sums and products: numbers only."""
    if x.dtype == "bool":
        raise DTypeError("the operand must be a number, got bool; cast it first")
    return rules.reduction(x, axes=axes, keepdims=keepdims)


_NOT_NUMERIC = (
    ErrorSample((Type("bool", (2,)),), DTypeError, "a number", {"axes": (0,), "keepdims": False}),
)


@operator(
    "ReduceSum",
    type_rule=numeric,
    compute=Reduction(_sum_folding),
    vjp=lambda g, n: (g.expand(keep(g, n.dy, n), n.x.type.shape),),
    onnx=lambda g, n: g.reduction("ReduceSum", n),
    samples=REDUCTION_SAMPLES + EMPTY_SAMPLES + SPECIAL_SAMPLES,
    errors=REDUCTION_ERRORS + _NOT_NUMERIC,
    dtypes=NUMERIC,
)
def reduce_sum(x: Array, *, axes: Ints, keepdims: bool) -> Array:
    """Sum over axes, accumulated in float64 (floats) or 64-bit integers. Of nothing: 0."""
    return round_to(fold(x, axes, keepdims, np.add, 0), x.dtype)


def _product_folding(x: Type, result: Type) -> Folding:
    exact = not is_floating(x.dtype)
    return single("product", x, result, accumulator(x.dtype), "1", "{a} * {b}", exact)


def _product_vjp(g: Any, n: Application) -> Any:
    """dy times the product of the other elements, right where some of these are zeros.

    With P the product of what is not zero: P / x where no other element is zero; where one is, that
    element's value, a zero, times P / x, which has the right derivative in its turn; with more,
    zero.
    """
    x = g.cast(n.x, "float64")
    zero, one = g.constant(0, "float64"), g.constant(1, "float64")
    is_zero = g.Equal(x, zero)
    nonzero = g.Where(is_zero, one, x)
    zeros = g.Where(is_zero, x, zero)
    others = g.Div(g.ReduceProd(nonzero, axes=n.attrs.axes, keepdims=True), nonzero)
    found = g.Cast(is_zero, to="int64")
    left = g.Sub(g.ReduceSum(found, axes=n.attrs.axes, keepdims=True), found)
    the_zero = g.Sub(g.ReduceSum(zeros, axes=n.attrs.axes, keepdims=True), zeros)
    lone = g.Where(g.Equal(left, g.constant(1, "int64")), the_zero, zero)
    factor = g.Where(g.Equal(left, g.constant(0, "int64")), one, lone)
    dy = g.cast(keep(g, n.dy, n), "float64")
    return (g.cast(g.chain(dy, g.chain(factor, others)), n.x.type.dtype),)


@operator(
    "ReduceProd",
    type_rule=numeric,
    compute=Reduction(_product_folding),
    vjp=_product_vjp,
    onnx=lambda g, n: g.reduction("ReduceProd", n),
    samples=(
        *(replace(s, dtypes=FLOATING) for s in REDUCTION_SAMPLES),
        *EMPTY_SAMPLES,
        Sample(
            (Input((4, 3), values=(1, np.nan, 2, np.inf, -1, 3, 0, 2, np.inf, 0, 2, 6)),),
            {"axes": (1,), "keepdims": False},
            dtypes=FLOATING,
            gradient=False,
        ),
        Sample((Input((3, 2), values=(3, -4, 0, 5, 11, 7)),), {"axes": (1,), "keepdims": False}),
        Sample(
            (Input((3, 4), values=(2, 0, -1.5, 3, 0, 2, 0, 5, 0, 0, 0, 2)),),
            {"axes": (1,), "keepdims": False},
            dtypes=("float64",),
        ),
    ),
    errors=REDUCTION_ERRORS + _NOT_NUMERIC,
    dtypes=NUMERIC,
)
def reduce_product(x: Array, *, axes: Ints, keepdims: bool) -> Array:
    """Product over axes, accumulated in float64 (floats) or 64-bit integers. Of nothing: 1.

    The gradient is right where elements are zero, to second order too.
    """
    return round_to(fold(x, axes, keepdims, np.multiply, 1), x.dtype)


def _boolean(x: Type, *, axes: Ints, keepdims: bool) -> Type:
    if x.dtype != "bool":
        raise DTypeError(
            f"the operand must be bool, got {x.dtype}; compare it with something first"
        )
    return rules.reduction(x, axes=axes, keepdims=keepdims)


def any_onnx(g: Any, x: Any, n: Application) -> Any:
    """Whether anything of x over the axes is True: ONNX counts."""
    return g.cast(g.reduce("ReduceSum", g.cast(x, "int32"), n.attrs.axes, n.attrs.keepdims), "bool")


def all_onnx(g: Any, x: Any, n: Application) -> Any:
    """Whether all of x over the axes is True."""
    return g.op("Not", any_onnx(g, g.op("Not", x), n))


_LOGIC_SAMPLES = (
    *(Sample(s.inputs, s.attrs, gradient=False) for s in REDUCTION_SAMPLES + EMPTY_SAMPLES),
    *(
        Sample(
            (Input((2, 35), values=(fill,) * 34 + (1 - fill,) + (fill,) * 35),),
            {"axes": (1,), "keepdims": False},
            gradient=False,
        )
        for fill in (0, 1)
    ),
)
_LOGIC_ERRORS = (
    ErrorSample(
        (Type("float32", (2,)),), DTypeError, "must be bool", {"axes": (0,), "keepdims": False}
    ),
    ErrorSample(
        (Type("bool", (2,)),), ShapeError, "out of range", {"axes": (1,), "keepdims": False}
    ),
)


@operator(
    "ReduceAny",
    type_rule=_boolean,
    compute=Reduction(
        lambda x, result: single("any", x, result, "bool", "False", "{a} | {b}", exact=True)
    ),
    vjp=ZeroGradient(),
    onnx=lambda g, n: any_onnx(g, n.x, n),
    samples=_LOGIC_SAMPLES,
    errors=_LOGIC_ERRORS,
    dtypes=("bool",),
)
def reduce_any(x: Array, *, axes: Ints, keepdims: bool) -> Array:
    """Whether any element over axes is True. Of nothing: False."""
    return np.asarray(np.any(x, axis=normalize_axes(axes, x.ndim), keepdims=keepdims))


@operator(
    "ReduceAll",
    type_rule=_boolean,
    compute=Reduction(
        lambda x, result: single("all", x, result, "bool", "True", "{a} & {b}", exact=True)
    ),
    vjp=ZeroGradient(),
    onnx=lambda g, n: all_onnx(g, n.x, n),
    samples=_LOGIC_SAMPLES,
    errors=_LOGIC_ERRORS,
    dtypes=("bool",),
)
def reduce_all(x: Array, *, axes: Ints, keepdims: bool) -> Array:
    """Whether all elements over axes are True. Of nothing: True."""
    return np.asarray(np.all(x, axis=normalize_axes(axes, x.ndim), keepdims=keepdims))
