"""Parameters: Tensors that a module trains."""

from __future__ import annotations

from typing import Any

from tracer.tensor import Tensor


class Parameter(Tensor):
    """A Tensor that a `Module` lists among its parameters; requires gradients unless told otherwise."""

    __slots__ = ()

    def __init__(self, data: Any = None, requires_grad: bool = True) -> None:
        super().__init__(data)
        self.requires_grad = requires_grad

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()
