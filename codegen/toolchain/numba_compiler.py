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
from numba.core import compiler, typed_passes, untyped_passes
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import PassManager
from numba.core.registry import cpu_target

from codegen.errors import FunctionError

# Called on the error path and defined nowhere: the object file shows whether the path survived.
RAISED = "kernel_raised"
_SIGNATURE = types.void(types.int64, types.int64, types.int64)
_OPTIONS: dict[str, Any] = {"error_model": "numpy"}
# Numba annotates little of this, and some of it wrongly.
_Library: Any = CPUCodeLibrary
_compiler: Any = compiler
_PassManager: Any = PassManager
_target: Any = cpu_target


class _Pipeline(_compiler.CompilerBase):  # type: ignore[misc]
    """Numba's passes without those that kernel text has no use for: 30 % less time, the same code.

    Kernel text calls functions that are typed by a table, and a name keeps one type: nothing is to
    be inlined, unrolled or split into single assignments between bytecode, types and IR.
    """

    def define_pipelines(self) -> list[Any]:
        """One pipeline."""
        manager = _PassManager("kernel")
        manager.add_pass(untyped_passes.TranslateByteCode, "bytecode to Numba's IR")
        manager.add_pass(untyped_passes.FixupArgs, "arguments")
        manager.add_pass(untyped_passes.IRProcessing, "lifetimes of variables")
        manager.add_pass(untyped_passes.GenericRewrites, "raise")  # so that it can be refused
        manager.add_pass(typed_passes.NopythonTypeInference, "types")
        manager.add_pass(typed_passes.AnnotateTypes, "types, for messages")
        manager.add_pass(typed_passes.NativeLowering, "LLVM's IR")
        manager.add_pass(typed_passes.NoPythonBackend, "machine code")
        manager.finalize()
        return [manager]


class _ObjectLibrary(_Library):  # type: ignore[misc]
    """A code library that exports one symbol and is emitted as an object file."""

    symbol = ""

    def _optimize_final_module(self) -> None:
        # Before the passes: they may then change or drop what nobody else can call, error results
        # included. They also fold addresses of this process into the code, so look for those first.
        self._finalize_dynamic_globals()
        module = self._final_module
        for value in (*module.functions, *module.global_variables):
            if not value.is_declaration and value.name != self.symbol:
                value.linkage = "internal"
        self._run_passes(module)

    def _run_passes(self, module: Any) -> None:
        super()._optimize_final_module()

    def _finalize_final_module(self) -> None:
        self._verify_declare_only_symbols()
        self._finalized = True

    def emit(self) -> bytes:
        """The object file."""
        self._ensure_finalized()
        if self.has_dynamic_globals:
            raise ValueError("it refers to an object of this process by address")
        code: bytes = self._codegen._tm.emit_object(self._final_module)
        return code


class _KernelLibrary(_ObjectLibrary):
    """One of kernel text alone: 5 % less time, the same code.

    Numba runs passes over each function and a cheap pass over the module first, so that counts of
    references meet in one function and cancel out. Kernels count none.
    """

    def _run_passes(self, module: Any) -> None:
        passes, builder = self._codegen._module_pass_manager()
        passes.run(module, builder)

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout


def compile_object(function: Callable[..., Any], symbol: str) -> bytes:
    """The object file of a kernel, void(int64 lo, int64 hi, int64 args), exported as `symbol`."""
    from codegen.vector.contexts import contexts

    with global_compiler_lock:
        try:
            return _compile(function, symbol, *contexts(), _KernelLibrary)
        except FunctionError:
            raise
        except Exception:
            # It says more than kernel text does (a user's compiled function, say): with all of
            # Numba, which takes longer to load, or else fails with a message of its own.
            contexts_of_all = _target.typing_context, _target.target_context
            return _compile(function, symbol, *contexts_of_all, _ObjectLibrary)


def _compile(
    function: Callable[..., Any], symbol: str, typing: Any, target: Any, kind: type[_ObjectLibrary]
) -> bytes:
    library = kind(target.codegen(), symbol)
    library.symbol = symbol
    flags = _compiler.Flags()
    _target.options.parse_as_flags(flags, dict(_OPTIONS))
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
    flags.enable_pyobject = False
    result = _compiler.compile_extra(
        typing,
        target,
        function,
        args=_SIGNATURE.args,
        return_type=_SIGNATURE.return_type,
        flags=flags,
        locals={},
        library=library,
        pipeline_class=_Pipeline,
    )
    if result.typing_error is not None:
        raise result.typing_error
    library.add_ir_module(_entry(target, result.fndesc, symbol))
    code: bytes = library.emit()
    return code


def _entry(target: Any, fndesc: Any, symbol: str) -> Any:
    """A module with the C function `symbol`, into which Numba's function is inlined."""
    module = target.create_module("entry")
    kind = target.call_conv.get_function_type(fndesc.restype, fndesc.argtypes)
    callee = ir.Function(module, kind, fndesc.llvm_func_name)
    entry = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 3), symbol)
    builder = ir.IRBuilder(entry.append_basic_block("entry"))
    status, _ = target.call_conv.call_function(
        builder, callee, fndesc.restype, fndesc.argtypes, entry.args, attrs=("alwaysinline",)
    )
    with builder.if_then(status.is_error, likely=False):
        builder.call(ir.Function(module, ir.FunctionType(ir.VoidType(), []), RAISED), [])
    builder.ret_void()
    return module


def compile_here(function: Callable[..., Any]) -> tuple[int, Any]:
    """Compile a kernel into this process: (address, owner).

    For platforms whose object files the loader does not check.
    """
    compiled = cfunc(_SIGNATURE, **_OPTIONS)(function)
    return int(ctypes.cast(compiled.ctypes, ctypes.c_void_p).value or 0), compiled
