"""exp, log and tanh on lanes: branch-free straight-line text.

Coefficients: interpolation at Chebyshev nodes in 60-digit arithmetic, rounded. Must not know LLVM or Numba.
"""

from __future__ import annotations

from typing import Any

from codegen.vector.elements import f32, f64, i32, i64, inf, nan
from codegen.vector.functions import define_function, polynomial
from codegen.vector.primitives import fma, from_bits, select, to_bits, to_f32

# (exp(r)-1-r)/r**2
EXP_F32 = (0.0013926181709393859, 0.008363177999854088, 0.041666556149721146, 0.16666576266288757, 0.5)
EXP_F64 = (
    2.510038319586702e-08,
    2.7620085455018414e-07,
    2.7557268464831627e-06,
    2.4801521302241082e-05,
    0.00019841269863050506,
    0.001388888891720967,
    0.008333333333330063,
    0.041666666666624136,
    0.16666666666666669,
    0.5,
)
# (log(1+f)-f+f*f/2)/f**3
LOG_F32 = (
    0.0696975365281105,
    -0.1147918775677681,
    0.11685796082019806,
    -0.12425776571035385,
    0.14249032735824585,
    -0.16667798161506653,
    0.20000717043876648,
    -0.2499999701976776,
    0.3333333134651184,
)


def exp_f32(x: Any) -> Any:
    x = select(x > f32(89), f32(89), select(x < f32(-104), f32(-104), x))  # NaN stays
    shifted = fma(x, f32(1.4426950408889634), f32(12582912))  # the nearest integer, in the low bits
    n = shifted - f32(12582912)
    r = fma(n, f32(1.9046542e-09), fma(n, f32(-0.6931471824645996), x))
    y = fma(polynomial(r, EXP_F32), r * r, r) + f32(1)
    k = to_bits(shifted) - i32(0x4B400000 - 2 * 127)  # n and twice the exponent's bias
    half = k >> i32(1)  # two factors, so that denormals round once
    return y * from_bits(half << i32(23)) * from_bits((k - half) << i32(23))


def exp_f64(x: Any) -> Any:
    x = select(x > f64(710), f64(710), select(x < f64(-746), f64(-746), x))
    shifted = fma(x, f64(1.4426950408889634), f64(6755399441055744))
    n = shifted - f64(6755399441055744)
    r = fma(n, f64(-2.3190468138462996e-17), fma(n, f64(-0.6931471805599453), x))
    y = fma(polynomial(r, EXP_F64), r * r, r) + f64(1)
    k = to_bits(shifted) - i64(0x4338000000000000 - 2 * 1023)
    half = k >> i64(1)
    return y * from_bits(half << i64(52)) * from_bits((k - half) << i64(52))


def log_f32(x: Any) -> Any:
    small = x < f32(1.17549435e-38)
    b = to_bits(select(small, x * f32(8388608), x))
    k = (b - i32(0x3F3504F3)) >> i32(23)  # x = 2**k * (1+f), 1+f in [sqrt(1/2), sqrt(2))
    f = from_bits(b - (k << i32(23))) - f32(1)
    n = to_f32(k) - to_f32(small) * f32(23)
    square = f * f
    tail = fma(polynomial(f, LOG_F32), square * f, f32(-0.5) * square)
    y = fma(n, f32(0.693145751953125), f + fma(n, f32(1.428606765330187e-06), tail))
    y = select(x == f32(0), f32(-inf), select(x == f32(inf), x, y))
    return select(x < f32(0), f32(nan), select(x != x, x, y))


def tanh_f32(x: Any) -> Any:
    sign = to_bits(x) & i32(-2147483648)
    size = from_bits(to_bits(x) & i32(0x7FFFFFFF))
    y = select(size > f32(10), f32(20), size + size)
    shifted = fma(y, f32(1.4426950408889634), f32(12582912))
    n = shifted - f32(12582912)
    r = fma(n, f32(1.9046542e-09), fma(n, f32(-0.6931471824645996), y))
    p = fma(polynomial(r, EXP_F32), r * r, r)  # exp(r) - 1
    scale = from_bits((to_bits(shifted) - i32(0x4B400000 - 127)) << i32(23))
    e = fma(scale, p, scale - f32(1))  # exp(2|x|) - 1
    return from_bits(to_bits(e / (e + f32(2))) | sign)


exp = define_function("exp", f32=exp_f32, f64=exp_f64)
log = define_function("log", f32=log_f32)
tanh = define_function("tanh", f32=tanh_f32)
