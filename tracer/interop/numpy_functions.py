"""NumPy's functions other than universal ones: which of ours stands for each.

A function of ours is called with NumPy's operands in order and NumPy's options by name (`tracer.interop.numpy_protocol`); one
here adapts what differs in more than that. An option that a function does not name is refused when it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ops.errors import ArgumentError
from ops.types import dtype_name, normalize_axis
from tracer.functions import (
    arithmetic,
    creation,
    einsum,
    joining,
    linear_algebra,
    logic,
    movement,
    ranges,
    reductions,
)
from tracer.functions import gather_scatter as indexing
from tracer.functions.creation import as_tensor, cast, copied
from tracer.functions.getitem import get_item
from tracer.interop.numpy_reductions import REDUCTIONS
from tracer.tensors.tensor import Tensor

Function = Callable[..., Any]


def _full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Tensor:
    x = as_tensor(a)
    return creation.full(x.shape if shape is None else shape, fill_value, dtype or x.type.dtype)


def _like(value: Any) -> Function:
    return lambda a, dtype=None, shape=None: _full_like(a, value, dtype, shape)


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None:
        return indexing.nonzero(condition)
    return logic.where(logic.as_truth(condition), x, y)


def _transpose(a: Any, axes: Any = None) -> Tensor:
    x = as_tensor(a)
    return movement.permute_dims(x, tuple(range(x.ndim))[::-1] if axes is None else axes)


def _reshape(a: Any, shape: Any = None, order: str = "C", newshape: Any = None) -> Tensor:
    if order != "C":
        raise ArgumentError(f'numpy.reshape on a Tensor takes order="C" only, got {order!r}')
    return movement.reshape(a, newshape if shape is None else shape)


def _ravel(a: Any, order: str = "C") -> Tensor:
    return _reshape(a, (-1,) if as_tensor(a).type.size != 0 else (0,), order)


def _joined(function: Function) -> Function:
    def joined(arrays: Any, axis: Any = 0, dtype: Any = None) -> Tensor:
        result: Tensor = function(list(arrays), axis=axis)
        return result if dtype is None else cast(result, dtype_name(dtype))

    return joined


_concatenate = _joined(joining.concat)


def _clip(a: Any, a_min: Any = None, a_max: Any = None, min: Any = None, max: Any = None) -> Tensor:
    return arithmetic.clip(a, min if a_min is None else a_min, max if a_max is None else a_max)


def _array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    a, b = as_tensor(a1), as_tensor(a2)
    if a.type.shape != b.type.shape:
        return False
    same = logic.equal(a, b)
    if equal_nan:
        same = logic.logical_or(same, logic.logical_and(logic.isnan(a), logic.isnan(b)))
    return bool(reductions.all(same))


def _at_least(rank: int) -> Function:
    """Axes of size 1 added as numpy.atleast_1d and atleast_2d do: in front."""

    def widened(*arrays: Any) -> Any:
        tensors = [as_tensor(a) for a in arrays]
        wide = tuple(
            movement.expand_dims(t, tuple(range(rank - t.ndim))) if t.ndim < rank else t
            for t in tensors
        )
        return wide[0] if len(wide) == 1 else wide

    return widened


def _vstack(tup: Any, dtype: Any = None) -> Any:
    return _concatenate([_at_least(2)(t) for t in tup], 0, dtype)


def _hstack(tup: Any, dtype: Any = None) -> Any:
    tensors = [_at_least(1)(t) for t in tup]
    return _concatenate(tensors, 0 if tensors[0].ndim == 1 else 1, dtype)


def _column_stack(tup: Any) -> Tensor:
    tensors = [as_tensor(t) for t in tup]
    columns = [movement.reshape(t, (t.type.size, 1)) if t.ndim < 2 else t for t in tensors]
    return joining.concat(columns, axis=1)


def _diff(a: Any, n: int = 1, axis: int = -1) -> Tensor:
    x = as_tensor(a)
    place = normalize_axis(axis, x.ndim)
    before = (slice(None),) * place
    for _ in range(n):
        after, first = get_item(x, (*before, slice(1, None))), get_item(x, (*before, slice(-1)))
        differ = logic.not_equal if x.type.dtype == "bool" else arithmetic.subtract
        x = differ(after, first)
    return x


def _size(a: Any, axis: Any = None) -> Any:
    x = as_tensor(a)
    return x.type.size if axis is None else x.shape[axis]


FUNCTIONS: dict[Function, Function] = {
    **REDUCTIONS,
    np.allclose: logic.allclose,
    np.around: arithmetic.round,
    np.array_equal: _array_equal,
    np.argwhere: lambda a: joining.stack(list(indexing.nonzero(a)), axis=1),
    np.atleast_1d: _at_least(1),
    np.atleast_2d: _at_least(2),
    np.broadcast_arrays: movement.broadcast_arrays,
    np.broadcast_to: movement.broadcast_to,
    np.clip: _clip,
    np.column_stack: _column_stack,
    np.concatenate: _concatenate,
    np.copy: lambda a: copied(as_tensor(a)),
    np.diagonal: movement.diagonal,
    np.diff: _diff,
    np.dot: linear_algebra.dot,
    np.einsum: einsum.einsum,
    np.empty_like: _like(0),
    np.expand_dims: movement.expand_dims,
    np.fliplr: lambda m: movement.flip(m, 1),
    np.flipud: lambda m: movement.flip(m, 0),
    np.flatnonzero: lambda a: indexing.nonzero(_ravel(a))[0],
    np.flip: movement.flip,
    np.full_like: _full_like,
    np.hstack: _hstack,
    np.inner: lambda a, b: linear_algebra.tensordot(a, b, ([-1], [-1])),
    np.isclose: logic.isclose,
    np.meshgrid: ranges.meshgrid,
    np.moveaxis: movement.moveaxis,
    np.nan_to_num: logic.nan_to_num,
    np.ndim: lambda a: as_tensor(a).ndim,
    np.nonzero: indexing.nonzero,
    np.ones_like: _like(1),
    np.outer: linear_algebra.outer,
    np.pad: joining.pad,
    np.ravel: _ravel,
    np.repeat: joining.repeat,
    np.reshape: _reshape,
    np.roll: movement.roll,
    np.round: arithmetic.round,
    np.shape: lambda a: as_tensor(a).shape,
    np.size: _size,
    np.split: lambda a, sections, axis=0: list(joining.split(a, sections, axis)),
    np.squeeze: movement.squeeze,
    np.stack: _joined(joining.stack),
    np.swapaxes: movement.swapaxes,
    np.take: indexing.take,
    np.take_along_axis: indexing.take_along_axis,
    np.tensordot: linear_algebra.tensordot,
    np.tile: joining.tile,
    np.transpose: _transpose,
    np.tril: movement.tril,
    np.triu: movement.triu,
    np.vstack: _vstack,
    np.where: _where,
    np.zeros_like: _like(0),
}
