"""NumPy's functions that reduce axes, and where the result of any of NumPy's functions is written: `out=`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ops.errors import ArgumentError, GradError, TraceError
from tracer.functions import arithmetic, movement, reductions
from tracer.functions.creation import as_tensor
from tracer.functions.in_place import copy_into
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor

Function = Callable[..., Any]


def write_out(out: Any, result: Tensor, name: str) -> Any:
    """The result written to `out=`: a Tensor, or outside of traces an array."""
    if isinstance(out, Tensor):
        return copy_into(out, result)
    if MODES.interpreter.known_elements(result) is None:
        raise TraceError(
            f"{name} writes into a NumPy array, which is not recorded; use the result instead of "
            "out="
        )
    if result.requires_grad:
        raise GradError(
            f"{name} writes a result that requires a gradient into a NumPy array, which keeps "
            "none; detach() first"
        )
    np.copyto(out, result.array, casting="same_kind")
    return out


def _spread(function: Function) -> Function:
    """Variance and standard deviation, whose correction NumPy calls ddof too."""

    def spread(
        a: Any, axis: Any = None, ddof: Any = 0, keepdims: bool = False, correction: Any = None
    ) -> Any:
        divisor = float(ddof if correction is None else correction)
        return function(a, axis=axis, correction=divisor, keepdims=keepdims)

    return spread


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    x = as_tensor(x)
    axes = reductions.as_axes(axis, x)
    if ord is not None and len(axes) != 1:
        raise ArgumentError(
            "numpy.linalg.norm of matrices on a Tensor takes no ord; use tracer.vector_norm"
        )
    return reductions.vector_norm(x, axes, keepdims, 2 if ord is None else ord)


def _cumsum(a: Any, axis: Any = None, dtype: Any = None) -> Tensor:
    x = as_tensor(a)
    line = movement.reshape(x, (x.type.size,)) if axis is None else x
    return reductions.cumulative_sum(line, axis or 0, dtype)


def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Tensor:
    return reductions.sum(movement.diagonal(a, offset, axis1, axis2), -1, dtype)


def _ptp(a: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
    return arithmetic.subtract(reductions.max(a, axis, keepdims), reductions.min(a, axis, keepdims))


REDUCTIONS: dict[Function, Function] = {
    np.all: reductions.all,
    np.amax: reductions.max,
    np.amin: reductions.min,
    np.any: reductions.any,
    np.argmax: reductions.argmax,
    np.argmin: reductions.argmin,
    np.average: reductions.mean,
    np.count_nonzero: reductions.count_nonzero,
    np.cumsum: _cumsum,
    np.linalg.norm: _norm,
    np.max: reductions.max,
    np.mean: reductions.mean,
    np.min: reductions.min,
    np.prod: reductions.prod,
    np.ptp: _ptp,
    np.std: _spread(reductions.std),
    np.sum: reductions.sum,
    np.trace: _trace,
    np.var: _spread(reductions.var),
}
