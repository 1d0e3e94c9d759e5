"""The base of Tensor that methods are attached to: by `tracer.functions.methods` and by `tracer.autograd.tensor_methods`.

Tensors lie below functions and gradients, so the class that users see is completed when `tracer` is imported. What it has then
stands for type checkers in the stub beside this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType


class Methods:
    """Methods and Python operators of Tensor."""

    __slots__ = ()


_OF_EVERY_CLASS = frozenset(
    (
        "__module__",
        "__doc__",
        "__slots__",
        "__qualname__",
        "__firstlineno__",
        "__static_attributes__",
    )
)


def attributes_of(families: Sequence[type]) -> dict[str, object]:
    """What classes of methods define, by name; a later class's comes before an earlier one's."""
    return {
        name: value
        for family in families
        for name, value in vars(family).items()
        if name not in _OF_EVERY_CLASS
    }


def attach_to(tensor: type, families: Sequence[type]) -> None:
    """Give the class of Tensors what classes of methods define."""
    for name, value in attributes_of(families).items():
        # What errors call it: a function of `tracer` keeps its name, a method with two names has the first.
        owner = value.__qualname__.rpartition(".")[0] if isinstance(value, FunctionType) else ""
        if isinstance(value, FunctionType) and owner not in ("", tensor.__name__):
            value.__name__, value.__qualname__ = name, f"{tensor.__name__}.{name}"
        setattr(tensor, name, value)
