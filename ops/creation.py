"""Values that come from no other value: constants, sizes, positions; and casts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ops import dims
from ops.algebra import Algebra
from ops.compute import Attributes, Composite, Constant, Scalar, Size
from ops.dims import Dim
from ops.errors import DTypeError, ShapeError
from ops.operator import (
    Application,
    ArrayData,
    ErrorSample,
    Expanded,
    Input,
    Sample,
    Sizes,
    ZeroGradient,
    operator,
)
from ops.reference import as_dtype
from ops.types import (
    DTYPES,
    FLOATING,
    INTEGERS,
    Type,
    dtype_name,
    is_floating,
    is_integer,
    normalize_axis,
    short,
)

Array = np.ndarray[Any, Any]


@operator(
    "Constant",
    type_rule=lambda *, value, weak: Type(value.dtype, value.shape, weak),
    compute=Constant(),
    vjp=ZeroGradient(),
    onnx=lambda g, n: g.array(n.attrs.value.array),
    samples=(Sample((), {"value": ArrayData.of(np.arange(6.0).reshape(2, 3))}),),
)
def constant(*, value: ArrayData, weak: bool = False) -> Array:
    """An array that is part of the graph; `weak`: a Python number, not deciding promotion."""
    return value.array


@operator(
    "Dimension",
    type_rule=lambda *, size: Type("int64"),
    compute=Size(),
    vjp=ZeroGradient(),
    onnx=lambda g, n: g.size(n.attrs.size),
    samples=(Sample((), {"size": 7}),),
)
def dimension(*, size: int | Dim) -> Array:
    """A size as a 0-d int64 value, given to kernels when they run: they do not depend on it."""
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
    algebra=Algebra(conversion=True),
    vjp=_cast_vjp,
    onnx=lambda g, n: g.cast(n.x, n.attrs.to),
    samples=(
        *(Sample((Input((3, 5), low=-3, high=3),), {"to": d}, gradient=False) for d in DTYPES),
        Sample((Input((3, 5), low=-3, high=3),), {"to": "float64"}),
        *(Sample((Input((40,), special=True),), {"to": d}, gradient=False) for d in DTYPES),
        Sample((Input(()),), {"to": "float64"}),
        Sample((Input((0, 2)),), {"to": "int32"}, gradient=False),
    ),
    errors=(
        ErrorSample((Type("float32"),), DTypeError, "unknown element type", {"to": "float128"}),
    ),
)
def cast(x: Array, *, to: str) -> Array:
    """Elements converted to another type.

    Floats to integers truncate toward zero, saturate at the type's range, and NaN gives 0.
    Anything but 0 is True as bool.
    """
    return as_dtype(x, to) if to != "bool" else np.asarray(x != 0)


# ---- composites ----------------------------------------------------------------------------------


def _eye_type(*, shape: Sizes, k: int, dtype: str) -> Type:
    if len(shape) != 2 or any(isinstance(d, int) and d < 0 for d in shape):
        raise ShapeError(f"shape must be a number of rows and one of columns, got {tuple(shape)}")
    return Type(dtype_name(dtype), shape)


def _eye_rule(g: Any, n: Application) -> Any:
    row = g.Iota(shape=(n.attrs.shape[0], 1), axis=0, dtype="int64")
    column = g.Iota(shape=(1, n.attrs.shape[1]), axis=1, dtype="int64")
    hit = g.Equal(g.Add(row, g.like(n.attrs.k, row)), column)
    return g.cast(hit, n.attrs.dtype)


@operator(
    "Eye",
    type_rule=_eye_type,
    compute=Composite(_eye_rule),
    vjp=ZeroGradient(),
    onnx=Expanded(),
    samples=(
        *(Sample((), {"shape": (3, 4), "k": 0, "dtype": d}) for d in DTYPES),
        Sample((), {"shape": (4, 3), "k": 1}),
        Sample((), {"shape": (4, 3), "k": -2}),
        Sample((), {"shape": (0, 2)}),
    ),
    errors=(
        ErrorSample((), ShapeError, "a number of rows", {"shape": (3,)}),
        ErrorSample((), DTypeError, "float7", {"shape": (3, 3), "dtype": "float7"}),
    ),
)
def eye(*, shape: Sizes, k: int = 0, dtype: str = "float32") -> Array:
    """A matrix with ones on its k-th diagonal, zeros elsewhere."""
    return np.eye(int(shape[0]), int(shape[1]), k).astype(Type(dtype).numpy)


def _linspace_type(
    *, start: float, stop: float, num: int | Dim, endpoint: bool, dtype: str
) -> Type:
    if isinstance(num, int) and num < 0:
        raise ShapeError(f"num must be at least 0, got {num}")
    if not is_floating(dtype_name(dtype)):
        raise DTypeError(f"dtype must be floating, got {dtype}; cast the result")
    return Type(dtype_name(dtype), (num,))


def _linspace_rule(g: Any, n: Application) -> Any:
    start, stop, num, endpoint, dtype = n.attrs.values()
    start, stop = g.constant(start, "float64"), g.constant(stop, "float64")
    steps = g.size(dims.maximum(num - 1 if endpoint else num, 1), "float64")
    position = g.Iota(shape=(num,), axis=0, dtype="float64")
    line = g.Add(g.Mul(position, g.Div(g.Sub(stop, start), steps)), start)
    if endpoint:  # the last number is `stop` itself; a single one is `start`
        line = g.Where(g.Equal(position, steps), stop, line)
    return g.cast(line, dtype)


@operator(
    "Linspace",
    type_rule=_linspace_type,
    compute=Composite(_linspace_rule),
    vjp=ZeroGradient(),
    onnx=Expanded(),
    samples=(
        *(Sample((), {"start": -1.0, "stop": 2.5, "num": 12, "dtype": d}) for d in FLOATING),
        Sample((), {"start": 0.1, "stop": -0.7, "num": 7, "endpoint": False}),
        Sample((), {"start": 3.0, "stop": 4.0, "num": 1, "dtype": "float64"}),
        Sample((), {"start": 3.0, "stop": 4.0, "num": 0}),
        Sample((), {"start": 2.0, "stop": 2.0, "num": 3}),
    ),
    errors=(
        ErrorSample((), ShapeError, "at least 0", {"start": 0.0, "stop": 1.0, "num": -1}),
        ErrorSample(
            (),
            DTypeError,
            "must be floating",
            {"start": 0.0, "stop": 1.0, "num": 3, "dtype": "int64"},
        ),
    ),
    ulp=1,
)
def linspace(
    *, start: float, stop: float, num: int | Dim, endpoint: bool = True, dtype: str = "float32"
) -> Array:
    """`num` numbers from start to stop at equal distances, computed in float64.

    Without the endpoint they stop one distance before it.
    """
    return as_dtype(np.linspace(start, stop, int(num), endpoint), dtype)


def _one_hot_type(indices: Type, *, depth: int | Dim, axis: int, dtype: str) -> Type:
    if not is_integer(indices.dtype):
        raise DTypeError(f"indices must be integers, got {short(indices)}; cast them first")
    if isinstance(depth, int) and depth < 0:
        raise ShapeError(f"depth must be at least 0, got {depth}")
    axis = normalize_axis(axis, indices.rank + 1)
    return Type(dtype_name(dtype), (*indices.shape[:axis], depth, *indices.shape[axis:]))


def _one_hot_rule(g: Any, n: Application) -> Any:
    rank = n.x.type.rank + 1
    axis = normalize_axis(n.attrs.axis, rank)
    indices = g.cast(n.x, "int64")
    below = g.Less(indices, g.like(0, indices))
    indices = g.Where(below, g.Add(indices, g.size(n.attrs.depth)), indices)
    indices = g.Unsqueeze(indices, axes=(axis,))
    line = tuple(n.attrs.depth if k == axis else 1 for k in range(rank))
    return g.Cast(g.Equal(g.Iota(shape=line, axis=axis, dtype="int64"), indices), to=n.attrs.dtype)


@operator(
    "OneHot",
    type_rule=_one_hot_type,
    compute=Composite(_one_hot_rule),
    vjp=ZeroGradient(),
    onnx=Expanded(),
    samples=(
        Sample((Input((3,), values=(0, 4, 2)),), {"depth": 5}),
        Sample((Input((2, 2), values=(0, 1, 2, 9)),), {"depth": 3, "axis": 0, "dtype": "int64"}),
        Sample((Input((), values=(1,)),), {"depth": 3, "dtype": "bool"}),
        Sample((Input((3,), "int64", values=(-1, -3, -4)),), {"depth": 3, "dtype": "float64"}),
        Sample((Input((2,), values=(0, 0)),), {"depth": 0}),
        Sample((Input((0,), values=()),), {"depth": 2, "axis": 1}),
    ),
    errors=(
        ErrorSample((Type("float32", (2,)),), DTypeError, "indices must be integers", {"depth": 3}),
        ErrorSample((Type("int64", (2,)),), ShapeError, "out of range", {"depth": 3, "axis": 2}),
        ErrorSample((Type("int64", (2,)),), ShapeError, "at least 0", {"depth": -1}),
    ),
    dtypes=INTEGERS,
)
def one_hot(indices: Array, *, depth: int | Dim, axis: int = -1, dtype: str = "float32") -> Array:
    """1 at each index along a new axis of size `depth`, 0 elsewhere and where out of range."""
    size = int(depth)
    wide = indices.astype(np.int64)
    wide = np.where(wide < 0, wide + size, wide)
    rows = wide[..., None] == np.arange(size)
    return np.asarray(np.moveaxis(rows, -1, axis), Type(dtype).numpy)
