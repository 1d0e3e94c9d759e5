"""Parts of an array and arrays put together: slices, pads, concatenation, splits.

Starts, ends and pads may be symbolic sizes. A negative integer counts from the end; a symbolic
start or end is taken to be at least 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ops import dims, rules
from ops.compute import Attributes, Composite, Concatenation, Gather, Index, Strided, View
from ops.dims import Dim
from ops.errors import ShapeError
from ops.operator import Application, ErrorSample, Expanded, Input, Ints, Sample, Sizes, operator
from ops.types import FLOATING, Type, normalize_axis, short

Array = np.ndarray[Any, Any]
Size = int | Dim

END = 2**63 - 1  # an end behind every element; its negative lies before the first one


def _from_front(position: Size, size: Size) -> Size:
    return position + size if isinstance(position, int) and position < 0 else position


def extent(start: Size, end: Size, step: int, size: Size) -> tuple[Size, Size]:
    """First position and number of elements of a slice of `size` elements, clipped as Python's."""
    if step > 0:
        first = dims.maximum(_from_front(start, size), 0)
        last = size if end == END else dims.minimum(_from_front(end, size), size)
        return first, (dims.maximum(last - first, 0) + step - 1) // step
    first = dims.minimum(_from_front(start, size), size - 1)
    last = -1 if end == -END - 1 else dims.maximum(_from_front(end, size), -1)
    return first, (dims.maximum(first - last, 0) - step - 1) // -step


def extents(shape: Sequence[Size], attrs: Any) -> list[tuple[int, Size, Size, int]]:
    """Axis, first position, number of elements and step of each sliced axis."""
    found = []
    for start, end, axis, step in zip(
        attrs["starts"], attrs["ends"], attrs["axes"], attrs["steps"], strict=True
    ):
        axis = normalize_axis(axis, len(shape))
        found.append((axis, *extent(start, end, step, shape[axis]), step))
    return found


def slice_type(x: Type, *, starts: Sizes, ends: Sizes, axes: Ints, steps: Ints) -> Type:
    """The type of a slice."""
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ShapeError(
            "starts, ends, axes and steps must be of one length, got "
            f"{len(starts)}, {len(ends)}, {len(axes)} and {len(steps)}"
        )
    if 0 in steps:
        raise ShapeError("a step is 0; use a positive one, or a negative one to go backwards")
    if len({normalize_axis(a, x.rank) for a in axes}) != len(axes):
        raise ShapeError(f"an axis is named twice in {tuple(axes)}")
    shape = list(x.shape)
    attrs = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    for axis, _, size, _ in extents(x.shape, attrs):
        shape[axis] = size
    return Type(x.dtype, tuple(shape), x.weak)


def slice_layout(layout: Strided, shape: tuple[int, ...], attrs: Attributes) -> Strided:
    """Where a slice lies in the buffer of its operand."""
    strides, offset = list(layout.strides), layout.offset
    for axis, first, _, step in extents(layout.shape, attrs):
        if 0 not in shape:
            offset += int(first) * layout.strides[axis]
        strides[axis] = layout.strides[axis] * step
    return Strided(shape, tuple(strides), offset)


def _reversed(g: Any, x: Any, axes: Ints) -> Any:
    if not axes:
        return x
    ones = (-1,) * len(axes)
    return g.Slice(x, starts=ones, ends=(-END - 1,) * len(axes), axes=axes, steps=ones)


def _slice_vjp(g: Any, n: Application) -> Any:
    """dy put back between zeros.

    Backwards where the step is negative, spread out by the step, padded to x's shape.
    """
    shape, found = n.x.type.shape, extents(n.x.type.shape, n.attrs)
    dy = _reversed(g, n.dy, tuple(axis for axis, _, _, step in found if step < 0))
    spread = {axis: abs(step) for axis, _, _, step in found if abs(step) != 1}
    sizes = dy.type.shape
    if spread:  # a, b -> a, 0, b, 0 by an axis of zeros behind every element
        apart: list[Size] = []
        zeros: list[Size] = []
        for k, size in enumerate(sizes):
            apart += [size, 1] if k in spread else [size]
            zeros += [0, spread[k] - 1] if k in spread else [0]
        dy = g.Pad(g.reshape(dy, tuple(apart)), pads=(*(0 for _ in zeros), *zeros))
        sizes = tuple(size * spread.get(k, 1) for k, size in enumerate(sizes))
        dy = g.reshape(dy, sizes)
    before: list[Size] = [0] * len(shape)
    for axis, first, size, step in found:
        lowest = first if step > 0 else first + (size - 1) * step
        before[axis] = 0 if size == 0 else lowest
    after = tuple(d - b - s for d, b, s in zip(shape, before, sizes, strict=True))
    if any(p != 0 for p in (*before, *after)):
        dy = g.Pad(dy, pads=(*before, *after))
    return (dy,)


