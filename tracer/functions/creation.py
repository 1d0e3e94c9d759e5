"""Tensors from Python numbers, lists and NumPy arrays; Tensors of a shape.

The change of element type.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ops.dims import Dim
from ops.errors import ArgumentError, ShapeError
from ops.promotion import result_type
from ops.types import DEFAULT_FLOAT, dtype_name, is_floating, normalize_axis, short
from tracer.dispatch.apply import apply
from tracer.functions.public import public
from tracer.tensors.from_data import array_of
from tracer.tensors.modes import INFERENCE, MODES
from tracer.tensors.tensor import Tensor

_ATOMS = frozenset((bool, int, float))
Size = int | Dim
Shape = Size | Sequence[Size]


# ---- from data -----------------------------------------------------------------------------------


def has_tensors(data: Any) -> bool:
    """Whether nested sequences hold a Tensor or a symbolic size, without recursion."""
    pending = [data]
    while pending:
        item = pending.pop()
        if isinstance(item, Tensor | Dim):
            return True
        if isinstance(item, list | tuple) and not _ATOMS.issuperset(map(type, item)):
            pending.extend(item)
    return False


def fresh(array: np.ndarray[Any, Any]) -> Tensor:
    """A Tensor of an array that nothing else knows; a constant in a trace."""
    result = MODES.interpreter.constant(array, dtype_name(array.dtype))
    if MODES.grad_enabled is INFERENCE:
        result._requires_grad = INFERENCE
    return result


@public
def tensor(data: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A Tensor with a copy of the data: a number, nested sequences, a NumPy array or a Tensor.

    The shape is the data's. Python floats become float32, ints int64; NumPy arrays keep their element
    type. In a traced function the result is a constant (of a traced Tensor: its value). Raises
    `DTypeError` for elements that are no numbers.

    >>> tracer.tensor([[1.0, 2.0], [3.0, 4.0]])
    tensor([[1., 2.],
            [3., 4.]])
    >>> tracer.tensor(3, dtype="float16", requires_grad=True)
    tensor(3., dtype=float16, requires_grad=True)
    """
    result = (
        copied(asarray(data, dtype).data) if has_tensors(data) else fresh(array_of(data, dtype))
    )
    if requires_grad:
        result.requires_grad = True
    return result


@public
def asarray(data: Any, dtype: Any = None, *, copy: bool | None = None) -> Tensor:
    """A Tensor of data, sharing an array's memory where it can; a Tensor is returned as it is.

    The shape is the data's; the element type too, unless `dtype` is another. `copy`: True for memory
    of its own, False to raise `ArgumentError` where a copy would be needed.

    >>> a = np.zeros(2, np.float32)
    >>> t = tracer.asarray(a)
    >>> a[0] = 5
    >>> t
    tensor([5., 0.])
    """
    result = as_tensor(data)
    if dtype is not None:
        result = cast(result, dtype_name(dtype))
    shares = result is data or (
        isinstance(data, np.ndarray) and dtype_name(data.dtype) == result.type.dtype
    )
    if copy is False and not shares:
        raise ArgumentError("a copy is needed for this data and element type; leave copy=False out")
    return copied(result) if copy and shares else result


def as_tensor(x: Any) -> Tensor:
    """A Tensor of an operand: arrays share memory (captured in a trace), numbers are constants.

    A list that holds Tensors is stacked.
    """
    if isinstance(x, Tensor):
        return x
    if isinstance(x, np.ndarray):
        return MODES.interpreter.from_array(x)
    if isinstance(x, list | tuple) and has_tensors(x):
        items = [as_tensor(item) for item in x]
        dtype, weak = result_type(*(t.type for t in items))
        return stacked([t if weak and t.type.dtype == dtype else cast(t, dtype) for t in items], 0)
    if isinstance(x, bool | int | float | np.generic | list | tuple):
        return fresh(array_of(x))
    if isinstance(x, Dim):
        return apply("Dimension", size=x)
    if hasattr(x, "__array__"):
        return as_tensor(np.asarray(x))
    raise ArgumentError(
        f"expected a Tensor, an array or a number, got {type(x).__name__}: {x!r:.60}"
    )


def stacked(items: Sequence[Tensor], axis: int) -> Tensor:
    """Tensors of one type side by side along a new axis. Raises `ShapeError` where shapes differ."""
    shape = items[0].type.shape
    if any(x.type.shape != shape for x in items):
        listed = ", ".join(short(x.type) for x in items[:6])
        raise ShapeError(
            f"stack needs operands of one shape, got {listed}; concat joins along an axis that is there"
        )
    place = normalize_axis(axis, len(shape) + 1)
    return apply("Concat", *(apply("Unsqueeze", x, axes=(place,)) for x in items), axis=place)


def copied(x: Tensor) -> Tensor:
    """x's values in memory of their own, with history.

    In a trace, where values never change, a value of its own.
    """
    result: Tensor = x if x.type.weak else apply("Cast", x, to=x.type.dtype)
    contiguous = result._array is None or result._array.flags.c_contiguous
    return result if contiguous else owned(result)


def owned(x: Tensor) -> Tensor:
    """A new Tensor given memory that nothing else shares."""
    x._view = None
    MODES.interpreter.own_memory(x)
    return x


# ---- element types -------------------------------------------------------------------------------


