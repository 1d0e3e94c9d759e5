"""What rules build with: operators by name, and sugar that keeps rules readable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ops.attributes import ArrayData, Sizes
from ops.dims import Dim
from ops.types import Type


class RuleBuilder:
    """What rules build with. A subclass gives `op`; the rest is sugar."""

    def op(self, name: str, *inputs: Any, **attrs: Any) -> Any:
        """Apply an operator; one value, or a tuple when it has several outputs."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name[:1].isupper():
            raise AttributeError(name)
        return lambda *inputs, **attrs: self.op(name, *inputs, **attrs)

    def constant(self, value: Any, dtype: str) -> Any:
        """A constant of an element type."""
        array = np.asarray(value).astype(Type(dtype).numpy)
        return self.op("Constant", value=ArrayData.of(array))

    def like(self, value: Any, x: Any) -> Any:
        """A 0-d constant of x's element type."""
        return self.constant(value, x.type.dtype)

    def size(self, size: int | Dim, dtype: str = "int64") -> Any:
        """A size as a 0-d value, known to the program only when it runs, so that kernels do not depend on it."""
        return self.cast(self.op("Dimension", size=size), dtype)

    def chain(self, dy: Any, derivative: Any) -> Any:
        """The chain rule's product: a cotangent times a local derivative, 0 where one of them is 0 whatever the other is."""
        return self.op("MulNoNan", dy, derivative)

    def cast(self, x: Any, dtype: str) -> Any:
        """x with another element type."""
        return x if x.type.dtype == dtype else self.op("Cast", x, to=dtype)

    def zeros(self, type_: Type) -> Any:
        """Zeros of a type."""
        return self.expand(self.constant(0, type_.dtype), type_.shape)

    def expand(self, x: Any, shape: Sizes) -> Any:
        """x broadcast to a shape."""
        return x if x.type.shape == tuple(shape) else self.op("Expand", x, shape=tuple(shape))

    def reshape(self, x: Any, shape: Sizes) -> Any:
        """x with another shape of as many elements."""
        return x if x.type.shape == tuple(shape) else self.op("Reshape", x, shape=tuple(shape))

    def sum_to(self, x: Any, shape: Sizes) -> Any:
        """x summed over the axes along which `shape` was broadcast: the adjoint of broadcasting."""
        shape = tuple(shape)
        if x.type.shape == shape:
            return x
        lead = len(x.type.shape) - len(shape)
        axes = tuple(range(lead)) + tuple(
            k + lead for k, d in enumerate(shape) if d == 1 and x.type.shape[k + lead] != 1
        )
        if axes:
            x = self.op("ReduceSum", x, axes=axes, keepdims=False)
        return self.reshape(x, shape)
