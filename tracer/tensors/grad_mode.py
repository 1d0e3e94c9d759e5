"""Whether gradients are recorded: `no_grad`, `enable_grad`, `inference_mode`, as contexts and decorators.

Knows the modes of the thread. Must not know Tensors or operators.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar

from ops.errors import ArgumentError
from tracer.core.source_lines import located
from tracer.tensors.modes import INFERENCE, MODES, Flag

_Function = TypeVar("_Function", bound=Callable[..., Any])


class _GradMode:
    """A context manager and decorator that sets `MODES.grad_enabled` in its thread. One object may be entered again inside itself
    and in several threads at once."""

    def __init__(self) -> None:
        self._previous: dict[int, list[Flag]] = {}  # by thread

    def _chosen(self) -> Flag:
        """What to set where it is entered."""
        raise NotImplementedError

    def __enter__(self) -> None:
        self._previous.setdefault(threading.get_ident(), []).append(MODES.grad_enabled)
        MODES.grad_enabled = self._chosen()

    def __exit__(self, *_: object) -> None:
        thread = threading.get_ident()
        previous = self._previous[thread]
        MODES.grad_enabled = previous.pop()
        if not previous:
            del self._previous[thread]  # numbers of threads are used again

    def __call__(self, function: _Function) -> _Function:
        """The function with the mode set while its code runs; also generators and coroutines, between whose steps others run."""
        if not callable(function) or inspect.isclass(function):
            name = type(self).__name__
            what = "decorate its methods" if callable(function) else "call it without arguments"
            raise located(
                ArgumentError(f"{name} decorates functions, got {function!r:.60}; {what}")
            )
        decorated: _Function = _decorated(self, function)
        return decorated


def _decorated(mode: _GradMode, function: Any) -> Any:
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return _async_steps(_Turns(mode), function(*args, **kwargs))

    elif inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapped(*args: Any, **kwargs: Any) -> Any:
            return await _Awaited(_Turns(mode), function(*args, **kwargs))

    elif inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            return (yield from _steps(_Turns(mode), function(*args, **kwargs)))

    else:

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with mode:
                return function(*args, **kwargs)

    return wrapped


class _Turns:
    """The mode inside something that runs in turns with others: set while it runs, kept while they do."""

    def __init__(self, mode: _GradMode) -> None:
        self._mode = mode
        self._inside: Flag | None = None

    def run(self, step: Callable[..., Any], *args: Any) -> Any:
        outside = MODES.grad_enabled
        MODES.grad_enabled = self._mode._chosen() if self._inside is None else self._inside
        try:
            return step(*args)
        finally:
            self._inside, MODES.grad_enabled = MODES.grad_enabled, outside


def _steps(turns: _Turns, inner: Any) -> Generator[Any, Any, Any]:
    """`yield from inner`, a generator or coroutine, each step of it in its own mode."""
    step, argument = inner.send, None
    while True:
        try:
            response = turns.run(step, argument)
        except StopIteration as stop:
            return stop.value
        try:
            step, argument = inner.send, (yield response)
        except GeneratorExit:
            turns.run(inner.close)
            raise
        except BaseException as error:
            step, argument = inner.throw, error


class _Awaited:
    """`await` of something in its own mode."""

    def __init__(self, turns: _Turns, inner: Any) -> None:
        self._turns, self._inner = turns, inner

    def __await__(self) -> Generator[Any, Any, Any]:
        return _steps(self._turns, self._inner)


async def _async_steps(turns: _Turns, inner: Any) -> AsyncGenerator[Any, Any]:
    """The same as `_steps` for an asynchronous generator."""
    step, argument = inner.asend, None
    while True:
        try:
            response = await _Awaited(turns, step(argument))
        except StopAsyncIteration:
            return
        try:
            step, argument = inner.asend, (yield response)
        except GeneratorExit:
            await _Awaited(turns, inner.aclose())
            raise
        except BaseException as error:
            step, argument = inner.athrow, error


class _WithoutArguments(_GradMode):
    """One that decorates with and without parentheses."""

    def __new__(cls, function: Any = None) -> Any:
        """A mode, or with a function given, that function decorated."""
        made = super().__new__(cls)
        if function is None:
            return made
        made.__init__()  # type: ignore[misc]
        return made(function)

    def __init__(self, function: Any = None) -> None:
        super().__init__()


class no_grad(_WithoutArguments):  # noqa: N801 - PyTorch's name
    """Results do not require gradients and keep nothing for them; a context manager and a decorator.

    >>> x = tracer.tensor(2.0, requires_grad=True)
    >>> with tracer.no_grad():
    ...     y = x * x
    >>> y.requires_grad
    False
    """

    def _chosen(self) -> Flag:
        return INFERENCE if MODES.grad_enabled is INFERENCE else False


class enable_grad(_WithoutArguments):  # noqa: N801 - PyTorch's name
    """Undo `no_grad` inside it; a context manager and a decorator. In inference mode it does nothing.

    >>> x = tracer.tensor(2.0, requires_grad=True)
    >>> with tracer.no_grad():
    ...     with tracer.enable_grad():
    ...         y = x * x
    >>> y.requires_grad
    True
    """

    def _chosen(self) -> Flag:
        return INFERENCE if MODES.grad_enabled is INFERENCE else True


class set_grad_enabled(_GradMode):  # noqa: N801 - PyTorch's name
    """`no_grad` or `enable_grad`, as `mode` says: from this call on, or only inside, as a context manager or decorator.

    >>> with tracer.set_grad_enabled(False):
    ...     tracer.is_grad_enabled()
    False
    """

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise located(ArgumentError(f"set_grad_enabled takes True or False, got {mode!r:.60}"))
        super().__init__()
        self.mode = mode
        self._before: Flag | None = MODES.grad_enabled
        self._thread = threading.get_ident()
        MODES.grad_enabled = self._chosen()

    def _chosen(self) -> Flag:
        return INFERENCE if MODES.grad_enabled is INFERENCE else self.mode

    def _take_back(self) -> None:
        """Undo what the constructor did, once."""
        before, self._before = self._before, None
        if before is not None and threading.get_ident() == self._thread:
            MODES.grad_enabled = before

    def __enter__(self) -> None:
        self._take_back()
        super().__enter__()

    def __call__(self, function: _Function) -> _Function:
        """The function with the mode set while its code runs."""
        self._take_back()
        return super().__call__(function)


class inference_mode(_GradMode):  # noqa: N801 - PyTorch's name
    """`no_grad` for good: what is made inside can have no part in gradients afterwards, see `Tensor.is_inference`.

    A context manager and a decorator, with and without parentheses; `inference_mode(False)` undoes it inside.

    >>> with tracer.inference_mode():
    ...     y = tracer.ones(2) * 2
    >>> y.is_inference()
    True
    """

    def __new__(cls, mode: Any = True) -> Any:
        """A mode, or with a function given, that function decorated."""
        made = super().__new__(cls)
        if isinstance(mode, bool):
            return made
        made.__init__()  # type: ignore[misc]
        return made(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = mode

    def _chosen(self) -> Flag:
        return INFERENCE if self.mode else True


def is_grad_enabled() -> bool:
    """Whether operations on tensors that require gradients are recorded for them.

    >>> with tracer.no_grad():
    ...     tracer.is_grad_enabled()
    False
    """
    return MODES.grad_enabled is True


def is_inference_mode_enabled() -> bool:
    """Whether `inference_mode` is on.

    >>> tracer.is_inference_mode_enabled()
    False
    """
    return MODES.grad_enabled is INFERENCE
