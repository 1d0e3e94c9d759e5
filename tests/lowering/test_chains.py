"""Long chains: everything is linear in their length, and nothing recurses over it.

Seconds are printed, not judged; judged is what makes time grow: nodes, groups, compiled kernels, and
the Python calls that are made for an operator.
"""

from __future__ import annotations

import gc
import pickle
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tracer
from tracer import ir, passes, trace
from tracer.ir.graph import Graph, Node
from tracer.ir.interpreter import interpret
from tracer.lowering.fuse import Fusion

USER_OPERATORS = 60_000  # 100,000 nodes: a Python number becomes a node of its own
X = np.linspace(-1, 1, 8, dtype=np.float32)


def chain(x: Any, count: int) -> Any:
    for k in range(count):
        x = tracer.tanh(x) if k % 3 == 0 else x + 0.5 if k % 3 == 1 else x * 1.5
    return x


def chain_in_numpy(x: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    for k in range(count):
        x = np.tanh(x) if k % 3 == 0 else x + np.float32(0.5) if k % 3 == 1 else x * np.float32(1.5)
    return x


class Steps:
    """Python calls made in a block."""

    calls = 0


@contextmanager
def counted() -> Iterator[Steps]:
    """Counts the calls of Python functions."""
    steps = Steps()

    def see(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            steps.calls += 1

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        yield steps
    finally:
        sys.setprofile(before)


def test_work_grows_with_the_length_and_no_faster() -> None:
    """Calls made by tracing, by passes and by fusion: ten times the chain, about ten times the calls."""
    made = {}
    for count in (300, 3000):
        traced = trace(lambda x, count=count: chain(x, count))
        with counted() as tracing:
            graph = traced.ir(X)
        with counted() as passing:
            simple = passes.run(graph)
        with counted() as fusing:
            fusion = Fusion(simple)
        made[count] = [tracing.calls, passing.calls, fusing.calls]
        assert len(fusion.groups) <= count / 40
        assert len(simple.nodes) <= count + 2  # and the two numbers
    for small, large in zip(made[300], made[3000], strict=True):
        assert large < 12 * small, made


def test_a_chain_of_ten_thousand_operators(note: Callable[[str], None]) -> None:
    from codegen.toolchain import kernel_store

    spent = {}
    for count in (1_000, 10_000):
        before = kernel_store.statistics()
        traced = trace(lambda x, count=count: chain(x, count))
        start = time.perf_counter()
        result = np.asarray(traced(X))
        spent[count] = time.perf_counter() - start
        after = kernel_store.statistics()
        np.testing.assert_allclose(result, chain_in_numpy(X, count), rtol=1e-5)
        # Equal kernels are one: the pattern of three operators and where 64 of them end it.
        requested = after.compiled + after.disk_hits - before.compiled - before.disk_hits
        assert requested <= 5, (before, after)
        plan = traced.plan(X)
        assert plan.kernels <= count / 50, plan.kernels
    note(
        f"chain of operators, trace + compile + first run: {spent[1_000]:.2f} s for 1,000, "
        f"{spent[10_000]:.2f} s for 10,000"
    )


@pytest.fixture(scope="module")
def graph() -> Graph:
    graph: Graph = trace(lambda x: chain(x, USER_OPERATORS)).ir(X)
    assert len(graph.nodes) == 100_000
    assert sys.getrecursionlimit() == 1000
    return graph


def test_a_long_chain_is_interpreted_and_simplified(graph: Graph) -> None:
    ir.verify(graph)
    (result,) = interpret(graph, [X])
    np.testing.assert_allclose(result, chain_in_numpy(X, USER_OPERATORS), rtol=1e-5)
    assert len(passes.run(graph).nodes) == USER_OPERATORS + 2


def test_a_long_chain_is_printed_and_parsed(graph: Graph) -> None:
    text = ir.to_text(graph)
    again = ir.parse(text, ir.constants(graph))
    assert len(text.splitlines()) > 100_000
    assert ir.equal(again, graph)


def test_a_long_chain_is_pickled(graph: Graph) -> None:
    again = pickle.loads(pickle.dumps(graph))
    assert ir.equal(again, graph)
    assert ir.fingerprint(again) == ir.fingerprint(graph)


def alive(kind: type) -> int:
    gc.collect()
    return sum(type(x) is kind for x in gc.get_objects())


def test_a_long_chain_is_differentiated_and_freed() -> None:
    before = alive(Node)
    slope = trace(tracer.grad(lambda x: tracer.sum(chain(x, USER_OPERATORS // 2))))
    graph = slope.ir(X)
    assert len(graph.nodes) > 80_000
    (found,) = interpret(graph, [X])
    assert found.shape == X.shape and np.isfinite(found).all()
    assert alive(Node) - before > 80_000
    slope.clear()
    del graph, slope
    assert alive(Node) - before < 1000


def test_a_long_history_is_walked_and_freed() -> None:
    """An eager Tensor at the end of 100,000 recorded operations: its gradient, and its death.

    The last reference goes in a function deep in the stack, and without the garbage collector.
    """
    x = tracer.tensor(np.full(2, 1e-3), requires_grad=True)
    y = x
    for _ in range(100_000):
        y = y * 1.0
    tracer.sum(y).backward(retain_graph=True)
    np.testing.assert_array_equal(x.grad, [1, 1])
    holder = [y]
    history = weakref.ref(y.grad_fn)
    del y

    def deep(level: int) -> None:
        if level:
            deep(level - 1)
        else:
            holder.pop()

    gc.collect()
    gc.disable()
    try:
        deep(500)
        assert history() is None
    finally:
        gc.enable()
