"""Tensors from Python numbers, lists and NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ops.errors import ArgumentError, DTypeError, TracerError
from ops.types import DEFAULT_FLOAT, dtype_name, numpy_dtype
from tracer.dispatch import apply, constant, located
from tracer.modes import MODES
from tracer.tensor import Tensor


def array_of(data: Any, dtype: Any = None) -> np.ndarray[Any, Any]:
    """A fresh array of data: Python floats give float32, ints int64; NumPy arrays keep their type."""
    if isinstance(data, Tensor):
        data = data.array
    try:
        array = np.array(data)
    except ValueError as error:
        raise ArgumentError(f"not an array: nested sequences of unequal lengths ({error})") from None
    if array.dtype.kind not in "biufV" or (array.dtype.kind == "V" and array.dtype.names):
        raise DTypeError(
            f"expected numbers, got {type(data).__name__} with NumPy dtype {array.dtype}; "
            "a Tensor holds bools, integers or floats"
        )
    if dtype is not None:
        from ops.reference import as_dtype

        name = dtype_name(dtype)
        return array if array.dtype == numpy_dtype(name) else np.array(as_dtype(array, name) if name != "bool" else array != 0)
    if not isinstance(data, np.ndarray | np.generic) and array.dtype == np.float64 and not _has_arrays(data):
        return array.astype(numpy_dtype(DEFAULT_FLOAT))
    return array.astype(numpy_dtype(dtype_name(array.dtype)), copy=False)


def _has_arrays(data: Any) -> bool:
    while isinstance(data, list | tuple) and data:
        data = data[0]
    return isinstance(data, np.ndarray | np.generic)


def tensor(data: Any, dtype: Any = None, requires_grad: bool = False) -> Tensor:
    """A Tensor with a copy of the data: a number, nested sequences, a NumPy array or a Tensor.

    Python floats become float32, ints int64; NumPy arrays keep their element type. In a traced function the result is a
    constant. Raises `DTypeError` for other elements.
    """
    try:
        array = array_of(data, dtype)
    except TracerError as error:
        raise located(error) from None
    result = constant(array, dtype_name(array.dtype))
    if requires_grad:
        result.requires_grad = True
    return result


def asarray(data: Any, dtype: Any = None) -> Tensor:
    """A Tensor that shares memory with a NumPy array where it can; a Tensor is returned as it is."""
    result = as_tensor(data)
    return result if dtype is None else cast(result, dtype_name(dtype))


def as_tensor(x: Any) -> Tensor:
    """A Tensor of an operand: Tensors pass, arrays share memory (captured in a trace), numbers become constants."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, np.ndarray):
        if MODES.recorder is not None:
            dtype_name(x.dtype)
            return MODES.recorder.value_of_array(x)
        return Tensor.of_array(x)
    if isinstance(x, bool | int | float | np.generic | list | tuple):
        return tensor(x)
    raise ArgumentError(f"expected a Tensor, an array or a number, got {type(x).__name__}: {x!r:.60}")


def cast(x: Tensor, dtype: str) -> Tensor:
    """x with another element type; x itself if it has it."""
    if x.type.dtype == dtype and not x.type.weak:
        return x
    result: Tensor = apply("Cast", x, to=dtype)
    return result


def astype(x: Any, dtype: Any) -> Tensor:
    """x converted to another element type.

    Floats to integers truncate toward zero and saturate; anything but 0 is True as bool.
    """
    return cast(as_tensor(x), dtype_name(dtype))


def full(shape: int | Sequence[int], fill_value: Any, dtype: Any = None) -> Tensor:
    """A Tensor of a shape, every element fill_value."""
    if isinstance(fill_value, Tensor):
        value = fill_value if dtype is None else astype(fill_value, dtype)
    else:
        value = tensor(fill_value, dtype)
    result: Tensor = apply("Expand", value, shape=as_shape(shape))
    return materialized(result)


def materialized(x: Tensor) -> Tensor:
    """x with memory of its own, when eager."""
    if MODES.recorder is None and x._array is not None and not x._array.flags.owndata:
        return Tensor.of_array(np.array(x._array), x.type.strong())
    return x


def as_shape(shape: Any) -> tuple[Any, ...]:
    """A shape given as an int or a sequence."""
    from ops.dims import Dim

    if isinstance(shape, int | np.integer | Dim):
        return (shape,)
    return tuple(shape)


def zeros(shape: int | Sequence[int], dtype: Any = None) -> Tensor:
    """Zeros; float32 unless told otherwise."""
    return full(shape, 0, dtype or DEFAULT_FLOAT)


def ones(shape: int | Sequence[int], dtype: Any = None) -> Tensor:
    """Ones; float32 unless told otherwise."""
    return full(shape, 1, dtype or DEFAULT_FLOAT)


def zeros_like(x: Any, dtype: Any = None) -> Tensor:
    """Zeros of x's shape and element type."""
    x = as_tensor(x)
    return full(x.type.shape, 0, dtype or x.type.dtype)


def ones_like(x: Any, dtype: Any = None) -> Tensor:
    """Ones of x's shape and element type."""
    x = as_tensor(x)
    return full(x.type.shape, 1, dtype or x.type.dtype)


def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    """A Tensor of x's shape and element type, every element fill_value."""
    x = as_tensor(x)
    return full(x.type.shape, fill_value, dtype or x.type.dtype)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Tensor:
    """start, start + step ... below stop; with one argument 0 to it. Integers unless a float is given."""
    if stop is None:
        start, stop = 0, start
    floating = any(isinstance(v, float) for v in (start, stop, step))
    name = dtype_name(dtype) if dtype is not None else (DEFAULT_FLOAT if floating else "int64")
    if step == 0:
        raise located(ArgumentError("arange needs a step other than 0"))
    count = max(0, int(-(-(stop - start) // step)))
    line = apply("Iota", shape=(count,), axis=0, dtype="int64" if not floating else "float64")
    if step != 1:
        line = apply("Mul", line, constant(step, line.type.dtype))
    if start != 0:
        line = apply("Add", line, constant(start, line.type.dtype))
    return cast(line, name)


def eye(n: int, m: int | None = None, k: int = 0, dtype: Any = None) -> Tensor:
    """n rows of m columns (n by default), ones on the k-th diagonal."""
    m = n if m is None else m
    row = apply("Iota", shape=(n, m), axis=0, dtype="int64")
    column = apply("Iota", shape=(n, m), axis=1, dtype="int64")
    hit = apply("Equal", apply("Add", row, constant(k, "int64")), column)
    return cast(hit, dtype_name(dtype or DEFAULT_FLOAT))


def linspace(start: float, stop: float, num: int, dtype: Any = None, endpoint: bool = True) -> Tensor:
    """num evenly spaced numbers from start to stop."""
    steps = num - 1 if endpoint else num
    position = apply("Iota", shape=(num,), axis=0, dtype="float64")
    step = (stop - start) / steps if steps else 0.0
    line = apply("Add", apply("Mul", position, constant(step, "float64")), constant(start, "float64"))
    return cast(line, dtype_name(dtype or DEFAULT_FLOAT))


__all__ = [
    "arange",
    "asarray",
    "astype",
    "eye",
    "full",
    "full_like",
    "linspace",
    "ones",
    "ones_like",
    "tensor",
    "zeros",
    "zeros_like",
]

