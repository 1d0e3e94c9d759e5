"""RECIPES: what each table of `codegen/vector/tables.py` approximates. Read by `coefficients.py`.

Names end in the format of the coefficients: _F32, _F64, or _SHORT for float64 coefficients that are
exact enough to be rounded to float32 afterwards. Odd and even functions are polynomials in z = x*x.
"""

from __future__ import annotations

from typing import Any

import mpmath as mp  # type: ignore[import-untyped]

from benchmarks.vector_math.coefficients import Function, Recipe

mp.mp.dps = 60
HALF_LN2 = mp.log(2) / 2 * mp.mpf("1.0001")
ROOT_HALF = mp.sqrt(mp.mpf(1) / 2)
TINY = mp.mpf("1e-18")
ELEMENT = {"F32": "f32", "F64": "f64", "SHORT": "f64"}

RECIPES: dict[str, Recipe] = {}


def recipe(
    name: str, function: Function, low: Any, high: Any, weight: Function, **counts: int
) -> None:
    """A table for each format, with its number of coefficients."""
    for suffix, count in counts.items():
        RECIPES[f"{name}_{suffix}"] = Recipe(
            function, mp.mpf(low), mp.mpf(high), tuple(range(count)), ELEMENT[suffix], weight
        )


def at_zero(function: Function, value: Any) -> Function:
    """The function, with its limit in place of 0/0 near 0."""
    return lambda x: function(x) if abs(x) > TINY else mp.mpf(value)


def of_square(function: Function, value: Any) -> Function:
    """The function of x = sqrt(z), with its limit at 0."""
    return at_zero(lambda z: function(mp.sqrt(z)), value)


