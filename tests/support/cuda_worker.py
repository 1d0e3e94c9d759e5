"""Runs CUDA texts in Numba's simulator against the compiled CPU kernels, bit for bit. Started by
test_cuda_kernels.py.

A process of its own: the simulator replaces numba.cuda when NUMBA_ENABLE_CUDASIM=1 is set before
Numba is imported.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from codegen.cpu.compile import argument_block, buffer_of, partial_size
from codegen.cuda.compile import simulator_kernel
from codegen.cuda.printer import cuda_text
from codegen.spec.kernel_spec import KernelSpec, Schedule
from codegen.vector.intrinsics import Buffer
from tests.support import kernel_specs as ks
from tests.support.finish import FINISH_SCHEDULE, finish_spec

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def launch(
    spec: KernelSpec,
    schedule: Schedule,
    arrays: ks.Arrays,
    sizes: Mapping[str, int],
    blocks: int = 2,
) -> None:
    """The simulated kernel on the arrays' own memory."""
    text = cuda_text(spec, schedule)
    buffers = {n: buffer_of(a) for n, a in arrays.items()}
    strides = {o.name: ks.steps(arrays[o.name]) for o in spec.operands if o.role != "partial"}
    addresses = {n: a.ctypes.data for n, a in arrays.items()}
    block = np.array(argument_block(spec, addresses, sizes, strides), np.int64)

    def memory(address: int, dtype: np.dtype[Any]) -> Buffer:
        """The operand there: a stray index raises."""
        whole = next(b for n, b in buffers.items() if addresses[n] == address)
        return Buffer(whole.array.view(dtype), whole.origin)

    simulator_kernel(text, memory)[blocks, text.threads or 8](block)


def compare(
    spec: KernelSpec, schedule: Schedule, arrays: ks.Arrays, sizes: Mapping[str, int]
) -> ks.Arrays:
    """Equal bits in the simulator and on the CPU; returns the CPU's partial results."""
    mine = {n: a.copy() if not ks.is_input(spec, n) else a for n, a in arrays.items()}
    theirs = {n: a.copy() if not ks.is_input(spec, n) else a for n, a in arrays.items()}
    partials = ks.run(spec, schedule, theirs, sizes)
    for o in spec.operands:
        if o.role == "partial" and o.name not in arrays:
            mine[o.name] = np.zeros(partial_size(spec, schedule, sizes), o.dtype)
    launch(spec, schedule, mine, sizes)
    for name, expected in (theirs | partials).items():
        assert ks.same_bits(mine[name], expected), (spec.name, sizes, name, mine[name], expected)
    print("equal bits:", spec.name, dict(sizes))
    return partials


