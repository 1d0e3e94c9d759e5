"""LLVM's types and small building blocks for vector values. Knows llvmlite's IR builder; must not
know Numba.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from llvmlite import ir

from codegen.vector.elements import ELEMENTS, WIDTH, bits

Value = Any  # of llvmlite, which has no annotations
Builder = Any

INDEX = ir.IntType(32)
INT64 = ir.IntType(64)
LLVM: dict[str, Any] = {e: ir.IntType(bits(e)) for e in ELEMENTS if e[0] in "iu"} | {
    "bool": ir.IntType(1),
    "f32": ir.FloatType(),
    "f64": ir.DoubleType(),
}
# What a buffer holds: float16 and bfloat16 are moved as 16-bit integers, a bool as a byte.
MEMORY: dict[str, Any] = LLVM | {
    "bool": ir.IntType(8),
    "f16": ir.IntType(16),
    "bf16": ir.IntType(16),
}


class Width:
    """How many lanes values have that are being emitted: 16, or 1 (plain scalars) in a loop over
    lanes.
    """

    now = WIDTH


@contextmanager
def one_lane() -> Iterator[None]:
    """Inside, primitives are emitted on scalars."""
    Width.now = 1
    try:
        yield
    finally:
        Width.now = WIDTH


def vector(element: str) -> Any:
    """The type of a value with lanes of an element."""
    return LLVM[element] if Width.now == 1 else ir.VectorType(LLVM[element], Width.now)


def like(type_: Any, element: Any) -> Any:
    """A type of as many lanes as `type_`, of another LLVM element."""
    return ir.VectorType(element, type_.count) if isinstance(type_, ir.VectorType) else element


def memory_vector(element: str) -> Any:
    """The type of 16 neighbours in a buffer."""
    return ir.VectorType(MEMORY[element], WIDTH)


def suffix(type_: Any) -> str:
    """How intrinsics name a type: v16f32, i64 ..."""
    if isinstance(type_, ir.VectorType):
        return f"v{type_.count}{suffix(type_.element)}"
    if isinstance(type_, ir.FloatType):
        return "f32"
    if isinstance(type_, ir.HalfType):
        return "f16"
    return "f64" if isinstance(type_, ir.DoubleType) else str(type_)


def constant(element: str, value: Any) -> Value:
    """A literal in all lanes."""
    if Width.now == 1:
        return ir.Constant(LLVM[element], value)
    return _literal(LLVM[element], repr(value), value)


class _Splat(ir.Constant):  # type: ignore[misc]
    """A vector of equal numbers, written short: 16 written out take as long as the instruction that uses them."""

    def _get_reference(self) -> str:
        return f"splat ({self.constant[0]})"


@lru_cache(4096)
def _literal(type_: Any, _written: str, value: Any) -> Value:
    """One object for each literal, whose text is made once. `_written` tells -0.0 from 0.0, and 1 from True."""
    return _Splat(ir.VectorType(type_, WIDTH), [value] * WIDTH)


def constant_lane(x: Value) -> Any:
    """The number that `constant` put into all lanes; None of any other value."""
    if not isinstance(x, ir.Constant):
        return None
    return x.constant[0].constant if isinstance(x.constant, list | tuple) else x.constant


def constants(type_: Any, values: Sequence[Any]) -> Value:
    """A vector of written-out scalars."""
    return ir.Constant(ir.VectorType(type_, len(values)), list(values))


def splat(b: Builder, x: Value) -> Value:
    """All lanes equal to the LLVM scalar `x`."""
    if isinstance(x, ir.Constant):
        return _literal(x.type, repr(x.constant), x.constant)
    undefined = ir.Constant(ir.VectorType(x.type, WIDTH), ir.Undefined)
    one = b.insert_element(undefined, x, ir.Constant(INDEX, 0))
    return b.shuffle_vector(one, undefined, constants(INDEX, [0] * WIDTH))


def shuffle(b: Builder, v: Value, lanes: Sequence[int]) -> Value:
    """The vector of these lanes of v."""
    return b.shuffle_vector(v, ir.Constant(v.type, ir.Undefined), constants(INDEX, lanes))


def intrinsic(b: Builder, name: str, result: Any, *operands: Value) -> Value:
    """Call the function `name`, declaring it in the builder's module when it is new there."""
    function = b.module.globals.get(name)
    if function is None:
        function = ir.Function(b.module, ir.FunctionType(result, [x.type for x in operands]), name)
    return b.call(function, operands)


def named(b: Builder, name: str, *operands: Value) -> Value:
    """The intrinsic llvm.<name> that maps operands of one type to that type."""
    type_ = operands[0].type
    return intrinsic(b, f"llvm.{name}.{suffix(type_)}", type_, *operands)
