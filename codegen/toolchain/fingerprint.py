"""What object code depends on beside its key: versions, CPU, settings, and this package's own
source.

Knows which files take part in making it; must not import any of them, nor Numba.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from importlib import util
from pathlib import Path

_CODEGEN = Path(__file__).parent.parent

# NUMBA_CPU_NAME alone changes nothing: Numba keeps the machine's features unless
# NUMBA_CPU_FEATURES is set as well.
_SETTINGS = (
    "NUMBA_CPU_NAME",
    "NUMBA_CPU_FEATURES",
    "NUMBA_ENABLE_AVX",
    "NUMBA_OPT",
    "NUMBA_LOOP_VECTORIZE",
    "NUMBA_SLP_VECTORIZE",
    "NUMBA_BOUNDSCHECK",
    "NUMBA_DEBUGINFO",
    "NUMBA_DISABLE_INTEL_SVML",
)


@cache
def of_kernels() -> str:
    """For code that Numba makes: what prints, declares and compiles kernels for the CPU."""
    apart = (_CODEGEN / "cuda", _CODEGEN / "runtime")
    sources = [p for p in _CODEGEN.rglob("*.py") if p.parent not in apart]
    settings = [f"{name}={os.environ.get(name, '')}" for name in _SETTINGS]
    return _digest([numba_version(), *settings], sources)


@cache
def of_runtime() -> str:
    """For the runtime's own functions, which LLVM makes from their text."""
    folder = Path(__file__).parent
    return _digest([], [*_CODEGEN.glob("runtime/*.py"), folder / "object_code.py"])


def _digest(parts: list[str], sources: list[Path]) -> str:
    import llvmlite
    import llvmlite.binding as llvm

    described = [
        *parts,
        llvmlite.__version__,
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    ]
    for path in sorted(sources):
        described += [path.name, hashlib.sha256(path.read_bytes()).hexdigest()]
    return hashlib.sha256("\n".join(described).encode()).hexdigest()


def numba_version() -> str:
    """Something that is different for each version of Numba, without importing it (120 ms)."""
    found = util.find_spec("numba")
    if found is not None and found.origin is not None:
        path = Path(found.origin).with_name("_version.py")
        if path.is_file():  # 0.1 ms, where importlib.metadata takes 20
            return hashlib.sha256(path.read_bytes()).hexdigest()
    from importlib import metadata

    return metadata.version("numba")
