"""Python operators and PyTorch's methods, attached to Tensor when `tracer` is imported.

To type checkers, Tensor inherits from `Methods`; at run time its attributes are copied, so that
`tracer.tensors` need not know functions.
"""

from __future__ import annotations

from tracer.functions.methods.elementwise import Conversions, Elementwise
from tracer.functions.methods.in_place import InPlace
from tracer.functions.methods.movement import Indexing, Movement
from tracer.functions.methods.operators import Operators
from tracer.functions.methods.reductions import Products, Reductions
from tracer.tensors.methods import attach_to, attributes_of
from tracer.tensors.tensor import Tensor

FAMILIES = (Operators, Elementwise, Conversions, Reductions, Products, Movement, Indexing, InPlace)


class Methods(
    Operators, Elementwise, Conversions, Reductions, Products, Movement, Indexing, InPlace
):
    """Everything that is attached to Tensor."""

    __slots__ = ()


def names() -> dict[str, object]:
    """Every attribute that `attach` gives to Tensor."""
    return attributes_of(FAMILIES)


def attach() -> None:
    """Give Tensor its operators and methods."""
    attach_to(Tensor, FAMILIES)
