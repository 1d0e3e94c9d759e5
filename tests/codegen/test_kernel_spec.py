"""Kernel specifications on the CPU: one meaning un-jitted, compiled, in any pieces, under any
schedule; the order of sums.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from codegen.cpu.compile import argument_block, buffer_of, compile_cpu, count, text, unjitted
from codegen.errors import SpecError
from codegen.spec.kernel_spec import (
    Axis,
    Fold,
    KernelSpec,
    Load,
    Operand,
    Schedule,
    Stage,
    Store,
    key,
)
from codegen.spec.schedule_choice import schedule_for
from tests.support import kernel_specs as ks
from tests.support.finish import FINISH_SCHEDULE, finish_spec
from tests.support.kernel_specs import (
    Arrays,
    let,
    load,
    ordered_sum,
    row_major,
    run,
    same_bits,
    store,
)

pytestmark = pytest.mark.cpu

MASKED, PEELED = Schedule(tail="masked"), Schedule(tail="peeled")


def both(**more: Any) -> tuple[Schedule, Schedule]:
    return Schedule(tail="masked", **more), Schedule(tail="peeled", **more)


def normal(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def agree(
    spec: KernelSpec,
    schedules: Sequence[Schedule],
    arrays: Arrays,
    sizes: dict[str, int],
    *,
    cuts: Sequence[int] = (),
    plain: bool = True,
) -> Arrays:
    """The outputs and partials of a spec, after checking that every way of running it gives the
    same bits.

    `cuts`: where the range is cut in one of the runs. `plain`: run the text un-jitted too (slow on
    large arrays).
    """
    written = [o.name for o in spec.operands if o.role in ("out", "inout")]
    first: Arrays | None = None
    for schedule in schedules:
        ways: list[tuple[bool, Sequence[int]]] = [(True, ()), (True, cuts)]
        for jitted, places in ways + ([(False, cuts)] if plain else []):
            own = {n: a.copy() if n in written else a for n, a in arrays.items()}
            partials = run(spec, schedule, own, sizes, jitted=jitted, cuts=places)
            results = {n: own[n] for n in written} | partials
            first = first or results
            for name, result in results.items():
                assert same_bits(result, first[name]), (spec.name, schedule, jitted, places, name)
    assert first is not None
    return first


def finish(
    folding: Any, mode: Any, partials: Sequence[Any], dtypes: Sequence[str], n: int, folded: int
) -> list[Any]:
    """The finishing kernel's results, checked like any kernel."""
    spec = finish_spec(folding, mode, dtypes)
    arrays = {f"partial_{s}": p for (s, _), p in zip(folding.state, partials, strict=True)}
    arrays |= {f"out{i}": np.zeros(n, d) for i, d in enumerate(dtypes)}
    results = agree(spec, [FINISH_SCHEDULE], arrays, {"r": n, "k": folded}, cuts=(16,))
    return [results[f"out{i}"] for i in range(len(dtypes))]


# ---- every feature, against NumPy ----------------------------------------------------------------
@pytest.mark.parametrize(("p", "r"), [(1, 1), (3, 17), (2, 4097), (2, 0), (0, 3)])
def test_softmax_gradient(p: int, r: int) -> None:
    x, w = normal(p, r), normal(p, r, seed=1)
    arrays = {"x": x, "w": w, "dx": np.zeros_like(x)}
    dx = agree(ks.SOFTMAX_GRAD, [MASKED, PEELED], arrays, {"p": p, "r": r}, cuts=(1,))["dx"]
    s = np.exp(x - x.max(1, keepdims=True, initial=-np.inf).astype(np.float64))
    s /= s.sum(1, keepdims=True)
    np.testing.assert_allclose(dx, s * (w - (s * w).sum(1, keepdims=True)), atol=1e-6)


