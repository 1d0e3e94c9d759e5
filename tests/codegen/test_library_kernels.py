"""Library kernels: C functions called by address as rows of a program, and a compute kind that a library computes."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tracer
from codegen.gemm import MATMUL, MatrixStrides, Problem
from codegen.runtime import STATUS, AddressOf, AddressOfNumber, Pool, Program, Row, Slot
from codegen.runtime.c_function import CFunction
from codegen.runtime.library import WORKSPACE, Library, LibraryRow, OperandAddress, program_rows
from codegen.targets.target import CPU
from ops import operator as operators
from ops.operator import NoGradient, Unsupported, operator
from ops.samples import UNARY
from ops.types import Type
from tracer import trace
from tracer.dispatch.apply import apply
from tracer.ir.graph import Node
from tracer.lowering import libraries
from tracer.lowering.layout import Layout
from tracer.lowering.libraries import ByLibrary

C = ctypes.CDLL(None)
M = ctypes.CDLL("libm.so.6")


def c_function(library: ctypes.CDLL, name: str, *types: Any) -> CFunction:
    """The function of a library; the last type is the result's."""
    address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    assert address is not None
    return CFunction(name, address, types[:-1], types[-1], library)


def lapack(name: str, parameters: int) -> CFunction:
    """A function of LAPACK's, all of whose arguments are addresses."""
    from scipy.linalg import cython_lapack

    return CFunction.of_capsule(cython_lapack.__pyx_capi__[name], ("pointer",) * parameters)


# ---- rows ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
def test_a_c_function_runs_over_a_range_on_any_number_of_threads(threads: int) -> None:
    hypot = c_function(M, "hypot", "float64", "float64", "float64")
    x, y, z = np.linspace(-3, 3, 1000), np.linspace(0, 9, 1000), np.zeros(1001)
    words = hypot.words((Slot(0), 8), (Slot(1), 8), (Slot(2), 8))
    pool = Pool(threads)
    program = Program([Row(hypot.load().address, 1000, 64, words)], 3, pool)
    assert program.call(x.ctypes.data, y.ctypes.data, z.ctypes.data) == 0
    pool.close()
    assert np.array_equal(z[:1000], [np.hypot(a, b) for a, b in zip(x, y, strict=True)])
    assert z[1000] == 0


def test_arguments_of_every_kind() -> None:
    ldexp = c_function(M, "ldexpf", "float32", "int32", "float32")
    x, y = np.array([1.5, -2], "f4"), np.zeros(2, "f4")
    row = Row(ldexp.load().address, 2, 2, ldexp.words((Slot(0), 4), (-1, 4), (Slot(1), 4)))
    assert Program([row], 2).call(x.ctypes.data, y.ctypes.data) == 0
    assert y.tolist() == [0.75, -16]  # the exponents -1 and 3
    fill = c_function(C, "memset", "pointer", "int32", "int64", None)
    row = Row(fill.load().address, 1, 1, fill.words(Slot(0, 4), 0, 4))
    Program([row], 1).call(x.ctypes.data)
    assert x.tolist() == [1.5, 0]
    labs = c_function(C, "labs", "int64", "int64")
    found = np.zeros(3, np.int64)
    row = Row(labs.load().address, 3, 3, labs.words((-1, -(1 << 40)), (Slot(0), 8)))
    Program([row], 1).call(found.ctypes.data)
    assert found.tolist() == [1, 1 + (1 << 40), 1 + (2 << 40)]


def test_shims_are_shared_by_signatures_and_functions_hold_what_owns_them() -> None:
    first, second = (c_function(M, n, "float64", "float64") for n in ("sin", "cos"))
    assert first.load().address == second.load().address != 0
    assert first.words(1, 2)[0] != second.words(1, 2)[0]
    assert lapack("dpotrf", 5).owner is not None and "char *, int *" in lapack("dpotrf", 5).name


def test_words_that_do_not_fit_are_refused() -> None:
    hypot = c_function(M, "hypot", "float64", "float64", "float64")
    with pytest.raises(
        ValueError, match=r"hypot: expected 3 words, one for each parameter and one"
    ):
        hypot.words(1, 2)
    with pytest.raises(ValueError, match="does not fit into 64 bits"):
        Program([Row(1, 1, 1, (AddressOfNumber(1 << 64),))], 0)


def test_lapack_between_products_without_python() -> None:
    """Batches of A A', their Cholesky factors, the systems solved: ordinary rows and C calls in one program."""
    batch, n = 3, 40
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((batch, n, n)), rng.standard_normal((batch, n))
    strides = MatrixStrides(n, 1, (n * n,))
    turned = MatrixStrides(1, n, (n * n,))
    product = MATMUL.plan(Problem(n, n, n, "float64", strides, turned, strides, (batch,)))
    places = {"a": Slot(0), "b": Slot(0), "c": Slot(1), WORKSPACE: Slot(3)}
    workspace = np.zeros(max(product.workspace, 4 * batch) + 64, np.uint8)
    size, upper = AddressOfNumber(n), AddressOfNumber(ord("U"))
    step = 8 * n * n
    potrf, potrs = lapack("dpotrf", 5), lapack("dpotrs", 8)
    report = Slot(3), 4  # of each matrix; the product is done with its workspace
    factor = potrf.words(upper, size, (Slot(1), step), size, report)
    solve = potrs.words(
        upper,
        size,
        AddressOfNumber(1),
        (Slot(1), step),
        size,
        (Slot(2), 8 * n),
        size,
        report,
    )
    rows = [
        *program_rows(product, places),
        Row(potrf.load().address, batch, 1, factor),
        Row(potrs.load().address, batch, 1, solve),
    ]
    program = Program(rows, 4)
    assert program.host_calls == 0
    c, x = np.zeros((batch, n, n)), b.copy()
    words = [y.ctypes.data for y in (a, c, x)]
    words.append(workspace.ctypes.data + -workspace.ctypes.data % 64)
    for _ in range(2):
        c[:], x[:] = 0, b
        assert program.call(*words) == 0
        wanted = a @ a.swapaxes(-1, -2)
        np.testing.assert_allclose(np.tril(c), np.linalg.cholesky(wanted), rtol=1e-9)
        np.testing.assert_allclose((wanted @ x[..., None])[..., 0], b, rtol=1e-6, atol=1e-6)


