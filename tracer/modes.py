"""Thread-local modes: whether gradients are recorded, the recorder of the running trace, the module path."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tracer.recording import Recorder

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _Modes(threading.local):
    grad_enabled: bool = True
    recorder: Recorder | None = None
    scope: tuple[str, ...] = ()
    modules: tuple[Any, ...] = ()


MODES = _Modes()


class _GradMode:
    """A context manager and decorator that sets whether gradients are recorded."""

    _enabled = False

    def __init__(self) -> None:
        self._previous: list[bool] = []

    def __enter__(self) -> None:
        self._previous.append(MODES.grad_enabled)
        MODES.grad_enabled = self._enabled

    def __exit__(self, *_: object) -> None:
        MODES.grad_enabled = self._previous.pop()

    def __call__(self, function: _Function) -> _Function:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with type(self)():
                return function(*args, **kwargs)

        return wrapped  # type: ignore[return-value]


class no_grad(_GradMode):  # noqa: N801 - PyTorch's name
    """Results do not require gradients; a context manager and a decorator."""


class enable_grad(_GradMode):  # noqa: N801 - PyTorch's name
    """Undo `no_grad` inside it; a context manager and a decorator."""

    _enabled = True


def is_grad_enabled() -> bool:
    """Whether operations on tensors that require gradients are recorded for them."""
    return MODES.grad_enabled
