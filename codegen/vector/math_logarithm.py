"""Logarithms on lanes, and what is made of one: log, log2, log10, log1p, asinh, acosh, atanh,
logaddexp, softplus.

x = 2**n * (1+f) with 1+f from sqrt(1/2) to sqrt(2). Arguments near 1 come as a double word, so that
what was lost in 1 + x is not lost in its logarithm. Must not know LLVM or Numba.
"""

from __future__ import annotations

from typing import Any

from codegen.vector.elements import inf, nan
from codegen.vector.formats import F32, F64, Format, bodies, quick_sum, two_product, two_sum
from codegen.vector.functions import define_function
from codegen.vector.math_exponential import power_of_e
from codegen.vector.primitives import absolute, copysign, fma, from_bits, select, sqrt

SQRT_HALF = {23: 0x3F3504F3, 52: 0x3FE6A09E667F3BCD}
# 1/ln2, 1/ln10 and log10(2) as double words. The last one's high part has trailing zeros.
PIECES = {
    "LOG2_E": (1.4426950408889634, 2.0355273740931033e-17),
    "LOG10_E": (0.4342944819032518, 1.098319650216765e-17),
    "LOG10_2": (0.30102999566395283, 2.8363394551044964e-14),
}


def split(f: Format, x: Any, denormals: bool = True) -> tuple[Any, Any, Any]:
    """n, f and the exponent's bits of 2**-n, for positive finite x."""
    small = x < f.tiny
    bits = f.bits(select(small, x * f.real(2.0**f.mantissa), x) if denormals else x)
    shift, offset = f.whole(f.mantissa), f.whole(f.bias << f.mantissa)
    k = ((bits - f.whole(SQRT_HALF[f.mantissa]) + offset) >> shift) - f.whole(f.bias)
    exponent = k << shift
    fraction = from_bits(bits - exponent) - f.real(1)
    n = f.number(k)
    if denormals:
        n = n - select(small, f.real(f.mantissa), f.real(0))
    return n, fraction, exponent


def at_ends(f: Format, x: Any, y: Any) -> Any:
    """The logarithm y of x, where x is 0, infinite, negative or NaN."""
    y = select(x == f.real(0), f.real(-inf), y)
    y = select(x < f.real(inf), y, x)
    return select(x < f.real(0), f.real(nan), y)


def _log_f32(x: Any) -> Any:
    """A polynomial in f: for float32 that is cheaper than a division."""
    f = F32
    n, y, _ = split(f, x)
    square = y * y
    tail = fma(f.polynomial("LOG", y), square * y, f.real(-0.5) * square)
    return at_ends(f, x, fma(n, f.real(f.ln2_round), y + fma(n, f.real(f.ln2_rest), tail)))


def series(f: Format, y: Any) -> tuple[Any, Any, Any]:
    """half = y*y/2, rest and s of log(1+y) = y - half + rest, by the series of s = y/(2+y)."""
    s = y / (y + f.real(2))
    square, half = s * s, f.real(0.5) * y * y
    return half, s * (half + f.polynomial("LOG_SERIES", square) * square), s


def natural(f: Format, n: Any, y: Any, low: Any = None) -> Any:
    """n*ln2 + log(1 + y + low)."""
    if low is not None:
        y, low = quick_sum(y, low)
    half, rest, s = series(f, y)
    rest = fma(n, f.real(f.ln2_rest), rest)
    if low is not None:  # 1/(1+y) = 1 - 2s + 2s*s - ...
        rest = fma(low, fma(s + s, s - f.real(1), f.real(1)), rest)
    return fma(n, f.real(f.ln2_round), y + (rest - half))


def _log(f: Format, x: Any) -> Any:
    n, y, _ = split(f, x, denormals=f is F64)
    return at_ends(f, x, natural(f, n, y))


def log_of_sum(f: Format, x: Any, low: Any, times_two: Any = None) -> Any:
    """log(x + low) for a double word of normal, positive size; log(2x) where the mask `times_two`
    is true.
    """
    n, y, exponent = split(f, x, denormals=False)
    # By 2**-n in two steps: the largest n has no normal inverse.
    low = f.real(0.5) * low * from_bits(f.whole((f.bias + 1) << f.mantissa) - exponent)
    if times_two is not None:
        n = n + select(times_two, f.real(1), f.real(0))
    return natural(f, n, y, low)


