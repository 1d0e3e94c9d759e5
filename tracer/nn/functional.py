"""Layers, activations and losses as functions, under PyTorch's names.

Element types: floats stay what they are, integers become float32 where a floating result is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ops.errors import ArgumentError, ShapeError
from ops.types import normalize_axis, short
from tracer.functions import (
    activation,
    arithmetic,
    gather_scatter,
    joining,
    linear_algebra,
    logic,
    transcendental,
)
from tracer.functions.creation import as_tensor
from tracer.functions.elementwise import as_floating
from tracer.functions.movement import ints, matrix_transpose
from tracer.functions.public import public
from tracer.functions.reductions import sum as sum_over
from tracer.functions.reductions import vector_norm
from tracer.nn.losses import binary_cross_entropy as binary_cross_entropy
from tracer.nn.losses import binary_cross_entropy_with_logits as binary_cross_entropy_with_logits
from tracer.nn.losses import cross_entropy as cross_entropy
from tracer.nn.losses import huber_loss as huber_loss
from tracer.nn.losses import kl_div as kl_div
from tracer.nn.losses import l1_loss as l1_loss
from tracer.nn.losses import mse_loss as mse_loss
from tracer.nn.losses import nll_loss as nll_loss
from tracer.nn.losses import smooth_l1_loss as smooth_l1_loss
from tracer.tensors.tensor import Tensor

# ---- activations ---------------------------------------------------------------------------------

elu = activation.elu
gelu = activation.gelu
hardsigmoid = activation.hard_sigmoid
hardswish = activation.hard_swish
leaky_relu = activation.leaky_relu
mish = activation.mish
relu = activation.relu
sigmoid = activation.sigmoid
silu = activation.silu
softplus = activation.softplus
softsign = activation.softsign
tanh = transcendental.tanh


def selu(input: Any) -> Tensor:
    """Scaled elu, whose constants keep mean 0 and variance 1.

    Element by element; integers become float32.

    >>> tracer.nn.functional.selu([-1.0, 1.0])
    tensor([-1.1113307,  1.050701 ])
    """
    return activation.selu(input)


def logsigmoid(input: Any) -> Tensor:
    """log(sigmoid(x)) without overflow.

    Element by element; integers become float32.

    >>> tracer.nn.functional.logsigmoid([0.0, -100.0])
    tensor([  -0.6931472, -100.       ])
    """
    return arithmetic.negative(activation.softplus(arithmetic.negative(input)))


def hardtanh(input: Any, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x limited to [min_val, max_val].

    Element by element; integers become float32.

    >>> tracer.nn.functional.hardtanh([-6.0, 0.5, 6.0])
    tensor([-1. ,  0.5,  1. ])
    """
    return arithmetic.clip(input, min_val, max_val)


def relu6(input: Any) -> Tensor:
    """x limited to [0, 6].

    Element by element; the type stays.

    >>> tracer.nn.functional.relu6([-1.0, 3.0, 7.0])
    tensor([0., 3., 6.])
    """
    return arithmetic.clip(input, 0, 6)


def softmax(input: Any, dim: int = -1) -> Tensor:
    """exp(x) over its sum along an axis, without overflow.

    Of input's shape; integers become float32.

    >>> tracer.nn.functional.softmax([0.0, 0.0])
    tensor([0.5, 0.5])
    """
    return activation.softmax(input, dim)


def log_softmax(input: Any, dim: int = -1) -> Tensor:
    """Logarithm of softmax along an axis.

    Of input's shape; integers become float32.

    >>> tracer.nn.functional.log_softmax([0.0, 0.0])
    tensor([-0.6931472, -0.6931472])
    """
    return activation.log_softmax(input, dim)


# ---- layers --------------------------------------------------------------------------------------


