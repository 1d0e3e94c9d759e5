"""Plans carried out by hand, in a given order and with given kernels, for tests and measurements.

Knows plans. Must not know how a plan is made.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.runtime.library import LibraryKernel, LibraryPlan, LibraryRow, OperandAddress

Function = Callable[[int, int, int], object]
Pieces = Iterable[tuple[int, int]]


def compiled(which: LibraryKernel) -> Function:
    """A kernel as a Python function that calls its machine code."""
    return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(
        which.load().address
    )


def bind(row: LibraryRow, addresses: Mapping[str, int]) -> npt.NDArray[np.int64]:
    """The argument block of a row, with the operands' addresses filled in."""
    words = (
        addresses[w.operand] + w.offset if isinstance(w, OperandAddress) else w for w in row.words
    )
    return np.array(list(words), np.int64)


def in_order(row: LibraryRow) -> Pieces:
    """The pieces of a row as one thread takes them."""
    return ((lo, min(lo + row.chunk, row.n)) for lo in range(0, row.n, row.chunk))


def run(
    plan: LibraryPlan,
    addresses: Mapping[str, int],
    function: Callable[[Any], Function] = compiled,
    pieces: Callable[[LibraryRow], Pieces] = in_order,
) -> None:
    """Call the kernels on the pieces of every row. `addresses`: of a, b, c and, where there is one,
    the workspace.
    """
    for row in plan.rows:
        block, call = bind(row, addresses), function(row.kernel)
        for lo, hi in pieces(row):
            call(lo, hi, block.ctypes.data)
