"""Object code of one C function: made with Numba, loaded into the process with llvmlite alone.

A kernel is void(int64 lo, int64 hi, int64 args). What it may call is a list of C names, resolved
here before LLVM sees the file, since LLVM's loader leaves an unknown name as a jump to address 0.
Knows neither keys nor files: those are `kernels` and `object_cache`.

All code of a process lives in one MCJIT engine (0.1 ms a kernel; an engine each takes 0.9) and is
never freed. Symbols are renamed at every load, so that the same key loaded twice, or in a forked
child, is new code each time.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable, Collection
from importlib import import_module
from typing import Any

from codegen.toolchain import elf_check
from codegen.toolchain.elf_check import DamagedObjectError

ENTRY = "tracer_function_0000000000000000"  # the name in every object file; the loader numbers it
_C = "memcpy memmove memset memcmp bcmp"
_FLOAT = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs
    floor fma fmax fmin fmod frexp hypot ldexp lgamma log log10 log1p log2 modf nearbyint pow
    remainder rint round roundeven sin sincos sinh sqrt tan tanh tgamma trunc
"""
# LLVM's own helpers (libgcc): 128-bit division, integer powers, half precision without F16C.
_HELPERS = """
    __divti3 __modti3 __udivti3 __umodti3 __powisf2 __powidf2
    __extendhfsf2 __truncsfhf2 __truncdfhf2 __truncsfbf2 __truncdfbf2
"""
KERNEL_SYMBOLS = frozenset(
    [*_C.split(), *_HELPERS.split(), *_FLOAT.split(), *(f"{name}f" for name in _FLOAT.split())]
)


class CompileError(RuntimeError):
    """A function that cannot be made into object code that stands alone."""


def prepare(compiler: bool) -> None:
    """Import llvmlite, with `compiler` Numba too, where no other thread forks in the midst."""
    with _compiling:
        import_module("llvmlite.binding")
        if compiler:
            import_module("codegen.toolchain.numba_compiler")


def compile_kernel(function: Callable[..., Any]) -> bytes:
    """The object file of a kernel. Imports Numba."""
    from codegen.toolchain.numba_compiler import RAISED, compile_object

    name = getattr(function, "__name__", "kernel")
    try:
        with _compiling:
            code = compile_object(function, ENTRY)
        elf_check.undefined_symbols(code, ENTRY, KERNEL_SYMBOLS)
    except ValueError as error:
        if RAISED in str(error):
            raise CompileError(
                f"{name}: it can raise a Python exception, and no Python runs where it is called; "
                "usual causes are an assert, a `raise`, a `range` whose step is not a constant "
                "and an index that Numba checks"
            ) from error
        raise CompileError(f"{name}: the compiled code cannot stand alone: {error}") from error
    return code


def compile_kernel_here(function: Callable[..., Any]) -> int:
    """Compile a kernel into this process: the way where `object_file` knows no format."""
    from codegen.toolchain.numba_compiler import compile_here

    with _compiling:
        address, owner = compile_here(function)
    _keep(owner)
    return address


def assemble(text: str, symbols: Collection[str]) -> bytes:
    """The object file of LLVM text that exports ENTRY and calls the C functions `symbols`."""
    with _compiling:
        module, machine = _optimised(text)
        code: bytes = machine.emit_object(module)
    elf_check.undefined_symbols(code, ENTRY, symbols)
    return code


def assemble_here(text: str) -> int:
    """LLVM text that exports ENTRY, into this process: see `compile_kernel_here`."""
    import llvmlite.binding as llvm

    with _compiling:
        module, machine = _optimised(text)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        _keep(engine)
        address: int = engine.get_function_address(ENTRY)
    return address


def load_function(code: bytes, symbols: Collection[str]) -> int:
    """The address of the function in an object file that calls no C functions but `symbols`.

    The file is checked before LLVM sees it; raises DamagedObjectError.
    """
    return _loader.load(code, elf_check.undefined_symbols(code, ENTRY, symbols))


def _keep(owner: Any) -> None:
    """Never free it: at exit, threads may still run its code when Python drops its last objects."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))


def _optimised(text: str) -> tuple[Any, Any]:
    import llvmlite.binding as llvm

    _initialize()
    machine = llvm.Target.from_default_triple().create_target_machine(
        opt=2, reloc="static" if elf_check.X86 else "default", codemodel="jitdefault", jit=True
    )
    module = llvm.parse_assembly(text)
    module.data_layout = str(machine.target_data)
    module.verify()
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(2))
    passes.getModulePassManager().run(module, passes)
    return module, machine


def _initialize() -> None:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


class _Loader:
    """The process's engine, made on first use."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._engine: Any = None
        self._count = 0
        self._resolved: set[str] = set()
        self._libraries: list[ctypes.CDLL] = []

    def load(self, code: bytes, needed: list[str]) -> int:
        import llvmlite.binding as llvm

        with self.lock:
            if self._engine is None:
                self._engine = self._new_engine()
            for name in needed:
                if name not in self._resolved:
                    llvm.add_symbol(name, self._address_of(name))
                    self._resolved.add(name)
            self._count += 1
            symbol = f"tracer_function_{self._count:016d}"
            old = b"\0" + ENTRY.encode() + b"\0"
            if code.count(old) != 1:
                raise DamagedObjectError("the name of its function does not occur once")
            code = code.replace(old, b"\0" + symbol.encode() + b"\0")
            try:
                file = llvm.ObjectFileRef.from_data(code)
            except ValueError as error:
                raise DamagedObjectError("LLVM does not take it for an object file") from error
            self._engine.add_object_file(file)
            self._engine.finalize_object()
            address: int = self._engine.get_function_address(symbol)
            if not address:
                raise DamagedObjectError("LLVM does not find its function")
            return address

    @staticmethod
    def _new_engine() -> Any:
        import llvmlite.binding as llvm

        _initialize()
        machine = llvm.Target.from_default_triple().create_target_machine()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        _keep(engine)
        return engine

    def _address_of(self, name: str) -> int:
        if not self._libraries:
            self._libraries.append(ctypes.CDLL(None))
            for library in ("libm.so.6", "libgcc_s.so.1"):
                try:
                    self._libraries.append(ctypes.CDLL(library))
                except OSError:  # another C library; its symbols are those of the process
                    continue
        for loaded in self._libraries:
            try:
                address = ctypes.cast(getattr(loaded, name), ctypes.c_void_p).value
            except AttributeError:
                continue
            if address:
                return address
        raise DamagedObjectError(f"it needs {name}, which no library of this process has")


_loader = _Loader()
_compiling = threading.RLock()  # Numba and LLVM make one function at a time


class _Forking:
    """While the process forks, nobody else is inside Numba or LLVM, or importing them: a lock that
    another thread held would be held for ever in the child. So a fork waits for other threads'
    compiles.

    Their own locks are needed too, for objects of LLVM are freed wherever their last user is.
    """

    def __init__(self) -> None:
        self._held: list[Any] = []

    def begin(self) -> None:
        self._held = [_compiling, _loader.lock]
        if numba_lock := sys.modules.get("numba.core.compiler_lock"):
            self._held.insert(1, numba_lock.global_compiler_lock)
        if llvm := sys.modules.get("llvmlite.binding.ffi"):
            self._held.append(llvm.lib._lock)
        for lock in self._held:
            lock.__enter__()

    def end(self) -> None:
        while self._held:
            self._held.pop().__exit__(None, None, None)


if hasattr(os, "register_at_fork"):
    _forking = _Forking()
    os.register_at_fork(
        before=_forking.begin, after_in_parent=_forking.end, after_in_child=_forking.end
    )
