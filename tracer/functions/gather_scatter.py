"""Elements at computed indices: taking, gathering, adding to them, one-hot rows.

Indices are integers of any type; negative ones count from the end. One that is out of range raises
`BoundsError` where the program runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import dims
from ops.dims import Dim
from ops.errors import DTypeError, ShapeError, TraceError
from ops.types import broadcast_shapes, dtype_name, is_integer, normalize_axis, short
from tracer.dispatch.apply import BUILDER, apply
from tracer.functions.creation import as_tensor, cast, fresh
from tracer.functions.elementwise import strong
from tracer.functions.promotion import number, number_type
from tracer.functions.public import public
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor

Size = int | Dim


def as_indices(indices: Any) -> Tensor:
    """Indices as a Tensor of integers; an empty list has no type and is taken for one.

    Raises `DTypeError`.
    """
    result = strong(as_tensor(indices))
    if isinstance(indices, list | tuple) and not result.type.size:
        result = fresh(np.zeros(np.shape(indices), np.int64))
    if not is_integer(result.type.dtype):
        hint = "use x[mask] or tracer.where" if result.type.dtype == "bool" else "cast them first"
        raise DTypeError(f"indices must be integers, got {short(result.type)}; {hint}")
    return result


@public
def take(x: Any, indices: Any, /, axis: int | None = None) -> Tensor:
    """x's slices at indices along an axis: shape x.shape[:axis] + indices.shape + x.shape[axis+1:].

    None: of all elements. indices are integers; the type is x's. Raises `BoundsError` for an index out
    of range.

    >>> tracer.take([10, 20, 30], [2, 0])
    tensor([30, 10])
    """
    x, where = as_tensor(x), as_indices(indices)
    if axis is None:
        x, axis = apply("Reshape", x, shape=(x.type.size,)), 0
    return apply("Gather", x, where, axis=axis)


@public
def take_along_axis(x: Any, indices: Any, /, axis: int = -1) -> Tensor:
    """The elements of x at indices along an axis: of the last of two, x[i, indices[i, j]].

    indices, integers, have as many axes as x; the others are broadcast against x's. The type is x's.
    Raises `ShapeError` for another number of axes, `BoundsError` for an index out of range.

    >>> tracer.take_along_axis([[3, 1], [2, 9]], [[1], [0]])
    tensor([[1],
            [2]])
    """
    x, where = as_tensor(x), as_indices(indices)
    axis = normalize_axis(axis, x.ndim)
    if where.ndim != x.ndim:
        raise ShapeError(
            f"indices must have {x.ndim} axes as {short(x.type)} has, got {short(where.type)}"
        )
    lines = [tuple(1 if k == axis else d for k, d in enumerate(t.type.shape)) for t in (x, where)]
    common = broadcast_shapes(*lines)
    x, where = (
        apply("Expand", t, shape=(*common[:axis], t.type.shape[axis], *common[axis + 1 :]))
        for t in (x, where)
    )
    return apply("GatherElements", x, where, axis=axis)


@public
def gather(x: Any, indices: Any, /, axis: int = 0) -> Tensor:
    """The elements of x at indices along an axis, as PyTorch's gather.

    indices, integers, may have fewer elements than x along the other axes. The result has the shape
    of indices and x's element type. `take` gives whole slices, `take_along_axis` broadcasts.

    >>> tracer.gather([[1, 2], [3, 4]], [[0, 0], [1, 0]], axis=1)
    tensor([[1, 1],
            [4, 3]])
    """
    return apply("GatherElements", as_tensor(x), as_indices(indices), axis=axis)


def same_type(x: Tensor, updates: Any, shape: Any) -> Tensor:
    """Updates in x's element type; a number is given the shape."""
    if number_type(updates) is not None:
        value = number(updates, x.type.dtype)
    else:
        value = strong(as_tensor(updates))
        if value.type.dtype != x.type.dtype:
            raise DTypeError(
                f"updates must be {x.type.dtype} like {short(x.type)}, got {short(value.type)}; "
                "cast them first"
            )
    if value.ndim == 0 and shape:
        value = apply("Expand", value, shape=shape)
    return value


def _scattered(name: str, x: Any, indices: Any, updates: Any, axis: int) -> Tensor:
    """x changed at one element for each index."""
    x, where = strong(as_tensor(x)), as_indices(indices)
    return apply(name, x, where, same_type(x, updates, where.type.shape), axis=axis)


