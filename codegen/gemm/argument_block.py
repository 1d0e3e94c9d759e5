"""The argument block of the kernel: which 64-bit word holds what. Shared by the plan, which writes
blocks, and the text.

A block belongs to one of two jobs. Strides are in bytes. A block ends with one record for each
batch axis.
"""

from __future__ import annotations

# The first word of every block.
JOB = 0
PACK, TILES = 0, 1

# Packing copies one operand into panels: element (outer, k) of panel p goes to p's memory at
# [k][outer].
(
    SOURCE,  # address
    TARGET,  # address
    PANELS,  # of one matrix
    OUTER,  # rows of A or columns of B
    OUTER_STRIDE,
    K_COUNT,
    K_STRIDE,
    WIDE,  # 0: panels of A, 1: panels of B
    GROUP,  # panels that a task packs
    GROUPS,  # tasks for one matrix
    PACK_AXES,  # number of batch axes
) = range(1, 12)
PACK_RECORDS = 12
PACK_RECORD = 3  # size, stride of the source, of the target

# Tiles multiply. A task is a rectangle of tiles of one matrix of C.
(
    A,
    B,
    C,
    M,
    N,
    K,
    K_BLOCK,  # how much of k is summed from zero
    K_BLOCKS,
    A_MODE,
    A_ROW,
    A_COLUMN,
    B_MODE,
    B_ROW,
    B_COLUMN,
    C_ROW,
    PANELS_M,  # of A
    PANELS_N,  # of B
    TASKS_M,  # rectangles along m
    TASKS_N,
    ACCUMULATE,  # 1: C += A B
    AXES,  # number of batch axes
) = range(1, 22)
RECORDS = 22
RECORD = 4  # size, stride of A, of B, of C

# Where a task finds an operand: in place; in panels in the workspace; in place, and the task packs
# what it needs.
DIRECT, PACKED, COPIED = 0, 1, 2

# Bytes of the stack that a task may use: one panel of B, the panels of A of one block of k, the
# tiles of one rectangle.
SCRATCH_B = 1 << 15
SCRATCH_A = 1 << 16
SCRATCH_TILES = 1 << 17
SCRATCH = SCRATCH_B + SCRATCH_A + SCRATCH_TILES
