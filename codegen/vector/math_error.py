"""erf and erfc on lanes. Must not know LLVM or Numba."""

from __future__ import annotations

from typing import Any

from codegen.vector.formats import F64, LOG2_E, Format, bodies, quick_sum, two_product, two_sum
from codegen.vector.functions import define_function
from codegen.vector.math_exponential import reduce
from codegen.vector.primitives import absolute, copysign, fma, ldexp, select


def near_zero(f: Format, x: Any) -> Any:
    """erf(x) by its polynomial."""
    return fma(f.polynomial("ERF", x * x), x, x)


def _erf(f: Format, x: Any) -> Any:
    """A polynomial up to about 1, beyond it 1 - exp(polynomial)."""
    size, one = absolute(x), f.real(1)
    split, last = (0.93, 3.95) if f.mantissa == 23 else (1.0, 5.95)
    inner = select(size > f.real(last), f.real(last), size)
    shifted, _, r = reduce(f, f.polynomial("ERF_FAR", inner))
    p = fma(f.polynomial("EXP", r), r * r, r)
    scale = f.scale(shifted)
    far = one - fma(scale, p, scale)
    return select(size < f.real(split), near_zero(f, x), copysign(far, x))


def _erfc(f: Format, x: Any) -> Any:
    """exp(-x*x) times a rational function of size; the square and the division as double words."""
    size, one = absolute(x), f.real(1)
    last = f.real(28)
    size = select(size > last, last, size)
    four = f.real(4)
    q = (size - four) / (size + four)
    above, above_low = quick_sum(f.real(1.1875), f.polynomial("ERFC", q))
    below, below_low = two_sum(one, size + size)
    inverse = one / below
    g = above * inverse
    g_low = (fma(-g, below_low, fma(-g, below, above)) + above_low) * inverse
    square, lost = two_product(size, -size)
    # exp(square + lost) = 2**n * (main + rest)
    _, n = f.nearest(square, LOG2_E)
    exact = fma(n, f.real(-f.ln2), square)
    low = fma(n, f.real(-f.ln2_low), lost)
    r = exact + low
    main, left = quick_sum(one, exact)
    rest = fma(f.polynomial("EXP", r), r * r, low + left)
    value = fma(g, main, fma(g, rest, g_low * main))
    far = ldexp(value, n)
    far = select(x < f.real(0), f.real(2) - far, far)
    near = one - near_zero(F64, x)  # f is F64 or SHORT
    return select(absolute(x) < f.real(0.5), near, select(x != x, x, far))


erf = define_function("erf", bodies=bodies(_erf, direct=True))
erfc = define_function("erfc", bodies=bodies(_erfc))
