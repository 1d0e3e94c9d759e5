"""Library kernels: what is no fused loop nest (products of matrices, LAPACK, later sorts and convolutions) as rows of a program.

A `Library` plans a problem: sizes, strides and element types, as data of its own class. The `LibraryPlan`
says how many bytes of workspace it needs and which rows run, in order. A row names what it calls, the
range that it counts and the words of its argument block; where operands lie is not known yet, so words
name them. `program_rows` puts their addresses in, and the program runs these rows among all others.

Knows the runtime's rows. Must not know what any library computes, nor graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from codegen.runtime import AddressOf, AddressOfNumber, Argument, Row, Slot
from codegen.toolchain.kernel_store import Kernel

WORKSPACE = "workspace"  # the operand that the plan itself asks for


class Epilogue(Enum):
    """What a library can do to its result before it stores it, so that no kernel has to read it again.

    Elementwise texts on the product would be another one (`codegen.gemm.emit_finish` says where they go).
    """

    ACCUMULATE = "the result is added to what its memory holds"


@dataclass(frozen=True, slots=True)
class OperandAddress:
    """Where an operand of the problem will lie, plus bytes."""

    operand: str
    offset: int = 0


Word = int | OperandAddress | AddressOf | AddressOfNumber


class LibraryKernel(Protocol):
    """What a row calls: void(int64 lo, int64 hi, int64 address of the argument block)."""

    def load(self) -> Kernel:
        """Its machine code, compiled or from the cache."""
        ...


@dataclass(frozen=True, slots=True)
class LibraryRow:
    """Tasks 0 to n in pieces of `chunk`, on any thread in any order, once the row before has ended.
    `job`: what it does, in a word."""

    job: str
    kernel: LibraryKernel
    n: int
    chunk: int
    words: tuple[Word, ...]


class LibraryPlan(Protocol):
    """How one problem is computed. `workspace`: bytes, aligned to 64, that its rows need beside the operands."""

    @property
    def rows(self) -> Sequence[LibraryRow]:
        """In order."""
        ...

    @property
    def workspace(self) -> int:
        """Bytes; the rows know them as the operand `WORKSPACE`."""
        ...


@dataclass(frozen=True, slots=True)
class Library:
    """One library. `name` is what `fn.plan()` shows; `plan(problem)` decides by the problem alone; `epilogues`: what a problem
    may ask for beside the result itself."""

    name: str
    plan: Callable[[Any], LibraryPlan]
    epilogues: frozenset[Epilogue] = frozenset()


def program_rows(plan: LibraryPlan, operands: Mapping[str, Argument]) -> list[Row]:
    """The plan's rows for a program, their kernels compiled or loaded. `operands` says where each operand lies: the slot that
    holds its address, or the address itself."""
    return [
        Row(row.kernel.load().address, row.n, row.chunk, _arguments(row.words, operands))
        for row in plan.rows
    ]


def _arguments(words: Sequence[Word], operands: Mapping[str, Argument]) -> tuple[Argument, ...]:
    return tuple(_placed(w, operands) if isinstance(w, OperandAddress) else w for w in words)


def _placed(word: OperandAddress, operands: Mapping[str, Argument]) -> Argument:
    match operands[word.operand]:
        case Slot(index, offset):
            return Slot(index, offset + word.offset)
        case int(address):
            return address + word.offset
        case place if not word.offset:
            return place
        case place:
            raise ValueError(f"{word} is beyond the number that lies at {place}")
