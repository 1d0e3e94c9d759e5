"""Where the 64-bit words lie that Python and the machine code of the runtime share: only numbers.

State: one block for each pool. Words with different writers lie on different cache lines.
Program: one block for each machine segment, written once but for its list of free instances.
Instance: the part of a program that a call changes, so that threads can call one program at once.
"""

from __future__ import annotations

import platform
import sys

# Workers sleep on futexes, which are Linux's. WaitOnAddress or os_sync_wait_on_address would do.
WORKERS_POSSIBLE = sys.platform.startswith("linux") and platform.machine() in ("x86_64", "aarch64")

# ---- state of a pool
EPOCH, SLEEPERS, LIFE = 0, 64, 128  # publications so far (a futex word); workers asleep; generation
WORKERS, WANTED, SPIN, START = 192, 200, 208, 216  # there are; should be; pauses; Pool.start
FIRST_SEAT, SEAT, SEATS = 256, 256, 4  # a caller takes a seat to share its rows
STATE_SIZE = FIRST_SEAT + SEAT * SEATS
# ---- a seat
TICKET, PENDING, BUSY, WAITING = 0, 64, 128, 136  # generation << 32 | chunks to take; to finish
CORE, JOB = 184, 192  # where the caller runs; copy of the row being shared
# ---- a row: ARGUMENTS is where the block lies in the instance; in a job, its address
KERNEL, N, CHUNK, ARGUMENTS, ROW = 0, 8, 16, 24, 32
# ---- a program: DIRECTORY has for each slot the address where its relocations end
STATE, ROWS, ROW_COUNT, LARGE = 0, 8, 16, 24
FREE, SLOT_COUNT, DIRECTORY, RELOCATIONS = 32, 40, 48, 56
GROW, REFUSE, FLOAT_TYPE, PROGRAM_SIZE = 64, 72, 80, 88  # Python objects
# ---- a relocation: where the word lies in the instance; what is added to the slot's value
WORD, OFFSET, RELOCATION = 0, 8, 16
# ---- an instance: the next free one; what kernels report; then the slots and argument blocks
NEXT, STATUS, FIRST_SLOT = 0, 8, 16
# ---- a Python object: its type, and the value of a float
OBJECT_TYPE, FLOAT_VALUE = 8, 16
