"""Losses as functions, under PyTorch's names: from predictions and targets to one number.

reduction: "mean", "sum" or "none" (one loss for each element). Means of half types are taken in
float32.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ops.errors import ArgumentError, BoundsError, DTypeError, ShapeError
from ops.types import is_floating, is_integer, short
from tracer.dispatch.apply import BUILDER, apply
from tracer.functions import activation, arithmetic, logic, transcendental
from tracer.functions.creation import as_tensor, cast
from tracer.functions.elementwise import as_floating
from tracer.functions.promotion import prepare
from tracer.functions.public import public
from tracer.functions.reductions import mean
from tracer.functions.reductions import sum as sum_over
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor


def _reduced(losses: Tensor, reduction: str) -> Tensor:
    """Losses reduced. Raises `ArgumentError` for a reduction that there is not."""
    if reduction == "none":
        return losses
    if reduction not in ("mean", "sum"):
        raise ArgumentError(f'reduction must be "mean", "sum" or "none", got {reduction!r}')
    return mean(losses) if reduction == "mean" else sum_over(losses)


def _wide(x: Tensor) -> Tensor:
    """Half types as float32."""
    return cast(x, "float32") if x.type.dtype in ("float16", "bfloat16") else x


def _counted(losses: Tensor, weights: Tensor) -> Tensor:
    """Losses times weights; what has weight 0 counts for nothing, though it be infinite."""
    return apply("MulNoNan", losses, weights)


# ---- classes -------------------------------------------------------------------------------------


class _Classes:
    """Predictions (N, C, ...) or (C,), and class indices (N, ...) or ()."""

    def __init__(self, name: str, input: Any, target: Any, weight: Any, ignore_index: int) -> None:
        self.x = as_tensor(input)
        if not is_floating(self.x.type.dtype):
            raise DTypeError(
                f"{name}: predictions must be floating, got {short(self.x.type)}; cast them first"
            )
        if self.x.ndim == 0:
            raise ShapeError(
                f"{name}: predictions need an axis of classes, got {short(self.x.type)}"
            )
        self.target = as_tensor(target)
        self.name, self.ignore_index = name, ignore_index
        self.axis = 1 if self.x.ndim > 1 else 0
        self.count = self.x.type.shape[self.axis]
        self.weight = None if weight is None else self._weight(weight)

    def _weight(self, weight: Any) -> Tensor:
        w = as_tensor(weight)
        if not is_floating(w.type.dtype) or w.type.shape != (self.count,):
            raise ShapeError(
                f"{self.name}: weight holds one float for each of {self.count} classes, got "
                f"{short(w.type)}"
            )
        return cast(w, self.x.type.dtype)

    def check_indices(self) -> None:
        """Raise unless the target holds classes.

        Where its elements are not known, in a trace, a wrong one gives NaN.
        """
        shape = self.x.type.shape
        expected = (*shape[: self.axis], *shape[self.axis + 1 :])
        found = self.target.type
        if not is_integer(found.dtype):
            raise DTypeError(
                f"{self.name}: the target must hold integer classes, shape {expected}, or "
                f"probabilities like {short(self.x.type)}; "
                f"got {short(found)}"
            )
        if found.shape != expected:
            hint = (
                "; one-hot rows are probabilities: cast them to floats"
                if found.shape == shape
                else ""
            )
            raise ShapeError(
                f"{self.name}: predictions {short(self.x.type)} need classes of shape {expected}, "
                f"got {short(found)}{hint}"
            )
        labels = MODES.interpreter.known_elements(self.target)
        if labels is not None and isinstance(self.count, int):
            wrong = labels[(labels != self.ignore_index) & ((labels < 0) | (labels >= self.count))]
            if wrong.size:
                raise BoundsError(
                    f"{self.name}: the target holds class {wrong.reshape(-1)[0]}, but there are "
                    f"{self.count} classes: 0 to "
                    f"{self.count - 1}, and {self.ignore_index} for what is ignored"
                )

    @cached_property
    def weights(self) -> Tensor:
        """The weight of each target's class; 0 for what is ignored."""
        if self.weight is None:
            counts = logic.not_equal(self.target, self.ignore_index)
            return cast(counts, _wide(self.x).type.dtype)
        ignored = logic.equal(self.target, self.ignore_index)
        index = logic.where(ignored, 0, cast(self.target, "int64"))
        chosen = apply("Gather", self.weight, index, axis=0)
        return logic.where(ignored, 0.0, chosen)

    def reduced(self, losses: Tensor, reduction: str) -> Tensor:
        """The losses reduced; their mean is over the weights of the targets that count."""
        if reduction != "mean":
            return _reduced(losses, reduction)
        total = arithmetic.divide(sum_over(_wide(losses)), sum_over(_wide(self.weights)))
        return cast(total, losses.type.dtype)

    def log_probabilities_of_targets(self, logs: Tensor) -> Tensor:
        """logs at each target; 0 for what is ignored, NaN for what is no class."""
        shape, axis = logs.type.shape, self.axis
        labels = BUILDER.reshape(cast(self.target, "int64"), (*shape[:axis], 1, *shape[axis + 1 :]))
        line = tuple(d if k == axis else 1 for k, d in enumerate(shape))
        hit = logic.equal(apply("Iota", shape=line, axis=axis, dtype="int64"), labels)
        picked = sum_over(logic.where(hit, logs, 0.0), axis)
        known = logic.logical_and(
            logic.greater_equal(self.target, 0), logic.less(self.target, BUILDER.size(self.count))
        )
        picked = logic.where(known, picked, np.nan)
        return logic.where(logic.equal(self.target, self.ignore_index), 0.0, picked)


