"""Vector values: kernel text on 16 lanes, its primitives, its mathematics, and the four readings of one line.

A kernel is an ordinary Python function on flat pointers. `load(p, i)` gives 16 lanes; operators, `fma`, `select`, `exp` ...
work on them; `store(p, i, v)` writes them. The text is read as NumPy (`Lanes`), as Numba (`jit.py`, LLVM vectors
`<16 x float>`), as IR while a function's body is emitted (`emit.py`) and as scalar text for CUDA (`written.py`).

Importing this package needs NumPy only. Numba and llvmlite come with `codegen.vector.jit`, imported when something is compiled.
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
from codegen.vector.written import Written, scalar_text

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
    "Written",
    "scalar_text",
]
