"""Losses as modules; see `tracer.nn.functional` for what they compute."""

from __future__ import annotations

from typing import Any

from tracer.nn import functional as F  # noqa: N812 - PyTorch's name
from tracer.nn.module import Module
from tracer.tensor import Tensor


class _Loss(Module):
    """A loss with a reduction: "mean", "sum" or "none"."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def extra_repr(self) -> str:
        """The reduction."""
        return f"reduction={self.reduction!r}"


class MSELoss(_Loss):
    """(x - y) squared."""

    def forward(self, input: Tensor, target: Any) -> Tensor:  # noqa: A002 - PyTorch's name
        """A 0-d Tensor unless the reduction is none."""
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(_Loss):
    """|x - y|."""

    def forward(self, input: Tensor, target: Any) -> Tensor:  # noqa: A002 - PyTorch's name
        """A 0-d Tensor unless the reduction is none."""
        return F.l1_loss(input, target, reduction=self.reduction)


class BCELoss(_Loss):
    """Binary cross-entropy of probabilities."""

    def forward(self, input: Tensor, target: Any) -> Tensor:  # noqa: A002 - PyTorch's name
        """A 0-d Tensor unless the reduction is none."""
        return F.binary_cross_entropy(input, target, reduction=self.reduction)


class BCEWithLogitsLoss(_Loss):
    """Binary cross-entropy of logits."""

    def forward(self, input: Tensor, target: Any) -> Tensor:  # noqa: A002 - PyTorch's name
        """A 0-d Tensor unless the reduction is none."""
        return F.binary_cross_entropy_with_logits(input, target, reduction=self.reduction)


class NLLLoss(_Loss):
    """Minus the log-probability of the target class."""

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Any) -> Tensor:  # noqa: A002 - PyTorch's name
        """A 0-d Tensor unless the reduction is none."""
        return F.nll_loss(
            input, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction
        )


class CrossEntropyLoss(_Loss):
    """Cross-entropy of logits and classes, or probabilities of classes."""

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

    def forward(self, input: Tensor, target: Any) -> Tensor:  # noqa: A002 - PyTorch's name
        """A 0-d Tensor unless the reduction is none."""
        return F.cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )
