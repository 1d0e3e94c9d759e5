"""Activations as modules; `tracer.nn.functional` says what they compute."""

from __future__ import annotations

from ops.errors import ArgumentError
from tracer.nn import functional as F
from tracer.nn.module import Module
from tracer.tensors.tensor import Tensor


class ReLU(Module):
    """max(x, 0).

    Element by element; see `tracer.relu`.

    >>> tracer.nn.ReLU()(tracer.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.relu(x)


class ReLU6(Module):
    """x limited to 0 and 6.

    Element by element; see `tracer.nn.functional.relu6`.

    >>> tracer.nn.ReLU6()(tracer.tensor([-1.0, 7.0]))
    tensor([0., 6.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.relu6(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x)).

    Element by element; see `tracer.sigmoid`.

    >>> tracer.nn.Sigmoid()(tracer.tensor([0.0]))
    tensor([0.5])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.sigmoid(x)


class LogSigmoid(Module):
    """The logarithm of sigmoid, without overflow.

    Element by element; see `tracer.nn.functional.logsigmoid`.

    >>> tracer.nn.LogSigmoid()(tracer.tensor([0.0, -100.0]))
    tensor([  -0.6931472, -100.       ])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.logsigmoid(x)


class Tanh(Module):
    """Hyperbolic tangent.

    Element by element; see `tracer.tanh`.

    >>> tracer.nn.Tanh()(tracer.tensor([0.0, 1.0]))
    tensor([0.       , 0.7615942])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.tanh(x)


class SiLU(Module):
    """x * sigmoid(x).

    Element by element; see `tracer.silu`.

    >>> tracer.nn.SiLU()(tracer.tensor([-1.0, 1.0]))
    tensor([-0.26894143,  0.7310586 ])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.silu(x)


class Mish(Module):
    """x * tanh(softplus(x)).

    Element by element; see `tracer.mish`.

    >>> tracer.nn.Mish()(tracer.tensor([0.0, 1.0]))
    tensor([0.       , 0.8650984])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.mish(x)


class Softplus(Module):
    """log(1 + exp(x)).

    Element by element; see `tracer.softplus`.

    >>> tracer.nn.Softplus()(tracer.tensor([0.0, 100.0]))
    tensor([  0.6931472, 100.       ])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.softplus(x)


class Softsign(Module):
    """x / (1 + |x|).

    Element by element; see `tracer.softsign`.

    >>> tracer.nn.Softsign()(tracer.tensor([1.0, -3.0]))
    tensor([ 0.5 , -0.75])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.softsign(x)


class SELU(Module):
    """Scaled ELU, whose constants keep mean 0 and variance 1.

    Element by element; see `tracer.selu`.

    Reference: Klambauer et al., "Self-Normalizing Neural Networks", NeurIPS 2017.

    >>> tracer.nn.SELU()(tracer.tensor([-1.0, 1.0]))
    tensor([-1.1113307,  1.050701 ])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.selu(x)


class Hardsigmoid(Module):
    """x / 6 + 1 / 2, limited to 0 and 1.

    Element by element; see `tracer.hard_sigmoid`.

    >>> tracer.nn.Hardsigmoid()(tracer.tensor([-6.0, 0.0, 6.0]))
    tensor([0. , 0.5, 1. ])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.hardsigmoid(x)


class Hardswish(Module):
    """x * hardsigmoid(x).

    Element by element; see `tracer.hard_swish`.

    >>> tracer.nn.Hardswish()(tracer.tensor([-6.0, 1.5, 6.0]))
    tensor([-0.   ,  1.125,  6.   ])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.hardswish(x)


class GELU(Module):
    """x times the normal distribution function at x.

    Element by element; `approximate="tanh"` for the usual approximation of it. Raises `ArgumentError`
    for another one.

    Reference: Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.

    >>> tracer.nn.GELU()(tracer.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.15865526,  0.        ,  0.8413448 ])
    """

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        if approximate not in ("none", "tanh"):
            raise ArgumentError(f'approximate must be "none" or "tanh", got {approximate!r}')
        self.approximate = approximate

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.gelu(x, approximate=self.approximate)

    def extra_repr(self) -> str:
        """The approximation."""
        return f"approximate={self.approximate!r}"


class ELU(Module):
    """x for x > 0, alpha * (exp(x) - 1) below.

    Element by element; see `tracer.elu`.

    >>> tracer.nn.ELU()(tracer.tensor([-1.0, 2.0]))
    tensor([-0.63212055,  2.        ])
    """

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
    """x for x > 0, negative_slope * x below.

    Element by element; see `tracer.leaky_relu`.

    >>> tracer.nn.LeakyReLU()(tracer.tensor([-1.0, 2.0]))
    tensor([-0.01,  2.  ])
    """

    def __init__(self, negative_slope: float = 0.01) -> None:
        super().__init__()
        self.negative_slope = negative_slope

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.leaky_relu(x, self.negative_slope)

    def extra_repr(self) -> str:
        """The slope."""
        return f"negative_slope={self.negative_slope}"


class Hardtanh(Module):
    """x limited to min_val and max_val.

    Element by element. Raises `ArgumentError` unless min_val is below max_val.

    >>> tracer.nn.Hardtanh()(tracer.tensor([-6.0, 0.5, 6.0]))
    tensor([-1. ,  0.5,  1. ])
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        super().__init__()
        if min_val >= max_val:
            raise ArgumentError(f"min_val must be below max_val, got {min_val} and {max_val}")
        self.min_val, self.max_val = min_val, max_val

    def forward(self, x: Tensor) -> Tensor:
        """Element by element."""
        return F.hardtanh(x, self.min_val, self.max_val)

    def extra_repr(self) -> str:
        """The limits."""
        return f"min_val={self.min_val}, max_val={self.max_val}"


class Softmax(Module):
    """Exponentials that sum to 1 over an axis.

    The shape stays; see `tracer.softmax`.

    >>> tracer.nn.Softmax()(tracer.tensor([0.0, 0.0]))
    tensor([0.5, 0.5])
    """

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
    """The logarithm of softmax, computed without its underflow.

    The shape stays; see `tracer.log_softmax`.

    >>> tracer.nn.LogSoftmax()(tracer.tensor([0.0, 0.0]))
    tensor([-0.6931472, -0.6931472])
    """

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return F.log_softmax(x, self.dim)
