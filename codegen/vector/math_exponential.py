"""exp and its kin on lanes: exp2, expm1, sigmoid, tanh, sinh, cosh; branch-free straight-line text.

x = n*ln2 + r with |r| <= ln2/2, so exp(x) = 2**n * exp(r). Must not know LLVM or Numba.
"""

from __future__ import annotations

from typing import Any

from codegen.vector.formats import LOG2_E, Format, bodies, bounded, quick_sum
from codegen.vector.functions import define_function
from codegen.vector.primitives import absolute, copysign, fma, ldexp, select


def reduce(f: Format, x: Any) -> tuple[Any, Any, Any]:
    """Of x = n*ln2 + r: n as the sum whose low bits it is (for `Format.scale`), n as a number, and r."""
    shifted, n = f.nearest(x, LOG2_E)
    return shifted, n, fma(n, f.real(-f.ln2_low), fma(n, f.real(-f.ln2), x))


def power_of_e(f: Format, x: Any, extra: int = 0) -> Any:
    """exp(x) * 2**extra where x is within the bounds of the format, or NaN."""
    _, n, r = reduce(f, x)
    y = fma(f.polynomial("EXP", r), r * r, r) + f.real(1)
    return ldexp(y, n + f.real(extra) if extra else n)


def _exp(f: Format, x: Any) -> Any:
    high, low = f.real(f.most_exp), f.real(f.least_exp)
    return power_of_e(f, bounded(x, low, high))


def _exp2(f: Format, x: Any) -> Any:
    high, low = f.real(f.bias + 2), f.real(-f.bias - f.mantissa - 4)
    _, n = f.nearest(x := bounded(x, low, high))
    r = x - n
    return ldexp(fma(f.polynomial("EXP2", r), r, f.real(1)), n)


def _expm1(f: Format, x: Any) -> Any:
    high, low = f.real(f.most_exp), f.real(-45)
    shifted, _, r = reduce(f, bounded(x, low, high))
    p = fma(f.polynomial("EXP", r), r * r, r)  # exp(r) - 1
    half = f.scale(shifted, -1)  # of the result, so that the largest n is in range
    y = fma(half, p, half - f.real(0.5))
    return select(absolute(x) < f.real(2.0**-60), x, y + y)


def _sigmoid(f: Format, x: Any) -> Any:
    """With e = exp(-|x|): e/(1+e) or 1/(1+e); the division's rounding, and that of 1+e, are put
    right by its remainder.
    """
    low = f.real(f.least_exp)
    size = -absolute(x)
    e = power_of_e(f, select(size < low, low, size))
    one = f.real(1)
    below, low_part = quick_sum(one, e)
    inverse, above = one / below, select(x < f.real(0), e, one)
    y = above * inverse
    remainder = fma(-y, low_part, fma(-y, below, above))
    return fma(remainder, inverse, y)


def _tanh(f: Format, x: Any) -> Any:
    """A polynomial below 0.55, beyond it 1 - 2/(exp(2|x|) + 1)."""
    size, square = absolute(x), x * x
    near = fma(f.polynomial("TANH", square) * square, size, size)
    last = f.real(20 if f.mantissa == 23 else 40)
    y = size + size
    shifted, _, r = reduce(f, select(y > last, last, y))
    p = fma(f.polynomial("EXP", r), r * r, r)
    scale, one = f.scale(shifted), f.real(1)
    far = one - f.real(2) / fma(scale, p, scale + one)
    return copysign(select(size < f.real(0.55), near, far), x)


def _half_exp(f: Format, x: Any) -> Any:
    """exp(|x|)/2, infinite only where sinh and cosh are."""
    size, high = absolute(x), f.real(712)
    return power_of_e(f, select(size > high, high, size), -1)


def _sinh(f: Format, x: Any) -> Any:
    square = x * x
    near = fma(f.polynomial("SINH", square) * square, x, x)
    half = _half_exp(f, x)
    far = half - f.real(0.25) / half
    return select(absolute(x) < f.real(1), near, copysign(far, x))


def _cosh(f: Format, x: Any) -> Any:
    half = _half_exp(f, x)
    return half + f.real(0.25) / half


exp = define_function("exp", bodies=bodies(_exp, direct=True))
exp2 = define_function("exp2", bodies=bodies(_exp2, direct=True))
expm1 = define_function("expm1", bodies=bodies(_expm1, direct=True))
sigmoid = define_function("sigmoid", bodies=bodies(_sigmoid, direct=True))
tanh = define_function("tanh", bodies=bodies(_tanh, direct=True))
sinh = define_function("sinh", bodies=bodies(_sinh))
cosh = define_function("cosh", bodies=bodies(_cosh))
