"""What stands in brackets: x[...] and x[...] = value, with NumPy's meaning.

Integers, slices, None and Ellipsis select parts that an eager result shares with its operand;
integer arrays gather; bool masks need their elements, so they work outside of traces only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ops.dims import Dim
from ops.errors import ArgumentError, BoundsError, ShapeError, TraceError
from ops.indexing import checked
from ops.operator import Application, lookup
from ops.slicing import END
from ops.types import broadcast_shapes, short
from tracer.dispatch import BUILDER, apply, constant
from tracer.functions.creation import as_tensor, cast, fresh
from tracer.functions.indexing import Size, as_indices, linear_index, where_true
from tracer.functions.mutation import change, copy_into, require_changeable, writeable
from tracer.functions.public import public
from tracer.modes import MODES, no_grad
from tracer.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Item:
    """One part of a subscript: a new axis (axis None), or what is taken along an axis.

    Int, slice, or Tensor of indices.
    """

    axis: int | None
    what: Any = None


# ---- reading a subscript -------------------------------------------------------------------------


class Items(list[Item]):
    """The items of a subscript. `gap`: before which one an ellipsis stands for no axes; None: none does."""

    gap: int | None = None

    def apart(self, places: Sequence[int]) -> bool:
        """Whether something stands between these items, be it an ellipsis that stands for no axes."""
        inside = self.gap is not None and places[0] < self.gap <= places[-1]
        return inside or places[-1] - places[0] + 1 != len(places)


def items_of(x: Tensor, key: Any, size: Size | None = None) -> Items:
    """The parts of a subscript, one for each axis of x and each new axis, in order.

    `size`: how many elements of its masks are True, which a trace cannot know.
    """
    items = Items()
    axis = 0
    for part in parts_of(x, key):
        if part is Ellipsis:
            items.gap = len(items)
            continue
        if part is None:
            items.append(Item(None))
            continue
        if isinstance(part, Mask):
            items += part.items(x, axis, size)
            axis += part.mask.ndim
            continue
        if isinstance(part, int):
            _check(part, x, axis)
        items.append(Item(axis, part))
        axis += 1
    return items


def parts_of(x: Tensor, key: Any) -> list[Any]:
    """The parts of a subscript, a slice for each axis that it leaves out.

    None, ints, slices, Tensors of indices, masks, and an ellipsis that stands for no axes.
    """
    parts = [_plain(part) for part in (key if isinstance(key, tuple) else (key,))]
    taken = sum(_axes_taken(part) for part in parts)
    if parts.count(Ellipsis) > 1:
        raise BoundsError("a subscript holds more than one ellipsis (...)")
    if taken > x.ndim:
        raise BoundsError(
            f"too many indices: {short(x.type)} has {x.ndim} axes, the subscript takes {taken}"
        )
    if Ellipsis not in parts:
        parts.append(Ellipsis)
    if taken < x.ndim:
        place = parts.index(Ellipsis)
        parts[place : place + 1] = [slice(None)] * (x.ndim - taken)
    return parts


class Mask:
    """A bool Tensor in a subscript: the indices where it holds."""

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def check(self, x: Tensor, axis: int) -> None:
        """Raise `BoundsError` unless it has the shape of x's axes from `axis` on."""
        expected = x.type.shape[axis : axis + self.mask.ndim]
        if self.mask.type.shape != expected:
            raise BoundsError(
                f"the mask has shape {self.mask.type.shape}, but the axes of {short(x.type)} that "
                f"it masks have {expected}"
            )

    def items(self, x: Tensor, axis: int, size: Size | None) -> list[Item]:
        """Its indices for the axes from `axis` on."""
        self.check(x, axis)
        return [Item(axis + k, where) for k, where in enumerate(where_true(self.mask, size))]


