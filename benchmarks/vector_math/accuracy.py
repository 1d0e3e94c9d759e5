"""How right the vector mathematics is: references in wider formats, samples, errors.

Errors are in units of the last place of the true result. References of float32 are float64's, of
float64 the long double's; erf and erfc of float64 come from mpmath.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def _sigmoid(x: Array) -> Array:
    e = np.exp(-abs(x))
    result: Array = np.where(x < 0, e, 1) / (1 + e)
    return result


def _softplus(x: Array) -> Array:
    result: Array = np.where(x < 0, 0, x) + np.log1p(np.exp(-abs(x)))
    return result


_NUMPY: dict[str, Callable[..., Any]] = {
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


def reference(name: str, *operands: Array) -> Array:
    """The function in a wider format: float64 for float32 operands, else long double.

    NumPy has no erf; those of float64 come from mpmath, one by one.
    """
    wide = np.float64 if operands[0].dtype == np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        if name in ("erf", "erfc"):
            return _error_function(name, operands[0])
        function = _NUMPY.get(name) or getattr(np, name)
        result: Array = function(*(x.astype(wide) for x in operands))
    return result


def _error_function(name: str, x: Array) -> Array:
    if x.dtype == np.float32:
        from scipy import special

        result: Array = getattr(special, name)(x.astype(np.float64))
        return result
    import mpmath  # type: ignore[import-untyped]

    function, values = getattr(mpmath, name), []
    with mpmath.workdps(40):
        for v in np.clip(x, -40, 40).tolist():
            exact = function(mpmath.mpf(v))
            high = float(exact)
            low = float(exact - high) if np.isfinite(high) else 0.0
            values.append(np.longdouble(high) + np.longdouble(low))
    found = np.array(values, np.longdouble)
    return np.where((x == 0) & (name == "erf"), x, found)  # mpmath has one zero


def errors(got: Array, wanted: Array, least: Any = 0) -> Array:
    """|got - wanted| in units of the last place of `wanted`, or of `least` where that is larger.

    Infinite where one is NaN and the other not, or a zero has the wrong sign; 0 where both
    overflow.
    """
    precision, lowest = (24, -125) if got.dtype == np.float32 else (53, -1021)
    with np.errstate(all="ignore"):
        size = np.maximum(abs(wanted), abs(least)).astype(wanted.dtype)
        unit = np.ldexp(wanted.dtype.type(1), np.maximum(np.frexp(size)[1], lowest) - precision)
        found = np.asarray(abs(got.astype(wanted.dtype) - wanted) / unit, np.float64)
        rounded = wanted.astype(got.dtype)
        agree = (got == rounded) | ((got != got) & (rounded != rounded))
        edge = np.finfo(got.dtype).max * (1 - 2.0 ** (2 - precision))
        near_overflow = (np.isinf(got) != np.isinf(rounded)) & (abs(wanted) > edge)
    found = np.where(agree & ~np.isfinite(rounded), 0.0, found)
    found = np.where(near_overflow, 1.0, np.where(np.isnan(found) & ~agree, np.inf, found))
    zero = (got == 0) & (rounded == 0) & (np.signbit(got) != np.signbit(rounded))
    return np.where(zero, np.inf, found)


_EDGES = (
    *(0, 0.5, 1, 1.5, 2, 3, 4, 5, 10, 100, 1e3, 1e4, 1e-5, 3.3e-10, 1e10, 1e15, 1e22, 65536.0),
    *(87.3, 88.7, 88.73, 103.9, 104.1, 709.7, 709.8, 745.1, 745.2, 1023.9, 1024, 126, 149, 1074),
    *(0.55, 0.93, 0.4142135623730951, 5.9, 10.05, 9.2, 26.5, 27.2, 2.0**28, 2.0**30, 2.0**31),
    *(1e-300, 1e300, 2.0**53, 2.0**24, np.pi / 4, np.pi / 2, np.pi, 2.0**-60, np.inf, np.nan),
)


def edges(dtype: Any) -> Array:
    """Special values, the borders of ranges, their neighbours; both signs."""
    limits = np.finfo(dtype)
    with np.errstate(all="ignore"):
        some = np.array([*_EDGES, limits.max, limits.tiny, limits.smallest_subnormal], dtype)
        near = np.concatenate([some, np.nextafter(some, np.inf), np.nextafter(some, -np.inf)])
    return np.concatenate([near, -near])


def samples(dtype: Any, count: int, arity: int, rng: np.random.Generator) -> Sequence[Array]:
    """About `count` operands: edges (of two operands every pair), bit patterns, usual ranges."""
    special = edges(dtype)
    pairs = (
        [special]
        if arity == 1
        else [np.repeat(special, len(special)), np.tile(special, len(special))]
    )
    part, operands = max(count // 6, 1), []
    for chosen in pairs:
        pattern = rng.integers(0, 256, (part, np.dtype(dtype).itemsize), dtype=np.uint8)
        usual = (
            rng.standard_normal(part),
            rng.standard_normal(part) * 20,
            rng.uniform(-1, 1, part),
            1 + rng.standard_normal(part) * 0.05,
            np.exp(rng.uniform(-20, 20, part)) * rng.choice([-1, 1], part),
        )
        rest = np.concatenate([pattern.view(dtype)[:, 0], *(u.astype(dtype) for u in usual)])
        if arity > 1:
            rng.shuffle(rest)
        operands.append(np.concatenate([chosen, rest]))
    return operands
