"""The target "cuda": kernels as numba.cuda source and PTX, programs as launches.

Without a GPU kernels print and compile to PTX, and whole programs run in Numba's simulator
(NUMBA_ENABLE_CUDASIM=1), whose memory is the host's. What there is not yet says so: launches on a
GPU, its memory, libraries and calls of Python between kernels. Knows the printer; imports Numba when
something is compiled or run.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from codegen.cuda.printer import CudaText, cuda_text
from codegen.errors import Unsupported
from codegen.runtime import Argument, HostCall, memory_pool
from codegen.runtime import layout as at
from codegen.runtime.memory_pool import Block
from codegen.runtime.program import instance_blocks
from codegen.spec.argument_block import count
from codegen.spec.kernel_spec import KernelSpec, Schedule, key
from codegen.targets.target import Notes, Target

_KERNELS: dict[str, CudaKernel] = {}


@dataclass(frozen=True, slots=True, eq=False)
class CudaKernel:
    """A kernel's source. Equal specifications share it; `simulated` is what the simulator has made of it."""

    name: str
    source: CudaText
    simulated: list[Any] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The source that is compiled."""
        return self.source.text

    def ptx(self, compute_capability: tuple[int, int]) -> str:
        """The kernel for one compute capability, such as (9, 0); needs numba-cuda, but no GPU."""
        from codegen.cuda.compile import ptx

        return ptx(self.source, compute_capability)


@dataclass(frozen=True, slots=True)
class CudaRow:
    """One launch of a kernel. Blocks and threads never change a bit."""

    kernel: CudaKernel
    blocks: int
    threads: int
    arguments: tuple[Argument, ...]


class CudaTarget(Target):
    """`threads` of a block, where a kernel leaves it open, and at most `blocks` of them: each thread goes on one grid further."""

    name = "cuda"

    def __init__(self, threads: int = 256, blocks: int = 4096) -> None:
        self.threads, self.blocks = threads, blocks
        self.libraries = {}

    def kernel(
        self, spec: KernelSpec, schedule: Schedule, notes: Notes | None = None
    ) -> CudaKernel:
        """The numba.cuda source of a specification."""
        source = cuda_text(spec, schedule, notes)
        known = _KERNELS.setdefault(key(spec, schedule), CudaKernel(spec.name, source))
        return CudaKernel(spec.name, source, known.simulated)

    def row(
        self,
        kernel: CudaKernel,
        spec: KernelSpec,
        schedule: Schedule,
        sizes: Mapping[str, int],
        arguments: Sequence[Argument],
    ) -> CudaRow:
        """A block for each task of kernels whose threads work together, else a thread for each position."""
        inner = sizes[spec.inner.name] if spec.inner else 1
        rows = math.prod(sizes[axis.name] for axis in spec.rows)
        threads = kernel.source.threads
        if threads is not None:
            tasks = count(spec, schedule, sizes) if schedule.mode in ("split", "columns") else rows
        else:
            threads = self.threads
            positions = inner if schedule.mode == "scatter" else rows * inner
            tasks = -(-positions // threads)
        return CudaRow(kernel, min(tasks, self.blocks), threads, tuple(arguments))

    def program(self, rows: Sequence[CudaRow | HostCall], slots: int) -> CudaProgram:
        """Launches in order. Raises `Unsupported` for a call of Python between them."""
        for row in rows:
            if isinstance(row, HostCall):
                raise Unsupported(f"{row.name} is a call of Python, which no program on CUDA makes")
        return CudaProgram([row for row in rows if isinstance(row, CudaRow)], slots)

    def allocate(self, nbytes: int) -> Block:
        """A block of the simulator's memory."""
        if not _is_simulated():
            raise Unsupported("memory on a GPU; Numba's simulator has some")
        return memory_pool.allocate(nbytes, SimulatedBlock)

    def copy_to(self, block: Block, array: npt.NDArray[Any]) -> None:
        """Copy an array to a block."""
        block.array(array.shape, array.dtype)[...] = array

    def copy_from(
        self, block: Block, shape: tuple[int, ...], dtype: npt.DTypeLike
    ) -> npt.NDArray[Any]:
        """A copy of a block's elements."""
        return np.array(block.array(shape, dtype))

    def resident(self, array: npt.NDArray[Any]) -> tuple[int, Any]:
        """A copy on the device; nowhere, where programs are only printed."""
        return Target.resident(self, array) if _is_simulated() else (0, None)


class SimulatedBlock(Block):
    """Memory of the simulated device."""

    __slots__ = ()
    device = "cuda"


class CudaProgram:
    """Launches on one block of words, as `call(*words) -> status` with a word for each slot."""

    def __init__(self, rows: Sequence[CudaRow], slots: int) -> None:
        self.rows, self._slots = tuple(rows), slots
        self._template, self._places, self._relocations, self._addresses = instance_blocks(
            self.rows, slots
        )

    def call(self, *words: int | float) -> int:
        """Run the launches. Raises `Unsupported` outside the simulator."""
        if not _is_simulated():
            raise Unsupported("launches on a GPU; Numba's simulator runs programs")
        if len(words) != self._slots:
            raise TypeError(f"this program takes {self._slots} words, got {len(words)}")
        block = np.array([w & 0xFFFFFFFFFFFFFFFF for w in self._template], np.uint64).view("i8")
        first = at.FIRST_SLOT // 8
        given = [_bits(word) for word in words]
        block[first : first + len(given)] = given
        for slot, place, offset in self._relocations:
            block[place // 8] = given[slot] + offset
        for place, home in self._addresses:
            block[place // 8] = block.ctypes.data + home
        for row, place in zip(self.rows, self._places, strict=True):
            if row.blocks:
                _simulated(row.kernel)[row.blocks, row.threads](block[place // 8 :])
            if block[at.STATUS // 8]:
                break
        return int(block[at.STATUS // 8])


def _bits(word: int | float) -> int:
    """A word as the 64 bits of a block, signed."""
    found: int = struct.unpack("q", struct.pack("d", word))[0] if isinstance(word, float) else word
    return found


def _simulated(kernel: CudaKernel) -> Any:
    from codegen.cuda.compile import simulator_kernel

    if not kernel.simulated:
        kernel.simulated.append(simulator_kernel(kernel.source))
    return kernel.simulated[0]


def _is_simulated() -> bool:
    """Whether numba.cuda is the simulator in this process."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


CUDA = CudaTarget()
