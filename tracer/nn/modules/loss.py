"""Losses as modules; see `tracer.nn.functional` for what they compute."""

from __future__ import annotations

from typing import Any

from ops.errors import ArgumentError
from tracer.core.source_lines import located
from tracer.nn import functional as F
from tracer.nn.module import Module
from tracer.tensors.tensor import Tensor


class _Loss(Module):
    """A loss with a reduction: "mean", "sum" or "none"."""

    _reductions: tuple[str, ...] = ("mean", "sum", "none")

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        if reduction not in self._reductions:
            names = ", ".join(map(repr, self._reductions))
            raise located(ArgumentError(f"reduction must be one of {names}, got {reduction!r}"))
        self.reduction = reduction

    def extra_repr(self) -> str:
        """The reduction."""
        return f"reduction={self.reduction!r}"


class MSELoss(_Loss):
    """Mean (or sum) of (x - y) squared.

    Both have one shape and floats; the mean is 0-d. See `tracer.nn.functional.mse_loss`.

    >>> tracer.nn.MSELoss()(tracer.tensor([1.0, 3.0]), tracer.zeros(2))
    tensor(5.)
    """

    def forward(self, input: Tensor, target: Any) -> Tensor:
        """A 0-d Tensor unless the reduction is none."""
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """Mean (or sum) of |x - y|.

    Both have one shape and floats; the mean is 0-d. See `tracer.nn.functional.l1_loss`.

    >>> tracer.nn.L1Loss()(tracer.tensor([1.0, 4.0]), tracer.zeros(2))
    tensor(2.5)
    """

    def forward(self, input: Tensor, target: Any) -> Tensor:
        """A 0-d Tensor unless the reduction is none."""
        return F.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """Quadratic below beta, linear above.

    Input and target have one shape and floats; the mean is 0-d. See `tracer.nn.functional.smooth_l1_loss`.

    >>> tracer.nn.SmoothL1Loss()(tracer.tensor([0.5, 3.0]), tracer.zeros(2))
    tensor(1.3125)
    """

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Any) -> Tensor:
        """A 0-d Tensor unless the reduction is none."""
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """Quadratic up to delta, linear above.

    Input and target have one shape and floats; the mean is 0-d. See `tracer.nn.functional.huber_loss`.

    >>> tracer.nn.HuberLoss()(tracer.tensor([0.5, 3.0]), tracer.zeros(2))
    tensor(1.3125)
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Any) -> Tensor:
        """A 0-d Tensor unless the reduction is none."""
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class KLDivLoss(_Loss):
    """Divergence of distributions, from log-probabilities; reduction "batchmean" is the usual.

    Input and target have one shape and floats. See `tracer.nn.functional.kl_div`.

    >>> half = tracer.tensor([[0.5, 0.5]])
    >>> tracer.nn.KLDivLoss(reduction="batchmean")(tracer.log(half), half)
    tensor(0.)
    """

    _reductions = ("mean", "sum", "none", "batchmean")

    def __init__(self, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Any) -> Tensor:
        """A 0-d Tensor unless the reduction is none."""
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class BCELoss(_Loss):
    """Binary cross-entropy of probabilities; `weight` is a factor for each element.

    Input and target have one shape and floats; the mean is 0-d. See `tracer.nn.functional.binary_cross_entropy`.

    >>> tracer.nn.BCELoss()(tracer.tensor([0.5, 0.5]), tracer.tensor([1.0, 0.0]))
    tensor(0.6931472)
    """

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Any) -> Tensor:
        """A 0-d Tensor unless the reduction is none."""
        return F.binary_cross_entropy(input, target, self.weight, self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Binary cross-entropy of logits.

    `weight` is a factor for each element, `pos_weight` one for targets of 1.

    Input and target have one shape and floats; the mean is 0-d. See `tracer.nn.functional.binary_cross_entropy_with_logits`.

    >>> tracer.nn.BCEWithLogitsLoss()(tracer.tensor([0.0, 0.0]), tracer.tensor([1.0, 0.0]))
    tensor(0.6931472)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Any) -> Tensor:
        """A 0-d Tensor unless the reduction is none."""
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, self.reduction, self.pos_weight
        )


class NLLLoss(_Loss):
    """Minus the log-probability of the target class, from log-probabilities.

    `weight`: a factor for each class. `ignore_index`: a target that counts for nothing.

    Log-probabilities are floats of shape (N, C, ...), classes integers of shape (N, ...); the mean is
    0-d. See `tracer.nn.functional.nll_loss`, for the errors too.

    >>> tracer.nn.NLLLoss()(tracer.tensor([[-1.0, -2.0]]), tracer.tensor([1]))
    tensor(2.)
    """

    def __init__(
        self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Any) -> Tensor:
        """A 0-d Tensor unless the reduction is none."""
        return F.nll_loss(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )


class CrossEntropyLoss(_Loss):
    """Cross-entropy of logits and classes, or probabilities of classes.

    `weight`: a factor for each class. `ignore_index`: a target that counts for nothing.
    `label_smoothing`: the share of the target that all classes get alike.

    Logits are floats of shape (N, C, ...), classes integers of shape (N, ...); the mean is 0-d. See
    `tracer.nn.functional.cross_entropy`, for the errors too.

    >>> tracer.nn.CrossEntropyLoss()(tracer.zeros((2, 4)), tracer.tensor([3, 0]))
    tensor(1.3862944)
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Any) -> Tensor:
        """A 0-d Tensor unless the reduction is none."""
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )
