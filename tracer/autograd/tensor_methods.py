"""What a Tensor knows of gradients: its flags, its history, `.grad`, and where `backward` begins.

Knows no memory and no operators; how a history is walked is `tracer.autograd`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ops.errors import GradError
from ops.types import is_floating, short
from tracer.autograd.engine import backward
from tracer.autograd.gradient_node import GradientNode
from tracer.autograd.hooks import RemovableHandle, register_after_accumulation, register_on_tensor
from tracer.core.source_lines import located
from tracer.tensors.methods import attach_to
from tracer.tensors.modes import INFERENCE, MODES, Flag, Untracked, untracked
from tracer.tensors.tensor import Tensor


class GradientMethods:
    """Attributes and methods of Tensor that are about gradients."""

    __slots__ = ()

    @property
    def requires_grad(self: Any) -> bool:
        """Whether gradients with respect to this are wanted; results of it require them too."""
        return self._flag_now() is True

    @requires_grad.setter
    def requires_grad(self: Any, wanted: bool) -> None:
        mark = self._flag_now()
        if wanted and not is_floating(self.type.dtype):
            raise located(
                GradError(f"only floating Tensors can require gradients, got {short(self.type)}")
            )
        if not wanted and self.grad_fn is not None:
            raise located(GradError("requires_grad can be cleared on leaves only; use t.detach()"))
        if wanted and isinstance(mark, Untracked):
            if mark.volatile:
                raise located(
                    GradError(
                        f"{short(self.type)} is volatile, so it never requires a gradient; set volatile to False first, "
                        "or use x.data, the same memory without the flag"
                    )
                )
            if MODES.grad_enabled is not INFERENCE:
                raise located(
                    GradError(
                        f"{short(self.type)} was made in inference mode and cannot require a gradient outside of it; "
                        "use x.clone()"
                    )
                )
        if wanted or mark is True:
            self._flag(bool(wanted))

    @property
    def volatile(self: Any) -> bool:
        """Whether nothing that is computed from this requires gradients, whatever else it is computed from."""
        mark = self._flag_now()
        return isinstance(mark, Untracked) and mark.volatile

    @volatile.setter
    def volatile(self: Any, wanted: bool) -> None:
        if wanted and self.grad_fn is not None:
            raise located(GradError("volatile can be set on leaves only; use t.detach()"))
        if wanted or self.volatile:
            self._flag(untracked(bool(wanted), self.is_inference()))

    def is_inference(self: Any) -> bool:
        """Whether this was made in inference mode, so that it can have no part in gradients outside of it.

        >>> tracer.ones(2).is_inference()
        False
        """
        mark = self._flag_now()
        return isinstance(mark, Untracked) and mark.inference

    def _flag(self: Any, flag: Flag) -> None:
        """Change the flag; what a trace changes outside of it is changed when the program has run."""
        MODES.interpreter.set_flag(self, flag)

    def _set_flag(self: Any, flag: Flag) -> None:
        """Change the flag. What requires no gradient has no history."""
        self._requires_grad = flag
        self._grad_fn = self._grad_fn if flag is True else None  # set from now on: read often

    def _flag_now(self: Any) -> Flag:
        flag: Flag = MODES.interpreter.current(self)._requires_grad
        return flag

    @property
    def grad_fn(self: Any) -> GradientNode | None:
        """The recorded operation that made this; None for leaves."""
        node: GradientNode | None = MODES.interpreter.current(self)._grad_fn
        return node

    @grad_fn.setter
    def grad_fn(self: Any, node: GradientNode | None) -> None:
        self._grad_fn = node

    def _current(self: Any) -> Tensor:
        return MODES.interpreter.current(self)

    def requires_grad_(self: Any, requires_grad: bool = True) -> Tensor:
        """Set `requires_grad` and return self. Raises `GradError` where the attribute cannot be set.

        >>> tracer.ones(2).requires_grad_()
        tensor([1., 1.], requires_grad=True)
        """
        self.requires_grad = requires_grad
        return self  # type: ignore[no-any-return]

    @property
    def is_leaf(self: Any) -> bool:
        """Whether no recorded operation made this."""
        return self.grad_fn is None

    @property
    def output_nr(self: Any) -> int:
        """Which result of `grad_fn`'s operation this is; 0 for a leaf."""
        return int(self._current().output_number)

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