def slice_onnx(g: Any, n: Application) -> Any:
    """ONNX's Slice.

    A slice backwards from -k is taken of what ends there, x[:1-k]: ONNX clips a start before the first element to the first
    one, where Python finds no elements.
    """
    if not n.attrs.axes:
        return n.x
    x, starts, ends = n.x, list(n.attrs.starts), list(n.attrs.ends)
    steps = n.attrs.steps
    for k, (start, end, step) in enumerate(zip(starts, ends, steps, strict=True)):
        if step > 0 or not isinstance(start, int) or start >= -1:
            continue
        axis = g.ints((n.attrs.axes[k],))
        x = g.op("Slice", x, g.ints((0,)), g.ints((max(start + 1, -END),)), axis)
        starts[k] = -1
        if isinstance(end, int) and -END <= end < 0:
            ends[k] = min(end - start - 1, -1)
    axes = g.ints(n.attrs.axes)
    return g.op("Slice", x, g.shape(starts), g.shape(ends), axes, g.ints(steps))


def _sliced(starts: Ints, ends: Ints, axes: Ints, steps: Ints | None = None) -> dict[str, Ints]:
    return {"starts": starts, "ends": ends, "axes": axes, "steps": steps or (1,) * len(axes)}


@operator(
    "Slice",
    type_rule=slice_type,
    compute=View(slice_layout),
    vjp=_slice_vjp,
    onnx=slice_onnx,
    samples=(
        Sample((Input((5, 7)),), _sliced((1,), (4,), (0,))),
        Sample((Input((5, 7)),), _sliced((1, 2), (END, -1), (0, 1), (2, 3))),
        Sample((Input((5, 7)),), _sliced((-1,), (-END - 1,), (1,), (-1,))),
        Sample((Input((5, 7)),), _sliced((-2, 3), (0, -END - 1), (-1, 0), (-2, -1))),
        Sample((Input((5, 7)),), _sliced((3,), (3,), (1,))),
        Sample((Input((5, 7)),), _sliced((-100, 2), (100, 1), (0, 1))),
        Sample((Input((5, 7)),), _sliced((5,), (-100,), (0,), (-3,))),
        Sample((Input((5, 7)),), _sliced((-9, -3), (-END - 1, -6), (0, 1), (-1, -2))),
        Sample((Input((4, 6), layout="strided"),), _sliced((1,), (6,), (1,), (2,))),
        Sample((Input((0, 3)),), _sliced((1, -1), (9, -END - 1), (1, 0), (1, -1))),
        Sample((Input(()),), _sliced((), (), ())),
    ),
    errors=(
        ErrorSample(
            (Type("float32", (3,)),), ShapeError, "step is 0", _sliced((0,), (1,), (0,), (0,))
        ),
        ErrorSample(
            (Type("float32", (3,)),), ShapeError, "out of range", _sliced((0,), (1,), (1,))
        ),
        ErrorSample(
            (Type("float32", (3,)),), ShapeError, "named twice", _sliced((0, 0), (1, 1), (0, -1))
        ),
        ErrorSample((Type("float32", (3,)),), ShapeError, "one length", _sliced((0,), (), (0,))),
    ),
)
def slice_(x: Array, *, starts: Sizes, ends: Sizes, axes: Ints, steps: Ints) -> Array:
    """Elements from start to before end by step, along some axes, clipped as Python's slices are.

    Negative starts and ends count from the end. A step of -1 from -1 to the least integer reverses
    an axis.
    """
    chosen = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        chosen[axis % x.ndim] = slice(int(start), int(end), step)
    return np.asarray(x[tuple(chosen)])


# ---- padding -------------------------------------------------------------------------------------


def split_pads(pads: Sizes, rank: int) -> tuple[Sizes, Sizes]:
    """Sizes before and behind each axis. Raises `ShapeError` unless there are two for each axis."""
    if len(pads) != 2 * rank:
        raise ShapeError(
            f"pads must hold 2 * {rank} sizes (before each axis, then behind each), got {len(pads)}"
        )
    return pads[:rank], pads[rank:]


