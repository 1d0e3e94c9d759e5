"""Running compiled kernels: a pool of parked workers, and programs that walk rows without Python.

Knows addresses and 64-bit words. Must not know specifications, arrays or graphs.
"""

from __future__ import annotations

from codegen.runtime.pool import Pool, default_pool, get_num_threads, set_num_threads
from codegen.runtime.program import (
    STATUS,
    AddressOf,
    AddressOfNumber,
    Argument,
    HostCall,
    Program,
    Row,
    Slot,
)

__all__ = [
    "STATUS",
    "AddressOf",
    "AddressOfNumber",
    "Argument",
    "HostCall",
    "Pool",
    "Program",
    "Row",
    "Slot",
    "default_pool",
    "get_num_threads",
    "set_num_threads",
]
