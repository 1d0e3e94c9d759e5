"""`tracer.nn.functional` against closed forms in float64: values, gradients, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as special

import tracer
import tracer.nn.functional as F
from tracer import grad, trace

pytestmark = pytest.mark.cpu

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((6, 5)), RNG.standard_normal((6, 5))
P = special.expit(X)
LABELS = np.array([0, 4, 2, 2, 1, 3])
WEIGHTS = RNG.uniform(0.5, 2, 5)
LOGS = special.log_softmax(X, 1)


def check(got: Any, wanted: Any, tolerance: float = 1e-11) -> None:
    assert isinstance(got, tracer.Tensor)
    assert got.shape == np.shape(wanted)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=tolerance, atol=tolerance)


def finite_differences(function: Callable[[Any], Any], x: Array) -> Array:
    step, result = 1e-6, np.zeros_like(x)
    for place in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[place] += step
        down[place] -= step
        result[place] = (float(function(up)) - float(function(down))) / (2 * step)
    return result


# ---- activations and layers ----------------------------------------------------------------------


def test_activations() -> None:
    check(F.relu(X), np.maximum(X, 0))
    check(F.gelu(X), X * special.ndtr(X))
    inner = np.sqrt(2 / np.pi) * (X + 0.044715 * X**3)
    check(F.gelu(X, approximate="tanh"), 0.5 * X * (1 + np.tanh(inner)))
    check(F.silu(X), X * P)
    check(F.sigmoid(X), P)
    check(F.tanh(X), np.tanh(X))
    check(F.softplus(X), np.logaddexp(X, 0))
    check(F.elu(X, alpha=2.0), np.where(X < 0, 2 * np.expm1(X), X))
    check(F.leaky_relu(X, negative_slope=0.2), np.where(X < 0, 0.2 * X, X))
    check(F.logsigmoid(X), -np.logaddexp(-X, 0))
    check(F.hardtanh(X, -0.5, 0.25), np.clip(X, -0.5, 0.25))
    check(F.relu6(4 * X), np.clip(4 * X, 0, 6))
    check(F.softmax(X, dim=0), special.softmax(X, 0))
    check(F.log_softmax(X, dim=1), LOGS)
    with pytest.raises(tracer.ArgumentError, match='"none" or "tanh"'):
        F.gelu(X, approximate="erf")


def test_linear() -> None:
    weight, bias = RNG.standard_normal((3, 5)), RNG.standard_normal(3)
    check(F.linear(X, weight), X @ weight.T)
    check(F.linear(X, weight, bias), X @ weight.T + bias)
    check(F.linear(X[0], weight, bias), X[0] @ weight.T + bias)
    check(F.linear(X[None], weight, bias), (X @ weight.T + bias)[None])
    with pytest.raises(tracer.ShapeError, match="takes 5 features"):
        F.linear(X[:, :4], weight)
    with pytest.raises(tracer.ShapeError, match=r"bias must have shape \(3,\)"):
        F.linear(X, weight, bias[:2])
    with pytest.raises(tracer.ShapeError, match="out_features, in_features"):
        F.linear(X, bias)


def test_normalizations() -> None:
    cube = RNG.standard_normal((2, 3, 5))
    weight, bias = RNG.standard_normal((3, 5)), RNG.standard_normal((3, 5))
    mean, spread = cube.mean((1, 2), keepdims=True), cube.var((1, 2), keepdims=True)
    centred = (cube - mean) / np.sqrt(spread + 1e-3)
    check(F.layer_norm(cube, (3, 5), weight, bias, eps=1e-3), centred * weight + bias)
    check(F.layer_norm(cube, [3, 5], eps=1e-3), centred)
    norm = np.sqrt((X * X).mean(1, keepdims=True) + 1e-6)
    check(F.rms_norm(X, 5, WEIGHTS, eps=1e-6), X / norm * WEIGHTS)
    check(F.normalize(X), X / np.sqrt((X * X).sum(1, keepdims=True)))
    check(F.normalize(X, p=1, dim=0), X / np.abs(X).sum(0))
    check(F.normalize(np.zeros((1, 3))), np.zeros((1, 3)))
    cosine = (X * Y).sum(1) / np.sqrt((X * X).sum(1) * (Y * Y).sum(1))
    check(F.cosine_similarity(X, Y), cosine)
    with pytest.raises(
        tracer.ShapeError, match=r"last axes of float64\[6, 5\] must have sizes \(6,\)"
    ):
        F.layer_norm(X, 6)


def test_embedding() -> None:
    weight, indices = RNG.standard_normal((7, 3)), np.array([[0, 6, -1], [2, 2, 1]])
    check(F.embedding(indices, weight), weight[indices])
    gradient = grad(lambda w: (F.embedding(indices, w, padding_idx=2) * 2).sum())(weight)
    wanted = np.zeros_like(weight)
    np.add.at(wanted, indices, 2.0)
    wanted[2] = 0
    check(gradient, wanted)
    assert F.one_hot(indices % 3, 3).dtype == np.int64
    check(F.one_hot([0, 2]), np.eye(3)[[0, 2]])
    with pytest.raises(tracer.BoundsError, match="index 7 is out of range"):
        F.embedding([7], weight)
    with pytest.raises(tracer.DTypeError, match="indices must be integers"):
        F.embedding([0.5], weight)


def test_dropout() -> None:
    tracer.manual_seed(0)
    x = np.ones((100, 100), np.float32)
    y = np.asarray(F.dropout(x, 0.25))
    assert set(np.unique(y)) == {0, np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.02
    tensor = tracer.tensor(x)
    assert F.dropout(tensor, 0.5, training=False) is tensor
    assert F.dropout(tensor, 0.0) is tensor
    assert not np.asarray(F.dropout(tensor, 1.0)).any()
    compiled = trace(lambda x: F.dropout(x, 0.25))
    tracer.manual_seed(0)
    np.testing.assert_array_equal(np.asarray(compiled(x)), y)
    tracer.manual_seed(0)
    np.testing.assert_array_equal(np.asarray(grad(lambda x: F.dropout(x, 0.25).sum())(x)), y)
    with pytest.raises(tracer.ArgumentError, match="from 0 to 1"):
        F.dropout(x, 1.5)


def test_pad() -> None:
    check(F.pad(X, (1, 2)), np.pad(X, ((0, 0), (1, 2))))
    check(F.pad(X, (1, 0, 0, 3), value=2.5), np.pad(X, ((0, 3), (1, 0)), constant_values=2.5))
    check(F.pad(X, (-1, 1)), np.pad(X[:, 1:], ((0, 0), (0, 1))))
    for mode, theirs in [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap")]:
        check(F.pad(X, (2, 1), mode=mode), np.pad(X, ((0, 0), (2, 1)), theirs))
    with pytest.raises(tracer.ShapeError, match="a pair of sizes"):
        F.pad(X, (1,))


# ---- losses of classes ---------------------------------------------------------------------------


def cross_entropy(
    x: Array, labels: Array, weight: Array | None, ignore: int, smoothing: float
) -> tuple[Array, Array]:
    """Each row's loss and what it counts for in the mean, from the definition."""
    logs, classes = special.log_softmax(x, 1), x.shape[1]
    w = np.ones(classes) if weight is None else weight
    kept = labels != ignore
    safe = np.where(kept, labels, 0)
    target = np.eye(classes)[safe] * (1 - smoothing) + smoothing / classes
    if weight is not None:
        losses = -(np.eye(classes)[safe] * (1 - smoothing) * logs * w).sum(
            1
        ) - smoothing / classes * (logs * w).sum(1)
    else:
        losses = -(target * logs).sum(1)
    return np.where(kept, losses, 0), np.where(kept, w[safe], 0)


