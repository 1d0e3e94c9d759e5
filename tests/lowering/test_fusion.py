"""What becomes one kernel: counts of kernels and bytes moved, which may only fall; what a plan says."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracer
import tracer.nn.functional as F
from codegen.toolchain.kernel_store import statistics
from ops.types import Type
from tracer import nn, optim, trace
from tracer.ir.graph import GraphBuilder
from tracer.lowering.report import Plan
from tracer.runtime.executable import Executable
from tracer.tensors.tensor import Tensor

Array = np.ndarray[Any, Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def with_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    """(result, gradients of all arguments but the last, which is the cotangent)."""

    def both(*arguments: Any) -> Any:
        *xs, cotangent = arguments
        y, pullback = tracer.vjp(function, *xs)
        return y, pullback(cotangent)

    return both


def plan(function: Callable[..., Any], *arguments: Any) -> Plan:
    result: Plan = trace(function).plan(*arguments)
    return result


def counts(p: Plan) -> tuple[int, int, int]:
    """Kernels, library calls, host calls."""
    kinds = [part.kind for part in p.parts]
    assert set(kinds) <= {"kernel", "library", "host"}
    return kinds.count("kernel"), kinds.count("library"), kinds.count("host")


# ---- the counts that are promised ----------------------------------------------------------------
N = 1 << 16
BYTES = 4 * N  # of one operand


def test_gelu_with_its_gradients_is_one_kernel() -> None:
    function = with_gradients(lambda a, b, c: tracer.gelu(a * b + c))
    arguments = [numbers(N, seed=k) for k in range(4)]
    p = plan(function, *arguments)
    assert counts(p) == (1, 0, 0), str(p)
    assert p.bytes_moved == 8 * BYTES  # four read, the result and three gradients written
    assert p.workspace == 0


def test_softmax_with_its_gradient_is_one_kernel() -> None:
    function = with_gradients(lambda x: tracer.softmax(x, axis=-1))
    p = plan(function, numbers(64, 1024), numbers(64, 1024, seed=1))
    assert counts(p) == (1, 0, 0), str(p)
    assert p.bytes_moved <= 5 * BYTES  # its result is read back once, from the cache
    assert p.workspace == 0


def test_what_takes_effort_is_kept_in_a_result_that_is_written_later() -> None:
    """The gradient's memory holds a softmax's exponentials, then their quotients: each is computed once for an element."""
    traced = tracer.trace(tracer.grad(lambda x, w: tracer.sum(tracer.softmax(x, axis=-1) * w)))
    (text,) = traced.kernels(numbers(64, 1024), numbers(64, 1024, seed=1))
    for computed in ("exp(", " / v"):
        assert text.count(computed) == 2, text  # of full vectors, and of the last one


def test_nothing_is_kept_in_a_result_that_lies_across() -> None:
    """Reading and writing apart from each other costs more than a division."""

    def function(x: Any, s: Any) -> Any:
        q = x / s
        return tracer.permute_dims(q - tracer.max(q, axis=-1, keepdims=True), (1, 0)) * 2

    (text,) = tracer.trace(function).kernels(numbers(64, 1024), numbers(64, 1, seed=1))
    assert "gather" not in text and text.count("scatter") == 2, (
        text
    )  # the result, and its last vector


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def test_layer_norm_with_its_three_gradients_is_two_kernels() -> None:
    arguments = numbers(512, 128), numbers(128, seed=1), numbers(128, seed=2)
    p = plan(with_gradients(layer_norm), *arguments, numbers(512, 128, seed=3))
    assert counts(p) == (2, 0, 0), str(p)
    assert p.bytes_moved < 4.5 * BYTES + 200_000, p.bytes_moved  # x, dy in; y, dx out; partial sums
    forward = plan(layer_norm, *arguments)
    assert counts(forward) == (1, 0, 0), str(forward)


def test_cross_entropy_with_its_gradient() -> None:
    def loss(x: Any, y: Any) -> Any:
        return tracer.value_and_grad(lambda x: F.cross_entropy(x, y))(x)

    p = plan(loss, numbers(64, 1000), np.arange(64))
    # labels that count; loss and gradient of each row; the mean
    assert counts(p) == (3, 0, 0), str(p)
    # the scores are read; the gradient is written, and holds their exponentials before
    assert p.bytes_moved < 3.1 * 4 * 64_000, p.bytes_moved


def mlp() -> tuple[nn.Module, Any]:
    tracer.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @trace
    def step(x: Any, y: Any) -> Any:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def test_the_training_step_of_a_small_network() -> None:
    _, step = mlp()
    p = step.plan(numbers(32, 64), np.arange(32) % 10)
    kernels, library, host = counts(p)
    assert (library, host) == (5, 0), str(p)
    assert kernels <= 9, str(p)
    assert p.bytes_moved <= 143_180, p.bytes_moved
    assert p.workspace <= 14_592, p.workspace


# ---- what fuses ----------------------------------------------------------------------------------
def test_broadcasts_transposes_reshapes_and_slices_are_read_in_place() -> None:
    def function(x: Any, y: Any, row: Any, column: Any) -> Any:
        z = tracer.exp((x.T * y + row) * 2.0) + column[:, None]
        return z.reshape((20, 15, 10)) - y.reshape((20, 15, 10))

    arguments = numbers(10, 300), numbers(300, 10), numbers(10), numbers(300)
    p = plan(function, *arguments)
    assert counts(p) == (1, 0, 0), str(p)
    assert p.bytes_moved == 3 * 12_000 + 1_200 + 40
    sliced = plan(lambda x: x[1:, ::2] * x[:-1, 1::2], numbers(100, 80))
    assert counts(sliced) == (1, 0, 0), str(sliced)


def test_gathers_are_read_at_their_places() -> None:
    p = plan(
        lambda table, k: tracer.tanh(tracer.take(table, k, axis=0)) * 2.0,
        numbers(50, 16),
        np.arange(20),
    )
    assert counts(p) == (1, 0, 0), str(p)


def test_several_results_and_siblings_are_one_kernel() -> None:
    def function(x: Any, y: Any) -> Any:
        s = x + y
        return s * 2.0, s * s, tracer.sum(s, axis=1), tracer.max(s, axis=1)

    p = plan(function, numbers(40, 50), numbers(40, 50))
    assert counts(p) == (1, 0, 0), str(p)


def test_what_follows_a_reduction_along_its_rows_stays_with_it() -> None:
    def normalise(x: Any) -> Any:
        centred = x - tracer.mean(x, axis=1, keepdims=True)
        return centred / tracer.sqrt(tracer.mean(centred * centred, axis=1, keepdims=True) + 1e-5)

    p = plan(normalise, numbers(64, 100))
    assert counts(p) == (1, 0, 0), str(p)
    assert p.bytes_moved == 2 * 4 * 6400


def test_a_value_of_a_row_is_not_computed_for_each_element() -> None:
    """exp of a row's value runs once for each row: it does not join a kernel that would repeat it."""
    traced = trace(lambda x, row: x * tracer.exp(row)[:, None])
    (text,) = traced.kernels(numbers(30, 40), numbers(30))
    lines = text.splitlines()
    loop = next(k for k, line in enumerate(lines) if line.strip().startswith("for r in"))
    exponential = next(k for k, line in enumerate(lines) if "exp(" in line and "=" in line)
    assert exponential < loop, text


