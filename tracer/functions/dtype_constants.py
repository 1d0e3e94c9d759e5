"""Element types as NumPy's dtype objects, and the array API's constants.

Names here shadow builtins: nothing else lives here.
"""

from __future__ import annotations

import math

from ops.types import numpy_dtype

bool = numpy_dtype("bool")
int8 = numpy_dtype("int8")
int16 = numpy_dtype("int16")
int32 = numpy_dtype("int32")
int64 = numpy_dtype("int64")
uint8 = numpy_dtype("uint8")
uint16 = numpy_dtype("uint16")
uint32 = numpy_dtype("uint32")
uint64 = numpy_dtype("uint64")
float16 = numpy_dtype("float16")
bfloat16 = numpy_dtype("bfloat16")
float32 = numpy_dtype("float32")
float64 = numpy_dtype("float64")

e = math.e
inf = math.inf
nan = math.nan
newaxis = None
pi = math.pi

__all__ = [
    "bfloat16",
    "bool",
    "e",
    "float16",
    "float32",
    "float64",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "nan",
    "newaxis",
    "pi",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
