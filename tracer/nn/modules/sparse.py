"""Tables of vectors."""

from __future__ import annotations

from typing import Any

from tracer import random
from tracer.nn import functional as F  # noqa: N812 - PyTorch's name
from tracer.nn.module import Module
from tracer.nn.parameter import Parameter
from tracer.tensor import Tensor


class Embedding(Module):
    """A vector of `embedding_dim` numbers for each of `num_embeddings` integers, normal at first. An index out of range raises."""

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: Any = None) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.weight = Parameter(random.normal((num_embeddings, embedding_dim), dtype=dtype))

    def forward(self, indices: Tensor) -> Tensor:
        """(...) integers to (..., embedding_dim)."""
        return F.embedding(indices, self.weight)

    def extra_repr(self) -> str:
        """Sizes."""
        return f"{self.num_embeddings}, {self.embedding_dim}"
