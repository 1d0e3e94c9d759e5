"""The state of modules, optimisers and generators: new values for Tensors that exist, and Python numbers that programs follow.

Values to load are checked and converted first, then copied, all or none. Knows Tensors and nothing of who owns
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ops.errors import ArgumentError, DTypeError, ShapeError, TraceError
from ops.reference import as_dtype
from ops.types import Type, dtype_name, is_floating, numpy_dtype, short
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor

Array = np.ndarray[Any, Any]


def array_of_value(what: str, value: Any) -> Array:
    """The array of a saved value. Raises `DTypeError` for what holds no numbers."""
    if isinstance(value, Tensor):
        return value._data()
    try:
        array = np.asarray(value)
        native = numpy_dtype(dtype_name(array.dtype))
    except (DTypeError, ValueError):
        raise DTypeError(f"{what}: expected an array of numbers, got {value!r:.60}") from None
    return array.astype(native, copy=False)


def fitted(what: str, value: Any, target: Tensor, copy: bool = True) -> Array:
    """A value as an array of a Tensor's type, in memory of its own unless told otherwise.

    Floating types convert to one another, and integers where nothing is lost. Raises `ShapeError`
    or `DTypeError`, which name `what`.
    """
    array, wanted = array_of_value(what, value), target.type
    if array.shape != wanted.shape:
        given = short(Type.of(array))
        raise ShapeError(f"{what} has the type {short(wanted)}, the value to load {given}")
    name = dtype_name(array.dtype)
    if name == wanted.dtype:
        return np.array(array, order="C") if copy else array
    result = np.asarray(as_dtype(array, wanted.dtype))
    lost = not is_floating(wanted.dtype) and (
        is_floating(name) or name == "bool" or not np.array_equal(result, array)
    )
    if lost:
        raise DTypeError(
            f"{what} has the type {short(wanted)}; the value to load is {name} and cannot be "
            "converted without loss"
        )
    return result


def require_writable(what: str, target: Tensor) -> None:
    """Raise `ArgumentError` for a Tensor whose array refuses writes."""
    if not target._data().flags.writeable:
        raise ArgumentError(f"{what} shares the memory of a read-only array; give it a copy")


def write(pairs: Iterable[tuple[Tensor, Array]]) -> None:
    """Copy arrays that `fitted` made into their Tensors."""
    for target, array in pairs:
        assign(target, Tensor.of_array(array, target.type))


def scalar(container: Any, key: Any) -> Any:
    """container[key]: a Python number, in a trace a value that follows later changes of it."""
    return MODES.interpreter.scalar(container, key)


def is_nonzero(container: Any, key: str) -> bool:
    """Whether container[key] is not 0; in a trace checked again at each call."""
    return MODES.interpreter.is_nonzero(container, key)


def assign(target: Tensor, new: Tensor) -> None:
    """target[...] = new: in its memory at once, or when the program that is being traced runs."""
    if new.type.shape != target.type.shape or new.type.dtype != target.type.dtype:
        raise TraceError(f"cannot assign {short(new.type)} to {short(target.type)}")
    MODES.interpreter.write(target, new, recorded=False)
