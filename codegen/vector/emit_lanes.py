"""The IR of functions across lanes and of the chunk stack: LANES_EMIT[name](builder, element,
*values).

Must not know Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from codegen.vector.elements import WIDTH
from codegen.vector.emit import EMIT, extremum
from codegen.vector.emit_memory import live
from codegen.vector.lanes import LEVELS
from codegen.vector.llvm import INDEX, INT64, LLVM, Builder, Value, constants, shuffle, splat

LANES_EMIT: dict[str, Callable[..., Any]] = {}


def emits(emit: Callable[..., Any]) -> Callable[..., Any]:
    """The IR of the function of that name, without its underscore."""
    LANES_EMIT[emit.__name__.lstrip("_")] = emit
    return emit


@emits
def _full(b: Builder, e: str, x: Value) -> Value:
    return splat(b, x)


@emits
def _below(b: Builder, e: str, left: Value) -> Value:
    return live(b, left)


@emits
def _lane_index(b: Builder, e: str, i: Value) -> Value:
    return b.add(splat(b, i), constants(INT64, range(WIDTH)))


@emits
def _first(b: Builder, e: str, v: Value) -> Value:
    return b.extract_element(v, INDEX(0))


def rotate(b: Builder, e: str, v: Value, count: int) -> Value:
    """Lane l gets lane l + count, around the end."""
    return shuffle(b, v, [(lane + count) % WIDTH for lane in range(WIDTH)])


def _tree(name: str, combine: Callable[[Builder, str, Value, Value], Value]) -> None:
    def emit(b: Builder, e: str, v: Value) -> Value:
        width = WIDTH
        while width > 1:
            width //= 2
            v = combine(b, e, shuffle(b, v, range(width)), shuffle(b, v, range(width, 2 * width)))
        return b.extract_element(v, INDEX(0))

    LANES_EMIT[name] = emit


_tree("lane_sum", EMIT["add"])
_tree("lane_product", EMIT["mul"])
_tree("lane_max", extremum(">"))
_tree("lane_min", extremum("<"))
_tree("lane_any", lambda b, e, x, y: b.or_(x, y))
_tree("lane_all", lambda b, e, x, y: b.and_(x, y))


# ---- the stack of chunks -------------------------------------------------------------------------
@emits
def _tree_new(b: Builder, e: str) -> Value:
    with b.goto_entry_block():
        return b.alloca(LLVM["f64"], size=INT64(LEVELS))


def _push(name: str, combine: str) -> None:
    def emit(b: Builder, e: str, stack: Value, chunk: Value, value: Value) -> None:
        before, head, body, done = (
            b.block,
            *(b.append_basic_block(f"push_{n}") for n in ("head", "body", "done")),
        )
        b.branch(head)
        b.position_at_end(head)
        level, running = b.phi(INT64), b.phi(LLVM["f64"])
        level.add_incoming(INT64(0), before)
        running.add_incoming(value, before)
        place = b.gep(stack, [level])
        odd = b.trunc(b.lshr(chunk, level), ir.IntType(1))
        b.cbranch(odd, body, done)
        b.position_at_end(body)
        running.add_incoming(getattr(b, combine)(b.load(place), running), body)
        level.add_incoming(b.add(level, INT64(1)), body)
        b.branch(head)
        b.position_at_end(done)
        b.store(running, place)

    LANES_EMIT[name] = emit


def _total(name: str, combine: str, none: float) -> None:
    def emit(b: Builder, e: str, stack: Value, chunks: Value) -> Value:
        """One chunk, the usual case, is a load; the loop over set bits is for more."""
        double, bit = LLVM["f64"], ir.IntType(1)
        before, head, body, done = (
            b.block,
            *(b.append_basic_block(f"total_{n}") for n in ("head", "body", "done")),
        )
        b.branch(head)
        b.position_at_end(head)
        rest, level, started, total = b.phi(INT64), b.phi(INT64), b.phi(bit), b.phi(double)
        for phi, value in (
            (rest, chunks),
            (level, INT64(0)),
            (started, bit(0)),
            (total, double(none)),
        ):
            phi.add_incoming(value, before)
        b.cbranch(b.icmp_unsigned("!=", rest, INT64(0)), body, done)
        b.position_at_end(body)
        odd = b.trunc(rest, bit)
        here = b.load(b.gep(stack, [level]))
        combined = b.select(started, getattr(b, combine)(here, total), here)
        total.add_incoming(b.select(odd, combined, total), body)
        started.add_incoming(b.or_(started, odd), body)
        level.add_incoming(b.add(level, INT64(1)), body)
        rest.add_incoming(b.lshr(rest, INT64(1)), body)
        b.branch(head)
        b.position_at_end(done)
        return total

    LANES_EMIT[name] = emit


_push("tree_push", "fadd")
_push("tree_push_product", "fmul")
_total("tree_total", "fadd", 0.0)
_total("tree_total_product", "fmul", 1.0)
