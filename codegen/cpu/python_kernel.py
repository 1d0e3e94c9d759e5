"""Kernels that run as Python behind an address: a program calls one like a compiled kernel, with the
words of its argument block, and their text is read on NumPy values (`codegen.vector.intrinsics`).

So everything is as it is with compiled kernels, bits included, but the compiler: specification,
text, argument blocks, the driver and its chunks. For debuggers, which step through a kernel's lines,
and for tests of what lies above kernels. It takes microseconds for each statement of 16 lanes. Where
memory ends is not known from an address: a stray index is found by `compile.unjitted` alone.

What a kernel raises cannot pass the machine code that called it: Python reports it as an exception
that was ignored (`sys.unraisablehook`).
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

from codegen.cpu import compile as kernels
from codegen.spec.kernel_spec import KernelSpec, Schedule, key
from codegen.toolchain.kernel_store import Kernel
from codegen.vector.intrinsics import Buffer
from ops.types import numpy_dtype

_CALLED = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
_WINDOW = 1 << 40  # bytes on each side of a pointer: more than a kernel can reach
_Memory: Any = ctypes.c_char * (2 * _WINDOW)
_known: dict[str, Any] = {}  # by key: what an address stands for must live as long as the process
_lock = threading.Lock()


def python_kernel(
    spec: KernelSpec, schedule: Schedule | None = None, notes: kernels.Notes | None = None
) -> Kernel:
    """Like `compile.compile_cpu`: an address of void(lo, hi, address of an `argument_block`)."""
    schedule = schedule or Schedule()
    which = key(spec, schedule)
    with _lock:
        if which not in _known:
            _known[which] = _CALLED(_function(spec, schedule))
        called = _known[which]
    address = ctypes.cast(called, ctypes.c_void_p).value
    assert address is not None
    return Kernel(spec.name, which, address, kernels.text(spec, schedule, notes), "python", 0.0)


def _function(spec: KernelSpec, schedule: Schedule) -> Any:
    run = kernels.unjitted(spec, schedule)
    count = len(spec.operands) + len(spec.size_names) + len(spec.stride_names)
    words: Any = ctypes.c_int64 * count

    def call(lo: int, hi: int, args: int) -> None:
        block: list[Any] = list(words.from_address(args))
        for k, operand in enumerate(spec.operands):
            block[k] = memory_around(block[k], numpy_dtype(operand.dtype))
        run(lo, hi, block)

    return call


def memory_around(address: int, dtype: np.dtype[Any]) -> Buffer:
    """The memory around an address, as an un-jitted pointer to it."""
    before = _WINDOW // dtype.itemsize
    around = _Memory.from_address(address - before * dtype.itemsize)
    return Buffer(np.ndarray((2 * before,), dtype, around), before)
