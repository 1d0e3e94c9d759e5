"""Elements at computed indices along an axis: reading them, adding to them.

Indices are integers of any type; negative ones count from the end. One that is out of range is an
error where the program runs. In an addition the updates come in row-major order, each rounded to
the element type, so that equal indices add up the same way everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ops import rules
from ops.compute import Attributes, Gather, Index, Scatter
from ops.dims import product
from ops.errors import DTypeError, ShapeError
from ops.operator import Application, ErrorSample, Input, Sample, operator
from ops.types import FLOATING, INTEGERS, Type, is_integer, normalize_axis, require_index, short

Array = np.ndarray[Any, Any]
NUMERIC = INTEGERS + FLOATING


def checked(indices: Array, size: int, axis: int) -> Array:
    """Indices from the front as int64.

    Raises `BoundsError` for the first one that is out of range.
    """
    huge = np.uint64(np.iinfo(np.int64).max)  # a uint64 above must not become a negative index
    wide = (np.minimum(indices, huge) if indices.dtype == np.uint64 else indices).astype(np.int64)
    wrong = np.flatnonzero((wide < -size) | (wide >= size))
    if wrong.size:
        require_index(int(indices.reshape(-1)[wrong[0]]), axis, size, f"size {size}")
    return np.where(wide < 0, wide + size, wide)


def _require_integers(indices: Type) -> None:
    if not is_integer(indices.dtype):
        raise DTypeError(f"indices must be integers, got {short(indices)}; cast them first")


def as_int64(g: Any, indices: Any) -> Any:
    """Indices of an element type that ONNX takes."""
    return indices if indices.type.dtype in ("int32", "int64") else g.cast(indices, "int64")


# ---- whole slices at indices ---------------------------------------------------------------------


def gather_type(x: Type, indices: Type, *, axis: int) -> Type:
    """The type of x's slices at indices."""
    _require_integers(indices)
    axis = normalize_axis(axis, x.rank)
    return Type(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))


def _taken(axis: int, rank: int, indices: Type) -> tuple[Index, ...]:
    """The index of each axis of x by axes of x.shape[:axis] + indices.shape + x.shape[axis+1:]."""
    axis = normalize_axis(axis, rank)
    by = tuple(range(axis, axis + indices.rank))
    return tuple(
        Index(operand=1, operand_axes=by)
        if k == axis
        else Index(axis=k if k < axis else k + indices.rank - 1)
        for k in range(rank)
    )


def gather_indices(types: Sequence[Type], result: Type, attrs: Attributes) -> tuple[Index, ...]:
    """Where each element of slices at indices lies in x."""
    return _taken(attrs["axis"], types[0].rank, types[1])


def _added_up(g: Any, name: str, n: Application) -> Any:
    """The cotangent of what was read: dy added to zeros at the indices.

    Half types add up in float32.
    """
    dtype = n.x.type.dtype
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    zeros = g.zeros(n.x.type.with_dtype(wide))
    total = g.op(name, zeros, n.inputs[1], g.cast(n.dy, wide), axis=n.attrs.axis)
    return g.cast(total, dtype), None


_FLOAT = Type("float32", (2, 3))
_AXIS_0, _AXIS_1 = {"axis": 0}, {"axis": 1}

# What adding and copying have in common: for slices at indices, and for single elements.
SLICE_SAMPLES = (
    Sample(
        (Input((3, 4)), Input((2, 3), "int32", values=(0, 3, -1, -4, 1, 1)), Input((3, 2, 3))),
        _AXIS_1,
    ),
    Sample((Input((2, 3, 4)), Input((), "int64", values=(-2,)), Input((2, 4))), {"axis": -2}),
    Sample((Input((3, 4)), Input((0,), "int64", values=()), Input((0, 4))), _AXIS_0),
)
SLICE_ERRORS = (
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
)
ELEMENT_SAMPLES = (
    Sample((Input((3, 4)), Input((1, 3), "int32", values=(2, -3, 0)), Input((1, 3))), _AXIS_0),
    Sample(
        (Input((2, 3, 2)), Input((2, 1, 2), "int8", values=(0, 1, 2, -1)), Input((2, 1, 2))),
        {"axis": -2},
    ),
    Sample((Input((0, 3)), Input((0, 2), "int64", values=()), Input((0, 2))), _AXIS_1),
)
ELEMENT_ERRORS = (
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
)


