"""Tensors that follow from positions: ranges, evenly spaced numbers, the identity, coordinates of grids."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ops.dims import Dim
from ops.errors import ArgumentError, ShapeError
from ops.types import DEFAULT_FLOAT, DEFAULT_INTEGER, dtype_name, is_floating
from tracer.dispatch.apply import apply, constant
from tracer.functions.creation import Size, as_tensor, cast
from tracer.functions.public import public
from tracer.tensors.tensor import Tensor


def _python_number(x: Any) -> Any:
    """A bound of a range as a Python number.

    What it is in a trace decides sizes, so it must be known.
    """
    if isinstance(x, int | float | Dim):
        return x
    if isinstance(x, Tensor | np.generic | np.ndarray) and x.ndim == 0:
        return x.item()
    raise ArgumentError(f"expected a number, got {type(x).__name__}: {x!r:.60}")


@public
def arange(start: Any, /, stop: Any = None, step: Any = 1, dtype: Any = None) -> Tensor:
    """Numbers from start to before stop, `step` apart; with one argument, from 0 to it.

    A Tensor of one axis: int64, or float32 where a float is given, unless `dtype` says otherwise.
    Raises `ArgumentError` for a step of 0.

    >>> tracer.arange(3)
    tensor([0, 1, 2])
    >>> tracer.arange(1, 2, 0.25)
    tensor([1.  , 1.25, 1.5 , 1.75])
    """
    if stop is None:
        start, stop = 0, start
    start, stop, step = map(_python_number, (start, stop, step))
    if step == 0:
        raise ArgumentError("arange needs a step other than 0")
    floating = any(isinstance(v, float) for v in (start, stop, step))
    if floating or all(isinstance(v, int) for v in (start, stop, step)):
        count: Size = max(
            0, math.ceil((stop - start) / step) if floating else -((start - stop) // step)
        )
    else:
        from ops import dims

        count = dims.maximum((stop - start + step - (1 if step > 0 else -1)) // step, 0)
    name = (
        dtype_name(dtype) if dtype is not None else (DEFAULT_FLOAT if floating else DEFAULT_INTEGER)
    )
    line = apply("Iota", shape=(count,), axis=0, dtype="float64" if floating else "int64")
    if step != 1:
        line = apply("Mul", line, constant(step, line.type.dtype))
    if not (isinstance(start, int | float) and start == 0):
        first = (
            cast(as_tensor(start), "int64")
            if isinstance(start, Dim)
            else constant(start, line.type.dtype)
        )
        line = apply("Add", line, first)
    return cast(line, name)


@public
def linspace(
    start: Any, stop: Any, /, num: Size, *, dtype: Any = None, endpoint: bool = True
) -> Tensor:
    """num evenly spaced numbers from start to stop; without the endpoint, to before it.

    A Tensor of one axis, float32 unless told otherwise; computed in float64 and rounded once, down for
    an integer type. Raises `ArgumentError` for what is no number, `ShapeError` for a negative num.

    >>> tracer.linspace(0, 1, 5)
    tensor([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    name = dtype_name(DEFAULT_FLOAT if dtype is None else dtype)
    wide = name if is_floating(name) else "float64"
    start, stop = _python_number(start), _python_number(stop)
    line = apply("Linspace", start=start, stop=stop, num=num, endpoint=endpoint, dtype=wide)
    return line if wide == name else cast(apply("Floor", line), name)


@public
def eye(n_rows: Size, n_cols: Size | None = None, /, k: int = 0, dtype: Any = None) -> Tensor:
    """A matrix with ones on its k-th diagonal, square unless n_cols is given.

    float32 unless `dtype` says otherwise.

    >>> tracer.eye(2, 3, k=1)
    tensor([[0., 1., 0.],
            [0., 0., 1.]])
    """
    shape = (n_rows, n_rows if n_cols is None else n_cols)
    return apply(
        "Eye", shape=shape, k=k, dtype=dtype_name(DEFAULT_FLOAT if dtype is None else dtype)
    )


@public
def meshgrid(*arrays: Any, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates of a grid, one Tensor for each axis, from 1-d coordinates of the axes.

    indexing "ij": the k-th operand runs along axis k; "xy": the first two are swapped.

    Each has its operand's type. Raises `ShapeError` for coordinates with several axes,
    `ArgumentError` for another indexing.

    >>> x, y = tracer.meshgrid([1, 2, 3], [10, 20])
    >>> x + y
    tensor([[11, 12, 13],
            [21, 22, 23]])
    """
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f'indexing must be "xy" or "ij", got {indexing!r}')
    lines = [as_tensor(a) for a in arrays]
    for line in lines:
        if line.ndim != 1:
            raise ShapeError(f"meshgrid takes 1-d coordinates, got shape {line.shape}")
    order = list(range(len(lines)))
    if indexing == "xy" and len(lines) > 1:
        order[:2] = [1, 0]
    shape = tuple(lines[k].type.shape[0] for k in order)
    grid = []
    for k, line in enumerate(lines):
        place = order.index(k)
        sizes = tuple(line.type.size if axis == place else 1 for axis in range(len(lines)))
        grid.append(apply("Expand", apply("Reshape", line, shape=sizes), shape=shape))
    return tuple(grid)


__all__ = ["arange", "eye", "linspace", "meshgrid"]
