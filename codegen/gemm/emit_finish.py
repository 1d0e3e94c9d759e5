"""The IR that takes finished sums to C: rounding to C's element type, adding to C, edges masked.

This is where the text of elementwise operators on the product would be evaluated, between
`value_of` and the stores: a value is 16 lanes, which is what `codegen.vector.emit.Emitted` wraps,
and row and first column are at hand for the addresses of further operands. Must not know Numba.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from codegen.gemm.element import Element, Tile
from codegen.gemm.emit_base import BYTE, count, function
from codegen.vector.elements import WIDTH
from codegen.vector.emit_memory import from_memory, live, to_memory
from codegen.vector.llvm import (
    INDEX,
    INT64,
    Builder,
    Value,
    intrinsic,
    memory_vector,
    suffix,
    vector,
)


def emit_finish(b: Builder, element: Element, tile: Tile, operands: Sequence[Value]) -> None:
    """finish(sums, c, row stride, rows, columns, accumulate): one row may be longer than a
    tile's.
    """

    def body(b: Builder, arguments: list[Value]) -> None:
        source, c, stride, rows, columns, accumulate = arguments
        source, c = b.inttoptr(source, BYTE), b.inttoptr(c, BYTE)
        adds = b.icmp_signed("!=", accumulate, INT64(0))
        lanes, memory = vector(element.lane), memory_vector(element.memory)
        with count(b, b.lshr(b.add(columns, INT64(WIDTH - 1)), INT64(4))) as v:
            first = b.mul(v, INT64(WIDTH))
            left = b.sub(columns, first)
            from_ = b.gep(source, [b.mul(first, INT64(element.lane_size))])
            to = b.gep(c, [b.mul(first, INT64(element.memory_size))])

            def value_of(row: Value) -> Value:
                place = b.gep(from_, [b.mul(row, INT64(tile.columns * element.lane_size))])
                value = b.load(b.bitcast(place, lanes.as_pointer()))
                value.align = 64
                return _to_memory(b, element, value)

            def place_of(row: Value) -> Value:
                return b.bitcast(b.gep(to, [b.mul(row, stride)]), memory.as_pointer())

            whole = b.and_(b.icmp_signed(">=", left, INT64(WIDTH)), b.not_(adds))
            with b.if_else(whole) as (yes, no):
                with yes, count(b, rows) as row:
                    b.store(value_of(row), place_of(row)).align = element.memory_size
                with no:
                    mask = live(b, left)
                    # What is not added to is not read: it may be uninitialised.
                    read = b.select(adds, mask, ir.Constant(mask.type, [0] * WIDTH))
                    with count(b, rows) as row:
                        value, place = value_of(row), place_of(row)
                        total = _add(b, element, _masked_load(b, element, place, read), value)
                        _masked_store(b, element, b.select(adds, total, value), place, mask)

    b.call(function(b.module, f"finish_{element.memory}", 6, body), operands)


def _to_memory(b: Builder, element: Element, value: Value) -> Value:
    if element.arithmetic == "fma":
        return to_memory(b, element.memory, value)
    return b.trunc(value, memory_vector(element.memory)) if element.converts else value


def _add(b: Builder, element: Element, x: Value, y: Value) -> Value:
    """The sum of two values as memory holds them: what adding the product afterwards would give."""
    if element.arithmetic == "fma":
        total = b.fadd(from_memory(b, element.memory, x), from_memory(b, element.memory, y))
        return to_memory(b, element.memory, total)
    return b.add(x, y) if element.arithmetic == "ring" else b.or_(x, y)


def _masked_load(b: Builder, element: Element, place: Value, mask: Value) -> Value:
    type_ = memory_vector(element.memory)
    beside = ir.Constant(type_, [0] * WIDTH)
    name = f"llvm.masked.load.{suffix(type_)}.p0"
    return intrinsic(b, name, type_, place, INDEX(element.memory_size), mask, beside)


def _masked_store(b: Builder, element: Element, value: Value, place: Value, mask: Value) -> None:
    type_ = memory_vector(element.memory)
    name = f"llvm.masked.store.{suffix(type_)}.p0"
    intrinsic(b, name, ir.VoidType(), value, place, INDEX(element.memory_size), mask)
