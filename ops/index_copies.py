"""Elements at computed indices along an axis replaced: what reading them is to `indexing.py`.

Of equal indices the last one counts, in row-major order of the updates, on any number of threads.
Its update alone has a gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.compute import Scatter
from ops.dims import product
from ops.errors import DTypeError, ShapeError
from ops.indexing import (
    as_int64,
    element_indices,
    element_places,
    elements_of_slices,
    gather_indices,
    index_copy_type,
    scatter_type,
    slice_places,
)
from ops.operator import Application, ErrorSample, Input, Sample, operator
from ops.replacement import WIDTHS
from ops.types import Type, normalize_axis

Array = np.ndarray[Any, Any]


def _counts(g: Any, indices: Any, shape: tuple[Any, ...], write: Any, read: Any) -> Any:
    """Which updates stay, of the indices' shape: each leaves its number, the last one is found.

    `write` puts numbers into zeros of a shape, `read` takes them at the same places.
    """
    count = product(indices.type.shape)
    number = g.reshape(g.Iota(shape=(count,), axis=0, dtype="int64"), indices.type.shape)
    last = write(g.zeros(Type("int64", shape)), number)
    return g.Equal(read(last), number)


def _may_meet(indices: Any) -> bool:
    return product(indices.type.shape) not in (0, 1)


# ---- whole slices at indices ---------------------------------------------------------------------


def _index_copy_vjp(g: Any, n: Application) -> Any:
    x, indices, src = n.inputs
    axis = normalize_axis(n.attrs.axis, x.type.rank)
    dx = g.IndexCopy(n.dy, indices, g.zeros(src.type), axis=axis) if n.needs[0] else None
    if not n.needs[2]:
        return dx, None, None
    dsrc = g.Gather(n.dy, indices, axis=axis)
    if _may_meet(indices):
        stays = _counts(
            g,
            indices,
            (x.type.shape[axis],),
            lambda zeros, number: g.IndexCopy(zeros, indices, number, axis=0),
            lambda last: g.Gather(last, indices, axis=0),
        )
        inner = (1,) * (x.type.rank - axis - 1)
        dsrc = g.Where(g.reshape(stays, (*stays.type.shape, *inner)), dsrc, g.like(0, dsrc))
    return dx, None, dsrc


def _index_copy_onnx(g: Any, n: Application) -> Any:
    places, values, axis = elements_of_slices(g, n)
    return g.op("ScatterElements", n.x, places, values, axis=axis)


_FLOAT = Type("float32", (2, 3))
_AXIS_0, _AXIS_1 = {"axis": 0}, {"axis": 1}


@operator(
    "IndexCopy",
    type_rule=index_copy_type,
    compute=Scatter(gather_indices, "set"),
    vjp=_index_copy_vjp,
    onnx=_index_copy_onnx,
    samples=(
        Sample(
            (Input((5, 4)), Input((3,), "int64", values=(4, 0, 4)), Input((3, 4))),
            _AXIS_0,
            dtypes=WIDTHS,
        ),
        Sample(
            (Input((3, 4)), Input((2, 3), "int32", values=(0, 3, -1, -4, 1, 1)), Input((3, 2, 3))),
            _AXIS_1,
        ),
        Sample((Input((2, 3, 4)), Input((), "int64", values=(-2,)), Input((2, 4))), {"axis": -2}),
        Sample((Input((3, 4)), Input((0,), "int64", values=()), Input((0, 4))), _AXIS_0),
        Sample(
            (Input((3,), special=True), Input((40,), "uint8", values=(1, 2) * 20), Input((40,))),
            _AXIS_0,
            gradient=False,
        ),
    ),
    errors=(
        ErrorSample(
            (_FLOAT, Type("int64", (4,)), Type("float32", (4, 2))),
            ShapeError,
            "updates must be",
            _AXIS_0,
        ),
        ErrorSample(
            (_FLOAT, Type("int64", (4,)), Type("float64", (4, 3))),
            DTypeError,
            "one element type",
            _AXIS_0,
        ),
        ErrorSample((_FLOAT, _FLOAT, _FLOAT), DTypeError, "indices must be integers", _AXIS_0),
    ),
)
def index_copy(x: Array, indices: Array, src: Array, *, axis: int = 0) -> Array:
    """x with src's slices in the place of its own at indices along an axis.

    Of equal indices the last one counts. Raises `BoundsError` for an index out of range.
    """
    return _written(x, slice_places(x, indices, axis), src)


def _written(x: Array, places: Array, src: Array) -> Array:
    """x with each element of src at its place in row-major order, one after the other."""
    result = np.array(x, order="C")
    result.reshape(-1)[places.reshape(-1)] = src.reshape(-1)  # along one axis NumPy goes in order
    return result


# ---- single elements at indices ------------------------------------------------------------------


def _scatter_vjp(g: Any, n: Application) -> Any:
    x, indices, src = n.inputs
    axis = n.attrs.axis
    dx = g.ScatterElements(n.dy, indices, g.zeros(src.type), axis=axis) if n.needs[0] else None
    if not n.needs[2]:
        return dx, None, None
    dsrc = g.GatherElements(n.dy, indices, axis=axis)
    if _may_meet(indices):
        stays = _counts(
            g,
            indices,
            x.type.shape,
            lambda zeros, number: g.ScatterElements(zeros, indices, number, axis=axis),
            lambda last: g.GatherElements(last, indices, axis=axis),
        )
        dsrc = g.Where(stays, dsrc, g.like(0, dsrc))
    return dx, None, dsrc


def _scatter_onnx(g: Any, n: Application) -> Any:
    x, indices, src = n.inputs
    return g.op("ScatterElements", x, as_int64(g, indices), src, axis=n.attrs.axis)


@operator(
    "ScatterElements",
    type_rule=scatter_type,
    compute=Scatter(element_indices, "set"),
    vjp=_scatter_vjp,
    onnx=_scatter_onnx,
    samples=(
        Sample(
            (Input((3, 4)), Input((3, 2), "int64", values=(3, 0, -1, 1, 2, 2)), Input((3, 2))),
            _AXIS_1,
            dtypes=WIDTHS,
        ),
        Sample((Input((3, 4)), Input((1, 3), "int32", values=(2, -3, 0)), Input((1, 3))), _AXIS_0),
        Sample(
            (Input((2, 3, 2)), Input((2, 1, 2), "int8", values=(0, 1, 2, -1)), Input((2, 1, 2))),
            {"axis": -2},
        ),
        Sample((Input((0, 3)), Input((0, 2), "int64", values=()), Input((0, 2))), _AXIS_1),
        Sample(
            (Input((3,)), Input((40,), "int64", values=(1, -1) * 20), Input((40,), special=True)),
            _AXIS_0,
            gradient=False,
        ),
    ),
    errors=(
        ErrorSample(
            (_FLOAT, Type("int64", (2, 2)), Type("float32", (2, 3))),
            ShapeError,
            "as the indices",
            _AXIS_1,
        ),
        ErrorSample(
            (_FLOAT, Type("int64", (2, 3)), Type("float64", (2, 3))),
            DTypeError,
            "one element type",
            _AXIS_1,
        ),
        ErrorSample((_FLOAT, _FLOAT, _FLOAT), DTypeError, "indices must be integers", _AXIS_1),
    ),
)
def scatter_elements(x: Array, indices: Array, src: Array, *, axis: int = 0) -> Array:
    """x with elements of src in the place of its own at indices along an axis.

    An element goes to its own position along the other axes. Of equal places the last one counts.

    Raises `BoundsError` for an index out of range.
    """
    places = np.broadcast_arrays(*element_places(x, indices, axis))
    return _written(x, np.ravel_multi_index(places, x.shape), src)