@public
def linear(input: Any, weight: Any, bias: Any = None) -> Tensor:
    """input @ weight.T + bias, over the last axis.

    input: (..., in_features), weight: (out_features, in_features), bias: (out_features,), in the
    promoted type.

    Raises `ShapeError` where features do not fit.

    >>> tracer.nn.functional.linear([1.0, 2.0], [[1.0, 1.0], [0.0, 1.0]], [10.0, 0.0])
    tensor([13.,  2.])
    """
    x, w = as_tensor(input), as_tensor(weight)
    if w.ndim != 2:
        raise ShapeError(
            f"linear: the weight must be (out_features, in_features), got {short(w.type)}"
        )
    if x.ndim == 0 or x.type.shape[-1] != w.type.shape[1]:
        raise ShapeError(
            f"linear: the weight {short(w.type)} takes {w.type.shape[1]} features, the last axis "
            f"of the input {short(x.type)} "
            "has another size"
        )
    result = linear_algebra.matmul(x, matrix_transpose(w))
    if bias is None:
        return result
    b = as_tensor(bias)
    if b.type.shape != w.type.shape[:1]:
        raise ShapeError(
            f"linear: the bias must have shape ({w.type.shape[0]},) like the weight's rows, got "
            f"{short(b.type)}"
        )
    return arithmetic.add(result, b)


@public
def embedding(input: Any, weight: Any, padding_idx: int | None = None) -> Tensor:
    """The rows of weight at indices: shape input.shape + (embedding_dim,).

    input: integers; weight: (num_embeddings, embedding_dim), whose type the result has.

    `padding_idx`: a row that gets no gradient. Raises `BoundsError` for an index out of range,
    `ShapeError` for a weight that is no matrix.

    >>> tracer.nn.functional.embedding([2, 0], [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    tensor([[4., 5.],
            [0., 1.]])
    """
    w, indices = as_tensor(weight), gather_scatter.as_indices(input)
    if w.ndim != 2:
        raise ShapeError(
            f"embedding: the weight must be (num_embeddings, embedding_dim), got {short(w.type)}"
        )
    rows = gather_scatter.take(w, indices, 0)
    if padding_idx is None:
        return rows
    place = normalize_axis(padding_idx, int(w.type.shape[0]), "padding_idx")
    padding = logic.equal(indices, place)[..., None]
    return logic.where(padding, rows.detach(), rows)


def one_hot(tensor: Any, num_classes: int = -1) -> Tensor:
    """1 at each index along a new last axis, as int64.

    -1: one more than the largest index, which a trace does not know. See `tracer.one_hot`.

    >>> tracer.nn.functional.one_hot([2, 0])
    tensor([[0, 0, 1],
            [1, 0, 0]])
    """
    return gather_scatter.one_hot(tensor, None if num_classes == -1 else num_classes, dtype="int64")


