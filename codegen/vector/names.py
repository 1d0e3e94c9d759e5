"""NAMES: what kernel text may say, name -> object. The text is exec'd in it, to be run un-jitted or
compiled by Numba.

The same objects serve both: called on `Lanes` they are NumPy; `jit.py`, once imported, tells Numba
what they are.
"""

from __future__ import annotations

from typing import Any

from codegen.vector import elementary as _elementary  # noqa: F401
from codegen.vector import elements, lanes, memory
from codegen.vector import math_error as _math_error  # noqa: F401
from codegen.vector import math_exponential as _math_exponential  # noqa: F401  fills FUNCTIONS
from codegen.vector import math_integer as _math_integer  # noqa: F401
from codegen.vector import math_inverse as _math_inverse  # noqa: F401
from codegen.vector import math_logarithm as _math_logarithm  # noqa: F401
from codegen.vector import math_power as _math_power  # noqa: F401
from codegen.vector import math_trigonometric as _math_trigonometric  # noqa: F401
from codegen.vector import philox as _philox  # noqa: F401
from codegen.vector.functions import FUNCTIONS
from codegen.vector.primitives import PRIMITIVES
from codegen.vector.readings import OPERATORS, Constructor

CONSTRUCTORS: dict[str, Any] = {e: Constructor(e) for e in elements.ELEMENTS if e != "bool"}
MEMORY_FUNCTIONS: dict[str, Any] = {
    name: getattr(memory, name)
    for access in ("load", "store", "gather", "scatter")
    for name in (
        access,
        f"{access}_part",
        f"{access}_masked",
        *([f"{access}_one"] if access in ("load", "store") else []),
    )
}
LANE_FUNCTIONS: dict[str, Any] = {
    name: getattr(lanes, name)
    for name in (
        *("full", "below", "lane_index", "rotate", "first"),
        *("lane_sum", "lane_product", "lane_max", "lane_min", "lane_any", "lane_all"),
    )
}
NAMES: dict[str, Any] = {
    "inf": elements.inf,
    "nan": elements.nan,
    **CONSTRUCTORS,
    **MEMORY_FUNCTIONS,
    **LANE_FUNCTIONS,
    **{name: p for name, p in PRIMITIVES.items() if name not in OPERATORS},
    **FUNCTIONS,
}
