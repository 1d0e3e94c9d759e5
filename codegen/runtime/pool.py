"""The pool's Python side: starting, stopping, resizing and forking. None of it is on the path of a
call.

Workers only ever take chunks, and a caller never waits for a chunk that nobody took. So a pool
without workers (one thread, after a fork, at exit, while resizing, or where the system has no
futex) is merely slower, never wrong.
"""

from __future__ import annotations

import atexit
import ctypes
import operator
import os
import threading
import time
from collections.abc import Callable
from typing import SupportsIndex

from codegen.runtime import layout as at
from codegen.toolchain import kernel_store
from codegen.toolchain.object_code import ENTRY

_SPIN_SECONDS = 30e-6  # before a thread sleeps: waking one takes 12-50 us
_MOST_THREADS = 1024
_SYMBOLS = frozenset(
    {"syscall", "sched_getcpu"}
    | {"PyObject_CallNoArgs", "PyObject_CallOneArg", "Py_DecRef", "PyErr_Occurred"}
    | {"PyLong_FromLongLong", "PyLong_AsVoidPtr", "PyEval_SaveThread", "PyEval_RestoreThread"}
)
_WORD = ctypes.c_int64


def part(name: str) -> int:
    """The address of one of the runtime's own functions."""

    def emit() -> str:
        from codegen.runtime import parts
        from codegen.runtime.int64_compiler import emit_module

        return emit_module(getattr(parts, name), ENTRY)

    return kernel_store.function(f"runtime/{name}", name, emit, _SYMBOLS).address


class WorkerThread(threading.Thread):
    """A thread that runs rows of programs and no Python of anybody's."""


class Pool:
    """Workers that help the callers of this process's programs with rows of several chunks."""

    def __init__(self, threads: int | None = None) -> None:
        self.enter = part("enter")
        # Calling through ctypes releases the GIL.
        self._worker = ctypes.CFUNCTYPE(_WORD, _WORD, _WORD)(part("worker"))
        self._retire = ctypes.CFUNCTYPE(_WORD, _WORD)(part("retire"))
        self._spin = _pauses(ctypes.CFUNCTYPE(_WORD, _WORD)(part("idle")))
        self._start = self.start  # one object, which the state block points to
        # Never freed: a worker may look at it until the process is gone.
        memory = ctypes.create_string_buffer(at.STATE_SIZE + 64)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
        self.state = -(-ctypes.addressof(memory) // 64) * 64
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._reset(_workers(_default_threads() if threads is None else threads))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)
        atexit.register(self.close)

    @property
    def threads(self) -> int:
        """Threads that run a large row, its caller included."""
        return self._word(at.WANTED).value + 1

    @property
    def workers(self) -> int:
        """Workers that are there now: none before the first large row."""
        return self._word(at.WORKERS).value

    def resize(self, threads: int) -> None:
        """Run large rows on so many threads, callers included, from the next row on."""
        self._stop(_workers(threads))

    def start(self) -> None:
        """Start the workers that are wanted and not there. Called by the first large row."""
        with self._lock:
            if self._threads or self._closed:
                return
            arguments = self.state, self._word(at.LIFE).value
            try:
                for i in range(self._word(at.WANTED).value):
                    thread = WorkerThread(
                        target=self._worker, args=arguments, daemon=True, name=f"tracer-{i + 1}"
                    )
                    thread.start()
                    self._threads.append(thread)
            except RuntimeError:  # no more threads to be had
                self._word(at.WANTED).value = len(self._threads)
            finally:  # also when Ctrl-C comes here
                self._word(at.WORKERS).value = len(self._threads)

    def close(self) -> None:
        """Let the workers go for good; programs go on without."""
        self._closed = True
        self._stop(0)

    def _stop(self, wanted: int) -> None:
        with self._lock:
            self._word(at.WORKERS).value, self._word(at.WANTED).value = 0, wanted
            self._retire(self.state)
            threads, self._threads = self._threads, []
            for thread in threads:
                thread.join()

    def _word(self, offset: int) -> ctypes.c_int64:
        return _WORD.from_address(self.state + offset)

    def _reset(self, wanted: int) -> None:
        ctypes.memset(self.state, 0, at.STATE_SIZE)
        self._word(at.WANTED).value = wanted
        self._word(at.SPIN).value = self._spin
        self._word(at.START).value = id(self._start)

    def _after_fork(self) -> None:
        """The child's copy of the block shows the parent's workers, and maybe a call in the
        midst.
        """
        self._lock, self._threads = threading.Lock(), []
        self._reset(self._word(at.WANTED).value)


def _pauses(idle: Callable[[int], int], count: int = 1000) -> int:
    """How often a thread pauses before it sleeps."""
    best = 1.0
    for _ in range(5):
        begin = time.perf_counter()
        idle(count)
        best = min(best, time.perf_counter() - begin)
    return int(_SPIN_SECONDS / best * count)


def _workers(threads: SupportsIndex) -> int:
    try:
        count = operator.index(threads)
    except TypeError:
        raise TypeError(
            f"the number of threads is an integer, got {type(threads).__name__} {threads!r}"
        ) from None
    if not 1 <= count <= _MOST_THREADS:
        raise ValueError(
            f"the number of threads is between 1 and {_MOST_THREADS}, got {count}; "
            "1 runs everything on the calling thread"
        )
    return count - 1 if at.WORKERS_POSSIBLE else 0


def _default_threads() -> int:
    """TRACER_NUM_THREADS, else as many as the cores that this process may run on."""
    if given := os.environ.get("TRACER_NUM_THREADS", "").strip():
        if given.isdigit() and 1 <= int(given) <= _MOST_THREADS:
            return int(given)
        raise ValueError(
            f"TRACER_NUM_THREADS is an integer between 1 and {_MOST_THREADS}, got {given!r}"
        )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(cores or 1, _MOST_THREADS)


_default: Pool | None = None
_making = threading.Lock()


def default_pool() -> Pool:
    """The process's pool, made on first use."""
    global _default
    if _default is None:
        with _making:
            if _default is None:
                _default = Pool()
    return _default


def set_num_threads(threads: int) -> None:
    """Run large kernels on so many threads, the calling one included; the results do not change.

    Where the system has no futex (anything but Linux on x86-64 and aarch64) it stays at 1.

    >>> tracer.set_num_threads(tracer.get_num_threads())
    """
    default_pool().resize(threads)


def get_num_threads() -> int:
    """How many threads large kernels run on: TRACER_NUM_THREADS, else the cores of the process.

    >>> tracer.get_num_threads() >= 1
    True
    """
    return default_pool().threads


def _after_fork() -> None:
    global _making
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
