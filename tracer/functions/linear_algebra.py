"""Products of matrices and vectors, under the array API's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ops import dims
from ops.errors import ArgumentError, ShapeError
from ops.types import normalize_axis, short
from tracer.dispatch.apply import apply
from tracer.functions.elementwise import strong
from tracer.functions.movement import expand_dims, ints, permute_dims, reshape
from tracer.functions.promotion import prepare
from tracer.functions.public import public
from tracer.functions.reductions import sum as sum_over
from tracer.tensors.tensor import Tensor


def _operands(x1: Any, x2: Any, name: str, least: int) -> tuple[Tensor, Tensor]:
    a, b = (strong(x) for x in prepare(x1, x2))
    for operand in (a, b):
        if operand.ndim < least:
            raise ShapeError(
                f"{name} needs operands of at least {least} axis, got {short(a.type)} and "
                f"{short(b.type)}; use * for scaling"
            )
    return a, b


@public
def matmul(x1: Any, x2: Any, /) -> Tensor:
    """Matrix product over the last two axes, leading axes broadcast.

    A 1-d operand is a row on the left, a column on the right.

    Half types accumulate in float32. Raises `ShapeError` where sizes do not fit, `DTypeError`
    for bools.

    >>> tracer.matmul([[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0])
    tensor([3., 7.])
    """
    a, b = _operands(x1, x2, "matmul", 1)
    if a.type.shape[-1] != b.type.shape[0 if b.ndim == 1 else -2]:
        raise ShapeError(
            f"matmul of {short(a.type)} and {short(b.type)}: the last axis of the first "
            f"({a.type.shape[-1]}) must equal the "
            f"{'only' if b.ndim == 1 else 'last but one'} axis of the second "
            f"({b.type.shape[0 if b.ndim == 1 else -2]})"
        )
    row, column = a.ndim == 1, b.ndim == 1
    if row:
        a = expand_dims(a, 0)
    if column:
        b = expand_dims(b, 1)
    result = apply("MatMul", a, b)
    if row or column:
        axes = tuple(axis for axis, gone in ((-2, row), (-1, column)) if gone)
        result = apply("Squeeze", result, axes=axes)
    return result


@public
def vecdot(x1: Any, x2: Any, /, axis: int = -1) -> Tensor:
    """Sum of products along an axis, the others broadcast. Floats accumulate in float64.

    In the promoted type. Raises `ShapeError` where the sizes of the axis differ.

    >>> tracer.vecdot([[1, 2], [3, 4]], [10, 1])
    tensor([12, 34])
    """
    a, b = _operands(x1, x2, "vecdot", 1)
    first, second = (x.type.shape[normalize_axis(axis, x.ndim)] for x in (a, b))
    if first != second:
        raise ShapeError(
            f"vecdot of {short(a.type)} and {short(b.type)}: axis {axis} must have one size, got "
            f"{first} and {second}"
        )
    product = apply("Mul", a, b)
    return sum_over(product, axis if axis < 0 else axis - a.ndim, dtype=product.type.dtype)


@public
def dot(x1: Any, x2: Any, /) -> Tensor:
    """The product of two arrays as numpy.dot has it.

    A scaling for 0-d operands, else the sum over the last axis of the first and the last but
    one of the second. In the promoted type. Raises `ShapeError` where these sizes differ.

    >>> tracer.dot([1, 2, 3], [4, 5, 6])
    tensor(32)
    """
    a, b = (strong(x) for x in prepare(x1, x2))
    if a.ndim == 0 or b.ndim == 0:
        return apply("Mul", a, b)
    return tensordot(a, b, ([a.ndim - 1], [max(b.ndim - 2, 0)]))


@public
def outer(x1: Any, x2: Any, /) -> Tensor:
    """Every product of an element of x1 with one of x2; operands of several axes are flattened.

    In the promoted type, of as many rows as x1 has elements and as many columns as x2.

    >>> tracer.outer([1, 2], [10, 20])
    tensor([[10, 20],
            [20, 40]])
    """
    a, b = (strong(x) for x in prepare(x1, x2))
    return apply("Mul", reshape(a, (a.type.size, 1)), reshape(b, (1, b.type.size)))


@public
def tensordot(x1: Any, x2: Any, /, axes: Any = 2) -> Tensor:
    """Sum of products over several axes.

    The last `axes` of x1 with the first of x2, or the two lists of axes that are given.

    In the promoted type. Raises `ShapeError` where sizes differ, `ArgumentError` for axes that are
    neither a number nor two lists.

    >>> tracer.tensordot([[1, 2], [3, 4]], [[1, 0], [0, 1]], axes=2)
    tensor(5)
    """
    a, b = (strong(x) for x in prepare(x1, x2))
    if isinstance(axes, Sequence):
        if len(axes) != 2:
            raise ArgumentError(f"axes must be a number or a pair of lists of axes, got {axes!r}")
        left = [normalize_axis(k, a.ndim) for k in ints(axes[0], "axes")]
        right = [normalize_axis(k, b.ndim) for k in ints(axes[1], "axes")]
    else:
        (count,) = ints(axes, "axes")
        if not 0 <= count <= min(a.ndim, b.ndim):
            raise ShapeError(
                f"tensordot over {count} axes needs as many in {short(a.type)} and {short(b.type)}"
            )
        left, right = list(range(a.ndim - count, a.ndim)), list(range(count))
    sizes = [a.type.shape[k] for k in left], [b.type.shape[k] for k in right]
    if sizes[0] != sizes[1] or len(set(left)) < len(left) or len(set(right)) < len(right):
        raise ShapeError(
            f"tensordot of {short(a.type)} over axes {tuple(left)} and {short(b.type)} over axes "
            f"{tuple(right)}: sizes "
            "must be equal in pairs, and each axis named once"
        )
    rows, columns = (
        [k for k in range(x.ndim) if k not in summed] for x, summed in ((a, left), (b, right))
    )
    height, width = (tuple(x.type.shape[k] for k in free) for x, free in ((a, rows), (b, columns)))
    inner = dims.product(tuple(sizes[0]))
    matrix = reshape(permute_dims(a, [*rows, *left]), (dims.product(height), inner))
    other = reshape(permute_dims(b, [*right, *columns]), (inner, dims.product(width)))
    return reshape(apply("MatMul", matrix, other), height + width)


__all__ = ["dot", "matmul", "outer", "tensordot", "vecdot"]
