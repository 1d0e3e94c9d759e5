"""The bits of a result depend on its operands alone: not on threads, the cache, the CPU's vectors, or
on whether a gradient is computed beside it.

Sums are taken in chunks of 4096 elements, work is handed to threads in chunks of 16384: sizes lie
around both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracer
import tracer.nn.functional as F
from codegen.spec.kernel_spec import CHUNK
from codegen.targets.target import CHUNK_ELEMENTS
from tests.support.cpus import AVX2, has
from tracer import passes, trace
from tracer.ir.interpreter import interpret
from tracer.tracing.arguments.signature import Call

pytestmark = pytest.mark.cpu

Array = np.ndarray[Any, Any]
SIZES = (1, *(s for c in (CHUNK, CHUNK_ELEMENTS) for s in (c - 1, c, c + 1, 10 * c + 7)))
THREADS = (1, 2, 3, 7)


def numbers(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def elementwise(x: Any, y: Any) -> Any:
    return tracer.gelu(x * y + 0.5), tracer.exp(-(x * x)) / (1.0 + tracer.abs(y))


def rows(x: Any) -> Any:
    return (
        tracer.sum(x, axis=1),
        tracer.mean(x * x, axis=1),
        tracer.max(x, axis=1),
        tracer.argmax(x, axis=1),
    )


def columns(x: Any) -> Any:
    return (
        tracer.sum(x, axis=0),
        tracer.mean(x * x, axis=0),
        tracer.min(x, axis=0),
        tracer.var(x, axis=0),
    )


def everything(x: Any) -> Any:
    return (
        tracer.sum(x),
        tracer.prod(1.0 + x * 1e-4),
        tracer.max(x),
        tracer.sum(tracer.exp(x)),
        tracer.std(x),
    )


def softmax(x: Any) -> Any:
    return tracer.softmax(x, axis=-1), tracer.log_softmax(x, axis=-1), tracer.logsumexp(x, axis=-1)


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def matmul(x: Any, y: Any) -> Any:
    return x @ y, tracer.sum(x @ y, axis=0)


def layer_norm_arguments(n: int, c: int) -> tuple[Array, ...]:
    return numbers(n, c), numbers(c, seed=1), numbers(c, seed=2)


# Name -> (function, arguments for a size).
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Array, ...]]]] = {
    "elementwise": (elementwise, lambda n: (numbers(n), numbers(n, seed=1))),
    "elementwise-float64": (
        elementwise,
        lambda n: (numbers(n, dtype="float64"), numbers(n, seed=1, dtype="float64")),
    ),
    "long rows": (rows, lambda n: (numbers(2, n),)),
    "many rows": (rows, lambda n: (numbers(n, 5),)),
    "long columns": (columns, lambda n: (numbers(n, 9),)),
    "many columns": (columns, lambda n: (numbers(3, n),)),
    "everything": (everything, lambda n: (numbers(n),)),
    "long softmax": (softmax, lambda n: (numbers(2, n),)),
    "many softmaxes": (softmax, lambda n: (numbers(n, 10),)),
    "long layer norm": (layer_norm, lambda n: layer_norm_arguments(2, n)),
    "many layer norms": (layer_norm, lambda n: layer_norm_arguments(n, 17)),
    "long products": (matmul, lambda n: (numbers(9, n), numbers(n, 5, seed=1))),
    "many products": (matmul, lambda n: (numbers(n, 8), numbers(8, 20, seed=1))),
}
GRADIENTS = (
    "elementwise", "long softmax", "many softmaxes", "long layer norm", "many layer norms",
    "long rows", "many products", "long products",
)  # fmt: skip


COMPARED = (
    "elementwise", "many rows", "long columns", "everything", "many softmaxes", "many layer norms",
    "long products",
)  # fmt: skip


def total(result: Any) -> Any:
    """One number that every floating part of a result flows into."""
    parts = result if isinstance(result, tuple) else (result,)
    parts = [tracer.sum(tracer.sin(p)) for p in parts if "float" in str(p.dtype)]
    return sum(parts[1:], parts[0])


def with_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """(gradients of all arguments, the function's own results), in one program."""

    def both(*arguments: Any) -> Any:
        results: list[Any] = []

        def scalar(*xs: Any) -> Any:
            results.append(function(*xs))
            return total(results[0])

        slopes = tracer.grad(scalar, argnums=tuple(range(len(arguments))))(*arguments)
        own = results[0] if isinstance(results[0], tuple) else (results[0],)
        return slopes, tuple(r.detach() for r in own)

    return both


TRACED = {name: trace(function) for name, (function, _) in PROGRAMS.items()}
TRACED_GRADIENTS = {name: trace(with_gradient(PROGRAMS[name][0])) for name in GRADIENTS}


def leaves(result: Any) -> list[Array]:
    if isinstance(result, tuple | list):
        return [a for part in result for a in leaves(part)]
    return [np.asarray(result.detach())]


def run(name: str, size: int) -> list[bytes]:
    """The bytes of a program's results and gradients."""
    arguments = PROGRAMS[name][1](size)
    results = leaves(TRACED[name](*arguments))
    if name in GRADIENTS:
        results += leaves(TRACED_GRADIENTS[name](*arguments))
    return [a.tobytes() for a in results]


def digests() -> str:
    """One line for each program of a choice that has every kind; run in other processes too."""
    lines = []
    for name in COMPARED:
        content = [b for size in (CHUNK + 1, 2 * CHUNK_ELEMENTS + 9) for b in run(name, size)]
        lines.append(f"{name}: {hashlib.sha256(b''.join(content)).hexdigest()}")
    return "\n".join(lines)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = tracer.get_num_threads()
    yield tracer.set_num_threads
    tracer.set_num_threads(before)


@pytest.mark.parametrize("name", PROGRAMS)
def test_any_number_of_threads(name: str, threads: Callable[[int], None]) -> None:
    for size in SIZES:
        found = []
        for count in THREADS:
            threads(count)
            found.append(run(name, size))
        for count, other in zip(THREADS[1:], found[1:], strict=True):
            assert other == found[0], (name, size, count)


def test_seven_threads_share_the_large_programs() -> None:
    """That the comparison above compares something: rows of the program are cut into several chunks."""
    for name in PROGRAMS:
        arguments = PROGRAMS[name][1](10 * CHUNK_ELEMENTS + 7)
        entry, _ = TRACED[name]._find(Call(arguments, {}))
        rows_ = entry.executable.program.rows
        assert any(row.n > row.chunk for row in rows_), name


@pytest.mark.parametrize("name", ["long rows", "many rows", "long columns", "many columns"])
def test_sums_are_the_references(name: str) -> None:
    """Eager sums, taken in the order of the contract by NumPy, have the bits of compiled ones."""
    for size in SIZES[:5]:
        arguments = PROGRAMS[name][1](size)
        graph = passes.run(TRACED[name].ir(*arguments))  # variances as what they are made of
        for found, wanted in zip(
            TRACED[name](*arguments), interpret(graph, list(arguments)), strict=True
        ):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_beside_it_changes_no_bit(name: str) -> None:
    for size in SIZES[1:5]:
        arguments = PROGRAMS[name][1](size)
        alone = leaves(TRACED[name](*arguments))
        beside = leaves(TRACED_GRADIENTS[name](*arguments)[1])
        for a, b in zip(alone, beside, strict=True):
            assert a.tobytes() == b.tobytes(), (name, size)


CODE = """
from codegen.toolchain import kernel_store as kernels
from tests.lowering.test_same_bits import digests
print(digests())
print(kernels.statistics().compiled, kernels.statistics().disk_hits)
"""


@pytest.mark.slow
def test_a_fresh_compile_and_a_cached_one(tmp_path: Path, run_python: Callable[..., Any]) -> None:
    here = digests().splitlines()
    environment = {"TRACER_CACHE_DIR": str(tmp_path / "cache")}
    fresh = run_python(CODE, environment=environment).stdout.splitlines()
    cached = run_python(CODE, environment=environment).stdout.splitlines()
    compiled, read = map(int, fresh[-1].split())
    assert compiled > 15 and read == 0
    assert cached[-1] == f"0 {compiled}"
    assert fresh[:-1] == cached[:-1] == here


@pytest.mark.slow
def test_avx2_and_avx512(tmp_path: Path, run_python: Callable[..., Any]) -> None:
    if not has("avx2"):
        pytest.skip("this CPU has no AVX2")
    environment = {"TRACER_CACHE_DIR": str(tmp_path / "cache"), **AVX2}
    found = run_python(CODE, environment=environment).stdout.splitlines()
    assert int(found[-1].split()[0]) > 15
    assert found[:-1] == digests().splitlines()
