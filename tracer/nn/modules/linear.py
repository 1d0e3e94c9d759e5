"""Affine layers."""

from __future__ import annotations

import math
from typing import Any

from tracer import random
from tracer.nn import functional as F
from tracer.nn.module import Module
from tracer.nn.sizes import size
from tracer.tensors.parameter import Parameter
from tracer.tensors.tensor import Tensor


class Linear(Module):
    """x @ weight.T + bias over the last axis.

    `weight`: (out_features, in_features), `bias`: (out_features,), both at first uniform in
    +-1/sqrt(in_features). An input of shape (..., in_features) gives (..., out_features). Raises
    `ShapeError` for another last axis.

    >>> layer = tracer.nn.Linear(3, 4)
    >>> layer(tracer.zeros((2, 3))).shape, layer.weight.shape
    ((2, 4), (4, 3))
    """

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, dtype: Any = None
    ) -> None:
        super().__init__()
        self.in_features = size("in_features", in_features)
        self.out_features = size("out_features", out_features)
        bound = 1 / math.sqrt(in_features) if in_features else 0.0
        shape = (self.out_features, self.in_features)
        self.weight = Parameter(random.uniform(shape, -bound, bound, dtype=dtype))
        self.bias: Parameter | None
        if bias:
            self.bias = Parameter(random.uniform(shape[:1], -bound, bound, dtype=dtype))
        else:
            self.register_parameter("bias", None)

    def forward(self, x: Tensor) -> Tensor:
        """(..., in_features) to (..., out_features)."""
        return F.linear(x, self.weight, self.bias)

    def extra_repr(self) -> str:
        """Sizes."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )
