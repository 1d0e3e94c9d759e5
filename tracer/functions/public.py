"""What every public function does with errors.

The user's line is added, internal frames are left out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ops.errors import TracerError
from tracer.dispatch import located

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

    return wrapped
