"""The CPU that code is compiled for: its name, its features, the width of its registers. Knows LLVM's
binding; what Numba compiles for it is told. Must not import Numba.
"""

from __future__ import annotations

import os
import platform
from functools import cache


@cache
def cpu() -> tuple[str, str]:
    """Name and features of the CPU that functions of words are compiled for: this one, or what the
    usual ones of Numba's settings say. A product of matrices has its tiles for it.
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
    features = cpu()[1]
    return 64 if _has(features, "avx512f") else 32 if _has(features, "avx2") else 16


def _has(features: str, name: str) -> bool:
    """Whether a list such as "+avx2,-avx512f" turns a feature on: of several mentions the last one counts."""
    mentions = [f[0] for f in features.split(",") if f[1:] == name]
    return mentions[-1:] == ["+"]


_numba = ""  # the features that Numba compiles kernels for


def numba_compiles_for(features: str) -> None:
    """Note what Numba's code generator is set to. An instruction that it does not know would end the process."""
    global _numba
    _numba = features


def kernels_have(feature: str) -> bool:
    """Whether kernels may use the instructions of a feature."""
    return _has(_numba, feature)
