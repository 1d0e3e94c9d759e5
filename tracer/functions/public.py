"""What every public function does with errors.

The user's line is added, internal frames are left out. Arguments that do not fit are told how it is called.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ops.errors import ArgumentError, TracerError
from tracer.core.source_lines import located

P = ParamSpec("P")
R = TypeVar("R")


def public(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose errors name the user's line and show one frame of ours at most."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TracerError as error:
            raise located(error).with_traceback(None) from None
        except TypeError as error:
            entered = error.__traceback__ is not None and error.__traceback__.tb_next is not None
            if entered:
                raise
            said = str(error).partition("() ")[2]
            what = f"{wrapped.__qualname__}() {said}" if said else str(error)
            new = ArgumentError(f"{what}; it is called as {_call_of(wrapped)}")
            raise located(new).with_traceback(None) from None

    return wrapped


def _call_of(function: Callable[..., Any]) -> str:
    """A function's name and parameters, without their types."""
    signature = inspect.signature(function)
    bare = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    shown = signature.replace(parameters=bare, return_annotation=inspect.Signature.empty)
    return f"{function.__name__}{shown}"