@public
def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Minus the logarithm of the softmax of the target, along axis 1 of (N, C, ...).

    Predictions of one row are (C,). target: integer classes of shape (N, ...), or probabilities
    like the input. `weight`: a factor for each class. What has weight or probability 0 counts for
    nothing, though its loss be infinite. `ignore_index`: a target that counts for nothing.
    `label_smoothing`: the share of the target that all classes get alike. "mean" divides by the sum
    of the weights of the targets that count (of probabilities: by N). The result is 0-d, or of the
    target's shape for reduction "none".

    Raises `DTypeError`, `ShapeError`, `ArgumentError` for a reduction that there is not, and
    `BoundsError` for a target that is no class; in a trace, where targets are not known, such a one
    gives NaN.

    >>> tracer.nn.functional.cross_entropy(tracer.zeros((2, 4)), [3, 0])
    tensor(1.3862944)
    """
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"label_smoothing must be from 0 to 1, got {label_smoothing}")
    classes = _Classes("cross_entropy", input, target, weight, ignore_index)
    if is_floating(classes.target.type.dtype):
        return _of_probabilities(classes, reduction, label_smoothing)
    classes.check_indices()
    smooth_here = label_smoothing if classes.weight is None else 0.0
    losses = apply(
        "SoftmaxCrossEntropy",
        classes.x,
        classes.target,
        axis=classes.axis,
        ignore_index=ignore_index,
        label_smoothing=smooth_here,
    )
    if classes.weight is None:
        return classes.reduced(losses, reduction)
    losses = _counted(losses, classes.weights)
    if label_smoothing:
        logs = activation.log_softmax(classes.x, classes.axis)
        spread = sum_over(_counted(logs, _along(classes.weight, classes)), classes.axis)
        spread = logic.where(logic.equal(classes.target, ignore_index), 0.0, spread)
        share = arithmetic.divide(
            label_smoothing, BUILDER.size(classes.count, classes.x.type.dtype)
        )
        losses = arithmetic.subtract(
            arithmetic.multiply(losses, 1 - label_smoothing), arithmetic.multiply(spread, share)
        )
    return classes.reduced(losses, reduction)


def _along(weight: Tensor, classes: _Classes) -> Tensor:
    """Class weights along the predictions' axis of classes."""
    return BUILDER.reshape(  # type: ignore[no-any-return]
        weight, tuple(classes.count if k == classes.axis else 1 for k in range(classes.x.ndim))
    )


def _of_probabilities(classes: _Classes, reduction: str, label_smoothing: float) -> Tensor:
    x, target = classes.x, cast(classes.target, classes.x.type.dtype)
    if target.type.shape != x.type.shape:
        raise ShapeError(
            f"cross_entropy: probabilities must be like the predictions {short(x.type)}, got "
            f"{short(target.type)}"
        )
    if label_smoothing:
        share = arithmetic.divide(label_smoothing, BUILDER.size(classes.count, x.type.dtype))
        target = arithmetic.add(arithmetic.multiply(target, 1 - label_smoothing), share)
    products = _counted(activation.log_softmax(x, classes.axis), target)
    if classes.weight is not None:
        products = _counted(products, _along(classes.weight, classes))
    losses = arithmetic.negative(sum_over(products, classes.axis))
    return _reduced(losses, reduction)


