"""Activations of neural networks, and softmax with its relatives. Integers become float32."""

from __future__ import annotations

from typing import Any

from ops.activation import SELU_ALPHA, SELU_GAMMA
from ops.types import normalize_axis
from tracer.dispatch.apply import apply
from tracer.functions.arithmetic import maximum
from tracer.functions.creation import as_tensor, ones
from tracer.functions.elementwise import as_floating, as_numbers, unary_floating
from tracer.functions.public import public
from tracer.functions.reductions import Axis, reduce
from tracer.tensors.tensor import Tensor


@public
def relu(x: Any, /) -> Tensor:
    """max(x, 0), for integers too; NaN for NaN. The gradient at 0 is 0.

    Element by element; the type stays, but bools become int64.

    >>> tracer.relu([-1.0, 2.0])
    tensor([0., 2.])
    """
    x = as_numbers(x)
    if x.type.dtype.startswith("uint"):
        return maximum(x, 0)
    return apply("Relu", x)


@public
def sigmoid(x: Any, /) -> Tensor:
    """1 / (1 + exp(-x)), element by element; integers and bools become float32.

    >>> tracer.sigmoid([0.0, 100.0])
    tensor([0.5, 1. ])
    """
    return unary_floating("Sigmoid", x)


@public
def gelu(x: Any, /, approximate: str = "none") -> Tensor:
    """x times the normal distribution function; approximate="tanh": its approximation by tanh.

    Element by element; integers and bools become float32.

    >>> tracer.gelu([-1.0, 0.0, 1.0])
    tensor([-0.15865526,  0.        ,  0.8413448 ])
    """
    return unary_floating("Gelu", x, approximate=approximate)


@public
def silu(x: Any, /) -> Tensor:
    """x * sigmoid(x), also called swish.

    Element by element; integers and bools become float32.

    >>> tracer.silu([-1.0, 0.0, 1.0])
    tensor([-0.26894143,  0.        ,  0.7310586 ])
    """
    return unary_floating("Silu", x)


@public
def mish(x: Any, /) -> Tensor:
    """x * tanh(softplus(x)).

    Element by element; integers and bools become float32.

    >>> tracer.mish([-1.0, 0.0, 1.0])
    tensor([-0.30340147,  0.        ,  0.8650984 ])
    """
    return unary_floating("Mish", x)


@public
def softplus(x: Any, /) -> Tensor:
    """log(1 + exp(x)), without overflow.

    Element by element; integers and bools become float32.

    >>> tracer.softplus([0.0, 100.0])
    tensor([  0.6931472, 100.       ])
    """
    return unary_floating("Softplus", x)


@public
def softsign(x: Any, /) -> Tensor:
    """x / (1 + |x|), element by element; integers and bools become float32.

    >>> tracer.softsign([1.0, -3.0])
    tensor([ 0.5 , -0.75])
    """
    return unary_floating("Softsign", x)


@public
def elu(x: Any, /, alpha: float = 1.0) -> Tensor:
    """x where x >= 0, else alpha * (exp(x) - 1).

    Element by element; integers and bools become float32.

    >>> tracer.elu([-1.0, 2.0])
    tensor([-0.63212055,  2.        ])
    """
    return unary_floating("Elu", x, alpha=alpha)


@public
def selu(x: Any, /, alpha: float = SELU_ALPHA, gamma: float = SELU_GAMMA) -> Tensor:
    """gamma * elu(x, alpha), whose constants keep mean 0 and variance 1.

    Element by element; integers and bools become float32.

    >>> tracer.selu([-1.0, 1.0])
    tensor([-1.1113307,  1.050701 ])
    """
    return unary_floating("Selu", x, alpha=alpha, gamma=gamma)


@public
def leaky_relu(x: Any, /, negative_slope: float = 0.01) -> Tensor:
    """x where x >= 0, else negative_slope * x.

    Element by element; integers and bools become float32.

    >>> tracer.leaky_relu([-1.0, 2.0])
    tensor([-0.01,  2.  ])
    """
    return unary_floating("LeakyRelu", x, alpha=negative_slope)


@public
def hard_sigmoid(x: Any, /, alpha: float = 1 / 6, beta: float = 0.5) -> Tensor:
    """alpha * x + beta, limited to [0, 1].

    Element by element; integers and bools become float32.

    >>> tracer.hard_sigmoid([-6.0, 0.0, 6.0])
    tensor([0. , 0.5, 1. ])
    """
    return unary_floating("HardSigmoid", x, alpha=alpha, beta=beta)


@public
def hard_swish(x: Any, /) -> Tensor:
    """x * hard_sigmoid(x).

    Element by element; integers and bools become float32.

    >>> tracer.hard_swish([-6.0, 1.5, 6.0])
    tensor([-0.   ,  1.125,  6.   ])
    """
    return unary_floating("HardSwish", x)


@public
def softmax(x: Any, /, axis: int = -1) -> Tensor:
    """exp(x) over its sum along an axis, without overflow.

    Of x's shape; integers become float32.

    >>> tracer.softmax([0.0, 0.0])
    tensor([0.5, 0.5])
    """
    return unary_floating("Softmax", x, axis=axis)


@public
def log_softmax(x: Any, /, axis: int = -1) -> Tensor:
    """Logarithm of softmax along an axis, accurate also where that is close to 0 or 1.

    Of x's shape; integers become float32.

    >>> tracer.log_softmax([0.0, 0.0])
    tensor([-0.6931472, -0.6931472])
    """
    return unary_floating("LogSoftmax", x, axis=axis)


@public
def logsumexp(x: Any, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) over axes, without overflow. Of nothing: -inf.

    Integers become float32.

    >>> tracer.logsumexp([1000.0, 1000.0])
    tensor(1000.6932)
    """
    return reduce("ReduceLogSumExp", as_floating(x), axis, keepdims)


@public
def layer_norm(
    x: Any, /, scale: Any = None, bias: Any = None, *, axis: int = -1, epsilon: float = 1e-5
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, over the axes from `axis` to the last.

    scale and bias have the shape of these axes and x's element type. Integers become float32.

    >>> tracer.layer_norm([[1.0, 2.0, 3.0]])
    tensor([[-1.2247357,  0.       ,  1.2247357]])
    """
    return _normalized("LayerNormalization", x, scale, bias, axis, epsilon)


@public
def rms_norm(x: Any, /, scale: Any = None, *, axis: int = -1, epsilon: float = 1e-5) -> Tensor:
    """x / sqrt(mean(x * x) + epsilon) * scale, over the axes from `axis` to the last.

    scale has the shape of these axes and x's element type. Integers become float32.

    >>> tracer.rms_norm([3.0, 4.0], epsilon=0.0)
    tensor([0.84852815, 1.1313709 ])
    """
    return _normalized("RMSNormalization", x, scale, None, axis, epsilon)


def _normalized(name: str, x: Any, scale: Any, bias: Any, axis: int, epsilon: float) -> Tensor:
    x = as_floating(x)
    if scale is None and bias is not None:
        scale = ones(x.type.shape[normalize_axis(axis, x.ndim) :], x.type.dtype)
    operands = [as_tensor(v) for v in (scale, bias) if v is not None]
    return apply(name, x, *operands, axis=axis, epsilon=epsilon)


__all__ = [
    "elu",
    "gelu",
    "hard_sigmoid",
    "hard_swish",
    "layer_norm",
    "leaky_relu",
    "log_softmax",
    "logsumexp",
    "mish",
    "relu",
    "rms_norm",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softsign",
]
