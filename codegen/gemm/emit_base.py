"""Small pieces of IR for the parts of matrix multiplication. Knows llvmlite's builder; must not
know Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from codegen.vector.llvm import INT64, Builder, Value

BYTE = ir.IntType(8).as_pointer()


def pointer(b: Builder, base: Value, offset: Value, type_: Any) -> Value:
    """The pointer to `type_` that lies `offset` bytes after the byte pointer `base`."""
    return b.bitcast(b.gep(base, [offset]), type_.as_pointer())


def opaque(b: Builder, x: Value) -> Value:
    """A word whose origin LLVM cannot see."""
    return b.asm(ir.FunctionType(INT64, [INT64]), "", "=r,0", [x], side_effect=False)


def smaller(b: Builder, x: Value, y: Value) -> Value:
    """The smaller of two words."""
    return b.select(b.icmp_signed("<", x, y), x, y)


@contextmanager
def count(b: Builder, stop: Value) -> Iterator[Value]:
    """A loop body for 0, 1 ... stop - 1."""
    head, body, done = (b.append_basic_block(name) for name in ("head", "body", "done"))
    before = b.block
    b.branch(head)
    b.position_at_end(head)
    i = b.phi(INT64)
    i.add_incoming(INT64(0), before)
    b.cbranch(b.icmp_signed("<", i, stop), body, done)
    b.position_at_end(body)
    yield i
    i.add_incoming(b.add(i, INT64(1)), b.block)
    _as_written(b, b.branch(head))
    b.position_at_end(done)


def _as_written(b: Builder, back: Any) -> None:
    """Neither unrolled nor vectorised: the vectors are in the body already, and copies of it cost
    compile time.
    """
    metadata = b.module.add_metadata
    whole = metadata(["llvm.loop.unroll.disable"])
    scalar = metadata(["llvm.loop.vectorize.enable", ir.IntType(1)(0)])
    # Each loop has a node of its own (the number tells llvmlite so), which LLVM knows by its
    # reference to itself.
    loop = metadata([whole, scalar, INT64(len(b.module.metadata))])
    loop.operands = (loop, whole, scalar)
    back.set_metadata("llvm.loop", loop)


def function(
    module: Any,
    name: str,
    arguments: int,
    body: Callable[[Builder, list[Value]], None],
    small: bool = True,
) -> Any:
    """The function `name` of 64-bit words in `module`, written by `body` when it is new there.

    A function of its own rather than inlined: the loops around it then cannot take its registers,
    and code that is used twice is compiled once. `small`: optimised for size, which halves the time
    to compile.
    """
    found = module.globals.get(name)
    if found is not None:
        return found
    made = ir.Function(module, ir.FunctionType(ir.VoidType(), [INT64] * arguments), name)
    made.linkage = "internal"
    made.attributes.add("noinline")
    if small:
        made.attributes.add("optsize")
    b = ir.IRBuilder(made.append_basic_block("entry"))
    body(b, list(made.args))
    b.ret_void()
    return made
