"""Threads and forks: one function called from several threads, children of a process that has compiled,
results that stay as they were handed out.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracer
from tracer import nn, optim, trace

Array = np.ndarray[Any, Any]
LARGE = 200_000  # several chunks: the pool of workers takes part


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def in_threads(*works: Callable[[], None]) -> None:
    """Run all at once and raise what any of them raises."""
    failures: list[BaseException] = []
    start = threading.Barrier(len(works))

    def run(work: Callable[[], None]) -> None:
        try:
            start.wait(timeout=60)
            work()
        except BaseException as error:  # handed to the test
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for t in threads:
        t.start()
    for t in threads:
        t.join(timeout=120)
        assert not t.is_alive(), "a thread hangs"
    if failures:
        raise failures[0]


def fused(x: Any) -> Any:
    y = tracer.softmax(x, axis=-1)
    return tracer.tanh(y @ y.T) + tracer.sum(x, axis=1)


@pytest.mark.parametrize("size", [8, 300])
def test_two_threads_call_one_function(size: int) -> None:
    traced = trace(fused)
    arguments = [numbers(size, size, seed=k) for k in range(2)]
    wanted = [np.asarray(traced(x)).copy() for x in arguments]

    def work(k: int) -> None:
        for _ in range(60):
            np.testing.assert_array_equal(traced(arguments[k]), wanted[k])

    in_threads(lambda: work(0), lambda: work(1))


def test_threads_meet_at_the_first_call() -> None:
    """Whoever comes second waits for the first one's trace; nothing is compiled twice."""
    ran: list[int] = []

    @trace
    def function(x: Any) -> Any:
        ran.append(1)
        time.sleep(0.05)  # the others arrive meanwhile
        return tracer.exp(x) * 2.0 - x

    x = numbers(1000)
    in_threads(*[lambda: np.testing.assert_allclose(function(x), np.exp(x) * 2 - x, rtol=1e-5)] * 6)
    assert len(ran) == 1
    assert len(function.signatures()) == 1


def test_threads_trace_different_functions_and_signatures() -> None:
    traced = trace(lambda x: tracer.sqrt(tracer.sum(x * x, axis=-1)))

    def work(k: int) -> None:
        own = trace(lambda x: x * float(k) + 1.0)
        for n in range(1, 12):
            x = numbers(n, k + 1, seed=k)
            np.testing.assert_allclose(traced(x), np.sqrt((x * x).sum(-1)), rtol=1e-5)
            np.testing.assert_allclose(own(x), x * np.float32(k) + 1, rtol=1e-6)

    in_threads(*(lambda k=k: work(k) for k in range(3)))


def test_a_trace_in_one_thread_is_not_seen_by_another() -> None:
    """While one thread records, eager work of another is computed at once."""
    inside, done = threading.Event(), threading.Event()

    @trace
    def function(x: Any) -> Any:
        inside.set()
        assert done.wait(timeout=60)
        return x + 1.0

    def eager() -> None:
        assert inside.wait(timeout=60)
        x = tracer.tensor([1.0, 2.0], requires_grad=True)
        y = tracer.sum(x * x)
        y.backward()
        assert float(y.detach()) == 5.0
        np.testing.assert_array_equal(x.grad, [2, 4])
        with tracer.no_grad():
            assert not tracer.is_grad_enabled()
        done.set()

    in_threads(
        lambda: np.testing.assert_array_equal(function(np.zeros(2, np.float32)), [1, 1]), eager
    )


def test_a_function_is_called_from_another_thread_than_compiled_it() -> None:
    traced = trace(fused)
    x = numbers(20, 20)
    compiled: list[Array] = []
    in_threads(lambda: compiled.append(np.asarray(traced(x)).copy()))
    np.testing.assert_array_equal(traced(x), compiled[0])  # that thread has ended
    in_threads(lambda: np.testing.assert_array_equal(traced(x), compiled[0]))
    assert len(traced.signatures()) == 1


def test_an_exception_in_one_thread_leaves_the_other_alone() -> None:
    table = numbers(10, 4)
    take = trace(lambda k: tracer.take(tracer.tensor(table), k, axis=0) * 2.0)
    good = np.arange(5)
    take(good)

    def fail() -> None:
        for _ in range(60):
            with pytest.raises(tracer.BoundsError):
                take(np.array([0, 1, 99, 3, 4]))
            with pytest.raises(tracer.TracerError):
                take(np.zeros((2, 2), np.float32))  # no indices

    def work() -> None:
        for _ in range(300):
            np.testing.assert_array_equal(take(good), table[:5] * 2)

    in_threads(fail, work)


def test_an_exception_while_tracing_leaves_the_other_thread_alone() -> None:
    started = threading.Event()

    @trace
    def function(x: Any, fail: bool) -> Any:
        if fail:
            started.set()
            time.sleep(0.02)
            raise ValueError("mine")
        return x * 3.0

    def fails() -> None:
        for _ in range(5):
            with pytest.raises(ValueError, match="mine"):
                function(np.ones(3, np.float32), True)

    def works() -> None:
        assert started.wait(timeout=60)
        for _ in range(50):
            np.testing.assert_array_equal(function(np.ones(3, np.float32), False), [3, 3, 3])

    in_threads(fails, works)


