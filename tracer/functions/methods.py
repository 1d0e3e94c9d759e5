"""Python operators and PyTorch's methods, attached to Tensor when `tracer` is imported.

To type checkers, Tensor inherits from `Methods`; at run time its attributes are copied, so that
`tracer.tensor` need not know functions.
"""

from __future__ import annotations

from types import FunctionType

from tracer.functions.methods_elementwise import Conversions, Elementwise
from tracer.functions.methods_in_place import InPlace
from tracer.functions.methods_movement import Indexing, Movement
from tracer.functions.methods_reductions import Products, Reductions
from tracer.functions.operators import Operators
from tracer.tensor import Tensor

FAMILIES = (Operators, Elementwise, Conversions, Reductions, Products, Movement, Indexing, InPlace)


class Methods(
    Operators, Elementwise, Conversions, Reductions, Products, Movement, Indexing, InPlace
):
    """Everything that is attached to Tensor."""

    __slots__ = ()


_CLASS = frozenset(
    (
        "__module__",
        "__doc__",
        "__slots__",
        "__qualname__",
        "__firstlineno__",
        "__static_attributes__",
    )
)


def names() -> dict[str, object]:
    """Every attribute that `attach` gives to Tensor."""
    return {
        name: value
        for family in FAMILIES
        for name, value in vars(family).items()
        if name not in _CLASS
    }


def attach() -> None:
    """Give Tensor its operators and methods."""
    for name, value in names().items():
        if isinstance(value, FunctionType) and "." in value.__qualname__:  # no function of `tracer`
            value.__name__, value.__qualname__ = name, f"Tensor.{name}"  # what errors call it
        setattr(Tensor, name, value)
