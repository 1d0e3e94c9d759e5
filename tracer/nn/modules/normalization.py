"""Normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracer.functions.creation import ones, zeros
from tracer.nn import functional as F
from tracer.nn.module import Module
from tracer.nn.sizes import shape
from tracer.tensors.parameter import Parameter
from tracer.tensors.tensor import Tensor


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias, over the last axes.

    weight and bias have the shape `normalized_shape`, which the last axes of the input have too; the
    result is like the input. `elementwise_affine` False: neither weight nor bias. Raises `ShapeError`
    for an input with other last axes.

    Reference: Ba, Kiros and Hinton, "Layer Normalization", 2016.

    >>> tracer.nn.LayerNorm(3)(tracer.tensor([[1.0, 2.0, 3.0]])).sum().item()
    0.0
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps = shape("normalized_shape", normalized_shape), eps
        self.elementwise_affine = elementwise_affine
        made = self.normalized_shape if elementwise_affine else None
        weight = None if made is None else Parameter(ones(made, dtype))
        self.register_parameter("weight", weight)
        offset = None if made is None or not bias else Parameter(zeros(made, dtype))
        self.register_parameter("bias", offset)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Shape and epsilon."""
        affine = f"elementwise_affine={self.elementwise_affine}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"


class RMSNorm(Module):
    """x / sqrt(mean(x * x) + eps) * weight, over the last axes.

    weight has the shape `normalized_shape`, which the last axes of the input have too; the result is
    like the input. eps None: the element type's epsilon. Raises `ShapeError` for an input with other
    last axes.

    Reference: Zhang and Sennrich, "Root Mean Square Layer Normalization", NeurIPS 2019.

    >>> tracer.nn.RMSNorm(2, eps=0.0)(tracer.tensor([3.0, 4.0]))
    tensor([0.84852815, 1.1313709 ], requires_grad=True)
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps = shape("normalized_shape", normalized_shape), eps
        self.elementwise_affine = elementwise_affine
        weight = Parameter(ones(self.normalized_shape, dtype)) if elementwise_affine else None
        self.register_parameter("weight", weight)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Shape and epsilon."""
        affine = f"elementwise_affine={self.elementwise_affine}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"
