"""Other arrangements of the same elements, under the array API's names."""

from __future__ import annotations

from typing import Any

from ops import dims
from ops.errors import ShapeError, TracerError
from tracer.dispatch import apply, located
from tracer.functions.creation import as_shape, as_tensor
from tracer.tensor import Tensor


def reshape(x: Any, shape: Any) -> Tensor:
    """x with another shape of as many elements; one size may be -1."""
    x = as_tensor(x)
    sizes = as_shape(shape)
    unknown = [k for k, d in enumerate(sizes) if isinstance(d, int) and d == -1]
    try:
        if len(unknown) > 1:
            raise ShapeError(f"only one size can be -1, got {sizes}")
        if unknown:
            known = dims.product(tuple(d for k, d in enumerate(sizes) if k != unknown[0]))
            if known == 0:
                raise ShapeError(f"the size -1 in {sizes} is not determined: another size is 0")
            size = x.type.size // known
            sizes = tuple(size if k == unknown[0] else d for k, d in enumerate(sizes))
        result: Tensor = apply("Reshape", x, shape=sizes)
    except TracerError as error:
        raise located(error) from None
    return result


def permute_dims(x: Any, axes: Any) -> Tensor:
    """Axes in another order."""
    x = as_tensor(x)
    result: Tensor = apply("Transpose", x, perm=tuple(int(a) % max(x.ndim, 1) for a in axes))
    return result


def broadcast_to(x: Any, shape: Any) -> Tensor:
    """x broadcast to a shape."""
    result: Tensor = apply("Expand", as_tensor(x), shape=as_shape(shape))
    return result


def matrix_transpose(x: Any) -> Tensor:
    """The last two axes swapped."""
    x = as_tensor(x)
    if x.ndim < 2:
        raise located(ShapeError(f"matrix_transpose needs at least 2 axes, got {x.ndim}"))
    return permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
