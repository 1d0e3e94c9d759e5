"""Where a value lies: a buffer, an offset and strides in elements. Views share the buffer of their operand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ops.compute import Strided
from ops.types import Type


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory of one value. `kind`: "input", "output", "work" or "constant"; `number` of the input or output; `place`: offset in
    bytes in the workspace or among the constants."""

    type: Type
    kind: str
    number: int = 0
    place: int = 0
    data: Any = None

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return int(self.type.size) * self.type.itemsize


@dataclass(frozen=True, slots=True)
class Layout:
    """A value's elements in a buffer."""

    buffer: Buffer
    strided: Strided

    @staticmethod
    def contiguous(buffer: Buffer) -> Layout:
        """The whole buffer, row-major."""
        return Layout(buffer, Strided.row_major(buffer.type.shape))

    def is_at(self, other: Layout) -> bool:
        """Whether the elements are those of another one, each in its place."""
        mine, theirs = self.strided, other.strided
        return (
            self.buffer is other.buffer
            and mine.shape == theirs.shape
            and mine.offset == theirs.offset
            and all(
                d == 1 or s == t
                for d, s, t in zip(mine.shape, mine.strides, theirs.strides, strict=True)
            )
        )
