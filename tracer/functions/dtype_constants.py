"""Element types as NumPy's dtype objects, and the array API's constants.

Names here shadow builtins, and all are public: nothing else lives here.
"""

import math as _math

from ops.types import numpy_dtype as _numpy_dtype

bool = _numpy_dtype("bool")
int8 = _numpy_dtype("int8")
int16 = _numpy_dtype("int16")
int32 = _numpy_dtype("int32")
int64 = _numpy_dtype("int64")
uint8 = _numpy_dtype("uint8")
uint16 = _numpy_dtype("uint16")
uint32 = _numpy_dtype("uint32")
uint64 = _numpy_dtype("uint64")
float16 = _numpy_dtype("float16")
bfloat16 = _numpy_dtype("bfloat16")
float32 = _numpy_dtype("float32")
float64 = _numpy_dtype("float64")

e = _math.e
inf = _math.inf
nan = _math.nan
newaxis = None
pi = _math.pi
