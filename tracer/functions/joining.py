"""Tensors put together, taken apart, repeated and padded, under the array API's names."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ops.dims import Dim
from ops.errors import ArgumentError, ShapeError, TraceError
from ops.slicing import END
from ops.types import is_floating, normalize_axis, short
from tracer.dispatch.apply import BUILDER, apply
from tracer.functions.creation import Size, as_sizes, as_tensor, fresh, stacked
from tracer.functions.elementwise import strong
from tracer.functions.movement import ints, reshape
from tracer.functions.promotion import prepare
from tracer.functions.public import public
from tracer.tensors.tensor import Tensor


def _operands(arrays: Any, name: str) -> list[Tensor]:
    if isinstance(arrays, Tensor | np.ndarray):
        arrays = unstack(arrays)
    if not isinstance(arrays, Sequence) or isinstance(arrays, str):
        raise ArgumentError(f"{name} takes a sequence of Tensors, got {type(arrays).__name__}")
    if not arrays:
        raise ShapeError(f"{name} needs at least one operand, got an empty sequence")
    return [strong(x) for x in prepare(*arrays)]


@public
def concat(arrays: Any, /, axis: int | None = 0) -> Tensor:
    """The operands one after the other along an axis, promoted to one type.

    All other sizes are equal. None: flattened first. Raises `ShapeError` where sizes differ and for no
    operands at all, `ArgumentError` for what is no sequence.

    >>> tracer.concat([[[1, 2]], [[3, 4]]], axis=0)
    tensor([[1, 2],
            [3, 4]])
    """
    tensors = _operands(arrays, "concat")
    if axis is None:
        tensors, axis = [reshape(t, (t.type.size,)) for t in tensors], 0
    return apply("Concat", *tensors, axis=axis)


@public
def stack(arrays: Any, /, axis: int = 0) -> Tensor:
    """The operands, all of one shape, side by side along a new axis, promoted to one type.

    Raises `ShapeError` where shapes differ and for no operands at all, `ArgumentError` for what is no
    sequence.

    >>> tracer.stack([[1, 2], [3, 4]], axis=1)
    tensor([[1, 3],
            [2, 4]])
    """
    return stacked(_operands(arrays, "stack"), axis)


def part(x: Tensor, axis: int, start: Size, stop: Size) -> Tensor:
    """x from start to before stop along an axis."""
    return apply("Slice", x, starts=(start,), ends=(stop,), axes=(axis,), steps=(1,))


@public
def unstack(x: Any, /, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices of x along an axis, without that axis.

    Views of x's element type. Raises `ShapeError` for an axis that x does not have.

    >>> tracer.unstack([[1, 2], [3, 4]])
    (tensor([1, 2]), tensor([3, 4]))
    """
    x = as_tensor(x)
    axis = normalize_axis(axis, x.ndim)
    size = x.type.shape[axis]
    if isinstance(size, Dim):
        raise ShapeError(
            f"unstack needs to know the size of axis {axis}, which is the symbol {size}"
        )
    return tuple(apply("Squeeze", part(x, axis, k, k + 1), axes=(axis,)) for k in range(size))