def _with_slices(name: str, x: Any, indices: Any, updates: Any, axis: int) -> Tensor:
    """x changed at a whole slice for each index."""
    x, where = strong(as_tensor(x)), as_indices(indices)
    place = normalize_axis(axis, x.ndim)
    shape = (*x.type.shape[:place], *where.type.shape, *x.type.shape[place + 1 :])
    return apply(name, x, where, same_type(x, updates, shape), axis=place)


@public
def scatter_add(x: Any, indices: Any, updates: Any, /, axis: int = 0) -> Tensor:
    """x with each update added to the element at its index along an axis: the reverse of `gather`.

    updates have the shape of indices and x's element type (or are one number). Equal indices
    add up, in order.

    >>> tracer.scatter_add(tracer.zeros(3), [2, 0, 2], [1.0, 2.0, 5.0])
    tensor([2., 0., 6.])
    """
    return _scattered("ScatterAdd", x, indices, updates, axis)


@public
def index_add(x: Any, indices: Any, updates: Any, /, axis: int = 0) -> Tensor:
    """x with updates added to its slices at indices along an axis: the reverse of `take`.

    updates have shape x.shape[:axis] + indices.shape + x.shape[axis+1:] and x's element type
    (or are one number).

    >>> tracer.index_add(tracer.zeros(3), [0, 0, 2], [1.0, 2.0, 5.0])
    tensor([3., 0., 5.])
    """
    return _with_slices("IndexAdd", x, indices, updates, axis)


@public
def scatter(x: Any, indices: Any, src: Any, /, axis: int = 0) -> Tensor:
    """x with each element of src in the place of that at its index along an axis.

    src has the shape of indices and x's element type, or is one number. Of equal places the last
    one counts.

    >>> tracer.scatter(tracer.zeros(3), [2, 0], [1.0, 2.0])
    tensor([2., 0., 1.])
    """
    return _scattered("ScatterElements", x, indices, src, axis)


@public
def index_copy(x: Any, indices: Any, src: Any, /, axis: int = 0) -> Tensor:
    """x with src's slices in the place of its own at indices along an axis.

    src has shape x.shape[:axis] + indices.shape + x.shape[axis+1:] and x's element type, or is one
    number. Of equal indices the last one counts.

    >>> tracer.index_copy(tracer.zeros((3, 2)), [2], [[1.0, 2.0]])
    tensor([[0., 0.],
            [0., 0.],
            [1., 2.]])
    """
    return _with_slices("IndexCopy", x, indices, src, axis)


