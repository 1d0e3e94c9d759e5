"""Numerics that the references share: precision of half types, and the fixed order of sums.

A reference obeys the numerics contract: float16 and bfloat16 are computed in float32 and rounded
once; float32 transcendental functions are computed in float64 and rounded; sums of float16 and
float32 are taken in float64, all of them in the order that the kernels use, so that eager and
compiled sums have equal bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ops.types import dtype_name, normalize_axes, numpy_dtype

Array = np.ndarray[Any, Any]
LANES, CHUNK = 16, 4096
HALF = ("float16", "bfloat16")


def quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function without NumPy's floating-point warnings: infinities and NaN are results."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, **keywords: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*arguments, **keywords)

    return wrapped


def rounded_once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Half types go through float32 and are rounded to their own type at the end.

    `of_other_types`: the function itself, for whoever knows the type already, and has NumPy's warnings off.
    """

    @functools.wraps(function)
    def wrapped(*arrays: Array, **attrs: Any) -> Any:
        dtype = arrays[0].dtype
        with np.errstate(all="ignore"):
            if dtype_name(dtype) not in HALF:
                return np.asarray(function(*arrays, **attrs))
            wide = [a.astype(np.float32) if a.dtype == dtype else a for a in arrays]
            result = np.asarray(function(*wide, **attrs))
            return result.astype(dtype) if result.dtype == np.float32 else result

    wrapped.of_other_types = function  # type: ignore[attr-defined]
    return wrapped


def precise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Floating types below float64 are computed in float64 and rounded once."""

    @functools.wraps(function)
    def wrapped(*arrays: Array, **attrs: Any) -> Any:
        dtype = arrays[0].dtype
        with np.errstate(all="ignore"):
            wide = [a.astype(np.float64) if a.dtype == dtype else a for a in arrays]
            result = np.asarray(function(*wide, **attrs))
            if dtype_name(dtype) in HALF:
                result = result.astype(np.float32)
            return result.astype(dtype)

    return wrapped


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The element type in which sums and products of a type are taken."""
    kind = {"b": np.int64, "i": np.int64, "u": np.uint64}.get(dtype.kind, np.float64)
    return np.dtype(kind)


def rows_of(x: Array, axes: tuple[int, ...]) -> Array:
    """x with the axes moved to the end, in order, and made one."""
    kept = tuple(k for k in range(x.ndim) if k not in axes)
    moved = np.transpose(x, (*kept, *axes))
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    return moved.reshape((*(x.shape[k] for k in kept), count))


def fold_rows(rows: Array, combine: np.ufunc, identity: float) -> Array:
    """Fold the last axis in the contract's order.

    Element k goes to lane k % 16 of chunk k // 4096; lanes combine in halves, chunks in pairs.
    """
    count = rows.shape[-1]
    chunks = max(1, -(-count // CHUNK))
    length = min(CHUNK, -(-max(count, 1) // LANES) * LANES) if chunks == 1 else CHUNK
    padded = np.full((*rows.shape[:-1], chunks * length), identity, rows.dtype)
    padded[..., :count] = rows
    lanes = np.full((*rows.shape[:-1], chunks, LANES), identity, rows.dtype)
    steps = padded.reshape((*rows.shape[:-1], chunks, length // LANES, LANES))
    for step in range(length // LANES):
        lanes = combine(lanes, steps[..., step, :])
    half = LANES
    while half > 1:
        half //= 2
        lanes = combine(lanes[..., :half], lanes[..., half : 2 * half])
    totals = lanes[..., 0]
    while totals.shape[-1] > 1:
        even = totals.shape[-1] // 2 * 2
        pairs = combine(totals[..., 0:even:2], totals[..., 1:even:2])
        totals = np.concatenate([pairs, totals[..., even:]], axis=-1)
    return totals[..., 0]


def fold(
    x: Array, axes: tuple[int, ...], keepdims: bool, combine: np.ufunc, identity: float
) -> Array:
    """The sum or product of x over axes, accumulated as the contract says, before rounding."""
    axes = normalize_axes(axes, x.ndim)
    with np.errstate(all="ignore"):
        rows = rows_of(x, axes).astype(accumulator(x.dtype))
        if rows.dtype.kind != "f":
            total = combine.reduce(rows, axis=-1, dtype=rows.dtype)
        else:
            total = fold_rows(rows, combine, identity)
    if keepdims:
        total = total.reshape(tuple(1 if k in axes else d for k, d in enumerate(x.shape)))
    return np.asarray(total)


def round_to(total: Array, dtype: np.dtype[Any]) -> Array:
    """An accumulated result in its type; half types are rounded from float32, as kernels do."""
    with np.errstate(all="ignore"):
        if dtype_name(dtype) in HALF:
            total = total.astype(np.float32)
        return np.asarray(total).astype(dtype)


def as_dtype(x: Array, dtype: str) -> Array:
    """x converted; floats out of an integer's range saturate, NaN gives 0, as when compiled."""
    target = numpy_dtype(dtype)
    source = dtype_name(x.dtype)
    with np.errstate(all="ignore"):
        if source in HALF:
            x = x.astype(np.float32)
        if dtype in HALF:
            return np.asarray(x.astype(np.float32).astype(target))
        if target.kind in "iu" and x.dtype.kind == "f":
            return _saturated(x, target)
        return np.asarray(x.astype(target))


def _saturated(x: Array, target: np.dtype[Any]) -> Array:
    info = np.iinfo(target)
    whole = np.where(np.isnan(x), 0, np.trunc(x)).astype(np.float64)
    high = whole >= 2.0 ** (
        info.bits - (target.kind == "i")
    )  # the float that the maximum rounds to
    low = whole < float(info.min)
    inside = np.where(high | low, 0, whole).astype(target)
    return np.asarray(np.where(high, info.max, np.where(low, info.min, inside)).astype(target))
