"""Functions of elements, under the array API's names."""

from __future__ import annotations

from typing import Any

from ops.errors import TracerError
from tracer.dispatch import apply, located
from tracer.functions.creation import as_tensor
from tracer.functions.promotion import prepare
from tracer.tensor import Tensor


def elementwise(name: str, *operands: Any, floating: bool = False) -> Tensor:
    """An operator on operands brought to one element type."""
    try:
        result: Tensor = apply(name, *prepare(*operands, floating=floating))
    except TracerError as error:
        raise located(error) from None
    return result


def add(x: Any, y: Any) -> Tensor:
    """x + y, broadcast."""
    return elementwise("Add", x, y)


def subtract(x: Any, y: Any) -> Tensor:
    """x - y, broadcast."""
    return elementwise("Sub", x, y)


def multiply(x: Any, y: Any) -> Tensor:
    """x * y, broadcast."""
    return elementwise("Mul", x, y)


def divide(x: Any, y: Any) -> Tensor:
    """x / y, broadcast; integers give float32."""
    return elementwise("Div", x, y, floating=True)


def negative(x: Any) -> Tensor:
    """-x."""
    return elementwise("Neg", x)


def exp(x: Any) -> Tensor:
    """Exponential."""
    return elementwise("Exp", x, floating=True)


def log(x: Any) -> Tensor:
    """Natural logarithm."""
    return elementwise("Log", x, floating=True)


def tanh(x: Any) -> Tensor:
    """Hyperbolic tangent."""
    return elementwise("Tanh", x, floating=True)


def relu(x: Any) -> Tensor:
    """max(x, 0)."""
    return elementwise("Relu", x)


def where(condition: Any, x: Any, y: Any) -> Tensor:
    """x where the condition holds, else y; broadcast."""
    a, b = prepare(x, y)
    try:
        result: Tensor = apply("Where", as_tensor(condition), a, b)
    except TracerError as error:
        raise located(error) from None
    return result
