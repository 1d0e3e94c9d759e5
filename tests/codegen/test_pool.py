"""Programs on the pool: the same bits on any number of threads, many callers, forks, resizes,
Ctrl-C, processes' ends.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from codegen.runtime import (
    STATUS,
    AddressOf,
    HostCall,
    Pool,
    Program,
    Row,
    Slot,
    default_pool,
    get_num_threads,
    set_num_threads,
)
from codegen.runtime import layout as at
from codegen.toolchain import elf_check
from tests.support.runtime_kernels import load

CHUNK = 1000
N = 10 * CHUNK + 7


@pytest.fixture
def pool() -> Iterator[Pool]:
    """The process's pool, as large afterwards as before."""
    before = get_num_threads()
    yield default_pool()
    set_num_threads(before)


def address(array: np.ndarray[Any, Any]) -> int:
    return int(array.ctypes.data)


class Counter:
    """A program that adds 1 to an array three times, so that a chunk run twice or never shows."""

    def __init__(self, n: int = N) -> None:
        self.ones, self.out = np.ones(n, "f4"), np.zeros(n, "f4")
        self.words = address(self.ones), address(self.out)
        row = Row(load("increase").address, n, CHUNK, (Slot(0), Slot(1)))
        self.program = Program([row] * 3, slots=2)

    def __call__(self, times: int = 1) -> None:
        for _ in range(times):
            self.program.call(*self.words)


