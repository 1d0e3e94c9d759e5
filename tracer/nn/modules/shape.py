"""Modules that compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ops import dims
from ops.errors import ShapeError
from ops.types import normalize_axis, short
from tracer.functions.creation import as_tensor
from tracer.functions.movement import reshape
from tracer.functions.public import public
from tracer.nn.module import Module
from tracer.tensors.tensor import Tensor


class Identity(Module):
    """Its first argument; takes and ignores any others, also where it is made.

    >>> tracer.nn.Identity()(tracer.ones(2))
    tensor([1., 1.])
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, x: Any, *args: Any, **kwargs: Any) -> Any:
        """The argument."""
        return x


class Flatten(Module):
    """Axes start_dim to end_dim made one.

    By default all but the first, which counts examples. The type stays.

    >>> tracer.nn.Flatten()(tracer.zeros((2, 3, 4))).shape
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    @public
    def forward(self, x: Any) -> Tensor:
        """The same elements. Raises `ShapeError` for axes that are not there."""
        x = as_tensor(x)
        rank = max(x.ndim, 1)  # a 0-d Tensor becomes one of one element
        try:
            start = normalize_axis(self.start_dim, rank, "start_dim")
            end = normalize_axis(self.end_dim, rank, "end_dim")
        except ShapeError as error:
            raise ShapeError(f"Flatten of {short(x.type)}: {error}") from None
        if start > end:
            raise ShapeError(f"Flatten: start_dim {start} lies behind end_dim {end}")
        size = dims.product(x.shape[start : end + 1])
        return reshape(x, (*x.shape[:start], size, *x.shape[end + 1 :]))

    def extra_repr(self) -> str:
        """The axes."""
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """An axis made several of the given sizes, one of which may be -1.

    The type stays. Raises `ShapeError` where the sizes do not fit the axis.

    >>> tracer.nn.Unflatten(1, (2, -1))(tracer.zeros((5, 6))).shape
    (5, 2, 3)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    @public
    def forward(self, x: Any) -> Tensor:
        """The same elements. Raises `ShapeError` where the sizes do not fit."""
        x = as_tensor(x)
        axis = normalize_axis(self.dim, x.ndim, "dim")
        return reshape(x, (*x.shape[:axis], *self.unflattened_size, *x.shape[axis + 1 :]))

    def extra_repr(self) -> str:
        """Axis and sizes."""
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
