"""Arrays from Python numbers, nested sequences and NumPy arrays, as Tensors hold them.

Knows NumPy. Must not know Tensors: whoever has one asks it for its elements first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.errors import ArgumentError, DTypeError
from ops.reference import as_dtype
from ops.types import DEFAULT_FLOAT, dtype_name, is_floating, numpy_dtype


def array_of(data: Any, dtype: Any = None) -> np.ndarray[Any, Any]:
    """A fresh array of data: Python floats give float32, ints int64, arrays keep their type."""
    try:
        array = np.array(data)
    except ValueError as error:
        raise ArgumentError(
            f"not an array: nested sequences of unequal lengths ({error})"
        ) from None
    if array.dtype == object and (large := _large_integer(array)) is not None:
        if dtype is None or not is_floating(dtype_name(dtype)):
            raise DTypeError(
                f"a Python integer of {large.bit_length()} bits fits no integer type; pass it as a float, or "
                "dtype=tracer.float32"
            )
        array = array.astype(np.float64)
    if array.dtype.kind not in "biufV" or array.dtype.names:
        raise DTypeError(
            f"expected numbers, got {type(data).__name__} with NumPy dtype {array.dtype}; "
            "a Tensor holds bools, integers or floats"
        )
    name = dtype_name(array.dtype)
    array = array.astype(numpy_dtype(name), copy=False)  # native byte order
    if dtype is not None:
        wanted = dtype_name(dtype)
        if wanted == name:
            return array
        return np.asarray(array != 0) if wanted == "bool" else np.array(as_dtype(array, wanted))
    python_numbers = not isinstance(data, np.ndarray | np.generic) and not _has_arrays(data)
    if name == "float64" and python_numbers:
        return array.astype(numpy_dtype(DEFAULT_FLOAT))
    return array


def _large_integer(array: np.ndarray[Any, Any]) -> int | None:
    """The integer for which NumPy has made an array of objects out of numbers; None if it holds other things."""
    if not all(isinstance(v, int | float) for v in array.flat):
        return None
    return next((v for v in array.flat if isinstance(v, int) and not -(2**63) <= v < 2**64), None)


def _has_arrays(data: Any) -> bool:
    while isinstance(data, list | tuple) and data:
        data = data[0]
    return isinstance(data, np.ndarray | np.generic)
