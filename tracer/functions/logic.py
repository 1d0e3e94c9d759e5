"""Comparisons, logic, bits, classes of numbers and choice, under the array API's names."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.errors import DTypeError
from ops.types import DEFAULT_INTEGER, is_floating, is_integer, short
from tracer.dispatch.apply import apply
from tracer.functions.creation import as_tensor, cast, copied, full
from tracer.functions.dtype_queries import finfo
from tracer.functions.elementwise import elementwise, strong
from tracer.functions.promotion import fits, number_type, prepare
from tracer.functions.public import public
from tracer.tensors.tensor import Tensor

# ---- comparisons ---------------------------------------------------------------------------------

_MIRRORED = {
    "Equal": "Equal",
    "NotEqual": "NotEqual",
    "Less": "Greater",
    "LessOrEqual": "GreaterOrEqual",
    "Greater": "Less",
    "GreaterOrEqual": "LessOrEqual",
}


def _compare(name: str, x1: Any, x2: Any) -> Tensor:
    """A comparison. A Python integer that no element can reach compares as the number it is."""
    if number_type(x1) is not None and number_type(x2) is None:
        x1, x2, name = x2, x1, _MIRRORED[name]
    if isinstance(x2, int) and number_type(x2) is not None and number_type(x1) is None:
        x = as_tensor(x1)
        dtype = DEFAULT_INTEGER if x.type.dtype == "bool" else x.type.dtype
        if is_integer(dtype) and not fits(x2, dtype):
            above = x2 > 0
            truth = {"Equal": False, "NotEqual": True}.get(
                name, above if name.startswith("Less") else not above
            )
            return full(x.type.shape, truth)
        x1 = x
    return elementwise(name, x1, x2)


@public
def equal(x1: Any, x2: Any, /) -> Tensor:
    """Whether elements are equal, broadcast; NaN equals nothing.

    Element by element; gives bools.

    >>> tracer.equal([1, 2], [1, 3])
    tensor([ True, False])
    """
    return _compare("Equal", x1, x2)


@public
def not_equal(x1: Any, x2: Any, /) -> Tensor:
    """Whether elements differ, broadcast; NaN differs from everything.

    Element by element; gives bools.

    >>> tracer.not_equal([1, 2], [1, 3])
    tensor([False,  True])
    """
    return _compare("NotEqual", x1, x2)


@public
def less(x1: Any, x2: Any, /) -> Tensor:
    """Whether x1 < x2, broadcast; False beside NaN.

    Element by element; gives bools.

    >>> tracer.less([1, 2], 2)
    tensor([ True, False])
    """
    return _compare("Less", x1, x2)


@public
def less_equal(x1: Any, x2: Any, /) -> Tensor:
    """Whether x1 <= x2, broadcast; False beside NaN.

    Element by element; gives bools.

    >>> tracer.less_equal([1, 2, 3], 2)
    tensor([ True,  True, False])
    """
    return _compare("LessOrEqual", x1, x2)


@public
def greater(x1: Any, x2: Any, /) -> Tensor:
    """Whether x1 > x2, broadcast; False beside NaN.

    Element by element; gives bools.

    >>> tracer.greater([1, 2], [1, 1])
    tensor([False,  True])
    """
    return _compare("Greater", x1, x2)


@public
def greater_equal(x1: Any, x2: Any, /) -> Tensor:
    """Whether x1 >= x2, broadcast; False beside NaN.

    Element by element; gives bools.

    >>> tracer.greater_equal([1, 2], [1, 3])
    tensor([ True, False])
    """
    return _compare("GreaterOrEqual", x1, x2)


@public
def isclose(
    x1: Any, x2: Any, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """Whether |x1 - x2| <= atol + rtol * |x2|, broadcast; infinities are close to themselves only.

    `equal_nan`: NaNs are close to each other.

    Element by element; gives bools.

    >>> tracer.isclose([1.0, 2.0], [1.0, 2.1])
    tensor([ True, False])
    """
    a, b = (cast(x, "float64") for x in prepare(x1, x2, floating=True))
    distance = apply("Abs", apply("Sub", a, b))
    bound = elementwise("Add", elementwise("Mul", apply("Abs", b), rtol), atol)
    near = apply("And", apply("LessOrEqual", distance, bound), apply("IsFinite", b))
    close = apply("Or", near, apply("Equal", a, b))
    if equal_nan:
        close = apply("Or", close, apply("And", apply("IsNaN", a), apply("IsNaN", b)))
    return close


@public
def allclose(
    x1: Any, x2: Any, /, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether all elements are close, see `isclose`; False where shapes do not broadcast.

    A Python bool, so it raises `TraceError` in a trace.

    >>> tracer.allclose([1.0, 2.0], [1.0, 2.0 + 1e-7])
    True
    """
    close = isclose(x1, x2, rtol, atol, equal_nan)
    axes = tuple(range(close.ndim))
    return bool(apply("ReduceAll", close, axes=axes, keepdims=False))


