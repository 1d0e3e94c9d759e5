"""What stands in brackets: x[...], with NumPy's meaning. Assignment is in `assignment.py`.

Integers, slices, None and Ellipsis select parts that an eager result shares with its operand;
integer arrays gather. How many elements a bool mask selects is asked of its elements, in a trace too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ops import dims
from ops.dims import Dim
from ops.errors import ArgumentError, BoundsError, ShapeError
from ops.indexing import checked
from ops.slicing import END
from ops.types import broadcast_shapes, require_index, short
from tracer.dispatch.apply import apply
from tracer.functions.creation import as_tensor, fresh
from tracer.functions.gather_scatter import Size, as_indices, linear_index, where_true
from tracer.functions.public import public
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor


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

    `size`: how many elements of its masks are True, if that is known.
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


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """A bool Tensor in a subscript: the indices where it holds."""

    mask: Tensor

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
        indices = as_tensor(part)
        if isinstance(part, list | tuple) and not indices.type.size:
            return as_indices(part)
        if indices.type.dtype == "bool":
            if not indices.ndim:
                raise ArgumentError("a bool without axes selects nothing; use tracer.where")
            return Mask(indices)
        indices = as_indices(indices)
        known = MODES.interpreter.known_elements(indices) if indices.ndim == 0 else None
        if known is not None:
            return int(known)
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
    require_index(index, axis, x.type.shape[axis], short(x.type))


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
    """x[key]. Raises `BoundsError` for indices out of range.

    `size`: how many elements of the mask are True; without it they are counted, in a trace by a
    question of which a path of the program depends.
    """
    items = items_of(x, key, size)
    indices = [item.what for item in items if isinstance(item.what, Tensor)]
    if indices:
        part = _gathered(x, items)
        if not any(index.ndim for index in indices):
            MODES.interpreter.index_picked(part, x)  # a view where the indices are known
        return part
    result, dropped = _sliced(x, items)
    axes = [item for item in items if item.axis is None or item.axis not in dropped]
    new = tuple(k for k, item in enumerate(axes) if item.axis is None)
    return apply("Unsqueeze", result, axes=new) if new else result


def _sliced(x: Tensor, items: Sequence[Item]) -> tuple[Tensor, set[int | None]]:
    """x with its slices and integers taken; the axes that integers took away."""
    slices = [item for item in items if item.axis is not None and not isinstance(item.what, int)]
    attrs = slices_of(slices)
    result = apply("Slice", x, **attrs) if attrs["axes"] else x
    single = {item.axis: item.what for item in items if isinstance(item.what, int)}
    for axis in sorted(single, reverse=True):  # type: ignore[type-var]
        result = apply("Select", result, axis=axis, index=single[axis])
    if result is x:
        result = apply("Reshape", x, shape=x.type.shape)
    return result, set(single)


def slices_of(items: Sequence[Item]) -> dict[str, tuple[Any, ...]]:
    """The attributes of Slice for the slices of a subscript."""
    wanted = [item for item in items if isinstance(item.what, slice) and item.what != slice(None)]
    bounds = [bounds_of(item.what) for item in wanted]
    return {
        "starts": tuple(b[0] for b in bounds),
        "ends": tuple(b[1] for b in bounds),
        "axes": tuple(item.axis for item in wanted),
        "steps": tuple(b[2] for b in bounds),
    }


def _gathered(x: Tensor, items: Items) -> Tensor:
    """With index arrays: slices first, then all indices at once; integers are indices too."""
    slices = [item for item in items if isinstance(item.what, slice)]
    result, _ = _sliced(x, slices)
    new = tuple(k for k, item in enumerate(items) if item.axis is None)
    if new:
        result = apply("Unsqueeze", result, axes=new)
    places, indices = indices_of(x, items)
    if len(places) == 1:
        return apply("Gather", result, indices[0], axis=places[0])
    return _gathered_together(result, places, indices, items.apart(places))


def indices_of(x: Tensor, items: Sequence[Item]) -> tuple[list[int], list[Tensor]]:
    """Which items are integers or indices, and these as Tensors; eager ones are in range."""
    places = [k for k, item in enumerate(items) if isinstance(item.what, int | Tensor)]
    indices = []
    for k in places:
        what, axis = items[k].what, items[k].axis
        index = fresh(np.asarray(what, np.int64)) if isinstance(what, int) else what
        known = MODES.interpreter.known_elements(index)
        if known is not None and axis is not None:
            checked(known, int(x.type.shape[axis]), axis)
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
    total = dims.product(tuple(sizes))
    first, last = places[0], places[-1]
    flat = apply("Reshape", x, shape=(*x.type.shape[:first], total, *x.type.shape[last + 1 :]))
    return apply("Gather", flat, linear_index(indices, sizes), axis=first)


def first_of(x: Tensor, places: list[int]) -> tuple[int, ...]:
    """The order of axes in which some come first."""
    return (*places, *(k for k in range(x.ndim) if k not in places))


def common_shape(indices: Sequence[Tensor]) -> tuple[Size, ...]:
    """The shape of index arrays together. Raises `BoundsError` if they do not broadcast."""
    try:
        return broadcast_shapes(*(i.type.shape for i in indices))
    except ShapeError as error:
        raise BoundsError(f"index arrays of one subscript must broadcast: {error}") from None
