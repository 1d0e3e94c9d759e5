"""Matrix multiplication."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import rules
from ops.compute import Contraction
from ops.errors import DTypeError, ShapeError
from ops.operator import Application, ErrorSample, Input, Sample, operator
from ops.types import FLOATING, INTEGERS, Type, broadcast_shapes, dtype_name, short

Array = np.ndarray[Any, Any]


def _matmul_type(x: Type, y: Type) -> Type:
    rules.same_dtype(x, y)
    if x.dtype == "bool":
        raise DTypeError("operands must be numbers, got bool; cast them first")
    if x.rank < 2 or y.rank < 2:
        raise ShapeError(f"operands need at least 2 axes, got {short(x)} and {short(y)}")
    if x.shape[-1] != y.shape[-2]:
        raise ShapeError(
            f"{short(x)} @ {short(y)}: the last axis of the first ({x.shape[-1]}) must equal the "
            f"last but one of the second ({y.shape[-2]})"
        )
    batch = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    return Type(x.dtype, (*batch, x.shape[-2], y.shape[-1]))


def swapped(g: Any, x: Any) -> Any:
    """x with its last two axes swapped."""
    rank = x.type.rank
    return g.Transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))


def _matmul_vjp(g: Any, n: Application) -> Any:
    x, y = n.inputs
    return (
        g.sum_to(g.MatMul(n.dy, swapped(g, y)), x.type.shape) if n.needs[0] else None,
        g.sum_to(g.MatMul(swapped(g, x), n.dy), y.type.shape) if n.needs[1] else None,
    )


@operator(
    "MatMul",
    type_rule=_matmul_type,
    compute=Contraction(),
    vjp=_matmul_vjp,
    onnx="MatMul",
    samples=(
        Sample((Input((3, 5)), Input((5, 4)))),
        Sample((Input((2, 3, 5)), Input((5, 4)))),
        Sample((Input((2, 1, 3, 5)), Input((3, 5, 1)))),
        Sample((Input((0, 5)), Input((5, 2)))),
        Sample((Input((3, 0)), Input((0, 2))), dtypes=("int32", "int64", *FLOATING)),
        Sample((Input((17, 40), layout="strided"), Input((40, 33)))),
    ),
    errors=(
        ErrorSample((Type("float32", (2, 3)), Type("float32", (4, 5))), ShapeError, "must equal"),
        ErrorSample(
            (Type("float32", (3,)), Type("float32", (3, 5))), ShapeError, "at least 2 axes"
        ),
    ),
    dtypes=INTEGERS + FLOATING,
    ulp=64,
)
def matmul(x: Array, y: Array) -> Array:
    """Matrix product over the last two axes, leading axes broadcast.

    Half types accumulate in float32.
    """
    with np.errstate(all="ignore"):
        if dtype_name(x.dtype) in ("float16", "bfloat16"):
            return np.asarray(np.matmul(x.astype(np.float32), y.astype(np.float32)).astype(x.dtype))
        return np.asarray(np.matmul(x, y))