def test_the_reasons_of_cuts_are_given() -> None:
    def function(x: Any, k: Any) -> Any:
        return tracer.take(tracer.exp(x), k, axis=0)

    p = plan(function, numbers(30, 40), np.arange(5))
    assert len(p.parts) == 2
    assert p.cuts and all(cut.reason for cut in p.cuts)
    assert [cut.producer for cut in p.cuts] == ["Exp"]
    assert "indices that depend on data" in str(p)


# ---- what a plan says ----------------------------------------------------------------------------
def test_a_plan_names_kernel_library_or_host_for_every_part() -> None:
    def function(x: Any, y: Any) -> Any:
        return tracer.cumulative_sum(tracer.tanh(x @ y), axis=0)

    p = plan(function, numbers(9, 8), numbers(8, 7))
    assert [part.kind for part in p.parts] == ["library", "kernel", "host"], str(p)
    assert [part.operators for part in p.parts] == [("MatMul",), ("Tanh",), ("CumSum",)]
    text = str(p)
    assert "1 kernels, 1 library calls, 1 host calls" in text
    assert p.kernels == 1
    assert all(part.bytes_written > 0 for part in p.parts)


def test_every_node_of_a_plan_is_in_a_part_or_costs_nothing() -> None:
    """Nothing runs beside the parts: constants and views have no part of their own."""
    _, step = mlp()
    p = step.plan(numbers(32, 64), np.arange(32) % 10)
    computed = [op for part in p.parts for op in part.operators]
    for name in set(p.nodes) - {"Constant", "Dimension", "Reshape", "Transpose", "Expand"}:
        assert name in computed, name


