"""What the machine can do at best: memory traffic of a triad, arithmetic of a matrix product."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numba
import numpy as np

TRIAD_SIZE = 20_000_000
GEMM_SIZE = 2048
REPEATS = 7


def bandwidth(threads: int) -> float:
    """Bytes per second of a = b + s * c on arrays far larger than the caches, read and written."""

    @numba.njit("void(float32[::1], float32[::1], float32[::1], float32)", nogil=True)
    def triad(a, b, c, s):
        for i in range(a.size):
            a[i] = b[i] + s * c[i]

    arrays = [np.ones(TRIAD_SIZE, np.float32) for _ in range(3)]
    parts = list(zip(*(np.array_split(array, threads) for array in arrays), strict=True))
    with ThreadPoolExecutor(threads) as pool:

        def run() -> None:
            list(pool.map(lambda part: triad(*part, np.float32(3)), parts))

        return 3 * 4 * TRIAD_SIZE / best_time(run)


def arithmetic() -> float:
    """Floating-point operations per second of NumPy's float32 matrix product."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((GEMM_SIZE, GEMM_SIZE), dtype=np.float32) for _ in range(2))
    out = np.empty_like(a)
    return 2 * GEMM_SIZE**3 / best_time(lambda: np.matmul(a, b, out=out))


def best_time(run) -> float:
    """The least of several times: a limit is what the machine does when nothing disturbs it."""
    times = []
    for _ in range(REPEATS):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return min(times)
