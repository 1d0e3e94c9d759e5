"""Gradients at the edges, as `docs/numerics.md` promises them: eager, compiled and fused with a neighbour.

Elementwise functions are all taken at one row of points, functions of rows at one matrix, and each
set is one compiled program, so that few kernels are compiled. That all operators keep the contract
is walked in `test_gradient_table.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tracer
import tracer.nn.functional as F
from ops.types import numpy_dtype
from tracer import trace

Array = np.ndarray[Any, Any]
Function = Callable[[Any], Any]
inf, nan = math.inf, math.nan
TOLERANCE = {"float64": 1e-12, "float32": 2e-6, "float16": 1e-2, "bfloat16": 6e-2}


def slope(function: Function) -> Function:
    """The gradient of the sum of what a function gives."""
    return tracer.grad(lambda x: tracer.sum(function(x)))  # type: ignore[no-any-return]


def slopes(functions: Sequence[Function]) -> Callable[[Any, Any], tuple[Any, ...]]:
    """The gradients of all functions at x.

    Before and behind each one there is a product with `one`, which compilers cannot see.
    """

    def all_of_them(x: Any, one: Any) -> tuple[Any, ...]:
        if one is None:
            return tuple(slope(f)(x) for f in functions)
        return tuple(slope(lambda x, f=f: f(x * one) * one)(x) for f in functions)

    return all_of_them


def check_all(cases: Sequence[tuple[str, Function, Any]], x: Array, way: str, dtype: str) -> None:
    """Every case's gradient at x is what is expected."""
    run = slopes([f for _, f, _ in cases])
    points = x.astype(numpy_dtype(dtype))
    one = np.ones((), numpy_dtype(dtype)) if way == "fused" else None
    with np.errstate(all="ignore"):
        found = run(points, one) if way == "eager" else trace(run)(points, one)
    wrong = []
    for (name, _, expected), got in zip(cases, found, strict=True):
        wanted = np.broadcast_to(np.asarray(expected, np.float64), x.shape)
        values = np.asarray(got).astype(np.float64)
        if not np.allclose(values, wanted, rtol=TOLERANCE[dtype], atol=0, equal_nan=True):
            wrong.append(
                f"{name}\n  at {x.tolist()}\n  found {values.tolist()}\n  not {wanted.tolist()}"
            )
    assert not wrong, "\n".join(wrong)


# Compiled programs are few: alone in one type, fused with neighbours in both.
FORMS = pytest.mark.parametrize(
    "way, dtype",
    [
        *itertools.product(["eager"], ["float32", "float64", "float16", "bfloat16"]),
        ("compiled", "float32"),
        ("fused", "float32"),
        ("fused", "float64"),
    ],
)

# ---- element by element --------------------------------------------------------------------------

POINTS = np.array([-inf, -2, -1, -0.0, 0.0, 0.5, 1, 2, inf, nan])


def branch(
    name: str, where: Callable[[Any], Any], function: Function, derivative: Callable[[Array], Array]
) -> tuple[str, Function, Array]:
    """`where` with a branch that has no finite derivative, or no value, where it is not taken."""
    with np.errstate(all="ignore"):
        expected = np.where(where(POINTS), derivative(POINTS), 0.0)
    return name, lambda x: tracer.where(where(x), function(x), 0.0), expected


def positive(x: Any) -> Any:
    return x > 0


def inside(x: Any) -> Any:
    return abs(x) < 1


def finite(x: Any) -> Any:
    return abs(x) < inf


def ordinary(x: Any) -> Any:
    return (x > 0) & (x < 9)


