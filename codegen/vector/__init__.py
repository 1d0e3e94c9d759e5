"""Vector values: kernel text on 16 lanes, its primitives, its mathematics, and the readings of a
line.

A kernel is an ordinary Python function on flat pointers. `load(p, i)` gives 16 lanes; operators,
`fma`, `select`, `exp` ... work on them; `store(p, i, v)` writes them. The text is read as NumPy
(`Lanes`), as Numba (`jit.py`, LLVM vectors `<16 x float>`), and as IR while a function's body is
emitted (`emit.py`); a printer for single-lane devices brings a reading of its own.

Must not know specifications. Importing this package needs NumPy only. Numba and llvmlite come with `codegen.vector.jit`, imported
when something is compiled.
"""

from __future__ import annotations

from codegen.vector.elements import (
    CHUNK,
    DTYPE,
    ELEMENT,
    ELEMENTS,
    LANE_ELEMENT,
    MEMORY_ELEMENT,
    OF_MEMORY,
    WIDTH,
)
from codegen.vector.names import NAMES
from codegen.vector.readings import Lanes, Reading

__all__ = [
    "CHUNK",
    "DTYPE",
    "ELEMENT",
    "ELEMENTS",
    "LANE_ELEMENT",
    "MEMORY_ELEMENT",
    "NAMES",
    "OF_MEMORY",
    "WIDTH",
    "Lanes",
    "Reading",
]
