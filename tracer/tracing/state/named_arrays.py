"""NumPy arrays that the code of a traced function names: what NumPy computes with them in a trace, nobody records.

An array that tracer's functions read is an input of the program. What NumPy itself makes of an array is a constant of the trace,
so guards compare the elements of arrays that only NumPy read. What NumPy writes into one during a trace would be lost: an error.

Knows arrays as `uses` finds them, and only small ones: the others would have to be read at every call.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

import numpy as np

from ops.errors import TraceError
from tracer.core.source_lines import shown
from tracer.tensors.tensor import Tensor
from tracer.tracing.state.assigned_places import NamedObjects

MOST_BYTES = 1 << 16  # of an array whose elements are compared at every call: microseconds


def is_small(array: np.ndarray[Any, Any]) -> bool:
    """Whether the elements of an array are compared."""
    return array.nbytes <= MOST_BYTES and not array.dtype.hasobject


def lenders(captured: Any) -> Iterator[Any]:
    """A Tensor's array or an array, and those whose memory it is a view of."""
    array = captured._array if isinstance(captured, Tensor) else captured
    while isinstance(array, np.ndarray):
        yield array
        array = array.base


class NamedArrays:
    """The arrays that a function names, with their elements before it is traced."""

    def __init__(self, named: NamedObjects) -> None:
        self._function = named.function
        self._before = [
            (source, source.value.tobytes())
            for source in named.read
            if isinstance(source.value, np.ndarray) and is_small(source.value)
        ]

    def check(self) -> None:
        """Raise `TraceError` for one that has other elements now."""
        for source, before in self._before:
            if source.value.tobytes() != before:
                error = TraceError(
                    f"NumPy changed the array {source.name} while a function was traced, which the compiled program would not "
                    "do again. Keep it in a Tensor (tracer.tensor), whose changes are recorded, or change it outside of the "
                    f"traced function{_definition(self._function)}"
                )
                error.located = True  # type: ignore[attr-defined]
                raise error


def _definition(function: Any) -> str:
    while not isinstance(function, types.FunctionType):
        function = getattr(function, "__func__", None) or getattr(function, "func", None)
        if function is None:
            return ""
    return f"\n  at {shown(function.__code__.co_filename)}:{function.__code__.co_firstlineno}"