@pytest.mark.parametrize(("p", "r"), [(5, 33), (18, 16), (4099, 1), (9000, 3), (0, 5)])
def test_layer_norm_gradient_with_column_sums(p: int, r: int) -> None:
    x, gy, w = normal(p, r), normal(p, r, seed=1), normal(r, seed=2)
    arrays = {"x": x, "gy": gy, "w": w, "dx": np.zeros_like(x)}
    schedules = both(mode="columns") if p < 100 else both(mode="columns")[:1]
    results = agree(
        ks.LAYER_NORM_GRAD, schedules, arrays, {"p": p, "r": r}, cuts=(1, 3, 20), plain=p < 100
    )
    x = x.astype(np.float64)
    mean = x.mean(1, keepdims=True)
    rs = 1 / np.sqrt(((x - mean) ** 2).mean(1, keepdims=True) + 1e-5)
    h, g = (x - mean) * rs, gy * w.astype(np.float64)
    expected = rs * (g - g.mean(1, keepdims=True) - h * (g * h).mean(1, keepdims=True))
    np.testing.assert_allclose(results["dx"], expected, rtol=1e-4, atol=1e-4 if r > 1 else 1e-2)
    (db,) = finish(ks.SUM, "columns", [results["db"]], ["float32"], r, p)
    (dw,) = finish(ks.SUM, "columns", [results["dw"]], ["float32"], r, p)
    np.testing.assert_allclose(dw, (gy * h).sum(0), atol=1e-3)
    assert same_bits(db, np.array([ordered_sum(gy[:, c]) for c in range(r)], np.float32))


@pytest.mark.parametrize(("p", "r"), [(3, 50), (2, 1000), (1, 16)])
def test_argmax_first_of_ties_and_first_nan(p: int, r: int) -> None:
    x = np.random.default_rng(0).integers(0, 9, (p, r)).astype(np.float32)
    x[0, ::5], x[-1, r // 2 :] = -np.inf, np.nan
    arrays = {"x": x, "best": np.zeros(p, np.float32), "at": np.zeros(p, np.int64)}
    results = agree(ks.ARGMAX_ROWS, [MASKED, PEELED], arrays, {"p": p, "r": r}, cuts=(1,))
    assert (results["at"] == x.argmax(1)).all()
    assert same_bits(results["best"], x.max(1))


def test_gather_and_scatter_of_rows() -> None:
    random = np.random.default_rng(0)
    table, index = normal(9, 33), random.integers(0, 9, 7)
    arrays = {"table": table, "idx": index, "o": normal(7, 33)}
    result = agree(ks.GATHER, [MASKED, PEELED], arrays, {"p": 7, "r": 33}, cuts=(3,))["o"]
    assert same_bits(result, table[index] ** 2)
    g, index, expected = (
        normal(20, 33),
        random.integers(0, 4, 20).astype(np.int32),
        np.zeros((4, 33), np.float32),
    )
    np.add.at(expected, index, g)
    arrays = {"g": g, "idx": index, "o": np.zeros((4, 33), np.float32)}
    schedules = both(mode="scatter", columns=16)
    result = agree(ks.SCATTER_ADD, schedules, arrays, {"p": 20, "r": 33}, cuts=(1,))["o"]
    assert same_bits(result, expected)


def test_scatter_of_scalars() -> None:
    random = np.random.default_rng(0)
    x, index, expected = random.standard_normal(30)[::-1], random.integers(0, 5, 30), np.zeros(5)
    np.add.at(expected, index, x)
    arrays = {"x": x, "idx": index, "o": np.zeros(5)}
    result = agree(ks.SCATTER_SCALARS, [Schedule(mode="scatter")], arrays, {"p": 30})["o"]
    assert same_bits(result, expected)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "uint64"])
