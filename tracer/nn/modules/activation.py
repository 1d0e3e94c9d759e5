"""Activations as modules."""

from __future__ import annotations

from tracer.nn import functional as F  # noqa: N812 - PyTorch's name
from tracer.nn.module import Module
from tracer.tensor import Tensor


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.relu(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.sigmoid(x)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.tanh(x)


class SiLU(Module):
    """x * sigmoid(x)."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.silu(x)


class Softplus(Module):
    """log(1 + exp(x))."""

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.softplus(x)


class GELU(Module):
    """x times the normal distribution function at x; `approximate="tanh"` for the usual approximation."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.gelu(x, approximate=self.approximate)

    def extra_repr(self) -> str:
        """The approximation."""
        return f"approximate={self.approximate!r}"


class ELU(Module):
    """x for x > 0, alpha * (exp(x) - 1) below."""

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.elu(x, self.alpha)

    def extra_repr(self) -> str:
        """The scale of the negative part."""
        return f"alpha={self.alpha}"


class LeakyReLU(Module):
    """x for x > 0, negative_slope * x below."""

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.leaky_relu(x, self.negative_slope)

    def extra_repr(self) -> str:
        """The slope."""
        return f"negative_slope={self.negative_slope}"


class Softmax(Module):
    """Exponentials that sum to 1 over an axis."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return F.softmax(x, self.dim)

    def extra_repr(self) -> str:
        """The axis."""
        return f"dim={self.dim}"


class LogSoftmax(Softmax):
    """The logarithm of softmax, computed without its underflow."""

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return F.log_softmax(x, self.dim)
