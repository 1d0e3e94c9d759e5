"""Softmax, its logarithm, and cross-entropy of logits, with gradient rules of their own.

They are composites. The rules build the same row values as the decompositions (largest element, sum
of exponentials), so that a program which holds both computes them once. Half types are computed in
float32 and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.compute import Composite
from ops.errors import DTypeError, ShapeError
from ops.operator import Application, ErrorSample, Expanded, Input, Sample, operator
from ops.reference import precise, quiet, round_to
from ops.statistics import WIDE, log_of_sum, mean, shifted, single_precision
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
    total = g.ReduceSum(g.chain(dy, y), axes=(n.attrs.axis,), keepdims=True)
    return (g.cast(g.chain(g.Sub(dy, total), y), n.x.type.dtype),)


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

    The relative error grows with the distance from the largest element, to 64 units in the last
    place where the result is about to underflow; close to it there are 4.
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
    return (g.cast(g.Sub(dy, g.chain(total, g.Exp(y))), n.x.type.dtype),)


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

    Accurate also where the softmax is close to 1; in float64 the error there is relative to 1, not
    to the result.
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
            f"labels must have the shape of {short(logits)} without axis {axis}, "
            f"got {short(labels)}"
        )
    if not 0 <= label_smoothing <= 1:
        raise ShapeError(f"label_smoothing must be between 0 and 1, got {label_smoothing}")
    return Type(logits.dtype, expected)


def _labels(g: Any, n: Application) -> tuple[Any, Any, Any]:
    """Where elements are their row's label; which rows are ignored; which labels are classes."""
    shape, axis = n.x.type.shape, normalize_axis(n.attrs.axis, n.x.type.rank)
    column = (*shape[:axis], 1, *shape[axis + 1 :])
    labels = g.reshape(g.cast(n.inputs[1], "int64"), column)
    line = tuple(d if k == axis else 1 for k, d in enumerate(shape))
    hit = g.Equal(g.Iota(shape=line, axis=axis, dtype="int64"), labels)
    ignored = g.Equal(labels, g.like(n.attrs.ignore_index, labels))
    known = g.And(g.LessOrEqual(g.like(0, labels), labels), g.Less(labels, g.size(shape[axis])))
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
    dy = g.Where(ignored, zero, g.Where(known, dy, g.chain(dy, g.like(np.nan, x))))
    dx = g.chain(dy, g.Sub(g.Div(e, g.cast(total, wide)), target))
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
        Sample((Input((2, 4, 3)), Input((2, 3), "uint8", values=(0, 1, 2, 3, 2, 1))), {"axis": 1}),
        Sample((Input((5,)), Input((), "int64", values=(3,))), _LOSS),
        Sample((Input((0, 5)), Input((0,), "int64", values=())), _LOSS),
        Sample((Input((3, 5)), Input((3,), "int64", values=(0, 5, -1))), _LOSS, gradient=False),
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

    Rows labelled `ignore_index` have loss and gradient 0; a label that is no class gives NaN. With
    smoothing s the label's share of the target is 1 - s + s / classes, that of every other class s
    / classes.
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
        loss = loss - label_smoothing * (logs.sum(axis=-1) / logs.shape[-1])
    loss = np.where(known, loss, np.nan)
    return round_to(np.where(labels == ignore_index, 0.0, loss), logits.dtype)