def test_scatter_of_lanes_that_meet(dtype: str) -> None:
    """Each addition rounds to the operand's dtype, in the order of the lanes."""
    random = np.random.default_rng(0)
    x, index = (normal(3, 50) * 9).astype(dtype), random.integers(0, 7, (3, 50)).astype(np.int32)
    total, last = np.zeros((3, 7), dtype), np.zeros((3, 7), dtype)
    for row in range(3):
        np.add.at(total[row], index[row], x[row])
        for k in range(50):
            last[row, index[row, k]] = x[row, k]
    zeros = np.zeros((3, 7), dtype)
    arrays = {"x": x, "idx": index, "o": zeros, "last": zeros}
    schedules = [MASKED, PEELED] if dtype == "float32" else [MASKED]
    results = agree(ks.scatter_lanes(dtype), schedules, arrays, {"p": 3, "r": 50}, cuts=(1,))
    assert same_bits(results["o"], total)
    assert same_bits(results["last"], last)


def test_transposed_operand_and_swapped_loops() -> None:
    x, y = normal(18, 7), normal(7, 18, seed=1)
    arrays = {"x": x.T, "y": y, "o": np.zeros_like(y)}
    schedules = [MASKED, *both(swap=True)]
    result = agree(ks.TRANSPOSED, schedules, arrays, {"p": 7, "r": 18}, cuts=(3,))["o"]
    assert same_bits(result, x.T + y)


@pytest.mark.parametrize("n", [0, 1, 16, 100])
def test_flat_range_in_pieces(n: int) -> None:
    x, scale = normal(n), np.array(0.5, np.float32)
    arrays = {"x": x, "scale": scale, "o": np.zeros_like(x)}
    result = agree(ks.ELEMENTWISE, both(mode="flat"), arrays, {"r": n}, cuts=(16, 48))["o"]
    np.testing.assert_allclose(result, np.tanh(x * scale), rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 1, 1), (7, 1, 3), (3, 40, 17), (2, 0, 3)])
def test_inner_axis_of_three_parts(shape: tuple[int, int, int]) -> None:
    a, b, c = shape
    n, x, z = a * b * c, normal(c, b, a).transpose(2, 1, 0), normal(b, seed=1)
    y = np.broadcast_to(normal(a, 1, c, seed=2), shape)
    arrays = {"x": x, "y": y, "z": z, "o": np.zeros(n, np.float32), "i": np.zeros(n, np.int64)}
    sizes = {"r": n, "a": a, "b": b, "c": c}
    results = agree(ks.PARTS, both(mode="flat"), arrays, sizes, cuts=(16, 32))
    assert same_bits(results["o"], (x + y * z[:, None]).reshape(-1))
    at_b = np.broadcast_to(np.arange(b)[:, None], shape).reshape(-1)
    assert (results["i"] == np.arange(n) + at_b).all()


@pytest.mark.parametrize(
    "shape", [(2, 3, 2, 5), (1, 1, 1, 1), (2, 2, 3, 16), (1, 2, 0, 4), (3, 2, 2, 33)]
)
def test_several_row_axes_and_negative_strides(shape: tuple[int, ...]) -> None:
    x, at = normal(*shape)[::-1, :, ::-1, ::-1], np.indices(shape)
    arrays = {"x": x, "o": np.zeros(shape, np.float32), "i": np.zeros(shape, np.int64)}
    results = agree(
        ks.THREE_ROWS, [MASKED, PEELED], arrays, dict(zip("pqtr", shape, strict=True)), cuts=(1,)
    )
    f = at.astype(np.float32)
    assert same_bits(results["o"], x + f[0] - f[2] + f[3])
    rows = np.arange(np.prod(shape[:3])).reshape(*shape[:3], 1)
    assert (results["i"] == np.arange(x.size).reshape(shape) + rows).all()


@pytest.mark.parametrize("r", [7, 18, 40])
def test_pad_reads_only_where_valid(r: int) -> None:
    x = normal(3, r - 5)
    arrays = {"x": x, "o": np.zeros((5, r), np.float32)}
    result = agree(ks.PAD, [MASKED, PEELED], arrays, {"p": 5, "r": r})["o"]
    assert same_bits(result, np.pad(x, ((1, 1), (2, 3)), constant_values=1.5))


def test_zero_dimensions() -> None:
    x = np.array(0.25, np.float32)
    result = agree(ks.ZERO_D, [PEELED], {"x": x, "o": np.zeros_like(x)}, {})["o"]
    np.testing.assert_allclose(result, (np.exp(0.25) + 1) * 2.5, rtol=1e-6)