@public
def one_hot(
    indices: Any, /, num_classes: int | Dim | None = None, axis: int = -1, dtype: Any = "float32"
) -> Tensor:
    """1 at each index along a new axis of num_classes, 0 elsewhere and for indices out of range.

    indices are integers; the result is float32 unless `dtype` says otherwise. num_classes None: one
    more than the largest index, which must be known: raises `TraceError` in a trace.

    >>> tracer.one_hot([2, 0], 3)
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    where = as_indices(indices)
    if num_classes is None:
        known = MODES.interpreter.known_elements(where)
        if known is None:
            raise TraceError(
                "one_hot needs num_classes in a traced function: the largest index is not known "
                "there"
            )
        num_classes = int(known.max()) + 1 if known.size else 0
    return apply("OneHot", where, depth=num_classes, axis=axis, dtype=dtype_name(dtype))


@public
def nonzero(x: Any, /, size: Size | None = None) -> tuple[Tensor, ...]:
    """Where x is not 0: indices along each axis, in row-major order.

    A tuple of int64 Tensors of one axis. `size`: their number. Without it a trace asks for it, as
    `int()` does, and each number is a path of the program. With it another number is a `ShapeError`
    when the program runs.

    >>> rows, columns = tracer.nonzero([[0, 5], [7, 0]])
    >>> rows, columns
    (tensor([0, 1]), tensor([1, 0]))
    """
    return where_true(_truth(as_tensor(x)), size, "nonzero")


@public
def flatnonzero(x: Any, /, size: Size | None = None) -> Tensor:
    """Where x is not 0: positions among all elements in row-major order; `size` as in `nonzero`.

    An int64 Tensor of one axis.

    >>> tracer.flatnonzero([[0, 5], [7, 0]])
    tensor([1, 2])
    """
    return _positions(_truth(as_tensor(x)), size, "flatnonzero")


@public
def masked_select(x: Any, mask: Any, /, size: Size | None = None) -> Tensor:
    """The elements of x where a mask holds, in row-major order; the two are broadcast together.

    A Tensor of one axis. `size`: their number, see `nonzero`. Raises `DTypeError` for a mask that is
    not bool.

    >>> tracer.masked_select([1, 2, 3], [True, False, True])
    tensor([1, 3])
    """
    x, where = as_tensor(x), as_tensor(mask)
    if where.type.dtype != "bool":
        raise DTypeError(f"a mask is bool, got {short(where.type)}; compare it with something")
    shape = broadcast_shapes(x.type.shape, where.type.shape)
    x, where = BUILDER.expand(x, shape), BUILDER.expand(where, shape)
    flat = apply("Reshape", x, shape=(x.type.size,))
    return apply("Gather", flat, _positions(where, size, "masked_select"), axis=0)


def _truth(x: Tensor) -> Tensor:
    return x if x.type.dtype == "bool" else cast(strong(x), "bool")


def _positions(mask: Tensor, size: Size | None, what: str) -> Tensor:
    if size is None:
        size = count_of(mask, what)
    return apply("FlatNonzero", mask, size=size)


def count_of(mask: Tensor, what: str) -> int:
    """How many elements of a mask are True: in a trace, what a path of the program depends on.

    Raises `TraceError` where a trace answers no questions.
    """
    if MODES.interpreter.guards(mask):
        count = cast(mask, "int64")
        return int(apply("ReduceSum", count, axes=tuple(range(mask.ndim)), keepdims=False))
    known = MODES.interpreter.known_elements(mask)
    if known is None:
        raise TraceError(
            f"{what} has a result whose size depends on elements of {short(mask.type)}, which are "
            "not known while a function is traced; use tracer.where(mask, x, other), or multiply "
            "by the mask"
        )
    return int(np.count_nonzero(known))


def where_true(mask: Tensor, size: Size | None, what: str = "x[mask]") -> tuple[Tensor, ...]:
    """The indices along each axis of a mask's True elements, in row-major order."""
    if not mask.ndim:
        raise ShapeError(f"{what} needs an axis to find indices along, got {short(mask.type)}")
    elements = MODES.interpreter.known_elements(mask)
    if elements is not None:
        found = np.nonzero(elements)
        if size is not None and len(found[0]) != size:
            _positions(mask, size, what)  # says what is wrong
        known = tuple(fresh(np.asarray(k, np.int64)) for k in found)
        for where in known:
            where.volatile = mask.volatile
        return known
    rest = _positions(mask, size, what)
    indices: list[Tensor] = []
    for length in reversed(mask.type.shape[1:]):
        divisor = as_tensor(length)
        indices.append(apply("Remainder", rest, divisor))
        rest = apply("FloorDivide", rest, divisor)
    return (rest, *reversed(indices))


def linear_index(indices: list[Tensor], sizes: list[Any]) -> Tensor:
    """One index into several axes made one.

    What is out of range along any axis is out of range in the result too.
    """
    shape = broadcast_shapes(*(i.type.shape for i in indices))
    result, valid = as_tensor(0), fresh(np.asarray(True))
    for k, (index, size) in enumerate(zip(indices, sizes, strict=True)):
        index = cast(index, "int64")
        zero, count = as_tensor(0), as_tensor(size)
        inside = apply(
            "And", apply("LessOrEqual", apply("Neg", count), index), apply("Less", index, count)
        )
        index = apply("Where", apply("Less", index, zero), apply("Add", index, count), index)
        result = apply("Add", apply("Mul", result, count), index) if k else index
        valid = apply("And", valid, inside) if k else inside
    flat = apply("Where", valid, result, as_tensor(dims.product(tuple(sizes))))
    return apply("Expand", flat, shape=shape) if flat.type.shape != shape else flat


__all__ = [
    "flatnonzero",
    "gather",
    "index_add",
    "index_copy",
    "masked_select",
    "nonzero",
    "one_hot",
    "scatter",
    "scatter_add",
    "take",
    "take_along_axis",
]