@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("ignore", [pytest.param(-100, marks=pytest.mark.kernels("python")), 2])
def test_cross_entropy_of_classes(weight: Any, smoothing: float, ignore: int) -> None:
    losses, counts = cross_entropy(X, LABELS, weight, ignore, smoothing)
    wanted = {"none": losses, "sum": losses.sum(), "mean": losses.sum() / counts.sum()}
    for reduction, value in wanted.items():
        keywords = {
            "weight": weight,
            "ignore_index": ignore,
            "reduction": reduction,
            "label_smoothing": smoothing,
        }
        check(F.cross_entropy(X, LABELS, **keywords), value)
    keywords["reduction"] = "mean"

    def loss(x: Any) -> Any:
        return F.cross_entropy(x, LABELS, **keywords)

    check(grad(loss)(X), finite_differences(loss, X), 1e-7)
    check(trace(grad(loss))(X), finite_differences(loss, X), 1e-7)


def test_cross_entropy_of_images_and_single_rows() -> None:
    x, labels = RNG.standard_normal((2, 5, 3, 4)), RNG.integers(0, 5, (2, 3, 4))
    logs = special.log_softmax(x, 1)
    wanted = -np.take_along_axis(logs, labels[:, None], 1)[:, 0]
    check(F.cross_entropy(x, labels, reduction="none"), wanted)
    check(F.nll_loss(logs, labels), wanted.mean())
    check(F.cross_entropy(X[0], np.int64(3)), -LOGS[0, 3])


