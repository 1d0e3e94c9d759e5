"""One kernel text compiled alone and called by address: for tests and benchmarks. Programs are
built elsewhere.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cfunc
from numba.core import types

from codegen.vector.jit import POINTER


class Kernel:
    """A compiled text: Kernel(text, "f32* bf16* i64")(lo, hi, *arrays and sizes)."""

    def __init__(self, text: Callable[..., None], operands: str) -> None:
        kinds = [POINTER[o[:-1]] if o.endswith("*") else types.int64 for o in operands.split()]
        start = time.perf_counter()
        signature = types.void(types.int64, types.int64, *kinds)
        # Kept: the machine code lives as long as this object.
        self._function: Any = cfunc(signature, error_model="numpy")(text)
        address: Any = self._function.address
        self.seconds = time.perf_counter() - start
        c_types = [ctypes.c_int64 if k is types.int64 else ctypes.c_void_p for k in kinds]
        self._call = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64, *c_types)(address)

    def __call__(self, lo: int, hi: int, *arguments: Any) -> None:
        """Run it; arrays are passed by address."""
        self._call(lo, hi, *(a.ctypes.data if isinstance(a, np.ndarray) else a for a in arguments))

    @property
    def assembly(self) -> str:
        """The machine code as text."""
        return str(self._function._library.get_asm_str())


def same_bits(a: Any, b: Any) -> bool:
    """Equal bits; a NaN equals any NaN."""
    if a.dtype.kind not in "fV":
        return bool((a == b).all())
    pattern = f"i{a.itemsize}"
    with np.errstate(all="ignore"):
        return bool(((a.view(pattern) == b.view(pattern)) | ((a != a) & (b != b))).all())
