"""Operands brought to one element type: Python numbers stay weak, integers never widen floats."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.errors import DTypeError
from ops.operator import ArrayData
from ops.promotion import floating_type, promote, result_type
from ops.types import Type, is_floating, numpy_dtype
from tracer.dispatch import apply, constant
from tracer.functions.creation import as_tensor, cast
from tracer.modes import MODES
from tracer.tensor import Tensor

_NUMBER_TYPES = {
    bool: Type("bool", (), True),
    int: Type("int64", (), True),
    float: Type("float64", (), True),
}


def prepare(*operands: Any, floating: bool = False) -> list[Tensor]:
    """Tensors of one element type. `floating`: integers and bools become float32. Raises `DTypeError`, `ArgumentError`."""
    tensors: list[Any] = []
    types: list[Type] = []
    for x in operands:
        kind = _NUMBER_TYPES.get(type(x))
        if kind is None:
            x = as_tensor(x)
            kind = x.type
        tensors.append(x)
        types.append(kind)
    dtype, weak = result_type(*types)
    if weak and not any(isinstance(x, Tensor) for x in tensors):
        dtype, weak = ("float32" if dtype == "float64" else dtype), False
    if floating and not (weak and is_floating(dtype)):
        dtype, weak = floating_type(*types), False
    return [_bring(x, dtype, weak) for x in tensors]


def _bring(x: Any, dtype: str, weak: bool) -> Tensor:
    if isinstance(x, Tensor):
        if weak:
            return x if x.type.dtype == dtype else _weaken(x, dtype)
        return cast(x, dtype)
    return number(x, dtype, weak)


def _weaken(x: Tensor, dtype: str) -> Tensor:
    """A weak value in another weak kind: Python's int to float."""
    return cast(x, dtype)


def number(x: bool | int | float, dtype: str, weak: bool = False) -> Tensor:
    """A Python number as a constant. Raises `DTypeError` when an integer does not fit."""
    if "int" in dtype and isinstance(x, int):
        info = np.iinfo(dtype)
        if not info.min <= x <= info.max:
            raise DTypeError(f"the Python integer {x} does not fit {dtype} ({info.min} to {info.max})")
    if weak and MODES.recorder is not None:
        result: Tensor = apply("Constant", value=ArrayData.of(np.asarray(x, numpy_dtype(dtype))), weak=True)
        return result
    return constant(x, dtype)


__all__ = ["number", "prepare", "promote"]
