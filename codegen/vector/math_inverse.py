"""asin, acos, atan, atan2 on lanes. Must not know LLVM or Numba."""

from __future__ import annotations

from typing import Any

from codegen.vector.elements import f64, inf, u64
from codegen.vector.formats import Format, bodies, quick_sum, two_product
from codegen.vector.functions import define_function
from codegen.vector.primitives import (
    absolute,
    copysign,
    fma,
    from_bits,
    select,
    sqrt,
    to_bits,
    to_u64,
)

PI_HALF, PI_HALF_LOW = 1.5707963267948966, 6.123233995736766e-17
PI_QUARTER, PI_QUARTER_LOW = 0.7853981633974483, 3.061616997868383e-17


def _reduce_sine(f: Format, x: Any) -> tuple[Any, Any, Any, Any]:
    """For |x| beyond 1/2 (the mask) s = sqrt((1-|x|)/2), else |x|; what asin(s) is above s, and s'
    own error.
    """
    size, half = absolute(x), f64(0.5)
    large = size > half
    square = select(large, fma(size, -half, half), x * x)
    root = sqrt(square)
    s = select(large, root, size)
    rest = f.polynomial("ASIN", square) * (square * s)
    if f.name == "SHORT":
        return large, s, rest, f64(0)
    lost = select(large & (square > f64(0)), fma(-root, root, square) * (half / root), f64(0))
    return large, s, rest, lost


def _asin(f: Format, x: Any) -> Any:
    large, s, rest, lost = _reduce_sine(f, x)
    high, low = quick_sum(f64(PI_HALF), s * f64(-2))
    far = high + (low + (f64(PI_HALF_LOW) - (rest + lost) * f64(2)))
    return copysign(select(large, far, s + rest), x)


def _acos(f: Format, x: Any) -> Any:
    """pi/2 - asin(x) near 0, 2 asin(s) near 1, pi minus that near -1."""
    large, s, rest, lost = _reduce_sine(f, x)
    rest = rest + lost
    s, rest = select(large, s * f64(2), s), select(large, rest * f64(2), rest)
    negative = x < f64(0)
    # start - s - rest, or start + s + rest
    start = select(large, select(negative, f64(2 * PI_HALF), f64(0)), f64(PI_HALF))
    start_low = select(large, select(negative, f64(2 * PI_HALF_LOW), f64(0)), f64(PI_HALF_LOW))
    plus = large ^ negative  # near 1 and, through asin(-x) = -asin(x), between -1/2 and 0
    s, rest = select(plus, s, -s), select(plus, rest, -rest)
    high, low = quick_sum(start, s)
    return high + (low + (start_low + rest))


def arc_tangent(f: Format, above: Any, below: Any) -> tuple[Any, Any, Any]:
    """atan(above/below) = k*pi/4 + angle for 0 <= above <= below, below positive: k (0 or 1), the
    angle, its correction.
    """
    steep = above > below * f64(0.4142135623730950)
    top, bottom = select(steep, above - below, above), select(steep, above + below, below)
    inverse = f64(1) / bottom
    t = top * inverse
    lost = fma(-t, bottom, top) * inverse
    square = t * t
    return select(steep, f64(1), f64(0)), t, fma(f.polynomial("ATAN", square), square * t, lost)


def _place(k: Any, angle: Any, rest: Any) -> Any:
    """k*pi/4 + angle + rest, rounded once or so."""
    high, low = two_product(k, f64(PI_QUARTER))
    low = fma(k, f64(PI_QUARTER_LOW), low)
    total, lost = quick_sum(high, angle)
    return total + (lost + (low + rest))


def _atan(f: Format, x: Any) -> Any:
    size, one = absolute(x), f64(1)
    large = size > one
    bounded = select(size < f64(2.0**60), size, f64(2.0**60))  # beyond it pi/2, and no infinities
    bounded = select(size == size, bounded, size)
    k, angle, rest = arc_tangent(f, select(large, one, bounded), select(large, bounded, one))
    k = select(large, f64(2) - k, k)
    angle, rest = select(large, -angle, angle), select(large, -rest, rest)
    return copysign(_place(k, angle, rest), x)


def _atan2(f: Format, y: Any, x: Any) -> Any:
    """The angle of the point (x, y): of the smaller over the larger size, put into its octant."""
    zero, one, infinity = f64(0), f64(1), f64(inf)
    rise, run = absolute(y), absolute(x)
    steep = rise > run
    above, below = select(steep, run, rise), select(steep, rise, run)
    # Both 0 count as 0/1, both infinite as 1/1, one infinite as 0/1.
    endless = below == infinity
    above = select(above == infinity, one, select(endless, zero, above))
    below = select(endless | (below == zero), one, below)
    quotient = above / below
    tiny = above < f64(2.0**-960) * below
    # Sizes are brought near 1, where sums and inverses are in range.
    exponent = to_u64(to_bits(below)) & u64(0x7FF0000000000000)
    scale = from_bits(u64(0x7FE0000000000000) - exponent)
    scale = select(exponent > u64(0x7FC0000000000000), f64(2.0**-1021), scale)
    k, angle, rest = arc_tangent(f, above * scale, below * scale)
    left = to_u64(to_bits(x)) >= u64(1 << 63)
    k = select(steep, f64(2) - k, k)
    k = select(left, f64(4) - k, k)
    minus = steep ^ left
    result = _place(k, select(minus, -angle, angle), select(minus, -rest, rest))
    result = select(tiny & ~steep & ~left, quotient, result)  # denormal quotients stay as they are
    return select((x != x) | (y != y), x + y, copysign(result, y))


asin = define_function("asin", bodies=bodies(_asin))
acos = define_function("acos", bodies=bodies(_acos))
atan = define_function("atan", bodies=bodies(_atan))
atan2 = define_function("atan2", 2, bodies=bodies(_atan2))