def test_another_number_is_no_other_kernel() -> None:
    def scaled(factor: float, shift: float) -> Any:
        return trace(lambda x: tracer.sum(x * factor + shift, axis=1))

    x = numbers(30, 40)
    first, second = scaled(0.3, 1e-5), scaled(-1.7, 3.0)
    first(x)
    before = statistics()
    np.testing.assert_allclose(second(x), (x * np.float32(-1.7) + 3).sum(1), rtol=1e-4, atol=1e-4)
    after = statistics()
    assert (after.compiled, after.disk_hits) == (before.compiled, before.disk_hits)
    assert after.memory_hits == before.memory_hits + 1
    (text,) = second.kernels(x)
    assert "# -1.7" in text and "# 3.0" in text


@pytest.mark.parametrize(
    "move",
    [
        lambda m, x, k: tracer.where(m, x.T, x[0, 0]),
        lambda m, x, k: tracer.take(x, k, axis=0),
        lambda m, x, k: tracer.pad(tracer.where(m, x, x.T), ((1, 2), (0, 1)), "edge"),
        lambda m, x, k: tracer.index_add(tracer.where(m, x, 0), k, x, 0),
    ],
)
def test_element_types_of_one_size_share_kernels_that_move_or_add(move: Any) -> None:
    mask, places = np.arange(16).reshape(4, 4) % 3 == 0, np.array([3, 0, 0, 2])
    before = None
    for dtype in ("uint32", "int32"):
        x = np.arange(16).astype(dtype).reshape(4, 4)
        traced = trace(lambda m, x, k: move(m, x, k))
        np.testing.assert_array_equal(traced(mask, x, places), move(mask, tracer.tensor(x), places))
        if before is not None:
            after = statistics()
            assert (after.compiled, after.disk_hits) == (before.compiled, before.disk_hits)
        before = statistics()


def test_what_is_moved_keeps_its_bits() -> None:
    """NaNs of every kind, in kernels that also compute; half types are not widened on the way."""
    patterns = np.array([0x7FA00001, 0xFFC12345, 0x7F800000, 0x80000000, 1], np.uint32)
    x, m = patterns.view(np.float32), np.array([True, False, True, True, False])
    for dtype, bits in (("float32", patterns), ("float16", (patterns >> 16).astype(np.uint16))):
        x = bits.view(dtype)
        moved, less = trace(lambda m, x, y: (tracer.where(m, x, y), y < 1))(m, x, x[::-1].copy())
        wanted = np.where(m, bits, bits[::-1])
        np.testing.assert_array_equal(moved.array.view(bits.dtype), wanted)
        np.testing.assert_array_equal(less, x[::-1] < 1)


