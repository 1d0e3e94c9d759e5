"""Turns CUDA text into functions: for Numba's simulator, and to PTX on a machine without a GPU.
Imports Numba when called.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from codegen.cuda.device_functions import simulated
from codegen.cuda.printer import CudaText
from codegen.spec.kernel_spec import ScalarFunction
from codegen.text.source import compile_function
from codegen.user_functions.content import entry
from codegen.vector.elements import DTYPE

_LITERALS: dict[str, Any] = {"inf": np.inf, "nan": np.nan, "bool_": np.bool_}


def simulator_kernel(kernel: CudaText) -> Any:
    """For numba.cuda under NUMBA_ENABLE_CUDASIM=1: kernel[blocks, threads](*arguments)."""
    import numba.cuda

    cuda: Any = numba.cuda
    names = _LITERALS | DTYPE | {"cuda": cuda}
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

    with _without_gpu(compute_capability):
        names = _LITERALS | DTYPE | {"cuda": cuda, "libdevice": libdevice}
        for name, text in kernel.functions.items():
            names[name] = cuda.jit(device=True)(compile_function(text, name, names))
        names |= {name: _device(user, cuda.jit(device=True)) for name, user in kernel.users.items()}
        arrays = [_array(types, e) for e in kernel.arrays]
        signature = types.void(*arrays, *[types.int64] * len(kernel.integers))
        code, _ = cuda.compile(
            compile_function(kernel.text, kernel.name, names),
            signature,
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


def _array(types: Any, element: str) -> Any:
    name = {"bool": "boolean", "f16": "float16"}.get(element) or np.dtype(DTYPE[element]).name
    return getattr(types, name)[::1]


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
