"""Softmax along an axis, layer normalization, cross-entropy of logits: composites with gradient rules of their own.

The rules build the same row values as the decompositions (largest element, mean ...), so that a program which holds both
computes them once. Half types are computed in float32 and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import rules
from ops.compute import Composite
from ops.errors import DTypeError, ShapeError
from ops.operator import Application, ErrorSample, Expanded, Input, Sample, operator
from ops.reference import precise, quiet, round_to
from ops.statistics import WIDE, count, log_of_sum, mean, shifted, single_precision
from ops.types import FLOATING, Type, is_integer, normalize_axis, short

Array = np.ndarray[Any, Any]


def _along_axis(x: Type, *, axis: int, **_: Any) -> Type:
    if x.dtype not in FLOATING:
        raise DTypeError(f"the operand must be floating, got {short(x)}; cast it first")
    normalize_axis(axis, x.rank)
    return Type(x.dtype, x.shape)


_ROWS = (
    Sample((Input((3, 17)),), {"axis": -1}),
    Sample((Input((4, 5)),), {"axis": 0}),
    Sample((Input((2, 3, 4)),), {"axis": 1}),
    Sample((Input((5, 6), layout="strided"),), {"axis": 1}),
    Sample((Input((3, 1)),), {"axis": 1}),
    Sample((Input((0, 3)),), {"axis": 1}),
    Sample((Input((3, 0)),), {"axis": 1}),
    Sample(
        (
            Input(
                (6, 3),
                values=(
                    *(1e4, -1e4, 9999.0),
                    *(-np.inf, 2, 1),
                    *(3e38, -3e38, 3e38),
                    *(-np.inf, -np.inf, -np.inf),
                    *(0, np.nan, 1),
                    *(-5e4, -5e4, -5e4),
                ),
            ),
        ),
        {"axis": 1},
        dtypes=("bfloat16", "float32", "float64"),
        gradient=False,
    ),
)
_ROW_ERRORS = (
    ErrorSample((Type("float32", (2, 3)),), ShapeError, "out of range", {"axis": 2}),
    ErrorSample((Type("float32"),), ShapeError, "out of range", {"axis": 0}),
    ErrorSample((Type("int64", (2, 3)),), DTypeError, "must be floating", {"axis": 0}),
)


def _softmax_rule(g: Any, n: Application) -> Any:
    x, axes = g.cast(n.x, single_precision(n.x.type.dtype)), (n.attrs.axis,)
    e = g.Exp(g.Sub(x, g.ReduceMax(x, axes=axes, keepdims=True)))
    return g.cast(g.Div(e, g.ReduceSum(e, axes=axes, keepdims=True)), n.x.type.dtype)


def _softmax_vjp(g: Any, n: Application) -> Any:
    """y * (dy - sum(dy * y))."""
    wide = single_precision(n.x.type.dtype)
    y, dy = g.cast(n.y, wide), g.cast(n.dy, wide)
    total = g.ReduceSum(g.Mul(dy, y), axes=(n.attrs.axis,), keepdims=True)
    return (g.cast(g.Mul(y, g.Sub(dy, total)), n.x.type.dtype),)


@operator(
    "Softmax",
    type_rule=_along_axis,
    compute=Composite(_softmax_rule),
    vjp=_softmax_vjp,
    onnx="Softmax",
    samples=_ROWS,
    errors=_ROW_ERRORS,
    dtypes=FLOATING,
    ulp=64,
)
@precise
def softmax(x: Array, *, axis: int) -> Array:
    """exp(x) over its sum along an axis, without overflow. With a +inf, or -inf only: NaN.

    The relative error grows with the distance from the largest element, to 64 units in the last place where the result is
    about to underflow; close to it there are 4.
    """
    from scipy.special import softmax as scipy_softmax

    return np.asarray(scipy_softmax(x, axis=axis)) if x.size else x


def _log_softmax_rule(g: Any, n: Application) -> Any:
    x, axes = g.cast(n.x, single_precision(n.x.type.dtype)), (n.attrs.axis,)
    below, _ = shifted(g, x, axes)
    total = g.cast(log_of_sum(g, below, axes), x.type.dtype)
    return g.cast(g.Sub(below, total), n.x.type.dtype)


def _log_softmax_vjp(g: Any, n: Application) -> Any:
    """dy - exp(y) * sum(dy)."""
    wide = single_precision(n.x.type.dtype)
    y, dy = g.cast(n.y, wide), g.cast(n.dy, wide)
    total = g.ReduceSum(dy, axes=(n.attrs.axis,), keepdims=True)
    return (g.cast(g.Sub(dy, g.Mul(g.Exp(y), total)), n.x.type.dtype),)


def _log_softmax_onnx(g: Any, n: Application) -> Any:
    """In float64 a runtime may lose a NaN in ONNX's LogSoftmax."""
    if n.x.type.dtype != "float64":
        return g.op("LogSoftmax", n.x, axis=n.attrs.axis)
    axes = (normalize_axis(n.attrs.axis, n.x.type.rank),)
    below = g.op("Sub", n.x, g.reduce("ReduceMax", n.x, axes, True))
    total = g.reduce("ReduceSum", g.op("Exp", below), axes, True)
    return g.op("Sub", below, g.op("Log", total))


