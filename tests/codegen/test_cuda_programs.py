"""Whole programs on the target "cuda", without a GPU."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from codegen.errors import Unsupported
from codegen.runtime import memory_pool
from codegen.targets.cuda import CUDA
from codegen.targets.target import CPU, Target
from ops.types import Type
from tracer.ir.graph import Graph, GraphBuilder
from tracer.lowering.assemble import Lowering
from tracer.runtime.executable import Executable
from tracer.tensors.tensor import Tensor

RunPython = Callable[..., Any]
numba_cuda = pytest.mark.skipif(
    importlib.util.find_spec("numba_cuda") is None, reason="needs numba-cuda (extra 'cuda')"
)


def test_programs_have_the_bits_of_the_cpu_in_the_simulator(run_python: RunPython) -> None:
    done = run_python(
        "from tests.support import cuda_programs; cuda_programs.simulate()",
        environment={"NUMBA_ENABLE_CUDASIM": "1"},
    )
    assert done.stdout.count("equal bits") > 10, done.stdout
    for name in ("softmax_gradient", "normalized", "step", "pieces", "with updates"):
        assert name in done.stdout


@numba_cuda
def test_kernels_of_programs_compile_for_two_architectures(run_python: RunPython) -> None:
    done = run_python("from tests.support import cuda_programs; cuda_programs.compile_all()")
    codes = json.loads(done.stdout.splitlines()[-1])
    assert len(codes) >= 12
    for name, code in codes.items():
        assert f".target {name.split()[-1]}" in code
        assert code.count(".param .u64") == 1, name  # the argument block


def elementwise() -> Graph:
    g = GraphBuilder()
    x = g.input(Type("float32", (3, 40)), "x")
    return g.build([g.ReduceSum(g.Exp(x), axes=(1,), keepdims=False)])


def test_a_target_is_all_that_lowering_asks() -> None:
    """The same specifications and argument blocks for both; the texts are each target's own."""
    here, there = (Lowering(elementwise(), {}, target=t) for t in (CPU, CUDA))
    assert len(here.program.rows) == len(there.program.rows) == 1
    assert here.program.rows[0].arguments[:2] == there.program.rows[0].arguments[:2]
    mine, theirs = here.planned[0].bound, there.planned[0].bound
    assert mine is not None and theirs is not None and mine.spec == theirs.spec
    assert "(lo, hi, args)" in here.planned[0].text
    assert "(args)" in there.planned[0].text and "cuda.syncthreads()" in there.planned[0].text
    row = there.program.rows[0]
    assert (row.blocks, row.threads) == (3, 16)
    executable = Executable(elementwise(), {})
    assert executable.kernels() == [here.planned[0].text]
    assert executable.kernels(CUDA) == [there.planned[0].text]


def test_what_cuda_does_not_do_yet_says_so() -> None:
    with pytest.raises(Unsupported, match="launches on a GPU"):
        Lowering(elementwise(), {}, target=CUDA).program.call(0, 0, 0)
    with pytest.raises(Unsupported, match="memory on a GPU"):
        CUDA.allocate(8)
    g = GraphBuilder()
    x = g.input(Type("float32", (4, 4)), "x")
    with pytest.raises(Unsupported, match="no library of cuda computes matmul"):
        Lowering(g.build([g.MatMul(x, x)]), {}, target=CUDA)
    g = GraphBuilder()
    x = g.input(Type("float32", (4, 4)), "x")
    with pytest.raises(Unsupported, match="CumSum is a call of Python"):
        Lowering(g.build([g.CumSum(x, axis=0)]), {}, target=CUDA)


def test_blocks_know_their_device_and_targets_copy() -> None:
    block = CPU.allocate(12)
    CPU.copy_to(block, np.arange(3, dtype=np.int32))
    copy = CPU.copy_from(block, (3,), np.int32)
    block.array((3,), np.int32)[0] = 9
    assert copy.tolist() == [0, 1, 2] and block.device == "cpu"
    address, kept = CPU.resident(copy)
    assert address == copy.ctypes.data and kept is copy
    address, kept = Target.resident(CPU, copy)
    assert address == kept.pointer != copy.ctypes.data
    assert Tensor.of_block(block, Type("int32", (3,))).device == "cpu"

    class Elsewhere(memory_pool.Block):
        __slots__ = ()
        device = "elsewhere"

    assert (
        Tensor.of_block(memory_pool.allocate(12, Elsewhere), Type("int32", (3,))).device
        == "elsewhere"
    )
