"""What a matrix multiplication computes on: element types, and the tile of C that one machine holds
in registers.

Knows NumPy's dtype names and the CPU's features. Must not know Numba or the kernels.

A tile never changes a bit: every element of C is its own chain of operations over k, see
`problem.k_blocks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from codegen.cpu_features import register_bytes
from codegen.vector.elements import WIDTH, size_of

Arithmetic = Literal["fma", "ring", "boolean"]


@dataclass(frozen=True, slots=True)
class Element:
    """`memory`: what operands hold; `lane`: what products and sums are made in (names of
    `codegen.vector`).

    `arithmetic`: "fma" (floating), "ring" (integers, wrapping), "boolean" (or of ands, on int32
    lanes 0 and 1). Sums of int8 and int16 are taken in int32: the low bits are the same.
    """

    memory: str
    lane: str
    arithmetic: Arithmetic

    @property
    def memory_size(self) -> int:
        """Bytes of an element of an operand."""
        return size_of(self.memory)

    @property
    def lane_size(self) -> int:
        """Bytes of an element of a packed panel."""
        return size_of(self.lane)

    @property
    def converts(self) -> bool:
        """Whether operands must be packed because they are not held in the form that is computed
        on.
        """
        return self.memory != self.lane


_FLOAT64 = Element("f64", "f64", "fma")
_FLOAT32 = Element("f32", "f32", "fma")
_INTEGERS = {bits: Element(f"i{bits}", f"i{max(bits, 32)}", "ring") for bits in (8, 16, 32, 64)}

# Signed and unsigned integers share a kernel: the low bits of sums and products do not depend on
# the sign.
ELEMENTS = {
    "float32": _FLOAT32,
    "float64": _FLOAT64,
    "float16": Element("f16", "f32", "fma"),
    "bfloat16": Element("bf16", "f32", "fma"),
    "bool": Element("bool", "i32", "boolean"),
    **{f"{sign}int{bits}": e for bits, e in _INTEGERS.items() for sign in ("", "u")},
}


@dataclass(frozen=True, slots=True)
class Tile:
    """`rows` x `columns` of C in registers. A packed panel of A has `pitch` elements for each k, of
    B `columns`.
    """

    rows: int
    vectors: int

    @property
    def columns(self) -> int:
        """Elements of a row of the tile."""
        return self.vectors * WIDTH

    @property
    def pitch(self) -> int:
        """The power of two that holds the rows: panels are transposed in blocks of it."""
        return 1 << (self.rows - 1).bit_length()


# Register bytes -> lane -> tile. Accumulators, the vectors of B and one broadcast of A fill the
# registers: 32 of 64 bytes with AVX-512 (8x32 float32 is as fast as 12x32 and 14x32 there, and
# wastes less on small shapes), 16 of 32 bytes with AVX2, 32 of 16 bytes with NEON.
_TILES = {
    64: {"f32": Tile(8, 2), "i32": Tile(8, 2), "f64": Tile(8, 1), "i64": Tile(8, 1)},
    32: {"f32": Tile(6, 1), "i32": Tile(4, 1), "f64": Tile(2, 1), "i64": Tile(2, 1)},
    16: {"f32": Tile(4, 1), "i32": Tile(4, 1), "f64": Tile(2, 1), "i64": Tile(2, 1)},
}


def tile_of(element: Element) -> Tile:
    """The tile for this machine."""
    return _TILES[register_bytes()][element.lane]