# exp(r) = 1 + r + r*r*p(r)
recipe(
    "EXP",
    at_zero(lambda r: (mp.exp(r) - 1 - r) / r**2, 0.5),
    -HALF_LN2,
    HALF_LN2,
    lambda r: r**2 / mp.exp(r),
    F32=5,
    F64=10,
    SHORT=6,
)
# 2**r = 1 + r*p(r)
recipe(
    "EXP2",
    at_zero(lambda r: (mp.power(2, r) - 1) / r, mp.log(2)),
    "-0.5001",
    "0.5001",
    lambda r: r / mp.power(2, r),
    F32=7,
    F64=12,
    SHORT=7,
)
# tanh(x) = x + x*z*p(z) below 0.55
recipe(
    "TANH",
    of_square(lambda x: (mp.tanh(x) - x) / x**3, -mp.mpf(1) / 3),
    0,
    mp.mpf("0.5501") ** 2,
    of_square(lambda x: x**3 / mp.tanh(x), 0),
    F32=5,
    F64=10,
)
# sinh(x) = x + x*z*p(z) below 1
recipe(
    "SINH",
    of_square(lambda x: (mp.sinh(x) - x) / x**3, mp.mpf(1) / 6),
    0,
    "1.0001",
    of_square(lambda x: x**3 / mp.sinh(x), 0),
    F64=8,
    SHORT=4,
)
# log(1+f) = f - f*f/2 + f**3*p(f), 1+f from sqrt(1/2) to sqrt(2)
recipe(
    "LOG",
    at_zero(lambda f: (mp.log1p(f) - f + f * f / 2) / f**3, mp.mpf(1) / 3),
    ROOT_HALF - 1,
    2 * ROOT_HALF - 1,
    at_zero(lambda f: f**3 / mp.log1p(f), 0),
    F32=9,
)
# log((1+s)/(1-s)) = 2*s + s*z*p(z), s = f/(2+f)
LARGEST_S = ((2 * ROOT_HALF - 1) / (2 * ROOT_HALF + 1)) ** 2 * mp.mpf("1.0001")
recipe(
    "LOG_SERIES",
    of_square(lambda s: (2 * mp.atanh(s) - 2 * s) / s**3, mp.mpf(2) / 3),
    0,
    LARGEST_S,
    of_square(lambda s: s**3 / (2 * mp.atanh(s)), 0),
    F32=3,
    F64=7,
    SHORT=4,
)
# ... = 2*s + 2/3*s*z + s*z*z*p(z), for double-word results
recipe(
    "LOG_TAIL",
    of_square(lambda s: (2 * mp.atanh(s) - 2 * s - 2 * s**3 / 3) / s**5, mp.mpf(2) / 5),
    0,
    LARGEST_S,
    of_square(lambda s: s**5 / (2 * mp.atanh(s)), 0),
    F64=8,
)
# sin(r) = r + r*z*p(z), cos(r) = 1 - z/2 + z*z*p(z), up to pi/4
QUARTER = (mp.pi / 4 * mp.mpf("1.0001")) ** 2
recipe(
    "SIN",
    of_square(lambda r: (mp.sin(r) - r) / r**3, -mp.mpf(1) / 6),
    0,
    QUARTER,
    of_square(lambda r: r**3 / mp.sin(r), 0),
    F64=6,
    SHORT=4,
)
recipe(
    "COS",
    of_square(lambda r: (mp.cos(r) - 1 + r * r / 2) / r**4, mp.mpf(1) / 24),
    0,
    QUARTER,
    of_square(lambda r: r**4 / mp.cos(r), 0),
    F64=6,
    SHORT=4,
)
# atan(t) = t + t*z*p(z) up to tan(pi/8)
recipe(
    "ATAN",
    of_square(lambda t: (mp.atan(t) - t) / t**3, -mp.mpf(1) / 3),
    0,
    mp.tan(mp.pi / 8) ** 2 * mp.mpf("1.0001"),
    of_square(lambda t: t**3 / mp.atan(t), 0),
    F64=11,
    SHORT=6,
)
# asin(s) = s + s*z*p(z) up to 1/2
recipe(
    "ASIN",
    of_square(lambda s: (mp.asin(s) - s) / s**3, mp.mpf(1) / 6),
    0,
    "0.25001",
    of_square(lambda s: s**3 / mp.asin(s), 0),
    F64=12,
    SHORT=7,
)
# erf(x) = x + x*p(z) near 0; erf(t) = 1 - exp(p(t)) beyond
for _suffix, _split, _near, _far, _last in (
    ("F32", "0.93", 6, 7, 3.95),
    ("F64", "1", 12, 18, 5.95),
):
    recipe(
        "ERF",
        of_square(lambda x: mp.erf(x) / x - 1, 2 / mp.sqrt(mp.pi) - 1),
        0,
        mp.mpf(_split) ** 2 * mp.mpf("1.001"),
        of_square(lambda x: x / mp.erf(x), mp.sqrt(mp.pi) / 2),
        **{_suffix: _near},
    )
    recipe(
        "ERF_FAR",
        lambda t: mp.log(mp.erfc(t)),
        mp.mpf(_split) * mp.mpf("0.999"),
        _last,
        lambda t: mp.erfc(t) / mp.erf(t),
        **{_suffix: _far},
    )


# erfc(x) = exp(-x*x)/(1 + 2*x) * (1.1875 + p((x-4)/(x+4))) above 1/2
def _erfcx(q: Any) -> Any:
    x = 4 * (1 + q) / (1 - q)
    return mp.exp(x * x) * mp.erfc(x) * (1 + 2 * x)


for _suffix, _count, _last in (("F64", 24, 27.5), ("SHORT", 11, 10.5)):
    recipe(
        "ERFC",
        lambda q: _erfcx(q) - mp.mpf("1.1875"),
        (mp.mpf("0.499") - 4) / mp.mpf("4.499"),
        (mp.mpf(_last) - 4) / (mp.mpf(_last) + 4),
        lambda q: 1 / _erfcx(q),
        **{_suffix: _count},
    )
# cbrt(t), t from 1 to 8: a first guess
recipe("CBRT", mp.cbrt, 1, 8, lambda t: 1 / mp.cbrt(t), F64=5)