def test_cross_entropy_of_probabilities() -> None:
    target = special.softmax(Y, 1)
    check(F.cross_entropy(X, target), -(target * LOGS).sum(1).mean())
    check(
        F.cross_entropy(X, target, weight=WEIGHTS, reduction="sum"),
        -(target * LOGS * WEIGHTS).sum(),
    )
    smooth = 0.9 * target + 0.02
    check(
        F.cross_entropy(X, target, label_smoothing=0.1, reduction="none"), -(smooth * LOGS).sum(1)
    )


def test_cross_entropy_of_half_types_does_not_overflow() -> None:
    x = np.zeros((40_000, 5), np.float16)
    loss = F.cross_entropy(x, np.zeros(40_000, np.int64))
    assert loss.dtype == np.float16
    assert abs(float(loss) - np.log(5)) < 1e-3


def test_losses_of_nothing_are_nan() -> None:
    assert np.isnan(float(F.cross_entropy(X, np.full(6, -100))))
    assert float(F.cross_entropy(X, np.full(6, -100), reduction="sum")) == 0


def test_a_class_that_is_none_gives_nan_where_it_is_not_known() -> None:
    wrong = LABELS.copy()
    wrong[0] = 5
    compiled = trace(
        lambda x, y: (F.cross_entropy(x, y, reduction="none"), F.nll_loss(x, y, reduction="none"))
    )
    for losses in compiled(X, wrong):
        assert np.isnan(np.asarray(losses)).tolist() == [True] + [False] * 5


@pytest.mark.parametrize("weight", [None, WEIGHTS], ids=["plain", "weighted"])
def test_nll_loss(weight: Any) -> None:
    w = np.ones(5) if weight is None else weight
    losses = -LOGS[np.arange(6), LABELS] * w[LABELS]
    check(F.nll_loss(LOGS, LABELS, weight, reduction="none"), losses)
    check(F.nll_loss(LOGS, LABELS, weight), losses.sum() / w[LABELS].sum())
    check(
        F.nll_loss(LOGS, LABELS, weight, ignore_index=2, reduction="sum"), losses[LABELS != 2].sum()
    )


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_errors_of_classes(name: str) -> None:
    loss = getattr(F, name)
    with pytest.raises(tracer.DTypeError, match="predictions must be floating, got int64"):
        loss(LABELS[:, None], LABELS)
    with pytest.raises(tracer.DTypeError, match=r"target must hold integer classes.*got bool\[6\]"):
        loss(X, LABELS > 2)
    with pytest.raises(tracer.ShapeError, match=r"need classes of shape \(6,\), got int64\[5\]"):
        loss(X, LABELS[:5])
    with pytest.raises(tracer.ShapeError, match="one-hot rows are probabilities"):
        loss(X, np.eye(5, dtype=np.int64)[LABELS])
    with pytest.raises(
        tracer.BoundsError, match=rf"{name}: the target holds class 7, but there are 5"
    ):
        loss(X, LABELS + np.array([0, 3, 0, 0, 0, 0]))
    with pytest.raises(tracer.ShapeError, match="one float for each of 5 classes"):
        loss(X, LABELS, weight=WEIGHTS[:3])
    with pytest.raises(tracer.ArgumentError, match='"mean", "sum" or "none"'):
        loss(X, LABELS, reduction="average")
    with pytest.raises(tracer.ShapeError, match="need an axis of classes"):
        loss(1.0, 0)


def test_errors_of_probabilities() -> None:
    with pytest.raises(tracer.ShapeError, match="probabilities must be like the predictions"):
        F.cross_entropy(X, P[:, :3])
    with pytest.raises(tracer.ArgumentError, match="label_smoothing must be from 0 to 1"):
        F.cross_entropy(X, LABELS, label_smoothing=1.5)


