"""From a key to machine code: memory, then disk, then Numba. The one way by which anything compiled
enters the process.

A kernel is void(int64 lo, int64 hi, int64 args): it works on [lo, hi) of the range that its program
counts, and `args` is the address of its argument block of 64-bit words. `build()` gives the Python
function for Numba and is called on a miss only, so Numba is not imported on a hit. A fresh compile
is loaded from its object code, like a cached one.

Two threads that ask for one key compile it once. Where object files are not understood (anything
but Linux on x86-64 and aarch64) kernels are compiled into the process and nothing is kept on disk.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import cache
from importlib import util
from pathlib import Path
from typing import Any, Literal

from codegen import object_code, object_file
from codegen.object_cache import ObjectCache, default_folder, default_limit
from codegen.object_code import KERNEL_SYMBOLS, CompileError

__all__ = [
    "CompileError",
    "Kernel",
    "Statistics",
    "clear_memory",
    "disk_cache",
    "function",
    "kernel",
    "set_disk_cache",
    "statistics",
]

# What Numba's output depends on besides the source. NUMBA_CPU_NAME alone changes nothing: Numba
# keeps the machine's features unless NUMBA_CPU_FEATURES is set as well.
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


@dataclass(frozen=True, slots=True)
class Kernel:
    """Machine code and where it came from. `seconds`: what this request took to load or compile,
    0 from memory.
    """

    name: str
    key: str
    address: int
    text: str
    origin: Literal["memory", "disk", "compiled"]
    seconds: float


@dataclass(slots=True)
class Statistics:
    """Counts since the process began: kernels compiled, read from disk, found in memory, and the
    seconds of the first two.
    """

    compiled: int = 0
    disk_hits: int = 0
    memory_hits: int = 0
    compile_seconds: float = 0.0
    load_seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.compiled} kernels compiled in {self.compile_seconds:.2f} s, "
            f"{self.disk_hits} read from disk in {1e3 * self.load_seconds:.1f} ms, "
            f"{self.memory_hits} found in memory"
        )


_statistics = Statistics()
_kernels: dict[str, Kernel] = {}
_key_locks: dict[str, threading.Lock] = {}
_lock = threading.Lock()  # the two dictionaries and the statistics
_disk: ObjectCache | None = None


def kernel(
    key: str, name: str, build: Callable[[], Callable[..., Any]], *, text: str = ""
) -> Kernel:
    """The kernel that `key` stands for.

    `key` must name everything that `build()` depends on beside this package's source, Numba, its
    settings and the CPU. `name` and `text` (the source) are for people: equal kernels may have
    different ones.
    """
    found = _kernels.get(key)
    if found is None:
        maker = _Maker(
            lambda: object_code.compile_kernel(build()),
            lambda: object_code.compile_kernel_here(build()),
        )
        return _obtain(key, name, text, KERNEL_SYMBOLS, maker)
    _statistics.memory_hits += 1
    return replace(found, name=name, text=text, origin="memory", seconds=0.0)


def function(key: str, name: str, emit: Callable[[], str], symbols: Collection[str]) -> Kernel:
    """Like `kernel` for LLVM text that exports `object_code.ENTRY` and calls the C functions
    `symbols`; Numba has no part in it.
    """
    found = _kernels.get(key)
    if found is None:
        maker = _Maker(
            lambda: object_code.assemble(emit(), symbols),
            lambda: object_code.assemble_here(emit()),
        )
        return _obtain(key, name, "", symbols, maker)
    _statistics.memory_hits += 1
    return replace(found, name=name, origin="memory", seconds=0.0)


def statistics() -> Statistics:
    """The counts as they are now."""
    return replace(_statistics)


def clear_memory() -> None:
    """Forget which kernels are loaded, so that the next request goes to the disk. The code
    itself stays valid.
    """
    with _lock:
        _kernels.clear()


def set_disk_cache(cache: ObjectCache | None) -> None:
    """Use another folder, or with None the one of the environment again."""
    global _disk
    _disk = cache


def disk_cache() -> ObjectCache:
    """The folder in use."""
    global _disk
    if _disk is None:
        _disk = ObjectCache(default_folder(), default_limit())
    return _disk


@dataclass(frozen=True, slots=True)
class _Maker:
    """How to make what is not there: object code, or where that is not understood, an address."""

    code: Callable[[], bytes]
    address: Callable[[], int]


def _obtain(key: str, name: str, text: str, symbols: Collection[str], maker: _Maker) -> Kernel:
    with _lock:
        lock = _key_locks.setdefault(key, threading.Lock())
    with lock:
        found = _kernels.get(key)
        if found is not None:  # another thread was first
            with _lock:
                _statistics.memory_hits += 1
            return replace(found, name=name, text=text, origin="memory", seconds=0.0)
        begin = time.perf_counter()
        address, origin = _load_or_make(key, symbols, maker)
        made = Kernel(name, key, address, text, origin, time.perf_counter() - begin)
        with _lock:
            _kernels[key] = made
            _key_locks.pop(key, None)
            if made.origin == "disk":
                _statistics.disk_hits += 1
                _statistics.load_seconds += made.seconds
            else:
                _statistics.compiled += 1
                _statistics.compile_seconds += made.seconds
        return made


def _load_or_make(
    key: str, symbols: Collection[str], maker: _Maker
) -> tuple[int, Literal["disk", "compiled"]]:
    if not object_file.SUPPORTED:
        return maker.address(), "compiled"
    disk = disk_cache()
    disk_key = f"{key}|{_environment()}"
    code = disk.get(disk_key)
    if code is not None:
        try:
            return object_code.load_function(code, symbols), "disk"
        except object_file.DamagedObjectError:  # whole, but not what this process can load
            disk.remove(disk_key)
    code = maker.code()
    address = object_code.load_function(code, symbols)
    disk.put(disk_key, code)
    return address, "compiled"


@cache
def _environment() -> str:
    """What object code depends on beside its key: versions, CPU, settings, and the source of
    this package.
    """
    import llvmlite
    import llvmlite.binding as llvm

    parts = [
        _numba_version(),
        llvmlite.__version__,
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
    ]
    parts.append(llvm.get_host_cpu_features().flatten())
    parts += [f"{name}={os.environ.get(name, '')}" for name in _SETTINGS]
    folder = Path(__file__).parent
    for path in sorted(folder.rglob("*.py")):
        parts += [str(path.relative_to(folder)), hashlib.sha256(path.read_bytes()).hexdigest()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _numba_version() -> str:
    """Without importing Numba (120 ms)."""
    found = util.find_spec("numba")
    if found is not None and found.origin is not None:
        path = Path(found.origin).with_name("_version.py")
        if path.is_file():  # 0.1 ms, where importlib.metadata takes 2
            return hashlib.sha256(path.read_bytes()).hexdigest()
    from importlib import metadata

    return metadata.version("numba")


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _key_locks.clear()  # other threads' locks have no owner in the child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
