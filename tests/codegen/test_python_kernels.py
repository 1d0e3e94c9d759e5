"""Programs whose kernels run as Python: the compiled bits, from the same text, blocks and driver, and nothing is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracer
from codegen.cpu import python_kernel as python_kernels
from codegen.toolchain import kernel_store
from tests.support import kernel_specs as ks
from tests.tracing.test_trace import array, mlp, training_step
from tracer import random, trace
from tracer.core.config import CONFIG
from tracer.ir.graph import GraphBuilder
from tracer.runtime.executable import Executable

python = pytest.mark.kernels("python")


def both(monkeypatch: pytest.MonkeyPatch, run: Any) -> list[Any]:
    """What `run()` gives with compiled kernels and with Python's."""
    found = [run()]
    with monkeypatch.context() as m:
        m.setattr(CONFIG, "compile", False)
        before = kernel_store.statistics()
        found.append(run())
        assert kernel_store.statistics() == before
    return found


def training() -> list[bytes]:
    """Two steps: products of matrices, folds over rows and columns, updates in place."""
    model, optimizer = mlp()
    step = trace(training_step(model, optimizer))
    losses = [step(array(4, 6), array(4, 3, seed=1)) for _ in range(2)]
    return [np.asarray(t.detach()).tobytes() for t in (*losses, *model.parameters())]


def test_a_training_step_has_the_compiled_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, called = both(monkeypatch, training)
    assert compiled == called


@python
@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "bfloat16", "float64"])
def test_element_types(dtype: str) -> None:
    a = tracer.asarray(np.arange(40).reshape(2, 20) % 3).astype(dtype)

    def function(a: Any) -> Any:
        return tracer.where(a == a[:, :1], a, a.T.reshape(2, 20))

    np.testing.assert_array_equal(trace(function)(a), function(a))


@python
def test_threads_call_them_too() -> None:
    """A row of many chunks is shared: workers that Python knows nothing of call back into it."""
    x = np.arange(100_000, dtype=np.float32)
    before, found = tracer.get_num_threads(), []
    try:
        for threads in (1, 3):
            tracer.set_num_threads(threads)
            found.append(np.asarray(trace(lambda x: x * 2 + 1)(x)))
    finally:
        tracer.set_num_threads(before)
    for y in found:
        np.testing.assert_array_equal(y, x * 2 + 1)


@python
def test_calls_take_the_fast_way_and_indices_are_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    function = trace(lambda x, i: tracer.take(x, i, axis=0) + x[0])
    x, i = tracer.arange(4.0), tracer.tensor([3, 1])
    first = function(x, i)
    monkeypatch.setattr(Executable, "__call__", None)  # the general way into a program
    np.testing.assert_array_equal(function(x, i), first)
    monkeypatch.undo()
    with pytest.raises(tracer.BoundsError):
        function(x, tracer.tensor([4, 0]))


@python
def test_a_mark_compiles_nothing() -> None:
    before = kernel_store.statistics()
    function = trace(lambda x: (x * 0.37).sum())
    function(np.ones((3, 5), np.float32))
    assert (
        kernel_store.statistics() == before
    ) is not CONFIG.compile  # make fuzz compiles all the same
    (text,) = function.kernels()
    assert "def k_mul_reducesum" in text


def test_a_random_operator_by_itself_goes_with_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> bytes:
        random.manual_seed(3)
        return np.asarray(tracer.randn(5)).tobytes()

    compiled, called = both(monkeypatch, run)
    assert compiled == called


@python
def test_functions_of_the_users_own() -> None:
    @tracer.op
    def cut(x: float) -> float:
        return x if x > 0.5 else 0.25

    x = np.linspace(0, 1, 7, dtype=np.float32)
    found = np.asarray(trace(lambda x: cut(x) * 2)(x))
    np.testing.assert_array_equal(found, np.where(x > 0.5, x, np.float32(0.25)) * 2)


def test_equal_kernels_are_one() -> None:
    one, other = (python_kernels.python_kernel(ks.GATHER) for _ in range(2))
    assert one.address == other.address and one.origin == "python"


def test_what_a_kernel_raises_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    reported: list[Any] = []

    def fail(*_: Any) -> None:
        raise IndexError("element 7")

    monkeypatch.setattr("sys.unraisablehook", reported.append)
    monkeypatch.setattr("codegen.cpu.compile.unjitted", lambda *_: fail)
    monkeypatch.setattr(python_kernels, "_known", {})
    builder = GraphBuilder("failing")
    x = builder.input(tracer.zeros(3).type)
    monkeypatch.setattr(CONFIG, "compile", False)
    Executable(builder.build((builder.Neg(x),)), {})([tracer.zeros(3)])
    assert [str(r.exc_value) for r in reported] == ["element 7"]


SCRIPT = """
import sys, numpy as np, tracer
from codegen.toolchain import kernel_store as kernels
f = tracer.trace(lambda x: tracer.exp(x).sum())
print(float(f(np.zeros(4, np.float32))), float(f(np.zeros(4, np.float32))))
print(kernels.statistics().compiled, kernels.statistics().disk_hits, "numba" in sys.modules)
"""


def test_the_variable_sets_it(run_python: Any) -> None:
    done = run_python(SCRIPT, environment={"TRACER_KERNELS": "python"})
    assert done.stdout == "4.0 4.0\n0 0 False\n"
