"""The published error bounds of the vector mathematics, in units of the result's last place.

Largest errors found by `python -m benchmarks.vector_math` (see `docs/vector_math.md`), rounded up;
tests hold the functions to them. Knows nothing else.
"""

from __future__ import annotations

# Largest error of f32 and f64 lanes. logaddexp: of the last place of the larger of result and
# operands.
BOUNDS: dict[str, tuple[float, float]] = {
    "exp": (1.1, 1.1),
    "exp2": (0.9, 0.9),
    "expm1": (1.6, 2.0),
    "sigmoid": (1.5, 1.5),
    "tanh": (1.4, 1.4),
    "sinh": (0.51, 1.7),
    "cosh": (0.51, 1.5),
    "log": (0.9, 0.9),
    "log2": (0.51, 0.8),
    "log10": (0.51, 0.8),
    "log1p": (0.9, 0.9),
    "asinh": (0.51, 0.9),
    "acosh": (0.51, 0.9),
    "atanh": (0.51, 0.9),
    "softplus": (1.8, 1.8),
    "logaddexp": (2.6, 2.6),
    "sin": (0.51, 0.9),
    "cos": (0.51, 0.9),
    "tan": (0.51, 1.0),
    "asin": (0.51, 0.8),
    "acos": (0.51, 0.8),
    "atan": (0.51, 1.6),
    "atan2": (0.51, 1.7),
    "erf": (1.1, 1.1),
    "erfc": (0.6, 1.3),
    "pow": (0.6, 0.9),
    "rsqrt": (1.5, 1.5),
    "cbrt": (0.6, 1.0),
    "hypot": (0.51, 1.3),
}


def bound(name: str, element: str) -> float:
    """The largest error of a function on lanes of an element, in units of the last place."""
    return BOUNDS[name][element == "f64"]
