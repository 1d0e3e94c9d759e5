"""Reductions in ONNX: their axes by opset, and the edges where ONNX or its runtimes leave things
open.

Knows ONNX's reductions and the builder's interface. Must not know the operators of this project.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ops import dims
from ops.dims import Dim
from ops.types import is_floating, numpy_dtype
from tracer.onnx.schemas import schema
from tracer.onnx.values import OnnxValue

# Reductions that give a single element back as it is.
_KEEP_SINGLE = frozenset(("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceMean"))
# Which operator keeps an extreme within a bound.
EXTREMES = {"ReduceMax": "Max", "ReduceMin": "Min"}


def reduce(
    g: Any, name: str, x: OnnxValue, axes: Sequence[int], keepdims: bool, attrs: Mapping[str, Any]
) -> OnnxValue:
    """A reduction of x over axes; over none, it is applied to every element by itself."""
    if x.shape is not None and x.shape:
        axes = tuple(a % len(x.shape) for a in axes)
    if not axes and name in _KEEP_SINGLE:
        return x
    if not axes:
        # No axes would mean all of them: add one of size 1 and reduce that.
        return _plain(g, name, g.op("Unsqueeze", x, g.ints((-1,))), (-1,), False, attrs)
    if name == "ReduceMean" and is_floating(x.dtype) and _may_be_empty(x, axes):
        return _mean(g, x, axes, keepdims)
    result = _plain(g, name, x, axes, keepdims, attrs)
    if name in EXTREMES:
        result = _extreme(g, name, x, axes, keepdims, result)
    return result


def _plain(
    g: Any, name: str, x: OnnxValue, axes: Sequence[int], keepdims: bool, attrs: Mapping[str, Any]
) -> OnnxValue:
    """The operator itself: its axes are an attribute or, in newer opsets, an input."""
    if "axes" in schema(name, g.opset).attributes:
        result: OnnxValue = g.op(name, x, axes=tuple(axes), keepdims=keepdims, **attrs)
    else:
        result = g.op(name, x, g.ints(axes), keepdims=keepdims, **attrs)
    if x.shape is not None and all(a >= 0 for a in axes):
        result.shape = tuple(
            1 if k in axes else d for k, d in enumerate(x.shape) if keepdims or k not in axes
        )
    return result


def _may_be_empty(x: OnnxValue, axes: Sequence[int]) -> bool:
    return x.shape is None or any(isinstance(x.shape[a], Dim) or x.shape[a] == 0 for a in axes)


def _mean(g: Any, x: OnnxValue, axes: Sequence[int], keepdims: bool) -> OnnxValue:
    """The mean as sum by count: of nothing it is NaN, where runtimes give 0."""
    total = _plain(g, "ReduceSum", x, axes, keepdims, {})
    if x.shape is None:
        picked = g.op("Gather", g.op("Shape", x), g.ints(axes))
        count = _plain(g, "ReduceProd", picked, (0,), False, {})
    else:
        count = g.size(dims.product(tuple(x.shape[a] for a in axes)))
    result: OnnxValue = g.op("Div", total, g.op("Cast", count, to=x.dtype))
    return result


def _extreme(
    g: Any, name: str, x: OnnxValue, axes: Sequence[int], keepdims: bool, result: OnnxValue
) -> OnnxValue:
    """A NaN wins: ONNX leaves that open, and runtimes differ within one row."""
    if is_floating(x.dtype):
        nans = g.op("Cast", g.op("IsNaN", x), to="uint8")
        found = _plain(g, "ReduceMax", nans, axes, keepdims, {})
        any_nan = g.op("Cast", found, to="bool")
        shape, result = result.shape, g.op("Where", any_nan, g.like(math.nan, x), result)
        result.shape = shape
    return result


def limit(dtype: str, name: str) -> int:
    """What an extreme of nothing is in an integer type."""
    info = np.iinfo(numpy_dtype(dtype))
    return int(info.min if name == "ReduceMax" else info.max)
