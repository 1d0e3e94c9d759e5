"""sin, cos, tan on lanes, right for every argument.

x = n*pi/2 + r, |r| <= pi/4, r a double word. Up to 2**28 three pieces of pi/2 give it; beyond, 2/pi
is multiplied by the argument's integer in 192-bit arithmetic, in a block that is jumped over when
no lane needs it. float32 is computed in float64 lanes. Must not know LLVM or Numba.
"""

from __future__ import annotations

from typing import Any

from codegen.vector.elementary import mul_high
from codegen.vector.elements import f64, i64, inf, u64
from codegen.vector.formats import Format, bodies, quick_sum, two_product, two_sum
from codegen.vector.functions import define_function
from codegen.vector.primitives import (
    absolute,
    fma,
    from_bits,
    select,
    to_bits,
    to_f64,
    to_i64,
    to_u64,
    two_over_pi,
)
from codegen.vector.readings import rarely

PI_HALVES = 1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33
REACH = 2.0**28


def pattern(x: Any) -> Any:
    """The bit pattern of f64 lanes as u64."""
    return to_u64(to_bits(x))


def _near(f: Format, size: Any) -> tuple[Any, Any, Any]:
    """Quadrant (its low bits), r and its low part (nothing of meaning in SHORT), for |x| up to
    REACH.
    """
    shifted, n = f.nearest(size, 0.6366197723675814)
    high, middle, low = map(f64, PI_HALVES)
    exact = fma(-n, high, size)
    if f.name == "SHORT":
        r = fma(-n, middle, exact)
        return f.bits(shifted), r, r
    product, error = two_product(n, middle)
    r, left = two_sum(exact, -product)
    left = left - fma(n, low, error)
    r, left = quick_sum(r, left)
    return f.bits(shifted), r, left


def _window(start: Any, count: int) -> list[Any]:
    """`count` words of 64 bits of 2/pi from a bit position on, lowest last."""
    word, offset = to_i64(start >> u64(6)), start & u64(63)
    words = [two_over_pi(word + i64(k)) for k in range(count + 1)]
    below = u64(64) - offset  # a shift by 64 leaves nothing, as it should
    return [(words[k] << offset) | (words[k + 1] >> below) for k in range(count)]


def _far(size: Any) -> tuple[Any, Any, Any]:
    """The same for any finite size above 1, by Payne and Hanek: only bits of the product below 4
    quadrants are kept.
    """
    bits = pattern(size)
    integer = (bits & u64(0xFFFFFFFFFFFFF)) | u64(0x10000000000000)
    # size = integer * 2**(exponent - 1075); bits of 2/pi that stand for multiples of 4 quadrants
    # are left out.
    high, middle, low = _window((bits >> u64(52)) - u64(1075 - 62), 3)
    carried = mul_high(integer, low)
    second = carried + integer * middle
    carry = select(second < carried, u64(1), u64(0))
    first = (
        mul_high(integer, middle) + integer * high + carry
    )  # 2 bits of quadrant, then the fraction
    quadrant = (first + u64(1 << 61)) >> u64(62)
    fraction = first - (quadrant << u64(62))  # signed: from -1/2 to 1/2 quadrant
    half = u64(0xFFFFFFFF)
    top = to_f64(to_i64(fraction) >> i64(32)) * f64(2.0**-30)
    pieces = (
        to_f64(fraction & half) * f64(2.0**-62),
        to_f64(second >> u64(32)) * f64(2.0**-94),
        to_f64(second & half) * f64(2.0**-126),
    )
    total, rest = two_sum(top, pieces[0])
    total, more = two_sum(total, pieces[1])
    total, rest = quick_sum(total, rest + more + pieces[2])
    pi_high, pi_low, _ = map(f64, PI_HALVES)
    r, error = two_product(total, pi_high)
    error = error + fma(total, pi_low, rest * pi_high)
    r, error = quick_sum(r, error)
    return quadrant, r, error


def reduce(f: Format, x: Any) -> tuple[Any, Any, Any]:
    """Quadrant (its low two bits), r and its low part (None in SHORT) of |x|; NaN of what is not
    finite.
    """
    size = absolute(x)
    near = _near(f, size)
    huge = (size > f64(REACH)) & (size < f64(inf))
    found = rarely(huge, _far, (select(huge, size, f64(2.0**60)),), near)
    low = found[2] if f.name == "F64" else None
    return found[0], found[1] + (x - x), low  # x - x is NaN for NaN and infinities


def sine(f: Format, r: Any, low: Any) -> tuple[Any, Any]:
    """sin(r + low) as a sum of two numbers, the second small."""
    square = r * r
    tail = f.polynomial("SIN", square)
    rest = square * r
    return r, tail * rest if low is None else fma(tail, rest, low)


def cosine(f: Format, r: Any, low: Any) -> tuple[Any, Any]:
    """cos(r + low) likewise."""
    square, one = r * r, f64(1)
    half = square * f64(0.5)
    main = one - half
    tail = square * square
    if low is None:
        return main, fma(f.polynomial("COS", square), tail, (one - main) - half)
    # square is rounded; its error counts half.
    lost = fma(r, r, -square) * f64(0.5)
    rest = fma(-r, low, ((one - main) - half) - lost)
    return main, fma(f.polynomial("COS", square), tail, rest)


def _signed(value: Any, quadrant: Any, odd: Any) -> Any:
    """`value` negated where bit 1 of the quadrant is set, and once more where `odd` has the sign
    bit.
    """
    flips = (quadrant & u64(2)) << u64(62)
    return from_bits(pattern(value) ^ (flips ^ odd))


def _sin(f: Format, x: Any) -> Any:
    quadrant, r, low = reduce(f, x)
    (s, s_low), (c, c_low) = sine(f, r, low), cosine(f, r, low)
    swapped = (quadrant & u64(1)) != u64(0)
    value = select(swapped, c + c_low, s + s_low)
    return _signed(value, quadrant, pattern(x) & u64(1 << 63))


def _cos(f: Format, x: Any) -> Any:
    quadrant, r, low = reduce(f, x)
    (s, s_low), (c, c_low) = sine(f, r, low), cosine(f, r, low)
    swapped = (quadrant & u64(1)) != u64(0)
    value = select(swapped, s + s_low, c + c_low)
    return _signed(value, quadrant + (quadrant & u64(1)), u64(0))


def _tan(f: Format, x: Any) -> Any:
    """sin/cos, or -cos/sin in odd quadrants; the division's error is put right by its remainder."""
    quadrant, r, low = reduce(f, x)
    (s, s_low), (c, c_low) = sine(f, r, low), cosine(f, r, low)
    s, s_low = quick_sum(s, s_low)
    c, c_low = quick_sum(c, c_low)
    swapped = (quadrant & u64(1)) != u64(0)
    above, above_low = select(swapped, c, s), select(swapped, c_low, s_low)
    below, below_low = select(swapped, s, c), select(swapped, s_low, c_low)
    inverse = f64(1) / below
    y = above * inverse
    remainder = fma(-y, below_low, fma(-y, below, above) + above_low)
    y = fma(remainder, inverse, y)
    y = select(below == f64(0), above * inverse, y)
    flips = (quadrant & u64(1)) << u64(63)
    return from_bits(pattern(y) ^ flips ^ (pattern(x) & u64(1 << 63)))


sin = define_function("sin", bodies=bodies(_sin))
cos = define_function("cos", bodies=bodies(_cos))
tan = define_function("tan", bodies=bodies(_tan))