@operator(
    "LogSoftmax",
    type_rule=_along_axis,
    compute=Composite(_log_softmax_rule),
    vjp=_log_softmax_vjp,
    onnx=_log_softmax_onnx,
    samples=_ROWS,
    errors=_ROW_ERRORS,
    dtypes=FLOATING,
    ulp=16,
)
@precise
def log_softmax(x: Array, *, axis: int) -> Array:
    """Logarithm of softmax, without overflow. Of a +inf, or of -inf only: NaN.

    Accurate also where the softmax is close to 1; in float64 the error there is relative to 1, not to the result.
    """
    from scipy.special import log_softmax as scipy_log_softmax

    return np.asarray(scipy_log_softmax(x, axis=axis)) if x.size else x


# ---- cross-entropy -------------------------------------------------------------------------------


def _loss_type(
    logits: Type, labels: Type, *, axis: int, ignore_index: int, label_smoothing: float
) -> Type:
    axis = normalize_axis(axis, logits.rank)
    if logits.dtype not in FLOATING:
        raise DTypeError(f"logits must be floating, got {short(logits)}; cast them first")
    if not is_integer(labels.dtype):
        raise DTypeError(f"labels must be integers, got {short(labels)}")
    expected = (*logits.shape[:axis], *logits.shape[axis + 1 :])
    if labels.shape != expected:
        raise ShapeError(
            f"labels must have the shape of {short(logits)} without axis {axis}, got {short(labels)}"
        )
    if not 0 <= label_smoothing <= 1:
        raise ShapeError(f"label_smoothing must be between 0 and 1, got {label_smoothing}")
    return Type(logits.dtype, expected)


def _labels(g: Any, n: Application) -> tuple[Any, Any, Any]:
    """Where an element is that of its row's label; whether a row is ignored; whether its label is a class."""
    shape, axis = n.x.type.shape, normalize_axis(n.attrs.axis, n.x.type.rank)
    column = (*shape[:axis], 1, *shape[axis + 1 :])
    labels = g.reshape(g.cast(n.inputs[1], "int64"), column)
    line = tuple(d if k == axis else 1 for k, d in enumerate(shape))
    hit = g.Equal(g.Iota(shape=line, axis=axis, dtype="int64"), labels)
    ignored = g.Equal(labels, g.like(n.attrs.ignore_index, labels))
    known = g.And(
        g.LessOrEqual(g.like(0, labels), labels), g.Less(labels, g.size(shape[axis]))
    )
    return hit, ignored, known


def _loss_rule(g: Any, n: Application) -> Any:
    axes, smoothing = (normalize_axis(n.attrs.axis, n.x.type.rank),), n.attrs.label_smoothing
    x = g.cast(n.x, single_precision(n.x.type.dtype))
    hit, ignored, known = _labels(g, n)
    below = g.Sub(x, g.ReduceMax(x, axes=axes, keepdims=True))
    picked = g.ReduceSum(g.Where(hit, below, g.like(0, below)), axes=axes, keepdims=True)
    found = g.cast(picked, WIDE)
    if smoothing:
        found = g.Mul(found, g.constant(1 - smoothing, WIDE))
        average = mean(g, below, axes)
        found = g.Add(found, g.Mul(average, g.constant(smoothing, WIDE)))
    loss = g.Sub(log_of_sum(g, below, axes), found)
    loss = g.Where(known, loss, g.constant(np.nan, WIDE))
    loss = g.Where(ignored, g.constant(0, WIDE), loss)
    return g.cast(g.reshape(loss, n.inputs[1].type.shape), n.x.type.dtype)


