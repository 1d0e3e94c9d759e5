"""NumPy's functions other than universal ones: which of ours stands for each.

Knows how arguments differ; those that have no counterpart here are refused when they are given.
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
from tracer.interop.numpy_reductions import REDUCTIONS, refuse, write_out
from tracer.tensors.tensor import Tensor

Function = Callable[..., Any]


def _like(value: Any) -> Function:
    def like(
        a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, **_: Any
    ) -> Tensor:
        x = as_tensor(a)
        return creation.full(x.shape if shape is None else shape, value, dtype or x.type.dtype)

    return like


def _full_like(
    a: Any, fill_value: Any, dtype: Any = None, *_: Any, shape: Any = None, **__: Any
) -> Tensor:
    result: Tensor = _like(fill_value)(a, dtype, shape=shape)
    return result


def _where(condition: Any, x: Any = np._NoValue, y: Any = np._NoValue) -> Any:
    if x is np._NoValue:
        return indexing.nonzero(condition)
    return logic.where(logic.as_truth(condition), x, y)


def _transpose(a: Any, axes: Any = None) -> Tensor:
    x = as_tensor(a)
    return movement.permute_dims(x, tuple(range(x.ndim))[::-1] if axes is None else axes)


def _reshape(
    a: Any, /, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: Any = None
) -> Tensor:
    if order != "C":
        raise ArgumentError(f'numpy.reshape on a Tensor takes order="C" only, got {order!r}')
    return movement.reshape(a, newshape if shape is None else shape)


def _ravel(a: Any, order: str = "C") -> Tensor:
    return _reshape(a, (-1,) if as_tensor(a).type.size != 0 else (0,), order)


def _concatenate(
    arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    result = joining.concat(list(arrays), axis=axis)
    if dtype is not None:
        result = cast(result, dtype_name(dtype))
    return result if out is None else write_out(out, result, "numpy.concatenate")


def _stack(
    arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: str = "same_kind"
) -> Any:
    result = joining.stack(list(arrays), axis=axis)
    if dtype is not None:
        result = cast(result, dtype_name(dtype))
    return result if out is None else write_out(out, result, "numpy.stack")


def _clip(
    a: Any,
    a_min: Any = None,
    a_max: Any = None,
    out: Any = None,
    *,
    min: Any = None,
    max: Any = None,
) -> Any:
    result = arithmetic.clip(a, min if a_min is None else a_min, max if a_max is None else a_max)
    return result if out is None else write_out(out, result, "numpy.clip")


def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    result = arithmetic.round(a, decimals)
    return result if out is None else write_out(out, result, "numpy.round")


def _pad(array: Any, pad_width: Any, mode: str = "constant", **keywords: Any) -> Tensor:
    value = keywords.pop("constant_values", 0.0)
    refuse("pad", **keywords)
    return joining.pad(array, pad_width, mode, value)


def _take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Tensor:
    refuse("take", out=out, mode=None if mode == "raise" else mode)
    return indexing.take(a, indices, axis)


def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    return movement.diagonal(a, offset, axis1, axis2)


def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    return list(joining.split(ary, indices_or_sections, axis))


def _array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    a, b = as_tensor(a1), as_tensor(a2)
    if a.type.shape != b.type.shape:
        return False
    same = logic.equal(a, b)
    if equal_nan:
        same = logic.logical_or(same, logic.logical_and(logic.isnan(a), logic.isnan(b)))
    return bool(reductions.all(same))


def _outer(a: Any, b: Any, out: Any = None) -> Tensor:
    refuse("outer", out=out)
    return linear_algebra.outer(a, b)


def _dot(a: Any, b: Any, out: Any = None) -> Tensor:
    refuse("dot", out=out)
    return linear_algebra.dot(a, b)


def _einsum(
    *operands: Any,
    out: Any = None,
    dtype: Any = None,
    order: str = "K",
    casting: str = "safe",
    optimize: Any = False,
) -> Tensor:
    refuse("einsum", out=out, dtype=dtype)
    return einsum.einsum(*operands)


def _squeezed(x: Any, axis: Any = None) -> Tensor:
    return movement.squeeze(x, axis)


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


def _vstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    return _concatenate([_at_least(2)(t) for t in tup], 0, dtype=dtype)


def _hstack(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
    tensors = [_at_least(1)(t) for t in tup]
    return _concatenate(tensors, 0 if tensors[0].ndim == 1 else 1, dtype=dtype)


def _column_stack(tup: Any) -> Tensor:
    tensors = [as_tensor(t) for t in tup]
    columns = [movement.reshape(t, (t.type.size, 1)) if t.ndim < 2 else t for t in tensors]
    return joining.concat(columns, axis=1)


def _diff(
    a: Any, n: int = 1, axis: int = -1, prepend: Any = np._NoValue, append: Any = np._NoValue
) -> Tensor:
    refuse("diff", prepend=prepend, append=append)
    x = as_tensor(a)
    place = normalize_axis(axis, x.ndim)
    before = (slice(None),) * place
    for _ in range(n):
        after, first = get_item(x, (*before, slice(1, None))), get_item(x, (*before, slice(-1)))
        differ = logic.not_equal if x.type.dtype == "bool" else arithmetic.subtract
        x = differ(after, first)
    return x


FUNCTIONS: dict[Function, Function] = {
    **REDUCTIONS,
    np.allclose: lambda a, b, rtol=1e-5, atol=1e-8, equal_nan=False: logic.allclose(
        a, b, rtol, atol, equal_nan
    ),
    np.around: _round,
    np.array_equal: _array_equal,
    np.argwhere: lambda a: joining.stack(list(indexing.nonzero(a)), axis=1),
    np.atleast_1d: _at_least(1),
    np.atleast_2d: _at_least(2),
    np.broadcast_arrays: lambda *arrays, subok=False: movement.broadcast_arrays(*arrays),
    np.broadcast_to: lambda array, shape, subok=False: movement.broadcast_to(array, shape),
    np.clip: _clip,
    np.column_stack: _column_stack,
    np.concatenate: _concatenate,
    np.copy: lambda a, order="K", subok=False: copied(as_tensor(a)),
    np.diagonal: _diagonal,
    np.diff: _diff,
    np.dot: _dot,
    np.einsum: _einsum,
    np.empty_like: _like(0),
    np.expand_dims: lambda a, axis: movement.expand_dims(a, axis),
    np.fliplr: lambda m: movement.flip(m, 1),
    np.flipud: lambda m: movement.flip(m, 0),
    np.flatnonzero: lambda a: indexing.nonzero(_ravel(a))[0],
    np.flip: lambda m, axis=None: movement.flip(m, axis),
    np.full_like: _full_like,
    np.hstack: _hstack,
    np.inner: lambda a, b, /: linear_algebra.tensordot(a, b, ([-1], [-1])),
    np.isclose: lambda a, b, rtol=1e-5, atol=1e-8, equal_nan=False: logic.isclose(
        a, b, rtol, atol, equal_nan
    ),
    np.meshgrid: lambda *xi, copy=True, sparse=False, indexing="xy": ranges.meshgrid(
        *xi, indexing=indexing
    ),
    np.moveaxis: lambda a, source, destination: movement.moveaxis(a, source, destination),
    np.nan_to_num: lambda x, copy=True, nan=0.0, posinf=None, neginf=None: logic.nan_to_num(
        x, nan, posinf, neginf
    ),
    np.ndim: lambda a: as_tensor(a).ndim,
    np.nonzero: lambda a: indexing.nonzero(a),
    np.ones_like: _like(1),
    np.outer: _outer,
    np.pad: _pad,
    np.ravel: _ravel,
    np.repeat: lambda a, repeats, axis=None: joining.repeat(a, repeats, axis),
    np.reshape: _reshape,
    np.roll: lambda a, shift, axis=None: movement.roll(a, shift, axis),
    np.round: _round,
    np.shape: lambda a: as_tensor(a).shape,
    np.size: lambda a, axis=None: (
        as_tensor(a).type.size if axis is None else as_tensor(a).shape[axis]
    ),
    np.split: _split,
    np.squeeze: _squeezed,
    np.stack: _stack,
    np.swapaxes: lambda a, axis1, axis2: movement.swapaxes(a, axis1, axis2),
    np.take: _take,
    np.take_along_axis: lambda arr, indices, axis=-1: indexing.take_along_axis(arr, indices, axis),
    np.tensordot: lambda a, b, axes=2: linear_algebra.tensordot(a, b, axes),
    np.tile: lambda A, reps: joining.tile(A, reps),  # noqa: N803 - NumPy's name
    np.transpose: _transpose,
    np.tril: lambda m, k=0: movement.tril(m, k),
    np.triu: lambda m, k=0: movement.triu(m, k),
    np.vstack: _vstack,
    np.where: _where,
    np.zeros_like: _like(0),
}
