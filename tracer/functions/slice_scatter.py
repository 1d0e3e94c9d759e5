"""Parts replaced in a new Tensor: the functional forms of assignment, under PyTorch's names.

What is replaced is a slice, one index of an axis, or a diagonal. Elements at computed indices are
in `indexing.py`, what stands in brackets in `subscripts.py`.
"""

from __future__ import annotations

from typing import Any

from ops.operator import lookup
from tracer.dispatch.apply import apply
from tracer.functions.creation import as_tensor
from tracer.functions.elementwise import strong
from tracer.functions.gather_scatter import same_type
from tracer.functions.getitem import bounds_of
from tracer.functions.public import public
from tracer.tensors.tensor import Tensor


def _part(x: Tensor, view: str, attrs: dict[str, Any]) -> Any:
    """The shape of what a view shows of x."""
    op = lookup(view)
    return op.infer([x.type], op.normalize(attrs))[0].shape


@public
def slice_scatter(
    x: Any, src: Any, /, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    """x with src in the place of x[..., start:end:step, ...] along an axis.

    src has that part's shape and x's element type, or is one number.

    >>> tracer.slice_scatter(tracer.zeros(4), [1.0, 2.0], start=1, end=3)
    tensor([0., 1., 2., 0.])
    """
    x = strong(as_tensor(x))
    first, last, stride = bounds_of(slice(start, end, step))
    attrs = {"starts": (first,), "ends": (last,), "axes": (axis,), "steps": (stride,)}
    value = same_type(x, src, _part(x, "Slice", attrs))
    return apply("SliceScatter", x, value, **attrs)


@public
def select_scatter(x: Any, src: Any, /, axis: int, index: int) -> Tensor:
    """x with src in the place of one index of an axis: its shape is x's without that axis.

    Its element type is x's, or it is one number.

    >>> tracer.select_scatter(tracer.zeros((2, 2)), [1.0, 2.0], 0, 1)
    tensor([[0., 0.],
            [1., 2.]])
    """
    x = strong(as_tensor(x))
    attrs = {"axis": axis, "index": index}
    value = same_type(x, src, _part(x, "Select", attrs))
    return apply("SelectScatter", x, value, **attrs)


@public
def diagonal_scatter(
    x: Any, src: Any, /, offset: int = 0, axis1: int = -2, axis2: int = -1
) -> Tensor:
    """x with src in the place of the elements where position along axis2 is that along axis1 plus offset.

    src has the shape of that diagonal, a last axis running along it, and x's element type, or is one
    number.

    >>> tracer.diagonal_scatter(tracer.zeros((2, 2)), [1.0, 2.0])
    tensor([[1., 0.],
            [0., 2.]])
    """
    x = strong(as_tensor(x))
    attrs = {"offset": offset, "axis1": axis1, "axis2": axis2}
    value = same_type(x, src, _part(x, "Diagonal", attrs))
    return apply("DiagonalScatter", x, value, **attrs)


__all__ = ["diagonal_scatter", "select_scatter", "slice_scatter"]
