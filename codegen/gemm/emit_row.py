"""The IR of one row of C: a vector times a matrix that is read once, in the order in which it lies.
Must not know Numba.

The sums are those of `emit_multiply`: a chain over k for each column, added to the totals before
it. Where rows of B are contiguous the chains pass through memory in steps of 8 rows, so that 8 rows
are read as streams; where columns are, 16 of them are transposed in registers. Nothing is packed,
and operands are converted as they are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from codegen.gemm.element import Element
from codegen.gemm.emit_base import BYTE, count, function, smaller
from codegen.gemm.emit_multiply import add, add_product
from codegen.gemm.emit_pack import load_lanes, load_one, load_part, transposed
from codegen.vector.elements import WIDTH
from codegen.vector.llvm import INDEX, INT64, Builder, Value, vector

_STEP = 8  # rows of B read side by side


def emit_multiply_row(b: Builder, element: Element, operands: Sequence[Value]) -> None:
    """multiply_row(k, a, k stride, b, k stride, column stride, columns, sums, totals, first):
    totals = or += a B.

    `sums` and `totals` have room for whole vectors of 16; sums are for use in between.
    """

    def body(b: Builder, arguments: list[Value]) -> None:
        k, a, a_stride, right, row, column, columns, sums, totals, first = arguments
        a, right, sums, totals = (b.inttoptr(x, BYTE) for x in (a, right, sums, totals))
        starts = b.icmp_signed("!=", first, INT64(0))
        size = INT64(element.memory_size)
        vectors = b.lshr(b.add(columns, INT64(WIDTH - 1)), INT64(4))
        with b.if_else(b.icmp_signed("==", column, size)) as (by_rows, by_columns):
            with by_rows:
                _rows(
                    b, element, k, a, a_stride, right, row, columns, vectors, sums, totals, starts
                )
            with by_columns:
                contiguous = b.icmp_signed("==", row, size)
                blocks = b.select(contiguous, b.lshr(k, INT64(4)), INT64(0))
                with count(b, vectors) as v:
                    left = b.sub(columns, b.mul(v, INT64(WIDTH)))
                    at = b.gep(right, [b.mul(column, b.mul(v, INT64(WIDTH)))])
                    total = _columns(b, element, k, blocks, a, a_stride, at, row, column, left)
                    _add_total(b, element, total, totals, v, starts)

    b.call(function(b.module, f"multiply_row_{element.memory}", 10, body), operands)


def _rows(
    b: Builder,
    element: Element,
    k: Value,
    a: Value,
    a_stride: Value,
    right: Value,
    row: Value,
    columns: Value,
    vectors: Value,
    sums: Value,
    totals: Value,
    starts: Value,
) -> None:
    """Rows of B are contiguous."""
    zero = ir.Constant(vector(element.lane), [0] * WIDTH)
    with count(b, vectors) as v:
        b.store(zero, _lanes_at(b, element, sums, v)).align = 64

    def step(first: Value, rows: int) -> None:
        at = b.gep(a, [b.mul(first, a_stride)])
        factors = [
            load_one(b, element, b.gep(at, [b.mul(a_stride, INT64(i))])) for i in range(rows)
        ]
        starts_ = [b.gep(right, [b.mul(row, b.add(first, INT64(i)))]) for i in range(rows)]
        with count(b, vectors) as v:
            place = _lanes_at(b, element, sums, v)
            total = b.load(place)
            total.align = 64
            position = b.mul(v, INT64(WIDTH))
            left = smaller(b, b.sub(columns, position), INT64(WIDTH))
            offset = b.mul(position, INT64(element.memory_size))
            for factor, start in zip(factors, starts_, strict=True):
                value = load_part(b, element, b.gep(start, [offset]), left)
                total = add_product(b, element, factor, value, total)
            b.store(total, place).align = 64

    steps = b.lshr(k, INT64(3))
    with count(b, steps) as i:
        step(b.mul(i, INT64(_STEP)), _STEP)
    done = b.mul(steps, INT64(_STEP))
    with count(b, b.sub(k, done)) as i:
        step(b.add(done, i), 1)
    with count(b, vectors) as v:
        total = b.load(_lanes_at(b, element, sums, v))
        total.align = 64
        _add_total(b, element, total, totals, v, starts)


def _columns(
    b: Builder,
    element: Element,
    k: Value,
    blocks: Value,
    a: Value,
    a_stride: Value,
    right: Value,
    row: Value,
    column: Value,
    left: Value,
) -> Value:
    """The sums of 16 columns of B: `blocks` times 16 k's that are contiguous, the rest element by
    element.
    """
    lanes = vector(element.lane)
    with b.goto_entry_block():
        slot = b.alloca(lanes)
    b.store(ir.Constant(lanes, [0] * WIDTH), slot)
    last = b.sub(left, INT64(1))
    starts = [b.gep(right, [b.mul(column, smaller(b, INT64(lane), last))]) for lane in range(WIDTH)]
    with count(b, blocks) as block:
        first = b.mul(block, INT64(WIDTH))
        offset = b.mul(first, INT64(element.memory_size))
        values = transposed(b, [load_lanes(b, element, b.gep(start, [offset])) for start in starts])
        total = b.load(slot)
        for i, value in enumerate(values):
            at = b.gep(a, [b.mul(a_stride, b.add(first, INT64(i)))])
            total = add_product(b, element, load_one(b, element, at), value, total)
        b.store(total, slot)
    done = b.mul(blocks, INT64(WIDTH))
    with count(b, b.sub(k, done)) as i:
        index = b.add(done, i)
        offset = b.mul(row, index)
        value = ir.Constant(lanes, ir.Undefined)
        for lane, start in enumerate(starts):
            one = b.extract_element(load_one(b, element, b.gep(start, [offset])), INDEX(0))
            value = b.insert_element(value, one, INDEX(lane))
        factor = load_one(b, element, b.gep(a, [b.mul(a_stride, index)]))
        b.store(add_product(b, element, factor, value, b.load(slot)), slot)
    return b.load(slot)


def _lanes_at(b: Builder, element: Element, base: Value, v: Value) -> Value:
    place = b.gep(base, [b.mul(v, INT64(WIDTH * element.lane_size))])
    return b.bitcast(place, vector(element.lane).as_pointer())


def _add_total(
    b: Builder, element: Element, total: Value, totals: Value, v: Value, starts: Value
) -> None:
    place = _lanes_at(b, element, totals, v)
    before = b.load(place)
    before.align = 64
    b.store(b.select(starts, total, add(b, element, before, total)), place).align = 64