# ---- logic and bits ------------------------------------------------------------------------------


def as_truth(x: Any) -> Tensor:
    """x as bool: whether it is not 0."""
    return cast(as_tensor(x), "bool")


def _logic(name: str, *operands: Any) -> Tensor:
    return apply(name, *map(as_truth, operands))


@public
def logical_and(x1: Any, x2: Any, /) -> Tensor:
    """Whether both hold (are not 0), broadcast.

    Element by element, of any types; gives bools.

    >>> tracer.logical_and([0, 1, 2], True)
    tensor([False,  True,  True])
    """
    return _logic("And", x1, x2)


@public
def logical_or(x1: Any, x2: Any, /) -> Tensor:
    """Whether one or both hold (are not 0), broadcast.

    Element by element, of any types; gives bools.

    >>> tracer.logical_or([0, 1], [0, 0])
    tensor([False,  True])
    """
    return _logic("Or", x1, x2)


@public
def logical_xor(x1: Any, x2: Any, /) -> Tensor:
    """Whether just one of both holds (is not 0), broadcast.

    Element by element, of any types; gives bools.

    >>> tracer.logical_xor([0, 1, 2], [3, 3, 0])
    tensor([ True, False,  True])
    """
    return _logic("Xor", x1, x2)


@public
def logical_not(x: Any, /) -> Tensor:
    """Whether it does not hold (is 0).

    Element by element, of any type; gives bools.

    >>> tracer.logical_not([0.0, 2.5])
    tensor([ True, False])
    """
    return _logic("Not", x)


def _bits(name: str, logic: str, *operands: Any) -> Tensor:
    """An operator of bits; of bools the operator of logic."""
    values = [strong(x) for x in prepare(*operands)]
    dtype = values[0].type.dtype
    if is_floating(dtype):
        listed = " and ".join(short(x.type) for x in values)
        raise DTypeError(
            f"{name}: operands must be integers or bools, got {listed}; cast them first"
        )
    return apply(logic if dtype == "bool" else name, *values)


@public
def bitwise_and(x1: Any, x2: Any, /) -> Tensor:
    """Bits set in both integers, broadcast; of bools: and.

    Element by element, in the promoted type. Raises `DTypeError` for floats.

    >>> tracer.bitwise_and([12, 10], 6)
    tensor([4, 2])
    """
    return _bits("BitwiseAnd", "And", x1, x2)


@public
def bitwise_or(x1: Any, x2: Any, /) -> Tensor:
    """Bits set in one or both integers, broadcast; of bools: or.

    Element by element, in the promoted type. Raises `DTypeError` for floats.

    >>> tracer.bitwise_or([12, 10], 6)
    tensor([14, 14])
    """
    return _bits("BitwiseOr", "Or", x1, x2)


@public
def bitwise_xor(x1: Any, x2: Any, /) -> Tensor:
    """Bits set in one of both integers, broadcast; of bools: xor.

    Element by element, in the promoted type. Raises `DTypeError` for floats.

    >>> tracer.bitwise_xor([12, 10], 6)
    tensor([10, 12])
    """
    return _bits("BitwiseXor", "Xor", x1, x2)


@public
def bitwise_invert(x: Any, /) -> Tensor:
    """All bits turned over; of bools: not.

    Element by element; the type stays. Raises `DTypeError` for floats.

    >>> tracer.bitwise_invert([0, 5])
    tensor([-1, -6])
    """
    return _bits("BitwiseNot", "Not", x)


def _shift(name: str, x1: Any, x2: Any) -> Tensor:
    a, b = prepare(x1, x2)
    if a.type.dtype == "bool":
        a, b = cast(a, "int64"), cast(b, "int64")
    return apply(name, a, b)


