"""Normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracer.functions.creation import ones, zeros
from tracer.nn import functional as F  # noqa: N812 - PyTorch's name
from tracer.nn.module import Module
from tracer.nn.parameter import Parameter
from tracer.tensor import Tensor


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axes, which have `normalized_shape`.

    Reference: Ba, Kiros and Hinton, "Layer Normalization", 2016.
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
        shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
        self.normalized_shape, self.eps = shape, eps
        self.register_parameter("weight", Parameter(ones(shape, dtype)) if elementwise_affine else None)
        self.register_parameter("bias", Parameter(zeros(shape, dtype)) if elementwise_affine and bias else None)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Shape and epsilon."""
        return f"{self.normalized_shape}, eps={self.eps}"
