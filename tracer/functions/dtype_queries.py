"""Questions about element types, under the array API's names."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from ops import promotion
from ops.errors import ArgumentError, DTypeError
from ops.types import DEFAULT_FLOAT, FLOATING, INTEGERS, UNSIGNED, Type, dtype_name, numpy_dtype
from tracer.functions.promotion import type_of
from tracer.functions.public import public

_FINFO: tuple[Any, Any] = (np.finfo, ml_dtypes.finfo)
_KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": tuple(d for d in INTEGERS if d not in UNSIGNED),
    "unsigned integer": UNSIGNED,
    "integral": INTEGERS,
    "real floating": FLOATING,
    "complex floating": (),
    "numeric": INTEGERS + FLOATING,
}


@public
def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """The element type of a computation on Tensors, arrays, Python numbers and element types.

    As in NumPy 2, but integers never widen floats: result_type(float32, int64) is float32.
    Python numbers alone give their default: float32, int64, bool.

    Raises `ArgumentError` for no operands.

    >>> tracer.result_type(tracer.float32, tracer.int64)
    dtype('float32')
    """
    if not arrays_and_dtypes:
        raise ArgumentError("result_type needs at least one Tensor, array, number or element type")
    types = [_type_of(x) for x in arrays_and_dtypes]
    dtype, weak = promotion.result_type(*types)
    return numpy_dtype(DEFAULT_FLOAT if weak and dtype == "float64" else dtype)


def _type_of(x: Any) -> Type:
    if isinstance(x, str | np.dtype | type):
        return Type(dtype_name(x))
    return type_of(x)


@public
def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion takes an element type (or a Tensor's) to another one.

    An integer to any float, never back.

    >>> tracer.can_cast(tracer.int64, tracer.float32), tracer.can_cast(tracer.float32, tracer.int64)
    (True, False)
    """
    source, target = _type_of(from_).dtype, dtype_name(to)
    return promotion.promote((source, False), (target, False))[0] == target


@public
def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether an element type is of a kind, or of one of a tuple of kinds.

    Kinds: "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex
    floating", "numeric", or an element type itself.

    Raises `ArgumentError` for a kind that there is not.

    >>> tracer.isdtype(tracer.float16, "real floating"), tracer.isdtype(tracer.bool, "numeric")
    (True, False)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    name = dtype_name(dtype)
    if isinstance(kind, str) and kind in _KINDS:
        return name in _KINDS[kind]
    try:
        return name == dtype_name(kind)
    except DTypeError:
        kinds = ", ".join(map(repr, _KINDS))
        raise ArgumentError(
            f"unknown kind {kind!r}; use one of {kinds}, or an element type"
        ) from None


@public
def finfo(type: Any, /) -> Any:
    """Limits of a floating element type (or a Tensor's): bits, eps, max, min, smallest_normal, dtype.

    Raises `DTypeError` for other types.

    >>> tracer.finfo(tracer.bfloat16).bits
    16
    """
    name = _type_of(type).dtype
    if name not in FLOATING:
        raise DTypeError(f"finfo is of floating element types, got {name}; use iinfo")
    return _FINFO[name == "bfloat16"](numpy_dtype(name))


@public
def iinfo(type: Any, /) -> np.iinfo[Any]:
    """Limits of an integer element type (or a Tensor's): bits, max, min, dtype.

    Raises `DTypeError` for other types.

    >>> tracer.iinfo(tracer.int8).max
    127
    """
    name = _type_of(type).dtype
    if name not in INTEGERS:
        raise DTypeError(f"iinfo is of integer element types, got {name}; use finfo")
    return np.iinfo(numpy_dtype(name))


__all__ = ["can_cast", "finfo", "iinfo", "isdtype", "result_type"]
