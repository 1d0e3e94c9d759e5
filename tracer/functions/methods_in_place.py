"""Methods of Tensor that change it in place and return self, under PyTorch's names.

Eager: in memory, on Tensors without history, leaves that require gradients under `no_grad` only. In
a trace: the Tensor has the new value from there on, and what lies outside is changed when the
program has run.
"""

from __future__ import annotations

from typing import Any

from tracer.functions import arithmetic, transcendental
from tracer.functions.methods_elementwise import Elementwise, masked_fill
from tracer.functions.mutation import change, copy_into
from tracer.functions.public import public
from tracer.tensor import Tensor

_change = public(change)
_copy_into = public(copy_into)


class InPlace:
    """Changes in place."""

    __slots__ = ()

    def copy_(self: Any, src: Any) -> Tensor:
        """Self with the elements of src, broadcast and converted."""
        return _copy_into(self, src)

    def fill_(self: Any, value: Any) -> Tensor:
        """Every element `value`."""
        return _copy_into(self, value)

    def zero_(self: Any) -> Tensor:
        """Every element 0."""
        return _copy_into(self, 0)

    def add_(self: Any, other: Any, *, alpha: Any = 1) -> Tensor:
        """Self + alpha * other."""
        return _change(self, lambda x, y: Elementwise.add(x, y, alpha=alpha), other)

    def sub_(self: Any, other: Any, *, alpha: Any = 1) -> Tensor:
        """Self - alpha * other."""
        return _change(self, lambda x, y: Elementwise.sub(x, y, alpha=alpha), other)

    def mul_(self: Any, other: Any) -> Tensor:
        """Self * other."""
        return _change(self, arithmetic.multiply, other)

    def div_(self: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
        """Self / other."""
        return _change(self, lambda x, y: Elementwise.div(x, y, rounding_mode=rounding_mode), other)

    def pow_(self: Any, exponent: Any) -> Tensor:
        """Self ** exponent."""
        return _change(self, arithmetic.pow, exponent)

    def addcmul_(self: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
        """Self + value * tensor1 * tensor2."""
        return _change(
            self, lambda x, a, b: Elementwise.addcmul(x, a, b, value=value), tensor1, tensor2
        )

    def addcdiv_(self: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
        """Self + value * tensor1 / tensor2."""
        return _change(
            self, lambda x, a, b: Elementwise.addcdiv(x, a, b, value=value), tensor1, tensor2
        )

    def lerp_(self: Any, end: Any, weight: Any) -> Tensor:
        """Self + weight * (end - self)."""
        return _change(self, arithmetic.lerp, end, weight)

    def clamp_(self: Any, min: Any = None, max: Any = None) -> Tensor:
        """Elements limited to [min, max]."""
        return _change(self, arithmetic.clip, min, max)

    clip_ = clamp_

    def masked_fill_(self: Any, mask: Any, value: Any) -> Tensor:
        """Elements `value` where the mask holds."""
        return _change(self, masked_fill, mask, value)

    def neg_(self: Any) -> Tensor:
        """-self."""
        return _change(self, arithmetic.negative)

    def exp_(self: Any) -> Tensor:
        """Exponential of self."""
        return _change(self, transcendental.exp)

    def sqrt_(self: Any) -> Tensor:
        """Square root of self."""
        return _change(self, arithmetic.sqrt)