def main() -> None:
    # NumPy's own arithmetic stands in for a GPU's, in threads, where np.errstate does not reach.
    warnings.simplefilter("ignore", RuntimeWarning)
    rows, flat = Schedule(), Schedule("flat")
    for p, r in ((3, 37), (1, 4200), (2, 0)):
        compare(
            ks.SOFTMAX_GRAD, rows, {n: normal(p, r) for n in ("x", "w", "dx")}, {"p": p, "r": r}
        )
    arrays = {n: normal(5, 18) for n in ("x", "gy", "dx")} | {"w": normal(18)}
    partials = compare(ks.LAYER_NORM_GRAD, Schedule("columns"), arrays, {"p": 5, "r": 18})
    finish = {"partial_sum": partials["db"], "out0": normal(18)}
    compare(finish_spec(ks.SUM, "columns", ["float32"]), FINISH_SCHEDULE, finish, {"r": 18, "k": 5})
    x = RNG.integers(0, 9, (3, 50)).astype(np.float32)
    x[1, 7:] = np.nan
    arrays = {"x": x, "best": normal(3), "at": np.zeros(3, np.int64)}
    compare(ks.ARGMAX_ROWS, rows, arrays, {"p": 3, "r": 50})
    x = RNG.integers(0, 9, (2, 5000)).astype(np.float32)
    partials = compare(ks.ARGMAX_SPLIT, Schedule("split"), {"x": x}, {"p": 2, "r": 5000})
    finish = {"partial_best": partials["best"], "partial_at": partials["at"]}
    finish |= {"out0": normal(2), "out1": np.zeros(2, np.int64)}
    spec = finish_spec(ks.ARGMAX, "split", ["float32", "int64"])
    compare(spec, FINISH_SCHEDULE, finish, {"r": 2, "k": 5000})
    partials = compare(ks.SUM_SPLIT, Schedule("split"), {"x": x}, {"p": 2, "r": 5000})
    arrays = {"x": x, "partial": partials["partial"], "o": np.zeros_like(x)}
    compare(ks.USE_SPLIT, rows, arrays, {"p": 2, "r": 5000, "k": 5000})
    compare(ks.SUM_COLUMNS, Schedule("columns"), {"x": normal(21, 5)}, {"p": 21, "r": 5})
    compare(
        ks.product_rows(ks.PRODUCT), rows, {"x": normal(2, 40), "o": np.zeros(2)}, {"p": 2, "r": 40}
    )
    arrays = {"table": normal(9, 33), "idx": RNG.integers(0, 9, 7), "o": normal(7, 33)}
    compare(ks.GATHER, rows, arrays, {"p": 7, "r": 33})
    arrays = {
        "g": normal(20, 33),
        "idx": RNG.integers(0, 4, 20).astype(np.int32),
        "o": normal(4, 33),
    }
    compare(ks.SCATTER_ADD, Schedule("scatter"), arrays, {"p": 20, "r": 33})
    compare(ks.scatter_rows("set"), Schedule("scatter"), arrays, {"p": 20, "r": 33})
    arrays = {"x": RNG.standard_normal(20)[::-1], "idx": RNG.integers(0, 4, 20), "o": np.zeros(4)}
    compare(ks.SCATTER_SCALARS, Schedule("scatter"), arrays, {"p": 20})
    arrays = {"x": normal(18, 7).T, "y": normal(7, 18), "o": normal(7, 18)}
    compare(ks.TRANSPOSED, rows, arrays, {"p": 7, "r": 18})
    compare(ks.ELEMENTWISE, flat, {"x": normal(50), "scale": normal(), "o": normal(50)}, {"r": 50})
    arrays = {
        "x": normal(5, 3, 2).T,
        "y": np.broadcast_to(normal(2, 1, 5), (2, 3, 5)),
        "z": normal(3),
    }
    arrays |= {"o": normal(30), "i": np.zeros(30, np.int64)}
    compare(ks.PARTS, flat, arrays, {"r": 30, "a": 2, "b": 3, "c": 5})
    shape = (2, 3, 2, 5)
    arrays = {
        "x": normal(*shape)[::-1, :, ::-1, ::-1],
        "o": normal(*shape),
        "i": np.zeros(shape, np.int64),
    }
    compare(ks.THREE_ROWS, rows, arrays, dict(zip("pqtr", shape, strict=True)))
    compare(ks.PAD, rows, {"x": normal(3, 13), "o": normal(5, 18)}, {"p": 5, "r": 18})
    compare(ks.ZERO_D, rows, {"x": normal(), "o": normal()}, {})
    arrays = {"x": normal(3, 20), "o": normal(3, 20), "total": normal(3)}
    compare(ks.LITERALS, rows, arrays, {"p": 3, "r": 20})
    for dtype in ks.DTYPES:
        if dtype != "bfloat16":
            values = RNG.standard_normal(37) * 9 if "float" in dtype else RNG.integers(0, 100, 37)
            x = values.astype(dtype)
            arrays = {"x": x, "y": x[::-1], "o": np.zeros(37, dtype), "total": np.zeros((), dtype)}
            compare(ks.product_and_total(dtype), rows, arrays, {"r": 37})
    compare(ks.PRIMITIVES, flat, ks.primitive_arrays(), {"r": 64})


if __name__ == "__main__":
    sys.exit(main())