def test_what_a_c_function_reports_ends_the_program() -> None:
    """LAPACK's `info` is the status: a matrix that is not positive definite from its third row on."""
    n = 4
    a, x = np.diag([1.0, 4.0, -1.0, 1.0]), np.ones(n)
    size, upper, status = AddressOfNumber(n), AddressOfNumber(ord("U")), AddressOf(STATUS)
    potrf, potrs = lapack("dpotrf", 5), lapack("dpotrs", 8)
    factor = potrf.words(upper, size, Slot(0), size, status)
    one = AddressOfNumber(1)
    solve = potrs.words(upper, size, one, Slot(0), size, Slot(1), size, status)
    program = Program(
        [Row(potrf.load().address, 1, 1, factor), Row(potrs.load().address, 1, 1, solve)], 2
    )
    assert program.call(a.ctypes.data, x.ctypes.data) == 3
    assert x.tolist() == [1, 1, 1, 1]
    a = np.diag([1.0, 4.0, 16.0, 1.0])
    assert program.call(a.ctypes.data, x.ctypes.data) == 0
    assert x.tolist() == [1, 1 / 4, 1 / 16, 1]


# ---- a compute kind ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Factorization:
    """The Cholesky factor of a batch of matrices, computed by LAPACK. What an operator's record would say."""


@dataclass(frozen=True)
class FactorizationProblem:
    batch: int
    n: int


@dataclass(frozen=True)
class FactorizationPlan:
    rows: Sequence[LibraryRow]
    workspace: int = 64


def plan_factorization(problem: FactorizationProblem) -> FactorizationPlan:
    step = 8 * problem.n**2
    size = AddressOfNumber(problem.n)
    copy, potrf = c_function(C, "memcpy", "pointer", "pointer", "int64", None), lapack("dpotrf", 5)
    source, target = OperandAddress("x"), OperandAddress("y")
    words = potrf.words(
        AddressOfNumber(ord("U")), size, (target, step), size, OperandAddress(WORKSPACE)
    )
    return FactorizationPlan(
        (
            LibraryRow("copy", copy, 1, 1, copy.words(target, source, step * problem.batch)),
            LibraryRow("factor", potrf, problem.batch, problem.batch, words),
        )
    )


def factorization_problem(
    node: Node, inputs: Sequence[Layout], outputs: Sequence[Layout]
) -> tuple[FactorizationProblem, Mapping[str, Layout]]:
    (x,), (y,) = inputs, outputs
    assert x.strided.is_row_major and y.strided.is_row_major
    *batch, n, _ = y.strided.shape
    return FactorizationProblem(int(np.prod(batch)), n), {"x": x, "y": y}


@pytest.fixture
def factorize(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An operator whose kind one line gives to a library."""
    monkeypatch.setitem(CPU.libraries, "lapack", Library("lapack", plan_factorization))
    line = ByLibrary("lapack", factorization_problem)
    monkeypatch.setitem(libraries.LIBRARIES, Factorization, line)
    monkeypatch.setattr(operators, "_TABLE", dict(operators._TABLE))

    @operator(
        "Factorize",
        type_rule=lambda x: Type(x.dtype, x.shape),
        compute=Factorization(),  # type: ignore[arg-type]
        vjp=NoGradient("a test's"),
        onnx=Unsupported("a test's"),
        samples=UNARY,
    )
    def factorize(x: Any) -> Any:
        """The lower factor."""
        return np.linalg.cholesky(x)

    return lambda x: apply("Factorize", x)


def test_one_line_brings_a_library_into_plans(factorize: Any) -> None:
    @trace
    def half(a: Any) -> Any:
        square = a @ a.mT + 3 * tracer.eye(12, dtype="float64")
        lower = tracer.tril(factorize(square * 2))
        return lower.sum(), lower

    a = np.random.default_rng(1).standard_normal((2, 3, 12, 12))
    total, lower = half(a)
    wanted = np.linalg.cholesky(2 * (a @ a.swapaxes(-1, -2) + 3 * np.eye(12)))
    np.testing.assert_allclose(np.asarray(lower), wanted, rtol=1e-9)
    np.testing.assert_allclose(float(total), wanted.sum(), rtol=1e-9)
    plan = half.plan(a)
    assert [p.name for p in plan.parts if p.kind == "library"] == ["matmul", "lapack"]
    assert not any(p.kind == "host" for p in plan.parts)
    again, _ = half(a + 0.0)
    assert float(again) == float(total)
