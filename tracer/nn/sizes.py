"""Sizes that layers are made with, checked where they are given."""

from __future__ import annotations

import operator
from typing import Any

from ops.errors import ArgumentError
from tracer.core.source_lines import located


def size(name: str, value: Any) -> int:
    """An integer from 0 on. Raises `ArgumentError` for anything else."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if number < 0 or isinstance(value, bool):
        raise located(ArgumentError(f"{name} must be an integer from 0 on, got {value!r:.60}"))
    return number


def shape(name: str, value: Any) -> tuple[int, ...]:
    """An integer or a sequence of them, as a tuple. Raises `ArgumentError` for anything else."""
    if isinstance(value, list | tuple):
        return tuple(size(name, d) for d in value)
    return (size(name, value),)