def _plain(part: Any) -> Any:
    """A part of a subscript as None, Ellipsis, int, slice, mask or Tensor of indices."""
    if part is None or part is Ellipsis or isinstance(part, slice):
        return part
    if isinstance(part, bool | np.bool_):
        raise ArgumentError(
            "x[True] and x[False] are not offered; use x[None], or an empty slice x[:0]"
        )
    if isinstance(part, int | np.integer):
        return int(part)
    if isinstance(part, list | tuple | np.ndarray | Tensor):
        if isinstance(part, list | tuple) and not np.size(part):
            return as_indices(part)
        indices = as_tensor(part)
        if indices.type.dtype == "bool":
            if not indices.ndim:
                raise ArgumentError("a bool without axes selects nothing; use tracer.where")
            return Mask(indices)
        indices = as_indices(indices)
        if indices.ndim == 0 and not indices.is_symbolic and MODES.recorder is None:
            return int(indices.array)
        return indices
    if hasattr(part, "__index__"):
        return int(part.__index__())
    raise ArgumentError(
        "a subscript holds integers, slices, None, ..., arrays of integers and bool masks; got "
        f"{type(part).__name__}: {part!r:.40}"
    )


def _axes_taken(part: Any) -> int:
    if part is None or part is Ellipsis:
        return 0
    return part.mask.ndim if isinstance(part, Mask) else 1


def _check(index: int, x: Tensor, axis: int) -> None:
    size = x.type.shape[axis]
    if isinstance(size, int) and not -size <= index < size:
        possible = f"possible: {-size} to {size - 1}" if size else "the axis has no elements"
        raise BoundsError(
            f"index {index} is out of range for axis {axis} of {short(x.type)}; {possible}"
        )


def bounds_of(part: slice) -> tuple[Any, Any, int]:
    """Start, end and step as the Slice operator takes them."""
    step = 1 if part.step is None else _whole(part.step)
    if step == 0:
        raise ShapeError(
            "a slice's step is 0; use a positive one, or a negative one to go backwards"
        )
    start = (0 if step > 0 else -1) if part.start is None else _whole(part.start)
    end = (END if step > 0 else -END - 1) if part.stop is None else _whole(part.stop)
    return start, end, int(step)


def _whole(x: Any) -> Any:
    if isinstance(x, Dim):
        return x
    if not hasattr(x, "__index__"):
        raise ArgumentError(f"slices are made of integers, got {type(x).__name__}: {x!r:.40}")
    return max(-END - 1, min(END, x.__index__()))


# ---- x[key] --------------------------------------------------------------------------------------


@public
def get_item(x: Tensor, key: Any, size: Size | None = None) -> Tensor:
    """x[key]. Raises `BoundsError` for indices out of range, `TraceError` for a mask in a trace.

    `size`: how many elements of the mask are True; with it, a trace records masks too.
    """
    items = items_of(x, key, size)
    if any(isinstance(item.what, Tensor) for item in items):
        return _gathered(x, items)
    result, dropped = _sliced(x, items)
    axes = [item for item in items if item.axis is None or item.axis not in dropped]
    new = tuple(k for k, item in enumerate(axes) if item.axis is None)
    return apply("Unsqueeze", result, axes=new) if new else result


def _sliced(x: Tensor, items: Sequence[Item]) -> tuple[Tensor, set[int | None]]:
    """x with its slices and integers taken; the axes that integers took away."""
    result = x
    starts, ends, steps, axes, single, symbolic = [], [], [], [], [], []
    for item in items:
        if item.axis is None:
            continue
        if isinstance(item.what, int):
            if isinstance(x.type.shape[item.axis], Dim):
                symbolic.append(item)
                continue
            start, end, step = item.what, item.what + 1 or END, 1
            single.append(item.axis)
        elif item.what == slice(None):
            continue
        else:
            start, end, step = bounds_of(item.what)
        starts.append(start)
        ends.append(end)
        steps.append(step)
        axes.append(item.axis)
    if axes:
        result = apply(
            "Slice",
            result,
            starts=tuple(starts),
            ends=tuple(ends),
            axes=tuple(axes),
            steps=tuple(steps),
        )
    for item in reversed(symbolic):  # whether the index is in range is seen when the program runs
        result = apply("Gather", result, fresh(np.asarray(item.what, np.int64)), axis=item.axis)
    gone = {item.axis for item in symbolic}
    left = tuple(axis - sum(g < axis for g in gone if g is not None) for axis in single)
    if left:
        result = apply("Squeeze", result, axes=left)
    if result is x:
        result = apply("Reshape", x, shape=x.type.shape)
    return result, gone | set(single)


