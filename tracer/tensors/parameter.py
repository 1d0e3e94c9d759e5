"""Parameters: Tensors that a module trains."""

from __future__ import annotations

from typing import Any

from tracer.tensors.modes import outside_traces
from tracer.tensors.tensor import Tensor


class Parameter(Tensor):
    """A Tensor that a `Module` lists among its parameters, with a copy of the data.

    It requires gradients unless told otherwise. Raises `TraceError` in a traced function, whose
    program would not make it again.

    >>> tracer.nn.Parameter([1.0, 2.0])
    Parameter containing:
    tensor([1., 2.], requires_grad=True)
    """

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True) -> None:
        outside_traces("a Parameter is made")
        super().__init__(data)
        self.requires_grad = requires_grad

    def __repr__(self) -> str:
        return "Parameter containing:\n" + super().__repr__()
