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

import os
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Literal

from codegen.toolchain import elf_check, object_code
from codegen.toolchain import fingerprint as environment
from codegen.toolchain.disk_cache import ObjectCache, default_folder, default_limit
from codegen.toolchain.object_code import KERNEL_SYMBOLS, CompileError

__all__ = [
    "CompileError",
    "Kernel",
    "KernelStatistics",
    "clear_memory",
    "disk_cache",
    "function",
    "kernel",
    "set_disk_cache",
    "statistics",
]


@dataclass(frozen=True, slots=True)
class Kernel:
    """Machine code and where it came from ("python": it calls back, see `python_kernel`).
    `seconds`: what this request took to load or compile, 0 from memory.
    """

    name: str
    key: str
    address: int
    text: str
    origin: Literal["memory", "disk", "compiled", "python"]
    seconds: float


@dataclass(slots=True)
class KernelStatistics:
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


_statistics = KernelStatistics()
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
    if found is not None:
        return _remembered(found, name, text)
    maker = _Maker(
        lambda: object_code.compile_kernel(_built(build)),
        lambda: object_code.compile_kernel_here(_built(build)),
        KERNEL_SYMBOLS,
        environment.of_kernels,
        counted=True,
    )
    return _obtain(key, name, text, maker)


def _built(build: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    object_code.prepare(compiler=True)
    return build()


def function(key: str, name: str, emit: Callable[[], str], symbols: Collection[str]) -> Kernel:
    """Like `kernel`, for a function of the runtime: LLVM text that exports `object_code.ENTRY` and
    calls the C functions `symbols`. Numba has no part in it, and the statistics do not count it.
    """
    found = _kernels.get(key)
    if found is not None:
        return found
    maker = _Maker(
        lambda: object_code.assemble(emit(), symbols),
        lambda: object_code.assemble_here(emit()),
        symbols,
        environment.of_runtime,
        counted=False,
    )
    return _obtain(key, name, "", maker)


def statistics() -> KernelStatistics:
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
    """How to make what is not there: object code, or where that is not understood, an address;
    which C functions it may call; what it depends on beside the key; whether it is a kernel.
    """

    code: Callable[[], bytes]
    address: Callable[[], int]
    symbols: Collection[str]
    environment: Callable[[], str]
    counted: bool


def _obtain(key: str, name: str, text: str, maker: _Maker) -> Kernel:
    with _lock:
        lock = _key_locks.setdefault(key, threading.Lock())
    with lock:
        found = _kernels.get(key)
        if found is not None:  # another thread was first
            return _remembered(found, name, text)
        begin = time.perf_counter()
        address, origin = _load_or_make(key, maker)
        made = Kernel(name, key, address, text, origin, time.perf_counter() - begin)
        with _lock:
            _kernels[key] = made
            _key_locks.pop(key, None)
            if maker.counted:
                _count(made)
        return made


def _count(made: Kernel) -> None:
    if made.origin == "disk":
        _statistics.disk_hits += 1
        _statistics.load_seconds += made.seconds
    else:
        _statistics.compiled += 1
        _statistics.compile_seconds += made.seconds


def _remembered(found: Kernel, name: str, text: str) -> Kernel:
    with _lock:
        _statistics.memory_hits += 1
    return Kernel(name, found.key, found.address, text, "memory", 0.0)


def _load_or_make(key: str, maker: _Maker) -> tuple[int, Literal["disk", "compiled"]]:
    object_code.prepare(compiler=False)
    if not elf_check.SUPPORTED:
        return maker.address(), "compiled"
    disk = disk_cache()
    disk_key = f"{key}|{maker.environment()}"
    code = disk.get(disk_key)
    if code is not None:
        try:
            return object_code.load_function(code, maker.symbols), "disk"
        except elf_check.DamagedObjectError:  # whole, but not what this process can load
            disk.remove(disk_key)
    code = maker.code()
    address = object_code.load_function(code, maker.symbols)
    disk.put(disk_key, code)
    return address, "compiled"


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()
    _key_locks.clear()  # other threads' locks have no owner in the child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
