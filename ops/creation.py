"""Values that come from no other value: constants, sizes, positions; and the change of element type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ops.compute import Attributes, Data, Scalar
from ops.dims import Dim
from ops.errors import DTypeError, ShapeError
from ops.operator import (
    Application,
    ArrayData,
    ErrorSample,
    Input,
    Sample,
    Sizes,
    ZeroGradient,
    operator,
)
from ops.reference import as_dtype
from ops.types import DTYPES, Type, dtype_name, is_floating, normalize_axis

Array = np.ndarray[Any, Any]


@operator(
    "Constant",
    type_rule=lambda *, value, weak: Type(value.dtype, value.shape, weak),
    compute=Data(),
    vjp=ZeroGradient(),
    onnx=lambda g, n: g.array(n.attrs.value.array),
    samples=(Sample((), {"value": ArrayData.of(np.arange(6.0).reshape(2, 3))}),),
)
def constant(*, value: ArrayData, weak: bool = False) -> Array:
    """An array that is part of the graph; `weak`: a Python number, which does not decide promotion."""
    return value.array


@operator(
    "Dimension",
    type_rule=lambda *, size: Type("int64"),
    compute=Data(),
    vjp=ZeroGradient(),
    onnx=lambda g, n: g.size(n.attrs.size),
    samples=(Sample((), {"size": 7}),),
)
def dimension(*, size: int | Dim) -> Array:
    """A size as a 0-d int64 value; it is given to kernels when they run, so they do not depend on it."""
    return np.asarray(size, np.int64)


def _iota_text(types: Sequence[Type], result: Type, attrs: Attributes) -> str:
    return f"to_{{R}}({{axis{attrs['axis']}}})"


def _iota_type(*, shape: Sizes, axis: int, dtype: str) -> Type:
    normalize_axis(axis, len(shape))
    return Type(dtype_name(dtype), shape)


def _iota_onnx(g: Any, n: Application) -> Any:
    shape, axis = n.attrs.shape, n.attrs.axis
    line = g.op("Range", g.scalar(0), g.size(shape[axis]), g.scalar(1))
    column = g.op("Reshape", line, g.ints(tuple(-1 if k == axis else 1 for k in range(len(shape)))))
    return g.cast(g.op("Expand", column, g.shape(shape)), n.attrs.dtype)


@operator(
    "Iota",
    type_rule=_iota_type,
    compute=Scalar(_iota_text),
    vjp=ZeroGradient(),
    onnx=_iota_onnx,
    samples=(
        Sample((), {"shape": (3, 4), "axis": 1, "dtype": "int64"}),
        Sample((), {"shape": (5,), "axis": 0, "dtype": "float32"}),
        Sample((), {"shape": (0, 2), "axis": 0, "dtype": "int32"}),
    ),
    errors=(
        ErrorSample(
            (), ShapeError, "axis 2 is out of range", {"shape": (3,), "axis": 2, "dtype": "int64"}
        ),
        ErrorSample((), DTypeError, "float7", {"shape": (3,), "axis": 0, "dtype": "float7"}),
    ),
)
def iota(*, shape: Sizes, axis: int, dtype: str) -> Array:
    """The position along an axis: result[..., i, ...] = i."""
    sizes = tuple(int(d) for d in shape)
    line = np.arange(sizes[axis]).reshape(tuple(-1 if k == axis else 1 for k in range(len(sizes))))
    return np.broadcast_to(as_dtype(line, dtype), sizes).copy()


def _cast_text(types: Sequence[Type], result: Type, attrs: Attributes) -> str:
    source = types[0].dtype
    if result.dtype == source:
        return "{0}"
    if result.dtype == "bool":
        return "{0} != {T}(0)"
    return "to_{R}({0})"


def _cast_vjp(g: Any, n: Application) -> Any:
    if is_floating(n.attrs.to) and is_floating(n.x.type.dtype):
        return (g.Cast(n.dy, to=n.x.type.dtype),)
    return (None,)


def _cast_type(x: Type, *, to: str) -> Type:
    if to not in DTYPES:
        raise DTypeError(f"unknown element type {to!r}; use one of {', '.join(DTYPES)}")
    return Type(to, x.shape)


@operator(
    "Cast",
    type_rule=_cast_type,
    compute=Scalar(_cast_text),
    vjp=_cast_vjp,
    onnx=lambda g, n: g.cast(n.x, n.attrs.to),
    samples=(
        *(Sample((Input((3, 5), low=-3, high=3),), {"to": d}, gradient=False) for d in DTYPES),
        Sample((Input((3, 5), low=-3, high=3),), {"to": "float64"}),
        *(Sample((Input((40,), special=True),), {"to": d}, gradient=False) for d in DTYPES),
        Sample((Input(()),), {"to": "float64"}),
        Sample((Input((0, 2)),), {"to": "int32"}, gradient=False),
    ),
    errors=(ErrorSample((Type("float32"),), DTypeError, "unknown element type", {"to": "float128"}),),
)
def cast(x: Array, *, to: str) -> Array:
    """Elements converted to another type.

    Floats to integers truncate toward zero, saturate at the type's range, and NaN gives 0.
    Anything but 0 is True as bool.
    """
    return as_dtype(x, to) if to != "bool" else np.asarray(x != 0)
