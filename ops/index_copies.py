"""Elements at computed indices along an axis replaced: what reading them is to `indexing.py`.

Of equal indices the last one counts, in row-major order of the updates, on any number of threads.
Its update alone has a gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.compute import Scatter
from ops.dims import product
from ops.indexing import (
    ELEMENT_ERRORS,
    ELEMENT_SAMPLES,
    SLICE_ERRORS,
    SLICE_SAMPLES,
    as_int64,
    element_indices,
    element_places,
    elements_of_slices,
    gather_indices,
    index_copy_type,
    scatter_type,
    slice_places,
)
from ops.operator import Application, Input, Sample, operator
from ops.replacement import WIDTHS
from ops.types import Type, normalize_axis

Array = np.ndarray[Any, Any]


def _vjp(g: Any, n: Application, written: str, read: str, slices: bool) -> Any:
    """What was written over has no share in the result, nor has an update that another one was written over.

    Operator `written` puts updates at the indices, `read` takes what is there; `slices`: whole ones of the axis.
    """
    x, indices, src = n.inputs
    axis = normalize_axis(n.attrs.axis, x.type.rank)
    dx = g.op(written, n.dy, indices, g.zeros(src.type), axis=axis) if n.needs[0] else None
    if not n.needs[2]:
        return dx, None, None
    dsrc = g.op(read, n.dy, indices, axis=axis)
    count = product(indices.type.shape)
    if count in (0, 1):  # no two meet
        return dx, None, dsrc
    # Each update leaves its number; the one that is found there is the last.
    shape, along = ((x.type.shape[axis],), 0) if slices else (x.type.shape, axis)
    number = g.reshape(g.Iota(shape=(count,), axis=0, dtype="int64"), indices.type.shape)
    last = g.op(written, g.zeros(Type("int64", shape)), indices, number, axis=along)
    stays = g.Equal(g.op(read, last, indices, axis=along), number)
    if slices:
        stays = g.reshape(stays, (*indices.type.shape, *(1,) * (x.type.rank - axis - 1)))
    return dx, None, g.Where(stays, dsrc, g.like(0, dsrc))


# ---- whole slices at indices ---------------------------------------------------------------------


def _index_copy_onnx(g: Any, n: Application) -> Any:
    places, values, axis = elements_of_slices(g, n)
    return g.op("ScatterElements", n.x, places, values, axis=axis)


_FLOAT = Type("float32", (2, 3))
_AXIS_0, _AXIS_1 = {"axis": 0}, {"axis": 1}


@operator(
    "IndexCopy",
    type_rule=index_copy_type,
    compute=Scatter(gather_indices, "set"),
    vjp=lambda g, n: _vjp(g, n, "IndexCopy", "Gather", slices=True),
    onnx=_index_copy_onnx,
    samples=(
        Sample(
            (Input((5, 4)), Input((3,), "int64", values=(4, 0, 4)), Input((3, 4))),
            _AXIS_0,
            dtypes=WIDTHS,
        ),
        *SLICE_SAMPLES,
        Sample(
            (Input((3,), special=True), Input((40,), "uint8", values=(1, 2) * 20), Input((40,))),
            _AXIS_0,
            gradient=False,
        ),
    ),
    errors=SLICE_ERRORS,
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


def _scatter_onnx(g: Any, n: Application) -> Any:
    x, indices, src = n.inputs
    return g.op("ScatterElements", x, as_int64(g, indices), src, axis=n.attrs.axis)


@operator(
    "ScatterElements",
    type_rule=scatter_type,
    compute=Scatter(element_indices, "set"),
    vjp=lambda g, n: _vjp(g, n, "ScatterElements", "GatherElements", slices=False),
    onnx=_scatter_onnx,
    samples=(
        Sample(
            (Input((3, 4)), Input((3, 2), "int64", values=(3, 0, -1, 1, 2, 2)), Input((3, 2))),
            _AXIS_1,
            dtypes=WIDTHS,
        ),
        *ELEMENT_SAMPLES,
        Sample(
            (Input((3,)), Input((40,), "int64", values=(1, -1) * 20), Input((40,), special=True)),
            _AXIS_0,
            gradient=False,
        ),
    ),
    errors=ELEMENT_ERRORS,
)
def scatter_elements(x: Array, indices: Array, src: Array, *, axis: int = 0) -> Array:
    """x with elements of src in the place of its own at indices along an axis.

    An element goes to its own position along the other axes. Of equal places the last one counts.

    Raises `BoundsError` for an index out of range.
    """
    places = np.broadcast_arrays(*element_places(x, indices, axis))
    return _written(x, np.ravel_multi_index(places, x.shape), src)