def _of_base(base: str, f: Format, x: Any) -> Any:
    """log2, log10: the natural logarithm as a double word, times 1/ln of the base."""
    n, y, _ = split(f, x, denormals=f is F64)
    half, rest, _ = series(f, y)
    lost = fma(f.real(0.5) * y, y, -half)
    high, low = quick_sum(y, -half)
    factor, factor_low = map(f.real, PIECES[f"{base}_E"])
    product, error = two_product(high, factor)
    error = fma(high, factor_low, fma((low - lost) + rest, factor, error))
    if base == "LOG10":
        n_high, n_low = map(f.real, PIECES["LOG10_2"])
        error = fma(n, n_low, error)
        n = n * n_high
    total, left = quick_sum(n, product)
    return at_ends(f, x, total + (left + error))


def _log2(f: Format, x: Any) -> Any:
    return _of_base("LOG2", f, x)


def _log10(f: Format, x: Any) -> Any:
    return _of_base("LOG10", f, x)


def _log1p(f: Format, x: Any) -> Any:
    total, low = two_sum(f.real(1), x)
    y = at_ends(f, total, log_of_sum(f, total, low))
    return select(absolute(x) < f.real(2.0**-60), x, y)


def root_of_sum(f: Format, high: Any, low: Any) -> tuple[Any, Any]:
    """sqrt(high + low) as a double word."""
    root = sqrt(high)
    left = fma(-root, root, high) + low
    correction = left * (f.real(0.5) / root)
    return root, select(root == f.real(0), f.real(0), correction)


def _asinh(f: Format, x: Any) -> Any:
    size = absolute(x)
    large = size > f.real(2.0**30)
    a = select(large, f.real(1), size)
    square, error = two_product(a, a)
    below, lost = two_sum(f.real(1), square)
    root, root_low = root_of_sum(f, below, lost + error)
    total, low = quick_sum(root, a)
    total, low = select(large, size, total), select(large, f.real(0), low + root_low)
    y = select(size < f.real(inf), log_of_sum(f, total, low, large), size)
    return copysign(select(size < f.real(2.0**-30), size, y), x)


def _acosh(f: Format, x: Any) -> Any:
    large = x > f.real(2.0**30)
    a = select(large, f.real(1), x)
    square, error = two_product(a, a)
    below, lost = quick_sum(square, f.real(-1))
    below, lost = quick_sum(below, lost + error)
    root, root_low = root_of_sum(f, below, lost)
    total, low = quick_sum(a, root)
    total, low = select(large, x, total), select(large, f.real(0), low + root_low)
    y = log_of_sum(f, total, low, large)
    return select(x < f.real(inf), select(x < f.real(1), f.real(nan), y), x)


def _atanh(f: Format, x: Any) -> Any:
    """Half the logarithm of 1 + 2|x|/(1-|x|)."""
    size, one = absolute(x), f.real(1)
    below = one - size
    lost = (one - below) - size
    twice, inverse = size + size, one / below
    q = twice * inverse
    q_low = fma(-q, lost, fma(-q, below, twice)) * inverse
    total, low = two_sum(one, q)
    y = f.real(0.5) * log_of_sum(f, total, low + q_low)
    y = select(size < f.real(2.0**-30), size, y)
    y = select(size < one, y, select(size == one, f.real(inf), f.real(nan)))
    return copysign(y, x)


def plus_log(f: Format, high: Any, difference: Any) -> Any:
    """high + log(1 + exp(difference)) for a difference that is not positive."""
    low = f.real(f.least_exp)
    e = power_of_e(f, select(difference < low, low, difference))
    total, error = quick_sum(f.real(1), e)
    return high + log_of_sum(f, total, error)


def _softplus(f: Format, x: Any) -> Any:
    zero = f.real(0)
    return plus_log(f, select(x < zero, zero, x), -absolute(x))


def _logaddexp(f: Format, x: Any, y: Any) -> Any:
    """Equal operands, infinite ones too, give x + ln2; the rest is as in softplus."""
    larger = select(x > y, x, y)
    difference = select(x == y, f.real(0), -absolute(x - y))
    return plus_log(f, larger, difference)


log = define_function("log", f32=_log_f32, f64=lambda x: _log(F64, x))
log2 = define_function("log2", bodies=bodies(_log2))
log10 = define_function("log10", bodies=bodies(_log10))
log1p = define_function("log1p", bodies=bodies(_log1p, direct=True))
asinh = define_function("asinh", bodies=bodies(_asinh))
acosh = define_function("acosh", bodies=bodies(_acosh))
atanh = define_function("atanh", bodies=bodies(_atanh))
softplus = define_function("softplus", bodies=bodies(_softplus, direct=True))
logaddexp = define_function("logaddexp", 2, bodies=bodies(_logaddexp, direct=True))
