"""Arithmetic, powers, extremes and rounding of elements, under the array API's names."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from ops.errors import ArgumentError, DivisionError, DTypeError, IntegerOverflowError
from ops.reduce_extremes import extreme
from ops.types import UNSIGNED, broadcast_shapes, is_floating, is_integer, short
from tracer.dispatch.apply import apply, constant
from tracer.functions.creation import as_tensor, cast, copied, has_tensors
from tracer.functions.elementwise import elementwise, strong, unary_floating
from tracer.functions.promotion import number_type, prepare
from tracer.functions.public import public
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor

# ---- the four operations -------------------------------------------------------------------------


@public
def add(x1: Any, x2: Any, /) -> Tensor:
    """x1 + x2, broadcast. Integers wrap around; of bools: or.

    Element by element, in the promoted type.

    >>> tracer.add([1, 2], [[10], [20]])
    tensor([[11, 12],
            [21, 22]])
    """
    return elementwise("Add", x1, x2)


@public
def subtract(x1: Any, x2: Any, /) -> Tensor:
    """x1 - x2, broadcast. Integers wrap around. Raises `DTypeError` for bools.

    Element by element, in the promoted type.

    >>> tracer.subtract([1, 2], [[10], [20]])
    tensor([[ -9,  -8],
            [-19, -18]])
    """
    return elementwise("Sub", x1, x2)


@public
def multiply(x1: Any, x2: Any, /) -> Tensor:
    """x1 * x2, broadcast. Integers wrap around; of bools: and.

    Element by element, in the promoted type.

    >>> tracer.multiply([1, 2], 3)
    tensor([3, 6])
    """
    return elementwise("Mul", x1, x2)


@public
def divide(x1: Any, x2: Any, /) -> Tensor:
    """x1 / x2, broadcast; integers give float32. Of floats by 0: an infinity or NaN.

    Element by element, in the promoted type.

    >>> tracer.divide([1, 2], 4)
    tensor([0.25, 0.5 ])
    """
    return elementwise("Div", x1, x2, floating=True)


# ---- whole quotients and remainders --------------------------------------------------------------


def _dividing(name: str, x1: Any, x2: Any) -> Tensor:
    """A division; an integer divisor that is known to hold a 0 is an error."""
    a, b = prepare(x1, x2)
    if is_integer(a.type.dtype):
        broadcast_shapes(a.type.shape, b.type.shape)  # before elements of the two are compared
        divisor = known_elements(x2, b)
        if divisor is not None and a.type.size != 0 and np.any(divisor == 0):
            raise DivisionError(
                f"{name}: the divisor {short(b.type)} holds a 0, and integers have no infinity; "
                "divide floats, or choose "
                "another divisor there with tracer.where (a compiled function gives 0 in these "
                "places)"
            )
        overflows = name == "FloorDivide" and a.type.dtype not in UNSIGNED
        dividend = known_elements(x1, a) if overflows else None
        if dividend is not None and divisor is not None:
            lowest = np.iinfo(a.type.dtype).min
            if np.any((dividend == lowest) & (divisor == -1)):
                raise IntegerOverflowError(
                    f"{name}: {lowest} // -1 does not fit {a.type.dtype}; cast to a wider type "
                    "first (a compiled function "
                    f"wraps around to {lowest})"
                )
    return apply(name, a, b)


def known_elements(given: Any, x: Tensor) -> np.ndarray[Any, Any] | None:
    """The elements of an operand that are known now.

    Of a number or list always, of a Tensor when it is no trace's.
    """
    known = MODES.interpreter.known_elements(x)
    if known is not None:
        return known
    if number_type(given) is not None or (
        isinstance(given, list | tuple) and not has_tensors(given)
    ):
        return np.asarray(given)
    return None


@public
def floor_divide(x1: Any, x2: Any, /) -> Tensor:
    """x1 / x2 rounded down, broadcast; exact for integers.

    In the promoted type. Raises `DivisionError` for an integer divisor that holds a 0,
    `IntegerOverflowError` for the most negative integer by -1. Where the values are not known, in a
    compiled function, these give 0 and wrap around.

    >>> tracer.floor_divide([7, -7], 2)
    tensor([ 3, -4])
    """
    return _dividing("FloorDivide", x1, x2)


@public
def remainder(x1: Any, x2: Any, /) -> Tensor:
    """x1 - x2 * floor(x1 / x2), with the sign of x2, broadcast. Of floats by 0: NaN.

    Raises `DivisionError` for an integer divisor that holds a 0; in a compiled function these
    places give 0.

    Element by element, in the promoted type.

    >>> tracer.remainder([7, -7], 4)
    tensor([3, 1])
    """
    return _dividing("Remainder", x1, x2)


@public
def fmod(x1: Any, x2: Any, /) -> Tensor:
    """x1 - x2 * trunc(x1 / x2), with the sign of x1, broadcast; 0 as divisor as for `remainder`.

    In the promoted type. Raises `DivisionError` for an integer divisor that holds a 0.

    >>> tracer.fmod([7, -7], 4)
    tensor([ 3, -3])
    """
    return _dividing("Fmod", x1, x2)


# ---- signs ---------------------------------------------------------------------------------------


@public
def negative(x: Any, /) -> Tensor:
    """-x. Integers wrap around. Raises `DTypeError` for bools.

    Element by element.

    >>> tracer.negative([1, -2])
    tensor([-1,  2])
    """
    return elementwise("Neg", x)


@public
def positive(x: Any, /) -> Tensor:
    """x itself.

    Of any shape and type.

    >>> tracer.positive([1, -2])
    tensor([ 1, -2])
    """
    return copied(as_tensor(x))


@public
def abs(x: Any, /) -> Tensor:
    """Absolute value. The gradient at 0 is 0.

    Element by element; the type stays. Raises `DTypeError` for bools.

    >>> tracer.abs([-2, 0, 3])
    tensor([2, 0, 3])
    """
    return elementwise("Abs", x)


@public
def sign(x: Any, /) -> Tensor:
    """-1, 0 or 1 by the sign of x; NaN for NaN.

    Element by element; the type stays. Raises `DTypeError` for bools.

    >>> tracer.sign([-2.5, 0.0, 3.0])
    tensor([-1.,  0.,  1.])
    """
    return elementwise("Sign", x)


@public
def copysign(x1: Any, x2: Any, /) -> Tensor:
    """The size of x1 with the sign of x2, broadcast; integers become float32.

    Element by element.

    >>> tracer.copysign([1.0, 2.0], [-1.0, 1.0])
    tensor([-1.,  2.])
    """
    return elementwise("CopySign", x1, x2, floating=True)


# ---- powers --------------------------------------------------------------------------------------


@public
def pow(x1: Any, x2: Any, /) -> Tensor:
    """x1 to the power of x2, broadcast; integers to integers give integers, wrapped around.

    Raises `DTypeError` for an integer to a negative integer that is known; in a compiled
    function such places give 0, but for the bases 1 and -1.

    Element by element, in the promoted type.

    >>> tracer.pow([1, 2, 3], 2)
    tensor([1, 4, 9])
    """
    if number_type(x2) is not None and isinstance(x2, int | float):
        found = _power_by_number(x1, x2)
        if found is not None:
            return found
    a, b = prepare(x1, x2)
    if a.type.dtype == "bool":
        a, b = cast(a, "int64"), cast(b, "int64")
    if is_floating(a.type.dtype):
        return apply("Pow", a, b)
    exponents = known_elements(x2, b)
    if exponents is not None and np.any(exponents < 0):
        raise DTypeError(
            f"an integer to a negative integer power is no integer ({short(a.type)} ** "
            f"{short(b.type)}); make one of them "
            "floating"
        )
    return apply("IntegerPow", a, b)


def _power_by_number(x1: Any, exponent: int | float) -> Tensor | None:
    """A power by a Python number that needs no pow.

    Products, a root or a reciprocal, each rounded once or twice.
    """
    kind = number_type(x1)
    x = strong(as_tensor(x1)) if kind is None else None
    if x is None or x.type.dtype == "bool":
        return None
    if is_floating(x.type.dtype):
        if exponent == 0.5:
            return unary_floating("Sqrt", x)
        if exponent == -1:
            return unary_floating("Reciprocal", x)
        return _product(x, int(exponent)) if exponent in (1, 2, 3) else None
    if not isinstance(exponent, int) or not 1 <= exponent < 64:
        return None
    return _product(x, exponent)


def _product(x: Tensor, exponent: int) -> Tensor:
    """x multiplied with itself.

    A square for each binary digit of the exponent, and a product for each 1.
    """
    result: Tensor | None = None
    square = x
    if exponent == 1:
        return copied(x)
    while True:
        if exponent & 1:
            result = square if result is None else apply("Mul", result, square)
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        square = apply("Mul", square, square)


@public
def square(x: Any, /) -> Tensor:
    """x * x, element by element; the type stays.

    >>> tracer.square([1, -3])
    tensor([1, 9])
    """
    x = strong(as_tensor(x))
    return apply("Mul", x, x)


@public
def sqrt(x: Any, /) -> Tensor:
    """Square root, correctly rounded; NaN below 0.

    Element by element; integers and bools become float32.

    >>> tracer.sqrt([4.0, 2.0])
    tensor([2.       , 1.4142135])
    """
    return unary_floating("Sqrt", x)


@public
def rsqrt(x: Any, /) -> Tensor:
    """1 / sqrt(x), element by element; integers and bools become float32.

    >>> tracer.rsqrt([4.0, 0.25])
    tensor([0.5, 2. ])
    """
    return unary_floating("Rsqrt", x)


@public
def reciprocal(x: Any, /) -> Tensor:
    """1 / x, element by element; integers and bools become float32.

    >>> tracer.reciprocal([2.0, 4.0])
    tensor([0.5 , 0.25])
    """
    return unary_floating("Reciprocal", x)


@public
def hypot(x1: Any, x2: Any, /) -> Tensor:
    """sqrt(x1*x1 + x2*x2) without overflow, broadcast.

    Element by element; integers and bools become float32.

    >>> tracer.hypot([3.0, 5.0], [4.0, 12.0])
    tensor([ 5., 13.])
    """
    return elementwise("Hypot", x1, x2, floating=True)


# ---- extremes ------------------------------------------------------------------------------------


@public
def maximum(x1: Any, x2: Any, /) -> Tensor:
    """The larger one, broadcast; NaN wins. In a tie each gets half of the gradient.

    Element by element, in the promoted type.

    >>> tracer.maximum([1, 5], 3)
    tensor([3, 5])
    """
    return elementwise("Maximum", x1, x2)


@public
def minimum(x1: Any, x2: Any, /) -> Tensor:
    """The smaller one, broadcast; NaN wins. In a tie each gets half of the gradient.

    Element by element, in the promoted type.

    >>> tracer.minimum([1, 5], 3)
    tensor([1, 3])
    """
    return elementwise("Minimum", x1, x2)


@public
def clip(x: Any, /, min: Any = None, max: Any = None) -> Tensor:
    """x limited to [min, max], broadcast; None leaves a side open. max where min > max.

    Element by element, in the type that x and the bounds promote to. The gradient goes to x within
    the bounds and at them, else to the bound that was taken.

    >>> tracer.clip([-2.0, 0.5, 3.0], 0, 1)
    tensor([0. , 0.5, 1. ])
    """
    if min is None and max is None:
        return copied(as_tensor(x))
    bounds = [b for b in (min, max) if b is not None]
    operands = prepare(x, *bounds)
    dtype = operands[0].type.dtype
    if min is None:
        operands.insert(1, constant(extreme(dtype, largest=False), dtype))
    if max is None:
        operands.append(constant(extreme(dtype, largest=True), dtype))
    return apply("Clip", *map(strong, operands))


# ---- rounding ------------------------------------------------------------------------------------


def _rounded(name: str, x: Any) -> Tensor:
    x = strong(as_tensor(x))
    if not is_floating(x.type.dtype):
        return copied(x)
    return apply(name, x)


@public
def floor(x: Any, /) -> Tensor:
    """The largest whole number that is not above x. Integers stay as they are.

    Element by element.

    >>> tracer.floor([1.8, -1.2])
    tensor([ 1., -2.])
    """
    return _rounded("Floor", x)


@public
def ceil(x: Any, /) -> Tensor:
    """The smallest whole number that is not below x. Integers stay as they are.

    Element by element.

    >>> tracer.ceil([1.2, -1.2])
    tensor([ 2., -1.])
    """
    return _rounded("Ceil", x)


@public
def trunc(x: Any, /) -> Tensor:
    """x without its fraction. Integers stay as they are.

    Element by element.

    >>> tracer.trunc([1.7, -1.7])
    tensor([ 1., -1.])
    """
    return _rounded("Trunc", x)


@public
def round(x: Any, /, decimals: int = 0) -> Tensor:
    """The nearest whole number (of two the even one), or multiple of 10**-decimals.

    Element by element; integers stay as they are. Raises `ArgumentError` for decimals that are no
    integer.

    >>> tracer.round([0.5, 1.5, 2.345])
    tensor([0., 2., 2.])
    >>> tracer.round(2.345, decimals=1)
    tensor(2.3)
    """
    if not isinstance(decimals, int):
        raise ArgumentError(f"decimals must be an integer, got {decimals!r}")
    x = strong(as_tensor(x))
    if decimals == 0 or not is_floating(x.type.dtype):
        return _rounded("Round", x)
    scale = 10.0 ** builtins.abs(decimals)
    if decimals > 0:
        return divide(_rounded("Round", multiply(x, scale)), scale)
    return multiply(_rounded("Round", divide(x, scale)), scale)


@public
def lerp(start: Any, end: Any, weight: Any, /) -> Tensor:
    """start + weight * (end - start), broadcast; integers become float32.

    Element by element.

    >>> tracer.lerp(0.0, [10.0, 20.0], 0.25)
    tensor([2.5, 5. ])
    """
    start, end, weight = prepare(start, end, weight, floating=True)
    return elementwise("Add", start, elementwise("Mul", weight, elementwise("Sub", end, start)))


__all__ = [
    "abs",
    "add",
    "ceil",
    "clip",
    "copysign",
    "divide",
    "floor",
    "floor_divide",
    "fmod",
    "hypot",
    "lerp",
    "maximum",
    "minimum",
    "multiply",
    "negative",
    "positive",
    "pow",
    "reciprocal",
    "remainder",
    "round",
    "rsqrt",
    "sign",
    "sqrt",
    "square",
    "subtract",
    "trunc",
]
