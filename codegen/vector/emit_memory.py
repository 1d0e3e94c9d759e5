"""The IR of loads and stores: MEMORY_EMIT[name](builder, memory element, *values).

Values are LLVM's: pointers, int64 scalars, lanes. float16 is converted by the machine, bfloat16 by
integer work, a bool is a byte beside one-bit lanes. Gathers and scatters of 8- and 16-bit elements,
which no machine has, are sixteen scalar accesses; dead lanes go to a place on the stack. Must not
know Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from codegen.vector.elements import OF_MEMORY, WIDTH, size_of
from codegen.vector.emit import bfloat16_bits, from_bfloat16_bits
from codegen.vector.llvm import (
    INDEX,
    INT64,
    MEMORY,
    Builder,
    Value,
    constant,
    constants,
    intrinsic,
    memory_vector,
    splat,
    suffix,
    vector,
)

MEMORY_EMIT: dict[str, Callable[..., Any]] = {}


def emits(emit: Callable[..., Any]) -> Callable[..., Any]:
    """The IR of the function of that name, without its underscore."""
    MEMORY_EMIT[emit.__name__.lstrip("_")] = emit
    return emit


def live(b: Builder, left: Value) -> Value:
    """Mask of the lanes below the int64 `left`."""
    width = INT64(WIDTH)
    limit = b.select(b.icmp_signed("<", left, width), left, width)
    return b.icmp_signed(">", splat(b, b.trunc(limit, INDEX)), constants(INDEX, range(WIDTH)))


def from_memory(b: Builder, element: str, x: Value) -> Value:
    """Memory values as lanes."""
    if element == "bool":
        return b.icmp_unsigned("!=", x, ir.Constant(x.type, [0] * WIDTH))
    if element == "f16":
        return b.fpext(b.bitcast(x, ir.VectorType(ir.HalfType(), WIDTH)), vector("f32"))
    if element == "bf16":
        return from_bfloat16_bits(b, b.zext(x, vector("i32")))
    return x


def to_memory(b: Builder, element: str, x: Value) -> Value:
    """Lanes as memory values."""
    if element == "bool":
        return b.zext(x, memory_vector(element))
    if element == "f16":
        return b.bitcast(b.fptrunc(x, ir.VectorType(ir.HalfType(), WIDTH)), memory_vector(element))
    if element == "bf16":
        return b.trunc(bfloat16_bits(b, x), memory_vector(element))
    return x


def address(b: Builder, p: Value, i: Value, type_: Any) -> Value:
    """The address of p[i] as a pointer to `type_`."""
    return b.bitcast(b.gep(p, [i]), type_.as_pointer())


def _masked(b: Builder, kind: str, element: str, *operands: Value) -> Value:
    type_ = memory_vector(element)
    result = ir.VoidType() if kind in ("store", "scatter") else type_
    pointers = "p0" if kind in ("load", "store") else f"v{WIDTH}p0"
    return intrinsic(b, f"llvm.masked.{kind}.{suffix(type_)}.{pointers}", result, *operands)


def _filled(b: Builder, element: str, mask: Value, lanes: Value, fill: Value) -> Value:
    return b.select(mask, lanes, splat(b, fill))


@emits
def _load(b: Builder, e: str, p: Value, i: Value) -> Value:
    value = b.load(address(b, p, i, memory_vector(e)))
    value.align = size_of(e)
    return from_memory(b, e, value)


@emits
def _store(b: Builder, e: str, p: Value, i: Value, v: Value) -> None:
    b.store(to_memory(b, e, v), address(b, p, i, memory_vector(e))).align = size_of(e)


@emits
def _load_masked(b: Builder, e: str, p: Value, i: Value, mask: Value, fill: Value) -> Value:
    plain = OF_MEMORY[e] == e != "bool"  # the fill is a memory value too: one instruction does all
    beside = splat(b, fill) if plain else ir.Constant(memory_vector(e), [0] * WIDTH)
    place = address(b, p, i, memory_vector(e))
    lanes = from_memory(b, e, _masked(b, "load", e, place, INDEX(size_of(e)), mask, beside))
    return lanes if plain else _filled(b, e, mask, lanes, fill)


@emits
def _store_masked(b: Builder, e: str, p: Value, i: Value, mask: Value, v: Value) -> None:
    place = address(b, p, i, memory_vector(e))
    _masked(b, "store", e, to_memory(b, e, v), place, INDEX(size_of(e)), mask)


@emits
def _load_part(b: Builder, e: str, p: Value, i: Value, left: Value, fill: Value) -> Value:
    return _load_masked(b, e, p, i, live(b, left), fill)


@emits
def _store_part(b: Builder, e: str, p: Value, i: Value, left: Value, v: Value) -> None:
    _store_masked(b, e, p, i, live(b, left), v)


def _places(b: Builder, e: str, p: Value, index: Value) -> Value:
    """Addresses of p[index] as int64 lanes."""
    return b.add(splat(b, b.ptrtoint(p, INT64)), b.mul(index, constant("i64", size_of(e))))


def _spare(b: Builder, e: str) -> Value:
    """A place on the stack where dead lanes read and write."""
    with b.goto_entry_block():
        return b.alloca(MEMORY[e])


def _single_places(b: Builder, e: str, p: Value, index: Value, mask: Value) -> list[Value]:
    places = _places(b, e, p, index)
    if mask is not None:
        spare = _spare(b, e)
        b.store(ir.Constant(MEMORY[e], 0), spare)
        places = b.select(mask, places, splat(b, b.ptrtoint(spare, INT64)))
    pointer = MEMORY[e].as_pointer()
    return [b.inttoptr(b.extract_element(places, INDEX(lane)), pointer) for lane in range(WIDTH)]


@emits
def _gather_masked(b: Builder, e: str, p: Value, index: Value, mask: Value, fill: Value) -> Value:
    if size_of(e) < 4:
        lanes = ir.Constant(memory_vector(e), ir.Undefined)
        for lane, place in enumerate(_single_places(b, e, p, index, mask)):
            lanes = b.insert_element(lanes, b.load(place), INDEX(lane))
        return _filled(b, e, mask, from_memory(b, e, lanes), fill)
    pointers = b.inttoptr(_places(b, e, p, index), ir.VectorType(MEMORY[e].as_pointer(), WIDTH))
    return _masked(b, "gather", e, pointers, INDEX(size_of(e)), mask, splat(b, fill))


@emits
def _scatter_masked(b: Builder, e: str, p: Value, index: Value, mask: Value, v: Value) -> None:
    if size_of(e) < 4:
        values = to_memory(b, e, v)
        for lane, place in enumerate(_single_places(b, e, p, index, mask)):
            b.store(b.extract_element(values, INDEX(lane)), place)
        return
    pointers = b.inttoptr(_places(b, e, p, index), ir.VectorType(MEMORY[e].as_pointer(), WIDTH))
    _masked(b, "scatter", e, v, pointers, INDEX(size_of(e)), mask)


@emits
def _gather(b: Builder, e: str, p: Value, index: Value) -> Value:
    return _gather_masked(
        b, e, p, index, constant("bool", 1), ir.Constant(vector(OF_MEMORY[e]).element, 0)
    )


@emits
def _gather_part(b: Builder, e: str, p: Value, index: Value, left: Value, fill: Value) -> Value:
    return _gather_masked(b, e, p, index, live(b, left), fill)


@emits
def _scatter(b: Builder, e: str, p: Value, index: Value, v: Value) -> None:
    _scatter_masked(b, e, p, index, constant("bool", 1), v)


@emits
def _scatter_part(b: Builder, e: str, p: Value, index: Value, left: Value, v: Value) -> None:
    _scatter_masked(b, e, p, index, live(b, left), v)


@emits
def _load_one(b: Builder, e: str, p: Value, i: Value) -> Value:
    return from_memory(b, e, splat(b, b.load(b.gep(p, [i]))))


@emits
def _store_one(b: Builder, e: str, p: Value, i: Value, v: Value) -> None:
    b.store(b.extract_element(to_memory(b, e, v), INDEX(0)), b.gep(p, [i]))
