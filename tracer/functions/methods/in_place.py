"""Methods of Tensor that change it in place and return self, under PyTorch's names.

Eager they write into memory, in a trace the Tensor has the new value from there on, and what lies outside is changed when the
program has run. Gradients go through, and views of the Tensor see the change; leaves that require gradients change under
`no_grad` only. A result must have the Tensor's shape and fit into its element type.
"""

from __future__ import annotations

from typing import Any

from tracer.functions import movement
from tracer.functions.in_place import copy_into
from tracer.functions.methods.elementwise import Elementwise, in_place
from tracer.functions.methods.movement import Indexing
from tracer.functions.public import public
from tracer.tensors.tensor import Tensor

_copy_into = public(copy_into)


class InPlace:
    """Changes in place."""

    __slots__ = ()

    add_ = in_place(Elementwise.add)
    addcdiv_ = in_place(Elementwise.addcdiv)
    addcmul_ = in_place(Elementwise.addcmul)
    clamp_max_ = in_place(Elementwise.clamp_max)
    clamp_min_ = in_place(Elementwise.clamp_min)
    div_ = divide_ = true_divide_ = in_place(Elementwise.div)
    index_add_ = in_place(Indexing.index_add)
    index_copy_ = in_place(Indexing.index_copy)
    index_fill_ = in_place(Indexing.index_fill)
    index_put_ = in_place(Indexing.index_put)
    masked_scatter_ = in_place(Indexing.masked_scatter)
    masked_fill_ = in_place(Elementwise.masked_fill)
    scatter_ = in_place(Indexing.scatter)
    scatter_add_ = in_place(Indexing.scatter_add)
    sub_ = subtract_ = in_place(Elementwise.sub)
    tril_ = in_place(movement.tril)
    triu_ = in_place(movement.triu)

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