def _loss_vjp(g: Any, n: Application) -> Any:
    """(softmax - target) * dy, and 0 in the rows that are ignored."""
    shape, axis = n.x.type.shape, normalize_axis(n.attrs.axis, n.x.type.rank)
    wide, smoothing = single_precision(n.x.type.dtype), n.attrs.label_smoothing
    x = g.cast(n.x, wide)
    hit, ignored, known = _labels(g, n)
    e = g.Exp(g.Sub(x, g.ReduceMax(x, axes=(axis,), keepdims=True)))
    total = g.ReduceSum(g.cast(e, WIDE), axes=(axis,), keepdims=True)
    zero, one = g.like(0, x), g.like(1 - smoothing, x)
    target = g.Where(hit, one, zero)
    if smoothing:
        target = g.Add(target, g.Div(g.like(smoothing, x), g.size(shape[axis], wide)))
    dy = g.cast(g.reshape(n.dy, (*shape[:axis], 1, *shape[axis + 1 :])), wide)
    dy = g.Where(ignored, zero, g.Where(known, dy, g.like(np.nan, x)))
    dx = g.Mul(g.Sub(g.Div(e, g.cast(total, wide)), target), dy)
    return g.cast(g.Where(ignored, zero, dx), n.x.type.dtype), None


_LOSS = {"axis": -1}
_LOGITS = Type("float32", (3, 5))


