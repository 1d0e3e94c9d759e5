"""Initialisers: fill a Tensor in place and return it, under PyTorch's names.

References: Glorot and Bengio 2010 (xavier), He et al. 2015 (kaiming), Saxe et al. 2014 (orthogonal).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ops.errors import ArgumentError, ShapeError
from ops.types import short
from tracer import random
from tracer.functions.creation import full
from tracer.functions.public import public
from tracer.functions.ranges import eye
from tracer.functions.state_values import assign
from tracer.tensors.grad_mode import no_grad
from tracer.tensors.tensor import Tensor

_GAINS = {
    "linear": 1.0,
    "identity": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,
}


@public
def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The recommended gain for a nonlinearity; `param`: the negative slope of leaky_relu.

    Raises `ArgumentError` for a nonlinearity that it does not know.

    >>> tracer.nn.init.calculate_gain("tanh")
    1.6666666666666667
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ArgumentError(
            f"no gain is known for {nonlinearity!r}; known: {', '.join([*_GAINS, 'leaky_relu'])}"
        )
    return _GAINS[nonlinearity]


def _fan(tensor: Tensor) -> tuple[int, int]:
    if tensor.ndim < 2:
        raise ShapeError(f"fan in and fan out need at least 2 axes, got {short(tensor.type)}")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _fill(tensor: Tensor, value: Tensor) -> Tensor:
    with no_grad():
        assign(tensor, value)
    return tensor


@public
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Uniform from a to b, in place; returns the Tensor.

    >>> tracer.nn.init.uniform_(tracer.zeros((2, 3))).shape
    (2, 3)
    """
    return _fill(tensor, random.uniform(tensor.shape, a, b, dtype=tensor.type.dtype))


@public
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Normal with a mean and a standard deviation, in place; returns the Tensor.

    >>> tracer.nn.init.normal_(tracer.zeros((2, 3))).shape
    (2, 3)
    """
    return _fill(tensor, random.normal(tensor.shape, mean, std, dtype=tensor.type.dtype))


@public
def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0
) -> Tensor:
    """Normal, cut to [a, b] by inverting its distribution function, in place; returns the Tensor.

    Raises `ArgumentError` unless a < b.

    >>> float(tracer.nn.init.trunc_normal_(tracer.zeros(100), a=0.0, b=1.0).min()) >= 0.0
    True
    """
    from scipy.special import ndtr, ndtri

    if not std > 0 or not a < b:
        raise ArgumentError(f"trunc_normal_ needs std > 0 and a < b; got {std}, {a} and {b}")
    start, end = (a - mean) / std, (b - mean) / std
    mirrored = start > 0  # the function is exact in its lower tail
    if mirrored:
        start, end = -end, -start
    low, high = ndtr(start), ndtr(end)
    u = random.uniform(tensor.shape, dtype="float64").array
    z = ndtri(low + u * (high - low))
    values = np.clip((-z if mirrored else z) * std + mean, a, b)
    return _fill(tensor, Tensor.of_array(values.astype(tensor.dtype)))


@public
def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill a Tensor with val, in place; returns it.

    >>> tracer.nn.init.constant_(tracer.zeros(2), 0.5)
    tensor([0.5, 0.5])
    """
    return _fill(tensor, full(tensor.shape, val, tensor.type.dtype))


@public
def zeros_(tensor: Tensor) -> Tensor:
    """Fill a Tensor with zeros, in place; returns it.

    >>> tracer.nn.init.zeros_(tracer.ones(2))
    tensor([0., 0.])
    """
    return constant_(tensor, 0)


@public
def ones_(tensor: Tensor) -> Tensor:
    """Fill a Tensor with ones, in place; returns it.

    >>> tracer.nn.init.ones_(tracer.zeros(2))
    tensor([1., 1.])
    """
    return constant_(tensor, 1)


@public
def eye_(tensor: Tensor) -> Tensor:
    """Make a matrix the identity, in place; returns it. Raises `ShapeError` for another number of axes.

    >>> tracer.nn.init.eye_(tracer.zeros((2, 2)))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if tensor.ndim != 2:
        raise ShapeError(f"eye_ needs 2 axes, got {short(tensor.type)}")
    return _fill(tensor, eye(tensor.shape[0], tensor.shape[1], dtype=tensor.type.dtype))


@public
def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Uniform in +-gain * sqrt(6 / (fan_in + fan_out)), in place; returns the Tensor.

    The weight has shape (outputs, inputs, ...). Raises `ShapeError` for fewer than two axes.

    >>> tracer.nn.init.xavier_uniform_(tracer.zeros((3, 4))).shape
    (3, 4)
    """
    fan_in, fan_out = _fan(tensor)
    bound = gain * math.sqrt(6.0 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound)


@public
def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Normal with standard deviation gain * sqrt(2 / (fan_in + fan_out)), in place; returns the Tensor.

    The weight has shape (outputs, inputs, ...). Raises `ShapeError` for fewer than two axes.

    >>> tracer.nn.init.xavier_normal_(tracer.zeros((3, 4))).shape
    (3, 4)
    """
    fan_in, fan_out = _fan(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / (fan_in + fan_out)))


def _kaiming(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"mode is 'fan_in' or 'fan_out', got {mode!r}")
    fan = _fan(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / math.sqrt(fan)


@public
def kaiming_uniform_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Uniform in +-gain * sqrt(3 / fan), in place; returns the Tensor.

    fan is the number of inputs (or outputs: `mode="fan_out"`) of a weight of shape (outputs, inputs,
    ...). Raises `ShapeError` for fewer than two axes, `ArgumentError` for another mode or nonlinearity.

    >>> tracer.nn.init.kaiming_uniform_(tracer.zeros((3, 4)), nonlinearity="relu").shape
    (3, 4)
    """
    bound = math.sqrt(3.0) * _kaiming(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


@public
def kaiming_normal_(
    tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu"
) -> Tensor:
    """Normal with standard deviation gain / sqrt(fan), in place; returns the Tensor.

    fan is the number of inputs (or outputs: `mode="fan_out"`) of a weight of shape (outputs, inputs,
    ...). Raises `ShapeError` for fewer than two axes, `ArgumentError` for another mode or nonlinearity.

    >>> tracer.nn.init.kaiming_normal_(tracer.zeros((3, 4))).shape
    (3, 4)
    """
    return normal_(tensor, 0.0, _kaiming(tensor, a, mode, nonlinearity))


@public
def orthogonal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """A (semi-)orthogonal matrix times gain, in place; returns the Tensor.

    Further axes are flattened into columns. Raises `ShapeError` for fewer than two axes.

    >>> q = tracer.nn.init.orthogonal_(tracer.zeros((2, 3)))
    >>> tracer.allclose(q @ q.T, tracer.eye(2), atol=1e-6)
    True
    """
    if tensor.ndim < 2:
        raise ShapeError(f"orthogonal_ needs at least 2 axes, got {short(tensor.type)}")
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    flat = random.normal((max(rows, columns), min(rows, columns)), dtype="float64").array
    q, r = np.linalg.qr(flat)
    q = q * np.sign(np.diagonal(r))
    matrix: Any = q if rows >= columns else q.T
    return _fill(
        tensor, Tensor.of_array((gain * matrix).reshape(tensor.shape).astype(tensor.dtype))
    )


__all__ = [
    "calculate_gain",
    "constant_",
    "eye_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "ones_",
    "orthogonal_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
    "zeros_",
]
