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


def _forms(function: Binary) -> tuple[Binary, Binary, Binary]:
    """The three forms of an operator: x + y, the same where only y is a Tensor, and x += y."""
    changing = public(update)

    def right(self: Any, other: Any) -> Tensor:
        return function(other, self) if is_operand(other) else NotImplemented

    def in_place(self: Any, other: Any) -> Tensor:
        return changing(self, function, other) if is_operand(other) else NotImplemented

    return _left(function), right, in_place


class Operators:
    """Python's operators."""

    __slots__ = ()

    __add__, __radd__, __iadd__ = _forms(arithmetic.add)
    __sub__, __rsub__, __isub__ = _forms(arithmetic.subtract)
    __mul__, __rmul__, __imul__ = _forms(arithmetic.multiply)
    __truediv__, __rtruediv__, __itruediv__ = _forms(arithmetic.divide)
    __floordiv__, __rfloordiv__, __ifloordiv__ = _forms(arithmetic.floor_divide)
    __mod__, __rmod__, __imod__ = _forms(arithmetic.remainder)
    __pow__, __rpow__, __ipow__ = _forms(arithmetic.pow)
    __matmul__, __rmatmul__, __imatmul__ = _forms(linear_algebra.matmul)
    __and__, __rand__, __iand__ = _forms(logic.bitwise_and)
    __or__, __ror__, __ior__ = _forms(logic.bitwise_or)
    __xor__, __rxor__, __ixor__ = _forms(logic.bitwise_xor)
    __lshift__, __rlshift__, __ilshift__ = _forms(logic.bitwise_left_shift)
    __rshift__, __rrshift__, __irshift__ = _forms(logic.bitwise_right_shift)

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