@operator(
    "Gather",
    type_rule=gather_type,
    compute=Gather(gather_indices),
    vjp=lambda g, n: _added_up(g, "IndexAdd", n),
    onnx=lambda g, n: g.op("Gather", n.x, as_int64(g, n.inputs[1]), axis=n.attrs.axis),
    samples=(
        Sample((Input((5, 4)), Input((3,), "int64", values=(4, 0, 4))), _AXIS_0),
        Sample((Input((3, 4)), Input((2, 3), "int32", values=(0, 3, -1, -4, 1, 1))), _AXIS_1),
        Sample((Input((2, 3, 4)), Input((), "int64", values=(-2,))), {"axis": -2}),
        Sample((Input((3, 4)), Input((2,), "uint8", values=(3, 1))), {"axis": -1}),
        Sample((Input((3, 4)), Input((0,), "int64", values=())), _AXIS_0),
        Sample((Input((0, 4)), Input((2,), "int64", values=(1, 2))), _AXIS_1),
        Sample((Input((4, 6), layout="strided"), Input((2,), "int8", values=(5, -3))), _AXIS_1),
    ),
    errors=(
        ErrorSample(
            (_FLOAT, Type("float32", (2,))), DTypeError, "indices must be integers", _AXIS_0
        ),
        ErrorSample((_FLOAT, Type("int64", (2,))), ShapeError, "out of range", {"axis": 2}),
        ErrorSample((Type("float32"), Type("int64", (2,))), ShapeError, "out of range", _AXIS_0),
    ),
)
def gather(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """x's slices at indices along an axis: shape x.shape[:axis] + indices.shape + x.shape[axis+1:].

    Raises `BoundsError` for an index out of range.
    """
    return np.take(x, checked(indices, x.shape[axis], axis % x.ndim), axis=axis)


def index_copy_type(x: Type, indices: Type, src: Type, *, axis: int) -> Type:
    """The type of x with its slices at indices changed by src."""
    expected = gather_type(x, indices, axis=axis)
    rules.same_dtype(x, src)
    if src.shape != expected.shape:
        raise ShapeError(f"updates must be {short(expected)}, got {short(src)}")
    return Type(x.dtype, x.shape)


def _index_add_type(x: Type, indices: Type, updates: Type, *, axis: int) -> Type:
    _numbers(x)
    return index_copy_type(x, indices, updates, axis=axis)


def _numbers(x: Type) -> None:
    if x.dtype == "bool":
        raise DTypeError(f"the operand must be a number, got {short(x)}; cast it first")


def elements_of_slices(g: Any, n: Application) -> tuple[Any, Any, int]:
    """Places and updates of single elements, which are what ONNX scatters.

    Axes of the indices are made one, indices repeated for a slice's elements.
    """
    _, indices, updates = n.inputs
    axis, shape = normalize_axis(n.attrs.axis, n.x.type.rank), n.x.type.shape
    size = product(indices.type.shape)
    line = tuple(size if k == axis else 1 for k in range(len(shape)))
    flat = (*shape[:axis], size, *shape[axis + 1 :])
    places = g.op("Reshape", as_int64(g, indices), g.shape(line), allowzero=1)
    places = g.op("Expand", places, g.shape(flat))
    return places, g.op("Reshape", updates, g.shape(flat), allowzero=1), axis


def _scattered(g: Any, x: Any, places: Any, values: Any, axis: int) -> Any:
    """ONNX's ScatterElements, which runtimes lack for half types."""
    dtype = x.type.dtype
    if dtype in ("float16", "bfloat16"):
        x, values = g.cast(x, "float32"), g.cast(values, "float32")
    return g.cast(g.op("ScatterElements", x, places, values, axis=axis, reduction="add"), dtype)


@operator(
    "IndexAdd",
    type_rule=_index_add_type,
    compute=Scatter(gather_indices, "add"),
    vjp=lambda g, n: (
        n.dy,
        None,
        g.Gather(n.dy, n.inputs[1], axis=n.attrs.axis) if n.needs[2] else None,
    ),
    onnx=lambda g, n: _scattered(g, n.x, *elements_of_slices(g, n)),
    samples=(
        Sample((Input((5, 4)), Input((3,), "int64", values=(4, 0, 4)), Input((3, 4))), _AXIS_0),
        *SLICE_SAMPLES,
        Sample(
            (Input((3,)), Input((40,), "uint8", values=(1, 2) * 20), Input((40,), special=True)),
            _AXIS_0,
            dtypes=(*INTEGERS, "float32", "float64"),
            gradient=False,
        ),
    ),
    errors=(
        *SLICE_ERRORS,
        ErrorSample(
            (Type("bool", (2,)), Type("int64", (2,)), Type("bool", (2,))),
            DTypeError,
            "a number",
            _AXIS_0,
        ),
    ),
    dtypes=NUMERIC,
)
def index_add(x: Array, indices: Array, updates: Array, *, axis: int = 0) -> Array:
    """x with updates added to its slices at indices along an axis: the reverse of Gather.

    Equal indices add up in order.

    Raises `BoundsError` for an index out of range.
    """
    return _added(x, slice_places(x, indices, axis), updates)


def slice_places(x: Array, indices: Array, axis: int) -> Array:
    """The row-major positions in x of the elements of its slices at indices."""
    axis = axis % x.ndim
    places = checked(indices, x.shape[axis], axis).reshape(-1)
    outer, inner = np.arange(math.prod(x.shape[:axis])), np.arange(math.prod(x.shape[axis + 1 :]))
    return np.asarray((outer[:, None] * x.shape[axis] + places)[..., None] * inner.size + inner)


def _added(x: Array, places: Array, updates: Array) -> Array:
    """x plus each update at its place in row-major order, one after the other."""
    result = np.array(x, order="C")
    with np.errstate(all="ignore"):
        # One flat index: with several, NumPy may choose another order.
        np.add.at(result.reshape(-1), places.reshape(-1), updates.reshape(-1))
    return result


# ---- single elements at indices ------------------------------------------------------------------


def elements_type(x: Type, indices: Type, *, axis: int) -> Type:
    """The type of x's elements at indices."""
    _require_integers(indices)
    axis = normalize_axis(axis, x.rank)
    if indices.rank != x.rank:
        raise ShapeError(f"indices must have {x.rank} axes as {short(x)} has, got {short(indices)}")
    for k, (size, available) in enumerate(zip(indices.shape, x.shape, strict=True)):
        if k != axis and isinstance(size, int) and isinstance(available, int) and size > available:
            raise ShapeError(f"{short(indices)} indexes more than {short(x)} has along axis {k}")
    return Type(x.dtype, indices.shape)


def element_indices(types: Sequence[Type], result: Type, attrs: Attributes) -> tuple[Index, ...]:
    """Where each element at an index lies in x."""
    rank = types[0].rank
    axis = normalize_axis(attrs["axis"], rank)
    every = tuple(range(rank))
    return tuple(
        Index(operand=1, operand_axes=every) if k == axis else Index(axis=k) for k in every
    )


@operator(
    "GatherElements",
    type_rule=elements_type,
    compute=Gather(element_indices),
    vjp=lambda g, n: _added_up(g, "ScatterAdd", n),
    onnx=lambda g, n: g.op("GatherElements", n.x, as_int64(g, n.inputs[1]), axis=n.attrs.axis),
    samples=(
        Sample((Input((3, 4)), Input((3, 2), "int64", values=(3, 0, -1, 1, 2, 2))), _AXIS_1),
        Sample((Input((3, 4)), Input((1, 3), "int32", values=(2, -3, 0))), _AXIS_0),
        Sample((Input((2, 3, 2)), Input((2, 1, 2), "int8", values=(0, 1, 2, -1))), {"axis": -2}),
        Sample((Input((5,)), Input((7,), "int64", values=(0, 4, 4, 1, 1, 1, -5))), _AXIS_0),
        Sample((Input((0, 3)), Input((0, 2), "int64", values=())), _AXIS_1),
        Sample((Input((2, 6), layout="strided"), Input((2, 1), "int64", values=(5, 0))), _AXIS_1),
    ),
    errors=(
        ErrorSample((_FLOAT, Type("int64", (3,))), ShapeError, "must have 2 axes", _AXIS_0),
        ErrorSample((_FLOAT, Type("int64", (3, 1))), ShapeError, "more than", _AXIS_1),
        ErrorSample((_FLOAT, _FLOAT), DTypeError, "indices must be integers", _AXIS_1),
        ErrorSample((_FLOAT, Type("int64", (2, 3))), ShapeError, "out of range", {"axis": 2}),
    ),
)
def gather_elements(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """The element of x at each index along an axis, at the index's own position along the others.

    Raises `BoundsError` for an index out of range.
    """
    return np.asarray(x[element_places(x, indices, axis)])


def element_places(x: Array, indices: Array, axis: int) -> tuple[Array, ...]:
    """The index of each element in NumPy's form."""
    axis = axis % x.ndim
    places: list[Array] = list(np.indices(indices.shape, sparse=True))
    places[axis] = checked(indices, x.shape[axis], axis)
    return tuple(places)


def scatter_type(x: Type, indices: Type, src: Type, *, axis: int) -> Type:
    """The type of x with its elements at indices changed by src."""
    expected = elements_type(x, indices, axis=axis)
    rules.same_dtype(x, src)
    if src.shape != expected.shape:
        raise ShapeError(f"updates must be {short(expected)} as the indices, got {short(src)}")
    return Type(x.dtype, x.shape)


def _scatter_add_type(x: Type, indices: Type, updates: Type, *, axis: int) -> Type:
    _numbers(x)
    return scatter_type(x, indices, updates, axis=axis)


def _scatter_onnx(g: Any, n: Application) -> Any:
    x, indices, updates = n.inputs
    return _scattered(g, x, as_int64(g, indices), updates, n.attrs.axis)


@operator(
    "ScatterAdd",
    type_rule=_scatter_add_type,
    compute=Scatter(element_indices, "add"),
    vjp=lambda g, n: (
        n.dy,
        None,
        g.GatherElements(n.dy, n.inputs[1], axis=n.attrs.axis) if n.needs[2] else None,
    ),
    onnx=_scatter_onnx,
    samples=(
        Sample(
            (Input((3, 4)), Input((3, 2), "int64", values=(3, 0, -1, 1, 2, 2)), Input((3, 2))),
            _AXIS_1,
        ),
        *ELEMENT_SAMPLES,
        Sample(
            (Input((3,)), Input((40,), "int64", values=(1, -1) * 20), Input((40,), special=True)),
            _AXIS_0,
            dtypes=(*INTEGERS, "float32", "float64"),
            gradient=False,
        ),
    ),
    errors=(
        *ELEMENT_ERRORS,
        ErrorSample(
            (Type("bool", (2,)), Type("int64", (2,)), Type("bool", (2,))),
            DTypeError,
            "a number",
            _AXIS_0,
        ),
    ),
    dtypes=NUMERIC,
)
def scatter_add(x: Array, indices: Array, updates: Array, *, axis: int = 0) -> Array:
    """x with updates added to elements at indices along an axis: the reverse of GatherElements.

    Equal indices add up in order. Raises `BoundsError` for an index out of range.
    """
    places = np.broadcast_arrays(*element_places(x, indices, axis))
    return _added(x, np.ravel_multi_index(places, x.shape), updates)