def cast(x: Tensor, dtype: str) -> Tensor:
    """x with another element type; x itself if it has it."""
    if x.type.dtype == dtype and not x.type.weak:
        return x
    return apply("Cast", x, to=dtype)


@public
def astype(x: Any, dtype: Any, /, *, copy: bool = True) -> Tensor:
    """x converted to another element type; the shape stays.

    Floats to integers truncate toward zero and saturate, NaN gives 0; anything but 0 is True as
    bool. Gradients go through between floats, and are 0 through integers. With `copy=False`, x
    itself if it has the type.

    >>> tracer.astype([1.9, -1.9, 300.0], "int8")
    tensor([  1,  -1, 127], dtype=int8)
    """
    x = as_tensor(x)
    result = cast(x, dtype_name(dtype))
    return copied(x) if copy and result is x else result


# ---- of a shape ----------------------------------------------------------------------------------


def as_shape(shape: Any) -> tuple[Size, ...]:
    """A shape given as an int or a sequence.

    Raises `ArgumentError` for anything else, `ShapeError` for negative sizes.
    """
    sizes = as_sizes(shape)
    if any(isinstance(d, int) and d < 0 for d in sizes):
        raise ShapeError(f"sizes must be at least 0, got {sizes}")
    return sizes


def as_sizes(shape: Any) -> tuple[Size, ...]:
    """Sizes given as an int or a sequence, -1 allowed."""
    given = (
        (shape,)
        if isinstance(shape, Dim) or not isinstance(shape, Iterable) or _is_scalar(shape)
        else shape
    )
    try:
        return tuple(d if isinstance(d, Dim) else d.__index__() for d in given)
    except (AttributeError, TypeError):
        raise ArgumentError(
            f"expected an integer or a sequence of integers as shape, got {shape!r:.80}"
        ) from None


def _is_scalar(x: Any) -> bool:
    return isinstance(x, Tensor | np.ndarray) and x.ndim == 0


@public
def full(shape: Shape, fill_value: Any, dtype: Any = None) -> Tensor:
    """A Tensor of a shape, every element fill_value: a number or a 0-d Tensor, through which gradients go.

    Of fill_value's type unless `dtype` says otherwise. Raises `ShapeError` for a fill_value with axes.

    >>> tracer.full((2, 2), 7)
    tensor([[7, 7],
            [7, 7]])
    """
    if dtype is None:
        value = as_tensor(fill_value)
    elif isinstance(fill_value, Tensor | np.ndarray):
        value = cast(as_tensor(fill_value), dtype_name(dtype))
    else:
        value = fresh(array_of(fill_value, dtype))
    if value.ndim:
        raise ShapeError(f"fill_value must be 0-d, got shape {value.shape}; use broadcast_to")
    return owned(apply("Expand", value, shape=as_shape(shape)))


@public
def zeros(shape: Shape, dtype: Any = None) -> Tensor:
    """Zeros of a shape; float32 unless told otherwise.

    >>> tracer.zeros((2, 3))
    tensor([[0., 0., 0.],
            [0., 0., 0.]])
    """
    return full(shape, 0, dtype=DEFAULT_FLOAT if dtype is None else dtype)


@public
def ones(shape: Shape, dtype: Any = None) -> Tensor:
    """Ones of a shape; float32 unless told otherwise.

    >>> tracer.ones((2, 2), dtype="int8")
    tensor([[1, 1],
            [1, 1]], dtype=int8)
    """
    return full(shape, 1, dtype=DEFAULT_FLOAT if dtype is None else dtype)


@public
def empty(shape: Shape, dtype: Any = None) -> Tensor:
    """Zeros of a shape, float32 unless told otherwise, the same as `zeros`: no memory is handed out with what was in it before.

    >>> tracer.empty(2)
    tensor([0., 0.])
    """
    return zeros(shape, dtype=dtype)


@public
def zeros_like(x: Any, /, dtype: Any = None) -> Tensor:
    """Zeros of x's shape and element type.

    >>> tracer.zeros_like([1, 2])
    tensor([0, 0])
    """
    return full_like(x, 0, dtype=dtype)


@public
def ones_like(x: Any, /, dtype: Any = None) -> Tensor:
    """Ones of x's shape and element type.

    >>> tracer.ones_like([5, 6])
    tensor([1, 1])
    """
    return full_like(x, 1, dtype=dtype)


@public
def empty_like(x: Any, /, dtype: Any = None) -> Tensor:
    """Zeros of x's shape and element type, the same as `zeros_like`.

    >>> tracer.empty_like([1, 2])
    tensor([0, 0])
    """
    return full_like(x, 0, dtype=dtype)


@public
def full_like(x: Any, /, fill_value: Any, dtype: Any = None) -> Tensor:
    """A Tensor of x's shape and element type, every element fill_value.

    >>> tracer.full_like([1.0, 2.0], 7)
    tensor([7., 7.])
    """
    x = as_tensor(x)
    own = DEFAULT_FLOAT if x.type.weak and is_floating(x.type.dtype) else x.type.dtype
    return full(x.type.shape, fill_value, dtype=own if dtype is None else dtype)


__all__ = [
    "asarray",
    "astype",
    "empty",
    "empty_like",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "tensor",
    "zeros",
    "zeros_like",
]
