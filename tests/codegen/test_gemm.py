"""Matrix multiplication: the bits of every path, layout and order are those of one written-out
rule.

The rule (`product_by_rule`) is NumPy with an exactly rounded fma; float results must equal it to
the bit, integers NumPy's own.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import mmap
import random
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from codegen.gemm import Choice, GemmPlan, MatrixStrides, Problem, argument_block, plan
from codegen.gemm import compiled as compiled_kernels
from codegen.gemm.element import ELEMENTS, tile_of
from codegen.gemm.problem import canonical
from codegen.runtime.library import LibraryRow, program_rows
from tests.support.cpus import AVX2, has
from tests.support.execute_gemm import compiled, in_order, run
from tests.support.plain_gemm import Memory, plain
from tests.support.products import product_by_rule

pytestmark = pytest.mark.cpu

Array = npt.NDArray[Any]

FLOATS = ("float32", "float64", "float16", "bfloat16")
OTHERS = tuple(name for name in ELEMENTS if name not in FLOATS)
ROWS, COLUMNS = tile_of(ELEMENTS["float32"]).rows, tile_of(ELEMENTS["float32"]).columns
MODES = tuple(
    itertools.product(
        (argument_block.DIRECT, argument_block.PACKED, argument_block.COPIED), repeat=2
    )
)
function = cache(compiled)


def dtype_of(name: str) -> Any:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def values(rng: np.random.Generator, shape: tuple[int, ...], name: str) -> Array:
    if name == "bool":
        return rng.random(shape) < 0.2
    dtype = dtype_of(name)
    if name in FLOATS:
        return rng.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def layout(array: Array) -> MatrixStrides:
    strides = tuple(s // array.itemsize for s in array.strides)
    return MatrixStrides(strides[-2], strides[-1], strides[:-2])


def problem(a: Array, b: Array, c: Array, accumulate: bool = False) -> Problem:
    """The product of `a` and `b`, broadcast to the batch of `c`, into `c`."""
    batch = c.shape[:-2]
    a = np.broadcast_to(a, (*batch, *a.shape[-2:]))
    b = np.broadcast_to(b, (*batch, *b.shape[-2:]))
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    return Problem(m, n, k, c.dtype.name, layout(a), layout(b), layout(c), batch, accumulate)


def aligned(size: int) -> Array:
    memory = np.full(size + 64, 255, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def execute(
    made: GemmPlan, a: Array, b: Array, c: Array, *, unjitted: bool = False, pieces: Any = in_order
) -> None:
    workspace = aligned(made.workspace)
    addresses: Any = {
        "a": a.ctypes.data,
        "b": b.ctypes.data,
        "c": c.ctypes.data,
        "workspace": workspace.ctypes.data,
    }
    if unjitted:
        memory = Memory(a, b, c, workspace)
        run(made, addresses, lambda which: plain(which, memory), pieces)
    else:
        run(made, addresses, function, pieces)


def product(a: Array, b: Array, choice: Choice | None = None, **how: Any) -> Array:
    """A @ B by a plan, into memory that held NaN."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*batch, a.shape[-2], b.shape[-1])
    c = np.frombuffer(
        b"\xff" * (int(np.prod(shape)) * a.itemsize + 1), a.dtype, int(np.prod(shape))
    )
    c = c.copy().reshape(shape)
    execute(plan(problem(a, b, c), choice), a, b, c, **how)
    return c


def same(x: Array, y: Array) -> bool:
    """Equal bits, except that any NaN equals any other."""
    if x.dtype.name not in FLOATS:
        return x.dtype == y.dtype and bool((x == y).all())
    bits = np.dtype(f"u{x.itemsize}")
    with np.errstate(invalid="ignore"):
        both_nan = np.isnan(x) & np.isnan(y)
    equal = np.ascontiguousarray(x).view(bits) == np.ascontiguousarray(y).view(bits)
    return x.dtype == y.dtype and bool((equal | both_nan).all())


