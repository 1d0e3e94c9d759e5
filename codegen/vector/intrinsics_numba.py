"""Tells Numba what the names of `codegen.vector.intrinsics` compile to. Importing it imports Numba and
registers them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils as _cgutils
from numba.core import types
from numba.core.typing import templates

from codegen.vector import intrinsics
from codegen.vector.elements import CHUNK, OF_MEMORY, WIDTH
from codegen.vector.emit import EMIT
from codegen.vector.emit_lanes import LANES_EMIT
from codegen.vector.emit_memory import MEMORY_EMIT
from codegen.vector.jit import POINTER, VEC, PointerType, VecType, register
from codegen.vector.llvm import INT64, MEMORY, constant, intrinsic, splat, vector

DOUBLE = ir.DoubleType()
# Numba annotates little of this.
cgutils: Any = _cgutils
signature: Any = templates.signature


# ---- the argument block --------------------------------------------------------------------------
def _argument(result: Any) -> Any:
    def typing(*args: Any) -> Any:
        if len(args) == 2 and all(isinstance(t, types.Integer) for t in args):
            return signature(result, types.int64, types.int64)
        return None

    return typing


def _load_word(b: Any, args: Any) -> Any:
    block = b.inttoptr(args[0], INT64.as_pointer())
    return b.load(b.gep(block, [args[1]]))


def _pointer_lowering(element: str) -> Any:
    def lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
        return b.inttoptr(_load_word(b, args), MEMORY[element].as_pointer())

    return lower


register(intrinsics.word, _argument(types.int64), lambda c, b, sig, args: _load_word(b, args))
for _element, _function in intrinsics.POINTERS.items():
    register(_function, _argument(POINTER[_element]), _pointer_lowering(_element))


# ---- stacks --------------------------------------------------------------------------------------
def _stack_typing(result: Any) -> Any:
    """The size must be a literal: the stack lies in the frame of the function."""
    return lambda *args: (
        signature(result, *args) if isinstance(args[0], types.IntegerLiteral) else None
    )


def _stack_lowering(element: str) -> Any:
    return lambda c, b, sig, args: cgutils.alloca_once(
        b, MEMORY[element], size=INT64(sig.args[0].literal_value)
    )


for _element, _stack in intrinsics.STACKS.items():
    register(_stack, _stack_typing(POINTER[_element]), _stack_lowering(_element))


# ---- the tree over lanes and chunks --------------------------------------------------------------
def _tree_typing(*args: Any) -> Any:
    stack, chunk, n, v = args
    integers = isinstance(chunk, types.Integer) and isinstance(n, types.Integer)
    if integers and isinstance(v, VecType) and stack is POINTER[v.element]:
        return signature(v, stack, types.int64, types.int64, v)
    return None


def _tree_lowering(lanes: str, merge: str) -> Any:
    def lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
        stack, chunk, n, v = args
        element = sig.return_type.element
        value = cgutils.alloca_once_value(b, LANES_EMIT[lanes](b, element, v))
        number = b.ashr(chunk, INT64(12))
        last = b.icmp_signed(">=", b.add(chunk, INT64(CHUNK)), n)
        trailing = b.and_(number, b.not_(b.add(number, INT64(1))))
        pending = cgutils.alloca_once_value(b, b.select(last, number, trailing))
        level = cgutils.alloca_once_value(b, INT64(0))
        head, body, done = (b.append_basic_block(f"tree_{x}") for x in ("head", "body", "done"))
        b.branch(head)
        b.position_at_end(head)
        bits = b.load(pending)
        b.cbranch(b.icmp_signed("!=", bits, INT64(0)), body, done)
        b.position_at_end(body)
        with b.if_then(b.trunc(bits, ir.IntType(1))):
            earlier = b.load(b.gep(stack, [b.load(level)]))
            b.store(EMIT[merge](b, element, earlier, b.load(value)), value)
        b.store(b.lshr(bits, INT64(1)), pending)
        b.store(b.add(b.load(level), INT64(1)), level)
        b.branch(head)
        b.position_at_end(done)
        total = b.load(value)
        b.store(total, b.gep(stack, [b.load(level)]))
        return splat(b, total)

    return lower


register(intrinsics.tree_sum, _tree_typing, _tree_lowering("lane_sum", "add"))
register(intrinsics.tree_product, _tree_typing, _tree_lowering("lane_product", "mul"))


# ---- index division ------------------------------------------------------------------------------
def _quotient_typing(*args: Any) -> Any:
    if len(args) == 2 and args[0] is VEC["i64"] and isinstance(args[1], types.Integer):
        return signature(VEC["i64"], VEC["i64"], types.int64)
    return None


def _quotient_lowering(context: Any, b: Any, sig: Any, args: Any) -> Any:
    """By multiplication in float64: (i + 1/2)/n is at least 1/(2n) away from every integer, more
    than all rounding.

    Integers below 2**52 and float64 turn into each other by their bits, which every machine does in
    one instruction.
    """
    index, n = args
    magic = constant("i64", 0x4330000000000000)  # the bits of 2**52: its last 52 count from 0
    two52, half = constant("f64", float(2**52)), constant("f64", 0.5)
    inverse = splat(b, b.fdiv(DOUBLE(1.0), b.sitofp(n, DOUBLE)))
    exact = b.fsub(b.bitcast(b.or_(index, magic), vector("f64")), two52)
    scaled = b.fmul(b.fadd(exact, half), inverse)
    whole = intrinsic(b, f"llvm.floor.v{WIDTH}f64", vector("f64"), scaled)
    return b.xor(b.bitcast(b.fadd(whole, two52), vector("i64")), magic)


register(intrinsics.quotient, _quotient_typing, _quotient_lowering)


# ---- additions in the order of lanes -------------------------------------------------------------
def _scatter_add_typing(*args: Any) -> Any:
    if len(args) != 4 or not isinstance(args[0], PointerType) or args[1] is not VEC["i64"]:
        return None
    if not isinstance(args[2], types.Integer) or args[3] is not VEC[OF_MEMORY[args[0].element]]:
        return None
    return signature(types.void, args[0], args[1], types.int64, args[3])


def _scatter_add_lowering(context: Any, b: Any, sig: Any, args: Any) -> Any:
    p, index, left, v = args
    element = sig.args[0].element
    width = INT64(WIDTH)
    count = b.select(b.icmp_signed("<", left, width), left, width)
    with cgutils.for_range(b, count) as loop:
        where = b.extract_element(index, loop.index)
        old = MEMORY_EMIT["load_one"](b, element, p, where)
        added = splat(b, b.extract_element(v, loop.index))
        MEMORY_EMIT["store_one"](
            b, element, p, where, EMIT["add"](b, OF_MEMORY[element], old, added)
        )
    return context.get_dummy_value()


register(intrinsics.scatter_add, _scatter_add_typing, _scatter_add_lowering)