# ---- no Python between kernels -------------------------------------------------------------------
def test_a_program_of_a_hundred_kernels_is_one_call() -> None:
    """100 kernels, no two of which can be one: each sums everything that the one before has made."""
    b = GraphBuilder("many")
    x = b.input(Type("float32", (64,)))
    value = x
    for _ in range(100):
        total = b.ReduceMax(b.Sin(value), axes=(0,), keepdims=True)
        value = b.Gather(
            b.Concat(total, x, axis=0), b.Iota(shape=(64,), axis=0, dtype="int64"), axis=0
        )
    executable = Executable(b.build([value]), {})
    assert executable.plan().kernels >= 100, str(executable.plan())
    assert executable.program.host_calls == 0
    tensor = Tensor.of_array(numbers(64))
    executable([tensor])
    calls: list[Any] = []

    def see(frame: Any, event: str, argument: Any) -> None:
        calls.append((event, argument if event.startswith("c_") else frame.f_code.co_name))

    words = [tensor.pointer, Tensor.of_array(np.zeros(64, np.float32)).pointer]
    memory = np.zeros(executable.workspace + 64, np.uint8)
    call = executable.program.call
    assert call.__class__.__name__ == "builtin_function_or_method"
    sys.setprofile(see)
    try:
        call(*words, memory.__array_interface__["data"][0])
    finally:
        sys.setprofile(None)
    during = [c for c in calls if c[1] is not sys.setprofile]
    inside = [c for c in during if c[0] in ("call", "c_call")]
    assert [c[1] for c in inside if c[1] is call] == [call]
    assert len([c for c in inside if c[0] == "call"]) == 0, inside


def test_calls_of_a_traced_function_do_not_grow_with_its_kernels() -> None:
    def deep(count: int) -> Callable[[Any], Any]:
        def function(x: Any) -> Any:
            for _ in range(count):
                x = tracer.softmax(x.T, axis=-1) @ x  # a kernel and a product at least
            return x

        return function

    x = tracer.tensor(numbers(8, 8))
    found = []
    for count in (1, 30):
        traced = trace(deep(count))
        traced(x), traced(x)
        seen: list[str] = []
        sys.setprofile(lambda frame, event, argument, seen=seen: seen.append(event))
        try:
            traced(x)
        finally:
            sys.setprofile(None)
        found.append(seen.count("call"))
        assert len(traced.plan(x).parts) >= 2 * count
    assert found[0] == found[1], found


# ---- only what is asked for ----------------------------------------------------------------------
def test_no_gradient_is_computed_for_frozen_parameters() -> None:
    tracer.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))

    def step_of(parameters: Any) -> Any:
        optimizer = optim.SGD(parameters, lr=0.1)

        @trace
        def step(x: Any, y: Any) -> Any:
            loss = tracer.sum((model(x) - y) ** 2)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step

    arguments = numbers(7, 6), numbers(7, 3)
    everything = step_of(model.parameters()).plan(*arguments)
    assert counts(everything)[1] == 3 + 3 + 2  # forward, weights, what flows back past two layers
    for layer in (model[0], model[2]):
        for p in layer.parameters():
            p.requires_grad = False
    step = step_of([p for p in model.parameters() if p.requires_grad])
    assert counts(step.plan(*arguments))[1] == 3 + 1  # nothing flows back at all
    graph = step.ir(*arguments)
    gradients = [n for n in graph.nodes if n.origin.gradient]
    assert gradients
    assert sum(n.op.name == "MatMul" for n in gradients) == 1
    shapes = {v.type.shape for n in gradients for v in n.outputs}
    assert (5, 6) not in shapes and (6, 5) not in shapes  # the first layer's weight
    assert (4, 5) not in shapes and (5, 4) not in shapes
    before = [p.detach().array.copy() for p in model.parameters()]
    step(*arguments)
    changed = [
        not np.array_equal(a, p.detach()) for a, p in zip(before, model.parameters(), strict=True)
    ]
    assert changed == [False] * 4 + [True] * 2


@pytest.mark.parametrize("wanted", [(0,), (1,), (0, 1)])
def test_products_for_the_wanted_gradients_only(wanted: tuple[int, ...]) -> None:
    def function(x: Any, w: Any) -> Any:
        return tracer.grad(lambda x, w: tracer.sum(tracer.sin(x @ w)), argnums=wanted)(x, w)

    p = plan(function, numbers(9, 8), numbers(8, 7))
    assert counts(p)[1] == 1 + len(wanted), str(p)
