"""Walks the table of operators: each one keeps the contract of gradients in `docs/numerics.md`.

What holds for every operator holds for all that is composed of them. Nothing is compiled here: gradient
rules are run on arrays; `test_gradient_edges.py` has compiled programs of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ops import samples
from ops.operator import Derived, NoGradient, Operator, ZeroGradient
from ops.table import TABLE
from ops.types import FLOATING, is_floating, numpy_dtype
from tests.support.evaluate import ArrayBuilder

Array = np.ndarray[Any, Any]
inf = math.inf

DIFFERENTIABLE = [
    op
    for op in TABLE.values()
    if op.samples
    and not op.random
    and not isinstance(op.vjp, NoGradient | ZeroGradient)
    and "float32" in op.dtypes
]
each_operator = pytest.mark.parametrize("op", DIFFERENTIABLE, ids=lambda op: op.name)
# A sum over a row of one operand and a column of the other: IEEE's 0 * inf in it is NaN, as in the product itself.
SUMS_OF_PRODUCTS = {"MatMul"}


def cotangents(ys: Sequence[Any], g: ArrayBuilder, value: float) -> list[Any]:
    return [g.value(np.full(y.type.shape, value, y.type.numpy)) for y in ys]


def sprinkled(arrays: Sequence[Array], dtype: str) -> list[Array]:
    """Arrays whose floats are half special values."""
    rng = np.random.default_rng(7)
    result = []
    for a in arrays:
        if a.dtype == numpy_dtype(dtype) and a.size:
            chosen = rng.random(a.shape) < 0.5
            a = a.copy()
            a[chosen] = rng.choice(samples.special_values(dtype), int(chosen.sum()))
        result.append(a)
    return result


@each_operator
def test_a_cotangent_of_zero_gives_a_gradient_of_zero(op: Operator) -> None:
    """Whatever the operands are; and so does a zero cotangent of the gradient."""
    if op.name in SUMS_OF_PRODUCTS:
        return
    seen = 0
    for sample, dtype, arrays in samples.cases(op):
        if dtype != ("float32" if sample.dtypes is None else dtype) or dtype not in FLOATING:
            continue
        g = ArrayBuilder()
        values = [g.value(a) for a in sprinkled(arrays, dtype)]
        with np.errstate(all="ignore"):
            outputs = g.op(op.name, *values, **sample.attrs)
            ys = [
                y
                for y in (outputs if isinstance(outputs, tuple) else (outputs,))
                if is_floating(y.type.dtype)
            ]
            xs = [v for v in values if is_floating(v.type.dtype)]
            found = [c for c in g.pullback(ys, cotangents(ys, g, 0.0), xs) if c is not None]
            first = [c for c in g.pullback(ys, cotangents(ys, g, 1.0), xs) if c is not None]
            again = [c for c in g.pullback(first, cotangents(first, g, 0.0), xs) if c is not None]
        for c in (*found, *again):
            assert (c.array == 0).all(), (sample, dtype, [v.array for v in values], c.array)
        seen += len(found)
    assert seen


@each_operator
def test_a_derivative_of_zero_gives_a_gradient_of_zero(op: Operator) -> None:
    """Element by element, though the cotangent be infinite or NaN."""
    for sample, dtype, arrays in samples.cases(op):
        if dtype not in ("float32", "float64") or not any(x.special for x in sample.inputs):
            continue
        g = ArrayBuilder()
        values = [g.value(a) for a in arrays]
        y = g.op(op.name, *values, **sample.attrs)
        xs = [v for v in values if is_floating(v.type.dtype)]
        alone = not {"axis", "axes"} & sample.attrs.keys() and is_floating(y.type.dtype)
        if not alone or any(x.type.shape != y.type.shape for x in xs):
            continue
        slopes = g.pullback([y], cotangents([y], g, 1.0), xs)
        for endless in (inf, -inf, math.nan):
            found = g.pullback([y], cotangents([y], g, endless), xs)
            for slope, c in zip(slopes, found, strict=True):
                if slope is not None and c is not None:
                    bad = (slope.array == 0) & (c.array != 0)
                    assert not bad.any(), (dtype, endless, [x.array[bad] for x in xs])


# The derivative does not exist (complex powers), or is one of the operand NaN.
UNDEFINED = {("Pow", 1): lambda x, y: x < 0}


@each_operator
def test_a_finite_value_of_numbers_has_a_gradient_that_is_a_number(op: Operator) -> None:
    """Element by element, each special value beside each, infinities included."""
    for sample, dtype, arrays in samples.cases(op):
        if dtype not in ("float32", "float64") or not any(x.special for x in sample.inputs):
            continue
        g = ArrayBuilder()
        values = [g.value(a) for a in arrays]
        y = g.op(op.name, *values, **sample.attrs)
        xs = [v for v in values if is_floating(v.type.dtype)]
        shape = y.type.shape
        if any(x.type.shape != shape for x in xs):
            continue
        numbers = np.isfinite(y.array)
        for x in xs:
            numbers &= ~np.isnan(x.array)
        if "axis" in sample.attrs or "axes" in sample.attrs:  # rows of it belong together
            numbers &= numbers.all(-1, keepdims=True)
        for k, c in enumerate(g.pullback([y], cotangents([y], g, 1.0), xs)):
            unknown = UNDEFINED.get((op.name, k))
            checked = numbers & ~unknown(*(x.array for x in xs)) if unknown else numbers
            if c is not None:
                bad = checked & np.isnan(c.array)
                assert not bad.any(), (dtype, k, [x.array[bad] for x in xs])


ROW_OPERATORS = [
    op
    for op in DIFFERENTIABLE
    if {"axes", "keepdims"} <= op.attributes.keys() or op.attributes.keys() == {"axis"}
]


@pytest.mark.parametrize(
    "op",
    [op for op in ROW_OPERATORS if len(op.inputs) == 1 and not op.variadic],
    ids=lambda op: op.name,
)
def test_a_finite_value_of_a_row_has_a_gradient_that_is_a_number(op: Operator) -> None:
    largest = float(np.finfo(np.float32).max)
    special = [0.0, -0.0, 1, -1, inf, -inf, 1e4, -1e4, 0.9 * largest, -0.9 * largest, 1e-30]
    rows = np.array(list(itertools.product(special, repeat=3)), np.float32)
    attrs: dict[str, Any] = (
        {"axes": (1,), "keepdims": False} if "axes" in op.attributes else {"axis": 1}
    )
    g = ArrayBuilder()
    x = g.value(rows)
    y = g.op(op.name, x, **attrs)
    (dx,) = g.pullback([y], cotangents([y], g, 1.0), [x])
    assert dx is not None
    numbers = np.isfinite(y.array).reshape(len(rows), -1).all(1)
    bad = numbers & np.isnan(dx.array).any(1)
    assert not bad.any(), rows[bad]


def test_the_walk_sees_what_it_should() -> None:
    names = {op.name for op in DIFFERENTIABLE}
    assert {
        "Mul",
        "Div",
        "Sqrt",
        "Pow",
        "Log",
        "Softmax",
        "LayerNormalization",
        "ReduceL2",
    } <= names
    assert any(isinstance(op.vjp, Derived) for op in DIFFERENTIABLE)
    assert len(ROW_OPERATORS) > 10
