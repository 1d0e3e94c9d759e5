"""Layer normalization and its relative by the root mean square, with a gradient rule of their own.

The rule builds the same row values as the decomposition (mean, deviation), so that a program which
holds both computes them once. Half types are computed in float32 and rounded once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import rules
from ops.compute import Composite
from ops.errors import DTypeError, ShapeError
from ops.operator import Application, ErrorSample, Expanded, Input, Sample, operator
from ops.reference import quiet, round_to
from ops.statistics import WIDE, centred, count, mean, single_precision
from ops.types import FLOATING, Type, normalize_axis, short

Array = np.ndarray[Any, Any]


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


def _normalized(
    g: Any, n: Application, around_mean: bool = True
) -> tuple[Any, Any, tuple[int, ...]]:
    """x less its mean, over its deviation; the deviation in float64; the axes."""
    dtype, rank = n.x.type.dtype, n.x.type.rank
    axes = tuple(range(normalize_axis(n.attrs.axis, rank), rank))
    x, unit = g.cast(n.x, single_precision(dtype)), 1.0
    if around_mean:
        x, unit = centred(g, x, axes)
    wide = g.cast(x, WIDE)
    spread = mean(g, g.Mul(wide, wide), axes)
    if unit != 1:
        spread = g.Mul(spread, g.constant(unit * unit, WIDE))
    deviation = g.Sqrt(g.Add(spread, g.constant(n.attrs.epsilon, WIDE)))
    return g.Mul(x, g.cast(g.Div(g.constant(unit, WIDE), deviation), x.type.dtype)), deviation, axes


def _affine(g: Any, y: Any, n: Application) -> Any:
    for name, operand in zip(("Mul", "Add"), n.inputs[1:], strict=False):
        if operand is not None:
            y = g.op(name, y, g.cast(operand, y.type.dtype))
    return g.cast(y, n.x.type.dtype)


def _normalization_vjp(g: Any, n: Application, around_mean: bool) -> Any:
    """With w = dy * scale, z normalized: dx = (w - mean(w) - z * mean(w * z)) / deviation."""
    z, deviation, axes = _normalized(g, n, around_mean)
    dtype, wide = n.x.type.dtype, z.type.dtype
    dy = g.cast(n.dy, wide)
    zero = g.like(0, z)
    scale = n.inputs[1] if len(n.inputs) > 1 else None
    result: list[Any] = [None] * len(n.inputs)
    if n.needs[0]:
        w = dy if scale is None else g.Gate(dy, g.Mul(dy, g.cast(scale, wide)))
        inverse = g.cast(g.Div(g.constant(1, WIDE), deviation), wide)
        slope = g.cast(mean(g, g.Gate(dy, g.Mul(w, z)), axes), wide)
        # A row that no cotangent reaches gets zeros, though its deviation may be NaN.
        idle = g.And(g.Equal(slope, zero), g.Not(g.IsFinite(inverse)))
        w_less = w
        if around_mean:
            average = g.cast(mean(g, w, axes), wide)
            idle = g.And(idle, g.Equal(average, zero))
            w_less = g.Sub(w, average)
        dx = g.Sub(w_less, g.Gate(slope, g.Mul(slope, z)))
        dx = g.Mul(dx, g.Where(idle, zero, inverse))
        result[0] = g.cast(dx, dtype)
    for k, operand in enumerate(n.inputs[1:], start=1):
        if operand is not None and n.needs[k]:
            term = g.Gate(dy, g.Mul(dy, z)) if k == 1 else dy
            result[k] = g.cast(g.sum_to(term, operand.type.shape), dtype)
    return tuple(result)


def _layer_onnx(g: Any, n: Application) -> Any:
    """ONNX's LayerNormalization; what it stands for in float64, where its epsilon is coarse."""
    axis = normalize_axis(n.attrs.axis, n.x.type.rank)
    shape, operands = n.x.type.shape[axis:], list(n.inputs[1:])
    if n.x.type.dtype != "float64" and 0 not in shape:
        scale = operands or [g.op("Expand", g.like(1, n.x), g.shape(shape))]
        return g.op("LayerNormalization", n.x, *scale, axis=n.attrs.axis, epsilon=n.attrs.epsilon)
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
    ErrorSample((Type("float32", (2,)),), ShapeError, "out of range", {"axis": 1, "epsilon": 1e-5}),
    ErrorSample((Type("int64", (2,)),), DTypeError, "must be floating", _LAYER),
)


def _reference_normalized(x: Array, axis: int, epsilon: float, around_mean: bool) -> Array:
    axes = tuple(range(axis % x.ndim, x.ndim))
    wide = x.astype(np.float64)
    size = np.float64(count(Type.of(x), axes))
    if around_mean:
        wide = wide - wide.sum(axis=axes, keepdims=True) / size
    spread = np.square(wide).sum(axis=axes, keepdims=True) / size
    return np.asarray(wide / np.sqrt(spread + epsilon))


@operator(
    "LayerNormalization",
    type_rule=_layer_type,
    compute=Composite(lambda g, n: _affine(g, _normalized(g, n)[0], n)),
    vjp=lambda g, n: _normalization_vjp(g, n, around_mean=True),
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

    scale and bias have the shape of these axes. The error is a few units in the last place of the
    larger of the two terms that are added at last; of the result, many where these cancel.
    """
    y = _reference_normalized(x, axis, epsilon, around_mean=True)
    if scale is not None:
        y = y * scale.astype(np.float64)
    if bias is not None:
        y = y + bias.astype(np.float64)
    return round_to(y, x.dtype)


@operator(
    "RMSNormalization",
    type_rule=_layer_type,
    compute=Composite(lambda g, n: _affine(g, _normalized(g, n, around_mean=False)[0], n)),
    vjp=lambda g, n: _normalization_vjp(g, n, around_mean=False),
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
    y = _reference_normalized(x, axis, epsilon, around_mean=False)
    return round_to(y if scale is None else y * scale.astype(np.float64), x.dtype)