def _gathered(x: Tensor, items: Items) -> Tensor:
    """With index arrays: slices first, then all indices at once; integers are indices too."""
    slices = [item for item in items if isinstance(item.what, slice)]
    result, _ = _sliced(x, slices)
    new = tuple(k for k, item in enumerate(items) if item.axis is None)
    if new:
        result = apply("Unsqueeze", result, axes=new)
    places, indices = indices_of(x, items)
    if len(places) == 1:
        found: Tensor = apply("Gather", result, indices[0], axis=places[0])
        return found
    return _gathered_together(result, places, indices, items.apart(places))


def indices_of(x: Tensor, items: Sequence[Item]) -> tuple[list[int], list[Tensor]]:
    """Which items are integers or indices, and these as Tensors; eager ones are in range."""
    places = [k for k, item in enumerate(items) if isinstance(item.what, int | Tensor)]
    indices = []
    for k in places:
        what, axis = items[k].what, items[k].axis
        index = fresh(np.asarray(what, np.int64)) if isinstance(what, int) else what
        if MODES.recorder is None and axis is not None:
            checked(index.array, int(x.type.shape[axis]), axis)
        indices.append(index)
    return places, indices


def _gathered_together(x: Tensor, places: list[int], indices: list[Tensor], apart: bool) -> Tensor:
    """Several axes indexed together: they are made one.

    Their result stands in their place, or first if they are apart.
    """
    if apart:
        x, places = apply("Transpose", x, perm=first_of(x, places)), list(range(len(places)))
    common_shape(indices)
    sizes = [x.type.shape[k] for k in places]
    total: Any = 1
    for size in sizes:
        total = total * size
    first, last = places[0], places[-1]
    flat = apply("Reshape", x, shape=(*x.type.shape[:first], total, *x.type.shape[last + 1 :]))
    result: Tensor = apply("Gather", flat, linear_index(indices, sizes), axis=first)
    return result


def first_of(x: Tensor, places: list[int]) -> tuple[int, ...]:
    """The order of axes in which some come first."""
    return (*places, *(k for k in range(x.ndim) if k not in places))


def common_shape(indices: Sequence[Tensor]) -> tuple[Size, ...]:
    """The shape of index arrays together. Raises `BoundsError` if they do not broadcast."""
    try:
        return broadcast_shapes(*(i.type.shape for i in indices))
    except ShapeError as error:
        raise BoundsError(f"index arrays of one subscript must broadcast: {error}") from None


# ---- x[key] = value ------------------------------------------------------------------------------


@public
def set_item(x: Tensor, key: Any, value: Any) -> None:
    """x[key] = value, broadcast and converted to x's element type.

    With a gradient through x and value, and through all views of x. Eager: every key that x[key]
    takes. In a trace: integers, slices, None, ..., and masks of x's shape with one value.
    """
    new = as_tensor(value)
    recorded = require_changeable(x, (new,))
    if MODES.recorder is None and not recorded:
        _assign_elements(x, key, new)
        return
    if not _is_basic(key):
        change(x, lambda old, part: _updated(old, key, cast(part, old.type.dtype)), new)
        return
    part = get_item(x, key)
    try:
        copy_into(part, new)
    except ShapeError:
        raise _misfit(new, x, part.type.shape) from None