def _pad_type(x: Type, *, pads: Sizes, value: float) -> Type:
    before, after = split_pads(pads, x.rank)
    shape = tuple(b + d + a for b, d, a in zip(before, x.shape, after, strict=True))
    for axis, size in enumerate(shape):
        if isinstance(size, int) and size < 0:
            raise ShapeError(f"pads take more than the {x.shape[axis]} elements off axis {axis}")
    return Type(x.dtype, shape, x.weak)


def _pad_indices(types: Sequence[Type], result: Type, attrs: Attributes) -> tuple[Index, ...]:
    return tuple(Index(axis=k, offset=-int(attrs["pads"][k])) for k in range(result.rank))


def _pad_vjp(g: Any, n: Application) -> Any:
    before, after = split_pads(n.attrs.pads, n.x.type.rank)
    return (g.Pad(n.dy, pads=tuple(-p for p in (*before, *after))),)


def _pad_onnx(g: Any, n: Application) -> Any:
    if n.x.type.rank == 0:
        return n.x
    if not n.attrs.pads:
        return n.x  # 0-d: ONNX Runtime refuses to pad it
    return g.op("Pad", n.x, g.shape(n.attrs.pads), g.like(n.attrs.value, n.x), mode="constant")


@operator(
    "Pad",
    type_rule=_pad_type,
    compute=Gather(_pad_indices, fill="value"),
    vjp=_pad_vjp,
    onnx=_pad_onnx,
    samples=(
        Sample((Input((3, 4)),), {"pads": (1, 0, 0, 2)}),
        Sample((Input((3, 4)),), {"pads": (2, 1, 0, 3), "value": 1.0}),
        Sample((Input((5, 6)),), {"pads": (-1, 2, -2, -1)}),
        Sample((Input((4, 6), layout="strided"),), {"pads": (0, 1, 1, 0)}),
        Sample((Input((0, 2)),), {"pads": (1, 0, 1, 0)}),
        Sample((Input(()),), {"pads": ()}),
        Sample(
            (Input((3,)),),
            {"pads": (1, 1), "value": float("-inf")},
            dtypes=FLOATING,
            gradient=False,
        ),
    ),
    errors=(
        ErrorSample((Type("float32", (3, 4)),), ShapeError, "must hold 2 * 2", {"pads": (1, 1)}),
        ErrorSample((Type("float32", (3,)),), ShapeError, "more than the 3", {"pads": (-2, -2)}),
    ),
)
def pad(x: Array, *, pads: Sizes, value: float = 0.0) -> Array:
    """x with `value` before and behind each axis.

    pads are the sizes before every axis, then behind; negative ones cut off.
    """
    before, after = (tuple(int(p) for p in side) for side in split_pads(pads, x.ndim))
    shape = tuple(b + d + a for b, d, a in zip(before, x.shape, after, strict=True))
    result = np.full(shape, np.asarray(value).astype(x.dtype), x.dtype)
    inside, kept = [], []
    for b, d, a in zip(before, x.shape, after, strict=True):
        count = max(d + min(b, 0) + min(a, 0), 0)
        inside.append(slice(max(b, 0), max(b, 0) + count))
        kept.append(slice(max(-b, 0), max(-b, 0) + count))
    if 0 not in shape:
        result[tuple(inside)] = x[tuple(kept)]
    return result


# ---- concatenation and splits --------------------------------------------------------------------


def _concat_type(*types: Type, axis: int) -> Type:
    if not types:
        raise ShapeError("there is nothing to concatenate; pass at least one operand")
    dtype, first = rules.same_dtype(*types), types[0]
    axis = normalize_axis(axis, first.rank)
    for t in types:
        if (*t.shape[:axis], *t.shape[axis + 1 :]) != (
            *first.shape[:axis],
            *first.shape[axis + 1 :],
        ):
            listed = ", ".join(short(t) for t in types)
            raise ShapeError(f"shapes must be equal but for axis {axis}, got {listed}")
    size = total(tuple(t.shape[axis] for t in types))
    return Type(dtype, (*first.shape[:axis], size, *first.shape[axis + 1 :]))


def total(sizes: Sizes) -> Size:
    """The sum of sizes."""
    return sum(sizes, start=0)


def part(g: Any, x: Any, axis: int, start: Size, size: Size) -> Any:
    """`size` elements of x from `start` on, along an axis."""
    return g.Slice(x, starts=(start,), ends=(start + size,), axes=(axis,), steps=(1,))