BRANCHES = [
    branch("sqrt", positive, lambda x: tracer.sqrt(x), lambda x: 0.5 / np.sqrt(x)),
    branch("log", positive, lambda x: tracer.log(x), lambda x: 1 / x),
    branch("log2", positive, lambda x: tracer.log2(x) * math.log(2), lambda x: 1 / x),
    branch("log1p", positive, lambda x: tracer.log1p(x - 1), lambda x: 1 / x),
    branch("x log x", ordinary, lambda x: x * tracer.log(x), lambda x: np.log(x) + 1),
    branch("1 / x", positive, lambda x: 1 / x, lambda x: -1 / x**2),
    branch("a / x", ordinary, lambda x: (x * x + 1) / x, lambda x: 1 - 1 / x**2),
    branch("reciprocal", positive, lambda x: tracer.reciprocal(x), lambda x: -1 / x**2),
    branch("rsqrt", positive, lambda x: tracer.rsqrt(x), lambda x: -0.5 * x**-1.5),
    branch("x**0.3", positive, lambda x: x**0.3, lambda x: 0.3 * x**-0.7),
    branch("x**-2", positive, lambda x: x**-2, lambda x: -2 * x**-3.0),
    branch("2**x", ordinary, lambda x: 2.0**x, lambda x: math.log(2) * 2**x),
    branch("square", finite, lambda x: (x - 1) ** 2, lambda x: 2 * (x - 1)),
    branch("exp", inside, lambda x: tracer.exp(1e4 * x - 5e3), lambda x: (x == 0.5) * 1e4),
    branch(
        "sinh",
        inside,
        lambda x: tracer.sinh(1e4 * x - 5e3),
        lambda x: 1e4 * np.cosh(1e4 * x - 5e3),
    ),
    branch("asin", inside, lambda x: tracer.asin(x), lambda x: 1 / np.sqrt(1 - x * x)),
    branch("acos", inside, lambda x: tracer.acos(x), lambda x: -1 / np.sqrt(1 - x * x)),
    branch("atanh", inside, lambda x: tracer.atanh(x), lambda x: 1 / (1 - x * x)),
    branch("acosh", lambda x: x > 1, lambda x: tracer.acosh(x), lambda x: 1 / np.sqrt(x * x - 1)),
    branch("sin", finite, lambda x: tracer.sin(x), np.cos),
    branch("tan", finite, lambda x: tracer.tan(x / 4), lambda x: 0.25 / np.cos(x / 4) ** 2),
    branch("hypot", ordinary, lambda x: tracer.hypot(x, 2 * x), lambda x: 0 * x + math.sqrt(5)),
    branch("atan2", ordinary, lambda x: tracer.atan2(x, x), lambda x: 0 * x),
    branch(
        "remainder", ordinary, lambda x: tracer.remainder(5.0, 3 * x), lambda x: -3 * (5 // (3 * x))
    ),
    branch(
        "logaddexp",
        ordinary,
        lambda x: tracer.logaddexp(x, 2 * x),
        lambda x: 1 + 1 / (1 + np.exp(-x)),
    ),
    branch(
        "a chain",
        ordinary,
        lambda x: tracer.log(tracer.sqrt(x)) / x,
        lambda x: (0.5 - 0.5 * np.log(x)) / x**2,
    ),
    branch(
        "twice",
        positive,
        lambda x: tracer.sqrt(tracer.where(x > 0, x, 1.0)),
        lambda x: 0.5 / np.sqrt(x),
    ),
    branch("gelu", finite, lambda x: tracer.gelu(x) - tracer.gelu(-x), lambda x: 0 * x + 1),
    branch(
        "missing data", lambda x: x == x, lambda x: tracer.tanh(x), lambda x: np.cosh(x) ** -2.0
    ),
    # What selects without `where`, and what counts for nothing.
    branch(
        "relu inside",
        finite,
        lambda x: tracer.sqrt(tracer.relu(x)),
        lambda x: np.where(x > 0, 0.5 / np.sqrt(x), 0),
    ),
    branch("relu outside", positive, lambda x: tracer.relu(tracer.log(x)), lambda x: (x > 1) / x),
    branch(
        "clip",
        positive,
        lambda x: tracer.clip(tracer.log(x), 0.1, 9),
        lambda x: ordinary(tracer.log(x)) / x,
    ),
    branch(
        "maximum", positive, lambda x: tracer.maximum(tracer.log(x), 0.1), lambda x: (x > 1.2) / x
    ),
    branch("a weight of 0", finite, lambda x: 0.0 * tracer.sqrt(abs(x)), lambda x: 0 * x),
    branch(
        "a mask",
        finite,
        lambda x: tracer.astype(x > 0, x.dtype) * tracer.sqrt(abs(x)),
        lambda x: np.where(x > 0, 0.5 / np.sqrt(x), 0),
    ),
    # An infinite cotangent times a derivative of 0.
    branch("a length by hand", finite, lambda x: tracer.sqrt(x * x + 0.0), np.sign),
    branch(
        "a distance by hand",
        finite,
        lambda x: tracer.sqrt((x - 1) ** 2 + (1 - x) ** 2),
        lambda x: math.sqrt(2) * np.sign(x - 1),
    ),
    branch(
        "an angle by hand",
        finite,
        lambda x: tracer.acos(tracer.cos(x / 4)),
        lambda x: np.sign(x) / 4,
    ),
]

# Gradients at POINTS that are not finite, or a choice, or a limit.
DOCUMENTED: list[tuple[str, Function, list[float]]] = [
    ("abs", lambda x: abs(x), [-1, -1, -1, 0, 0, 1, 1, 1, 1, nan]),
    ("sign", lambda x: tracer.sign(x) + 0 * x, [0] * 10),
    ("relu", lambda x: tracer.relu(x), [0, 0, 0, 0, 0, 1, 1, 1, 1, 0]),
    (
        "sqrt",
        lambda x: tracer.sqrt(x),
        [nan, nan, nan, -inf, inf, 0.5**0.5, 0.5, 0.125**0.5, 0, nan],
    ),
    ("log", lambda x: tracer.log(x), [0, -0.5, -1, -inf, inf, 2, 1, 0.5, 0, nan]),
    ("x**0", lambda x: x**0, [0] * 10),
    ("x**zeros", lambda x: tracer.pow(x, tracer.zeros_like(x)), [0] * 10),
    ("x**1", lambda x: x**1, [1] * 10),
    ("x**2", lambda x: x**2, [-inf, -4, -2, 0, 0, 1, 2, 4, inf, nan]),
    (
        "acos",
        lambda x: tracer.acos(x),
        [nan, nan, -inf, -1, -1, -1 / 0.75**0.5, -inf, nan, nan, nan],
    ),
    ("asin", lambda x: tracer.asin(x), [nan, nan, inf, 1, 1, 1 / 0.75**0.5, inf, nan, nan, nan]),
    ("atan", lambda x: tracer.atan(x), [0, 0.2, 0.5, 1, 1, 0.8, 0.5, 0.2, 0, nan]),
    ("tanh", lambda x: tracer.tanh(1e4 * x), [0, 0, 0, 1e4, 1e4, 0, 0, 0, 0, nan]),
    ("sigmoid", lambda x: tracer.sigmoid(1e4 * x), [0, 0, 0, 2500, 2500, 0, 0, 0, 0, nan]),
    ("softplus", lambda x: tracer.softplus(1e4 * x), [0, 0, 0, 5e3, 5e3, 1e4, 1e4, 1e4, 1e4, nan]),
    (
        "erf",
        lambda x: tracer.erf(1e4 * x),
        [0, 0, 0, 11283.791670955126, 11283.791670955126, 0, 0, 0, 0, nan],
    ),
    ("gelu", lambda x: tracer.gelu(1e4 * x), [0, 0, 0, 5e3, 5e3, 1e4, 1e4, 1e4, 1e4, nan]),
    (
        "gelu, tanh",
        lambda x: tracer.gelu(1e4 * x, "tanh"),
        [0, 0, 0, 5e3, 5e3, 1e4, 1e4, 1e4, 1e4, nan],
    ),
    ("silu", lambda x: tracer.silu(1e4 * x), [0, 0, 0, 5e3, 5e3, 1e4, 1e4, 1e4, 1e4, nan]),
    ("clip", lambda x: tracer.clip(x, -1, 1), [0, 0, 1, 1, 1, 1, 1, 0, 0, 1]),
    ("maximum", lambda x: tracer.maximum(x, 1.0), [0, 0, 0, 0, 0, 0, 0.5, 1, 1, 1]),
    ("minimum", lambda x: tracer.minimum(x, 1.0), [1, 1, 1, 1, 1, 1, 0.5, 0, 0, 1]),
    ("maximum of itself", lambda x: tracer.maximum(x, x), [1] * 10),
    ("maximum of nan", lambda x: tracer.maximum(x, nan * x.detach()), [0] * 9 + [0.5]),
    ("length", lambda x: tracer.hypot(x, 0.0), [nan, -1, -1, 0, 0, 1, 1, 1, nan, nan]),
    ("angle", lambda x: tracer.atan2(x, 0.0), [0] * 9 + [nan]),
    (
        "angle, far",
        lambda x: tracer.atan2(1.0, x),
        [0, -0.2, -0.5, -1, -1, -0.8, -0.5, -0.2, 0, nan],
    ),
    ("logaddexp", lambda x: tracer.logaddexp(x, -inf), [0.5, 1, 1, 1, 1, 1, 1, 1, 1, nan]),
]


@FORMS
def test_the_branch_not_taken_leaves_no_trace(way: str, dtype: str) -> None:
    check_all(BRANCHES, POINTS, way, dtype)


@FORMS
def test_gradients_that_are_documented(way: str, dtype: str) -> None:
    check_all(DOCUMENTED, POINTS, way, dtype)


# ---- row by row ----------------------------------------------------------------------------------

ROWS = np.array(
    [
        [0, 0, 0, 0],
        [3, 3, 3, 3],
        [2, 0, -4, 2],
        [0, 5, 0, -1],
        [-1, 2, 2, -1],
        [-inf, -inf, -inf, -inf],
        [-inf, 1, -inf, 1],
    ]
)
FIRST = slice(0, 5)  # the rows without infinities


def row(name: str, function: Function, expected: Any) -> tuple[str, Function, Array]:
    """A function of each row, and its gradient for the rows that are not infinite."""
    return name, function, np.asarray(expected, np.float64)


THIRD, SIXTH = 1 / 3, 1 / 6
LENGTHS = np.sqrt(np.maximum((ROWS[FIRST] ** 2).sum(1, keepdims=True), 1e-300))
CENTRED = ROWS[FIRST] - ROWS[FIRST].mean(1, keepdims=True)
DEVIATIONS = np.sqrt(np.maximum((CENTRED**2).mean(1, keepdims=True), 1e-300))
CUBES = np.cbrt((np.abs(ROWS[FIRST]) ** 3).sum(1, keepdims=True)) + (ROWS[FIRST, :1] == 0) * 1e-300

ROW_CASES = [
    row("length", lambda x: tracer.vector_norm(x, axis=1), ROWS[FIRST] / LENGTHS),
    row("length by hand", lambda x: tracer.sqrt((x * x).sum(1)), ROWS[FIRST] / LENGTHS),
    row("sum of sizes", lambda x: tracer.vector_norm(x, axis=1, ord=1), np.sign(ROWS[FIRST])),
    row(
        "largest size",
        lambda x: tracer.vector_norm(x, axis=1, ord=inf),
        [[0] * 4, [0.25] * 4, [0, 0, -1, 0], [0, 1, 0, 0], [0, 0.5, 0.5, 0]],
    ),
    row(
        "smallest size",
        lambda x: tracer.vector_norm(x, axis=1, ord=-inf),
        [[0] * 4, [0.25] * 4, [0] * 4, [0] * 4, [-0.5, 0, 0, -0.5]],
    ),
    row("how many", lambda x: tracer.vector_norm(x, axis=1, ord=0), 0 * ROWS[FIRST]),
    row(
        "norm of order 3",
        lambda x: tracer.vector_norm(x, axis=1, ord=3),
        np.sign(ROWS[FIRST]) * (ROWS[FIRST] / np.maximum(CUBES, 1e-300)) ** 2,
    ),
    row("deviation", lambda x: tracer.std(x, axis=1), CENTRED / DEVIATIONS / 4),
    row(
        "deviation of a sample",
        lambda x: tracer.std(x, axis=1, correction=1),
        CENTRED / DEVIATIONS / math.sqrt(12),
    ),
    row(
        "deviation by hand",
        lambda x: tracer.sqrt(((x - tracer.mean(x, axis=1, keepdims=True)) ** 2).mean(1)),
        CENTRED / DEVIATIONS / 4,
    ),
    row("variance", lambda x: tracer.var(x, axis=1), CENTRED / 2),
    row(
        "largest",
        lambda x: tracer.max(x, axis=1),
        [[0.25] * 4, [0.25] * 4, [0.5, 0, 0, 0.5], [0, 1, 0, 0], [0, 0.5, 0.5, 0]],
    ),
    row(
        "smallest",
        lambda x: tracer.min(x, axis=1),
        [[0.25] * 4, [0.25] * 4, [0, 0, 1, 0], [0, 0, 0, 1], [0.5, 0, 0, 0.5]],
    ),
    row(
        "product",
        lambda x: tracer.prod(x, axis=1),
        [[0] * 4, [27] * 4, [0, -16, 0, 0], [0] * 4, [-4, 2, 2, -4]],
    ),
    row(
        "layer norm",
        lambda x: (F.layer_norm(x, (4,), eps=1.0) * x.detach()).sum(1),
        CENTRED / (DEVIATIONS**2 + 1) ** 1.5,
    ),
    row(
        "root of a length",
        lambda x: tracer.sqrt(tracer.vector_norm(x, axis=1)),
        0.5 * ROWS[FIRST] / LENGTHS**1.5,
    ),
]


@FORMS
def test_rows_that_are_zero_equal_or_tied(way: str, dtype: str) -> None:
    check_all(ROW_CASES, ROWS[FIRST], way, dtype)


LOGITS = np.array(
    [
        [-inf, -inf, -inf],
        [-inf, 1, 1],
        [1e4, -1e4, 1e4],
        [3e38, -3e38, 3e38],
        [inf, 0, -inf],
        [-3e38, -3e38, -3e38],
    ]
)
HALF = [0.5, 0, 0.5]


def test_softmax_and_its_kin_far_out() -> None:
    """+inf and rows of -inf have no softmax; their logarithm of a sum has a gradient."""
    cases = [
        (
            "logsumexp",
            lambda x: tracer.logsumexp(x, axis=1),
            [[0, 0, 0], [0, 0.5, 0.5], HALF, HALF, [1, 0, 0], [THIRD] * 3],
        ),
        (
            "softmax",
            lambda x: tracer.softmax(x, axis=1)[:, 0],
            [
                [nan] * 3,
                [0] * 3,
                [0.25, 0, -0.25],
                [0.25, 0, -0.25],
                [nan] * 3,
                [2 / 9, -1 / 9, -1 / 9],
            ],
        ),
        (
            "log_softmax",
            lambda x: tracer.log_softmax(x, axis=1)[:, 1],
            [
                [nan] * 3,
                [0, 0.5, -0.5],
                [-0.5, 1, -0.5],
                [-0.5, 1, -0.5],
                [nan, 1, 0],
                [-THIRD, 2 * THIRD, -THIRD],
            ],
        ),
        (
            "where a row has none",
            lambda x: tracer.where(abs(x).sum(1) < 9, tracer.log_softmax(x, axis=1)[:, 1], 0.0),
            0 * np.nan_to_num(LOGITS),
        ),
    ]
    for way, dtype in (("eager", "float64"), ("eager", "float32"), ("compiled", "float32")):
        check_all(cases, LOGITS, way, dtype)


LABELS = np.array([0, 1, 2, -100, 1, 0])
ROWS_OF_SCORES = np.array(
    [
        [1e4, -1e4, 0],
        [1e4, -1e4, 0],
        [3e38, -3e38, 3e38],
        [nan, inf, 3e38],
        [-3e38, 3e38, 0],
        [-3e38, 3e38, -inf],
    ]
)
PROBABILITIES = np.array(
    [[1, 0, 0], [0, 1, 0], [0.5, 0, 0.5], [0.2, 0.3, 0.5], [0, 1, 0], [0, 1, 0]]
)
WEIGHTS = np.array([1.0, 2.0, 0.5])
RIGHT = np.array([[0, 0, 0], [1, -1, 0], [0.5, 0, -0.5], [0, 0, 0], [0, 0, 0], [-1, 1, 0]])


def cross_entropies(dtype: str) -> list[tuple[str, Function, Any]]:
    weights, probabilities = WEIGHTS.astype(dtype), PROBABILITIES.astype(dtype)
    of = {"reduction": "sum"}
    smooth = (
        0.9 * RIGHT
        + 0.1 * (RIGHT + np.eye(3)[np.maximum(LABELS, 0)] - THIRD) * (LABELS >= 0)[:, None]
    )
    smooth[3] = 0
    known = np.array([0, 1, 2, 4, 5])
    return [
        ("labels", lambda x: F.cross_entropy(x, LABELS, **of), RIGHT),
        ("smoothed", lambda x: F.cross_entropy(x, LABELS, label_smoothing=0.1, **of), smooth),
        (
            "weighted",
            lambda x: F.cross_entropy(x, LABELS, weight=weights, **of),
            RIGHT * WEIGHTS[np.maximum(LABELS, 0)][:, None],
        ),
        (
            "mean",
            lambda x: F.cross_entropy(x, LABELS, weight=weights),
            RIGHT * WEIGHTS[np.maximum(LABELS, 0)][:, None] / 6.5,
        ),
        (
            "log_softmax and nll",
            lambda x: F.nll_loss(tracer.log_softmax(x, axis=1), LABELS, **of),
            RIGHT,
        ),
        (
            "probabilities",
            lambda x: F.cross_entropy(tracer.take(x, known, axis=0), probabilities[known], **of),
            [[0, 0, 0], [1, -1, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]],
        ),
        (
            "probabilities of weight 0",
            lambda x: F.cross_entropy(
                tracer.take(x, known, axis=0),
                probabilities[known],
                weight=np.array([1, 0, 1], dtype),
                **of,
            ),
            [[0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]],
        ),
    ]


def test_cross_entropy_of_large_scores() -> None:
    for way, dtype in (("eager", "float64"), ("eager", "float32"), ("compiled", "float32")):
        check_all(cross_entropies(dtype), ROWS_OF_SCORES, way, dtype)


# ---- rows that do not count ----------------------------------------------------------------------

SPOILED = np.array(
    [[nan, 1, 2, 3], [1, 2, 3, 5], [inf, -inf, 0, 1], [3, 3, 3, 3], [0, 0, 0, inf], [-inf] * 4]
)
GOOD = np.isfinite(SPOILED).all(1)
OF_ROWS: dict[str, Function] = {
    "softmax": lambda x: (tracer.softmax(x, axis=1) * 0.5**x).sum(1),
    "log_softmax": lambda x: tracer.log_softmax(x, axis=1)[:, 0],
    "logsumexp": lambda x: tracer.logsumexp(x, axis=1),
    "layer norm": lambda x: (F.layer_norm(x, (4,)) * 0.5**x).sum(1),
    "RMS norm": lambda x: (F.rms_norm(x, (4,)) * 0.5**x).sum(1),
    "mean": lambda x: tracer.mean(x, axis=1),
    "variance": lambda x: tracer.var(x, axis=1),
    "deviation": lambda x: tracer.std(x, axis=1),
    "length": lambda x: tracer.vector_norm(x, axis=1),
    "norm": lambda x: tracer.vector_norm(x, axis=1, ord=3),
    "product": lambda x: tracer.prod(x, axis=1),
    "largest": lambda x: tracer.max(x, axis=1),
    "running sum": lambda x: tracer.cumulative_sum(x, axis=1)[:, 2],
    "cross entropy": lambda x: F.cross_entropy(x, np.arange(6) % 4, reduction="none"),
    "normalized": lambda x: F.normalize(x, dim=1)[:, 1],
}


@pytest.mark.parametrize("way, dtype", [("eager", "float64"), ("compiled", "float32")])
def test_rows_that_do_not_count_may_hold_anything(way: str, dtype: str) -> None:
    """Their own gradient is 0, and the others' is what it would be without them."""

    def counted(f: Function) -> Function:
        return lambda x: tracer.where(GOOD, f(x), 0.0)

    cleaned = np.where(GOOD[:, None], SPOILED, 1.0).astype(dtype)
    alone = [np.asarray(slope(counted(f))(cleaned)) for f in OF_ROWS.values()]
    assert all(np.isfinite(a).all() and (a[~GOOD] == 0).all() for a in alone)
    cases = [(name, counted(f), a) for (name, f), a in zip(OF_ROWS.items(), alone, strict=True)]
    check_all(cases, SPOILED, way, dtype)


# ---- second order --------------------------------------------------------------------------------


def second(
    name: str, where: Callable[[Any], Any], function: Function, derivative: Callable[[Array], Array]
) -> tuple[str, Function, Array]:
    """The gradient of a function's gradient."""
    _, f, expected = branch(name, where, function, derivative)
    return name, lambda x: slope(f)(x), expected


def anywhere(x: Any) -> Any:
    return x == x


SECOND = [
    second("sqrt", positive, lambda x: tracer.sqrt(x), lambda x: -0.25 * x**-1.5),
    second("log", positive, lambda x: tracer.log(x), lambda x: -1 / x**2),
    second("1 / x", positive, lambda x: 1 / x, lambda x: 2 / x**3),
    second("x log x", ordinary, lambda x: x * tracer.log(x), lambda x: 1 / x),
    second("x**0.3", positive, lambda x: x**0.3, lambda x: -0.21 * x**-1.7),
    second("exp", inside, lambda x: tracer.exp(20 * x), lambda x: 400 * np.exp(20 * x)),
    second("asin", inside, lambda x: tracer.asin(x), lambda x: x * (1 - x * x) ** -1.5),
    second("x**0", anywhere, lambda x: x**0, lambda x: 0 * x),
    second("x**0.0", finite, lambda x: tracer.pow(x, tracer.zeros_like(x)), lambda x: 0 * x),
    second("x**1", anywhere, lambda x: x**1, lambda x: 0 * x),
    second("x**2", finite, lambda x: x**2, lambda x: 0 * x + 2),
    second("x**3", finite, lambda x: x**3, lambda x: 6 * x),
    second("x**4.0", finite, lambda x: x**4.0, lambda x: 12 * x * x),
    second("abs", finite, lambda x: abs(x), lambda x: 0 * x),
    second("relu", finite, lambda x: tracer.relu(x) ** 2, lambda x: 2.0 * (x > 0)),
    second("clip", finite, lambda x: tracer.clip(x, -1, 1) ** 2, lambda x: 2.0 * (abs(x) <= 1)),
    second(
        "maximum",
        finite,
        lambda x: tracer.maximum(x, 1) ** 2,
        lambda x: (x > 1) * 2 + (x == 1) * 0.5,
    ),
    second("tanh", anywhere, lambda x: tracer.tanh(x), lambda x: -2 * np.tanh(x) / np.cosh(x) ** 2),
    second(
        "softplus", anywhere, lambda x: tracer.softplus(x), lambda x: 0.25 / np.cosh(x / 2) ** 2
    ),
    second("length by hand", finite, lambda x: tracer.sqrt(x * x) * x, lambda x: 2 * np.sign(x)),
]
SECOND = [(n, f, np.where(np.isnan(POINTS), 0.0, np.nan_to_num(e, nan=0.0))) for n, f, e in SECOND]


@pytest.mark.parametrize("way, dtype", [("eager", "float64"), ("fused", "float32")])
def test_second_gradients(way: str, dtype: str) -> None:
    check_all(SECOND, POINTS, way, dtype)


@pytest.mark.parametrize("form", [lambda f: f, trace], ids=["eager", "compiled"])
def test_second_gradients_of_products_with_zeros(form: Any) -> None:
    def others(x: Array) -> Array:
        """The product of all but two."""
        result = np.zeros((x.size, x.size))
        for i, j in itertools.permutations(range(x.size), 2):
            result[i, j] = np.prod([v for k, v in enumerate(x) if k not in (i, j)])
        return result

    hessian = form(tracer.hessian(lambda x: tracer.prod(x)))
    for x in ([2.0, 0, 3, -1], [2.0, 0, 0, -1], [0.0, 0, 0, 4], [2.0, -3, 0.5, 4]):
        np.testing.assert_allclose(hessian(np.array(x)), others(np.array(x)), rtol=1e-12)


@pytest.mark.parametrize("name", ["norm", "std", "largest", "logsumexp"])
def test_second_gradients_of_rows_are_finite(name: str) -> None:
    function = {
        "norm": lambda x: tracer.vector_norm(x),
        "std": lambda x: tracer.std(x),
        "largest": lambda x: tracer.max(x) ** 2,
        "logsumexp": lambda x: tracer.logsumexp(x),
    }[name]
    for x in ([0.0, 0, 0], [5.0, 5, 5]):
        assert np.isfinite(np.asarray(tracer.hessian(function)(np.array(x)))).all()
    if name == "logsumexp":
        found = tracer.hessian(function)(np.full(3, -inf))
        assert (np.asarray(found) == 0).all()


# ---- what is constant almost everywhere ----------------------------------------------------------


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "sign"])
def test_steps_have_a_gradient_of_zeros(name: str) -> None:
    """Their results require a gradient like all others, which is zeros."""
    for function in (getattr(tracer, name), trace(getattr(tracer, name))):
        x = tracer.tensor([-1.5, 0.0, 2.0], requires_grad=True)
        y = function(x)
        assert y.requires_grad and y.grad_fn is not None
        (y * y).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [0, 0, 0]
    found = tracer.vector_norm(x, ord=0)
    assert found.requires_grad and found.item() == 2
    assert tracer.vector_norm(np.array([nan, 0, -0.0, inf]), ord=0).item() == 2


