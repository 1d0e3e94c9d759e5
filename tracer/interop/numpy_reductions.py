"""NumPy's functions that reduce axes, and what all of NumPy's functions share: `out=`, and arguments without counterpart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ops.errors import ArgumentError, GradError, TraceError
from ops.types import dtype_name
from tracer.functions import arithmetic, movement, reductions
from tracer.functions.creation import as_tensor, cast
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


def refuse(name: str, **given: Any) -> None:
    """Raise `ArgumentError` for NumPy's arguments that have no counterpart here and were given."""
    for argument, value in given.items():
        if value is not None and value is not np._NoValue:
            raise ArgumentError(f"numpy.{name} on a Tensor takes no argument {argument!r}")


def _reduction(function: Function, name: str, typed: bool = False) -> Function:
    def reduced(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = np._NoValue,
        initial: Any = np._NoValue,
        where: Any = np._NoValue,
    ) -> Any:
        refuse(name, initial=initial, where=where)
        keep = False if keepdims is np._NoValue else bool(keepdims)
        if dtype is None:
            result = function(a, axis=axis, keepdims=keep)
        elif typed:
            result = function(a, axis=axis, keepdims=keep, dtype=dtype)
        else:
            result = function(cast(as_tensor(a), dtype_name(dtype)), axis=axis, keepdims=keep)
        return result if out is None else write_out(out, result, f"numpy.{name}")

    return reduced


def _untyped(function: Function, name: str) -> Function:
    """A reduction whose third argument is `out`."""
    inner = _reduction(function, name)

    def reduced(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = np._NoValue, **keywords: Any
    ) -> Any:
        return inner(a, axis, None, out, keepdims, **keywords)

    return reduced


def _spread(function: Function, name: str) -> Function:
    """Variance and standard deviation, whose correction NumPy calls ddof too."""

    def reduced(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: float = 0,
        keepdims: Any = np._NoValue,
        *,
        correction: Any = np._NoValue,
        **keywords: Any,
    ) -> Any:
        divisor = ddof if correction is np._NoValue else correction

        def spread(x: Any, axis: Any, keepdims: bool) -> Tensor:
            result: Tensor = function(x, axis=axis, correction=float(divisor), keepdims=keepdims)
            return result

        return _reduction(spread, name)(a, axis, dtype, out, keepdims, **keywords)

    return reduced


def _argument(function: Function, name: str) -> Function:
    def position(
        a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = np._NoValue
    ) -> Tensor:
        refuse(name, out=out)
        keep = keepdims is not np._NoValue and bool(keepdims)
        result: Tensor = function(a, axis, keep)
        return result

    return position


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    x = as_tensor(x)
    axes = reductions.as_axes(axis, x)
    if ord is not None and len(axes) != 1:
        raise ArgumentError(
            "numpy.linalg.norm of matrices on a Tensor takes no ord; use tracer.vector_norm"
        )
    return reductions.vector_norm(x, axes, keepdims, 2 if ord is None else ord)


def _cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Tensor:
    refuse("cumsum", out=out)
    x = as_tensor(a)
    line = movement.reshape(x, (x.type.size,)) if axis is None else x
    return reductions.cumulative_sum(line, axis or 0, dtype)


def _average(
    a: Any,
    axis: Any = None,
    weights: Any = None,
    returned: bool = False,
    *,
    keepdims: Any = np._NoValue,
) -> Tensor:
    refuse("average", weights=weights, returned=returned or None)
    return reductions.mean(a, axis, keepdims is not np._NoValue and bool(keepdims))


def _trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> Tensor:
    refuse("trace", out=out)
    return reductions.sum(movement.diagonal(a, offset, axis1, axis2), -1, dtype)


def _ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = np._NoValue) -> Tensor:
    refuse("ptp", out=out)
    keep = keepdims is not np._NoValue and bool(keepdims)
    return arithmetic.subtract(reductions.max(a, axis, keep), reductions.min(a, axis, keep))


REDUCTIONS: dict[Function, Function] = {
    np.all: _untyped(reductions.all, "all"),
    np.amax: _untyped(reductions.max, "amax"),
    np.amin: _untyped(reductions.min, "amin"),
    np.any: _untyped(reductions.any, "any"),
    np.argmax: _argument(reductions.argmax, "argmax"),
    np.argmin: _argument(reductions.argmin, "argmin"),
    np.average: _average,
    np.count_nonzero: lambda a, axis=None, *, keepdims=False: reductions.count_nonzero(
        a, axis, keepdims
    ),
    np.cumsum: _cumsum,
    np.linalg.norm: _norm,
    np.max: _untyped(reductions.max, "max"),
    np.mean: _reduction(reductions.mean, "mean"),
    np.min: _untyped(reductions.min, "min"),
    np.prod: _reduction(reductions.prod, "prod", typed=True),
    np.ptp: _ptp,
    np.std: _spread(reductions.std, "std"),
    np.sum: _reduction(reductions.sum, "sum", typed=True),
    np.trace: _trace,
    np.var: _spread(reductions.var, "var"),
}
