"""Plans made ready to run: as rows of a program, or carried out by hand in a given order, for tests
and measurements.

Knows plans and the runtime's rows. Must not know how a plan is made.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from codegen.gemm.compiled import kernel
from codegen.gemm.planner import Address, GemmKernel, GemmPlan, Operand, Row
from codegen.runtime import program

Function = Callable[[int, int, int], object]
Pieces = Iterable[tuple[int, int]]


def program_rows(plan: GemmPlan, slots: Mapping[Operand, program.Slot]) -> list[program.Row]:
    """The plan's rows for `codegen.runtime.program`; `slots` says which slot holds each operand's
    address.
    """

    def argument(word: int | Address) -> program.Argument:
        if isinstance(word, int):
            return word
        slot = slots[word.operand]
        return program.Slot(slot.index, slot.offset + word.offset)

    return [
        program.Row(
            kernel(row.kernel).address,
            row.n,
            row.chunk,
            tuple(argument(word) for word in row.words),
        )
        for row in plan.rows
    ]


def compiled(which: GemmKernel) -> Function:
    """A kernel as a Python function that calls its machine code."""
    return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(
        kernel(which).address
    )


def bind(row: Row, addresses: Mapping[Operand, int]) -> npt.NDArray[np.int64]:
    """The argument block of a row, with the operands' addresses filled in."""
    return np.array(
        [w if isinstance(w, int) else addresses[w.operand] + w.offset for w in row.words], np.int64
    )


def in_order(row: Row) -> Pieces:
    """The pieces of a row as one thread takes them."""
    return ((lo, min(lo + row.chunk, row.n)) for lo in range(0, row.n, row.chunk))


def run(
    plan: GemmPlan,
    addresses: Mapping[Operand, int],
    function: Callable[[GemmKernel], Function] = compiled,
    pieces: Callable[[Row], Pieces] = in_order,
) -> None:
    """Call the kernels on the pieces of every row. `addresses`: of a, b, c and, where there is one,
    the workspace.
    """
    for row in plan.rows:
        block, call = bind(row, addresses), function(row.kernel)
        for lo, hi in pieces(row):
            call(lo, hi, block.ctypes.data)
