"""Which element type operands are brought to before an operator sees them.

NumPy 2's promotion, Python numbers weak, with one difference: an integer or bool operand never widens a floating one, as in
PyTorch and JAX (float32 + int64 is float32). A Python float among integers gives the default float32.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ops.types import DEFAULT_FLOAT, DEFAULT_INTEGER, FLOATING, Type, is_floating, numpy_dtype
from ops.types import dtype_name as _name


def _kind(dtype: str) -> int:
    return 0 if dtype == "bool" else 2 if dtype in FLOATING else 1


@cache
def promote(*operands: tuple[str, bool]) -> tuple[str, bool]:
    """The common (dtype, weak) of (dtype, weak) operands. Python floats among themselves stay float64, weak."""
    strong = [d for d, weak in operands if not weak]
    weak_kind = max((_kind(d) for d, weak in operands if weak), default=-1)
    if not strong:
        widest = max(weak_kind, 0)
        return ("bool", DEFAULT_INTEGER, "float64")[widest], True
    floating = [d for d in strong if is_floating(d)]
    if floating:
        return _floating(floating), False
    if weak_kind == 2:
        return DEFAULT_FLOAT, False
    common = _name(np.result_type(*(numpy_dtype(d) for d in strong)))
    if weak_kind == 1 and common == "bool":
        return DEFAULT_INTEGER, False
    return common, False


def _floating(dtypes: list[str]) -> str:
    distinct = set(dtypes)
    if distinct == {"float16", "bfloat16"}:
        return "float32"
    return max(distinct, key=lambda d: (numpy_dtype(d).itemsize, d))


def result_type(*types: Type) -> tuple[str, bool]:
    """The common element type of the types, and whether it is weak."""
    return promote(*((t.dtype, t.weak) for t in types))


def floating_type(*types: Type) -> str:
    """The element type in which a floating function of the operands is computed: integers and bools give float32."""
    dtype, weak = result_type(*types)
    return dtype if is_floating(dtype) and not weak else DEFAULT_FLOAT
