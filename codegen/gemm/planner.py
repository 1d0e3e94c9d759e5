"""A multiplication as rows of a program: which tasks, in what order, on which argument blocks.
Decided by shapes alone.

Knows problems, tiles and argument blocks, and the rows of `codegen.runtime.library`. Must not know Numba,
how parts work, or how many threads will come.

Usually there is one row, whose tasks read A in place and pack on their stack what of B they need.
An operand is packed as a whole first, in a row of its own, where many tasks would pack the same
part of it or read it badly. Which way is taken, and where tasks are cut, never changes a bit (see
`problem`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from codegen.gemm import argument_block
from codegen.gemm.element import Element, Tile, tile_of
from codegen.gemm.problem import Problem, canonical, ceil_div, k_blocks
from codegen.runtime.library import WORKSPACE, LibraryRow, OperandAddress, Word
from codegen.toolchain.kernel_store import Kernel
from codegen.vector.elements import WIDTH

_ALIGNMENT = 64
_TASK_WORK = 2 << 20  # multiply-adds of a task: about 25 us on one core
_CHUNK_WORK = 1 << 20  # less is not worth handing to another thread
_ROW_WORK = 1 << 18  # the same for a single row, which waits for memory
_TASKS = 32  # more do not balance better
_ROW_TASKS = 8  # the same for a single row
# Bytes of A, for one block of k, that stay in a second-level cache: less in place, where lines may
# compete for few places.
_BLOCK = {
    argument_block.DIRECT: 1 << 18,
    argument_block.PACKED: 1 << 19,
    argument_block.COPIED: argument_block.SCRATCH_A,
}
_NEAR = 1 << 18  # bytes of an operand that are read well in place, whatever the strides


@dataclass(frozen=True, slots=True)
class GemmKernel:
    """Which kernel: "matrix" packs and multiplies tiles, "row" is for problems with one row."""

    element: Element
    tile: Tile
    form: Literal["matrix", "row"]

    def load(self) -> Kernel:
        """Its machine code, compiled or from the cache."""
        from codegen.gemm.compiled import kernel

        return kernel(self)


@dataclass(frozen=True, slots=True)
class GemmPlan:
    """Rows in order, and the bytes, aligned to 64, that they need beside the operands."""

    rows: tuple[LibraryRow, ...]
    workspace: int


@dataclass(frozen=True, slots=True)
class Choice:
    """How a problem is cut: where tasks find A and B (`words.DIRECT` ...), and rectangles of tiles
    along m and n.
    """

    a_mode: int
    b_mode: int
    tasks_m: int
    tasks_n: int


def plan(problem: Problem, choice: Choice | None = None) -> GemmPlan:
    """The rows that compute `problem` on this kind of machine. `choice` is for tests and
    measurements.
    """
    if problem.empty:
        return GemmPlan((), 0)
    p, turned = canonical(problem)
    tile = tile_of(p.element)
    if choice is None and p.m == 1:
        return GemmPlan((_row(p, tile, turned),), 0)
    how = choice or choose(p, tile)
    _check(p, tile, how)
    rows: list[LibraryRow] = []
    workspace = 0
    placed: list[tuple[OperandAddress, tuple[int, ...]]] = []
    for side, wide, mode in zip(
        _sides(p, turned), (False, True), (how.a_mode, how.b_mode), strict=True
    ):
        if mode == argument_block.PACKED:
            row, batch, size = _pack(p, tile, wide, side, workspace)
            placed.append((OperandAddress(WORKSPACE, workspace), batch))
            rows.append(row)
            workspace += size
        else:
            placed.append(_in_place(p, side))
    kernel = GemmKernel(p.element, tile, "matrix")
    panels_m, panels_n = _panels(p, tile)
    n = how.tasks_m * how.tasks_n * math.prod(p.batch)
    block = _arguments(p, how, panels_m, panels_n, placed)
    rows.append(LibraryRow("multiply", kernel, n, _chunk(p, n, _CHUNK_WORK), block))
    return GemmPlan(tuple(rows), workspace)


def choose(p: Problem, tile: Tile) -> Choice:
    """How to cut a canonical problem of several rows."""
    element, size = p.element, p.element.memory_size
    panels_m, panels_n = _panels(p, tile)
    work = p.m * p.n * p.k
    # A is read in place where k is contiguous, as it is a few rows at a time, and where it is small
    # or read once.
    small_a = panels_n <= 4 or p.m * p.k * size <= _NEAR
    if not element.converts and (p.a.column == 1 or small_a):
        a_mode = argument_block.DIRECT
    else:
        a_mode = argument_block.PACKED if work >= _TASK_WORK else argument_block.COPIED
    block, _ = k_blocks(p.k)
    high = max(1, _BLOCK[a_mode] // (block * tile.pitch * element.lane_size))
    tasks_m, tasks_n = ceil_div(panels_m, high), 1
    # B is read in place where it is small, or for few rows; else tasks pack it a panel at a time,
    # unless so many would pack the same panel that one row of the program had better do it.
    span = abs(p.b.row) * p.k * size
    near_b = panels_m == 1 or span <= (_NEAR if panels_m <= 8 else _NEAR >> 4)
    if near_b and _direct_b(p):
        b_mode = argument_block.DIRECT
    else:
        b_mode = argument_block.PACKED if tasks_m >= 8 else argument_block.COPIED
    # Then cut along n, where each panel of B still belongs to one task, and along m when that is
    # far from enough.
    entries = math.prod(p.batch)
    tasks = min(_TASKS, work * entries // _TASK_WORK) // entries
    fit = _tiles_fit(p, tile)
    while True:
        count_m, count_n = ceil_div(panels_m, tasks_m), ceil_div(panels_n, tasks_n)
        if (2 * tasks_m * tasks_n > tasks and count_m * count_n <= fit) or count_m * count_n == 1:
            return Choice(a_mode, b_mode, tasks_m, tasks_n)
        if count_n > 1:
            tasks_n = min(2 * tasks_n, panels_n)
        else:
            tasks_m = min(2 * tasks_m, panels_m)


def _panels(p: Problem, tile: Tile) -> tuple[int, int]:
    return ceil_div(p.m, tile.rows), ceil_div(p.n, tile.columns)


def _direct_b(p: Problem) -> bool:
    return not p.element.converts and (p.b.column == 1 or p.n == 1)


def _tiles_fit(p: Problem, tile: Tile) -> int:
    """Tiles whose sums fit the stack of a task; they are kept there from one block of k to the
    next.
    """
    if k_blocks(p.k)[1] == 1:
        return 1 << 62
    return argument_block.SCRATCH_TILES // (tile.rows * tile.columns * p.element.lane_size)


def _check(p: Problem, tile: Tile, how: Choice) -> None:
    """A choice that would read what is not there, or write past the stack of a task, is an error
    here.
    """
    panels_m, panels_n = _panels(p, tile)
    high, wide = ceil_div(panels_m, how.tasks_m), ceil_div(panels_n, how.tasks_n)
    line = k_blocks(p.k)[0] * p.element.lane_size
    fit_a = argument_block.SCRATCH_A // (line * tile.pitch)
    right = (
        line * tile.columns <= argument_block.SCRATCH_B
        and line * tile.pitch <= argument_block.SCRATCH_A
        and 1 <= how.tasks_m <= panels_m
        and 1 <= how.tasks_n <= panels_n
        and high * wide <= _tiles_fit(p, tile)
        and (how.a_mode != argument_block.COPIED or high <= fit_a)
        and (how.a_mode != argument_block.DIRECT or not p.element.converts)
        and (how.b_mode != argument_block.DIRECT or _direct_b(p))
    )
    if not right:
        raise ValueError(f"matmul: {how} does not fit {p} in tiles of {tile}")


@dataclass(frozen=True, slots=True)
class _Side:
    """An operand as panels see it: strides from row to row of A or column to column of B, and along
    k.
    """

    operand: str
    outer: int
    stride: int
    k_stride: int
    batch: tuple[int, ...]


def _sides(p: Problem, turned: bool) -> tuple[_Side, _Side]:
    return (
        _Side("b" if turned else "a", p.m, p.a.row, p.a.column, p.a.batch),
        _Side("a" if turned else "b", p.n, p.b.column, p.b.row, p.b.batch),
    )


def _in_place(p: Problem, side: _Side) -> tuple[OperandAddress, tuple[int, ...]]:
    return OperandAddress(side.operand), tuple(s * p.element.memory_size for s in side.batch)


def _row(p: Problem, tile: Tile, turned: bool) -> LibraryRow:
    """The one row of a problem with m = 1."""
    groups = ceil_div(p.n, WIDTH)
    fit = argument_block.SCRATCH_B // (WIDTH * p.element.lane_size)
    tasks = min(p.n * p.k // _ROW_WORK, _ROW_TASKS)
    if p.b.column == 1:  # short pieces of many rows are read badly
        tasks = min(tasks, max(2, p.n // 1024))
    tasks = max(1, min(tasks, groups), ceil_div(groups, fit))
    n = tasks * math.prod(p.batch)
    placed = [_in_place(p, side) for side in _sides(p, turned)]
    block = _arguments(
        p, Choice(argument_block.DIRECT, argument_block.DIRECT, 1, tasks), 1, groups, placed
    )
    return LibraryRow(
        "multiply", GemmKernel(p.element, tile, "row"), n, _chunk(p, n, _ROW_WORK), block
    )


def _chunk(p: Problem, n: int, least: int) -> int:
    """Tasks that make a piece of `least` multiply-adds."""
    work = max(1, p.m * p.n * p.k * math.prod(p.batch) // n)
    return max(1, min(n, least // work))


def _pack(
    p: Problem, tile: Tile, wide: bool, side: _Side, offset: int
) -> tuple[LibraryRow, tuple[int, ...], int]:
    """The row that packs an operand into the workspace; the batch strides there, and the bytes of
    all.
    """
    step, width = (tile.columns, tile.columns) if wide else (tile.rows, tile.pitch)
    size = p.element.memory_size
    panels = ceil_div(side.outer, step)
    matrix = ceil_div(panels * p.k * width * p.element.lane_size, _ALIGNMENT) * _ALIGNMENT
    count = 1
    batch: list[int] = []
    records: list[int] = []
    for entries, stride in reversed(list(zip(p.batch, side.batch, strict=True))):
        batch.insert(0, matrix * count if stride else 0)
        if stride:  # entries that share a matrix share its panels
            records[:0] = [entries, stride * size, matrix * count]
            count *= entries
    group = min(panels, max(1, 128 // step))
    groups = ceil_div(panels, group)
    head: dict[int, Word] = {
        argument_block.JOB: argument_block.PACK,
        argument_block.SOURCE: OperandAddress(side.operand),
        argument_block.TARGET: OperandAddress(WORKSPACE, offset),
        argument_block.PANELS: panels,
        argument_block.OUTER: side.outer,
        argument_block.OUTER_STRIDE: side.stride * size,
        argument_block.K_COUNT: p.k,
        argument_block.K_STRIDE: side.k_stride * size,
        argument_block.WIDE: int(wide),
        argument_block.GROUP: group,
        argument_block.GROUPS: groups,
        argument_block.PACK_AXES: len(records) // argument_block.PACK_RECORD,
    }
    n = groups * count
    chunk = max(1, min(n, (1 << 15) // max(1, group * step * p.k)))
    row = LibraryRow(
        f"pack {side.operand}",
        GemmKernel(p.element, tile, "matrix"),
        n,
        chunk,
        _block(argument_block.PACK_RECORDS, head, records),
    )
    return row, tuple(batch), matrix * count


def _arguments(
    p: Problem,
    how: Choice,
    panels_m: int,
    panels_n: int,
    placed: list[tuple[OperandAddress, tuple[int, ...]]],
) -> tuple[Word, ...]:
    """The argument block of the row that multiplies."""
    size = p.element.memory_size
    block, blocks = k_blocks(p.k)
    (a, a_batch), (b, b_batch) = placed
    head: dict[int, Word] = {
        argument_block.JOB: argument_block.TILES,
        argument_block.A: a,
        argument_block.B: b,
        argument_block.C: OperandAddress("c"),
        argument_block.M: p.m,
        argument_block.N: p.n,
        argument_block.K: p.k,
        argument_block.K_BLOCK: block,
        argument_block.K_BLOCKS: blocks,
        argument_block.A_MODE: how.a_mode,
        argument_block.A_ROW: p.a.row * size,
        argument_block.A_COLUMN: p.a.column * size,
        argument_block.B_MODE: how.b_mode,
        argument_block.B_ROW: p.b.row * size,
        argument_block.B_COLUMN: p.b.column * size,
        argument_block.C_ROW: p.c.row * size,
        argument_block.PANELS_M: panels_m,
        argument_block.PANELS_N: panels_n,
        argument_block.TASKS_M: how.tasks_m,
        argument_block.TASKS_N: how.tasks_n,
        argument_block.ACCUMULATE: int(p.accumulate),
        argument_block.AXES: len(p.batch),
    }
    records = [
        word
        for entries, x, y, z in zip(p.batch, a_batch, b_batch, p.c.batch, strict=True)
        for word in (entries, x, y, z * size)
    ]
    return _block(argument_block.RECORDS, head, records)


def _block(length: int, head: dict[int, Word], records: list[int]) -> tuple[Word, ...]:
    assert sorted(head) == list(range(length))
    return (*(head[i] for i in range(length)), *records)
