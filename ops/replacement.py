"""Parts of an array replaced: what a view of it shows, as a new array.

The operators here are to views what assignment is to reading: a slice, one index of an axis and a diagonal have one each.
What they replace lies apart, so the order of writing does not matter. Replacing elements at
computed indices is in `indexing.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import dims, rules
from ops.compute import Attributes, Replacement, Strided, View
from ops.errors import BoundsError, DTypeError, ShapeError
from ops.operator import Application, ErrorSample, Input, Ints, Sample, Sizes, operator
from ops.slicing import END, extents, slice_layout, slice_onnx, slice_type
from ops.triangular import diagonal_layout, diagonal_onnx, diagonal_type
from ops.types import Type, normalize_axis, require_index, short

Array = np.ndarray[Any, Any]

# Elements are moved by their size: these types stand for the others.
WIDTHS = ("float32", "bool", "float16", "int64")


def _replaced(x: Type, part: Type, src: Type) -> Type:
    """x, if src is what takes the place of a part of it."""
    rules.same_dtype(x, src)
    if src.shape != part.shape:
        raise ShapeError(f"the part of {short(x)} is {short(part)}, but src is {short(src)}")
    return Type(x.dtype, x.shape)


def _vjp(g: Any, n: Application, name: str, view: str) -> Any:
    """What was replaced has no share in the result: zeros there; src has what is there."""
    kept = g.op(name, n.dy, g.zeros(n.inputs[1].type), **n.attrs) if n.needs[0] else None
    return kept, g.op(view, n.dy, **n.attrs) if n.needs[1] else None


def _scattered(g: Any, x: Any, src: Any, view: Any) -> Any:
    """ONNX for any part: a view of all positions says where the elements of src go."""
    shape, count = x.type.shape, dims.product(src.type.shape)
    size = dims.product(shape)
    places = g.reshape(g.op("Range", g.scalar(0), g.size(size), g.scalar(1)), shape)
    places = g.op("Reshape", view(places), g.shape((count,)), allowzero=1)
    flat, values = (
        g.op("Reshape", a, g.shape((s,)), allowzero=1) for a, s in ((x, size), (src, count))
    )
    return g.reshape(g.op("ScatterElements", flat, places, values, axis=0), shape)


# ---- slices --------------------------------------------------------------------------------------


def _slice_scatter_type(
    x: Type, src: Type, *, starts: Sizes, ends: Sizes, axes: Ints, steps: Ints
) -> Type:
    part = slice_type(x, starts=starts, ends=ends, axes=axes, steps=steps)
    return _replaced(x, part, src)


def _slice_scatter_onnx(g: Any, n: Application) -> Any:
    """Along one axis what is before src, src, and what is behind it."""
    x, src = n.inputs
    found = extents(x.type.shape, n.attrs)
    if not found:
        return src
    if len(found) == 1 and found[0][3] == 1:
        ((axis, first, size, _),) = found
        axes = g.ints((axis,))
        before = g.op("Slice", x, g.ints((0,)), g.shape((first,)), axes)
        behind = g.op("Slice", x, g.shape((first + size,)), g.ints((END,)), axes)
        return g.op("Concat", before, src, behind, axis=axis)
    return _scattered(g, x, src, lambda places: slice_onnx(g, Application((places,), (), n.attrs)))


def _part(starts: Ints, ends: Ints, axes: Ints, steps: Ints | None = None) -> dict[str, Ints]:
    return {"starts": starts, "ends": ends, "axes": axes, "steps": steps or (1,) * len(axes)}


_BACKWARDS = -END - 1
_X = Type("float32", (5, 7))


@operator(
    "SliceScatter",
    type_rule=_slice_scatter_type,
    compute=Replacement(slice_layout),
    vjp=lambda g, n: _vjp(g, n, "SliceScatter", "Slice"),
    onnx=_slice_scatter_onnx,
    samples=(
        Sample((Input((5, 7)), Input((3, 7))), _part((1,), (4,), (0,)), dtypes=WIDTHS),
        Sample((Input((5, 7)), Input((2, 2))), _part((1, 2), (END, -1), (0, 1), (2, 3))),
        Sample((Input((5, 7)), Input((5, 7))), _part((-1,), (_BACKWARDS,), (1,), (-1,))),
        Sample((Input((5, 7)), Input((4, 3))), _part((-2, 3), (0, _BACKWARDS), (-1, 0), (-2, -1))),
        Sample((Input((5, 7)), Input((5, 0))), _part((3,), (3,), (1,))),
        Sample((Input((5, 7)), Input((3, 7))), _part((-100, 2), (100, 5), (1, 0))),
        Sample(
            (Input((4, 6), layout="strided"), Input((4, 3), layout="strided")),
            _part((1,), (6,), (1,), (2,)),
        ),
        Sample((Input((5,), special=True), Input((2,), special=True)), _part((0,), (2,), (0,))),
        Sample((Input((0, 3)), Input((0, 2))), _part((1, -1), (9, _BACKWARDS), (1, 0), (1, -1))),
        Sample((Input(()), Input(())), _part((), (), ())),
    ),
    errors=(
        ErrorSample(
            (_X, Type("float32", (2, 7))),
            ShapeError,
            "the part of float32[5, 7] is float32[3, 7], but src is float32[2, 7]",
            _part((1,), (4,), (0,)),
        ),
        ErrorSample(
            (_X, Type("float64", (3, 7))), DTypeError, "one element type", _part((1,), (4,), (0,))
        ),
        ErrorSample((_X, _X), ShapeError, "out of range", _part((1,), (4,), (2,))),
        ErrorSample((_X, _X), ShapeError, "step is 0", _part((0,), (1,), (0,), (0,))),
    ),
)
def slice_scatter(
    x: Array, src: Array, *, starts: Sizes, ends: Sizes, axes: Ints, steps: Ints
) -> Array:
    """x with src in the place of the part that Slice takes with the same attributes.

    src has the part's shape and x's element type.
    """
    result = np.array(x, order="C")
    chosen = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        chosen[axis % x.ndim] = slice(int(start), int(end), step)
    result[tuple(chosen)] = src
    return result


# ---- one index of an axis ------------------------------------------------------------------------


def _select_type(x: Type, *, axis: int, index: int) -> Type:
    axis = normalize_axis(axis, x.rank)
    require_index(index, axis, x.shape[axis], short(x))
    return Type(x.dtype, (*x.shape[:axis], *x.shape[axis + 1 :]), x.weak)


def _select_layout(layout: Strided, shape: tuple[int, ...], attrs: Attributes) -> Strided:
    axis, index = normalize_axis(attrs["axis"], len(layout.shape)), attrs["index"]
    strides, size = layout.strides, layout.shape[axis]
    place = index + size if index < 0 else index
    offset = layout.offset + (0 if 0 in shape else place * strides[axis])
    return Strided(shape, (*strides[:axis], *strides[axis + 1 :]), offset)


def _place(x: Array, axis: int, index: int) -> tuple[Any, ...]:
    """The same as NumPy's subscript; with an ellipsis NumPy gives an array of no axes too, in x's memory."""
    axis = axis % x.ndim
    require_index(index, axis, x.shape[axis], f"an array of shape {x.shape}")
    return (*[slice(None)] * axis, index, ...)


def _select_vjp(g: Any, n: Application) -> Any:
    """dy between zeros."""
    shape, index = n.x.type.shape, n.attrs.index
    axis = normalize_axis(n.attrs.axis, len(shape))
    before = index + shape[axis] if index < 0 else index
    line = g.reshape(n.dy, (*shape[:axis], 1, *shape[axis + 1 :]))
    zeros = [0] * len(shape)
    pads = [*zeros, *zeros]
    pads[axis], pads[len(shape) + axis] = before, shape[axis] - before - 1
    return (g.Pad(line, pads=tuple(pads)),)


_LAST = {"axis": -1, "index": -1}


@operator(
    "Select",
    type_rule=_select_type,
    compute=View(_select_layout),
    vjp=_select_vjp,
    onnx=lambda g, n: g.op("Gather", n.x, g.scalar(n.attrs.index), axis=n.attrs.axis),
    samples=(
        Sample((Input((3, 4)),), {"axis": 0, "index": 2}),
        Sample((Input((2, 3, 4)),), {"axis": 1, "index": -3}),
        Sample((Input((3,)),), _LAST),
        Sample((Input((0, 3)),), {"axis": 1, "index": 0}),
        Sample((Input((4, 6), layout="strided"),), _LAST),
    ),
    errors=(
        ErrorSample((_X,), BoundsError, "index 5 is out of range", {"axis": 0, "index": 5}),
        ErrorSample((_X,), ShapeError, "out of range", {"axis": 2, "index": 0}),
        ErrorSample((Type("int8", (0,)),), BoundsError, "has no elements", _LAST),
    ),
)
def select(x: Array, *, axis: int, index: int) -> Array:
    """The elements at one index of an axis, without the axis; negative ones count from the end.

    Raises `BoundsError` for an index out of range.
    """
    return np.asarray(x[_place(x, axis, index)])


def _select_scatter_type(x: Type, src: Type, *, axis: int, index: int) -> Type:
    return _replaced(x, _select_type(x, axis=axis, index=index), src)


def _select_scatter_onnx(g: Any, n: Application) -> Any:
    """Elements scattered along the axis, all to one index."""
    x, src = n.inputs
    shape, axis = x.type.shape, normalize_axis(n.attrs.axis, x.type.rank)
    line = (*shape[:axis], 1, *shape[axis + 1 :])
    places = g.op("Expand", g.scalar(n.attrs.index), g.shape(line))
    values = g.op("Reshape", src, g.shape(line), allowzero=1)
    return g.op("ScatterElements", x, places, values, axis=axis)


@operator(
    "SelectScatter",
    type_rule=_select_scatter_type,
    compute=Replacement(_select_layout),
    vjp=lambda g, n: _vjp(g, n, "SelectScatter", "Select"),
    onnx=_select_scatter_onnx,
    samples=(
        Sample((Input((3, 4)), Input((4,))), {"axis": 0, "index": 2}, dtypes=WIDTHS),
        Sample((Input((2, 3, 4)), Input((2, 4))), {"axis": 1, "index": -3}),
        Sample((Input((3,)), Input(())), _LAST),
        Sample((Input((0, 3)), Input((0,))), {"axis": 1, "index": 0}),
    ),
    errors=(
        ErrorSample((_X, Type("float32", (5,))), ShapeError, "but src is", {"axis": 0, "index": 0}),
        ErrorSample(
            (_X, Type("float32", (7,))), BoundsError, "out of range", {"axis": 0, "index": -6}
        ),
        ErrorSample(
            (_X, Type("int32", (7,))), DTypeError, "one element type", {"axis": 0, "index": 0}
        ),
    ),
)
def select_scatter(x: Array, src: Array, *, axis: int, index: int) -> Array:
    """x with src in the place of what Select takes with the same attributes."""
    result = np.array(x, order="C")
    result[_place(x, axis, index)] = src
    return result


# ---- diagonals -----------------------------------------------------------------------------------


def _diagonal_scatter_type(x: Type, src: Type, *, offset: int, axis1: int, axis2: int) -> Type:
    return _replaced(x, diagonal_type(x, offset=offset, axis1=axis1, axis2=axis2), src)


def _diagonal_scatter_onnx(g: Any, n: Application) -> Any:
    return _scattered(
        g, n.x, n.inputs[1], lambda places: diagonal_onnx(g, Application((places,), (), n.attrs))
    )


@operator(
    "DiagonalScatter",
    type_rule=_diagonal_scatter_type,
    compute=Replacement(diagonal_layout),
    vjp=lambda g, n: _vjp(g, n, "DiagonalScatter", "Diagonal"),
    onnx=_diagonal_scatter_onnx,
    samples=(
        Sample((Input((4, 4)), Input((4,))), dtypes=WIDTHS),
        Sample((Input((3, 5)), Input((3,))), {"offset": 1}),
        Sample((Input((5, 3)), Input((3,))), {"offset": -2}),
        Sample((Input((2, 3, 4)), Input((3, 2))), {"offset": -1, "axis1": -1, "axis2": 0}),
        Sample((Input((2, 3)), Input((0,))), {"offset": 5}),
        Sample((Input((0, 3)), Input((0,)))),
        Sample((Input((3, 6), layout="strided"), Input((3,))), {"offset": 2}),
    ),
    errors=(
        ErrorSample(
            (Type("float32", (3, 3)), Type("float32", (2,))), ShapeError, "but src is float32[2]"
        ),
        ErrorSample((Type("float32", (3,)), Type("float32", (3,))), ShapeError, "at least 2 axes"),
        ErrorSample((Type("float32", (3, 3)), Type("int32", (3,))), DTypeError, "one element type"),
    ),
)
def diagonal_scatter(
    x: Array, src: Array, *, offset: int = 0, axis1: int = 0, axis2: int = 1
) -> Array:
    """x with src in the place of the diagonal that Diagonal takes with the same attributes.

    src has the diagonal's shape, the diagonal itself as its last axis.
    """
    result = np.array(x, order="C")
    matrices = np.moveaxis(result, (axis1, axis2), (0, 1))
    along = np.arange(src.shape[-1])
    rows, columns = along + max(-offset, 0), along + max(offset, 0)
    matrices[rows, columns] = np.moveaxis(src, -1, 0)
    return result