# ---- bits ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, CHUNK - 1, CHUNK, CHUNK + 1, N])
def test_same_bits_on_any_number_of_threads(pool: Pool, rng: np.random.Generator, n: int) -> None:
    a, sums, out = rng.standard_normal(n).astype("f4"), np.empty(n, "f4"), np.empty(n, "f4")
    rows = [
        Row(load("total").address, n, CHUNK, (Slot(0), Slot(1))),
        Row(load("increase").address, n, CHUNK, (Slot(1), Slot(2))),
    ]
    program = Program(rows, slots=3)
    results = set()
    for threads in (1, 2, 3, 7):
        pool.resize(threads)
        for _ in range(30):
            sums[:], out[:] = 0, a
            assert program.call(address(a), address(sums), address(out)) == 0
            results.add(sums.tobytes() + out.tobytes())
    assert len(results) == 1
    expected = np.concatenate(
        [np.cumsum(np.sin(a[i : i + CHUNK].astype("f8"))) for i in range(0, n, CHUNK)]
    )
    np.testing.assert_allclose(sums, expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(out, expected + a, rtol=1e-4, atol=1e-3)


def meeting() -> bool:
    """Whether two chunks that wait for each other get through: only with two threads at once."""
    arrived = np.zeros(1, "i8")
    Program([Row(load("meet").address, 2, 1, (Slot(0),))], slots=1).call(address(arrived))
    return bool(arrived[0] == 2)


def test_workers_take_part(pool: Pool) -> None:
    pool.resize(2)
    assert all(meeting() for _ in range(100))
    assert pool.workers == 1


# ---- callers, forks, resizes ---------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_four_callers(pool: Pool, threads: int) -> None:
    pool.resize(threads)
    counters = [Counter() for _ in range(4)]
    run_together([lambda c=c: c(500) for c in counters])
    assert all((c.out == 1500).all() for c in counters)


def test_one_program_called_by_four_threads(pool: Pool) -> None:
    """Each call has words of its own, though the program is one."""
    pool.resize(2)
    n = 300_000  # long enough for calls to overlap
    row = Row(load("increase").address, n, n // 30, (Slot(0), Slot(1)))
    program = Program([row] * 3, slots=2)
    outs = [np.zeros(n, "f4") for _ in range(4)]
    ones = [np.full(n, i + 1, "f4") for i in range(4)]

    def call(i: int) -> None:
        words = address(ones[i]), address(outs[i])
        for _ in range(50):
            program.call(*words)

    run_together([lambda i=i: call(i) for i in range(4)])
    for i in range(4):
        assert set(outs[i]) == {150.0 * (i + 1)}


def run_together(tasks: list[Callable[[], None]]) -> None:
    errors: list[BaseException] = []

    def run(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:  # handed to the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=[task]) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a caller is stuck"
    assert not errors


class Background:
    """Another thread that calls a program all the time."""

    def __enter__(self) -> Counter:
        self.counter, self.going = Counter(), True
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        return self.counter

    def run(self) -> None:
        while self.going:
            self.counter()

    def __exit__(self, *_: object) -> None:
        self.going = False
        self.thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "calling"])
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_twenty_forks(pool: Pool, busy: bool) -> None:
    pool.resize(2)
    counter = Counter()
    with Background() if busy else nullcontext():
        for _ in range(20):
            counter.out[:] = 0
            counter()
            child = os.fork()
            if child == 0:
                counter(2)
                good = (counter.out == 9).all() and meeting() and pool.workers == 1
                pool.close()
                os._exit(0 if good else 1)
            counter()
            assert wait_for(child) == 0
            assert (counter.out == 6).all()


def wait_for(child: int) -> int:
    deadline = time.time() + 20
    while time.time() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    pytest.fail("a forked child is stuck")


def test_resizes_under_a_running_caller(pool: Pool) -> None:
    with Background() as counter:
        for i in range(200):
            pool.resize(1 + i % 4)
    assert len(set(counter.out)) == 1
    assert counter.out[0] > 0


def test_sizes_of_the_pool(pool: Pool) -> None:
    set_num_threads(3)
    assert get_num_threads() == 3
    assert pool.workers == 0  # they come with the first large row
    Counter(CHUNK)()
    assert pool.workers == 0
    Counter()()
    assert pool.workers == 2
    set_num_threads(1)
    assert pool.workers == 0
    with pytest.raises(ValueError, match="between 1 and 1024, got 0"):
        set_num_threads(0)
    with pytest.raises(TypeError, match=r"an integer, got float 2\.0"):
        set_num_threads(2.0)  # type: ignore[arg-type]


def test_a_closed_pool_goes_on_without_workers() -> None:
    pool = Pool(2)
    ones, out = np.ones(N, "f4"), np.zeros(N, "f4")
    row = Row(load("increase").address, N, CHUNK, (Slot(0), Slot(1)))
    program = Program([row], slots=2, pool=pool)
    for closed in (False, True, True):
        if closed:
            pool.close()
        program.call(address(ones), address(out))
        assert pool.workers == (not closed)
    assert (out == 3).all()
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("tracer-1") <= 1  # at most the other pool's


def test_keyboard_interrupt_comes_after_the_program(pool: Pool) -> None:
    counter = Counter()
    counter()
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    # whatever else this process has run: Python's own handler, and no collection, whose callbacks swallow what is raised in them
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            for _ in range(10**7):
                counter()
        timer.join()
    finally:
        gc.enable()
        signal.signal(signal.SIGINT, handler)
    before = counter.out[0]
    assert set(counter.out) == {before}
    counter()
    assert set(counter.out) == {before + 3}


# ---- programs ------------------------------------------------------------------------------------


def test_slots_follow_each_call() -> None:
    """Offsets in bytes, slots used by several rows, numbers, and words that change or stay."""
    n = 100
    a, out = np.arange(2 * n, dtype="f4"), np.zeros(2 * n, "f4")
    increase = load("increase").address
    rows = [
        Row(increase, n, n, (Slot(0, 4 * n), Slot(1))),
        Row(increase, n, n, (Slot(0), Slot(1, 4 * n))),
        Row(increase, n, n, (address(a), Slot(1))),
    ]
    program = Program(rows, slots=2)
    for other in (out, np.zeros(2 * n, "f4"), out):
        other[:] = 0
        program.call(address(a), address(other))
        np.testing.assert_array_equal(other[:n], a[n:] + a[:n])
        np.testing.assert_array_equal(other[n:], a[:n])


def test_numbers_as_words() -> None:
    out = np.zeros(8, "f4")
    row = Row(load("fill").address, 8, 8, (AddressOf(1), Slot(0)))
    program = Program([row], slots=2)
    for value in (1.5, -0.0, 1e30, float("inf")):
        program.call(address(out), value)
        assert out.tobytes() == np.full(8, value, "f4").tobytes()
    bits = int(np.float64(-2.5).view("i8"))
    program.call(address(out), bits)  # the same number as an int: negative, so two's complement
    assert (out == -2.5).all()


def test_status_ends_the_program() -> None:
    n = 3 * CHUNK
    indices, out, ones = np.zeros(n, "f4"), np.zeros(n, "f4"), np.ones(n, "f4")
    rows = [
        Row(load("gather").address, n, CHUNK, (Slot(0), Slot(1), Slot(2), AddressOf(STATUS))),
        Row(load("increase").address, n, CHUNK, (Slot(3), Slot(2))),
    ]
    program = Program(rows, slots=4)
    words = address(indices), 5, address(out), address(ones)
    assert program.call(*words) == 0
    assert (out == 1).all()
    indices[2500] = 5
    assert program.call(*words) == 7
    assert out[2499] == 0, "the row after the error ran"
    indices[2500] = 4
    assert program.call(*words) == 0, "an old error came back"
    assert out[2500] == 5


def test_host_calls_between_rows() -> None:
    a, out = np.ones(8, "f4"), np.zeros(8, "f4")
    seen: list[tuple[int | float, ...]] = []

    def double(*words: int | float) -> None:
        seen.append(words)
        np.multiply(out, 2, out)

    row = Row(load("increase").address, 8, 8, (Slot(0), Slot(1)))
    program = Program([row, row, HostCall(double, "double"), row], slots=2)
    words = address(a), address(out)
    assert program(*words) == 0
    assert (out == 5).all()
    assert seen == [words]
    assert program.host_calls == 1
    failing = Program([row, HostCall(lambda *_: 1 / 0, "fail"), row], slots=2)
    with pytest.raises(ZeroDivisionError):
        failing.call(*words)
    assert (out == 6).all()


def test_empty_programs_and_rows() -> None:
    assert Program([], slots=0).call() == 0
    out = np.zeros(8, "f4")
    row = Row(load("increase").address, 0, 8, (Slot(0), Slot(0)))
    assert Program([row], slots=1).call(address(out)) == 0
    assert (out == 0).all()


def test_wrong_words() -> None:
    program = Program([Row(load("increase").address, 8, 8, (Slot(0), Slot(1)))], slots=2)
    with pytest.raises(TypeError, match="takes 2 words, one for each slot, got 1"):
        program.call(1)
    for wrong in ("a", None, np.float64(1.0)):
        with pytest.raises(TypeError):
            program.call(1, wrong)
    a = np.ones(8, "f4")
    assert program.call(address(a), address(a)) == 0
    assert (a == 2).all()


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Row(0, 8, 8, ()), "needs a kernel's address"),
        (Row(1, -1, 8, ()), "n >= 0"),
        (Row(1, 8, 0, ()), "chunks of at least 1"),
        (Row(1, 1 << 40, 1, ()), "at most 2147483647 of them"),
        (Row(1, 8, 8, (Slot(2),)), "program of 2 slots"),
        (Row(1, 8, 8, (AddressOf(-2),)), "program of 2 slots"),
        (Row(1, 8, 8, (1 << 64,)), "does not fit into 64 bits"),
    ],
)
def test_wrong_rows(row: Row, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Program([row], slots=2)


def test_programs_are_freed() -> None:
    """The memory goes with the last reference, without waiting for the garbage collector."""

    class Witness(list):  # type: ignore[type-arg]
        pass

    gc.disable()
    try:
        witness = Witness()
        alive = weakref.ref(witness)
        row = Row(load("increase").address, 8, 8, (Slot(0), Slot(0)))
        program = Program([row, HostCall(lambda *_, w=witness: None, "keep")], slots=1)
        machine = Program([row], slots=1)
        owned = machine.call.__module__  # what the callable holds
        count = sys.getrefcount(owned)
        del machine
        assert sys.getrefcount(owned) == count - 1
        del witness, program
        assert alive() is None
    finally:
        gc.enable()


def test_one_call_of_python_for_a_hundred_kernels() -> None:
    a = np.ones(8, "f4")
    row = Row(load("increase").address, 8, 8, (Slot(0), Slot(1)))
    call = Program([row] * 100, slots=2).call
    words = address(a), address(np.zeros(8, "f4"))
    events: list[str] = []
    sys.setprofile(lambda frame, event, arg: events.append(event))
    try:
        call(*words)
    finally:
        sys.setprofile(None)
    assert events.count("c_call") == 2  # the program, and setprofile itself
    assert events.count("call") == 0


# ---- processes -----------------------------------------------------------------------------------

CHILD = """
import ctypes, sys, threading, time
from tests.support.runtime_kernels import load
from codegen.runtime import Program, Row, Slot, default_pool, set_num_threads
set_num_threads(2)
n = 5000
a, out = (ctypes.c_float * n)(*range(n)), (ctypes.c_float * n)()
words = ctypes.addressof(a), ctypes.addressof(out)
program = Program([Row(load("increase").address, n, 1000, (Slot(0), Slot(1)))] * 3, slots=2)
program.call(*words)
mode = int(sys.argv[1])
if mode == 1:
    time.sleep(0.002)  # the end comes with sleeping workers
elif mode == 2:
    set_num_threads(4)
elif mode == 3:  # the end comes while another thread calls
    def call_on():
        while True:
            program.call(*words)
    threading.Thread(target=call_on, daemon=True).start()
    time.sleep(0.002)
if mode != 3:
    program.call(*words)
    assert list(out) == [6.0 * i for i in range(n)]
assert "numba" not in sys.modules and "numpy" not in sys.modules
"""


@pytest.mark.skipif(not elf_check.SUPPORTED, reason="nothing is cached on this system")
@pytest.mark.parametrize("mode", range(4), ids=["at once", "asleep", "resized", "calling"])
def test_second_processes_need_neither_numba_nor_numpy(
    run_python: Callable[..., Any], mode: int
) -> None:
    load("increase")
    default_pool()
    for _ in range(6):
        done = run_python(CHILD, str(mode), timeout=30)
        assert done.stderr == ""


def test_threads_from_the_environment(run_python: Callable[..., Any]) -> None:
    code = "from codegen.runtime import get_num_threads as n; print(n())"
    assert run_python(code, environment={"TRACER_NUM_THREADS": "5"}).stdout == "5\n"
    done = run_python(code, environment={"TRACER_NUM_THREADS": "many"}, check=False)
    assert "TRACER_NUM_THREADS is an integer between 1 and 1024, got 'many'" in done.stderr


def test_without_futexes_everything_runs_on_the_caller(run_python: Callable[..., Any]) -> None:
    """The way of other systems: no object files, no workers."""
    code = """
import numpy as np
from codegen.toolchain import kernel_store as kernels, elf_check as object_file
from codegen.runtime import layout
object_file.SUPPORTED = layout.WORKERS_POSSIBLE = False
from tests.support.runtime_kernels import load
from codegen.runtime import Program, Row, Slot, default_pool, get_num_threads, set_num_threads
set_num_threads(4)
assert get_num_threads() == 1
a, out = np.ones(5000, "f4"), np.zeros(5000, "f4")
kernel = load("increase")
assert kernel.origin == "compiled"
program = Program([Row(kernel.address, 5000, 1000, (Slot(0), Slot(1)))], slots=2)
assert program.call(a.ctypes.data, out.ctypes.data) == 0
assert (out == 1).all() and default_pool().workers == 0
assert kernels.statistics().disk_hits == 0
"""
    run_python(code)


def test_layout_has_no_overlaps() -> None:
    """Words with different writers are on different cache lines, and words do not overlap."""
    state = [at.EPOCH, at.SLEEPERS, at.LIFE, at.WORKERS, at.WANTED, at.SPIN, at.START]
    seat = [at.TICKET, at.PENDING, at.BUSY, at.WAITING, at.CORE]
    assert len(set(state)) == len(state)
    assert max(state) < at.FIRST_SEAT
    assert len({word // 64 for word in (at.EPOCH, at.SLEEPERS, at.LIFE)}) == 3
    assert len({word // 64 for word in (at.TICKET, at.PENDING, at.BUSY)}) == 3
    assert max(seat) < at.JOB
    assert at.JOB + at.ROW <= at.SEAT
