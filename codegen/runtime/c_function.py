"""C functions as kernels of a program: called by address, with no Python between rows.

    potrf = CFunction.of_capsule(cython_lapack.__pyx_capi__["dpotrf"], ("pointer",) * 5)
    words = potrf.words(AddressOfNumber(ord("L")), AddressOfNumber(n), (matrix, 8 * n * n), AddressOfNumber(n), info)
    Row(potrf.load().address, matrices, 1, words)

A kernel takes a range and an argument block, a C function what its signature says. Between them stands a
shim of ours, one for each signature: for every number of the range it takes the arguments from the block
and calls the function, whose address is the block's first word. So object code on disk holds no address
of this process. A number of a row of one call may be stored at `AddressOf(STATUS)`, as LAPACK's `info`:
another one than 0 ends the program.

Knows words and C's calling convention. Must not know what any function does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Literal

from codegen.toolchain import kernel_store
from codegen.toolchain.object_code import ENTRY

CType = Literal["pointer", "int32", "int64", "float32", "float64"]
_WORDS_EACH = 2  # in the block, of each parameter and of the result: a word, and what it grows by


def each_call(lo: int, hi: int, args: int) -> None:
    """The shim, a word function (see `word_compiler`). `call` writes one call."""
    for i in range(hi - lo):
        call(args, lo + i)


def call(args: int, i: int) -> int:
    """Bound for each signature to a `Primitive`."""
    raise TypeError("a part of the shim")


@dataclass(frozen=True, slots=True)
class CFunction:
    """A C function at an address of this process. `owner`: what must live as long as its code (a library, a capsule).

    `result` is stored in memory, or left where it is with None.
    """

    name: str
    address: int
    parameters: tuple[CType, ...]
    result: CType | None = None
    owner: Any = field(default=None, compare=False, repr=False)

    @staticmethod
    def of_capsule(
        capsule: Any, parameters: tuple[CType, ...], result: CType | None = None
    ) -> CFunction:
        """A function that a module of Cython's exports, such as `scipy.linalg.cython_lapack.__pyx_capi__["dpotrf"]`."""
        python = ctypes.pythonapi
        name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
            ("PyCapsule_GetName", python)
        )
        address_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
            ("PyCapsule_GetPointer", python)
        )
        signature = name_of(capsule)
        return CFunction(
            signature.decode(), address_of(capsule, signature), parameters, result, capsule
        )

    def words(self, *values: Any) -> tuple[Any, ...]:
        """The argument block of a row: a value for each parameter, and one for the result where it is kept.

        A value is a word, or a pair (word, step): call number i gets word + i * step. For "pointer", "int32" and "int64" that is
        the argument itself. Floating arguments and the result are in memory, and the word is the address.
        """
        wanted = len(self.parameters) + (self.result is not None)
        if len(values) != wanted:
            raise ValueError(
                f"{self.name}: expected {wanted} words, one for each parameter"
                f"{' and one for the result' if self.result else ''}; got {len(values)}"
            )
        pairs = (value if isinstance(value, tuple) else (value, 0) for value in values)
        return (self.address, *(word for pair in pairs for word in pair))

    def load(self) -> kernel_store.Kernel:
        """The shim of its signature, compiled or from the cache."""
        key = f"call|{' '.join(self.parameters)}|{self.result}"
        return kernel_store.function(
            key, self.name, lambda: _emit(self.parameters, self.result), ()
        )


def _emit(parameters: Sequence[CType], result: CType | None) -> str:
    """The LLVM text of a shim."""
    from llvmlite import ir

    from codegen.runtime.int64_compiler import WORD, Primitive, constant, emit_module

    types = {
        "pointer": WORD,
        "int32": ir.IntType(32),
        "int64": WORD,
        "float32": ir.FloatType(),
        "float64": ir.DoubleType(),
    }

    def write(b: Any, args: Any, i: Any) -> Any:
        block = b.inttoptr(args, WORD.as_pointer())

        def word(number: int) -> Any:
            return b.load(b.gep(block, [constant(number)]))

        def value(position: int) -> Any:
            at = 1 + _WORDS_EACH * position
            return b.add(word(at), b.mul(i, word(at + 1)))

        def argument(position: int, kind: CType) -> Any:
            if kind == "int32":
                return b.trunc(value(position), types[kind])
            if kind in ("pointer", "int64"):
                return value(position)
            return b.load(b.inttoptr(value(position), types[kind].as_pointer()))

        returned = types[result] if result else ir.VoidType()
        signature = ir.FunctionType(returned, [types[p] for p in parameters])
        given = [argument(position, kind) for position, kind in enumerate(parameters)]
        made = b.call(b.inttoptr(word(0), signature.as_pointer()), given)
        if result:
            b.store(made, b.inttoptr(value(len(parameters)), types[result].as_pointer()))
        return constant(0)

    bound = FunctionType(each_call.__code__, {"call": Primitive(write)}, each_call.__name__)
    return emit_module(bound, ENTRY)
