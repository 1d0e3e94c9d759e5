"""Matrix multiplication against the BLAS that NumPy brings, on one thread, shape by shape.

    python -m benchmarks.gemm [float64]

Columns: GFLOP/s of our plan on one thread, of NumPy on one thread, of our plan on two threads; then
microseconds of the first two and what the plan looks like. Single-threaded figures are medians of
CPU time, so they hold on a busy machine; the one for two threads is the least wall-clock time, and
needs two idle cores.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

# m, n, k, order of A and of B ("F": transposed), batch
SHAPES: tuple[tuple[int, int, int, str, tuple[int, ...]], ...] = (
    (256, 1024, 1024, "CC", ()),
    (256, 1024, 1024, "CF", ()),
    (256, 1024, 784, "CF", ()),  # a layer of a network, forward
    (1024, 784, 256, "FC", ()),  # the gradient of its weights
    (256, 784, 1024, "CC", ()),  # the gradient of its inputs
    (1024, 1024, 1024, "CC", ()),
    (1024, 1024, 1024, "CF", ()),
    (1024, 1024, 1024, "FC", ()),
    (512, 512, 512, "CC", ()),
    (128, 128, 128, "CF", ()),
    (64, 64, 64, "CC", ()),
    (32, 1024, 1024, "CF", ()),
    (256, 10, 1024, "CF", ()),
    (10, 1024, 256, "FC", ()),
    (256, 1024, 10, "CC", ()),
    (32, 32, 64, "CF", ()),
    (32, 32, 64, "CC", ()),
    (64, 32, 32, "FC", ()),
    (32, 10, 64, "CF", ()),
    (1, 1024, 1024, "CF", ()),
    (1, 1024, 1024, "CC", ()),
    (1024, 1, 1024, "CC", ()),
    (1, 4096, 4096, "CF", ()),
    (1, 4096, 4096, "CC", ()),
    (4, 1024, 1024, "CF", ()),
    (128, 128, 64, "CF", (64,)),  # scores of attention
    (128, 64, 128, "CC", (64,)),
    (16, 16, 16, "CC", (256,)),
)


def main(dtype: str = "float32") -> None:
    """Measure every shape."""
    from codegen.runtime.pool import Pool

    print(f"{dtype:22}      ours     BLAS  2 threads GFLOP/s      ours      BLAS us")
    pools = Pool(threads=1), Pool(threads=2)
    for m, n, k, orders, batch in SHAPES:
        ours, blas, two, rows = _measure(m, n, k, orders, batch, dtype, pools)
        work = 2e-9 * m * n * k
        for entries in batch:
            work *= entries
        name = f"{'x'.join(map(str, batch))}{':' * bool(batch)}{m}x{k}x{n} {orders}"
        print(
            f"{name:22} {work / ours:9.1f}{work / blas:9.1f}{work / two:11.1f} {' ' * 8}"
            f"{1e6 * ours:9.1f} {1e6 * blas:9.1f}    {rows}",
            flush=True,
        )
    for pool in pools:
        pool.close()


def _measure(
    m: int, n: int, k: int, orders: str, batch: tuple[int, ...], dtype: str, pools: Any
) -> tuple[float, float, float, str]:
    import numpy as np

    from codegen.gemm import MatrixStrides, Problem, plan
    from codegen.runtime.library import program_rows
    from codegen.runtime.program import Program, Slot

    rng = np.random.default_rng(0)

    def matrix(rows: int, columns: int, order: str) -> Any:
        shape = (rows, columns) if order == "C" else (columns, rows)
        array = rng.standard_normal((*batch, *shape)).astype(dtype)
        return array if order == "C" else array.swapaxes(-1, -2)

    def strides(array: Any) -> MatrixStrides:
        *outer, row, column = (s // array.itemsize for s in array.strides)
        return MatrixStrides(row, column, tuple(outer))

    a, b = matrix(m, k, orders[0]), matrix(k, n, orders[1])
    c, d = np.empty((2, *batch, m, n), dtype)
    made = plan(Problem(m, n, k, dtype, strides(a), strides(b), strides(c), batch))
    workspace = np.empty(made.workspace + 64, np.uint8)
    slots: Any = {name: Slot(i) for i, name in enumerate(("a", "b", "c", "workspace"))}
    addresses = [x.ctypes.data for x in (a, b, c)] + [
        workspace.ctypes.data + -workspace.ctypes.data % 64
    ]
    one, two = (Program(program_rows(made, slots), 4, pool).call for pool in pools)

    def ours() -> None:
        one(*addresses)

    def both() -> None:
        two(*addresses)

    def blas() -> None:
        np.matmul(a, b, out=d)

    ours()
    blas()
    assert np.allclose(c, d, rtol=1e-2, atol=1e-2)
    repeats = max(1, int(2e-4 / _least(ours, time.perf_counter, 3, 1)))
    rounds = 15
    first, second = [], []
    for _ in range(rounds):  # interleaved, so that a slow moment meets both
        first.append(_least(ours, time.thread_time, 1, repeats))
        second.append(_least(blas, time.thread_time, 1, repeats))
    rows = ", ".join(f"{row.job} {row.n}/{row.chunk}" for row in made.rows)
    least = _least(both, time.perf_counter, 3 * rounds, repeats)
    return statistics.median(first), statistics.median(second), least, rows


def _least(
    call: Callable[[], None], clock: Callable[[], float], rounds: int, repeats: int
) -> float:
    """Least time of a call, in rounds of `repeats` calls."""
    times = []
    for _ in range(rounds):
        begin = clock()
        for _ in range(repeats):
            call()
        times.append((clock() - begin) / repeats)
    return min(times)


if __name__ == "__main__":
    # The number of BLAS threads is read when NumPy is imported; a forced core type would be another
    # BLAS.
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1" or "OPENBLAS_CORETYPE" in os.environ:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"
        os.environ.pop("OPENBLAS_CORETYPE", None)
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks.gemm", *sys.argv[1:]])
    main(*sys.argv[1:])
