"""What becomes of Tensors that are kept for gradients: `saved_tensors_hooks`, under PyTorch's name for the place.

Knows a kept Tensor and the two functions around it. Must not know which Tensors are kept, or why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ops.errors import GradError
from ops.types import short
from tracer.autograd.hooks import require_callable
from tracer.core.source_lines import name_of
from tracer.tensors.grad_mode import no_grad
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor


class saved_tensors_hooks:  # noqa: N801 - PyTorch's name
    """Inside, what is kept for gradients is kept as `pack_hook(tensor)`, and read as `unpack_hook(what that gave)`.

    So it may be kept in a smaller type, in a file, or computed again. `unpack_hook` gives a Tensor of the same shape and
    element type. Of several blocks the innermost counts. Inside a traced function both are part of its program; around
    its call they are told what the call keeps for a backward outside.

    >>> def pack(kept):
    ...     return kept.half()
    >>> x = tracer.tensor([1.0, 2.0], requires_grad=True)
    >>> with tracer.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.float()):
    ...     y = (x * x).sum()
    >>> y.backward()
    >>> x.grad
    tensor([2., 4.])
    """

    def __init__(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        require_callable(pack_hook)
        require_callable(unpack_hook)
        self._hooks = pack_hook, unpack_hook
        self._previous: list[Any] = []

    def __enter__(self) -> None:
        self._previous.append(MODES.packing)
        MODES.packing = self._hooks

    def __exit__(self, *_: object) -> None:
        MODES.packing = self._previous.pop()


class Packed:
    """A Tensor that is kept as something else."""

    __slots__ = ("_content", "_unpack", "type")

    def __init__(self, tensor: Tensor) -> None:
        from tracer.dispatch.view_updates import frozen

        assert MODES.packing is not None
        pack, self._unpack = MODES.packing
        self.type = tensor.type
        with no_grad(), _nothing_packed():
            self._content = pack(frozen(tensor))

    def unpacked(self) -> Tensor:
        """The Tensor, without history. Raises `GradError` if the hook gives something else."""
        with no_grad(), _nothing_packed():
            result = self._unpack(self._content)
        if (
            isinstance(result, Tensor)
            and result.type.shape == self.type.shape
            and result.type.dtype == self.type.dtype
        ):
            return result.detach()
        got = short(result.type) if isinstance(result, Tensor) else type(result).__name__
        raise GradError(
            f"the hook {name_of(self._unpack)} must give back the Tensor {short(self.type)} that was kept for the gradient, "
            f"got {got}"
        )


class _nothing_packed:  # noqa: N801 - a context manager
    def __enter__(self) -> None:
        self._previous, MODES.packing = MODES.packing, None

    def __exit__(self, *_: object) -> None:
        MODES.packing = self._previous


def packed(tensor: Tensor) -> Tensor | Packed:
    """The Tensor as it is kept."""
    return tensor if MODES.packing is None else Packed(tensor)


def unpacked(kept: Tensor | Packed) -> Tensor:
    """What was kept."""
    return kept.unpacked() if isinstance(kept, Packed) else kept


__all__ = [
    "saved_tensors_hooks",
]
