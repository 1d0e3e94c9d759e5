"""Numba turns one Python function of machine words into relocatable object code; nothing of it
enters Numba's own engine.

The only file of the runtime that imports Numba; it is imported when a kernel must be compiled, so
never on a cache hit. It knows neither cache nor loader. It reaches into Numba's compiler
(`compile_extra`, `CPUCodeLibrary`) because `cfunc` has three faults for code that outlives the
process: its error path calls Numba's C helpers, its symbol names hold a counter that two forked
processes share, and everything inlined stays exported beside the wrapper.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import cfunc, types
from numba.core import compiler
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

RAISED = "kernel_raised"  # called on the error path; left undefined, so the object file shows when the path survived
_OPTIONS = {"error_model": "numpy"}


class _ObjectLibrary(CPUCodeLibrary):  # type: ignore[misc]
    """A code library that exports one symbol and is emitted as an object file."""

    symbol = ""

    def _optimize_final_module(self) -> None:
        # Before the passes: they may then change or drop what nobody else can call, error results
        # included.
        module = self._final_module
        for value in (*module.functions, *module.global_variables):
            if not value.is_declaration and value.name != self.symbol:
                value.linkage = "internal"
        super()._optimize_final_module()

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def emit(self) -> bytes:
        """The object file."""
        self._ensure_finalized()
        if self.has_dynamic_globals:
            raise ValueError("it refers to an object of this process by address")
        code: bytes = self._codegen._tm.emit_object(self._final_module)
        return code


def compile_object(
    function: Callable[..., Any], symbol: str, arguments: int, returns: bool
) -> bytes:
    """Compile `function` of `arguments` 64-bit words, returning a word or nothing; export it as
    `symbol`.
    """
    with global_compiler_lock:
        target = cpu_target.target_context
        library = _ObjectLibrary(target.codegen(), symbol)
        library.symbol = symbol
        flags = compiler.Flags()
        cpu_target.options.parse_as_flags(flags, dict(_OPTIONS))
        flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
        flags.enable_pyobject = False
        restype = types.int64 if returns else types.void
        result = compiler.compile_extra(
            cpu_target.typing_context,
            target,
            function,
            args=(types.int64,) * arguments,
            return_type=restype,
            flags=flags,
            locals={},
            library=library,
        )
        if result.typing_error is not None:
            raise result.typing_error
        _add_entry(target, library, result.fndesc, symbol)
        return library.emit()


def _add_entry(target: Any, library: _ObjectLibrary, fndesc: Any, symbol: str) -> None:
    """Add the C function `symbol`, into which Numba's function is inlined."""
    word = ir.IntType(64)
    module = target.create_module("entry")
    callee = ir.Function(
        module,
        target.call_conv.get_function_type(fndesc.restype, fndesc.argtypes),
        fndesc.llvm_func_name,
    )
    returns = fndesc.restype is not types.void
    kind = ir.FunctionType(word if returns else ir.VoidType(), [word] * len(fndesc.argtypes))
    entry = ir.Function(module, kind, symbol)
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    status, out = target.call_conv.call_function(
        builder, callee, fndesc.restype, fndesc.argtypes, entry.args, attrs=("alwaysinline",)
    )
    with builder.if_then(status.is_error, likely=False):
        builder.call(ir.Function(module, ir.FunctionType(ir.VoidType(), []), RAISED), [])
    builder.ret(out) if returns else builder.ret_void()
    library.add_ir_module(module)


def compile_here(function: Callable[..., Any], arguments: int, returns: bool) -> tuple[int, Any]:
    """Compile into this process, for platforms whose object files the loader does not check:
    (address, owner).
    """
    restype = types.int64 if returns else types.void
    compiled = cfunc(restype(*[types.int64] * arguments), **_OPTIONS)(function)
    return int(ctypes.cast(compiled.ctypes, ctypes.c_void_p).value or 0), compiled
