"""Element types of vector values and of memory: names, NumPy types, sizes, and the tables between
them.

Knows NumPy only, so that a process which loads cached kernels needs nothing more. Must not know
LLVM, Numba or text.

A lane element is what a vector value is made of; a memory element is what a buffer is made of. They
differ for float16 and bfloat16 ("f16", "bf16" in memory), which are computed on as float32 lanes,
and for bool, one byte in memory and one bit in a lane.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# Lanes of a vector value, on every CPU: the bits do not depend on the machine's registers.
WIDTH = 16
CHUNK = 4096  # elements of a reduced index that share one set of lanes

f32, f64 = np.float32, np.float64
i8, i16, i32, i64 = np.int8, np.int16, np.int32, np.int64
u8, u16, u32, u64 = np.uint8, np.uint16, np.uint32, np.uint64
inf, nan = float("inf"), float("nan")

# Lane element -> NumPy scalar type.
DTYPE: dict[str, Any] = {
    "bool": np.bool_,
    "i8": i8,
    "i16": i16,
    "i32": i32,
    "i64": i64,
    "u8": u8,
    "u16": u16,
    "u32": u32,
    "u64": u64,
    "f32": f32,
    "f64": f64,
}
ELEMENTS = tuple(DTYPE)
FLOATS = ("f32", "f64")
SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("u8", "u16", "u32", "u64")
INTEGERS = SIGNED + UNSIGNED
ELEMENT: dict[Any, str] = {np.dtype(d): e for e, d in DTYPE.items()}

# NumPy's dtype name -> memory element -> lane element.
MEMORY_ELEMENT = {d.__name__: e for e, d in DTYPE.items()} | {
    "bool": "bool",
    "float16": "f16",
    "bfloat16": "bf16",
}
OF_MEMORY = {e: e for e in ELEMENTS} | {"f16": "f32", "bf16": "f32"}
LANE_ELEMENT = {name: OF_MEMORY[e] for name, e in MEMORY_ELEMENT.items()}
MEMORY_ELEMENTS = tuple(OF_MEMORY)


def kind(element: str) -> str:
    """The first letter: b for bool, i signed, u unsigned, f floating."""
    return element[0]


def bits(element: str) -> int:
    """Bits of one element in memory; a bool takes a byte."""
    return 8 if element == "bool" else int(element.lstrip("biuf"))


def size_of(element: str) -> int:
    """Bytes of one element in memory."""
    return bits(element) // 8


def memory_element(array: np.ndarray[Any, Any]) -> str:
    """The memory element of a NumPy array (bfloat16 arrays are those of ml_dtypes)."""
    name = array.dtype.name
    if name not in MEMORY_ELEMENT:
        raise TypeError(f"expected an array of {', '.join(MEMORY_ELEMENT)}; got dtype {name}")
    return MEMORY_ELEMENT[name]


# The element whose bits are the same lane read otherwise.
SAME_SIZE = {"f32": "i32", "f64": "i64", "i32": "f32", "i64": "f64", "u32": "f32", "u64": "f64"}
