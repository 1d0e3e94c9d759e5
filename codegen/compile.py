"""From a specification and a schedule to something that runs: the compiled kernel, its text, its
un-jitted twin.

Knows the printers and the kernel store. Imports Numba only when a kernel is on no disk and must be
compiled.
"""

from __future__ import annotations

import ctypes
import linecache
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from codegen.analysis import function_name, memory_element
from codegen.cpu import Notes, cpu_text
from codegen.errors import SpecError
from codegen.kernels import Kernel, kernel
from codegen.spec import CHUNK, WIDTH, KernelSpec, Schedule, key
from codegen.words import JIT_NAMES, PLAIN_NAMES, Buffer

Pointer = TypeVar("Pointer")


def text(spec: KernelSpec, schedule: Schedule | None = None, notes: Notes | None = None) -> str:
    """The Numba source that `compile_cpu` compiles, with notes (statement number -> text) at the
    ends of lines.
    """
    return cpu_text(spec, schedule, notes)


def compile_cpu(
    spec: KernelSpec, schedule: Schedule | None = None, notes: Notes | None = None
) -> Kernel:
    """The machine code of a spec: void(lo, hi, address of an `argument_block`). Equal specs share
    it, whatever their names.
    """
    schedule = schedule or Schedule()
    source = cpu_text(spec, schedule, notes)

    def build() -> Callable[..., Any]:
        import codegen.vector.jit
        import codegen.words_jit  # noqa: F401  registers the names of the text

        return function(source, function_name(spec), JIT_NAMES)

    return kernel(key(spec, schedule), spec.name, build, text=source)


def unjitted(
    spec: KernelSpec, schedule: Schedule | None = None
) -> Callable[[int, int, Sequence[Any]], None]:
    """The same text as plain Python: call it with lo, hi and an `argument_block` whose pointers are
    `buffer_of` arrays.

    A stray index raises, and a debugger steps through the kernel's lines.
    """
    return function(cpu_text(spec, schedule), function_name(spec), PLAIN_NAMES)


def function(source: str, name: str, names: Mapping[str, Any]) -> Callable[..., Any]:
    """The function `name` of a text; tracebacks show its lines."""
    file = f"<kernel {name}>"
    namespace = dict(names)
    exec(compile(source, file, "exec"), namespace)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    made: Callable[..., Any] = namespace[name]
    return made


def argument_block(
    spec: KernelSpec,
    pointers: Mapping[str, Pointer],
    sizes: Mapping[str, int],
    strides: Mapping[str, Sequence[int]] | None = None,
) -> list[Pointer | int]:
    """The words that a kernel reads: the operands' pointers, the sizes of axes and parts, the
    run-time strides.

    `pointers` by operand, `sizes` by axis or part, `strides` by operand: one for each index
    position, in elements.
    """
    block: list[Pointer | int] = []
    for o in spec.operands:
        if o.name not in pointers:
            raise SpecError(f"kernel {spec.name}: no pointer for operand {o.name}")
        block.append(pointers[o.name])
    block += [int(sizes[name[2:]]) for name in spec.size_names]
    for o in spec.operands:
        if None not in o.strides:
            continue
        given = (strides or {}).get(o.name)
        if given is None:
            raise SpecError(
                f"kernel {spec.name}: operand {o.name} has run-time strides and none were given"
            )
        if len(given) != len(o.strides):
            raise SpecError(
                f"kernel {spec.name}: operand {o.name} has {len(o.strides)} index positions; "
                f"got strides {tuple(given)}"
            )
        block += [int(g) for s, g in zip(o.strides, given, strict=True) if s is None]
    return block


def count(spec: KernelSpec, schedule: Schedule, sizes: Mapping[str, int]) -> int:
    """How many things the driver's range counts: the kernel is to be run on [0, count), in pieces
    of any size.

    In mode "flat" pieces start at multiples of 16.
    """
    rows = _rows(spec, sizes)
    inner = sizes[spec.inner.name] if spec.inner else 1
    match schedule.mode:
        case "rows":
            return rows
        case "flat":
            return inner
        case "split":
            return rows * -(-inner // CHUNK)
        case "columns":
            return -(-rows // CHUNK) * WIDTH
    return -(-inner // schedule.columns) if spec.inner else 1


def partial_size(spec: KernelSpec, schedule: Schedule, sizes: Mapping[str, int]) -> int:
    """Elements of a partial operand: one for each task, times the inner axis for a fold over the
    rows in its loop.
    """
    tasks = count(spec, schedule, sizes)
    return tasks * sizes[spec.inner.name] if schedule.mode == "columns" and spec.inner else tasks


def _rows(spec: KernelSpec, sizes: Mapping[str, int]) -> int:
    rows = 1
    for axis in spec.rows:
        rows *= sizes[axis.name]
    return rows


def buffer_of(array: np.ndarray[Any, Any]) -> Buffer:
    """The memory of an array, exactly from its first to its last element, as an un-jitted pointer
    to its element 0...0.
    """
    low, high = np.lib.array_utils.byte_bounds(array)
    if not array.size:
        low = high = array.ctypes.data
    memory_element(array.dtype.name)
    size = (high - low) // array.itemsize
    memory = (ctypes.c_char * (high - low)).from_address(low)
    flat: np.ndarray[Any, Any] = np.ndarray((size,), array.dtype, memoryview(memory))
    return Buffer(flat, (array.ctypes.data - low) // array.itemsize)