def test_texts_of_literals_and_sizes_alone() -> None:
    x = normal(3, 20)
    arrays = {"x": x, "o": np.zeros_like(x), "total": np.zeros(3, np.float32)}
    results = agree(ks.LITERALS, [MASKED], arrays, {"p": 3, "r": 20})
    expected = x[0] * np.float32(20) + np.exp(np.float32(1)) + np.float32(0.5)
    np.testing.assert_allclose(results["o"], np.broadcast_to(expected, (3, 20)), rtol=1e-6)
    assert (results["total"] == 40).all()


@pytest.mark.parametrize("dtype", ks.DTYPES)
def test_every_dtype(dtype: str) -> None:
    d = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    random = np.random.default_rng(0)
    small = d.itemsize == 2 and dtype.endswith("float16")
    floating = dtype.endswith(("float16", "float32", "float64"))
    x = (
        random.standard_normal(37) * 9
        if floating
        else random.integers(0, 2 if dtype == "bool" else 100, 37)
    )
    x = x.astype(d)
    y = np.repeat(x[::-1], 2)[::-2]  # negative stride
    o = np.zeros(74, d)[::2]
    arrays = {"x": x, "y": y, "o": o, "total": np.zeros((), d)}
    results = agree(ks.product_and_total(dtype), [MASKED], arrays, {"r": 37})
    with np.errstate(over="ignore"):
        wide = np.float32 if small else d
        expected = (x & y) if dtype == "bool" else (x.astype(wide) * y.astype(wide))
        assert same_bits(np.ascontiguousarray(results["o"]), expected.astype(d))
        if floating:
            total = ordered_sum(expected)
        else:
            total = (
                expected.any() if dtype == "bool" else int(expected.astype(d).sum(dtype=np.int64))
            )
            total = np.array(total).astype(d)
    assert same_bits(results["total"], np.array(total).astype(np.float32 if small else d).astype(d))


# ---- the order of sums ---------------------------------------------------------------------------
@pytest.mark.parametrize("n", [0, 1, 15, 4096, 4097, 12289, 28673, 40960])
def test_one_order_of_sums(n: int) -> None:
    """A flat sum, one split into chunks and one over rows give the contract's bits."""
    x, expected = normal(n), np.float32(ordered_sum(normal(n)))
    small = n < 5000
    flat = agree(
        ks.sum_all(),
        [MASKED, PEELED],
        {"x": x, "o": np.zeros((), np.float32)},
        {"r": n},
        plain=small,
    )["o"]
    assert same_bits(flat, np.array(expected))
    row = {"x": x.reshape(1, n)}
    partial = agree(
        ks.SUM_SPLIT, both(mode="split")[:1], row, {"p": 1, "r": n}, cuts=(1, 3), plain=small
    )
    (split,) = finish(ks.SUM, "split", [partial["partial"]], ["float32"], 1, n)
    assert same_bits(split[0], expected)
    column = {"x": x.reshape(n, 1)}
    partial = agree(
        ks.SUM_COLUMNS,
        both(mode="columns")[:1],
        column,
        {"p": n, "r": 1},
        cuts=(1, 7, 20),
        plain=small,
    )
    (columns,) = finish(ks.SUM, "columns", [partial["partial"]], ["float32"], 1, n)
    assert same_bits(columns[0], expected)


def test_split_folds_of_several_rows_and_states() -> None:
    x = np.random.default_rng(0).integers(0, 50, (3, 9001)).astype(np.float32)
    sizes = {"p": 3, "r": 9001}
    partial = agree(
        ks.ARGMAX_SPLIT, both(mode="split")[:1], {"x": x}, sizes, cuts=(2, 5), plain=False
    )
    best, at = finish(
        ks.ARGMAX, "split", [partial["best"], partial["at"]], ["float32", "int64"], 3, 9001
    )
    assert same_bits(best, x.max(1))
    assert (at == x.argmax(1)).all()
    partial = agree(ks.SUM_SPLIT, both(mode="split")[:1], {"x": x}, sizes, plain=False)
    arrays = {"x": x, "partial": partial["partial"], "o": np.zeros_like(x)}
    result = agree(ks.USE_SPLIT, [MASKED], arrays, sizes | {"k": 9001}, plain=False)["o"]
    assert same_bits(result, x / np.array([[ordered_sum(row)] for row in x], np.float32))


