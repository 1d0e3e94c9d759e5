"""One operator on operands that promotion has brought to one element type.

The body of most functions.
"""

from __future__ import annotations

from typing import Any

from ops.types import is_floating
from tracer.dispatch.apply import apply
from tracer.functions.creation import as_tensor, cast
from tracer.functions.promotion import prepare
from tracer.tensors.tensor import Tensor


def elementwise(name: str, *operands: Any, floating: bool = False, **attrs: Any) -> Tensor:
    """An operator on operands brought to one element type.

    `floating`: integers and bools become float32.
    """
    return apply(name, *prepare(*operands, floating=floating), **attrs)


def unary_floating(name: str, x: Any, **attrs: Any) -> Tensor:
    """A floating function of one operand; integers and bools become float32."""
    return apply(name, as_floating(x), **attrs)


def as_floating(x: Any) -> Tensor:
    """x as a Tensor; integers, bools and Python numbers become float32."""
    result = as_tensor(x)
    if is_floating(result.type.dtype) and not result.type.weak:
        return result
    return cast(result, "float32")


def as_numbers(x: Any) -> Tensor:
    """x as a Tensor that is no bool: these become int64."""
    x = as_tensor(x)
    return cast(x, "int64") if x.type.dtype == "bool" else strong(x)


def strong(x: Tensor) -> Tensor:
    """x; a Python number of a trace in its default element type."""
    if not x.type.weak:
        return x
    return cast(x, "float32" if x.type.dtype == "float64" else x.type.dtype)