def test_training_in_threads_with_models_of_their_own() -> None:
    def train(seed: int) -> list[Array]:
        with lock:  # the default generator belongs to all
            tracer.manual_seed(seed)
            model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
        optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

        @trace
        def step(x: Any, y: Any) -> Any:
            loss = tracer.sum((model(x) - y) ** 2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        x, y = numbers(8, 6, seed=seed), numbers(8, 2, seed=seed + 10)
        for _ in range(20):
            step(x, y)
        return [p.detach().array.copy() for p in model.parameters()]

    lock = threading.Lock()
    alone = [train(k) for k in range(3)]
    found: dict[int, list[Array]] = {}
    in_threads(*(lambda k=k: found.update({k: train(k)}) for k in range(3)))
    for k in range(3):
        for a, b in zip(found[k], alone[k], strict=True):
            np.testing.assert_array_equal(a, b)


# ---- results -------------------------------------------------------------------------------------
def test_results_are_never_overwritten() -> None:
    """Kept ones stay; memory of dropped ones is used again, so this is not for want of trying."""
    traced = trace(lambda x: (x * 2.0, tracer.sum(x)))
    kept: list[tuple[int, Any, Any]] = []
    pointers = set()
    for k in range(200):
        double, total = traced(np.full(1000, k, np.float32))
        pointers.add(double.pointer)
        if k % 10 == 0:
            kept.append((k, double, total))
    for k, double, total in kept:
        np.testing.assert_array_equal(double, np.full(1000, 2 * k))
        assert float(total) == 1000 * k
    assert len(pointers) < 60


def test_arrays_of_results_keep_their_memory() -> None:
    traced = trace(lambda x: x + 1.0)
    views = [np.asarray(traced(np.full(500, k, np.float32)))[::7] for k in range(30)]
    for k, view in enumerate(views):
        np.testing.assert_array_equal(view, np.full(len(view), k + 1))


def test_results_of_two_threads_are_never_overwritten() -> None:
    traced = trace(lambda x: x * x)

    def work(start: int) -> None:
        kept = [(k, traced(np.full(LARGE, k, np.float32))) for k in range(start, start + 25)]
        for k, y in kept:
            assert (np.asarray(y) == k * k).all()

    in_threads(lambda: work(0), lambda: work(1000))


def test_a_result_outlives_its_function() -> None:
    traced = trace(lambda x: x * 2.0)
    y = traced(np.ones(100, np.float32))
    traced.clear()
    del traced
    other = trace(lambda x: x * 5.0)
    for _ in range(20):
        other(np.ones(100, np.float32))
    np.testing.assert_array_equal(y, np.full(100, 2))


# ---- forks ---------------------------------------------------------------------------------------
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")


def in_child(work: Callable[[], None]) -> int:
    """Fork, run in the child, and return the child's number."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException as error:  # a child must not return into pytest
        print(f"in a child: {error!r}", file=sys.stderr)
    finally:
        os._exit(code)


def ended_well(child: int, seconds: float = 60) -> bool:
    """Whether a child exits with 0; one that hangs is ended."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.005)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12: threads at a fork
def test_twenty_forks_after_compiling() -> None:
    small, large = trace(fused), trace(lambda x: tracer.exp(x) * x)
    x, y = numbers(30, 30), numbers(LARGE)
    wanted = np.asarray(small(x)).copy(), np.asarray(large(y)).copy()

    def work() -> None:
        for _ in range(3):
            np.testing.assert_array_equal(small(x), wanted[0])
            np.testing.assert_array_equal(large(y), wanted[1])
        new = trace(lambda x: x * 3.0 + 0.25)  # a new trace and maybe a new kernel
        np.testing.assert_array_equal(new(np.ones(3, np.float32)), [3.25] * 3)

    children = [in_child(work) for _ in range(20)]
    np.testing.assert_array_equal(large(y), wanted[1])  # the parent goes on meanwhile
    assert all([ended_well(child) for child in children])
    np.testing.assert_array_equal(small(x), wanted[0])


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forks_while_other_threads_run_and_compile() -> None:
    traced = trace(lambda x: tracer.tanh(x) * 0.5)
    y = numbers(LARGE)
    wanted = np.asarray(traced(y)).copy()
    stop = threading.Event()

    def busy() -> None:
        n = 1
        while not stop.is_set():
            traced(y)
            n += 1
            trace(lambda x, n=n: x + float(n))(np.ones(n % 7 + 1, np.float32))

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for t in threads:
        t.start()
    try:
        children = []
        for _ in range(8):
            children.append(in_child(lambda: np.testing.assert_array_equal(traced(y), wanted)))
            time.sleep(0.01)
        assert all([ended_well(child) for child in children])
    finally:
        stop.set()
        for t in threads:
            t.join(timeout=60)
    assert not any(t.is_alive() for t in threads)


@needs_fork
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_child_changes_nothing_of_its_parent() -> None:
    """Results and state are the child's own copies."""
    state = tracer.tensor(np.zeros(LARGE, np.float32))

    @trace
    def advance(x: Any) -> Any:
        state.add_(x)
        return state * 1.0

    first = advance(np.ones(LARGE, np.float32))

    def work() -> None:
        for _ in range(5):
            second = advance(np.ones(LARGE, np.float32))
        assert float(np.asarray(second)[0]) == 6.0

    assert ended_well(in_child(work))
    assert (np.asarray(first) == 1).all() and (np.asarray(state) == 1).all()
