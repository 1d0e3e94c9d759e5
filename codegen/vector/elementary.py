"""Small vector functions made of primitives: signs, classes of numbers, neighbours, high halves of
products.

Must not know LLVM or Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from codegen.vector.elements import DTYPE, FLOATS, SIGNED, bits, inf
from codegen.vector.functions import FUNCTIONS, define_function
from codegen.vector.primitives import (
    NUMBERS,
    absolute,
    from_bits,
    select,
    to_bits,
    to_i32,
    to_i64,
    to_u32,
    to_u64,
    truth,
)


def _for_each(elements: tuple[str, ...], body: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return dict.fromkeys(elements, body)


def _sign(x: Any) -> Any:
    """-1, 0 or 1; NaN stays."""
    dtype = DTYPE[x.element]
    zero, one = dtype(0), dtype(1)
    if x.element not in SIGNED + FLOATS:
        return select(x > zero, one, x)
    unit = select(x > zero, one, select(x < zero, -one, zero))
    return select(x != x, x, unit) if x.element in FLOATS else unit


def sign_mask(x: Any) -> Any:
    """The sign bit as an integer literal of the float's size."""
    width = bits(x.element)
    return DTYPE[f"i{width}"](-(2 ** (width - 1)))


def _signbit(x: Any) -> Any:
    pattern = to_bits(x)
    return pattern < DTYPE[pattern.element](0)


def _nextafter(x: Any, y: Any) -> Any:
    """The neighbour of x towards y."""
    pattern = to_bits(x)
    dtype, mask = DTYPE[pattern.element], sign_mask(x)
    one = dtype(1)
    outward = (x > DTYPE[x.element](0)) == (y > x)
    stepped = pattern + select(outward, one, -one)
    from_zero = from_bits((to_bits(y) & mask) | one)
    result = select(x == DTYPE[x.element](0), from_zero, from_bits(stepped))
    return select(x == y, y, select((x != x) | (y != y), x + y, result))


def _mul_high_32(wide: Any, narrow: Any) -> Callable[..., Any]:
    def body(x: Any, y: Any) -> Any:
        product = wide(x) * wide(y)
        return narrow(product >> DTYPE[product.element](32))

    return body


def _mul_high_u64(x: Any, y: Any) -> Any:
    u64, low = DTYPE["u64"], DTYPE["u64"](0xFFFFFFFF)
    half = u64(32)
    x_low, x_high, y_low, y_high = x & low, x >> half, y & low, y >> half
    middle = x_high * y_low + ((x_low * y_low) >> half)
    other = x_low * y_high + (middle & low)
    return x_high * y_high + (middle >> half) + (other >> half)


sign = define_function("sign", bodies=_for_each(NUMBERS, _sign))
isnan = define_function("isnan", result=truth, bodies=_for_each(FLOATS, lambda x: x != x))
isinf = define_function(
    "isinf", result=truth, bodies=_for_each(FLOATS, lambda x: absolute(x) == DTYPE[x.element](inf))
)
isfinite = define_function(
    "isfinite",
    result=truth,
    bodies=_for_each(FLOATS, lambda x: absolute(x) < DTYPE[x.element](inf)),
)
signbit = define_function("signbit", result=truth, bodies=_for_each(FLOATS, _signbit))
nextafter = define_function("nextafter", 2, bodies=_for_each(FLOATS, _nextafter))
mul_high = define_function(  # the high half of the double-width product
    "mul_high",
    2,
    i32=_mul_high_32(to_i64, to_i32),
    u32=_mul_high_32(to_u64, to_u32),
    u64=_mul_high_u64,
)
ELEMENTARY = tuple(n for n in FUNCTIONS if n in globals())
