"""Turns CUDA text into functions: for Numba's simulator, and to PTX on a machine without a GPU.
Imports Numba when called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from codegen.cpu.python_kernel import memory_around
from codegen.cuda.device_functions import simulated
from codegen.cuda.printer import CudaText
from codegen.spec.kernel_spec import ScalarFunction
from codegen.text.source import compile_function
from codegen.user_functions.content import entry
from codegen.vector.elements import DTYPE, MEMORY_ELEMENTS
from codegen.vector.intrinsics import Buffer

_LITERALS: dict[str, Any] = {"inf": np.inf, "nan": np.nan, "bool_": np.bool_}
_MEMORY: dict[str, Any] = {
    e: np.dtype({"f16": "float16"}.get(e) or DTYPE[e]) for e in MEMORY_ELEMENTS if e != "bf16"
}
Memory = Callable[[int, np.dtype[Any]], Buffer]  # what an address points to


def simulator_kernel(kernel: CudaText, memory: Memory = memory_around) -> Any:
    """For numba.cuda under NUMBA_ENABLE_CUDASIM=1: kernel[blocks, threads](the argument block, as an array of int64).

    `memory` gives the elements around an address; unless told, all that there is.
    """
    import numba.cuda

    cuda: Any = numba.cuda
    names = _LITERALS | DTYPE | {"cuda": cuda, "word": lambda args, k: np.int64(args[k])}
    for element, dtype in _MEMORY.items():
        names[f"pointer_{element}"] = lambda args, k, dtype=dtype: _SimulatedPointer(
            memory(int(args[k]), dtype)
        )
    for name, text in kernel.functions.items():
        names[name] = simulated(name) or compile_function(text, name, names)
    names |= kernel.users
    return cuda.jit(compile_function(kernel.text, kernel.name, names))


def ptx(kernel: CudaText, compute_capability: tuple[int, int]) -> str:
    """The kernel as PTX for one compute capability, nothing contracted; needs numba-cuda and its
    compiler, but no GPU.
    """
    import numba.cuda
    from numba import types
    from numba.cuda import libdevice

    cuda: Any = numba.cuda

    pointer: Any = types.CPointer

    with _without_gpu(compute_capability):
        names = _LITERALS | DTYPE | _block_functions() | {"cuda": cuda, "libdevice": libdevice}
        for name, text in kernel.functions.items():
            names[name] = cuda.jit(device=True)(compile_function(text, name, names))
        names |= {name: _device(user, cuda.jit(device=True)) for name, user in kernel.users.items()}
        code, _ = cuda.compile(
            compile_function(kernel.text, kernel.name, names),
            types.void(pointer(types.int64)),
            device=False,
            abi="numba",
            cc=compute_capability,
        )
    return str(code)


def _device(user: ScalarFunction, jit: Any) -> Any:
    """A function of the user's for a device."""
    whole = entry(user.function, jit)  # type: ignore[arg-type]
    if user.part is None:
        return whole
    operands = ", ".join(f"x{k}" for k in range(user.arity))
    text = f"def part({operands}):\n    return whole({operands})[{user.part}]\n"
    return jit(compile_function(text, "part", {"whole": whole}))


class _SimulatedPointer:
    """A pointer as texts use it: element i, also a negative one."""

    def __init__(self, buffer: Buffer) -> None:
        self.array, self.origin = buffer.array, buffer.origin

    def _place(self, i: int) -> int:
        place = self.origin + int(i)
        if place < 0:
            raise IndexError(f"element {i} lies before the memory")
        return place

    def __getitem__(self, i: int) -> Any:
        return self.array[self._place(i)]

    def __setitem__(self, i: int, value: Any) -> None:
        self.array[self._place(i)] = value


def _block_functions() -> dict[str, Any]:
    """`word` and `pointer_<element>` for Numba's CUDA compiler."""
    from numba import types
    from numba.cuda.extending import intrinsic

    def word_at(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.load(builder.gep(values[0], [values[1]]))

    @intrinsic
    def word(typing_context: Any, args: Any, position: Any) -> Any:
        return types.int64(args, position), word_at

    def pointer_to(element: Any) -> Any:
        # An array of size 0: to a negative index Numba adds the size, and it checks none.
        array = types.Array(element, 1, "C")

        def write(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            from llvmlite import ir
            from numba.cuda.np.arrayobj import populate_array

            made = context.make_array(array)(context, builder)
            size = context.get_abi_sizeof(context.get_data_type(element))
            to = made.data.type.pointee
            in_global = builder.inttoptr(
                word_at(context, builder, signature, values), ir.PointerType(to, addrspace=1)
            )
            populate_array(
                made,
                data=builder.addrspacecast(in_global, made.data.type),
                shape=[context.get_constant(types.intp, 0)],
                strides=[context.get_constant(types.intp, size)],
                itemsize=context.get_constant(types.intp, size),
                meminfo=None,
            )
            return made._getvalue()

        @intrinsic
        def pointer(typing_context: Any, args: Any, position: Any) -> Any:
            return array(args, position), write

        return pointer

    named = {e: "boolean" if e == "bool" else d.name for e, d in _MEMORY.items()}
    return {"word": word} | {
        f"pointer_{e}": pointer_to(getattr(types, name)) for e, name in named.items()
    }


@contextmanager
def _without_gpu(compute_capability: tuple[int, int]) -> Iterator[None]:
    """numba-cuda asks the driver for a device as soon as a device function is compiled, and has no
    option against contraction of a*b + c. Both are put right here, and back.
    """
    import numba.cuda.cudadrv.nvvm
    import numba.cuda.dispatcher

    dispatcher: Any = numba.cuda.dispatcher
    nvvm: Any = numba.cuda.cudadrv.nvvm
    device, compile_ir = dispatcher.get_current_device, nvvm.compile_ir
    dispatcher.get_current_device = lambda: SimpleNamespace(compute_capability=compute_capability)
    nvvm.compile_ir = lambda text, **options: compile_ir(text, **options | {"fma": False})
    try:
        yield
    finally:
        dispatcher.get_current_device, nvvm.compile_ir = device, compile_ir
