"""Reductions, under the array API's names: `axis` is None (all), an int or a tuple."""

from __future__ import annotations

from typing import Any

from ops.errors import TracerError
from ops.types import normalize_axes
from tracer.dispatch import apply, located
from tracer.functions.creation import as_tensor, astype
from tracer.tensor import Tensor

Axis = int | tuple[int, ...] | None


def reduce(name: str, x: Any, axis: Axis, keepdims: bool) -> Tensor:
    """A reduction operator over axes."""
    x = as_tensor(x)
    try:
        axes = normalize_axes(axis, x.ndim)
        result: Tensor = apply(name, x, axes=axes, keepdims=keepdims)
    except TracerError as error:
        raise located(error) from None
    return result


def sum(x: Any, axis: Axis = None, keepdims: bool = False, dtype: Any = None) -> Tensor:  # noqa: A001 - the array API's name
    """Sum; bools and small integers are summed as int64."""
    x = as_tensor(x) if dtype is None else astype(x, dtype)
    if dtype is None and x.type.dtype in ("bool", "int8", "int16", "int32"):
        x = astype(x, "int64")
    if dtype is None and x.type.dtype in ("uint8", "uint16", "uint32"):
        x = astype(x, "uint64")
    return reduce("ReduceSum", x, axis, keepdims)


def max(x: Any, axis: Axis = None, keepdims: bool = False) -> Tensor:  # noqa: A001 - the array API's name
    """Largest element; NaN wins."""
    return reduce("ReduceMax", x, axis, keepdims)
