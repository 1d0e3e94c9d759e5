"""The IR that copies rows of A or columns of B into a panel: element (outer, k) goes to [k][outer].
Must not know Numba.

Operands that are not held in the form that is computed on are converted here. Beyond the last row
or column a panel holds copies of it or what was there before: those lanes are computed and never
stored, and nothing outside the operand is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from codegen.gemm.element import Element
from codegen.gemm.emit_base import BYTE, count, function, pointer, smaller
from codegen.vector.elements import WIDTH
from codegen.vector.emit_memory import from_memory, live
from codegen.vector.llvm import (
    INDEX,
    INT64,
    LLVM,
    MEMORY,
    Builder,
    Value,
    constants,
    intrinsic,
    memory_vector,
    splat,
    suffix,
    vector,
)


def emit_pack(b: Builder, element: Element, width: int, operands: Sequence[Value]) -> None:
    """pack(source, outer stride, k stride, outer, k, target) of a panel `width` wide."""

    def body(b: Builder, arguments: list[Value]) -> None:
        source, outer_stride, k_stride, outer, k, target = arguments
        size = INT64(element.memory_size)
        along_k = b.icmp_signed("==", k_stride, size)
        along_k = b.and_(along_k, b.icmp_signed(">=", k, INT64(WIDTH)))
        along_outer = b.icmp_signed("==", outer_stride, size)
        source, target = b.inttoptr(source, BYTE), b.inttoptr(target, BYTE)
        with b.if_else(along_k) as (yes, no):
            with yes:
                _transpose(b, element, width, source, outer_stride, outer, k, target)
            with no, b.if_else(along_outer) as (yes2, no2):
                with yes2:
                    _copy(b, element, width, source, k_stride, outer, k, target)
                with no2:
                    _gather(b, element, width, source, outer_stride, k_stride, outer, k, target)

    b.call(function(b.module, f"pack_{element.memory}_{width}", 6, body), operands)


def _transpose(
    b: Builder,
    element: Element,
    width: int,
    source: Value,
    stride: Value,
    outer: Value,
    k: Value,
    target: Value,
) -> None:
    """k is contiguous and at least 16: blocks of 16 k's and as many rows, transposed in
    registers.
    """
    rows = min(width, WIDTH)
    lane_size = element.lane_size
    last_row, last_k = b.sub(outer, INT64(1)), b.sub(k, INT64(WIDTH))
    parts = b.lshr(b.add(outer, INT64(rows - 1)), INT64(rows.bit_length() - 1))
    with count(b, parts) as part:
        first_row = b.mul(part, INT64(rows))
        starts = [
            b.gep(source, [b.mul(stride, smaller(b, b.add(first_row, INT64(row)), last_row))])
            for row in range(rows)
        ]
        to = b.gep(target, [b.mul(first_row, INT64(lane_size))])
        with count(b, b.lshr(b.add(k, INT64(WIDTH - 1)), INT64(4))) as block:
            # The last block lies within k and repeats some of the block before it.
            first = smaller(b, b.mul(block, INT64(WIDTH)), last_k)
            offset = b.mul(first, INT64(element.memory_size))
            values = [load_lanes(b, element, b.gep(start, [offset])) for start in starts]
            at = b.gep(to, [b.mul(first, INT64(width * lane_size))])
            for i, value in enumerate(transposed(b, values)):
                place = (i * width if rows == WIDTH else i * WIDTH) * lane_size
                _store_lanes(b, element, value, b.gep(at, [INT64(place)]))


def transposed(b: Builder, values: list[Value]) -> list[Value]:
    """Vectors of 16 k's, one for each row, as vectors that hold all rows of one k, then of the
    next.

    Interleaving two vectors moves the top bit of the lane number to the vector number and the bit
    that tells the two apart to the bottom of the lane number; once for each bit of the row number,
    top bit first, that is the transpose.
    """
    low = [lane // 2 + WIDTH * (lane % 2) for lane in range(WIDTH)]
    high = [lane + WIDTH // 2 for lane in low]
    bit = len(values) // 2
    while bit:
        after: list[Value] = list(values)
        for i, j in ((i, i + bit) for i in range(len(values)) if not i & bit):
            after[i] = b.shuffle_vector(values[i], values[j], constants(INDEX, low))
            after[j] = b.shuffle_vector(values[i], values[j], constants(INDEX, high))
        values, bit = after, bit // 2
    return values


def _copy(
    b: Builder,
    element: Element,
    width: int,
    source: Value,
    stride: Value,
    outer: Value,
    k: Value,
    target: Value,
) -> None:
    """Rows or columns are contiguous: whole vectors where the panel is full, parts of them at the
    edge.
    """
    lanes = min(width, WIDTH)
    whole = (
        b.icmp_signed("==", outer, INT64(width))
        if width >= WIDTH
        else ir.Constant(ir.IntType(1), 0)
    )
    with b.if_else(whole) as (yes, no):
        for full, side in ((True, yes), (False, no)):
            with side, count(b, k) as i:
                at, to = (
                    b.gep(source, [b.mul(i, stride)]),
                    b.gep(target, [b.mul(i, INT64(width * element.lane_size))]),
                )
                for part in range(0, width, lanes):
                    offset = INT64(part * element.memory_size)
                    if full:
                        value = load_lanes(b, element, b.gep(at, [offset]))
                    else:
                        left = smaller(b, b.sub(outer, INT64(part)), INT64(lanes))
                        value = load_part(b, element, b.gep(at, [offset]), left)
                    place = b.gep(to, [INT64(part * element.lane_size)])
                    if lanes < WIDTH:
                        value = b.shuffle_vector(value, value, constants(INDEX, range(lanes)))
                    _store_lanes(b, element, value, place)


def _gather(
    b: Builder,
    element: Element,
    width: int,
    source: Value,
    outer_stride: Value,
    k_stride: Value,
    outer: Value,
    k: Value,
    target: Value,
) -> None:
    """Any strides, and short k: one element after the other."""
    with count(b, k) as i:
        at = b.gep(source, [b.mul(i, k_stride)])
        to = b.gep(target, [b.mul(i, INT64(width * element.lane_size))])
        with count(b, outer) as j:
            one = load_one(b, element, b.gep(at, [b.mul(j, outer_stride)]))
            value = b.extract_element(one, INDEX(0))
            place = pointer(b, to, b.mul(j, INT64(element.lane_size)), LLVM[element.lane])
            b.store(value, place).align = element.lane_size


def _lanes(b: Builder, element: Element, value: Value) -> Value:
    """Memory values as what is computed on."""
    if element.arithmetic == "boolean":
        return b.zext(from_memory(b, element.memory, value), vector(element.lane))
    if element.arithmetic == "ring":
        return b.sext(value, vector(element.lane)) if element.converts else value
    return from_memory(b, element.memory, value)


def load_lanes(b: Builder, element: Element, place: Value) -> Value:
    """16 elements of an operand, converted."""
    value = b.load(b.bitcast(place, memory_vector(element.memory).as_pointer()))
    value.align = element.memory_size
    return _lanes(b, element, value)


def load_one(b: Builder, element: Element, place: Value) -> Value:
    """One element of an operand in all lanes, converted."""
    one = b.load(b.bitcast(place, MEMORY[element.memory].as_pointer()))
    one.align = element.memory_size
    return _lanes(b, element, splat(b, one))


def load_part(b: Builder, element: Element, place: Value, left: Value) -> Value:
    """The first `left` elements of an operand, converted, and zeros."""
    type_ = memory_vector(element.memory)
    name, place = f"llvm.masked.load.{suffix(type_)}.p0", b.bitcast(place, type_.as_pointer())
    zeros = ir.Constant(type_, [0] * WIDTH)
    value = intrinsic(b, name, type_, place, INDEX(element.memory_size), live(b, left), zeros)
    return _lanes(b, element, value)


def _store_lanes(b: Builder, element: Element, value: Value, place: Value) -> None:
    b.store(value, b.bitcast(place, value.type.as_pointer())).align = element.lane_size
