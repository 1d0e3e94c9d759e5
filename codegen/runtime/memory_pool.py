"""Aligned blocks of memory that are used again, so that large results cost page faults only once.

A `Block` owns its memory until the last reference to it dies, arrays on it included; then the
memory goes to a list of idle pieces of its size class. Knows bytes and addresses, and NumPy for
`Block.array`; neither the types of operators nor Tensors.

Thread safe without a lock: the lists are only popped and appended, which CPython does in one step.
So a block may die in any thread, in a garbage collection in the midst of `allocate`, or in a forked
child, where memory is the child's own copy.

Idle memory is bounded by TRACER_IDLE_MEMORY (an eighth of the machine's memory unless given):
beyond it the largest idle pieces go back to the system. Memory from the system is zero, used memory
is not.
"""

from __future__ import annotations

import atexit
import ctypes
import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen import settings

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
_HUGE_PAGE = 2 << 20
_ADVISED = 2 * _HUGE_PAGE  # pieces of this size are aligned to huge pages and ask for them
_MAPPED = 128 << 10  # pieces of this size are a mapping of their own
_COUNTED = 1 << 20  # pieces of this size count towards the bound, one by one when they return
_SMALL_IDLE = 16 << 20  # idle bytes of each smaller size


class _Total:
    """Bytes of all pieces. They come from and go to the system rarely, and no other thread runs within an addition."""

    held = 0
    peak = 0

    def add(self, nbytes: int) -> None:
        self.held += nbytes
        if self.held > self.peak:
            self.peak = self.held


class _Piece:
    """Memory of one size class. Frees itself with its owner."""

    __slots__ = ("idle", "most", "owner", "pointer", "size", "view")
    total = _Total()  # here, where it outlives the module's names
    counted = _COUNTED

    def __init__(self, size: int, idle: list[_Piece]) -> None:
        self.size = size
        self.idle = idle
        self.most = max(_SMALL_IDLE // size, 8) if size < _COUNTED else 1 << 30
        self.pointer, self.owner = _from_system(size)
        self.view = ctypes.c_char * size
        self.total.add(size)

    def __del__(self) -> None:
        if hasattr(self, "owner"):
            self.total.add(-self.size)


@atexit.register
def _stop_counting() -> None:
    """When the interpreter ends, blocks come back after the module's names are gone, and what is idle is freed anyway."""
    _Piece.counted = 1 << 62


class Block:
    """`nbytes` bytes at `pointer`, aligned to 64. Made by `allocate`, which fills it in. `device`: the name of the target whose
    programs read and write it."""

    __slots__ = ("_piece", "nbytes", "pointer")

    device = "cpu"
    pointer: int
    nbytes: int
    _piece: _Piece

    def __del__(self) -> None:
        piece = self._piece
        idle = piece.idle
        if len(idle) < piece.most:
            idle.append(piece)
            if piece.size >= piece.counted:
                _bound()

    def array(
        self,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        offset: int = 0,
        strides: Sequence[int] | None = None,
    ) -> npt.NDArray[Any]:
        """An array on this memory, which it keeps alive; offset and strides in bytes."""
        view: Any = self._piece.view.from_address(self.pointer)
        view.block = self
        return np.ndarray(shape, dtype, view, offset, strides)

    def __repr__(self) -> str:
        return f"Block({self.nbytes} bytes at {self.pointer:#x})"


def allocate(nbytes: int, kind: type[Block] = Block) -> Block:
    """A block of at least one byte; what it holds is undefined. `kind`: Block, or a kind of it for another device that reads
    this memory."""
    if nbytes <= ALIGNMENT:
        if nbytes < 0:
            raise ValueError(f"a block has at least 0 bytes, got {nbytes}")
        size = ALIGNMENT
    else:  # the next of 4 sizes between powers of two: at most a fifth is not used
        shift = (nbytes - 1).bit_length() - 3
        size = -(-nbytes >> shift) << shift
    try:
        piece = _idle[size].pop()
    except (KeyError, IndexError):
        piece = _Piece(size, _idle.setdefault(size, []))
    block = kind()  # without a constructor: a third of the time
    block.pointer = piece.pointer
    block.nbytes = nbytes
    block._piece = piece
    return block


@dataclass(frozen=True, slots=True)
class MemoryStatistics:
    """`system`: pieces that came from the system so far. `idle`: bytes that wait to be used
    again. `held`: bytes of all pieces, idle or not. `peak`: the most that were held at once since
    `reset_peak`.
    """

    system: int
    idle: int
    held: int
    peak: int


def statistics() -> MemoryStatistics:
    """What the pool has done and holds."""
    idle = sum(size * len(idle) for size, idle in list(_idle.items()))
    return MemoryStatistics(_made, idle, _Piece.total.held, _Piece.total.peak)


def reset_peak() -> None:
    """Give idle memory back and count the peak from here.

    A size gets a new piece only while all of its pieces are in use, so the peak is what programs
    need from here on, without a count at each block.
    """
    trim()
    _Piece.total.peak = _Piece.total.held


def trim(limit: int = 0) -> None:
    """Give idle memory back to the system, the largest pieces first, until `limit` bytes are
    left.
    """
    _shrink(sorted(list(_idle.items()), reverse=True), limit)


_idle: dict[int, list[_Piece]] = {}
_made = 0


def _bound() -> None:
    large = [(size, idle) for size, idle in list(_idle.items()) if size >= _COUNTED]
    if sum(size * len(idle) for size, idle in large) > _limit:
        _shrink(sorted(large, reverse=True), _limit)


def _shrink(classes: list[tuple[int, list[_Piece]]], limit: int) -> None:
    total = sum(size * len(idle) for size, idle in classes)
    for size, idle in classes:
        while total > limit:
            try:
                idle.pop(0)  # the one that waited longest
            except IndexError:
                break
            total -= size


def _from_system(size: int) -> tuple[int, Any]:
    """(pointer, owner) of new memory."""
    global _made
    _made += 1
    try:
        return _new(size)
    except (OSError, MemoryError, OverflowError):
        trim()
    try:
        return _new(size)
    except (OSError, MemoryError, OverflowError) as error:
        raise MemoryError(f"the system has no {size / (1 << 20):.1f} MiB of memory left") from error


def _new(size: int) -> tuple[int, Any]:
    if size < _MAPPED:
        owner: Any = (ctypes.c_char * (size + ALIGNMENT))()
        return -(-ctypes.addressof(owner) // ALIGNMENT) * ALIGNMENT, owner
    slack = _HUGE_PAGE if size >= _ADVISED else 0  # never touched, so never there
    if hasattr(mmap, "MAP_ANONYMOUS"):
        # Private, or a forked child would write into its parent's results.
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        mapping = mmap.mmap(-1, size + slack, flags=flags)
    else:
        mapping = mmap.mmap(-1, size + slack)
    if slack and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without
            mapping.madvise(mmap.MADV_HUGEPAGE)
    owner = ctypes.c_char.from_buffer(mapping)  # holds the mapping, and it cannot be closed
    address = ctypes.addressof(owner)
    return (-(-address // slack) * slack if slack else address), owner


def _default_limit() -> int:
    with suppress(AttributeError, ValueError, OSError):  # not everywhere
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8)
    return 1 << 30


_limit = settings.size("TRACER_IDLE_MEMORY", _default_limit())