def choices(p: Problem) -> Iterable[Choice]:
    """Every way to find operands that the problem allows, in several cuts."""
    q, _ = canonical(p)
    tile = tile_of(q.element)
    most_m, most_n = -(-q.m // tile.rows), -(-q.n // tile.columns)
    for (a_mode, b_mode), cut in itertools.product(MODES, ((1, 1), (3, 2))):
        how = Choice(a_mode, b_mode, min(most_m, cut[0]), min(most_n, cut[1]))
        try:
            plan(p, how)
        except ValueError:
            continue
        yield how


# ---- values --------------------------------------------------------------------------------------


EDGES = (
    [(m, COLUMNS + 1, 20) for m in (1, 2, ROWS - 1, ROWS, ROWS + 1, 2 * ROWS + 3)]
    + [
        (ROWS + 1, n, 20)
        for n in (1, 2, 15, 16, 17, COLUMNS - 1, COLUMNS, COLUMNS + 1, 3 * COLUMNS + 5)
    ]
    + [(ROWS + 1, COLUMNS + 1, k) for k in (0, 1, 2, 15, 16, 17, 31, 33)]
    + [(3, 18, k) for k in (255, 256, 257, 513)]
    + [(1, n, k) for n in (1, 16, 37) for k in (0, 1, 8, 17, 260)]
)


@pytest.mark.parametrize("name", ELEMENTS)
def test_sizes_around_the_edges_of_tiles_and_blocks(name: str, rng: np.random.Generator) -> None:
    sizes = EDGES if name in ("float32", "float64") else EDGES[::3]
    for m, n, k in sizes:
        a, b = values(rng, (m, k), name), values(rng, (k, n), name)
        expected = product_by_rule(a, b)
        assert same(product(a, b), expected), (m, n, k)
        turned = product(np.asfortranarray(a), np.asfortranarray(b))
        assert same(turned, expected), (m, n, k)


@pytest.mark.parametrize("name", ("float32", "float16", "bool", "int8"))
@pytest.mark.parametrize(
    "size", ((2 * ROWS + 3, 2 * COLUMNS + 5, 40), (ROWS, COLUMNS, 300), (2, 3, 7))
)
def test_every_way_of_finding_operands_gives_the_same_bits(
    name: str, size: tuple[int, int, int], rng: np.random.Generator
) -> None:
    m, n, k = size
    a, b = values(rng, (m, k), name), values(rng, (k, n), name)
    expected = product_by_rule(a, b)
    spread_a, spread_b = np.repeat(np.repeat(a, 2, 0), 3, 1), np.repeat(np.repeat(b, 3, 0), 2, 1)
    lefts = (
        a,
        np.asfortranarray(a),
        spread_a[::2, ::3],
        np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
    )
    rights = (
        b,
        np.asfortranarray(b),
        spread_b[::3, ::2],
        np.ascontiguousarray(b[::-1, ::-1])[::-1, ::-1],
    )
    tried = set()
    for left, right in itertools.product(lefts, rights):
        c = np.empty((m, n), a.dtype)
        for how in choices(problem(left, right, c)):
            tried.add((how.a_mode, how.b_mode))
            assert same(product(left, right, how), expected), how
    assert len(tried) == (
        9 if name == "float32" else 4
    )  # what is converted cannot be read in place


def test_results_may_have_contiguous_columns_instead_of_rows(rng: np.random.Generator) -> None:
    a, b = values(rng, (19, 33), "float32"), values(rng, (33, 21), "float32")
    wide = np.zeros((40, 50), np.float32)
    for c in (wide[:21, 4:23].T, wide[4:23, 3:24]):
        execute(plan(problem(a, b, c)), a, b, c)
        assert same(c, product_by_rule(a, b))


def test_a_column_of_a_strided_result(rng: np.random.Generator) -> None:
    """Batch axes that could become columns do not where C could then not be written."""
    a, b = values(rng, (1, 4, 5), "float32"), values(rng, (3, 5, 1), "float32")
    c = np.zeros((3, 4, 2, 1), np.float32)[:, :, 0]
    execute(plan(problem(a, b, c)), a, b, c)
    assert same(c, product_by_rule(a, b))


BATCHES = (
    ((5,), (5,)),
    ((1,), (4,)),
    ((4,), ()),  # B shared: more rows
    ((), (4,)),  # A shared
    ((2, 3), (2, 3)),
    ((2, 1, 3), (1, 2, 3)),
    ((2, 1, 2, 1), (1, 3, 1, 2)),
    ((2, 1, 2, 1, 2), (1, 2, 2, 2, 1)),
)


@pytest.mark.parametrize("left, right", BATCHES)
def test_batches_broadcast(
    left: tuple[int, ...], right: tuple[int, ...], rng: np.random.Generator
) -> None:
    for m, n, k in ((3, 5, 4), (1, 20, 6), (9, 1, 17), (1, 1, 3)):
        a, b = values(rng, (*left, m, k), "float32"), values(rng, (*right, k, n), "float32")
        expected = product_by_rule(a, b)
        assert same(product(a, b), expected)
        assert same(product(np.swapaxes(np.swapaxes(a, -1, -2).copy(), -1, -2), b), expected)
        for how in choices(problem(a, b, np.empty_like(expected))):
            assert same(product(a, b, how), expected), how


def test_batch_axes_with_holes_and_in_any_order(rng: np.random.Generator) -> None:
    a = values(rng, (4, 6, 5, 7), "float64").transpose(1, 0, 2, 3)[::2]
    b = values(rng, (3, 4, 7, 9), "float64")[:, ::-1]
    assert same(product(a, b), product_by_rule(a, b))
    # Heads of attention: (batch, position, head, feature) read as (batch, head, position, feature).
    q, k = (values(rng, (2, 10, 3, 8), "float32").transpose(0, 2, 1, 3) for _ in "qk")
    assert same(product(q, k.swapaxes(-1, -2)), product_by_rule(q, k.swapaxes(-1, -2)))


@pytest.mark.parametrize("name", ("float32", "float16", "bfloat16", "int16", "bool"))
def test_accumulating_is_adding_the_product_afterwards(name: str, rng: np.random.Generator) -> None:
    for m, n, k in ((9, 33, 300), (1, 40, 300), (5, 7, 0)):
        a, b, c = values(rng, (m, k), name), values(rng, (k, n), name), values(rng, (m, n), name)
        with np.errstate(all="ignore"):
            expected = c + product_by_rule(a, b)
        execute(plan(problem(a, b, c, accumulate=True)), a, b, c)
        assert same(c, expected), (m, n, k)


@pytest.mark.parametrize("name", FLOATS)
def test_nan_and_infinity_propagate(name: str, rng: np.random.Generator) -> None:
    for m, n, k in ((9, 35, 40), (1, 35, 40), (2, 2, 600)):
        a, b = values(rng, (m, k), name), values(rng, (k, n), name)
        a[0, 3], a[-1, 5], b[7, -1], b[9, 0] = np.nan, np.inf, -np.inf, np.nan
        b[5, 1], a[0, 7] = 0, 0  # inf * 0 and 0 * inf
        result, expected = product(a, b), product_by_rule(a, b)
        assert (
            np.isnan(expected[0]).all() and np.isnan(expected[-1, 1]) and np.isnan(expected[0, -1])
        )
        assert same(result, expected)


def test_extremes_of_half_precision() -> None:
    a = np.array([[60000, 60000], [2**-14, 2**-24], [1, 2**-11]], np.float16)
    b = np.array([[1, 2**-10], [1, 0.5]], np.float16)
    assert same(product(a, b), product_by_rule(a, b)) and np.isinf(product(a, b)[0, 0])


def test_nothing_to_sum_and_nothing_to_do() -> None:
    for m, n in ((3, 4), (1, 4), (3, 1)):
        result = product(np.empty((m, 0), np.float32), np.empty((0, n), np.float32))
        assert same(result, np.zeros((m, n), np.float32))
    for shape in ((0, 3, 4), (3, 0, 4), (0, 0, 0)):
        m, n, k = shape
        assert plan(
            Problem(
                m, n, k, "float32", MatrixStrides(k, 1), MatrixStrides(n, 1), MatrixStrides(n, 1)
            )
        ) == GemmPlan((), 0)
    empty = Problem(2, 2, 2, "int8", *(MatrixStrides(2, 1, (4, 0)),) * 3, batch=(3, 0))
    assert plan(empty).rows == ()


# ---- orders, threads, machines -------------------------------------------------------------------


LARGE = ((130, 260, 520), (300, 40, 300), (1, 4000, 700), (8, 700, 900))


def shuffled(seed: int) -> Any:
    """Pieces of random lengths in random order."""

    def pieces(row: LibraryRow) -> list[tuple[int, int]]:
        rng = random.Random(seed)
        inner = rng.sample(range(1, row.n), min(row.n - 1, rng.randrange(12)))
        bounds = [0, *sorted(inner), row.n]
        result = list(itertools.pairwise(bounds))
        rng.shuffle(result)
        return result

    return pieces


@pytest.mark.parametrize("size", LARGE)
def test_tasks_in_any_order_and_pieces(
    size: tuple[int, int, int], rng: np.random.Generator
) -> None:
    m, n, k = size
    a, b = values(rng, (m, k), "float32"), np.asfortranarray(values(rng, (k, n), "float32"))
    expected = product(a, b)
    c = np.empty_like(expected)
    p = problem(a, b, c)
    most_m, most_n = (-(-x // y) for x, y in zip((m, n), (ROWS, COLUMNS), strict=True))
    cuts = (
        [None]
        if m == 1
        else [
            None,
            Choice(argument_block.PACKED, argument_block.PACKED, min(5, most_m), min(7, most_n)),
        ]
    )
    assert any(row.n > 1 for how in cuts for row in plan(p, how).rows)
    for how, seed in itertools.product(cuts, range(4)):
        assert same(product(a, b, how, pieces=shuffled(seed)), expected)


def test_one_thread_and_several_threads(rng: np.random.Generator) -> None:
    from codegen.runtime.pool import Pool
    from codegen.runtime.program import Program, Slot

    slots: Any = {"a": Slot(0), "b": Slot(1), "c": Slot(2), "workspace": Slot(3)}
    pools = [Pool(threads=1), Pool(threads=3)]
    try:
        for m, n, k in ((260, 300, 300), (1, 4000, 700)):
            a, b = np.asfortranarray(values(rng, (m, k), "float32")), values(rng, (k, n), "float32")
            expected = product(a, b)
            made = plan(problem(a, b, expected))
            assert max(row.n // row.chunk for row in made.rows) >= 3
            workspace = aligned(made.workspace)
            for pool in pools:
                call = Program(program_rows(made, slots), 4, pool).call
                for _ in range(5):
                    c = np.full_like(expected, np.nan)
                    call(*(x.ctypes.data for x in (a, b, c, workspace)))
                    assert same(c, expected)
    finally:
        for pool in pools:
            pool.close()


def test_a_row_alone_is_the_row_among_others(rng: np.random.Generator) -> None:
    """The bits of a row of C depend neither on how many rows there are nor on the path that they
    take.
    """
    a, b = values(rng, (70, 300), "float32"), values(rng, (300, 90), "float32")
    whole = product(a, b)
    for i in (0, 8, 69):
        assert same(product(a[i : i + 1], b), whole[i : i + 1])
        assert same(product(a[i : i + 1], np.asfortranarray(b)), whole[i : i + 1])
    assert same(product(a, b[:, 5:6]), whole[:, 5:6])


SMALL = [
    (m, n, k, name, order)
    for m, n, k in ((5, 37, 70), (1, 37, 70), (9, 5, 300))
    for name in ("float32", "float64", "float16", "bfloat16", "int8", "int64", "bool")
    for order in "CF"
]


def digest() -> str:
    """A hash of the bits of products of every kind, for comparison between processes."""
    rng = np.random.default_rng(5)
    result = hashlib.sha256()
    for m, n, k, name, order in SMALL:
        a, b = values(rng, (m, k), name), values(rng, (k, n), name)
        result.update(product(np.asarray(a, order=order), np.asarray(b, order=order)).tobytes())  # type: ignore[call-overload]
    return result.hexdigest()


def test_narrower_registers_give_the_same_bits(run_python: Any, tmp_path: Any) -> None:
    if not has("avx2"):
        pytest.skip("this CPU has no AVX2")
    done = run_python(
        "from tests.codegen.test_gemm import digest, ROWS, COLUMNS; print(ROWS, COLUMNS, digest())",
        environment=AVX2,
    )
    rows, columns, found = done.stdout.split()
    assert (int(rows), int(columns)) == (6, 16)
    assert found == digest()


# ---- memory --------------------------------------------------------------------------------------


class Guarded:
    """Memory between two pages without access: what is read or written outside ends the process."""

    def __init__(self, pages: int = 8) -> None:
        page = mmap.PAGESIZE
        self.block = mmap.mmap(-1, (pages + 2) * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.block))
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        for edge in (start, start + (pages + 1) * page):
            if protect(edge, page, 0):
                pytest.skip("this system protects no pages")
        self.bytes = np.frombuffer(self.block, np.uint8, pages * page, page)

    def array(self, like: Array, at_end: bool) -> Array:
        """A copy of an array at the start or the end of the memory, in the same order of axes."""
        self.bytes[:] = 255
        part = self.bytes[-like.nbytes :] if at_end else self.bytes[: like.nbytes]
        order: Any = "C" if like.flags.c_contiguous else "F"
        copy = part[: like.nbytes].view(like.dtype).reshape(like.shape, order=order)
        copy[...] = like
        return copy


@pytest.mark.parametrize("name", ("float32", "float64", "float16", "int8"))
def test_nothing_outside_the_operands_is_read_or_written(
    name: str, rng: np.random.Generator
) -> None:
    guards = [Guarded(), Guarded(), Guarded()]
    sizes = (
        (1, 1, 1),
        (1, 33, 17),
        (2, 17, 31),
        (ROWS + 1, COLUMNS + 1, 17),
        (ROWS, COLUMNS, 16),
        (3, 1, 40),
    )
    for (m, n, k), orders, at_end in itertools.product(
        sizes, ("CC", "CF", "FC", "FF"), (False, True)
    ):
        a = np.asarray(values(rng, (m, k), name), order=orders[0])  # type: ignore[call-overload]
        b = np.asarray(values(rng, (k, n), name), order=orders[1])  # type: ignore[call-overload]
        expected = product_by_rule(a, b)
        for how in (None, *choices(problem(a, b, expected))):
            x, y, c = (g.array(v, at_end) for g, v in zip(guards, (a, b, expected), strict=True))
            c[...] = 0
            before = [g.bytes.copy() for g in guards]
            execute(plan(problem(x, y, c), how), x, y, c)
            assert same(c, expected)
            c[...] = 0  # all else is as it was
            assert all((g.bytes == old).all() for g, old in zip(guards, before, strict=True))


@pytest.mark.parametrize("name", ("float32", "bfloat16", "int32", "bool"))
def test_the_same_loops_run_by_python(name: str, rng: np.random.Generator) -> None:
    """Un-jitted: NumPy for the parts, every access checked, the stack full of NaN."""
    for m, n, k in ((2, 3, 4), (ROWS + 2, COLUMNS + 3, 9), (1, 35, 20), (3, 2, 270), (2, 1, 0)):
        a, b = values(rng, (m, k), name), values(rng, (k, n), name)
        for left, right in ((a, b), (np.asfortranarray(a), np.asfortranarray(b))):
            expected = product(left, right)
            assert same(product(left, right, unjitted=True), expected)
            for how in choices(problem(left, right, expected)):
                assert same(product(left, right, how, unjitted=True), expected), how


def test_un_jitted_parts_refuse_foreign_memory(rng: np.random.Generator) -> None:
    a, b, c = (
        values(rng, (4, 5), "float32"),
        values(rng, (5, 6), "float32"),
        np.empty((4, 6), np.float32),
    )
    wrong = problem(a, b, c)
    longer = Problem(4, 6, 6, "float32", wrong.a, wrong.b, wrong.c)
    with pytest.raises(IndexError, match="belongs to no operand"):
        execute(plan(longer), a, b, c, unjitted=True)


# ---- plans ---------------------------------------------------------------------------------------


def contiguous(
    m: int, n: int, k: int, name: str = "float32", orders: str = "CC", **more: Any
) -> Problem:
    a = MatrixStrides(k, 1) if orders[0] == "C" else MatrixStrides(1, m)
    b = MatrixStrides(n, 1) if orders[1] == "C" else MatrixStrides(1, k)
    return Problem(m, n, k, name, a, b, MatrixStrides(n, 1), **more)


def test_equal_problems_look_alike() -> None:
    """Batch axes merge, shared operands become more rows or columns, contiguous columns of C are
    rows of C.T.
    """
    p = Problem(
        3,
        5,
        4,
        "float32",
        MatrixStrides(4, 1, (24, 12)),
        MatrixStrides(5, 1, (0, 0)),
        MatrixStrides(5, 1, (30, 15)),
        (7, 2),
    )
    assert canonical(p) == (contiguous(7 * 2 * 3, 5, 4), False)
    p = Problem(
        3,
        5,
        4,
        "float32",
        MatrixStrides(4, 1, (0,)),
        MatrixStrides(10, 1, (5,)),
        MatrixStrides(10, 1, (5,)),
        (2,),
    )
    assert canonical(p) == (contiguous(3, 10, 4), False)
    p = Problem(3, 5, 4, "float32", MatrixStrides(4, 1), MatrixStrides(5, 1), MatrixStrides(1, 3))
    assert canonical(p) == (
        Problem(5, 3, 4, "float32", MatrixStrides(1, 5), MatrixStrides(1, 4), MatrixStrides(3, 1)),
        True,
    )
    p = Problem(
        3,
        5,
        4,
        "float32",
        MatrixStrides(4, 1, (9, 12)),
        MatrixStrides(5, 1, (0, 20)),
        MatrixStrides(5, 1, (1, 15)),
        (1, 6),
    )
    assert canonical(p)[0].batch == (6,)


def test_work_is_cut_for_several_threads_by_shapes_alone() -> None:
    for p in (
        contiguous(256, 1024, 784, orders="CF"),  # a layer, forward
        contiguous(1024, 784, 256, orders="FC"),  # its weight gradient
        contiguous(256, 784, 1024),  # its input gradient
        contiguous(4096, 10, 1024, orders="CF"),
        contiguous(10, 4096, 1024),
        contiguous(1, 4096, 4096),
    ):
        row = plan(p).rows[-1]
        assert row.job == "multiply" and row.n // row.chunk >= (4 if p.m == 1 else 8)
    for p in (contiguous(32, 10, 64, orders="CF"), contiguous(32, 32, 64), contiguous(1, 64, 64)):
        assert [(row.n, row.chunk) for row in plan(p).rows] == [
            (1, 1)
        ]  # less than handing over costs


def test_few_kernels_whatever_the_shapes() -> None:
    sizes = itertools.product(
        (1, 5, 100, 1000), (1, 5, 100, 1000), (1, 100, 1000), ("CC", "CF", "FC", "FF")
    )
    for name, most in (("float32", 2), ("float16", 2), ("int64", 2)):
        kernels = {
            row.kernel for m, n, k, o in sizes for row in plan(contiguous(m, n, k, name, o)).rows
        }
        assert len(kernels) <= most
    # Integers of one width share kernels.
    assert ELEMENTS["uint8"] == ELEMENTS["int8"]


def test_packed_operands_lie_in_the_workspace() -> None:
    made = plan(contiguous(1024, 784, 256, orders="FC"))
    assert made.rows[0].job == "pack a" and made.workspace >= 1024 * 256 * 4
    for row in made.rows:
        offsets = [
            w.offset for w in row.words if not isinstance(w, int) and w.operand == "workspace"
        ]
        assert all(offset % 64 == 0 and offset < made.workspace for offset in offsets)
    assert plan(contiguous(32, 32, 64)).workspace == 0


def test_what_cannot_be_multiplied_is_said() -> None:
    with pytest.raises(TypeError, match=r"expected a dtype of float32.*got complex64"):
        contiguous(2, 2, 2, "complex64")
    with pytest.raises(ValueError, match="sizes cannot be negative: m=-1"):
        contiguous(-1, 2, 2)
    with pytest.raises(ValueError, match=r"expected 1 batch strides of a.*got \(\)"):
        contiguous(2, 2, 2, batch=(3,))
    apart = Problem(
        3, 3, 3, "float32", MatrixStrides(3, 1), MatrixStrides(3, 1), MatrixStrides(6, 2)
    )
    with pytest.raises(ValueError, match="rows or columns are contiguous; got strides of 6 and 2"):
        plan(apart)
    with pytest.raises(ValueError, match="does not fit"):
        plan(contiguous(64, 64, 600), Choice(argument_block.DIRECT, argument_block.DIRECT, 99, 1))
    with pytest.raises(ValueError, match="does not fit"):  # reads columns of B as if they were rows
        plan(
            contiguous(64, 64, 600, orders="CF"),
            Choice(argument_block.DIRECT, argument_block.DIRECT, 1, 1),
        )


def test_numba_is_not_needed(run_python: Any) -> None:
    check = "import sys; assert 'numba' not in sys.modules"
    run_python(f"from tests.codegen.test_gemm import digest; digest(); {check}")


def test_object_code_does_not_outlive_a_new_version_of_its_sources(tmp_path: Path) -> None:
    seen = set()
    for text in ("x = 1", "x = 2", "x = 2"):
        (tmp_path / "emit.py").write_text(text)
        compiled_kernels._sources.cache_clear()
        seen.add(compiled_kernels._sources(tmp_path))
    assert len(seen) == 2
    folder = compiled_kernels._FOLDER
    which = plan(contiguous(8, 8, 8)).rows[-1].kernel
    key = which.load().key
    assert key.endswith(compiled_kernels._sources(folder, folder.parent / "vector"))
