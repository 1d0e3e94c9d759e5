"""Gradients at the edges of functions of rows, and of losses, as `docs/numerics.md` promises them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import tracer
import tracer.nn.functional as F
from tests.support.gradient_forms import FORMS, Array, Function, check_all, inf, nan, slope
from tracer import trace

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


THIRD = 1 / 3
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


def test_norms_of_any_order_do_not_overflow() -> None:
    x = np.array([3e30, -4e30], np.float32)
    for order, wanted in ((3, 91 ** (1 / 3)), (2, 5.0), (1, 7.0), (0.5, 7 + 2 * 12**0.5)):
        value, gradient = tracer.value_and_grad(lambda x, p=order: tracer.vector_norm(x, ord=p))(x)
        assert value.item() == pytest.approx(wanted * 1e30, rel=1e-6)
        expected = np.sign(x) * (np.abs(x / 1e30) / wanted) ** (order - 1)
        np.testing.assert_allclose(gradient, expected, rtol=1e-5)


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


# ---- losses --------------------------------------------------------------------------------------

POINTS_OF_LOSSES = np.array([-inf, -1e4, -1, -0.0, 0, 1, 1e4, inf, nan, 3e38])
ZEROS, ONES = np.zeros(10, np.float32), np.ones(10, np.float32)
TARGETS = np.array([0, 1] * 5, np.float32)
COUNTED = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0], np.float32)
LOSSES: list[tuple[str, Function, list[float]]] = [
    ("l1", lambda x: F.l1_loss(x, ZEROS, "sum"), [-1, -1, -1, 0, 0, 1, 1, 1, nan, 1]),
    ("huber", lambda x: F.huber_loss(x, ZEROS, "sum"), [-1, -1, -1, 0, 0, 1, 1, 1, nan, 1]),
    (
        "smooth l1",
        lambda x: F.smooth_l1_loss(x, ZEROS, "sum", beta=2.0),
        [-1, -1, -0.5, 0, 0, 0.5, 1, 1, nan, 1],
    ),
    (
        "cross-entropy of probabilities",
        lambda x: F.binary_cross_entropy(tracer.clip(x, 0.0, 1.0), TARGETS, reduction="sum"),
        [0, 0, 0, 0, 1, -1, 0, 0, nan, 0],
    ),
    (
        "cross-entropy of logits",
        lambda x: F.binary_cross_entropy_with_logits(x, TARGETS, reduction="sum"),
        [0, -1, 1 / (1 + math.e), -0.5, 0.5, -1 / (1 + math.e), 1, 0, nan, 0],
    ),
    (
        "weights of 0",
        lambda x: F.binary_cross_entropy_with_logits(x, ONES, weight=COUNTED, reduction="sum"),
        [-1, -1, -math.e / (1 + math.e), -0.5, 0, 0, 0, 0, 0, 0],
    ),
    (
        "divergence",
        lambda x: F.kl_div(x, TARGETS, reduction="sum"),
        [0, -1, 0, -1, 0, -1, 0, -1, 0, -1],
    ),
]


@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_losses_far_out_and_at_their_kinks(way: str) -> None:
    check_all(LOSSES, POINTS_OF_LOSSES, way, "float32")


def test_masked_losses_are_numbers() -> None:
    targets = np.array([1, nan, 0], np.float32)
    logits = tracer.tensor([0.0, nan, inf], requires_grad=True)
    weight = np.array([1, 0, 0], np.float32)
    loss = F.binary_cross_entropy_with_logits(logits, targets, weight=weight, reduction="sum")
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2))
    assert logits.grad is not None and logits.grad.tolist() == [-0.5, 0, 0]


def test_directions_of_zeros() -> None:
    x = np.array([[0.0, 0], [3, 4]])
    found = np.asarray(slope(lambda x: F.normalize(x)[:, 0])(x))
    np.testing.assert_allclose(found, [[1e12, 0], [0.128, -0.096]], rtol=1e-12)
    found = np.asarray(slope(lambda x: F.cosine_similarity(x, x[::-1]))(x))
    assert np.isfinite(found).all()
    for norm in (lambda x: F.layer_norm(x, (2,)), lambda x: F.rms_norm(x, (2,), eps=1e-5)):
        found = np.asarray(slope(lambda x, f=norm: f(x)[:, 0])(np.array([[5.0, 5], [0, 0]])))
        assert np.isfinite(found).all()


def test_the_entropy_of_what_is_impossible() -> None:
    """-sum(p log p) of a softmax with -inf: an infinite cotangent where the probability is 0."""

    def entropy(x: Any) -> Any:
        p = tracer.softmax(x)
        return -tracer.xlogy(p, p).sum()

    found = np.asarray(tracer.grad(entropy)(np.array([0.5, 1.5, -inf])))
    wanted = np.asarray(tracer.grad(entropy)(np.array([0.5, 1.5])))
    np.testing.assert_allclose(found, [*wanted, 0.0], rtol=1e-12)


@pytest.mark.parametrize("form", [lambda f: f, trace], ids=["eager", "compiled"])
def test_the_extremum_of_zeros_has_no_sign(form: Any) -> None:
    """Which of 0 and -0 comes first depends on the order, which is free."""
    for zeros in ([0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0]):
        x = np.array([zeros * 20, zeros * 20], np.float32).T
        for function in (tracer.max, tracer.min):
            found = np.asarray(form(lambda x, f=function: f(x, axis=0))(x))
            assert found.tolist() == [0, 0] and not np.signbit(found).any()
            shares = slope(lambda x, f=function: f(x, axis=0))(x)
            np.testing.assert_allclose(shares, np.full((40, 2), 1 / 40), rtol=1e-6)


@pytest.mark.parametrize("form", [lambda f: f, trace], ids=["eager", "compiled"])
def test_a_model_learns_from_data_with_holes(form: Any) -> None:
    """Targets that are missing are masked after they have been used."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 3)).astype(np.float32)
    truth = np.array([[1.0], [-2], [0.5]], np.float32)
    targets = x @ truth + 3
    targets[::3] = nan
    targets[1::7] = inf
    model = tracer.nn.Linear(3, 1)
    optimizer = tracer.optim.SGD(model.parameters(), lr=0.2)

    @form
    def step(x: Any, y: Any) -> Any:
        errors = tracer.where(tracer.isfinite(y), (model(x) - y) ** 2, 0.0)
        loss = errors.sum() / tracer.isfinite(y).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(60):
        loss = step(x, targets)
    assert loss.item() < 1e-8
    np.testing.assert_allclose(model.weight.detach().numpy().T, truth, atol=1e-4)