def _is_basic(key: Any) -> bool:
    """Whether x[key] is a view: integers, slices, None and ... only."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(
        part is None
        or part is Ellipsis
        or isinstance(part, slice)
        or (
            hasattr(part, "__index__")
            and not isinstance(part, bool | np.bool_ | np.ndarray | Tensor)
        )
        for part in parts
    )


def _assign_elements(x: Tensor, key: Any, value: Tensor) -> None:
    """The same in memory, where no gradient is concerned."""
    with no_grad():
        new = cast(value, x.type.dtype)
    target = writeable(x)
    parts = key if isinstance(key, tuple) else (key,)
    plain = tuple(part.array if isinstance(part, Tensor) else part for part in parts)
    try:
        target[plain] = new.array
    except IndexError as error:
        raise BoundsError(f"{short(x.type)}: {error}") from None
    except ValueError:
        hole = target[plain].shape
        raise _misfit(new, x, hole) from None
    x.count_change()


def _misfit(value: Tensor, x: Tensor, hole: tuple[Any, ...]) -> ShapeError:
    return ShapeError(
        f"a value of shape {value.shape} does not broadcast to the part of {short(x.type)}, whose "
        f"shape is {hole}"
    )


def _updated(x: Tensor, key: Any, value: Tensor) -> Tensor:
    """x with a part replaced, as a new value.

    The value spread between zeros, taken where the part is.
    """
    if isinstance(key, Tensor | np.ndarray) and as_tensor(key).type.dtype == "bool":
        mask = as_tensor(key)
        if mask.ndim <= x.ndim and mask.type.shape == x.type.shape[: mask.ndim] and value.ndim == 0:
            shape = mask.type.shape + (1,) * (x.ndim - mask.ndim)
            result: Tensor = apply("Where", BUILDER.reshape(mask, shape), value, x)
            return result
        raise TraceError(
            "x[mask] = value in a trace needs a mask of x's shape and one value; use tracer.where "
            "for others"
        )
    items = items_of(x, key)
    if any(isinstance(item.what, Tensor) for item in items):
        raise TraceError(
            "x[indices] = value with index arrays is not recorded; use tracer.index_add or "
            "scatter_add, or tracer.where"
        )
    if any(isinstance(d, Dim) for d in x.type.shape):
        raise TraceError(
            f"x[...] = value is not recorded for symbolic sizes, got {short(x.type)}; use "
            "tracer.where or concat"
        )
    starts, ends, steps, axes, hole = [], [], [], [], []
    for item in items:
        if item.axis is None:
            hole.append(1)
            continue
        part = item.what
        size = int(x.type.shape[item.axis])
        chosen = (
            range(size)[part] if isinstance(part, slice) else range(part % size, part % size + 1)
        )
        start, end, step = (part, part + 1 or END, 1) if isinstance(part, int) else bounds_of(part)
        starts.append(start)
        ends.append(end)
        steps.append(step)
        axes.append(item.axis)
        if not isinstance(part, int):
            hole.append(len(chosen))
    attrs = {
        "starts": tuple(starts),
        "ends": tuple(ends),
        "axes": tuple(axes),
        "steps": tuple(steps),
    }
    op = lookup("Slice")
    (kept,) = op.infer([x.type], op.normalize(attrs))
    try:
        filled = BUILDER.reshape(BUILDER.expand(value, tuple(hole)), kept.shape)
    except ShapeError:
        raise _misfit(value, x, tuple(hole)) from None
    put = _put_back(x, attrs, filled)
    everywhere = BUILDER.expand(constant(True, "bool"), kept.shape)
    result = apply("Where", _put_back(x, attrs, everywhere), put, x)
    return result


def _put_back(x: Tensor, attrs: dict[str, Any], part: Tensor) -> Tensor:
    """The part where a slice of x would be, zeros elsewhere: the slice's gradient rule."""
    op = lookup("Slice")
    rule: Any = op.vjp
    n = Application((x,), (part,), op.normalize(attrs), (part,), (True,))
    (result,) = rule(BUILDER, n)
    assert isinstance(result, Tensor)
    return result
