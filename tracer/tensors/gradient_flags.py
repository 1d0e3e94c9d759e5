"""What a Tensor says of gradients: whether they are wanted, whether they are out of the question, and which operation made it.

Knows the flags. Must not know how a history is kept or walked, which is `tracer.autograd`.
"""

from __future__ import annotations

from typing import Any, Self

from ops.errors import GradError
from ops.types import is_floating, short
from tracer.core.source_lines import located
from tracer.tensors.modes import INFERENCE, MODES, Flag, Untracked, untracked


class GradientFlags:
    """The part of Tensor that is about its flags."""

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
    def grad_fn(self: Any) -> Any:
        """The recorded operation that made this; None for leaves."""
        return MODES.interpreter.current(self)._grad_fn

    @grad_fn.setter
    def grad_fn(self: Any, node: Any) -> None:
        self._grad_fn = node

    def _current(self: Any) -> Any:
        return MODES.interpreter.current(self)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set `requires_grad` and return self. Raises `GradError` where the attribute cannot be set.

        >>> tracer.ones(2).requires_grad_()
        tensor([1., 1.], requires_grad=True)
        """
        self.requires_grad = requires_grad
        return self

    @property
    def is_leaf(self: Any) -> bool:
        """Whether no recorded operation made this."""
        return self.grad_fn is None

    @property
    def output_nr(self: Any) -> int:
        """Which result of `grad_fn`'s operation this is; 0 for a leaf."""
        return int(self._current().output_number)
