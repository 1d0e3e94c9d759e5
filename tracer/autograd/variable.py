"""`Variable`: a Tensor on given data, with its flags. A Tensor is all that a Variable is, so every Tensor is one.

Knows how flags are given at construction; what they do is known by `tracer.dispatch` and by the Tensor.
"""

from __future__ import annotations

from typing import Any

from ops.errors import GradError
from tracer.functions.creation import as_tensor
from tracer.functions.public import public
from tracer.tensors.tensor import Tensor


class _Kind(type):
    """Makes Tensors, and counts every Tensor as a Variable."""

    def __call__(cls, data: Any, requires_grad: bool = False, volatile: bool = False) -> Any:
        return _variable(data, requires_grad, volatile)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, Tensor)


class Variable(Tensor, metaclass=_Kind):
    """`Variable(data, requires_grad=False, volatile=False)`: a Tensor that shares the memory of a Tensor or an array.

    It has no history. `volatile`: nothing that is computed from it requires gradients or keeps anything for them.
    Raises `GradError` if it is to be both.

    >>> x = tracer.Variable(np.ones(2, np.float32), requires_grad=True)
    >>> (3 * x).sum().backward()
    >>> x.grad
    tensor([3., 3.])
    """

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = False, volatile: bool = False) -> None:
        raise AssertionError("a Variable is made as a Tensor")


@public
def _variable(data: Any, requires_grad: bool, volatile: bool) -> Tensor:
    if requires_grad and volatile:
        raise GradError(
            "a Variable cannot require a gradient and be volatile: volatile says that no gradient will be asked for"
        )
    result: Tensor = as_tensor(data).data
    if volatile:
        result.volatile = True
    elif requires_grad:
        result.requires_grad = True
    return result
