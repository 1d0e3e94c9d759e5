"""The CPU that kernels are compiled for: its name, its features, the width of its registers. Knows
LLVM's binding and Numba's settings; must not know Numba.
"""

from __future__ import annotations

import os
import platform
from functools import cache


@cache
def cpu() -> tuple[str, str]:
    """Name and features of the CPU that kernels are compiled for: this one, or what Numba's
    settings say.
    """
    import llvmlite.binding as llvm

    name = os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()
    features = os.environ.get("NUMBA_CPU_FEATURES")
    if features is None:
        found = llvm.get_host_cpu_features()
        if os.environ.get("NUMBA_ENABLE_AVX") == "0":
            for feature in found:
                found[feature] &= not feature.startswith("avx")
        features = found.flatten()
    return name, features


@cache
def register_bytes() -> int:
    """Bytes of a vector register."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return 16
    on = cpu()[1].split(",")
    return 64 if "+avx512f" in on else 32 if "+avx2" in on else 16
