"""The operations that the runtime's functions are made of: one LLVM instruction or one call of a C
function each.

Addresses are words. Imported to compile the runtime's functions, never to run them.
"""

from __future__ import annotations

import platform
from typing import Any

from llvmlite import ir

from codegen.runtime.int64_compiler import WORD, Primitive, constant, declare

_PAUSE: dict[str, tuple[str, tuple[int, ...]]] = {
    "x86_64": ("llvm.x86.sse2.pause", ()),
    "aarch64": ("llvm.aarch64.hint", (1,)),
}


def _at(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, WORD.as_pointer())


def _store(builder: Any, address: Any, value: Any) -> Any:
    builder.store_atomic(value, _at(builder, address), "seq_cst", 8)
    return value


def _put(builder: Any, address: Any, value: Any) -> Any:
    builder.store(value, _at(builder, address))
    return value


def _swap(builder: Any, address: Any, old: Any, new: Any) -> Any:
    pair = builder.cmpxchg(_at(builder, address), old, new, "seq_cst", "seq_cst")
    return builder.zext(builder.extract_value(pair, 1), WORD)


def _run(builder: Any, kernel: Any, lo: Any, hi: Any, arguments: Any) -> Any:
    kind = ir.FunctionType(ir.VoidType(), [WORD] * 3)
    builder.call(builder.inttoptr(kernel, kind.as_pointer()), [lo, hi, arguments])
    return lo


def _pause(builder: Any, count: Any) -> Any:
    if platform.machine() in _PAUSE:
        name, values = _PAUSE[platform.machine()]
        hint = [ir.Constant(ir.IntType(32), value) for value in values]
        builder.call(declare(builder.module, name, ir.VoidType(), [v.type for v in hint]), hint)
    return builder.add(count, constant(1))


def _mask(builder: Any) -> Any:
    with builder.goto_entry_block():
        return builder.ptrtoint(builder.alloca(WORD, 16), WORD)


# Shared between threads: atomic, in one order for all of them.
load = Primitive(lambda builder, address: builder.load_atomic(_at(builder, address), "seq_cst", 8))
store = Primitive(_store)
add = Primitive(lambda b, address, value: b.atomic_rmw("add", _at(b, address), value, "seq_cst"))
swap = Primitive(_swap)  # compare and swap: 1 if it was done; `add` returns the old value
# Owned by one thread at a time.
get = Primitive(lambda builder, address: builder.load(_at(builder, address)))
put = Primitive(_put)

run = Primitive(_run)  # a kernel
pause = Primitive(_pause)  # tells the core that it spins; returns count + 1
mask = Primitive(_mask)  # room for 1024 bits on the stack