def _parts(g: Any, x: Any, axis: int, sizes: Sizes) -> tuple[Any, ...]:
    starts = (total(sizes[:k]) for k in range(len(sizes)))
    return tuple(part(g, x, axis, a, size) for a, size in zip(starts, sizes, strict=True))


def _concat_vjp(g: Any, n: Application) -> Any:
    axis = n.attrs.axis
    sizes = tuple(x.type.shape[axis] for x in n.inputs)
    starts = [total(sizes[:k]) for k in range(len(sizes))]
    return tuple(
        part(g, n.dy, axis, start, size) if needed else None
        for start, size, needed in zip(starts, sizes, n.needs, strict=True)
    )


@operator(
    "Concat",
    type_rule=_concat_type,
    compute=Concatenation(),
    vjp=_concat_vjp,
    onnx=lambda g, n: g.op("Concat", *n.inputs, axis=n.attrs.axis),
    samples=(
        Sample((Input((3, 4)), Input((3, 2))), {"axis": 1}),
        Sample((Input((3, 4)), Input((1, 4)), Input((2, 4))), {"axis": 0}),
        Sample((Input((2, 3, 4)), Input((2, 1, 4))), {"axis": -2}),
        Sample((Input((5,)),), {"axis": 0}),
        Sample((Input((0, 3)), Input((2, 3)), Input((0, 3))), {"axis": 0}),
        Sample((Input((4, 6), layout="strided"), Input((4, 1))), {"axis": 1}),
    ),
    errors=(
        ErrorSample((), ShapeError, "nothing to concatenate", {"axis": 0}),
        ErrorSample(
            (Type("float32", (2, 3)), Type("float32", (3, 2))),
            ShapeError,
            "equal but for axis 0",
            {"axis": 0},
        ),
        ErrorSample((Type("float32"), Type("float32")), ShapeError, "out of range", {"axis": 0}),
    ),
)
def concat(*inputs: Array, axis: int) -> Array:
    """The operands one after the other along an axis; all other sizes are equal."""
    return np.concatenate(inputs, axis=axis)


def _split_type(x: Type, *, axis: int, split: Sizes) -> tuple[Type, ...]:
    axis = normalize_axis(axis, x.rank)
    if any(isinstance(s, int) and s < 0 for s in split):
        raise ShapeError(f"a size is negative in {tuple(split)}")
    if not split or total(split) != x.shape[axis]:
        sizes = ", ".join(map(str, split))
        raise ShapeError(f"sizes ({sizes}) do not add up to axis {axis} of {short(x)}")
    return tuple(Type(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :])) for size in split)


def _split_rule(g: Any, n: Application) -> Any:
    parts = _parts(g, n.x, n.attrs.axis, n.attrs.split)
    return parts if len(parts) > 1 else parts[0]


def _split_vjp(g: Any, n: Application) -> Any:
    parts = (
        g.zeros(y.type) if c is None else c for y, c in zip(n.outputs, n.cotangents, strict=True)
    )
    return (g.Concat(*parts, axis=n.attrs.axis),)


@operator(
    "Split",
    type_rule=_split_type,
    compute=Composite(_split_rule, views=True),
    vjp=_split_vjp,
    onnx=Expanded(),
    samples=(
        Sample((Input((3, 7)),), {"axis": 1, "split": (2, 4, 1)}),
        Sample((Input((4, 3)),), {"axis": -2, "split": (2, 2)}),
        Sample((Input((4,)),), {"axis": 0, "split": (0, 4)}),
        Sample((Input((3,)),), {"axis": 0, "split": (3,)}),
        Sample((Input((2, 0)),), {"axis": 1, "split": (0, 0)}),
    ),
    errors=(
        ErrorSample(
            (Type("float32", (5,)),), ShapeError, "do not add up", {"axis": 0, "split": (2, 2)}
        ),
        ErrorSample(
            (Type("float32", (1,)),), ShapeError, "negative", {"axis": 0, "split": (2, -1)}
        ),
        ErrorSample(
            (Type("float32", (5,)),), ShapeError, "out of range", {"axis": 1, "split": (5,)}
        ),
    ),
)
def split_(x: Array, *, axis: int, split: Sizes) -> Any:
    """Parts of x along an axis, of the sizes in `split`, which add up to the axis."""
    ends = np.cumsum([int(s) for s in split])
    parts = tuple(np.split(x, ends[:-1], axis=axis))
    return parts if len(parts) > 1 else parts[0]
