"""Type rules that many operators share. A rule takes operand types and attributes and gives the result's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ops.errors import DTypeError
from ops.types import FLOATING, Type, broadcast_shapes, normalize_axes, short


def same_dtype(*types: Type) -> str:
    """The one element type of all operands."""
    dtype = types[0].dtype
    if any(t.dtype != dtype for t in types):
        listed = ", ".join(short(t) for t in types)
        raise DTypeError(f"operands must have one element type, got {listed}; cast them first")
    return dtype


def elementwise(*types: Type, **_: Any) -> Type:
    """Operands of one element type, broadcast."""
    return Type(
        same_dtype(*types),
        broadcast_shapes(*(t.shape for t in types)),
        all(t.weak for t in types),
    )


def floating(*types: Type, **_: Any) -> Type:
    """Floating operands of one element type, broadcast."""
    dtype = same_dtype(*types)
    if dtype not in FLOATING:
        raise DTypeError(f"operands must be floating, got {dtype}; cast them first")
    return elementwise(*types)


def limited(*dtypes: str) -> Callable[..., Type]:
    """Operands of one of some element types, broadcast."""

    def rule(*types: Type, **_: Any) -> Type:
        if same_dtype(*types) not in dtypes:
            raise DTypeError(f"operands must be {', '.join(dtypes)}; got {types[0].dtype}")
        return elementwise(*types)

    return rule


def comparison(*types: Type, **_: Any) -> Type:
    """Operands of one element type, broadcast; the result is bool."""
    same_dtype(*types)
    return Type("bool", broadcast_shapes(*(t.shape for t in types)))


def reduced_shape(x: Type, axes: tuple[int, ...], keepdims: bool) -> tuple[Any, ...]:
    """x's shape without `axes`, or with size 1 there."""
    axes = normalize_axes(axes, x.rank)
    if keepdims:
        return tuple(1 if k in axes else d for k, d in enumerate(x.shape))
    return tuple(d for k, d in enumerate(x.shape) if k not in axes)


def reduction(x: Type, *, axes: tuple[int, ...], keepdims: bool, **_: Any) -> Type:
    """One result for each position of the axes that are kept."""
    return Type(x.dtype, reduced_shape(x, axes, keepdims))


def index_reduction(x: Type, *, axes: tuple[int, ...], keepdims: bool, **_: Any) -> Type:
    """The same, the result being int64 positions."""
    return Type("int64", reduced_shape(x, axes, keepdims))
