"""What a Tensor knows of gradients: its flags, its history, `.grad`, and where `backward` begins.

Knows no memory and no operators; how a history is walked is `tracer.autograd`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ops.errors import GradError
from ops.types import short
from tracer.autograd.engine import backward
from tracer.autograd.hooks import RemovableHandle, register_after_accumulation, register_on_tensor
from tracer.core.source_lines import located
from tracer.tensors.methods import attach_to
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor


class GradientMethods:
    """Attributes and methods of Tensor that are about gradients."""

    __slots__ = ()

    @property
    def grad(self: Any) -> Tensor | None:
        """The gradient accumulated by `backward`, or None."""
        return MODES.interpreter.grad_of(self)

    @grad.setter
    def grad(self: Any, value: Tensor | None) -> None:
        is_tensor = isinstance(value, Tensor)
        if value is not None and (not is_tensor or value.type.strong() != self.type.strong()):
            got = short(value.type) if is_tensor else type(value).__name__
            raise located(
                GradError(
                    f"a gradient must be {short(self.type)} like its Tensor, or None, got {got}"
                )
            )
        MODES.interpreter.set_grad(self, value)

    def detach_(self: Any) -> Tensor:
        """Drop the history of this Tensor, so that it is a leaf. Raises `GradError` for a view, whose base has it.

        >>> y = tracer.tensor([1.0], requires_grad=True) * 2
        >>> y.detach_().is_leaf
        True
        """
        if self._view is not None and self._view.op is not None:
            raise located(
                GradError(
                    f"{short(self.type)} is a view of another Tensor, whose history it shares; use t.detach()"
                )
            )
        if self.requires_grad:
            self._flag(False)
        return self  # type: ignore[no-any-return]

    def backward(
        self: Any,
        gradient: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        inputs: Tensor | Sequence[Tensor] | None = None,
    ) -> None:
        """Accumulate gradients in `.grad` of the leaves that this depends on, or of `inputs` only.

        `gradient`: of this, 1 for a Tensor of one element. `retain_graph`: whether it may be called again; as `create_graph`
        unless given.

        >>> x = tracer.tensor([1.0, 2.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([2., 4.])
        """
        backward([self], [gradient], retain_graph, create_graph, inputs)

    def retain_grad(self: Any) -> None:
        """`backward` keeps `.grad` of this although it is no leaf. Raises `GradError` if it requires no gradient.

        >>> x = tracer.tensor(3.0, requires_grad=True)
        >>> y = x * x
        >>> y.retain_grad()
        >>> (2 * y).backward()
        >>> y.grad
        tensor(2.)
        """
        if not self.requires_grad:
            why = "is volatile" if self.volatile else "requires no gradient"
            raise located(GradError(f"{short(self.type)} {why}, so there is none to keep"))
        now = self._current()
        if now._grad_fn is not None:
            self.retains_grad = True
            now._grad_fn.retain(self, now.output_number)

    def register_hook(self: Any, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """`hook(gradient)` runs whenever the gradient of this has been computed; what it returns stands in for it.

        Hooks run in the order in which they were registered, before `.grad` is written. The handle's `remove()` takes it
        away. Raises `GradError` if this requires no gradient.

        >>> x = tracer.tensor(3.0, requires_grad=True)
        >>> handle = x.register_hook(lambda gradient: 10 * gradient)
        >>> (x * x).backward()
        >>> x.grad
        tensor(60.)
        >>> handle.remove()
        """
        return register_on_tensor(self, hook)

    def register_post_accumulate_grad_hook(
        self: Any, hook: Callable[[Tensor], None]
    ) -> RemovableHandle:
        """`hook(leaf)` runs when a backward has written `.grad` of this leaf. Raises `GradError` for what is no leaf.

        >>> x = tracer.tensor(3.0, requires_grad=True)
        >>> handle = x.register_post_accumulate_grad_hook(lambda leaf: print("has", leaf.grad))
        >>> (x * x).backward()
        has tensor(6.)
        """
        return register_after_accumulation(self, hook)


attach_to(Tensor, (GradientMethods,))
