"""Which line of the user's code is running: the first frame outside this library. Errors and warnings get it here."""

from __future__ import annotations

import os
import sys
import warnings
from functools import cache
from types import FrameType
from typing import Any

from ops.errors import TracerError

_ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
_OWN = tuple(os.path.join(_ROOT, package) + os.sep for package in ("tracer", "ops", "codegen"))
_PYTHON = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED = tuple(os.path.join(_PYTHON, f"{kind}-packages") for kind in ("site", "dist"))


@cache
def is_own(filename: str) -> bool:
    """Whether code of that file is this library's."""
    return os.path.abspath(filename).startswith(_OWN) or filename.startswith("<tracer")


@cache
def _is_nobodys(filename: str) -> bool:
    """Whether code of that file is this library's, or Python's own: `copy`, `functools` and the like."""
    if is_own(filename) or filename.startswith("<frozen"):
        return True
    path = os.path.abspath(filename)
    return path.startswith(_PYTHON) and not path.startswith(_INSTALLED)


@cache
def shown(filename: str) -> str:
    """A file as users know it: from the working folder where it lies there."""
    relative = os.path.relpath(filename) if os.path.isabs(filename) else filename
    return filename if relative.startswith("..") else relative


def user_line() -> str:
    """file:line of the innermost frame that is neither this library's nor Python's own, "" if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if not _is_nobodys(filename):
            return f"{shown(filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def located(error: TracerError) -> TracerError:
    """The error with the user's line, once."""
    if getattr(error, "located", False):
        return error
    line = user_line()
    new = type(error)(f"{error}\n  at {line}" if line else str(error))
    new.located = True  # type: ignore[attr-defined]
    return new


def warn(message: str) -> None:
    """Give a `RuntimeWarning` at the user's line."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and is_own(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, RuntimeWarning, stacklevel=level)


def name_of(function: Any) -> str:
    """What messages call a function, or another object that is called."""
    return str(getattr(function, "__qualname__", type(function).__name__))
