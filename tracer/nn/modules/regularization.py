"""Dropout."""

from __future__ import annotations

from ops.errors import ArgumentError
from tracer.core.source_lines import located
from tracer.nn import functional as F
from tracer.nn.module import Module
from tracer.tensors.tensor import Tensor


class Dropout(Module):
    """In training each element is zero with probability p, and the others are divided by 1 - p.

    Shape and type stay; in evaluation the input is the result. Which elements are zero, the default
    generator decides anew at each call, in a compiled program too, with the same bits as without.
    Raises `ArgumentError` for a p outside 0 to 1.

    Reference: Srivastava et al., "Dropout", JMLR 2014.

    >>> layer = tracer.nn.Dropout(0.5)
    >>> layer.eval()(tracer.ones(3))
    tensor([1., 1., 1.])
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise located(ArgumentError(f"the probability must be from 0 to 1, got {p}"))
        self.p = float(p)

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return F.dropout(x, self.p, self.training)

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}"