@public
def layer_norm(
    input: Any,
    normalized_shape: int | Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias, over axes of normalized_shape.

    Of input's shape; integers become float32. Raises `ShapeError` for an input with other last axes.

    >>> tracer.nn.functional.layer_norm([[1.0, 3.0]], (2,), eps=0.0)
    tensor([[-1.,  1.]])
    """
    x = as_floating(input)
    return activation.layer_norm(
        x, weight, bias, axis=_last_axes(x, normalized_shape, "layer_norm"), epsilon=eps
    )


@public
def rms_norm(
    input: Any, normalized_shape: int | Sequence[int], weight: Any = None, eps: float | None = None
) -> Tensor:
    """x / sqrt(mean(x * x) + eps) * weight, over the last axes, which have normalized_shape.

    eps None: the type's epsilon. Integers become float32. Raises `ShapeError` for an input with other
    last axes.

    >>> tracer.nn.functional.rms_norm([3.0, 4.0], (2,), eps=0.0)
    tensor([0.84852815, 1.1313709 ])
    """
    from tracer.functions.dtype_queries import finfo

    x = as_floating(input)
    epsilon = float(finfo(x.type.dtype).eps) if eps is None else eps
    return activation.rms_norm(
        x, weight, axis=_last_axes(x, normalized_shape, "rms_norm"), epsilon=epsilon
    )


def _last_axes(x: Tensor, normalized_shape: Any, name: str) -> int:
    shape = ints(normalized_shape, "normalized_shape")
    if not shape or x.type.shape[max(x.ndim - len(shape), 0) :] != shape:
        raise ShapeError(f"{name}: the last axes of {short(x.type)} must have sizes {shape}")
    return -len(shape)


@public
def dropout(input: Any, p: float = 0.5, training: bool = True) -> Tensor:
    """In training elements are 0 with probability p, else divided by 1 - p; or the input.

    Shape and type stay; integers become float32. Raises `ArgumentError` for a p outside 0 to 1.

    >>> tracer.nn.functional.dropout([1.0, 2.0], training=False)
    tensor([1., 2.])
    """
    x = as_tensor(input)
    if not 0 <= p <= 1:
        raise ArgumentError(f"dropout: the probability must be from 0 to 1, got {p}")
    if not training or p == 0:
        return x
    if p == 1:
        return logic.where(False, x, 0)  # zeros with x's history, also where x is not finite
    from tracer import random

    x = as_floating(x)
    kept = random.bernoulli(1.0 - p, x.shape)
    return logic.where(kept, arithmetic.multiply(x, 1.0 / (1.0 - p)), 0.0)


# ---- the rest ------------------------------------------------------------------------------------

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@public
def pad(
    input: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """x with a border: sizes before and behind the last axis, then the last but one, and so on.

    Modes: "constant" (negative sizes cut off), "reflect", "replicate", "circular". The type stays.
    Raises `ShapeError` for sizes that do not fit x, `ArgumentError` for another mode.

    >>> tracer.nn.functional.pad([[1, 2]], (1, 0, 0, 1))
    tensor([[0, 1, 2],
            [0, 0, 0]])
    """
    x, sizes = as_tensor(input), ints(pad, "pad")
    if len(sizes) % 2 or len(sizes) > 2 * x.ndim:
        raise ShapeError(
            f"pad takes a pair of sizes for each of at most {x.ndim} axes, got {len(sizes)} sizes"
        )
    if mode not in _MODES:
        raise ArgumentError(f"mode must be one of {', '.join(_MODES)}; got {mode!r}")
    widths = [(0, 0)] * x.ndim
    for k in range(len(sizes) // 2):
        widths[x.ndim - 1 - k] = sizes[2 * k], sizes[2 * k + 1]
    return joining.padded(x, widths, _MODES[mode], 0.0 if value is None else value)


@public
def normalize(input: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x over the larger of its p-norm along an axis and eps.

    Of input's shape; integers become float32.

    >>> tracer.nn.functional.normalize([[3.0, 4.0]])
    tensor([[0.6, 0.8]])
    """
    x = as_floating(input)
    return arithmetic.divide(x, arithmetic.maximum(vector_norm(x, dim, keepdims=True, ord=p), eps))


@public
def cosine_similarity(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Cosine of the angle between vectors along an axis; norms below eps count as eps.

    The result is without that axis; integers become float32.

    >>> tracer.nn.functional.cosine_similarity([[1.0, 0.0]], [[3.0, 4.0]])
    tensor([0.6])
    """
    a, b = as_floating(x1), as_floating(x2)
    product = sum_over(arithmetic.multiply(a, b), dim)
    norms = [arithmetic.maximum(vector_norm(x, dim), eps) for x in (a, b)]
    return arithmetic.divide(product, arithmetic.multiply(*norms))


__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "elu",
    "embedding",
    "gelu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "leaky_relu",
    "linear",
    "log_softmax",
    "logsigmoid",
    "mish",
    "mse_loss",
    "nll_loss",
    "normalize",
    "one_hot",
    "pad",
    "relu",
    "relu6",
    "rms_norm",
    "selu",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "softplus",
    "softsign",
    "tanh",
]
