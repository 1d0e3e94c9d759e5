"""Where programs run: one object for each kind of device, which schedules and compiles kernels, plans library calls, says how
work is cut, allocates and copies memory, and makes programs of rows.

Whoever lowers a graph asks the target and no compiler, pool or allocator by name. All targets take the same specifications, and
their kernels the same argument block (`codegen.spec.argument_block`). Knows specifications and what each target is made of.
Must not know graphs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from codegen.errors import Unsupported
from codegen.gemm import MATMUL
from codegen.runtime import Argument, HostCall, Program, Row, memory_pool
from codegen.runtime.library import Library, LibraryPlan, program_rows
from codegen.runtime.memory_pool import Block
from codegen.spec.argument_block import count
from codegen.spec.kernel_spec import CHUNK, KernelSpec, Schedule
from codegen.spec.schedule_choice import Mode, schedule_for

Notes = Mapping[int, str]
PARALLEL_ELEMENTS = 1 << 15  # a row of less work runs on the caller alone
CHUNK_ELEMENTS = 1 << 14


class TargetKernel(Protocol):
    """What a target has made of a specification."""

    @property
    def name(self) -> str:
        """For people."""
        ...

    @property
    def text(self) -> str:
        """The source that was compiled."""
        ...


class TargetProgram(Protocol):
    """Rows ready to run."""

    @property
    def rows(self) -> Sequence[Any]:
        """In order."""
        ...

    @property
    def call(self) -> Callable[..., int]:
        """Called with a word for each slot; gives 0, or what a kernel reported."""
        ...


class Target(ABC):
    """A kind of device. `name` as users write it; `libraries` by name, see `codegen.runtime.library`."""

    name: str
    libraries: dict[str, Library]

    def schedule(self, spec: KernelSpec, mode: Mode) -> Schedule:
        """How a kernel runs in a mode; never changes a bit."""
        return schedule_for(spec, mode)

    @abstractmethod
    def kernel(
        self, spec: KernelSpec, schedule: Schedule, notes: Notes | None = None
    ) -> TargetKernel:
        """The kernel of a specification, compiled or from a cache. Raises `FunctionError` for a user's function that cannot be
        compiled, and `Unsupported` for what this target cannot run."""

    @abstractmethod
    def row(
        self,
        kernel: Any,
        spec: KernelSpec,
        schedule: Schedule,
        sizes: Mapping[str, int],
        arguments: Sequence[Argument],
    ) -> Any:
        """The row of a program that runs a kernel on all of its range, cut as it suits the target."""

    @abstractmethod
    def program(self, rows: Sequence[Any], slots: int) -> TargetProgram:
        """A program of rows and host calls, called with a word for each slot."""

    def library(self, name: str) -> Library:
        """A library by its name. Raises `Unsupported`."""
        if name not in self.libraries:
            raise Unsupported(f"no library of {self.name} computes {name}")
        return self.libraries[name]

    def library_rows(self, plan: LibraryPlan, operands: Mapping[str, Argument]) -> list[Any]:
        """The rows of a library's plan; `operands` says where each operand lies."""
        return list(program_rows(plan, operands))

    # ---- memory
    @abstractmethod
    def allocate(self, nbytes: int) -> Block:
        """A block of memory there, which is free again with its last reference."""

    @abstractmethod
    def copy_to(self, block: Block, array: npt.NDArray[Any]) -> None:
        """Copy a row-major array of the host's to the beginning of a block."""

    @abstractmethod
    def copy_from(
        self, block: Block, shape: tuple[int, ...], dtype: npt.DTypeLike
    ) -> npt.NDArray[Any]:
        """A copy of a block's elements on the host."""

    def resident(self, array: npt.NDArray[Any]) -> tuple[int, Any]:
        """The address of an array's elements where programs read them, and what keeps them there."""
        block = self.allocate(array.nbytes)
        self.copy_to(block, array)
        return block.pointer, block


class CpuTarget(Target):
    """The machine that this runs on: kernels by Numba, rows on the thread pool."""

    name = "cpu"

    def __init__(self) -> None:
        self.libraries = {MATMUL.name: MATMUL}

    def kernel(
        self, spec: KernelSpec, schedule: Schedule, notes: Notes | None = None
    ) -> TargetKernel:
        """Machine code: see `compile.compile_cpu`."""
        from codegen.cpu.compile import compile_cpu

        return compile_cpu(spec, schedule, notes)

    def row(
        self,
        kernel: Any,
        spec: KernelSpec,
        schedule: Schedule,
        sizes: Mapping[str, int],
        arguments: Sequence[Argument],
    ) -> Row:
        """Chunks of the range, on all threads where they are several."""
        n = count(spec, schedule, sizes)
        return Row(kernel.address, n, chunk_of(spec, schedule, sizes, n), tuple(arguments))

    def program(self, rows: Sequence[Row | HostCall], slots: int) -> Program:
        """Rows walked by machine code."""
        return Program(rows, slots)

    allocate = staticmethod(memory_pool.allocate)  # with nothing between, as results are made by it

    def copy_to(self, block: Block, array: npt.NDArray[Any]) -> None:
        """Copy an array to a block."""
        block.array(array.shape, array.dtype)[...] = array

    def copy_from(
        self, block: Block, shape: tuple[int, ...], dtype: npt.DTypeLike
    ) -> npt.NDArray[Any]:
        """A copy of a block's elements."""
        return np.array(block.array(shape, dtype))

    def resident(self, array: npt.NDArray[Any]) -> tuple[int, Any]:
        """Where it is."""
        return int(array.__array_interface__["data"][0]), array


class PythonTarget(CpuTarget):
    """The CPU with kernels that Python runs: see `python_kernel`."""

    def kernel(
        self, spec: KernelSpec, schedule: Schedule, notes: Notes | None = None
    ) -> TargetKernel:
        """The kernel's text behind an address."""
        from codegen.cpu.python_kernel import python_kernel

        return python_kernel(spec, schedule, notes)


CPU, PYTHON = CpuTarget(), PythonTarget()


def chunk_of(spec: KernelSpec, schedule: Schedule, sizes: Mapping[str, int], n: int) -> int:
    """How many of a row's n tasks one thread of the pool takes at a time. Never changes a bit."""
    inner, mode = sizes.get(spec.inner.name, 1) if spec.inner else 1, schedule.mode
    if mode == "scatter":
        return 1 if n > 1 else max(n, 1)
    match mode:  # elements of a task
        case "flat":
            each = 1
        case "split":
            each = min(inner, CHUNK)
        case "columns":
            rows = math.prod(sizes[axis.name] for axis in spec.rows)
            each = max(1, inner * rows // max(n, 1))
        case _:
            each = max(1, inner)
    if each * n < PARALLEL_ELEMENTS:
        return max(n, 1)
    chunk = max(16 if schedule.swap else 1, CHUNK_ELEMENTS // each)
    return -(-chunk // 16) * 16 if mode == "flat" else chunk
