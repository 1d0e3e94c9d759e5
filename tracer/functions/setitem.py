"""x[key] = value, in place and as a function: a new Tensor with a part replaced, for every key that x[key] takes.

Gradients go to x where it was kept and to the value where it was written (of elements written
twice, to the last one). Keys are read in `subscripts.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ops import dims
from ops.errors import ArgumentError, BoundsError, DTypeError, ShapeError
from ops.types import broadcast_shapes, short
from tracer.dispatch.apply import BUILDER, apply
from tracer.functions.creation import as_tensor, cast, has_tensors
from tracer.functions.elementwise import strong
from tracer.functions.gather_scatter import Size, as_indices, linear_index
from tracer.functions.getitem import (
    Item,
    Items,
    Mask,
    common_shape,
    first_of,
    get_item,
    indices_of,
    items_of,
    parts_of,
    slices_of,
)
from tracer.functions.in_place import change, copy_into, require_changeable
from tracer.functions.promotion import number, number_type
from tracer.functions.public import public
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor

Shape = tuple[Size, ...]


def updated(x: Tensor, key: Any, value: Any, size: Size | None = None, add: bool = False) -> Tensor:
    """x with value in the place of x[key], or (`add`) added there, once for each time it is named.

    value is converted to x's element type and broadcast to the shape of x[key]. `size`: how many
    elements of the key's masks are True; if it is not given, a trace asks for it where a mask
    stands beside other indices.
    """
    new = value_for(x, value)
    parts = parts_of(x, key)
    masks = sum(isinstance(part, Mask) for part in parts)
    others = any(isinstance(part, int | Tensor) for part in parts)
    if masks == 1 and not others:
        return _masked(x, parts, new, size, add)
    items = items_of(x, key, size)
    return _written(x, items, new, add)


def value_for(x: Tensor, value: Any) -> Tensor:
    """What is assigned to x, in its element type; numbers and lists of them lose nothing on the way."""
    if number_type(value) is not None:
        return number(value, x.type.dtype)
    if isinstance(value, list | tuple) and not has_tensors(value):
        value = np.asarray(value)
    return cast(as_tensor(value), x.type.dtype)


def _written(x: Tensor, items: Items, value: Tensor, add: bool) -> Tensor:
    """Slices and integers are one part; with index arrays, these write into the part of the slices."""
    if not any(isinstance(item.what, Tensor) for item in items):
        return _put(x, items, value, add)
    places, indices = indices_of(x, items)
    apart = items.apart(places)
    return _inside(x, items, lambda part: _put_at(part, places, indices, apart, value, add))


# ---- parts ---------------------------------------------------------------------------------------


def _put(x: Tensor, items: Sequence[Item], value: Tensor, add: bool) -> Tensor:
    """x with a part of slices and integers replaced."""
    single = [(k, item.what) for k, item in enumerate(items) if isinstance(item.what, int)]

    def change(part: Tensor) -> Tensor:
        whole = [part]
        for axis, index in reversed(single):
            whole.append(apply("Select", whole[-1], axis=axis, index=index))
        old = whole.pop()
        new = _filled(x, value, old.type.shape)
        if add:
            new = apply("Add", old, new)
        for axis, index in single:
            new = apply("SelectScatter", whole.pop(), new, axis=axis, index=index)
        return new

    return _inside(x, items, change, not single)


def _inside(x: Tensor, items: Sequence[Item], change: Any, other: bool = False) -> Tensor:
    """x with the part that its slices show, new axes among its own, replaced by what `change` gives of it.

    `other`: that is a value of somebody else's.
    """
    attrs = slices_of(items)
    part = apply("Slice", x, **attrs) if attrs["axes"] else x
    new = tuple(k for k, item in enumerate(items) if item.axis is None)
    result = change(apply("Unsqueeze", part, axes=new) if new else part)
    if new:
        result = apply("Squeeze", result, axes=new)
    if attrs["axes"] or other:
        result = apply("SliceScatter", x, result, **attrs)
    assert isinstance(result, Tensor)
    return result


def _filled(x: Tensor, value: Tensor, hole: Shape) -> Tensor:
    """The value broadcast to the shape of what it replaces; axes of 1 before those are left out."""
    shape = value.type.shape
    while len(shape) > len(hole) and shape[0] == 1:
        shape = shape[1:]
    try:
        result: Tensor = BUILDER.expand(BUILDER.reshape(value, shape), hole)
    except ShapeError:
        raise misfit(value, x, hole) from None
    return result


def misfit(value: Tensor, x: Tensor, hole: Shape) -> ShapeError:
    """What is raised for a value that does not broadcast to the part of x that it should replace."""
    return ShapeError(
        f"a value of shape {value.type.shape} does not broadcast to the part of {short(x.type)}, "
        f"whose shape is {hole}"
    )


# ---- indices -------------------------------------------------------------------------------------


def _put_at(
    x: Tensor, places: list[int], indices: list[Tensor], apart: bool, value: Tensor, add: bool
) -> Tensor:
    """x with elements at index arrays replaced, these standing for the axes `places`."""
    name = "IndexAdd" if add else "IndexCopy"
    if len(places) == 1:
        (axis,), (index,) = places, indices
        hole = (*x.type.shape[:axis], *index.type.shape, *x.type.shape[axis + 1 :])
        return apply(name, x, index, _filled(x, value, hole), axis=axis)
    order = first_of(x, places) if apart else None
    y = x if order is None else apply("Transpose", x, perm=order)
    first = 0 if order is not None else places[0]
    last = first + len(places)
    shape = y.type.shape
    hole = (*shape[:first], *common_shape(indices), *shape[last:])
    flat = BUILDER.reshape(y, (*shape[:first], dims.product(shape[first:last]), *shape[last:]))
    line = linear_index(indices, list(shape[first:last]))
    flat = apply(name, flat, line, _filled(x, value, hole), axis=first)
    result: Tensor = BUILDER.reshape(flat, shape)
    if order is not None:
        back = sorted(range(len(order)), key=order.__getitem__)
        result = apply("Transpose", result, perm=tuple(back))
    return result


# ---- masks ---------------------------------------------------------------------------------------


def _masked(x: Tensor, parts: Sequence[Any], value: Tensor, size: Size | None, add: bool) -> Tensor:
    """x with elements replaced where the only mask of a subscript holds, slices around it.

    A value that is one along the masked elements is a choice between it and x. The others follow
    each other; how many there are must be how many hold.
    """
    items: list[Item] = []
    axis = start = 0
    for part in parts:
        if isinstance(part, Mask):
            part.check(x, axis)
            mask, start = part.mask, len(items)
            items += [Item(axis + k, slice(None)) for k in range(mask.ndim)]
            axis += mask.ndim
        elif part is not Ellipsis:
            items.append(Item(None if part is None else axis, part))
            axis += part is not None
    return _inside(x, items, lambda part: _choose(x, part, mask, start, value, size, add))


def _choose(
    x: Tensor, part: Tensor, mask: Tensor, start: int, value: Tensor, size: Size | None, add: bool
) -> Tensor:
    shape = part.type.shape
    before, behind = shape[:start], shape[start + mask.ndim :]
    while value.ndim > len(before) + 1 + len(behind) and value.type.shape[0] == 1:
        value = BUILDER.reshape(value, value.type.shape[1:])
    missing = len(before) + 1 + len(behind) - value.ndim
    if missing < 0:
        raise misfit(value, x, (*before, "n" if size is None else size, *behind))  # type: ignore[arg-type]
    full = (*(1,) * missing, *value.type.shape)
    if full[start] == 1:
        spread = BUILDER.reshape(value, (*full[:start], *(1,) * mask.ndim, *full[start + 1 :]))
        filled = _filled(x, spread, shape)
        held = BUILDER.reshape(mask, (*(1,) * start, *mask.type.shape, *(1,) * len(behind)))
        new = apply("Add", part, filled) if add else filled
        return apply("Where", held, new, part)
    count = full[start] if size is None else size
    flat = BUILDER.reshape(part, (*before, dims.product(mask.type.shape), *behind))
    places = apply("FlatNonzero", mask, size=count)
    filled = _filled(x, value, (*before, count, *behind))
    name = "IndexAdd" if add else "IndexCopy"
    result: Tensor = BUILDER.reshape(apply(name, flat, places, filled, axis=start), shape)
    return result


# ---- in place ------------------------------------------------------------------------------------


@public
def set_item(x: Tensor, key: Any, value: Any) -> None:
    """x[key] = value, broadcast and converted to x's element type.

    With a gradient through x and value, and through all views of x. Every key that x[key] takes.
    """
    MODES.interpreter.value_assigned(value)
    new = value_for(x, value)
    keys = [
        part for part in (key if isinstance(key, tuple) else (key,)) if isinstance(part, Tensor)
    ]
    recorded = require_changeable(x, (new, *keys))
    if not recorded and MODES.interpreter.assign_elements(x, lambda: _assign_elements(x, key, new)):
        return
    if not _is_basic(key):
        change(x, lambda old, part, *_: updated(old, key, part), new, *keys)
        return
    part = get_item(x, key)
    copy_into(part, _filled(x, new, part.type.shape))


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


def _assign_elements(x: Tensor, key: Any, new: Tensor) -> None:
    """The same in memory, where no gradient is concerned."""
    MODES.interpreter.require_writeable(x)
    target = x.array
    parts = key if isinstance(key, tuple) else (key,)
    plain = tuple(part.array if isinstance(part, Tensor) else part for part in parts)
    try:
        target[plain] = new.array
    except IndexError as error:
        raise BoundsError(f"{short(x.type)}: {error}") from None
    except ValueError:
        hole = target[plain].shape
        raise misfit(new, x, hole) from None
    x.count_change()


# ---- under PyTorch's names -----------------------------------------------------------------------


@public
def index_put(x: Any, indices: Sequence[Any], values: Any, /, accumulate: bool = False) -> Tensor:
    """x with values in the place of x[indices], one index array or mask for each of the first axes.

    values are broadcast to the shape of x[indices] and converted to x's type. `accumulate`: added
    there instead, equal indices one after the other. Raises `ArgumentError` for indices that are no
    sequence of arrays, `DTypeError` for such as are neither integers nor bools.

    >>> tracer.index_put(tracer.zeros((2, 2)), ([0, 1], [1, 0]), [5.0, 6.0])
    tensor([[0., 5.],
            [6., 0.]])
    """
    x = strong(as_tensor(x))
    if not isinstance(indices, list | tuple):
        raise ArgumentError(f"indices must be a tuple with one for each axis, got {indices!r:.60}")
    key = tuple(slice(None) if part is None else _index(part) for part in indices)
    new = as_tensor(values)
    if new.type.dtype != x.type.dtype and not new.type.weak and isinstance(values, Tensor):
        raise DTypeError(
            f"values must be {x.type.dtype} like {short(x.type)}, got {short(new.type)}; cast them "
            "first"
        )
    return updated(x, key, new, add=accumulate)


def _index(part: Any) -> Any:
    index = as_tensor(part) if not isinstance(part, list | tuple) or len(part) else part
    if isinstance(index, Tensor) and index.type.dtype == "bool":
        return index
    return as_indices(index)


@public
def masked_scatter(x: Any, mask: Any, source: Any, /) -> Tensor:
    """x with the elements of source, in row-major order, where a mask holds.

    x and mask are broadcast together. source has x's element type, and may have more elements than are
    needed. Raises `ShapeError` for fewer, `DTypeError` for another type and for a mask that is not bool.

    >>> tracer.masked_scatter([0, 0, 0], [True, False, True], [7, 8])
    tensor([7, 0, 8])
    """
    x, where = strong(as_tensor(x)), as_tensor(mask)
    if where.type.dtype != "bool":
        raise DTypeError(f"a mask is bool, got {short(where.type)}; compare it with something")
    src = strong(as_tensor(source))
    if src.type.dtype != x.type.dtype:
        raise DTypeError(
            f"source must be {x.type.dtype} like {short(x.type)}, got {short(src.type)}; cast it "
            "first"
        )
    shape = broadcast_shapes(x.type.shape, where.type.shape)
    x, where = BUILDER.expand(x, shape), BUILDER.expand(where, shape)
    mask = MODES.interpreter.known_elements(where)
    if src.type.size == 0:
        if mask is not None and not mask.any():
            return apply("Where", where, BUILDER.like(0, x), x)
        raise ShapeError("masked_scatter: source has no elements to put where the mask holds")
    line = BUILDER.reshape(where, (dims.product(shape),))
    rank = apply("CumSum", cast(line, "int64"), axis=0, exclusive=True)
    if mask is not None:
        needed = int(mask.sum())
        if needed > int(src.type.size):
            raise ShapeError(
                f"masked_scatter: the mask holds at {needed} elements, but source has only "
                f"{src.type.size}"
            )
    place = apply("Where", line, rank, BUILDER.like(0, rank))
    taken = apply("Gather", BUILDER.reshape(src, (src.type.size,)), place, axis=0)
    return apply("Where", where, BUILDER.reshape(taken, shape), x)


__all__ = ["index_put", "masked_scatter"]
