"""The IR of one tile: rows x vectors of sums held in registers while k runs. Must not know Numba.

Each element of C is one chain of multiply-adds over k, in order, from zero; with `first` unset the
chain's sum is then added to what the tile holds. Nothing else decides the bits, so neither tile,
layout nor machine does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from codegen.gemm.element import Element, Tile
from codegen.gemm.emit_base import BYTE, count, function, opaque, pointer
from codegen.vector.elements import WIDTH
from codegen.vector.llvm import INT64, LLVM, Builder, Value, named, splat, vector

_GROUP = 4  # rows reached from one pointer: base, base + s, base + 2s, base + 3s


def emit_multiply(b: Builder, element: Element, tile: Tile, operands: Sequence[Value]) -> None:
    """multiply(k, a, row stride, k stride, b, k stride, columns, tile, first)."""
    columns, operands = operands[6], [*operands[:6], *operands[7:]]
    if tile.vectors == 1:
        b.call(_one(b.module, element, tile, 1), operands)
        return
    with b.if_else(b.icmp_signed("<=", columns, INT64(WIDTH))) as (narrow, wide):
        with narrow:
            b.call(_one(b.module, element, tile, 1), operands)
        with wide:
            b.call(_one(b.module, element, tile, tile.vectors), operands)


def _one(module: Any, element: Element, tile: Tile, vectors: int) -> Any:
    """The function that fills the first `vectors` vectors of each row of a tile."""

    def body(b: Builder, arguments: list[Value]) -> None:
        k, a, row_stride, a_stride, b_address, b_stride, tile_address, first = arguments
        lanes, scalar = vector(element.lane), LLVM[element.lane]
        zero = ir.Constant(lanes, [0] * WIDTH)
        # Slots become registers: LLVM promotes them.
        sums = [[b.alloca(lanes) for _ in range(vectors)] for _ in range(tile.rows)]
        a = b.inttoptr(a, BYTE)
        places = []
        for group in range(0, tile.rows, _GROUP):
            places.append(b.alloca(BYTE))
            skipped = opaque(b, b.mul(row_stride, INT64(group))) if group else INT64(0)
            b.store(b.gep(a, [skipped]), places[-1])
        b_place = b.alloca(BYTE)
        b.store(b.inttoptr(b_address, BYTE), b_place)
        for row in sums:
            for slot in row:
                b.store(zero, slot)
        # LLVM would make each row's address from the one before: a chain as long as the
        # multiply-adds take.
        offsets = [
            INT64(0),
            *(opaque(b, b.mul(row_stride, INT64(row))) for row in range(1, _GROUP)),
        ]
        with count(b, k):
            at = b.load(b_place)
            right = [
                _load(b, pointer(b, at, INT64(v * WIDTH * element.lane_size), lanes), element)
                for v in range(vectors)
            ]
            b.store(b.gep(at, [b_stride]), b_place)
            for group, place in enumerate(places):
                at = b.load(place)
                for row, offset in zip(sums[group * _GROUP :], offsets, strict=False):
                    left = splat(b, _load(b, pointer(b, at, offset, scalar), element))
                    for slot, x in zip(row, right, strict=True):
                        b.store(add_product(b, element, left, x, b.load(slot)), slot)
                b.store(b.gep(at, [a_stride]), place)
        to = b.inttoptr(tile_address, lanes.as_pointer())
        starts = b.icmp_signed("!=", first, INT64(0))
        for r, row in enumerate(sums):
            for v, slot in enumerate(row):
                target = b.gep(to, [INT64(r * tile.vectors + v)])
                total, before = b.load(slot), b.load(target)
                before.align = 64
                total = b.select(starts, total, add(b, element, before, total))
                b.store(total, target).align = 64

    return function(module, f"multiply_{element.memory}_{vectors}", 8, body, small=False)


def _load(b: Builder, place: Value, element: Element) -> Value:
    value = b.load(place)
    value.align = element.lane_size
    return value


def add_product(b: Builder, element: Element, x: Value, y: Value, total: Value) -> Value:
    """total + x*y, rounded once."""
    if element.arithmetic == "fma":
        return named(b, "fma", x, y, total)
    if element.arithmetic == "ring":
        return b.add(total, b.mul(x, y))
    return b.or_(total, b.and_(x, y))


def add(b: Builder, element: Element, x: Value, y: Value) -> Value:
    """The sum of two sums."""
    if element.arithmetic == "fma":
        return b.fadd(x, y)
    return b.add(x, y) if element.arithmetic == "ring" else b.or_(x, y)