@pytest.mark.parametrize("shape", [(3, 7, 20), (70, 70, 5)])
def test_argmax_over_rows(shape: tuple[int, int, int]) -> None:
    p, q, r = shape
    x = np.random.default_rng(0).integers(0, 50, shape).astype(np.float32)
    sizes = {"p": p, "q": q, "r": r}
    partial = agree(
        ks.ARGMAX_COLUMNS, both(mode="columns")[:1], {"x": x}, sizes, cuts=(5,), plain=p < 9
    )
    states = [partial["best"], partial["at"]]
    best, at = finish(ks.ARGMAX, "columns", states, ["float32", "int64"], r, p * q)
    assert same_bits(best, x.reshape(p * q, r).max(0))
    assert (at == x.reshape(p * q, r).argmax(0)).all()


def test_fold_over_rows_without_an_inner_axis() -> None:
    x = normal(70, 61)
    sizes = {"p": 70, "q": 61}
    partial = agree(
        ks.SUM_OF_ROWS, [Schedule("columns")], {"x": x}, sizes, cuts=(3, 17), plain=False
    )
    (total,) = finish(ks.SUM, "columns", [partial["partial"]], ["float32"], 1, x.size)
    assert same_bits(total[0], np.float32(ordered_sum(x.reshape(-1))))


def test_split_products_and_logic() -> None:
    x = 1 + normal(2, 9000) * np.float32(0.01)
    sizes = {"p": 2, "r": 9000}
    schedule = Schedule("split", "masked")
    spec = ks.split_fold(ks.PRODUCT, "float64")
    partial = agree(spec, [schedule], {"x": x}, sizes, cuts=(1, 4), plain=False)
    (product,) = finish(ks.PRODUCT, "split", [partial["s0"]], ["float64"], 2, 9000)
    assert same_bits(product, np.array([_ordered_product(row) for row in x]))
    spec = ks.split_fold(replace(ks.ANY, step=("any | ({0} > f32(1.03))",)), "bool")
    partial = agree(spec, [schedule], {"x": x}, sizes, plain=False)
    (some,) = finish(ks.ANY, "split", [partial["s0"]], ["bool"], 2, 9000)
    assert (some == (x > np.float32(1.03)).any(1)).all()


@pytest.mark.parametrize("merge", ["product * other_product", "other_product * product"])
def test_any_merge_is_done_in_the_same_tree(merge: str) -> None:
    """The first text has a function of its own, the second is written out as a loop."""
    x = 1 + normal(2, 9000) * np.float32(0.01)
    arrays = {"x": x, "o": np.zeros(2)}
    result = agree(
        ks.product_rows(replace(ks.PRODUCT, merge=(merge,))),
        [MASKED],
        arrays,
        {"p": 2, "r": 9000},
        plain=False,
    )["o"]
    with np.errstate(all="ignore"):
        expected = [_ordered_product(row) for row in x]
    assert same_bits(result, np.array(expected))


