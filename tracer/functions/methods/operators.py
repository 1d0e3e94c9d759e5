"""Python's operators on Tensors: arithmetic, comparison, bits, subscripts, iteration, formatting.

An operand of a foreign class gets its turn (NotImplemented); numbers, arrays and lists are taken
in.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from ops.dims import Dim
from ops.errors import ShapeError
from ops.types import short
from tracer.functions import arithmetic, linear_algebra, logic, reductions
from tracer.functions.getitem import get_item
from tracer.functions.in_place import update
from tracer.functions.joining import unstack
from tracer.functions.public import public
from tracer.functions.setitem import set_item
from tracer.tensors.tensor import Tensor

_OPERANDS = (Tensor, int, float, np.ndarray, np.generic, list, tuple, Dim)
Binary = Callable[[Any, Any], Tensor]


def is_operand(x: Any) -> bool:
    """Whether operators take x in: a Tensor, a number, an array, a list or a symbolic size."""
    return isinstance(x, _OPERANDS)


def _left(function: Binary) -> Binary:
    def operator(self: Any, other: Any) -> Tensor:
        return function(self, other) if is_operand(other) else NotImplemented

    return operator


def _right(function: Binary) -> Binary:
    def operator(self: Any, other: Any) -> Tensor:
        return function(other, self) if is_operand(other) else NotImplemented

    return operator


def _in_place(function: Binary) -> Binary:
    changing = public(update)

    def operator(self: Any, other: Any) -> Tensor:
        return changing(self, function, other) if is_operand(other) else NotImplemented

    return operator


class Operators:
    """Python's operators."""

    __slots__ = ()

    __add__ = _left(arithmetic.add)
    __radd__ = _right(arithmetic.add)
    __iadd__ = _in_place(arithmetic.add)
    __sub__ = _left(arithmetic.subtract)
    __rsub__ = _right(arithmetic.subtract)
    __isub__ = _in_place(arithmetic.subtract)
    __mul__ = _left(arithmetic.multiply)
    __rmul__ = _right(arithmetic.multiply)
    __imul__ = _in_place(arithmetic.multiply)
    __truediv__ = _left(arithmetic.divide)
    __rtruediv__ = _right(arithmetic.divide)
    __itruediv__ = _in_place(arithmetic.divide)
    __floordiv__ = _left(arithmetic.floor_divide)
    __rfloordiv__ = _right(arithmetic.floor_divide)
    __ifloordiv__ = _in_place(arithmetic.floor_divide)
    __mod__ = _left(arithmetic.remainder)
    __rmod__ = _right(arithmetic.remainder)
    __imod__ = _in_place(arithmetic.remainder)
    __pow__ = _left(arithmetic.pow)
    __rpow__ = _right(arithmetic.pow)
    __ipow__ = _in_place(arithmetic.pow)
    __matmul__ = _left(linear_algebra.matmul)
    __rmatmul__ = _right(linear_algebra.matmul)
    __imatmul__ = _in_place(linear_algebra.matmul)
    __and__ = _left(logic.bitwise_and)
    __rand__ = _right(logic.bitwise_and)
    __iand__ = _in_place(logic.bitwise_and)
    __or__ = _left(logic.bitwise_or)
    __ror__ = _right(logic.bitwise_or)
    __ior__ = _in_place(logic.bitwise_or)
    __xor__ = _left(logic.bitwise_xor)
    __rxor__ = _right(logic.bitwise_xor)
    __ixor__ = _in_place(logic.bitwise_xor)
    __lshift__ = _left(logic.bitwise_left_shift)
    __rlshift__ = _right(logic.bitwise_left_shift)
    __ilshift__ = _in_place(logic.bitwise_left_shift)
    __rshift__ = _left(logic.bitwise_right_shift)
    __rrshift__ = _right(logic.bitwise_right_shift)
    __irshift__ = _in_place(logic.bitwise_right_shift)

    __lt__ = _left(logic.less)
    __le__ = _left(logic.less_equal)
    __gt__ = _left(logic.greater)
    __ge__ = _left(logic.greater_equal)

    def __eq__(self, other: Any) -> Tensor:  # type: ignore[override]
        return logic.equal(self, other) if is_operand(other) else NotImplemented

    def __ne__(self, other: Any) -> Tensor:  # type: ignore[override]
        return logic.not_equal(self, other) if is_operand(other) else NotImplemented

    __hash__ = object.__hash__

    __neg__ = arithmetic.negative
    __pos__ = arithmetic.positive
    __abs__ = arithmetic.abs
    __invert__ = logic.bitwise_invert

    def __divmod__(self, other: Any) -> Any:
        if not is_operand(other):
            return NotImplemented
        return arithmetic.floor_divide(self, other), arithmetic.remainder(self, other)

    def __rdivmod__(self, other: Any) -> Any:
        if not is_operand(other):
            return NotImplemented
        return arithmetic.floor_divide(other, self), arithmetic.remainder(other, self)

    def __round__(self, ndigits: int | None = None) -> Tensor:
        return arithmetic.round(self, ndigits or 0)

    def __getitem__(self: Any, key: Any) -> Tensor:
        return get_item(self, key)

    def __setitem__(self: Any, key: Any, value: Any) -> None:
        set_item(self, key, value)

    @public
    def __iter__(self: Any) -> Iterator[Tensor]:
        if not self.type.shape:
            raise ShapeError(f"{short(self.type)} is 0-d and cannot be iterated over; use t.item()")
        return iter(unstack(self))

    def __contains__(self, value: Any) -> bool:
        return bool(reductions.any(logic.equal(self, value)))

    def __format__(self: Any, specification: str) -> str:
        if specification and not self.type.shape:
            return format(self.item(), specification)
        return format(str(self), specification)

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        return sys.modules["tracer"]
