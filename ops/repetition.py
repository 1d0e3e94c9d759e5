"""Elements repeated, rolled and mirrored: composites of views, slices and gathers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.compute import Composite
from ops.dims import Dim
from ops.errors import ArgumentError, ShapeError
from ops.operator import (
    Application,
    Derived,
    ErrorSample,
    Expanded,
    Input,
    Ints,
    Sample,
    Sizes,
    operator,
)
from ops.slicing import part, split_pads
from ops.types import Type, normalize_axes, normalize_axis, short

Array = np.ndarray[Any, Any]
Size = int | Dim


def _require_counts(counts: Sizes) -> None:
    if any(isinstance(c, int) and c < 0 for c in counts):
        raise ShapeError(f"a count of repetitions is negative in {tuple(counts)}")


# ---- repetitions ---------------------------------------------------------------------------------


def _tile_type(x: Type, *, repeats: Sizes) -> Type:
    if len(repeats) != x.rank:
        raise ShapeError(
            f"repeats must hold one count for each of {x.rank} axes, got {len(repeats)}"
        )
    _require_counts(repeats)
    return Type(x.dtype, tuple(d * r for d, r in zip(x.shape, repeats, strict=True)), x.weak)


def _tile_rule(g: Any, n: Application) -> Any:
    shape, repeats = n.x.type.shape, n.attrs.repeats
    apart = tuple(size for d in shape for size in (1, d))
    wide = tuple(size for r, d in zip(repeats, shape, strict=True) for size in (r, d))
    whole = tuple(d * r for d, r in zip(shape, repeats, strict=True))
    return g.reshape(g.expand(g.reshape(n.x, apart), wide), whole)


@operator(
    "Tile",
    type_rule=_tile_type,
    compute=Composite(_tile_rule),
    vjp=Derived(),
    onnx=lambda g, n: g.op("Tile", n.x, g.shape(n.attrs.repeats)),
    samples=(
        Sample((Input((3, 4)),), {"repeats": (2, 1)}),
        Sample((Input((2, 3)),), {"repeats": (2, 3)}),
        Sample((Input((3,)),), {"repeats": (0,)}),
        Sample((Input((0, 2)),), {"repeats": (3, 2)}),
        Sample((Input(()),), {"repeats": ()}),
        Sample((Input((2, 6), layout="strided"),), {"repeats": (1, 2)}),
    ),
    errors=(
        ErrorSample((Type("float32", (2, 3)),), ShapeError, "each of 2 axes", {"repeats": (2,)}),
        ErrorSample((Type("float32", (2,)),), ShapeError, "negative", {"repeats": (-1,)}),
    ),
)
def tile(x: Array, *, repeats: Sizes) -> Array:
    """x as a whole, repeated along each axis."""
    return np.tile(x, tuple(int(r) for r in repeats))


def _repeat_type(x: Type, *, repeats: Size, axis: int) -> Type:
    axis = normalize_axis(axis, x.rank)
    _require_counts((repeats,))
    return Type(x.dtype, (*x.shape[:axis], x.shape[axis] * repeats, *x.shape[axis + 1 :]), x.weak)


def _repeat_shapes(n: Application) -> tuple[Sizes, Sizes, Sizes]:
    """x's shape with a 1 behind the repeated axis; counts along these axes; the result's shape."""
    shape, repeats = n.x.type.shape, n.attrs.repeats
    axis = normalize_axis(n.attrs.axis, len(shape))
    column = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    counts = tuple(repeats if k == axis + 1 else 1 for k in range(len(column)))
    return column, counts, (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :])


def _repeat_rule(g: Any, n: Application) -> Any:
    column, counts, whole = _repeat_shapes(n)
    wide = tuple(d * c for d, c in zip(column, counts, strict=True))
    return g.reshape(g.expand(g.reshape(n.x, column), wide), whole)


def _repeat_onnx(g: Any, n: Application) -> Any:
    column, counts, whole = _repeat_shapes(n)
    return g.reshape(g.op("Tile", g.reshape(n.x, column), g.shape(counts)), whole)


@operator(
    "Repeat",
    type_rule=_repeat_type,
    compute=Composite(_repeat_rule),
    vjp=Derived(),
    onnx=_repeat_onnx,
    samples=(
        Sample((Input((3, 4)),), {"repeats": 2, "axis": 0}),
        Sample((Input((2, 3)),), {"repeats": 3, "axis": -1}),
        Sample((Input((3,)),), {"repeats": 0, "axis": 0}),
        Sample((Input((0, 2)),), {"repeats": 3, "axis": 1}),
    ),
    errors=(
        ErrorSample((Type("float32"),), ShapeError, "out of range", {"repeats": 2, "axis": 0}),
        ErrorSample((Type("float32", (2,)),), ShapeError, "negative", {"repeats": -1, "axis": 0}),
    ),
)
def repeat(x: Array, *, repeats: int | Dim, axis: int) -> Array:
    """Every element of x, repeated in place along an axis."""
    return np.repeat(x, int(repeats), axis=axis)


# ---- rolls ---------------------------------------------------------------------------------------


def _roll_type(x: Type, *, shifts: Sizes, axes: Ints) -> Type:
    if len(shifts) != len(axes):
        raise ShapeError(f"each axis needs one shift, got {len(shifts)} for {len(axes)} axes")
    normalize_axes(axes, x.rank)
    return Type(x.dtype, x.shape, x.weak)


def _roll_rule(g: Any, n: Application) -> Any:
    """Two slices the other way round; where sizes are symbolic, elements at computed indices."""
    x = n.x
    for shift, axis in zip(n.attrs.shifts, n.attrs.axes, strict=True):
        axis = normalize_axis(axis, x.type.rank)
        size = x.type.shape[axis]
        if isinstance(size, int) and isinstance(shift, int):
            shift = shift % max(size, 1)
            if shift:
                parts = part(g, x, axis, size - shift, shift), part(g, x, axis, 0, size - shift)
                x = g.Concat(*parts, axis=axis)
        else:
            place = g.Sub(g.Iota(shape=(size,), axis=0, dtype="int64"), g.size(shift))
            x = g.Gather(x, g.Remainder(place, g.size(size)), axis=axis)
    return x


@operator(
    "Roll",
    type_rule=_roll_type,
    compute=Composite(_roll_rule),
    vjp=lambda g, n: (g.Roll(n.dy, shifts=tuple(-s for s in n.attrs.shifts), axes=n.attrs.axes),),
    onnx=Expanded(),
    samples=(
        Sample((Input((5,)),), {"shifts": (2,), "axes": (0,)}),
        Sample((Input((3, 4)),), {"shifts": (-1, 7), "axes": (0, 1)}),
        Sample((Input((3, 4)),), {"shifts": (4,), "axes": (-1,)}),
        Sample((Input((0, 2)),), {"shifts": (1,), "axes": (0,)}),
        Sample((Input((2, 6), layout="strided"),), {"shifts": (1,), "axes": (1,)}),
        Sample((Input(()),), {"shifts": (), "axes": ()}),
    ),
    errors=(
        ErrorSample(
            (Type("float32", (2,)),), ShapeError, "one shift", {"shifts": (), "axes": (0,)}
        ),
        ErrorSample(
            (Type("float32", (2,)),), ShapeError, "named twice", {"shifts": (1, 1), "axes": (0, -1)}
        ),
    ),
)
def roll(x: Array, *, shifts: Sizes, axes: Ints) -> Array:
    """Elements moved towards the end along axes by shifts; what falls off enters in front."""
    return np.roll(x, tuple(int(s) for s in shifts), axis=axes) if axes else x


# ---- borders made of the elements themselves -----------------------------------------------------

_MODES = ("edge", "reflect", "wrap")


def _border_type(x: Type, *, pads: Sizes, mode: str) -> Type:
    if mode not in _MODES:
        raise ArgumentError(f"mode must be one of {', '.join(_MODES)}, got {mode!r}")
    before, after = split_pads(pads, x.rank)
    for axis, (low, size, high) in enumerate(zip(before, x.shape, after, strict=True)):
        for p in (low, high):
            if isinstance(p, int) and p < 0:
                raise ShapeError(f"a pad is negative in {tuple(pads)}; slice to cut off")
            if isinstance(p, int) and isinstance(size, int):
                most = {"reflect": max(size - 1, 0), "wrap": size, "edge": p if size else 0}[mode]
                if p > most:
                    raise ShapeError(
                        f"axis {axis} of {short(x)} gives at most {most} elements to a border "
                        f"in mode {mode!r}, got {p}"
                    )
    return Type(x.dtype, tuple(b + d + a for b, d, a in zip(before, x.shape, after, strict=True)))


def _border_rule(g: Any, n: Application) -> Any:
    x, rank = n.x, n.x.type.rank
    before, after = split_pads(n.attrs.pads, rank)
    for axis, (low, size, high) in enumerate(zip(before, x.type.shape, after, strict=True)):
        if low == 0 and high == 0:
            continue
        place = g.Iota(shape=(low + size + high,), axis=0, dtype="int64")
        place = g.Sub(place, g.size(low))
        zero, one, count = g.like(0, place), g.like(1, place), g.size(size)
        last = g.Sub(count, one)
        if n.attrs.mode == "edge":
            place = g.Where(g.Less(place, zero), zero, place)
            place = g.Where(g.Less(last, place), last, place)
        elif n.attrs.mode == "reflect":
            place = g.Where(g.Less(place, zero), g.Sub(zero, place), place)
            place = g.Where(g.Less(last, place), g.Sub(g.Add(last, last), place), place)
        else:
            place = g.Where(
                g.Less(last, place), g.Sub(place, count), place
            )  # negative: from the end
        x = g.Gather(x, place, axis=axis)
    return x


def _border_onnx(g: Any, n: Application) -> Any:
    if n.x.type.rank == 0:
        return n.x
    return g.op("Pad", n.x, g.shape(n.attrs.pads), mode=n.attrs.mode)


@operator(
    "PadBorder",
    type_rule=_border_type,
    compute=Composite(_border_rule),
    vjp=Derived(),
    onnx=_border_onnx,
    samples=(
        Sample((Input((3, 4)),), {"pads": (1, 2, 2, 3), "mode": "reflect"}),
        Sample((Input((3, 4)),), {"pads": (0, 2, 5, 0), "mode": "edge"}),
        Sample((Input((3, 4)),), {"pads": (3, 1, 0, 4), "mode": "wrap"}),
        Sample((Input((0, 2)),), {"pads": (0, 1, 0, 0), "mode": "reflect"}),
        Sample((Input((1, 6), layout="strided"),), {"pads": (2, 0, 1, 1), "mode": "edge"}),
        Sample((Input(()),), {"pads": (), "mode": "wrap"}),
    ),
    errors=(
        ErrorSample(
            (Type("float32", (3,)),), ShapeError, "at most 2", {"pads": (3, 0), "mode": "reflect"}
        ),
        ErrorSample(
            (Type("float32", (3,)),), ShapeError, "at most 3", {"pads": (0, 4), "mode": "wrap"}
        ),
        ErrorSample(
            (Type("float32", (0,)),), ShapeError, "at most 0", {"pads": (0, 1), "mode": "edge"}
        ),
        ErrorSample(
            (Type("float32", (3,)),), ShapeError, "negative", {"pads": (-1, 0), "mode": "edge"}
        ),
        ErrorSample(
            (Type("float32", (3,)),),
            ArgumentError,
            "must be one of",
            {"pads": (1, 0), "mode": "zero"},
        ),
    ),
)
def pad_border(x: Array, *, pads: Sizes, mode: str) -> Array:
    """x with borders made of its own elements.

    They repeat the edge ("edge"), mirror what is behind it ("reflect"), or go on from the other
    end ("wrap").

    pads are the sizes before every axis, then behind, at most one less than the axis (reflect) or
    the axis (wrap).
    """
    before, after = (tuple(int(p) for p in side) for side in split_pads(pads, x.ndim))
    widths = tuple(zip(before, after, strict=True))
    return np.asarray(np.pad(x, widths, mode=mode)) if x.ndim else x  # type: ignore[call-overload]