# ---- losses of numbers ---------------------------------------------------------------------------

D = np.abs(X - Y)
NUMBERS: list[tuple[str, Callable[..., Any], dict[str, Any], Array]] = [
    ("mse", F.mse_loss, {}, D**2),
    ("l1", F.l1_loss, {}, D),
    ("smooth_l1", F.smooth_l1_loss, {}, np.where(D < 1, 0.5 * D * D, D - 0.5)),
    ("smooth_l1_beta", F.smooth_l1_loss, {"beta": 0.5}, np.where(D < 0.5, D * D, D - 0.25)),
    ("smooth_l1_zero", F.smooth_l1_loss, {"beta": 0}, D),
    ("huber", F.huber_loss, {"delta": 0.5}, np.where(D <= 0.5, 0.5 * D * D, 0.5 * (D - 0.25))),
    ("kl_div", F.kl_div, {"log_target": True}, np.exp(Y) * (Y - X)),
    ("bce_logits", F.binary_cross_entropy_with_logits, {}, (1 - Y) * X + np.logaddexp(-X, 0)),
    (
        "bce_logits_weights",
        F.binary_cross_entropy_with_logits,
        {"pos_weight": WEIGHTS, "weight": 2.0},
        2 * ((1 - Y) * X + (1 + (WEIGHTS - 1) * Y) * np.logaddexp(-X, 0)),
    ),
]


@pytest.mark.parametrize(
    ("name", "loss", "keywords", "wanted"), NUMBERS, ids=[c[0] for c in NUMBERS]
)
def test_losses_of_numbers(
    name: str, loss: Callable[..., Any], keywords: dict[str, Any], wanted: Array
) -> None:
    check(loss(X, Y, **keywords), wanted.mean())
    check(loss(X, Y, reduction="sum", **keywords), wanted.sum(), 1e-10)
    check(loss(X, Y, reduction="none", **keywords), wanted)

    def of_input(x: Any) -> Any:
        return loss(x, Y, **keywords)

    check(grad(of_input)(X), finite_differences(of_input, X), 1e-7)
    with pytest.raises(
        tracer.ShapeError, match=r"float64\[6, 5\] and targets float64\[6\] must have one"
    ):
        loss(X, Y[:, 0], **keywords)


def test_binary_cross_entropy() -> None:
    y = special.expit(Y)
    check(F.binary_cross_entropy(P, y), -(y * np.log(P) + (1 - y) * np.log1p(-P)).mean())
    check(
        F.binary_cross_entropy(P, y, weight=2.0, reduction="sum"),
        -2 * (y * np.log(P) + (1 - y) * np.log1p(-P)).sum(),
    )
    check(F.binary_cross_entropy(np.array([0.0, 1.0]), np.array([1.0, 0.0])), 100.0)
    check(F.binary_cross_entropy(np.array([0.0, 1.0]), np.array([0.0, 1.0])), 0.0)
    gradient = grad(lambda p: F.binary_cross_entropy(p, np.array([1.0, 0.0])))(np.array([0.0, 1.0]))
    check(gradient, np.zeros(2))
    with pytest.raises(
        tracer.ArgumentError, match=r"probabilities from 0 to 1, got 1\.5.*with_logits"
    ):
        F.binary_cross_entropy(np.array([1.5]), np.array([1.0]))
    large = F.binary_cross_entropy_with_logits(np.array([1e4, -1e4]), np.array([0.0, 1.0]))
    check(large, 1e4)


def test_divergence_of_distributions() -> None:
    target = special.softmax(Y, 1)
    target[0, 0] = 0
    wanted = special.xlogy(target, target) - target * LOGS
    check(F.kl_div(LOGS, target, reduction="none"), wanted)
    check(F.kl_div(LOGS, target, reduction="batchmean"), wanted.sum() / 6)
    check(grad(lambda x: F.kl_div(x, target, reduction="sum"))(LOGS), -target)


# ---- fusing --------------------------------------------------------------------------------------


def test_a_loss_and_its_gradient_are_few_kernels() -> None:
    step = trace(tracer.value_and_grad(lambda x, y: F.cross_entropy(x, y)))
    x = RNG.standard_normal((32, 10)).astype(np.float32)
    parts = step.plan(x, RNG.integers(0, 10, 32)).parts
    assert all(part.kind == "kernel" for part in parts)
    assert len(parts) <= 5