def _ordered_product(x: np.ndarray[Any, Any]) -> float:
    chunks = []
    for start in range(0, len(x), 4096):
        lanes = np.ones(16)
        for k, value in enumerate(x[start : start + 4096].astype(np.float64)):
            lanes[k % 16] *= value
        while len(lanes) > 1:
            lanes = lanes[: len(lanes) // 2] * lanes[len(lanes) // 2 :]
        chunks.append(lanes[0])
    return float((chunks[0] * chunks[1]) * chunks[2])


# ---- memory --------------------------------------------------------------------------------------
def guarded(size: int, start: bool) -> np.ndarray[Any, Any]:
    """Floats that begin (or end) at a page without access: a touch outside kills the process."""
    page = mmap.PAGESIZE
    block = mmap.mmap(-1, size + 2 * page)
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    assert protect(address, page, 0) == 0
    assert protect(address + page + size, page, 0) == 0
    return np.frombuffer(block, np.float32, size // 4, page)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mprotect"), reason="needs mprotect")
@pytest.mark.parametrize("tail", ["masked", "peeled"])
def test_nothing_is_touched_outside(tail: Any) -> None:
    size = 8 * mmap.PAGESIZE
    blocks = {name: guarded(size, True) for name in ("x", "w", "dx", "o")}
    for n in (1, 15, 16, 17, 47, 4097):
        for part in (slice(-n, None), slice(0, n)):  # against the page behind, and the one before
            x, w, dx = (blocks[name][part].reshape(1, n) for name in ("x", "w", "dx"))
            x[:], w[:] = np.arange(n) % 7, 1
            around = [b.copy() for b in blocks.values()]
            run(ks.SOFTMAX_GRAD, Schedule(tail=tail), {"x": x, "w": w, "dx": dx}, {"p": 1, "r": n})
            assert abs(dx.sum()) < 1e-5
            for before, (name, block) in zip(around, blocks.items(), strict=True):
                if name == "dx":
                    before[part] = block[part]
                assert same_bits(before, block)
            o, scale = blocks["o"][part], np.array(2, np.float32)
            run(
                ks.ELEMENTWISE,
                Schedule(mode="flat", tail=tail),
                {"x": x[0], "scale": scale, "o": o},
                {"r": n},
            )
            backwards = {"x": x.reshape(n, 1)[::-1].T, "y": w, "o": dx}
            run(replace(ks.TRANSPOSED), MASKED, backwards, {"p": 1, "r": n})
            assert same_bits(dx, x[:, ::-1] + w)


def test_unjitted_text_raises_on_a_stray_index() -> None:
    arrays = {"table": normal(3, 5), "idx": np.array([0, 3]), "o": np.zeros((2, 5), np.float32)}
    with pytest.raises(IndexError, match="elements 15 to 16 of a buffer of 15"):
        run(ks.GATHER, MASKED, arrays, {"p": 2, "r": 5}, jitted=False)


# ---- texts and keys ------------------------------------------------------------------------------
def test_golden_texts(golden: Callable[[str, str], None]) -> None:
    notes = {0: "train.py:12", 4: "train.py:13", 6: "train.py:14", 13: "train.py:14 (gradient)"}
    golden("kernels/softmax_grad.txt", text(ks.SOFTMAX_GRAD, MASKED, notes))
    golden(
        "kernels/layer_norm_grad.txt",
        text(ks.LAYER_NORM_GRAD, Schedule(mode="columns", tail="masked")),
    )
    golden("kernels/three_parts.txt", text(ks.PARTS, Schedule(mode="flat")))
    golden("kernels/three_rows.txt", text(ks.THREE_ROWS, MASKED))
    golden(
        "kernels/finish_argmax.txt",
        text(finish_spec(ks.ARGMAX, "columns", ["float32", "int64"]), FINISH_SCHEDULE),
    )


def test_equal_kernels_have_one_key() -> None:
    renamed = KernelSpec(
        "other",
        (Axis("row", "row"), Axis("q", "inner")),
        (row_major("t"), Operand("which", "int64", (1,)), row_major("result", "out")),
        (
            Stage((), (load("v0", "which", "row_1"),)),
            Stage(
                ("q",),
                (
                    load("v1", "t", "v0", "q"),
                    let("v2", "v1*v1"),
                    store("result", "v2", "row_1", "q"),
                ),
            ),
        ),
    )
    renamed = replace(renamed, axes=(Axis("row_1", "row"), Axis("q", "inner")))
    assert key(renamed, PEELED) == key(ks.GATHER, PEELED)
    assert key(renamed, PEELED) != key(renamed, MASKED)
    assert key(ks.SCATTER_ADD, PEELED) != key(ks.GATHER, PEELED)
    sized = KernelSpec(
        "sized",
        (ks.R,),
        (Operand("o", "float32", (1,), "out"),),
        (Stage(("r",), (let("a", "f32(n_r)"), store("o", "a", "r"))),),
    )
    other = KernelSpec(
        "other",
        (Axis("k", "inner"),),
        (Operand("q", "float32", (1,), "out"),),
        (Stage(("k",), (let("b", "f32(n_k)"), store("q", "b", "k"))),),
    )
    assert key(sized, PEELED) == key(other, PEELED)
    first, second = compile_cpu(ks.GATHER, MASKED), compile_cpu(renamed, MASKED)
    assert first.address == second.address
    assert "result" in second.text


# ---- errors --------------------------------------------------------------------------------------
def broken(*body: Any, over: tuple[str, ...] = ("r",), axes: Any = (ks.P, ks.R)) -> KernelSpec:
    operands = (row_major("x"), Operand("sums", "float32", (1,), "partial"), row_major("o", "out"))
    return KernelSpec("broken", axes, operands, (Stage(over, body),))


A = load("a", "x", "p", "r")
FAULTS = [
    (broken(load("a", "y", "p", "r")), PEELED, "no operand 'y'"),
    (broken(load("a", "x", "r")), PEELED, "x has 2 index positions"),
    (broken(load("a", "x", "b", "r")), PEELED, "no value 'b'"),
    (broken(A, load("b", "x", "a", "r")), PEELED, "'a' is no axis and no integer value"),
    (broken(load("a", "x", "p", "r"), over=()), PEELED, "'r' outside the loop"),
    (broken(A, store("o", "z", "p", "r")), PEELED, "no value 'z'"),
    (broken(A, Load("b", "x", ("p", "r"), "a", "0")), PEELED, "valid is a boolean value"),
    (broken(A, let("a", "to_i32(a)", "int32")), PEELED, "'a' is f32 before and i32 here"),
    (broken(let("x", "f32(0)")), PEELED, "'x' is already an operand"),
    (broken(let("p", "f32(0)")), PEELED, "'p' is already an operand, an axis"),
    (broken(A, let("b", "a", "float64")), PEELED, "'a' gives f32, not float64"),
    (broken(A, let("b", "a + i64(1) + to_i64(a)")), PEELED, "must share one element"),
    (broken(A, let("b", "a + q")), PEELED, "no value, size or function 'q'"),
    (broken(A, let("b", "a +")), PEELED, "invalid syntax"),
    (broken(A, let("b", "sqrt(a, a)")), PEELED, "sqrt takes 1 operands; got 2"),
    (broken(let("lo", "f32(0)")), PEELED, "'lo' cannot be a name"),
    (broken(let("a", "f32(0)", "complex64")), PEELED, "unknown dtype 'complex64'"),
    (broken(A, Fold(("sums",), ks.MAX, ("a",), "rows")), PEELED, "needs Schedule"),
    (
        broken(A, Fold(("sums",), ks.SUM, ("a",), "rows")),
        Schedule("columns"),
        "state sum of sum is f64",
    ),
    (broken(A, Fold(("m",), ks.SUM, ("a",), "r")), Schedule("flat"), "without row axes"),
    (broken(A, Fold(("m",), ks.SUM, ("a",), "p")), PEELED, "got 'p'"),
    (broken(A, Fold(("m", "n"), ks.SUM, ("a",), "r")), PEELED, "gives 1 results"),
    (
        broken(A, Fold(("m", "n"), replace(ks.ARGMAX, exact=False), ("a", "a"), "r")),
        PEELED,
        "has one state",
    ),
    (broken(A, Fold(("m",), ks.MAX, ("a",), "r")), Schedule(swap=True), "swap is for mode 'rows'"),
    (broken(A, axes=(ks.R, ks.P)), PEELED, "rows first"),
    (broken(A, Fold(("m",), ks.MAX, ("a",), "r")), Schedule("scatter"), "no folds over it"),
    (
        broken(let("one", "f32(1)"), Store("sums", ("p",), "one", "add"), over=()),
        Schedule("split"),
        "once for each piece",
    ),
    (broken(A, axes=(ks.P, ks.P, ks.R)), PEELED, "names two things"),
]

LEAKED = KernelSpec(
    "broken",
    (ks.P, ks.R),
    (row_major("x"), row_major("o", "out")),
    (Stage(("r",), (A,)), Stage(("r",), (store("o", "a", "p", "r"),))),
)
FAULTS.append((LEAKED, PEELED, "'a' is a value of the loop of stage 0"))


@pytest.mark.parametrize(("spec", "schedule", "message"), FAULTS)
def test_faulty_specifications_are_refused(
    spec: KernelSpec, schedule: Schedule, message: str
) -> None:
    with pytest.raises(SpecError, match=r"^kernel broken: |^unknown dtype") as caught:
        text(spec, schedule)
    assert message in str(caught.value)


def test_argument_block_says_what_is_missing() -> None:
    pointers = {"x": 1, "y": 2, "o": 3}
    with pytest.raises(SpecError, match="operand x has run-time strides"):
        argument_block(ks.TRANSPOSED, pointers, {"p": 1, "r": 1})
    with pytest.raises(SpecError, match="no pointer for operand o"):
        argument_block(ks.TRANSPOSED, {"x": 1, "y": 2}, {"p": 1, "r": 1})
    strides = {"x": (1, 7), "y": (5, 1), "o": (6, 1)}
    assert argument_block(ks.TRANSPOSED, pointers, {"p": 8, "r": 9}, strides) == [
        1,
        2,
        3,
        8,
        9,
        7,
        5,
        6,
    ]
    with pytest.raises(TypeError, match="argument 0 should be a buffer of f32; got f64"):
        wrong = {
            "x": buffer_of(np.zeros((1, 1))),
            "y": buffer_of(normal(1, 1)),
            "o": buffer_of(normal(1, 1)),
        }
        unjitted(ks.TRANSPOSED)(
            0, 1, argument_block(ks.TRANSPOSED, wrong, {"p": 1, "r": 1}, strides)
        )


def test_counts() -> None:
    sizes = {"p": 5000, "r": 9000}
    assert count(ks.SUM_SPLIT, PEELED, sizes) == 5000
    assert count(ks.SUM_SPLIT, Schedule("split"), sizes) == 5000 * 3
    assert count(ks.SUM_COLUMNS, Schedule("columns"), sizes) == 32
    assert count(ks.SCATTER_ADD, Schedule("scatter", columns=256), sizes) == 36
    assert count(ks.SCATTER_SCALARS, Schedule("scatter"), sizes) == 1
    assert count(ks.ELEMENTWISE, Schedule("flat"), sizes) == 9000
    assert count(ks.ZERO_D, PEELED, {}) == 1


_ = Store


def test_schedules_by_rule() -> None:
    assert schedule_for(ks.TRANSPOSED) == Schedule(swap=True)
    assert schedule_for(ks.GATHER) == Schedule()
    assert schedule_for(ks.ELEMENTWISE, "flat") == Schedule("flat")
    assert schedule_for(ks.LAYER_NORM_GRAD, "columns") == Schedule("columns")
    assert schedule_for(ks.PRIMITIVES, "flat") == Schedule("flat")
    long = replace(
        ks.PRIMITIVES, stages=tuple(replace(s, body=s.body * 3) for s in ks.PRIMITIVES.stages)
    )
    assert schedule_for(long, "flat") == Schedule("flat", "masked")
    assert schedule_for(ks.SCATTER_ADD, "scatter", 64) == Schedule("scatter", columns=64)


def test_a_kernel_without_its_text() -> None:
    assert compile_cpu(ks.GATHER, MASKED, with_text=False).text == ""
    assert compile_cpu(ks.GATHER, MASKED).text == text(ks.GATHER, MASKED)
