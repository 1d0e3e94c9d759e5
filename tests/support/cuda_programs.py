"""Whole programs on the target "cuda" without a GPU: run in Numba's simulator and compared with the CPU's bits, or their kernels
compiled to PTX. Started by test_cuda_programs.py, each in a process of its own: the simulator replaces numba.cuda."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tracer
import tracer.nn.functional as F
from codegen.targets.cuda import CudaRow, CudaTarget
from ops.operator import TABLE
from tests.support.program_drawing import Seeded
from tests.support.program_strategy import program, with_updates
from tracer import passes, trace
from tracer.ir.graph import Graph
from tracer.lowering.assemble import Lowering
from tracer.runtime.executable import Executable

RNG = np.random.default_rng(0)
OPERATORS = tuple(TABLE[name] for name in (
    "Add", "Mul", "Sub", "Neg", "Abs", "Maximum", "Where", "ReduceSum", "ReduceMax", "Transpose", "Slice", "Roll",
    "Concat", "Gather", "IndexAdd", "Reshape", "SliceScatter", "Not", "Less", "Cast", "Expand", "Constant",
))  # fmt: skip


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def softmax_gradient(x: Any, w: Any) -> Any:
    return tracer.grad(lambda x: (F.softmax(x, dim=-1) * w).sum())(x)


def normalized(x: Any, scale: Any, shift: Any, g: Any) -> Any:
    def loss(x: Any, scale: Any, shift: Any) -> Any:
        return (F.layer_norm(x, (x.shape[-1],), scale, shift) * g).sum()

    return tracer.value_and_grad(loss, argnums=(0, 1, 2))(x, scale, shift)


def step(w: Any, b: Any, x: Any, y: Any, rate: Any) -> Any:
    """One step of a linear model, products written as sums."""

    def loss(w: Any, b: Any) -> Any:
        logits = (x[:, :, None] * w[None]).sum(axis=1) + b
        return F.cross_entropy(logits, y)

    value, (gw, gb) = tracer.value_and_grad(loss, argnums=(0, 1))(w, b)
    return value, w - rate * gw, b - rate * gb


def pieces(x: Any, index: Any) -> Any:
    y = tracer.concat([x[::-1], x * 2], axis=0)[index]
    return y, tracer.flip(y, axis=1).sum(axis=0), y.mean(), y.max(axis=1)


def programs(seeds: int) -> Iterator[tuple[str, Graph, dict[int, int], list[Any]]]:
    """Name, graph, updates, arrays; those of a few functions, then as many random ones."""
    cases: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (softmax_gradient, (normal(3, 37), normal(3, 37))),
        (normalized, (normal(5, 18), normal(18), normal(18), normal(5, 18))),
        (step, (normal(6, 4), normal(4), normal(8, 6), RNG.integers(0, 4, 8), 0.1)),
        (pieces, (normal(4, 6), np.array([7, 0, -1, 3, 3]))),
    ]
    for function, arrays in cases:
        graph = trace(function).ir(*arrays)
        assert len(graph.inputs) == len(arrays)
        yield function.__name__, graph, {}, list(arrays)
    for seed in range(seeds):
        dtypes = ("float32", "int32", "bool", "float64")
        drawn = program(Seeded(seed), operators=OPERATORS, most=12, dtypes=dtypes)
        yield f"random {seed}", drawn.graph, {}, list(drawn.arrays)
        drawn, updates = with_updates(Seeded(seed), most=8)
        if all(n.op in OPERATORS for n in drawn.graph.nodes):
            yield f"random {seed} with updates", drawn.graph, updates, list(drawn.arrays)


def simulate() -> None:
    """The bits of every program are the CPU's."""
    warnings.simplefilter("ignore", RuntimeWarning)
    small = CudaTarget(threads=4, blocks=3)
    for name, graph, updates, arrays in programs(8):
        mine, theirs = ([np.array(a) for a in arrays] for _ in "12")
        here = Executable(graph, updates)
        there = Executable(graph, updates, target=small)
        for found, wanted in zip(there(mine), here(theirs), strict=True):
            assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes(), name
        for found, wanted in zip(mine, theirs, strict=True):
            assert found.tobytes() == wanted.tobytes(), name
        launches = sum(isinstance(row, CudaRow) for row in there.program.rows)
        assert launches == len(there.program.rows)
        print("equal bits:", name, launches, "launches")
    results = Executable(graph, {}, target=small)([np.array(a) for a in arrays])
    made = [t for t, (kind, _, _) in zip(results, there.results, strict=True) if kind == "new"]
    assert made and all(t.device == "cuda" for t in made)


def compile_all() -> None:
    """Every distinct kernel of all programs as PTX, for two architectures in turn."""
    target, codes = CudaTarget(), {}
    for name, graph, updates, _ in programs(0):
        lowering = Lowering(passes.run(graph), updates, target=target)
        for number, row in enumerate(lowering.program.rows):
            assert isinstance(row, CudaRow) and row.threads in (16, 256)
            if row.kernel.text not in codes:
                capability = (8 + len(codes) % 2, 0)
                known = f"{name} {number} sm_{capability[0]}0"
                codes[row.kernel.text] = known, row.kernel.ptx(capability)
    print(json.dumps(dict(codes.values())))


if __name__ == "__main__":
    sys.exit(simulate() if sys.argv[1] == "simulate" else compile_all())
