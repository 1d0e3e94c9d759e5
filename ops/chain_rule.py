"""The product and the quotient of the chain rule, in which 0 times anything is 0.

A cotangent is multiplied by a local derivative that may be infinite, or NaN: that of the root at 0,
of a branch that was not taken, of an element that is masked out. Where the cotangent is 0 nothing
depends on that place, and where the derivative is 0 that place depends on nothing: the gradient is 0,
which IEEE's 0 * inf is not. Gradient rules multiply by `g.chain` and divide by `g.Xdivy`.

The texts are such that a machine with masks needs a comparison for each operand and nothing more.
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


def _zeroed(result: Any, where: Any) -> Array:
    """The result with 0 in some places."""
    zeroed: Array = np.asarray(result)
    where = np.asarray(where)
    if where.any():
        np.copyto(zeroed, 0, where=where)
    return zeroed


def _is_zero(g: Any, x: Any) -> Any:
    return g.Equal(x, g.like(0, x))


@operator(
    "MulNoNan",
    type_rule=rules.floating,
    compute=Scalar("select(({0} != {T}(0)) & ({1} != {T}(0)), {0} * {1}, {T}(0))"),
    vjp=each(lambda g, n: g.chain(n.dy, n.inputs[1]), lambda g, n: g.chain(n.dy, n.x)),
    onnx=lambda g, n: g.Where(
        g.Or(*(_is_zero(g, x) for x in n.inputs)), g.like(0, n.x), g.op("Mul", *n.inputs)
    ),
    samples=BINARY,
    errors=FLOATING_PAIR_ERRORS,
    dtypes=FLOATING,
    algebra=Algebra(cheaper={0: (1, "Add", 0), 1: (1, "Add", 0)}),  # -0 becomes 0
)
@rounded_once
def multiply_no_nan(x: Array, y: Array) -> Array:
    """Product that is 0, without a sign, where a factor is 0, beside an infinity or NaN too."""
    return _zeroed(np.multiply(x, y), (x == 0) | (y == 0))


@operator(
    "Xdivy",
    type_rule=rules.floating,
    compute=Scalar("select(({0} != {T}(0)) & ~isinf({1}), {0} / {1}, {T}(0))", effort="medium"),
    vjp=each(
        lambda g, n: g.Xdivy(n.dy, n.inputs[1]),
        lambda g, n: g.Neg(g.chain(n.dy, g.Xdivy(n.y, n.inputs[1]))),
    ),
    onnx=lambda g, n: g.Where(
        g.Or(_is_zero(g, n.x), g.IsInf(n.inputs[1])), g.like(0, n.x), g.op("Div", *n.inputs)
    ),
    samples=binary(y=Input(low=0.5)),
    errors=FLOATING_PAIR_ERRORS,
    dtypes=FLOATING,
)
@rounded_once
def divide_unless_zero(x: Array, y: Array) -> Array:
    """Quotient that is 0, without a sign, where x is 0 and where y is infinite, whatever the other is."""
    return _zeroed(np.divide(x, y), (x == 0) | np.isinf(y))


@operator(
    "Gate",
    type_rule=rules.floating,
    compute=Scalar("select({0} != {T}(0), {1}, {T}(0))"),
    vjp=lambda g, n: (None, n.dy),
    onnx=lambda g, n: g.Where(_is_zero(g, n.x), g.like(0, n.x), n.inputs[1]),
    samples=binary(Input(low=0.5)),
    errors=FLOATING_PAIR_ERRORS,
    dtypes=FLOATING,
)
@rounded_once
def gate(x: Array, y: Array) -> Array:
    """y where x is not 0, else 0: for a y that is a product with x.

    For products that share a factor it is cheaper than one MulNoNan for each. The gradient is y's
    alone, at x = 0 too: how y changes with x is known to the product that made it.
    """
    return np.where(x != 0, y, np.zeros((), y.dtype))
