"""What a trace notes of the things outside that it reads: Tensors, arrays, gradients, numbers.

Knows Tensors and values of the graph. Must not know the recorder that makes these notes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tracer.ir.graph import Value
from tracer.tensors.tensor import Tensor

Holder = Tensor | int
"""Whose `.grad` is meant: an outside Tensor, or the number of an argument leaf, which is another Tensor at each call."""


def held_by(holder: Holder, leaves: Sequence[Any]) -> Any:
    """The Tensor that a holder is in a call with these argument leaves."""
    return leaves[holder] if isinstance(holder, int) else holder


class Capture:
    """An outside Tensor or array that the trace read, or (`is_grad`) the gradient of a `Holder`: its first value in the graph.

    `place`: what gives the Tensor that is there now, where the function puts another one at each call.
    """

    __slots__ = ("is_grad", "object", "place", "value")

    def __init__(self, object_: Any, value: Value, is_grad: bool = False) -> None:
        self.object, self.value, self.is_grad = object_, value, is_grad
        self.place: Callable[[], Any] | None = None

    def current(self, leaves: Sequence[Any]) -> Any:
        """What to read in a call with these argument leaves."""
        if self.place is not None:
            return self.place()
        return held_by(self.object, leaves)._grad if self.is_grad else self.object


class ScalarCapture:
    """A Python number in a container that the trace read as a 0-d value, such as a learning rate."""

    __slots__ = ("container", "key", "value")

    def __init__(self, container: Any, key: Any, value: Value) -> None:
        self.container, self.key, self.value = container, key, value


class NeedNumber(BaseException):
    """A float argument was used where Python needs a number; it must be static. Not an Exception: users' handlers are passed."""

    def __init__(self, leaf: int) -> None:
        self.leaf = leaf
