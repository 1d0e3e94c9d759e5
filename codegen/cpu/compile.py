"""From a specification and a schedule to something that runs: the compiled kernel, its text, its
un-jitted twin.

Knows the printer and the kernel store, and imports each only when it is needed: a kernel that is on
disk takes neither Numba nor its own text.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen.spec.argument_block import argument_block, count, partial_size
from codegen.spec.kernel_spec import KernelSpec, Schedule, key
from codegen.spec.user_calls import calls, names
from codegen.text.source import compile_function
from codegen.toolchain.kernel_store import CompileError, Kernel, kernel

if TYPE_CHECKING:
    from codegen.vector.intrinsics import Buffer

__all__ = [
    "argument_block",
    "buffer_of",
    "compile_cpu",
    "count",
    "partial_size",
    "text",
    "unjitted",
]
Notes = Mapping[int, str]  # number of a statement -> what is printed behind its line


def text(spec: KernelSpec, schedule: Schedule | None = None, notes: Notes | None = None) -> str:
    """The Numba source that `compile_cpu` compiles."""
    from codegen.cpu.printer import cpu_text

    return cpu_text(spec, schedule, notes)


def compile_cpu(
    spec: KernelSpec,
    schedule: Schedule | None = None,
    notes: Notes | None = None,
    *,
    with_text: bool = True,
) -> Kernel:
    """The machine code of a spec: void(lo, hi, address of an `argument_block`).

    Equal specs share it, whatever their names. Raises `FunctionError` for a user's function that
    cannot be compiled. Without `with_text` the kernel's text is left empty
    (printing takes half a millisecond); `text` gives it on demand.
    """
    schedule = schedule or Schedule()
    source = text(spec, schedule, notes) if with_text else ""

    def build() -> Callable[..., Any]:
        import codegen.vector.intrinsics_numba
        import codegen.vector.jit  # noqa: F401  registers the names of the text
        from codegen.spec.analysis import function_name
        from codegen.vector.intrinsics import JIT_NAMES

        known = {**JIT_NAMES, **_prepared(spec)}
        return compile_function(source or text(spec, schedule), function_name(spec), known)

    try:
        return kernel(key(spec, schedule), spec.name, build, text=source)
    except CompileError:
        _refuse_raising(spec)
        raise


def _prepared(spec: KernelSpec) -> dict[str, Any]:
    """The user's functions, compiled, by their names in the text. Raises `FunctionError`."""
    if not spec.functions:
        return {}
    from codegen.user_functions.lane_function_numba import prepare

    return {f.name: prepare(f, element) for f, element in calls(spec)}


def _refuse_raising(spec: KernelSpec) -> None:
    """Raise `FunctionError` if it is a function of the user's because of which a kernel cannot stand alone."""
    if spec.functions:
        from codegen.user_functions.lane_function_numba import refuse_raising

        for f, element in calls(spec):
            refuse_raising(f, element)


def unjitted(
    spec: KernelSpec, schedule: Schedule | None = None
) -> Callable[[int, int, Sequence[Any]], None]:
    """The same text as plain Python: call it with lo, hi and an `argument_block` whose pointers are
    `buffer_of` arrays.

    A stray index raises, and a debugger steps through the kernel's lines.
    """
    from codegen.spec.analysis import function_name
    from codegen.vector.intrinsics import PLAIN_NAMES

    known = {**PLAIN_NAMES, **names(spec)}
    return compile_function(text(spec, schedule), function_name(spec), known)


def buffer_of(array: np.ndarray[Any, Any]) -> Buffer:
    """The memory of an array, exactly from its first to its last element, as an un-jitted pointer
    to its element 0...0.
    """
    from codegen.spec.analysis import memory_element
    from codegen.vector.intrinsics import Buffer

    low, high = np.lib.array_utils.byte_bounds(array)
    if not array.size:
        low = high = array.ctypes.data
    memory_element(array.dtype.name)
    size = (high - low) // array.itemsize
    memory = (ctypes.c_char * (high - low)).from_address(low)
    flat: np.ndarray[Any, Any] = np.ndarray((size,), array.dtype, memoryview(memory))
    return Buffer(flat, (array.ctypes.data - low) // array.itemsize)
