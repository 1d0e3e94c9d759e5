"""Modules that compute nothing."""

from __future__ import annotations

from typing import Any

from tracer.functions.movement import reshape
from tracer.nn.module import Module
from tracer.tensor import Tensor


class Identity(Module):
    """Its argument."""

    def forward(self, x: Any) -> Any:
        """The argument."""
        return x


class Flatten(Module):
    """Axes start_dim to end_dim made one."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, x: Tensor) -> Tensor:
        """The same elements."""
        rank = x.ndim
        start, end = self.start_dim % max(rank, 1), self.end_dim % max(rank, 1)
        size: Any = 1
        for d in x.shape[start : end + 1]:
            size = size * d
        return reshape(x, (*x.shape[:start], size, *x.shape[end + 1 :]))

    def extra_repr(self) -> str:
        """The axes."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"
