"""Operands brought to one element type: Python numbers stay weak, integers never widen floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ops.errors import DTypeError
from ops.promotion import floating_type, promote, result_type
from ops.types import DEFAULT_FLOAT, Type, is_floating, is_integer
from tracer.functions.creation import as_tensor, cast
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor

_NUMBER_TYPES = {
    bool: Type("bool", (), True),
    int: Type("int64", (), True),
    float: Type("float64", (), True),
}


def number_type(x: Any) -> Type | None:
    """The weak type of a Python number, None for anything else. NumPy's scalars are arrays."""
    found = _NUMBER_TYPES.get(type(x))
    if found is None and isinstance(x, int | float) and not isinstance(x, np.generic):
        return _NUMBER_TYPES[int if isinstance(x, int) else float]  # an IntEnum, for one
    return found


def type_of(x: Any) -> Type:
    """The type with which an operand takes part in promotion."""
    return number_type(x) or as_tensor(x).type


def prepare(*operands: Any, floating: bool = False) -> list[Tensor]:
    """Tensors of one element type. `floating`: integers and bools become float32.

    Raises `DTypeError` for elements that are no numbers and for Python integers that do not
    fit, `ArgumentError` for what is no operand at all.
    """
    if _agree(operands, floating):
        return list(operands)
    tensors: list[Any] = []
    types: list[Type] = []
    for x in operands:
        kind = number_type(x)
        if kind is None:
            x = as_tensor(x)
            kind = x.type
        tensors.append(x)
        types.append(kind)
    dtype, weak = result_type(*types)
    if weak and not any(isinstance(x, Tensor) for x in tensors):
        dtype, weak = (DEFAULT_FLOAT if dtype == "float64" else dtype), False
    if floating and not (weak and is_floating(dtype)):
        dtype, weak = floating_type(*types), False
    return [_bring(x, dtype, weak) for x in tensors]


def _agree(operands: Sequence[Any], floating: bool) -> bool:
    """Whether operands have one element type already, as they nearly always do."""
    first = operands[0]
    if not isinstance(first, Tensor):
        return False
    dtype = first.type.dtype
    for x in operands:
        if not isinstance(x, Tensor):
            return False
        type_ = x.type
        if type_.dtype != dtype or type_.weak:
            return False
    return not floating or is_floating(dtype)


def _bring(x: Any, dtype: str, weak: bool) -> Tensor:
    if not isinstance(x, Tensor):
        return number(x, dtype, weak)
    return x if weak and x.type.dtype == dtype else cast(x, dtype)


def number(x: bool | int | float, dtype: str, weak: bool = False) -> Tensor:
    """A Python number as a constant. Raises `DTypeError` when an integer does not fit."""
    if is_integer(dtype) and isinstance(x, int) and not fits(x, dtype):
        info = np.iinfo(dtype)
        raise DTypeError(
            f"the Python integer {x} does not fit {dtype} ({info.min} to {info.max}); cast the "
            "other operand to a wider type"
        )
    return MODES.interpreter.constant(x, dtype, weak)


def fits(x: int, dtype: str) -> bool:
    """Whether an integer type holds a Python integer."""
    info = np.iinfo(dtype)
    return bool(info.min <= x <= info.max)


__all__ = ["fits", "number", "number_type", "prepare", "promote", "type_of"]
