"""Activations as modules."""

from __future__ import annotations

from tracer.functions import elementwise
from tracer.nn.module import Module
from tracer.tensor import Tensor


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return elementwise.relu(x)
