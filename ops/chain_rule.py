"""The product and the quotient of the chain rule, in which 0 times anything is 0.

A cotangent is multiplied by a local derivative that may be infinite, or NaN: that of the root at 0,
of a branch that was not taken, of an element that is masked out. Where the cotangent is 0 nothing
depends on that place, and where the derivative is 0 that place depends on nothing: the gradient is 0,
which IEEE's 0 * inf is not. Gradient rules multiply by `g.chain` and divide by `g.Xdivy`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import rules
from ops.algebra import Algebra
from ops.compute import Scalar
from ops.families import FLOATING_PAIR_ERRORS, each
from ops.operator import Input, operator
from ops.reference import rounded_once
from ops.samples import BINARY, binary
from ops.types import FLOATING

Array = np.ndarray[Any, Any]


@operator(
    "MulNoNan",
    type_rule=rules.floating,
    compute=Scalar("select({0} == {T}(0), {0}, select({1} == {T}(0), {1}, {0} * {1}))"),
    algebra=Algebra(neutral={0: 1, 1: 1}),
    vjp=each(lambda g, n: g.chain(n.dy, n.inputs[1]), lambda g, n: g.chain(n.dy, n.x)),
    onnx=lambda g, n: g.Where(
        g.Equal(n.x, g.like(0, n.x)),
        n.x,
        g.Where(g.Equal(n.inputs[1], g.like(0, n.x)), n.inputs[1], g.op("Mul", *n.inputs)),
    ),
    samples=BINARY,
    errors=FLOATING_PAIR_ERRORS,
    dtypes=FLOATING,
)
@rounded_once
def multiply_no_nan(x: Array, y: Array) -> Array:
    """Product that is 0 where a factor is 0, beside an infinity or NaN too.

    It has the sign of that factor, of two zeros the first one's.
    """
    product = np.asarray(np.multiply(x, y))
    for factor in (y, x):
        zero = factor == 0
        if zero.any():
            np.copyto(product, factor, where=zero)
    return product


@operator(
    "Xdivy",
    type_rule=rules.floating,
    compute=Scalar("select({0} == {T}(0), {0}, {0} / {1})"),
    algebra=Algebra(neutral={1: 1}),
    vjp=each(
        lambda g, n: g.Xdivy(n.dy, n.inputs[1]),
        lambda g, n: g.Neg(g.chain(n.dy, g.Xdivy(n.y, n.inputs[1]))),
    ),
    onnx=lambda g, n: g.Where(g.Equal(n.x, g.like(0, n.x)), n.x, g.op("Div", *n.inputs)),
    samples=binary(y=Input(low=0.5)),
    errors=FLOATING_PAIR_ERRORS,
    dtypes=FLOATING,
)
@rounded_once
def divide_unless_zero(x: Array, y: Array) -> Array:
    """Quotient that is 0 where x is 0, over a 0 or NaN too; it has the sign of that 0."""
    quotient = np.asarray(np.divide(x, y))
    zero = x == 0
    if zero.any():
        np.copyto(quotient, x, where=zero)
    return quotient


@operator(
    "Gate",
    type_rule=rules.floating,
    compute=Scalar("select({0} == {T}(0), {0}, {1})"),
    vjp=lambda g, n: (None, n.dy),
    onnx=lambda g, n: g.Where(g.Equal(n.x, g.like(0, n.x)), *n.inputs),
    samples=binary(Input(low=0.5)),
    errors=FLOATING_PAIR_ERRORS,
    dtypes=FLOATING,
)
@rounded_once
def gate(x: Array, y: Array) -> Array:
    """y where x is not 0, else that 0: for a y that is a product with x.

    For products that share a factor it is cheaper than one MulNoNan for each. The gradient is y's
    alone, at x = 0 too: how y changes with x is known to the product that made it.
    """
    return np.where(x == 0, x, y)
