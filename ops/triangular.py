"""Triangles and diagonals of matrices: the last two axes, or two that are named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ops import dims
from ops.compute import Attributes, Scalar, Strided, View
from ops.dims import Dim
from ops.errors import ShapeError
from ops.operator import Application, ErrorSample, Input, Sample, operator
from ops.types import Type, normalize_axis, short

Array = np.ndarray[Any, Any]
Size = int | Dim


def _triangle_type(x: Type, *, upper: bool, k: int) -> Type:
    if x.rank < 2:
        raise ShapeError(f"a triangle needs at least 2 axes, got {short(x)}")
    return Type(x.dtype, x.shape, x.weak)


def _triangle_text(types: Sequence[Type], result: Type, attrs: Attributes) -> str:
    row, column = f"{{axis{result.rank - 2}}}", f"{{axis{result.rank - 1}}}"
    inside = f"({row} + {attrs['k']} {'<=' if attrs['upper'] else '>='} {column})"
    return f"{{0}} & {inside}" if result.dtype == "bool" else f"select({inside}, {{0}}, {{T}}(0))"


@operator(
    "Trilu",
    type_rule=_triangle_type,
    compute=Scalar(_triangle_text),
    vjp=lambda g, n: (g.Trilu(n.dy, **n.attrs),),
    onnx=lambda g, n: g.op("Trilu", n.x, g.scalar(n.attrs.k), upper=int(n.attrs.upper)),
    samples=(
        Sample((Input((4, 5)),), {"upper": True}),
        Sample((Input((4, 5)),), {"upper": False}),
        Sample((Input((2, 5, 3)),), {"upper": True, "k": -2}),
        Sample((Input((2, 5, 3)),), {"upper": False, "k": 1}),
        Sample((Input((2, 3)),), {"upper": False, "k": -7}),
        Sample((Input((0, 3)),), {"upper": True}),
        Sample((Input((1, 1)),), {"upper": True, "k": 1}),
        Sample((Input((4, 6), layout="strided"),), {"upper": False, "k": 2}),
        Sample((Input((5, 6), special=True),), {"upper": True, "k": 1}, gradient=False),
    ),
    errors=(ErrorSample((Type("float32", (3,)),), ShapeError, "at least 2 axes"),),
)
def trilu(x: Array, *, upper: bool = True, k: int = 0) -> Array:
    """The upper or lower triangle of matrices in the last two axes, from the k-th diagonal on.

    Elsewhere it is 0, whatever x is there.
    """
    return np.asarray(np.triu(x, k) if upper else np.tril(x, k))


# ---- diagonals -----------------------------------------------------------------------------------


def _diagonal_size(rows: Size, columns: Size, offset: int) -> Size:
    if offset >= 0:
        return dims.maximum(dims.minimum(rows, columns - offset), 0)
    return dims.maximum(dims.minimum(rows + offset, columns), 0)


def _axes(rank: int, axis1: int, axis2: int) -> tuple[int, int]:
    return normalize_axis(axis1, rank, "axis1"), normalize_axis(axis2, rank, "axis2")


def diagonal_type(x: Type, *, offset: int, axis1: int, axis2: int) -> Type:
    """The type of a diagonal."""
    if x.rank < 2:
        raise ShapeError(f"a diagonal needs at least 2 axes, got {short(x)}")
    first, second = _axes(x.rank, axis1, axis2)
    if first == second:
        raise ShapeError(f"axis1 and axis2 are both axis {first}; a diagonal runs along two")
    rest = tuple(d for k, d in enumerate(x.shape) if k not in (first, second))
    return Type(x.dtype, (*rest, _diagonal_size(x.shape[first], x.shape[second], offset)), x.weak)


def diagonal_layout(layout: Strided, shape: tuple[int, ...], attrs: Attributes) -> Strided:
    """Where a diagonal lies in the buffer of its operand."""
    first, second = _axes(len(layout.shape), attrs["axis1"], attrs["axis2"])
    rest = tuple(s for k, s in enumerate(layout.strides) if k not in (first, second))
    step, other = layout.strides[first], layout.strides[second]
    offset = attrs["offset"]
    start = offset * other if offset >= 0 else -offset * step
    return Strided(shape, (*rest, step + other), layout.offset + (0 if 0 in shape else start))


def _last_two(rank: int, first: int, second: int) -> tuple[int, ...]:
    """The order of axes that puts two of them last."""
    return (*(k for k in range(rank) if k not in (first, second)), first, second)


def _diagonal_vjp(g: Any, n: Application) -> Any:
    """dy on the diagonal of zeros: expanded, then kept where row + offset is the column."""
    x, offset = n.x.type, n.attrs.offset
    first, second = _axes(x.rank, n.attrs.axis1, n.attrs.axis2)
    order = _last_two(x.rank, first, second)
    shape = tuple(x.shape[k] for k in order)
    rows, columns = shape[-2:]
    length = rows if offset >= 0 else columns
    batch = shape[:-2]
    missing = length - n.dy.type.shape[-1]
    dy = g.Pad(n.dy, pads=(*(0 for _ in range(x.rank - 1)), *(0 for _ in batch), missing))
    dy = g.reshape(dy, (*batch, rows, 1) if offset >= 0 else (*batch, 1, columns))
    row = g.Iota(shape=(rows, 1), axis=0, dtype="int64")
    column = g.Iota(shape=(1, columns), axis=1, dtype="int64")
    hit = g.Equal(g.Add(row, g.like(offset, row)), column)
    dx = g.expand(g.Where(hit, dy, g.like(0, dy)), shape)
    return (g.Transpose(dx, perm=tuple(int(k) for k in np.argsort(order))),)


def diagonal_onnx(g: Any, n: Application) -> Any:
    """With the two axes last and made one, a diagonal is a slice by one more than a row."""
    x, offset = n.x.type, n.attrs.offset
    first, second = _axes(x.rank, n.attrs.axis1, n.attrs.axis2)
    order = _last_two(x.rank, first, second)
    rows, columns = x.shape[first], x.shape[second]
    batch = tuple(x.shape[k] for k in order[:-2])
    flat = g.op("Transpose", n.x, perm=order)
    flat = g.op("Reshape", flat, g.shape((*batch, rows * columns)), allowzero=1)
    start = offset if offset >= 0 else -offset * columns
    end = start + _diagonal_size(rows, columns, offset) * (columns + 1)
    axes, step = g.ints((x.rank - 2,)), g.shape((columns + 1,))
    return g.op("Slice", flat, g.shape((start,)), g.shape((end,)), axes, step)


@operator(
    "Diagonal",
    type_rule=diagonal_type,
    compute=View(diagonal_layout),
    vjp=_diagonal_vjp,
    onnx=diagonal_onnx,
    samples=(
        Sample((Input((4, 4)),)),
        Sample((Input((3, 5)),), {"offset": 1}),
        Sample((Input((3, 5)),), {"offset": -1}),
        Sample((Input((2, 3, 4)),), {"offset": 0, "axis1": 0, "axis2": 2}),
        Sample((Input((2, 3, 4)),), {"offset": -1, "axis1": -1, "axis2": 1}),
        Sample((Input((2, 3)),), {"offset": 5}),
        Sample((Input((0, 3)),)),
        Sample((Input((4, 6), layout="strided"),), {"offset": 2}),
    ),
    errors=(
        ErrorSample((Type("float32", (3,)),), ShapeError, "at least 2 axes"),
        ErrorSample(
            (Type("float32", (3, 3)),), ShapeError, "both axis 1", {"axis1": -1, "axis2": 1}
        ),
        ErrorSample(
            (Type("float32", (3, 3)),), ShapeError, "axis2 2 is out of range", {"axis2": 2}
        ),
    ),
)
def diagonal(x: Array, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Elements whose position along axis2 is that along axis1 plus `offset`, as a last axis."""
    result = np.diagonal(x, offset, axis1, axis2)
    result.flags.writeable = x.flags.writeable  # NumPy makes it read-only
    return result