@public
def bitwise_left_shift(x1: Any, x2: Any, /) -> Tensor:
    """Bits of x1 moved up by x2, zeros moved in, broadcast.

    A negative count, or the width or more, moves all out. Element by element, in the promoted type;
    bools become int64. Raises `DTypeError` for floats.

    >>> tracer.bitwise_left_shift([1, 3], 2)
    tensor([ 4, 12])
    """
    return _shift("ShiftLeft", x1, x2)


@public
def bitwise_right_shift(x1: Any, x2: Any, /) -> Tensor:
    """Bits of x1 moved down by x2, the sign moved in, broadcast.

    A negative count, or the width or more: only the sign. Element by element, in the promoted type;
    bools become int64. Raises `DTypeError` for floats.

    >>> tracer.bitwise_right_shift([8, -8], 2)
    tensor([ 2, -2])
    """
    return _shift("ShiftRight", x1, x2)


# ---- classes of numbers --------------------------------------------------------------------------


def _class_of_number(name: str, x: Any, otherwise: bool) -> Tensor:
    x = strong(as_tensor(x))
    if not is_floating(x.type.dtype):
        return full(x.type.shape, otherwise)
    return apply(name, x)


@public
def isnan(x: Any, /) -> Tensor:
    """Whether x is not a number; of integers False.

    Element by element; gives bools.

    >>> tracer.isnan([1.0, np.inf, np.nan])
    tensor([False, False,  True])
    """
    return _class_of_number("IsNaN", x, False)


@public
def isinf(x: Any, /) -> Tensor:
    """Whether x is infinite, of either sign; of integers False.

    Element by element; gives bools.

    >>> tracer.isinf([1.0, np.inf, np.nan])
    tensor([False,  True, False])
    """
    return _class_of_number("IsInf", x, False)


@public
def isfinite(x: Any, /) -> Tensor:
    """Whether x is neither infinite nor NaN; of integers True.

    Element by element; gives bools.

    >>> tracer.isfinite([1.0, np.inf, np.nan])
    tensor([ True, False, False])
    """
    return _class_of_number("IsFinite", x, True)


@public
def signbit(x: Any, /) -> Tensor:
    """Whether the sign of x is minus, that of -0 too.

    Element by element; gives bools.

    >>> tracer.signbit([-0.0, 1.0])
    tensor([ True, False])
    """
    x = strong(as_tensor(x))
    if is_floating(x.type.dtype):
        return apply("Signbit", x)
    return full(x.type.shape, False) if x.type.dtype == "bool" else less(x, 0)


@public
def nan_to_num(
    x: Any, /, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """x with NaN and the infinities replaced.

    The infinities by the largest finite numbers unless told otherwise.

    Element by element; the type stays.

    >>> tracer.nan_to_num([np.nan, np.inf, 1.0], posinf=9.0)
    tensor([0., 9., 1.])
    """
    x = strong(as_tensor(x))
    if not is_floating(x.type.dtype):
        return copied(x)
    limits = finfo(x.type.dtype)
    high = float(limits.max) if posinf is None else posinf
    low = float(limits.min) if neginf is None else neginf
    result = where(isnan(x), nan, x)
    result = where(equal(x, np.inf), high, result)
    return where(equal(x, -np.inf), low, result)


# ---- choice --------------------------------------------------------------------------------------


@public
def where(condition: Any, x1: Any, x2: Any, /) -> Tensor:
    """x1 where the condition holds, else x2; all broadcast.

    In the type that x1 and x2 promote to. The gradient of what is not taken is exactly 0.

    Raises `DTypeError` for a condition that is not bool: compare it with something first.

    >>> tracer.where([True, False], [1, 2], 0)
    tensor([1, 0])
    """
    condition = as_tensor(condition)
    if condition.type.dtype != "bool":
        raise DTypeError(
            f"where: the condition must be bool, got {short(condition.type)}; compare it with "
            "something first (condition != 0)"
        )
    a, b = prepare(x1, x2)
    return apply("Where", condition, a, b)


__all__ = [
    "allclose",
    "bitwise_and",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "equal",
    "greater",
    "greater_equal",
    "isclose",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "nan_to_num",
    "not_equal",
    "signbit",
    "where",
]
