"""The loops of matrix multiplication, as kernels of the pool: compiled with parts in LLVM IR, or
run by Python with NumPy.

Knows the argument block and how a task is cut into tiles. Must not know instructions, element types
or threads: those are the parts below, bound by a reading (`compiled`, `plain`). Every number here
is a 64-bit word; addresses count bytes.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from codegen.gemm.argument_block import (
    A_COLUMN,
    A_MODE,
    A_ROW,
    ACCUMULATE,
    AXES,
    B_COLUMN,
    B_MODE,
    B_ROW,
    C_ROW,
    COPIED,
    DIRECT,
    GROUP,
    GROUPS,
    JOB,
    K_BLOCK,
    K_BLOCKS,
    K_COUNT,
    K_STRIDE,
    OUTER,
    OUTER_STRIDE,
    PACK,
    PACK_AXES,
    PACK_RECORD,
    PACK_RECORDS,
    PACKED,
    PANELS,
    PANELS_M,
    PANELS_N,
    RECORD,
    RECORDS,
    SCRATCH_A,
    SCRATCH_B,
    SOURCE,
    TARGET,
    TASKS_M,
    TASKS_N,
    WIDE,
    A,
    B,
    C,
    K,
    M,
    N,
)

# Bound by a reading: the tile (`element.Tile`), bytes of an element in memory and of a lane ...
ROWS = PITCH = COLUMNS = MEMORY = LANE = 0
K_PIECE = (
    128  # how much of k is packed of one panel before the next: they share lines of the source
)


def _unbound(*words: int) -> int:
    """What the name of a part stands for here, where no reading has bound it."""
    raise TypeError("a part of the kernel; `reading` binds it")


# ... and the parts.
word = _unbound  # (args, index): a word of the argument block
scratch = _unbound  # (): address of SCRATCH bytes on the stack of the task
# (source, outer stride, k stride, outer, k, target): a panel of A; of B
pack_rows = pack_columns = _unbound
# (k, a, row stride, k stride, b, k stride, columns, tile, first): tile = or += A B
multiply = _unbound
# (k, a, k stride, b, k stride, column stride, columns, sums, totals, first): totals = or += a B
multiply_row = _unbound
# (sums, c, row stride, rows, columns, accumulate): from the tile, or the totals of a row, to C
finish = _unbound


def matrix(lo: int, hi: int, args: int) -> None:
    """Tasks lo to hi of packing or of multiplying, as the argument block says."""
    if word(args, JOB) == PACK:
        for i in range(hi - lo):
            pack(args, lo + i)
    else:
        for i in range(hi - lo):
            rectangle(args, lo + i)


def row(lo: int, hi: int, args: int) -> None:
    """Tasks lo to hi of multiplying where C has one row for each batch entry."""
    for i in range(hi - lo):
        columns_of_row(args, lo + i)


def pack(args: int, task: int) -> None:
    """A group of panels of one matrix."""
    outer = word(args, OUTER)
    outer_stride = word(args, OUTER_STRIDE)
    k = word(args, K_COUNT)
    k_stride = word(args, K_STRIDE)
    wide = word(args, WIDE)
    step = ROWS
    width = PITCH
    if wide:
        step = COLUMNS
        width = COLUMNS
    entry = task // word(args, GROUPS)
    axes = word(args, PACK_AXES)
    source = word(args, SOURCE) + offset(args, PACK_RECORDS, PACK_RECORD, axes, 1, entry)
    target = word(args, TARGET) + offset(args, PACK_RECORDS, PACK_RECORD, axes, 2, entry)
    first = (task - entry * word(args, GROUPS)) * word(args, GROUP)
    panels = min(word(args, GROUP), word(args, PANELS) - first)
    for piece in range((k + K_PIECE - 1) // K_PIECE):
        k_first = piece * K_PIECE
        k_count = min(K_PIECE, k - k_first)
        for i in range(panels):
            panel = first + i
            count = min(step, outer - panel * step)
            from_ = source + panel * step * outer_stride + k_first * k_stride
            to = target + (panel * k + k_first) * width * LANE
            if wide:
                pack_columns(from_, outer_stride, k_stride, count, k_count, to)
            else:
                pack_rows(from_, outer_stride, k_stride, count, k_count, to)


def rectangle(args: int, task: int) -> None:
    """A rectangle of tiles of one matrix of C. A panel of B is used for all rows, then the next."""
    k = word(args, K)
    k_block = word(args, K_BLOCK)
    k_blocks = word(args, K_BLOCKS)
    a_mode = word(args, A_MODE)
    a_row = word(args, A_ROW)
    a_column = word(args, A_COLUMN)
    b_mode = word(args, B_MODE)
    b_row = word(args, B_ROW)
    b_column = word(args, B_COLUMN)
    c_row = word(args, C_ROW)

    tasks_m = word(args, TASKS_M)
    tasks_n = word(args, TASKS_N)
    task_m = task // tasks_n
    task_n = task - task_m * tasks_n
    entry = task_m // tasks_m
    task_m -= entry * tasks_m
    first_m = task_m * word(args, PANELS_M) // tasks_m
    count_m = (task_m + 1) * word(args, PANELS_M) // tasks_m - first_m
    first_n = task_n * word(args, PANELS_N) // tasks_n
    count_n = (task_n + 1) * word(args, PANELS_N) // tasks_n - first_n
    m = min(count_m * ROWS, word(args, M) - first_m * ROWS)
    n = min(count_n * COLUMNS, word(args, N) - first_n * COLUMNS)

    a = word(args, A) + offset(args, RECORDS, RECORD, word(args, AXES), 1, entry)
    if a_mode == PACKED:
        a += first_m * k * PITCH * LANE
    else:
        a += first_m * ROWS * a_row
    b = word(args, B) + offset(args, RECORDS, RECORD, word(args, AXES), 2, entry)
    if b_mode == PACKED:
        b += first_n * k * COLUMNS * LANE
    else:
        b += first_n * COLUMNS * b_column
    c = word(args, C) + offset(args, RECORDS, RECORD, word(args, AXES), 3, entry)
    c += first_m * ROWS * c_row + first_n * COLUMNS * MEMORY

    b_panel = scratch()
    a_panels = b_panel + SCRATCH_B
    tiles = a_panels + SCRATCH_A
    for block in range(k_blocks):
        k_first = block * k_block
        k_count = min(k_block, k - k_first)
        for j in range(count_n):
            columns = min(COLUMNS, n - j * COLUMNS)
            b_step = COLUMNS * LANE
            if b_mode == PACKED:
                b_from = b + (j * k + k_first) * COLUMNS * LANE
            else:
                b_from = b + k_first * b_row + j * COLUMNS * b_column
                if b_mode == DIRECT and columns == COLUMNS:
                    b_step = b_row
                else:
                    pack_columns(b_from, b_column, b_row, columns, k_count, b_panel)
                    b_from = b_panel
            for i in range(count_m):
                rows = min(ROWS, m - i * ROWS)
                a_step = LANE
                a_k_step = PITCH * LANE
                if a_mode == PACKED:
                    a_from = a + (i * k + k_first) * PITCH * LANE
                else:
                    a_from = a + k_first * a_column + i * ROWS * a_row
                    if a_mode == DIRECT and (rows == ROWS or rows == 1):
                        a_step = a_row * (rows != 1)
                        a_k_step = a_column
                    else:
                        copy = a_panels
                        if a_mode == COPIED:
                            copy += i * k_block * PITCH * LANE
                        if j == 0:
                            pack_rows(a_from, a_row, a_column, rows, k_count, copy)
                        a_from = copy
                tile = tiles
                if k_blocks > 1:
                    tile += (j * count_m + i) * ROWS * COLUMNS * LANE
                multiply(
                    k_count, a_from, a_step, a_k_step, b_from, b_step, columns, tile, block == 0
                )
                if block == k_blocks - 1:
                    to = c + i * ROWS * c_row + j * COLUMNS * MEMORY
                    finish(tile, to, c_row, rows, columns, word(args, ACCUMULATE))


def columns_of_row(args: int, task: int) -> None:
    """A range of columns, in units of 16, of a row of C."""
    k = word(args, K)
    k_block = word(args, K_BLOCK)
    k_blocks = word(args, K_BLOCKS)
    a_column = word(args, A_COLUMN)
    b_row = word(args, B_ROW)
    b_column = word(args, B_COLUMN)
    tasks_n = word(args, TASKS_N)
    entry = task // tasks_n
    task -= entry * tasks_n
    first = task * word(args, PANELS_N) // tasks_n * 16
    end = (task + 1) * word(args, PANELS_N) // tasks_n * 16
    columns = min(end, word(args, N)) - first
    a = word(args, A) + offset(args, RECORDS, RECORD, word(args, AXES), 1, entry)
    b = word(args, B) + offset(args, RECORDS, RECORD, word(args, AXES), 2, entry)
    c = word(args, C) + offset(args, RECORDS, RECORD, word(args, AXES), 3, entry)
    b += first * b_column
    totals = scratch()
    sums = totals + SCRATCH_B
    for block in range(k_blocks):
        k_first = block * k_block
        k_count = min(k_block, k - k_first)
        a_from = a + k_first * a_column
        b_from = b + k_first * b_row
        multiply_row(
            k_count, a_from, a_column, b_from, b_row, b_column, columns, sums, totals, block == 0
        )
    finish(totals, c + first * MEMORY, 0, 1, columns, word(args, ACCUMULATE))


def offset(args: int, records: int, record: int, axes: int, which: int, entry: int) -> int:
    """Bytes to a batch entry; its number is taken apart along the batch axes, the last one
    fastest.
    """
    total = 0
    for back in range(axes):
        at = records + record * (axes - 1 - back)
        rest = entry // word(args, at)
        total += (entry - rest * word(args, at)) * word(args, at + which)
        entry = rest
    return total


FORMS = {"matrix": matrix, "row": row}


def reading(form: str, parts: dict[str, Any]) -> FunctionType:
    """The function of a form, with it and all that it calls bound to parts."""
    names = dict(globals())
    for name, value in globals().items():
        if isinstance(value, FunctionType):
            names[name] = FunctionType(value.__code__, names, name)
    names.update(parts)
    function: FunctionType = names[FORMS[form].__name__]
    return function
