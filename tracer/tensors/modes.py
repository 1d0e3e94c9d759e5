"""Thread-local modes: who computes, whether gradients are recorded, the module path.

Also the marks of Tensors and modes for which gradients are out of the question. Knows neither Tensors nor operators.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tracer.core.source_lines import user_line
from tracer.ir.graph import Origin

if TYPE_CHECKING:
    from tracer.tensors.anomaly_mode import AnomalyMode
    from tracer.tensors.interpreter import Interpreter


class Untracked:
    """More than "no gradient is wanted": stands where others have False, and is false.

    A Tensor with such a mark is `volatile` (whatever is computed from it is too), or was made in inference mode, or
    both. It takes the place of False so that code which asks "is it False?" sees it without a second question.
    """

    __slots__ = ("inference", "volatile")

    def __init__(self, volatile: bool, inference: bool) -> None:
        self.volatile, self.inference = volatile, inference

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return " ".join(name for name in ("volatile", "inference") if getattr(self, name))

    def __deepcopy__(self, memo: Any) -> Untracked:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return untracked, (self.volatile, self.inference)


Flag = bool | Untracked
VOLATILE = Untracked(True, False)
INFERENCE = Untracked(False, True)
_BOTH = Untracked(True, True)


def untracked(volatile: bool, inference: bool) -> Flag:
    """The mark of a Tensor that is these things, False if it is neither."""
    if volatile:
        return _BOTH if inference else VOLATILE
    return INFERENCE if inference else False


class _Modes(threading.local):
    grad_enabled: Flag = True  # INFERENCE in inference mode
    interpreter: Interpreter  # who computes: eager execution, or the recorder of a trace
    scope: tuple[str, ...] = ()
    modules: tuple[Any, ...] = ()
    anomaly: AnomalyMode | None = None  # what anomaly mode looks for; None where it is off
    packing: tuple[Callable[..., Any], Callable[..., Any]] | None = None  # saved_tensors_hooks


MODES = _Modes()


def set_default_interpreter(interpreter: Interpreter) -> None:
    """Say who computes in threads where nobody else does."""
    _Modes.interpreter = interpreter


@contextmanager
def interpreted_by(interpreter: Interpreter) -> Iterator[Interpreter]:
    """Inside, another interpreter computes in this thread."""
    previous, MODES.interpreter = MODES.interpreter, interpreter
    try:
        yield interpreter
    finally:
        MODES.interpreter = previous


def outside_traces(what: str) -> None:
    """Raise `TraceError` while a function is traced: a program would not repeat what is done."""
    MODES.interpreter.require_repeatable(what)


def here(gradient: bool = False) -> Origin:
    """Module path and line of the running code."""
    return Origin("/".join(MODES.scope), user_line(), gradient)
