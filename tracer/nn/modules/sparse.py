"""Tables of vectors."""

from __future__ import annotations

from typing import Any

from ops.errors import ShapeError
from ops.types import normalize_axis
from tracer import random
from tracer.core.source_lines import located
from tracer.nn import functional as F
from tracer.nn.module import Module
from tracer.nn.sizes import size
from tracer.tensors.grad_mode import no_grad
from tracer.tensors.parameter import Parameter
from tracer.tensors.tensor import Tensor


class Embedding(Module):
    """A vector of `embedding_dim` numbers for each of `num_embeddings` integers.

    Integers of any shape give floats of shape (*shape, embedding_dim). The vectors are normal at first.
    `padding_idx`: an integer whose vector is zero and gets no gradient. An index out of range raises
    `BoundsError`, compiled too, before any state changes.

    >>> tracer.nn.Embedding(10, 3)(tracer.tensor([[1, 2], [3, 4]])).shape
    (2, 2, 3)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.num_embeddings = size("num_embeddings", num_embeddings)
        self.embedding_dim = size("embedding_dim", embedding_dim)
        self.padding_idx = padding_idx
        self.weight = Parameter(random.normal((num_embeddings, embedding_dim), dtype=dtype))
        if padding_idx is not None:
            try:
                self.padding_idx = normalize_axis(padding_idx, num_embeddings, "padding_idx")
            except ShapeError as error:
                raise located(error) from None
            with no_grad():
                self.weight[self.padding_idx] = 0.0

    def forward(self, indices: Tensor) -> Tensor:
        """(...) integers to (..., embedding_dim)."""
        return F.embedding(indices, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        """Sizes."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"