@public
def nll_loss(
    input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean"
) -> Tensor:
    """Minus the log-probability of the target class.

    Input holds log-probabilities, floats of shape (N, C, ...) or (C,), the target integers. The result,
    the options and the errors are those of `cross_entropy`: `DTypeError`, `ShapeError`,
    `ArgumentError`, `BoundsError`.

    >>> tracer.nn.functional.nll_loss([[-1.0, -2.0]], [1])
    tensor(2.)
    """
    classes = _Classes("nll_loss", input, target, weight, ignore_index)
    classes.check_indices()
    losses = arithmetic.negative(classes.log_probabilities_of_targets(classes.x))
    if classes.weight is not None:
        losses = _counted(losses, classes.weights)
    return classes.reduced(losses, reduction)


@public
def kl_div(input: Any, target: Any, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target * (log(target) - input), where input holds log-probabilities; 0 where target is 0.

    Floats of one shape; the result is 0-d, or of that shape for reduction "none". `log_target`: the
    target holds them too. reduction "batchmean" divides the sum by the first axis, which is the
    divergence of distributions. Raises `ShapeError` for other shapes, `ArgumentError` for a reduction
    that there is not.

    >>> tracer.nn.functional.kl_div([[-1.0, -1.0]], [[0.0, 1.0]], reduction="batchmean")
    tensor(1.)
    """
    x, y = _pair("kl_div", input, target)
    if log_target:
        losses = arithmetic.multiply(transcendental.exp(y), arithmetic.subtract(y, x))
    else:
        positive = logic.greater(y, 0)
        logs = transcendental.log(logic.where(positive, y, 1.0))
        losses = logic.where(positive, arithmetic.multiply(y, arithmetic.subtract(logs, x)), 0.0)
    if reduction == "batchmean":
        if not x.ndim:
            raise ShapeError('kl_div: reduction "batchmean" needs a batch axis')
        return arithmetic.divide(sum_over(losses), BUILDER.size(x.type.shape[0], losses.type.dtype))
    return _reduced(losses, reduction)


# ---- distances -----------------------------------------------------------------------------------


def _pair(name: str, input: Any, target: Any) -> tuple[Tensor, Tensor]:
    """Predictions and targets of one floating type and one shape."""
    x, y = prepare(input, target, floating=True)
    if x.type.shape != y.type.shape:
        raise ShapeError(
            f"{name}: predictions {short(x.type)} and targets {short(y.type)} must have one shape; "
            "reshape or broadcast_to one of "
            "them"
        )
    return as_floating(x), as_floating(y)


def _difference(name: str, input: Any, target: Any) -> Tensor:
    return arithmetic.subtract(*_pair(name, input, target))


@public
def mse_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """Mean (or sum) of (input - target)**2.

    Floats of one shape; the result is 0-d, or of that shape for reduction "none". Raises `ShapeError`
    for other shapes, `ArgumentError` for a reduction that there is not.

    >>> tracer.nn.functional.mse_loss([1.0, 3.0], [0.0, 0.0])
    tensor(5.)
    """
    return _reduced(arithmetic.square(_difference("mse_loss", input, target)), reduction)


@public
def l1_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """Mean (or sum) of |input - target|.

    Floats of one shape; the result is 0-d, or of that shape for reduction "none". Raises `ShapeError`
    for other shapes, `ArgumentError` for a reduction that there is not.

    >>> tracer.nn.functional.l1_loss([1.0, 4.0], [0.0, 0.0])
    tensor(2.5)
    """
    return _reduced(arithmetic.abs(_difference("l1_loss", input, target)), reduction)


@public
def smooth_l1_loss(input: Any, target: Any, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """With d = |input - target|: d*d/(2*beta) below beta, else d - beta/2.

    Floats of one shape; the result is 0-d, or of that shape for reduction "none". Raises `ShapeError`
    for other shapes, `ArgumentError` for a reduction that there is not.

    >>> tracer.nn.functional.smooth_l1_loss([0.5, 3.0], [0.0, 0.0], reduction="none")
    tensor([0.125, 2.5  ])
    """
    if beta < 0:
        raise ArgumentError(f"smooth_l1_loss: beta must be at least 0, got {beta}")
    if beta == 0:
        return l1_loss(input, target, reduction)
    distance = arithmetic.abs(_difference("smooth_l1_loss", input, target))
    near = arithmetic.multiply(arithmetic.square(distance), 0.5 / beta)
    far = arithmetic.subtract(distance, 0.5 * beta)
    return _reduced(logic.where(logic.less(distance, beta), near, far), reduction)


@public
def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """With d = |input - target|: d*d/2 up to delta, else delta * (d - delta/2).

    Floats of one shape; the result is 0-d, or of that shape for reduction "none". Raises `ShapeError`
    for other shapes, `ArgumentError` for a reduction that there is not.

    >>> tracer.nn.functional.huber_loss([0.5, 3.0], [0.0, 0.0], reduction="none")
    tensor([0.125, 2.5  ])
    """
    if delta <= 0:
        raise ArgumentError(f"huber_loss: delta must be above 0, got {delta}")
    distance = arithmetic.abs(_difference("huber_loss", input, target))
    near = arithmetic.multiply(arithmetic.square(distance), 0.5)
    far = arithmetic.multiply(arithmetic.subtract(distance, 0.5 * delta), delta)
    return _reduced(logic.where(logic.less_equal(distance, delta), near, far), reduction)


# ---- yes or no -----------------------------------------------------------------------------------

_SMALLEST = float(np.exp(-100.0))


@public
def binary_cross_entropy(
    input: Any, target: Any, weight: Any = None, reduction: str = "mean"
) -> Tensor:
    """-(y*log(p) + (1-y)*log(1-p)) of probabilities p.

    Floats of one shape; the result is 0-d, or of that shape for reduction "none". Logarithms are at
    least -100; where that limit holds, the gradient is 0. What has weight 0 counts for nothing, though
    its loss be infinite or NaN. Raises `ShapeError` for other shapes, `ArgumentError` for a reduction
    that there is not.

    `binary_cross_entropy_with_logits` is the accurate way from logits.

    >>> tracer.nn.functional.binary_cross_entropy([0.5, 0.5], [1.0, 0.0])
    tensor(0.6931472)
    """
    p, y = _pair("binary_cross_entropy", input, target)
    known = MODES.interpreter.known_elements(p)
    if known is not None:
        outside = known[(known < 0) | (known > 1)]
        if outside.size:
            raise ArgumentError(
                f"binary_cross_entropy takes probabilities from 0 to 1, got {float(outside[0])}; "
                "for logits use "
                "binary_cross_entropy_with_logits"
            )
    dtype = p.type.dtype
    p, y = _wide(p), _wide(y)
    yes = transcendental.log(arithmetic.maximum(p, _SMALLEST))
    no = transcendental.log(arithmetic.maximum(arithmetic.subtract(1.0, p), _SMALLEST))
    losses = arithmetic.negative(
        arithmetic.add(
            arithmetic.multiply(y, yes), arithmetic.multiply(arithmetic.subtract(1.0, y), no)
        )
    )
    return _reduced(_weighted(cast(losses, dtype), weight), reduction)


@public
def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, reduction: str = "mean", pos_weight: Any = None
) -> Tensor:
    """Binary cross-entropy of sigmoid(input), accurate for logits of any size.

    Floats of one shape; the result is 0-d, or of that shape for reduction "none". `pos_weight`: a
    factor for targets of 1. What has weight 0 counts for nothing. Raises `ShapeError` for other shapes,
    `ArgumentError` for a reduction that there is not.

    >>> tracer.nn.functional.binary_cross_entropy_with_logits([0.0, 0.0], [1.0, 0.0])
    tensor(0.6931472)
    """
    x, y = _pair("binary_cross_entropy_with_logits", input, target)
    tail = activation.softplus(arithmetic.negative(x))
    if pos_weight is not None:
        factor = arithmetic.add(arithmetic.multiply(arithmetic.subtract(pos_weight, 1.0), y), 1.0)
        tail = arithmetic.multiply(tail, factor)
    losses = arithmetic.add(arithmetic.multiply(arithmetic.subtract(1.0, y), x), tail)
    return _reduced(_weighted(losses, weight), reduction)


def _weighted(losses: Tensor, weight: Any) -> Tensor:
    return losses if weight is None else _counted(*prepare(losses, weight, floating=True))