@public
def split(x: Any, /, indices_or_sections: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """Parts of x along an axis: as many equal ones, or cut at these positions (as numpy.split).

    Raises `ShapeError` where the axis has no such parts.

    Views of x's element type.

    >>> tracer.split([1, 2, 3, 4], [1, 3])
    (tensor([1]), tensor([2, 3]), tensor([4]))
    """
    x = as_tensor(x)
    axis = normalize_axis(axis, x.ndim)
    size = x.type.shape[axis]
    cuts = ints(indices_or_sections, "indices_or_sections")
    if not isinstance(indices_or_sections, int):
        bounds = [slice(a, b) for a, b in pairwise([0, *cuts, END])]
        if isinstance(size, int):
            bounds = [slice(*b.indices(size)[:2]) for b in bounds]
        return tuple(part(x, axis, b.start, b.stop) for b in bounds)
    (sections,) = cuts
    if sections < 1 or (isinstance(size, int) and size % sections):
        raise ShapeError(
            f"axis {axis} of {short(x.type)} does not split into {sections} equal parts; pass "
            "positions"
        )
    return split_sizes(x, (size // sections,) * sections, axis)


def split_sizes(x: Tensor, sizes: Sequence[Size], axis: int) -> tuple[Tensor, ...]:
    """Parts of x of these sizes along an axis."""
    result = BUILDER.op("Split", x, axis=axis, split=tuple(sizes))
    return result if isinstance(result, tuple) else (result,)


@public
def tile(x: Any, repetitions: int | Sequence[int], /) -> Tensor:
    """x as a whole, repeated along its last axes; more counts than axes add axes in front.

    The type stays.

    >>> tracer.tile([1, 2], (2, 2))
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    x = as_tensor(x)
    counts = as_sizes(repetitions)
    lead = max(len(counts) - x.ndim, 0)
    x = reshape(x, (1,) * lead + x.type.shape) if lead else x
    return apply("Tile", x, repeats=(1,) * (x.ndim - len(counts)) + counts)


@public
def repeat(x: Any, repeats: Any, /, axis: int | None = None) -> Tensor:
    """Every element (or slice along an axis) repeated in place, all or each so many times.

    None: of the elements in row-major order. The type stays. Raises `ShapeError` for as many counts as
    do not fit, `ArgumentError` for what is no count. A Tensor as `repeats` decides the result's size,
    so it raises `TraceError` in a trace.

    >>> tracer.repeat([1, 2], [3, 1])
    tensor([1, 1, 1, 2])
    """
    x = as_tensor(x)
    if axis is None:
        x, axis = reshape(x, (x.type.size,)), 0
    if isinstance(repeats, int | np.integer | Dim):
        return apply("Repeat", x, repeats=repeats, axis=axis)
    if isinstance(repeats, Tensor) and repeats.is_symbolic:
        raise TraceError(
            "repeat by a traced Tensor gives a size that is not known while the function is "
            "traced; pass integers"
        )
    counts = np.asarray(repeats)
    axis = normalize_axis(axis, x.ndim)
    if counts.dtype.kind not in "iu" or counts.ndim > 1 or (counts.size and int(counts.min()) < 0):
        raise ArgumentError(
            "repeats must be a count or a 1-d sequence of counts, all at least 0, got "
            f"{repeats!r:.60}"
        )
    size = x.type.shape[axis]
    if counts.ndim and counts.size not in (1, size):
        raise ShapeError(f"repeats holds {counts.size} counts for axis {axis} of {short(x.type)}")
    places = np.repeat(np.arange(size, dtype=np.int64), counts)
    return apply("Gather", x, fresh(places), axis=axis)


# ---- padding -------------------------------------------------------------------------------------

_MODES = ("edge", "reflect", "wrap")


@public
def pad(x: Any, /, pad_width: Any, mode: str = "constant", constant_values: float = 0.0) -> Tensor:
    """x with a border: one width for all sides, (before, after) for all axes, or a pair for each.

    Modes as in NumPy: "constant" (negative widths cut off), "edge", "reflect", "wrap". The type stays.
    Raises `ShapeError` for widths that do not fit x, `ArgumentError` for another mode.

    >>> tracer.pad([1, 2, 3], (1, 2), mode="edge")
    tensor([1, 1, 2, 3, 3, 3])
    """
    x = as_tensor(x)
    return padded(x, _widths(pad_width, x), mode, constant_values)


def _widths(pad_width: Any, x: Tensor) -> tuple[tuple[Size, Size], ...]:
    rank = x.ndim
    given = pad_width if isinstance(pad_width, Sequence) else (pad_width,)
    pairs = (
        [as_sizes(w) for w in given]
        if all(isinstance(w, Sequence) for w in given) and given
        else [as_sizes(given)]
    )
    pairs = [p * 2 if len(p) == 1 else p for p in pairs]
    if len(pairs) == 1:
        pairs *= rank
    if len(pairs) != rank or any(len(p) != 2 for p in pairs):
        raise ShapeError(
            f"pad_width must be (before, after) for each of {rank} axes, got {pad_width}"
        )
    return tuple((p[0], p[1]) for p in pairs)


def padded(x: Tensor, widths: Sequence[tuple[Size, Size]], mode: str, value: float) -> Tensor:
    """x with a border of (before, after) for each axis, in one of NumPy's modes."""
    pads = (*(before for before, _ in widths), *(after for _, after in widths))
    if mode == "constant":
        if not is_floating(x.type.dtype) and value != int(value):
            raise ArgumentError(f"the padding value {value} does not fit {short(x.type)}")
        return apply("Pad", x, pads=pads, value=value)
    if mode not in _MODES:
        raise ArgumentError(f'mode must be "constant", "edge", "reflect" or "wrap", got {mode!r}')
    return apply("PadBorder", x, pads=pads, mode=mode)


__all__ = ["concat", "pad", "repeat", "split", "stack", "tile", "unstack"]