@operator(
    "SoftmaxCrossEntropy",
    type_rule=_loss_type,
    compute=Composite(_loss_rule),
    vjp=_loss_vjp,
    onnx=Expanded(),
    samples=(
        Sample((Input((4, 5)), Input((4,), "int64", values=(0, 4, 2, 2))), _LOSS),
        Sample((Input((4, 5)), Input((4,), "int32", values=(0, -100, 2, -100))), _LOSS),
        Sample(
            (Input((4, 5)), Input((4,), "int64", values=(0, 1, 2, 4))),
            {"axis": 1, "label_smoothing": 0.1, "ignore_index": 1},
        ),
        Sample(
            (Input((2, 4, 3)), Input((2, 3), "uint8", values=(0, 1, 2, 3, 2, 1))), {"axis": 1}
        ),
        Sample((Input((5,)), Input((), "int64", values=(3,))), _LOSS),
        Sample((Input((0, 5)), Input((0,), "int64", values=())), _LOSS),
        Sample(
            (Input((3, 5)), Input((3,), "int64", values=(0, 5, -1))), _LOSS, gradient=False
        ),
        Sample(
            (
                Input((3, 3), values=(1e4, -1e4, 0, 3e38, -3e38, 0, -np.inf, 0, 1)),
                Input((3,), "int64", values=(1, 1, 0)),
            ),
            _LOSS,
            dtypes=("bfloat16", "float32", "float64"),
            gradient=False,
        ),
    ),
    errors=(
        ErrorSample((_LOGITS, Type("float32", (3,))), DTypeError, "labels must be integers"),
        ErrorSample((_LOGITS, Type("int64", (5,))), ShapeError, "without axis 1"),
        ErrorSample((Type("int64", (3, 5)), Type("int64", (3,))), DTypeError, "must be floating"),
        ErrorSample((_LOGITS, Type("int64", (3,))), ShapeError, "out of range", {"axis": 2}),
        ErrorSample(
            (_LOGITS, Type("int64", (3,))), ShapeError, "between 0 and 1", {"label_smoothing": 2.0}
        ),
    ),
    dtypes=FLOATING,
    ulp=4,
)
@quiet
def softmax_cross_entropy(
    logits: Array,
    labels: Array,
    *,
    axis: int = -1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Array:
    """Minus the logarithm of the softmax of each row's label: one loss for each row.

    Rows labelled `ignore_index` have loss and gradient 0; a label that is no class gives NaN. With smoothing s the label's
    share of the target is 1 - s + s / classes, that of every other class s / classes.
    """
    from scipy.special import log_softmax as scipy_log_softmax

    classes = logits.shape[axis]
    wide = np.moveaxis(logits.astype(np.float64), axis, -1)
    logs = scipy_log_softmax(wide, axis=-1) if wide.size else wide
    known = (labels >= 0) & (labels < classes)
    place = np.where(known, labels, 0).astype(np.int64)
    picked = np.take_along_axis(logs, place[..., None], axis=-1)[..., 0]
    loss = -(1 - label_smoothing) * picked
    if label_smoothing:
        loss = loss - label_smoothing * logs.mean(axis=-1)
    loss = np.where(known, loss, np.nan)
    return round_to(np.where(labels == ignore_index, 0.0, loss), logits.dtype)


# ---- layer normalization -------------------------------------------------------------------------


def _layer_type(
    x: Type, scale: Type | None = None, bias: Type | None = None, *, axis: int, epsilon: float
) -> Type:
    axis = normalize_axis(axis, x.rank)
    if x.dtype not in FLOATING:
        raise DTypeError(f"the operand must be floating, got {short(x)}; cast it first")
    for what, value in (("scale", scale), ("bias", bias)):
        if value is None:
            continue
        rules.same_dtype(x, value)
        if value.shape != x.shape[axis:]:
            expected = short(Type(x.dtype, x.shape[axis:]))
            raise ShapeError(
                f"{what} must have the shape of the normalized axes, {expected}, got {short(value)}"
            )
    return Type(x.dtype, x.shape)


def _normalized(g: Any, n: Application, centred: bool = True) -> tuple[Any, Any, tuple[int, ...]]:
    """x less its mean, over its deviation; one over the deviation; the axes. All in single precision at least.

    The mean is taken off in two parts, so that a large one costs no accuracy.
    """
    dtype, rank = n.x.type.dtype, n.x.type.rank
    axes = tuple(range(normalize_axis(n.attrs.axis, rank), rank))
    x = g.cast(n.x, single_precision(dtype))
    if centred:
        average = mean(g, x, axes)
        high = g.cast(average, x.type.dtype)
        x = g.Sub(x, high)
        if x.type.dtype != WIDE:
            x = g.Sub(x, g.cast(g.Sub(average, g.cast(high, WIDE)), x.type.dtype))
    wide = g.cast(x, WIDE)
    spread = g.Add(mean(g, g.Mul(wide, wide), axes), g.constant(n.attrs.epsilon, WIDE))
    inverse = g.cast(g.Div(g.constant(1, WIDE), g.Sqrt(spread)), x.type.dtype)
    return g.Mul(x, inverse), inverse, axes


def _affine(g: Any, y: Any, n: Application) -> Any:
    for name, operand in zip(("Mul", "Add"), n.inputs[1:], strict=False):
        if operand is not None:
            y = g.op(name, y, g.cast(operand, y.type.dtype))
    return g.cast(y, n.x.type.dtype)


def _normalization_vjp(g: Any, n: Application, centred: bool) -> Any:
    """With w = dy * scale and z the normalized x: dx = (w - mean(w) - z * mean(w * z)) / deviation."""
    z, inverse, axes = _normalized(g, n, centred)
    dtype, wide = n.x.type.dtype, z.type.dtype
    dy = g.cast(n.dy, wide)
    scale = n.inputs[1] if len(n.inputs) > 1 else None
    result: list[Any] = [None] * len(n.inputs)
    if n.needs[0]:
        w = dy if scale is None else g.Mul(dy, g.cast(scale, wide))
        w_less = g.Sub(w, g.cast(mean(g, w, axes), wide)) if centred else w
        slope = g.cast(mean(g, g.Mul(w, z), axes), wide)
        dx = g.Mul(g.Sub(w_less, g.Mul(z, slope)), inverse)
        result[0] = g.cast(dx, dtype)
    for k, operand in enumerate(n.inputs[1:], start=1):
        if operand is not None and n.needs[k]:
            term = g.Mul(dy, z) if k == 1 else dy
            result[k] = g.cast(g.sum_to(term, operand.type.shape), dtype)
    return tuple(result)


def _layer_onnx(g: Any, n: Application) -> Any:
    """ONNX's LayerNormalization but for float64, where its float32 epsilon is too coarse, and for nothing at all."""
    axis = normalize_axis(n.attrs.axis, n.x.type.rank)
    shape, operands = n.x.type.shape[axis:], list(n.inputs[1:])
    if n.x.type.dtype != "float64" and 0 not in shape:
        scale = operands or [g.op("Expand", g.like(1, n.x), g.shape(shape))]
        return g.op(
            "LayerNormalization", n.x, *scale, axis=n.attrs.axis, epsilon=n.attrs.epsilon
        )
    axes = tuple(range(axis, n.x.type.rank))
    x = g.op("Sub", n.x, g.reduce("ReduceMean", n.x, axes, True))
    spread = g.reduce("ReduceMean", g.op("Mul", x, x), axes, True)
    y = g.op("Div", x, g.op("Sqrt", g.op("Add", spread, g.like(n.attrs.epsilon, n.x))))
    for name, operand in zip(("Mul", "Add"), operands, strict=False):
        y = g.op(name, y, operand)
    return y


_LAYER = {"axis": -1, "epsilon": 1e-5}
_LAYER_ERRORS = (
    ErrorSample(
        (Type("float32", (2, 3)), Type("float32", (2,))), ShapeError, "shape of the normal", _LAYER
    ),
    ErrorSample(
        (Type("float32", (2, 3)), Type("float64", (3,))), DTypeError, "one element type", _LAYER
    ),
    ErrorSample(
        (Type("float32", (2,)),), ShapeError, "out of range", {"axis": 1, "epsilon": 1e-5}
    ),
    ErrorSample((Type("int64", (2,)),), DTypeError, "must be floating", _LAYER),
)


def _reference_normalized(x: Array, axis: int, epsilon: float, centred: bool) -> Array:
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(np.float64)
    size = np.float64(count(Type.of(x), axes))
    if centred:
        wide = wide - wide.sum(axis=axes, keepdims=True) / size
    spread = np.square(wide).sum(axis=axes, keepdims=True) / size
    return np.asarray(wide / np.sqrt(spread + epsilon))


@operator(
    "LayerNormalization",
    type_rule=_layer_type,
    compute=Composite(lambda g, n: _affine(g, _normalized(g, n)[0], n)),
    vjp=lambda g, n: _normalization_vjp(g, n, centred=True),
    onnx=_layer_onnx,
    samples=(
        Sample((Input((4, 17)), Input((17,)), Input((17,))), _LAYER),
        Sample((Input((4, 17)), Input((17,))), _LAYER),
        Sample((Input((4, 7)),), _LAYER),
        Sample((Input((2, 3, 4)), Input((3, 4)), Input((3, 4))), {"axis": 1, "epsilon": 1e-3}),
        Sample((Input((5, 6), layout="strided"), Input((6,)), Input((6,))), _LAYER),
        Sample((Input((7,)), Input((7,)), Input((7,))), _LAYER),
        Sample((Input((0, 3)), Input((3,)), Input((3,))), _LAYER),
        Sample((Input((2, 0)), Input((0,)), Input((0,))), _LAYER),
        Sample((Input((3, 20), special=True),), _LAYER, gradient=False),
    ),
    errors=_LAYER_ERRORS,
    dtypes=FLOATING,
    optional=2,
    ulp=1024,
)
@quiet
def layer_normalization(
    x: Array, scale: Array | None = None, bias: Array | None = None, *, axis: int, epsilon: float
) -> Array:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, over the axes from `axis` to the last.

    scale and bias have the shape of these axes. The error is a few units in the last place of the larger of the two terms that
    are added at last; of the result, many where these cancel.
    """
    y = _reference_normalized(x, axis, epsilon, centred=True)
    if scale is not None:
        y = y * scale.astype(np.float64)
    if bias is not None:
        y = y + bias.astype(np.float64)
    return round_to(y, x.dtype)


@operator(
    "RMSNormalization",
    type_rule=_layer_type,
    compute=Composite(lambda g, n: _affine(g, _normalized(g, n, centred=False)[0], n)),
    vjp=lambda g, n: _normalization_vjp(g, n, centred=False),
    onnx=Expanded(),
    samples=(
        Sample((Input((4, 17)), Input((17,))), _LAYER),
        Sample((Input((4, 7)),), _LAYER),
        Sample((Input((2, 3, 4)), Input((3, 4))), {"axis": 1, "epsilon": 1e-3}),
        Sample((Input((0, 3)), Input((3,))), _LAYER),
        Sample((Input((3, 20), special=True),), _LAYER, gradient=False),
    ),
    errors=_LAYER_ERRORS,
    dtypes=FLOATING,
    optional=1,
    ulp=4,
)
@quiet
def rms_normalization(x: Array, scale: Array | None = None, *, axis: int, epsilon: float) -> Array:
    """x / sqrt(mean(x * x) + epsilon) * scale, over the axes from `axis` to the last."""
    y = _reference_normalized(x, axis, epsilon, centred=False)
    return round_to(y if scale is None else y * scale.astype(np.float64), x.dtype)
