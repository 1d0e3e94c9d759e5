"""Which line of the user's code is running: the first frame outside this library; and in which module."""

from __future__ import annotations

import os
import sys
from functools import cache
from types import FrameType

from tracer.graph import Origin
from tracer.modes import MODES

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(_HERE)
_OWN = tuple(os.path.join(_ROOT, package) + os.sep for package in ("tracer", "ops", "codegen"))


@cache
def is_own(filename: str) -> bool:
    """Whether code of that file is this library's."""
    return os.path.abspath(filename).startswith(_OWN) or filename.startswith("<tracer")


@cache
def shown(filename: str) -> str:
    """A file as users know it: from the working folder where it lies there."""
    relative = os.path.relpath(filename) if os.path.isabs(filename) else filename
    return filename if relative.startswith("..") else relative


def user_line() -> str:
    """file:line of the innermost frame that is not this library's, "" if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        if not is_own(filename):
            return f"{shown(filename)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def here(gradient: bool = False) -> Origin:
    """Module path and line of the running code."""
    return Origin("/".join(MODES.scope), user_line(), gradient)
