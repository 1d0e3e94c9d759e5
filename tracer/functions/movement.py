"""Other arrangements of the same elements, under the array API's names.

Eager results share memory with their operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ops import dims
from ops.errors import ArgumentError, ShapeError
from ops.types import broadcast_shapes, normalize_axes, normalize_axis, short
from tracer.dispatch.apply import apply
from tracer.functions.creation import Shape, Size, as_shape, as_sizes, as_tensor
from tracer.functions.public import public
from tracer.tensors.tensor import Tensor

Axes = int | Sequence[int]


@public
def reshape(x: Any, /, shape: Shape) -> Tensor:
    """x with another shape of as many elements, in row-major order; one size may be -1.

    The element type stays; memory is shared where it can be. Raises `ShapeError` where the number of
    elements is another.

    >>> tracer.reshape([1, 2, 3, 4], (2, -1))
    tensor([[1, 2],
            [3, 4]])
    """
    x = as_tensor(x)
    return apply("Reshape", x, shape=resolved(x.type.size, as_sizes(shape)))


def resolved(count: Size, sizes: tuple[Size, ...]) -> tuple[Size, ...]:
    """Sizes of a reshape of so many elements, with a -1 replaced by what is left."""
    unknown = [k for k, d in enumerate(sizes) if isinstance(d, int) and d == -1]
    if len(unknown) > 1:
        raise ShapeError(f"only one size can be -1, got {sizes}")
    if not unknown:
        return sizes
    known = dims.product(tuple(d for k, d in enumerate(sizes) if k != unknown[0]))
    if isinstance(known, int) and known == 0:
        raise ShapeError(f"the size -1 in {sizes} is not determined: another size is 0")
    size = count // known
    return tuple(size if k == unknown[0] else d for k, d in enumerate(sizes))


def ints(values: Any, what: str) -> tuple[int, ...]:
    """An int or a sequence of ints as a tuple. Raises `ArgumentError` for anything else."""
    try:
        if isinstance(values, np.ndarray):
            values = values.tolist()
        given = (
            tuple(values)
            if isinstance(values, Sequence) and not isinstance(values, str)
            else (values,)
        )
        return tuple(v.__index__() for v in given)
    except (AttributeError, TypeError):
        raise ArgumentError(
            f"{what} must be an integer or a sequence of integers, got {values!r:.80}"
        ) from None


@public
def permute_dims(x: Any, /, axes: Sequence[int]) -> Tensor:
    """Axes in another order: axis k of the result is axis axes[k] of x.

    A view of the same element type. Raises `ShapeError` unless each axis is named once.

    >>> tracer.permute_dims(tracer.zeros((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    x = as_tensor(x)
    perm = tuple(normalize_axis(a, x.ndim) for a in ints(axes, "axes"))
    return apply("Transpose", x, perm=perm)


@public
def matrix_transpose(x: Any, /) -> Tensor:
    """The last two axes swapped.

    A view of the same element type. Raises `ShapeError` for fewer than two axes.

    >>> tracer.matrix_transpose([[1, 2], [3, 4]])
    tensor([[1, 3],
            [2, 4]])
    """
    x = as_tensor(x)
    if x.ndim < 2:
        raise ShapeError(f"matrix_transpose needs at least 2 axes, got {short(x.type)}")
    return permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


@public
def moveaxis(x: Any, source: Axes, destination: Axes, /) -> Tensor:
    """Axes moved to other positions, the others left in order.

    A view of the same element type. Raises `ShapeError` for an axis that x does not have.

    >>> tracer.moveaxis(tracer.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    x = as_tensor(x)
    sources = [normalize_axis(a, x.ndim, "source") for a in ints(source, "source")]
    targets = [normalize_axis(a, x.ndim, "destination") for a in ints(destination, "destination")]
    if len(sources) != len(targets):
        raise ShapeError(f"{len(sources)} axes to move, but {len(targets)} destinations")
    if len(set(sources)) < len(sources) or len(set(targets)) < len(targets):
        raise ShapeError(f"an axis is named twice in {source} or {destination}")
    order = [k for k in range(x.ndim) if k not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return permute_dims(x, order)


@public
def swapaxes(x: Any, axis1: int, axis2: int, /) -> Tensor:
    """Two axes swapped.

    A view of the same element type. Raises `ShapeError` for an axis that x does not have.

    >>> tracer.swapaxes([[1, 2], [3, 4]], 0, 1)
    tensor([[1, 3],
            [2, 4]])
    """
    x = as_tensor(x)
    first, second = normalize_axis(axis1, x.ndim, "axis1"), normalize_axis(axis2, x.ndim, "axis2")
    order = list(range(x.ndim))
    order[first], order[second] = second, first
    return permute_dims(x, order)


@public
def expand_dims(x: Any, /, axis: Axes = 0) -> Tensor:
    """x with new axes of size 1, at these positions of the result.

    A view of the same element type.

    >>> tracer.expand_dims([1, 2], axis=0)
    tensor([[1, 2]])
    """
    return apply("Unsqueeze", as_tensor(x), axes=ints(axis, "axis"))


@public
def squeeze(x: Any, /, axis: Axes | None = None) -> Tensor:
    """x without some axes of size 1, without all of them for None.

    Raises `ShapeError` for an axis of another size.

    A view of the same element type.

    >>> tracer.squeeze([[1, 2]], 0)
    tensor([1, 2])
    """
    x = as_tensor(x)
    if axis is None:
        axes = tuple(k for k, d in enumerate(x.type.shape) if isinstance(d, int) and d == 1)
    else:
        axes = normalize_axes(ints(axis, "axis"), x.ndim)
    return apply("Squeeze", x, axes=axes)


@public
def broadcast_to(x: Any, /, shape: Shape) -> Tensor:
    """x broadcast to a shape: axes of size 1 grow, axes are added in front.

    A view: it shares x's memory and element type. Raises `ShapeError` where the shape does not fit.

    >>> tracer.broadcast_to([1, 2], (2, 2))
    tensor([[1, 2],
            [1, 2]])
    """
    return apply("Expand", as_tensor(x), shape=as_shape(shape))


@public
def broadcast_arrays(*arrays: Any) -> tuple[Tensor, ...]:
    """The operands broadcast to their common shape, each with its own element type.

    Raises `ShapeError` where shapes do not fit.

    >>> a, b = tracer.broadcast_arrays([1, 2], [[3.0], [4.0]])
    >>> a
    tensor([[1, 2],
            [1, 2]])
    >>> b
    tensor([[3., 3.],
            [4., 4.]])
    """
    tensors = [as_tensor(a) for a in arrays]
    shape = broadcast_shapes(*(t.type.shape for t in tensors))
    return tuple(broadcast_to(t, shape) for t in tensors)


@public
def flatten(x: Any, /, start_axis: int = 0, end_axis: int = -1) -> Tensor:
    """The axes from start_axis to end_axis made one; all of them unless told otherwise.

    A 0-d Tensor gets one axis. The element type stays, and so does the memory where it can. Raises
    `ShapeError` where start_axis comes after end_axis.

    >>> tracer.flatten([[1, 2], [3, 4]])
    tensor([1, 2, 3, 4])
    """
    x = as_tensor(x)
    shape = x.type.shape
    if not shape:
        return reshape(x, (1,))
    start, end = (
        normalize_axis(start_axis, x.ndim, "start_axis"),
        normalize_axis(end_axis, x.ndim, "end_axis"),
    )
    if start > end:
        raise ShapeError(f"flatten: start_axis {start_axis} is behind end_axis {end_axis}")
    return reshape(x, (*shape[:start], dims.product(shape[start : end + 1]), *shape[end + 1 :]))


@public
def flip(x: Any, /, axis: Axes | None = None) -> Tensor:
    """Elements in reverse order along axes, along all for None.

    A view of the same element type.

    >>> tracer.flip([[1, 2], [3, 4]], axis=1)
    tensor([[2, 1],
            [4, 3]])
    """
    x = as_tensor(x)
    axes = normalize_axes(None if axis is None else ints(axis, "axis"), x.ndim)
    steps = (-1,) * len(axes)
    return apply("Slice", x, starts=steps, ends=(-(2**63),) * len(axes), axes=axes, steps=steps)


@public
def roll(x: Any, /, shift: Axes, axis: Axes | None = None) -> Tensor:
    """Elements moved towards the end along axes; what falls off enters in front.

    None: in row-major order.

    Of x's shape and type.

    >>> tracer.roll([1, 2, 3], 1)
    tensor([3, 1, 2])
    """
    x = as_tensor(x)
    shifts = ints(shift, "shift")
    if axis is None:
        flat = apply(
            "Roll",
            reshape(x, (-1,) if x.ndim != 1 else x.type.shape),
            shifts=(sum(shifts),),
            axes=(0,),
        )
        return reshape(flat, x.type.shape)
    axes = ints(axis, "axis")
    if len(shifts) == 1:
        shifts *= len(axes)
    return apply("Roll", x, shifts=shifts, axes=axes)


@public
def tril(x: Any, /, k: int = 0) -> Tensor:
    """The lower triangle of matrices in the last two axes, up to the k-th diagonal; 0 elsewhere.

    The type stays. Raises `ShapeError` for fewer than two axes.

    >>> tracer.tril([[1, 2], [3, 4]])
    tensor([[1, 0],
            [3, 4]])
    """
    return apply("Trilu", as_tensor(x), upper=False, k=k)


@public
def triu(x: Any, /, k: int = 0) -> Tensor:
    """The upper triangle of matrices in the last two axes, from the k-th diagonal; 0 elsewhere.

    The type stays. Raises `ShapeError` for fewer than two axes.

    >>> tracer.triu([[1, 2], [3, 4]])
    tensor([[1, 2],
            [0, 4]])
    """
    return apply("Trilu", as_tensor(x), upper=True, k=k)


@public
def diagonal(x: Any, /, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """The elements where position along axis2 is that along axis1 plus offset, as a last axis.

    A view of the same element type; the two axes are replaced by one at the end.

    >>> tracer.diagonal([[1, 2, 3], [4, 5, 6]], offset=1)
    tensor([2, 6])
    """
    return apply("Diagonal", as_tensor(x), offset=offset, axis1=axis1, axis2=axis2)


__all__ = [
    "broadcast_arrays",
    "broadcast_to",
    "diagonal",
    "expand_dims",
    "flatten",
    "flip",
    "matrix_transpose",
    "moveaxis",
    "permute_dims",
    "reshape",
    "roll",
    "squeeze",
    "swapaxes",
    "tril",
    "triu",
]
