"""pow, rsqrt, cbrt, hypot on lanes. Must not know LLVM or Numba."""

from __future__ import annotations

from typing import Any

from codegen.vector.elements import f64, inf, nan, u64
from codegen.vector.formats import F64, SHORT, Format, bodies, bounded, quick_sum, two_product
from codegen.vector.functions import define_function
from codegen.vector.math_logarithm import PIECES, series, split
from codegen.vector.primitives import (
    absolute,
    copysign,
    floor,
    fma,
    from_bits,
    ldexp,
    select,
    sqrt,
    to_bits,
    to_u64,
    trunc,
)


def _log2_short(x: Any) -> tuple[Any, Any]:
    """log2 of a positive normal number as a sum, 2**-35 right: enough to be rounded to float32."""
    n, y, _ = split(SHORT, x, denormals=False)
    half, rest, _ = series(SHORT, y)
    return n, (y + (rest - half)) * f64(PIECES["LOG2_E"][0])


def _log2_double(x: Any) -> tuple[Any, Any]:
    """log2 of a positive finite number as a double word, about 2**-68 right."""
    n, y, _ = split(F64, x)
    one, two = f64(1), f64(2)
    # s = y/(2+y), twice as a double word
    below, below_low = quick_sum(two, y)
    inverse = one / below
    s = y * inverse
    s_low = fma(-s, below_low, fma(-s, below, y)) * inverse
    square, square_low = two_product(s, s)
    square_low = fma(s + s, s_low, square_low)
    # log(1+y) = 2s + s*square*(2/3 + square*tail)
    cube, cube_low = two_product(s, square)
    cube_low = fma(s, square_low, fma(s_low, square, cube_low))
    third, third_low = f64(2 / 3), f64(3.700743415417188e-17)
    tail = F64.polynomial("LOG_TAIL", square) * square
    factor, factor_low = quick_sum(third, tail)
    term, term_low = two_product(cube, factor)
    term_low = term_low + fma(cube, factor_low + third_low, cube_low * factor)
    high, low = quick_sum(s + s, term)
    low = low + (s_low + s_low + term_low)
    high, low = quick_sum(high, low)
    ratio, ratio_low = map(f64, PIECES["LOG2_E"])
    product, error = two_product(high, ratio)
    error = fma(high, ratio_low, fma(low, ratio, error))
    total, left = quick_sum(n, product)
    return quick_sum(total, left + error)


def _exp2_of_product(y: Any, log: tuple[Any, Any]) -> Any:
    """2**(y * (high + low))."""
    high, low = log
    product, error = two_product(y, high)
    error = fma(y, low, error)
    error = select(absolute(product) < f64(2000), error, f64(0))
    product = bounded(product, f64(-2000), f64(2000))
    _, n = F64.nearest(product)
    r = product - n
    p = F64.polynomial("EXP2", r)
    # 2**(r + error) = 1 + r*p + error*ln2*(1 + r*p)
    main, left = two_product(r, p)
    total, rest = quick_sum(f64(1), main)
    rest = rest + fma(error * f64(F64.ln2), total, left)
    return ldexp(total + rest, n)


def _exp2_short(y: Any, log: tuple[Any, Any]) -> Any:
    product = y * (log[0] + log[1])
    product = bounded(product, f64(-2000), f64(2000))
    _, n = SHORT.nearest(product)
    r = product - n
    return ldexp(fma(SHORT.polynomial("EXP2", r), r, f64(1)), n)


def _pow(f: Format, x: Any, y: Any) -> Any:
    """x**y with C's special cases, NumPy's too."""
    zero, one, infinity = f64(0), f64(1), f64(inf)
    size = absolute(x)
    ordinary = (size > zero) & (size < infinity)
    inner = select(ordinary, size, one)
    log = _log2_short(inner) if f.name == "SHORT" else _log2_double(inner)
    value = (_exp2_short if f.name == "SHORT" else _exp2_of_product)(y, log)
    # 0 and infinity to a power; infinite powers come out of the product unless the base's size is 1
    rises = (size > one) ^ (y < zero)
    value = select(ordinary, value, select(rises, infinity, zero))
    value = select((absolute(y) == infinity) & (size == one), one, value)
    whole = trunc(y) == y
    half = y * f64(0.5)
    odd = whole & (trunc(half) != half) & (absolute(y) < infinity)
    negative = to_u64(to_bits(x)) >= u64(1 << 63)
    value = select(odd & negative, -value, value)
    value = select((x < zero) & (size < infinity) & ~whole, f64(nan), value)
    value = select((x != x) | (y != y), x + y, value)
    return select((x == one) | (y == zero), one, value)


def _rsqrt(f: Format, x: Any) -> Any:
    return f.real(1) / sqrt(x)


def _cbrt(f: Format, x: Any) -> Any:
    """A polynomial guess on [1, 8), then one or two steps of Halley's rule."""
    size = absolute(x)
    small = size < f64(2.0**-1022)
    scaled = select(small, size * f64(2.0**54), size)
    bits = to_u64(to_bits(scaled))
    exponent = F64.number(bits >> u64(52)) - f64(1023)
    third = floor(exponent * f64(1 / 3) + f64(1e-9))
    left = exponent - third * f64(3)  # 0, 1 or 2
    mantissa = from_bits((bits & u64(0xFFFFFFFFFFFFF)) | u64(0x3FF0000000000000))
    t = mantissa * select(left == f64(0), f64(1), select(left == f64(1), f64(2), f64(4)))
    root = F64.polynomial("CBRT", t)
    for _ in range(1 if f.name == "SHORT" else 2):
        cube = root * root * root
        root = root - root * ((cube - t) / fma(f64(2), cube, t))
    third = select(small, third - f64(18), third)
    shifted, _ = F64.nearest(third)
    root = root * F64.scale(shifted)
    ordinary = (size > f64(0)) & (size < f64(inf))
    return select(ordinary, copysign(root, x), x)


def _hypot(f: Format, x: Any, y: Any) -> Any:
    """Scaled by the larger one's power of two."""
    a, b = absolute(x), absolute(y)
    larger = select(a > b, a, b)
    exponent = F64.bits(larger) & u64(0x7FF0000000000000)
    exponent = select(exponent > u64(0x7FC0000000000000), u64(0x7FC0000000000000), exponent)
    exponent = select(exponent < u64(0x0400000000000000), u64(0x0400000000000000), exponent)
    down, up = from_bits(u64(0x7FE0000000000000) - exponent), from_bits(exponent)
    a, b = a * down, b * down
    root = sqrt(fma(a, a, b * b)) * up
    infinite = (absolute(x) == f64(inf)) | (absolute(y) == f64(inf))
    return select(infinite, f64(inf), select((x != x) | (y != y), x + y, root))


power = define_function("pow", 2, bodies=bodies(_pow))
rsqrt = define_function("rsqrt", bodies=bodies(_rsqrt, direct=True))
cbrt = define_function("cbrt", bodies=bodies(_cbrt))
hypot = define_function("hypot", 2, bodies=bodies(_hypot))
