"""Methods of Tensor that change it in place and return self, under PyTorch's names.

Eager they write into memory, in a trace the Tensor has the new value from there on, and what lies outside is changed when the
program has run. Gradients go through, and views of the Tensor see the change; leaves that require gradients change under
`no_grad` only. A result must have the Tensor's shape and fit into its element type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec

from tracer.functions import activation, arithmetic, logic, movement, transcendental
from tracer.functions.in_place import change, copy_into
from tracer.functions.methods.elementwise import Elementwise
from tracer.functions.methods.movement import Indexing
from tracer.functions.public import public
from tracer.tensors.tensor import Tensor

P = ParamSpec("P")
_change = public(change)
_copy_into = public(copy_into)


def _in_place(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """The method that changes its Tensor to function(Tensor, *operands)."""

    def method(*operands: P.args, **options: P.kwargs) -> Tensor:
        changed: Any = operands[0]
        return _change(changed, function, *operands[1:], **options)

    summary = (function.__doc__ or "").partition("\n")[0].partition(" See `")[0]
    where = "Tensor" if "." in function.__qualname__ else "tracer"
    method.__doc__ = f"In place: {summary} See `{where}.{function.__name__}`."
    method.__name__ = f"{function.__name__}_"
    return method


class InPlace:
    """Changes in place."""

    __slots__ = ()

    abs_ = absolute_ = _in_place(arithmetic.abs)
    acos_ = arccos_ = _in_place(transcendental.acos)
    acosh_ = arccosh_ = _in_place(transcendental.acosh)
    add_ = _in_place(Elementwise.add)
    addcdiv_ = _in_place(Elementwise.addcdiv)
    addcmul_ = _in_place(Elementwise.addcmul)
    asin_ = arcsin_ = _in_place(transcendental.asin)
    asinh_ = arcsinh_ = _in_place(transcendental.asinh)
    atan_ = arctan_ = _in_place(transcendental.atan)
    atan2_ = arctan2_ = _in_place(transcendental.atan2)
    atanh_ = arctanh_ = _in_place(transcendental.atanh)
    bitwise_and_ = _in_place(logic.bitwise_and)
    bitwise_left_shift_ = _in_place(logic.bitwise_left_shift)
    bitwise_not_ = _in_place(logic.bitwise_invert)
    bitwise_or_ = _in_place(logic.bitwise_or)
    bitwise_right_shift_ = _in_place(logic.bitwise_right_shift)
    bitwise_xor_ = _in_place(logic.bitwise_xor)
    ceil_ = _in_place(arithmetic.ceil)
    clamp_ = clip_ = _in_place(arithmetic.clip)
    clamp_max_ = _in_place(Elementwise.clamp_max)
    clamp_min_ = _in_place(Elementwise.clamp_min)
    copysign_ = _in_place(arithmetic.copysign)
    cos_ = _in_place(transcendental.cos)
    cosh_ = _in_place(transcendental.cosh)
    div_ = divide_ = true_divide_ = _in_place(Elementwise.div)
    eq_ = _in_place(logic.equal)
    erf_ = _in_place(transcendental.erf)
    erfc_ = _in_place(transcendental.erfc)
    exp2_ = _in_place(transcendental.exp2)
    exp_ = _in_place(transcendental.exp)
    expm1_ = _in_place(transcendental.expm1)
    floor_ = _in_place(arithmetic.floor)
    floor_divide_ = _in_place(arithmetic.floor_divide)
    fmod_ = _in_place(arithmetic.fmod)
    ge_ = greater_equal_ = _in_place(logic.greater_equal)
    gt_ = greater_ = _in_place(logic.greater)
    hypot_ = _in_place(arithmetic.hypot)
    index_add_ = _in_place(Indexing.index_add)
    index_copy_ = _in_place(Indexing.index_copy)
    index_fill_ = _in_place(Indexing.index_fill)
    index_put_ = _in_place(Indexing.index_put)
    le_ = less_equal_ = _in_place(logic.less_equal)
    lerp_ = _in_place(arithmetic.lerp)
    log10_ = _in_place(transcendental.log10)
    log1p_ = _in_place(transcendental.log1p)
    log2_ = _in_place(transcendental.log2)
    log_ = _in_place(transcendental.log)
    logical_and_ = _in_place(logic.logical_and)
    logical_not_ = _in_place(logic.logical_not)
    logical_or_ = _in_place(logic.logical_or)
    logical_xor_ = _in_place(logic.logical_xor)
    lt_ = less_ = _in_place(logic.less)
    masked_scatter_ = _in_place(Indexing.masked_scatter)
    masked_fill_ = _in_place(Elementwise.masked_fill)
    mul_ = multiply_ = _in_place(arithmetic.multiply)
    nan_to_num_ = _in_place(logic.nan_to_num)
    ne_ = not_equal_ = _in_place(logic.not_equal)
    neg_ = negative_ = _in_place(arithmetic.negative)
    pow_ = _in_place(arithmetic.pow)
    reciprocal_ = _in_place(arithmetic.reciprocal)
    relu_ = _in_place(activation.relu)
    remainder_ = _in_place(arithmetic.remainder)
    round_ = _in_place(arithmetic.round)
    rsqrt_ = _in_place(arithmetic.rsqrt)
    scatter_ = _in_place(Indexing.scatter)
    scatter_add_ = _in_place(Indexing.scatter_add)
    sigmoid_ = _in_place(activation.sigmoid)
    sign_ = _in_place(arithmetic.sign)
    sin_ = _in_place(transcendental.sin)
    sinh_ = _in_place(transcendental.sinh)
    sqrt_ = _in_place(arithmetic.sqrt)
    square_ = _in_place(arithmetic.square)
    sub_ = subtract_ = _in_place(Elementwise.sub)
    tan_ = _in_place(transcendental.tan)
    tanh_ = _in_place(transcendental.tanh)
    tril_ = _in_place(movement.tril)
    triu_ = _in_place(movement.triu)
    trunc_ = fix_ = _in_place(arithmetic.trunc)

    def copy_(self: Any, src: Any) -> Tensor:
        """Self with the elements of src, broadcast and converted, in place; returns self.

        >>> x = tracer.zeros(2)
        >>> x.copy_([1, 2])
        tensor([1., 2.])
        """
        return _copy_into(self, src)

    def fill_(self: Any, value: Any) -> Tensor:
        """Every element `value`, a number or a 0-d Tensor, in place; returns self.

        >>> tracer.zeros(2).fill_(3)
        tensor([3., 3.])
        """
        return _copy_into(self, value)

    def zero_(self: Any) -> Tensor:
        """Every element 0, in place; returns self.

        >>> tracer.ones(2).zero_()
        tensor([0., 0.])
        """
        return _copy_into(self, 0)

    def fill_diagonal_(self: Any, fill_value: Any) -> Tensor:
        """The elements of a matrix whose two indices are equal become fill_value, in place; returns self.

        >>> tracer.zeros((2, 2)).fill_diagonal_(1)
        tensor([[1., 0.],
                [0., 1.]])
        """
        _copy_into(self.diagonal(), fill_value)
        return self  # type: ignore[no-any-return]
