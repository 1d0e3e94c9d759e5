"""Matrix products."""

from __future__ import annotations

from typing import Any

from ops.errors import ShapeError, TracerError
from tracer.dispatch import apply, located
from tracer.functions.movement import reshape
from tracer.functions.promotion import prepare
from tracer.tensor import Tensor


def matmul(x: Any, y: Any) -> Tensor:
    """Matrix product; 1-d operands are a row on the left, a column on the right; leading axes broadcast."""
    try:
        a, b = prepare(x, y)
        if a.ndim == 0 or b.ndim == 0:
            raise ShapeError(f"matmul needs at least 1 axis, got shapes {a.shape} and {b.shape}; use * for scaling")
        if a.shape[-1] != b.shape[0 if b.ndim == 1 else -2]:
            raise ShapeError(
                f"matmul of shapes {a.shape} and {b.shape}: the last axis of the first must equal the "
                f"{'only' if b.ndim == 1 else 'last but one'} axis of the second"
            )
        row, column = a.ndim == 1, b.ndim == 1
        if row:
            a = reshape(a, (1, *a.shape))
        if column:
            b = reshape(b, (*b.shape, 1))
        result: Tensor = apply("MatMul", a, b)
        if row or column:
            kept = result.shape[:-2] + (() if row else result.shape[-2:-1]) + (() if column else result.shape[-1:])
            result = reshape(result, kept)
    except TracerError as error:
        raise located(error) from None
    return result