def test_norms_of_any_order_do_not_overflow() -> None:
    x = np.array([3e30, -4e30], np.float32)
    for order, wanted in ((3, 91 ** (1 / 3)), (2, 5.0), (1, 7.0), (0.5, 7 + 2 * 12**0.5)):
        value, gradient = tracer.value_and_grad(lambda x, p=order: tracer.vector_norm(x, ord=p))(x)
        assert value.item() == pytest.approx(wanted * 1e30, rel=1e-6)
        expected = np.sign(x) * (np.abs(x / 1e30) / wanted) ** (order - 1)
        np.testing.assert_allclose(gradient, expected, rtol=1e-5)


@tracer.op(derivative=lambda x: 0.5 / np.sqrt(x))
def own_root(x: float) -> float:
    """A user's operator."""
    return np.sqrt(x)  # type: ignore[no-any-return]


def test_a_users_operator_keeps_the_contract() -> None:
    function = slope(lambda x: tracer.where(x > 0, own_root(x), 0.0))
    for form in (function, trace(function)):
        assert np.asarray(form(np.array([-1, 0, 4, nan], np.float32))).tolist() == [0, 0, 0.25, 0]


def test_x_log_y() -> None:
    x = np.array([0, -0.0, 0, 2, 1, 0], np.float32)
    y = np.array([0, -1, inf, 3, 0, 5], np.float32)
    for form in (lambda f: f, trace):
        value = np.asarray(form(tracer.xlogy)(x, y))
        np.testing.assert_allclose(value, [0, 0, 0, 2 * math.log(3), -inf, 0], rtol=1e-6)
    by_x, by_y = tracer.grad(lambda x, y: tracer.xlogy(x, y).sum(), argnums=(0, 1))(x, y)
    np.testing.assert_allclose(by_x, [-inf, nan, inf, math.log(3), -inf, math.log(5)], rtol=1e-6)
    np.testing.assert_allclose(by_y, [0, 0, 0, 2 / 3, inf, 0], rtol=1e-6)


def test_the_entropy_of_what_is_impossible() -> None:
    """-sum(p log p) of a softmax with -inf: an infinite cotangent where the probability is 0."""

    def entropy(x: Any) -> Any:
        p = tracer.softmax(x)
        return -tracer.xlogy(p, p).sum()

    found = np.asarray(tracer.grad(entropy)(np.array([0.5, 1.5, -inf])))
    wanted = np.asarray(tracer.grad(entropy)(np.array([0.5, 1.5])))
    np.testing.assert_allclose(found, [*wanted, 0.0], rtol=1e-12)
