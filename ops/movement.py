"""Another arrangement of the same elements: reshape, transpose, broadcast.

Views where strides can express them.

Parts of arrays are in `slicing.py`, repetitions in `repetition.py`, elements at indices in
`indexing.py`.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from ops import dims
from ops.compute import Attributes, Strided, View, contiguous_strides
from ops.errors import ShapeError
from ops.operator import Application, ErrorSample, Input, Ints, Sample, Sizes, operator
from ops.types import Type, broadcast_shapes, normalize_axes, short

Array = np.ndarray[Any, Any]


def _reshape_type(x: Type, *, shape: Sizes) -> Type:
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise ShapeError(f"a size is negative in {tuple(shape)}")
    if dims.product(shape) != x.size:
        sizes = ", ".join(map(str, shape))
        raise ShapeError(
            f"cannot reshape {short(x)} to ({sizes}): "
            f"{x.size} elements do not fill {dims.product(shape)}"
        )
    return Type(x.dtype, shape, x.weak)


def reshape_layout(layout: Strided, shape: tuple[int, ...], attrs: Attributes) -> Strided | None:
    """The layout of a reshaped buffer, or None if its elements are not in an arithmetic order."""
    if 0 in shape:
        return Strided(shape, contiguous_strides(shape), layout.offset)
    old = [(d, s) for d, s in zip(layout.shape, layout.strides, strict=True) if d != 1]
    strides: list[int] = []
    position = 0
    pending = list(shape)
    while pending or position < len(old):
        if position == len(old):
            if any(d != 1 for d in pending):
                return None
            strides.extend([0] * len(pending))
            break
        size, group = old[position][0], [old[position]]
        position += 1
        wanted: list[int] = []
        count = 1
        while count != size:
            if count < size:
                if not pending:
                    return None
                wanted.append(pending.pop(0))
                count *= wanted[-1]
            else:
                if position == len(old):
                    return None
                group.append(old[position])
                size *= old[position][0]
                position += 1
        if any(a[1] != b[0] * b[1] for a, b in itertools.pairwise(group)):
            return None
        step = group[-1][1]
        inner = []
        for d in reversed(wanted):
            inner.append(step)
            step *= d
        strides.extend(reversed(inner))
    return Strided(shape, tuple(strides), layout.offset)


@operator(
    "Reshape",
    type_rule=_reshape_type,
    compute=View(reshape_layout, keeps_order=True),
    vjp=lambda g, n: (g.reshape(n.dy, n.x.type.shape),),
    onnx=lambda g, n: g.op("Reshape", n.x, g.shape(n.attrs.shape), allowzero=1),
    samples=(
        Sample((Input((3, 4)),), {"shape": (2, 6)}),
        Sample((Input((3, 4)),), {"shape": (12,)}),
        Sample((Input(()),), {"shape": (1, 1)}),
        Sample((Input((0, 3)),), {"shape": (3, 0, 2)}),
        Sample((Input((4, 6), layout="strided"),), {"shape": (2, 2, 6)}),
    ),
    errors=(
        ErrorSample((Type("float32", (2, 3)),), ShapeError, "cannot reshape", {"shape": (4,)}),
        ErrorSample((Type("float32", (2, 3)),), ShapeError, "negative", {"shape": (-2, -3)}),
    ),
)
def reshape(x: Array, *, shape: Sizes) -> Array:
    """The elements in row-major order with another shape."""
    return np.reshape(x, tuple(int(d) for d in shape))


def _expand_type(x: Type, *, shape: Sizes) -> Type:
    if any(isinstance(d, int) and d < 0 for d in shape):
        raise ShapeError(f"a size is negative in {tuple(shape)}")
    if broadcast_shapes(x.shape, shape) != tuple(shape):
        sizes = ", ".join(map(str, shape))
        raise ShapeError(f"cannot expand {short(x)} to ({sizes}): only axes of size 1 grow")
    return Type(x.dtype, shape, x.weak)


def _expand_layout(layout: Strided, shape: tuple[int, ...], attrs: Attributes) -> Strided:
    lead = len(shape) - len(layout.shape)
    strides = (0,) * lead + tuple(
        0 if old == 1 and new != 1 else stride
        for old, new, stride in zip(layout.shape, shape[lead:], layout.strides, strict=True)
    )
    return Strided(shape, strides, layout.offset)


@operator(
    "Expand",
    type_rule=_expand_type,
    compute=View(_expand_layout),
    vjp=lambda g, n: (g.sum_to(n.dy, n.x.type.shape),),
    onnx=lambda g, n: g.op("Expand", n.x, g.shape(n.attrs.shape)),
    samples=(
        Sample((Input((3, 1)),), {"shape": (3, 4)}),
        Sample((Input((4,)),), {"shape": (2, 3, 4)}),
        Sample((Input(()),), {"shape": (2, 2)}),
        Sample((Input((1, 2)),), {"shape": (0, 2)}),
    ),
    errors=(
        ErrorSample((Type("float32", (2, 3)),), ShapeError, "expand", {"shape": (2, 1)}),
        ErrorSample((Type("float32", (2, 3)),), ShapeError, "broadcast", {"shape": (4, 5)}),
    ),
)
def expand(x: Array, *, shape: Sizes) -> Array:
    """x broadcast to a shape."""
    sizes = tuple(int(d) for d in shape)
    # Where no element is there twice, the result can be written to as x can.
    return np.reshape(x, sizes) if math.prod(sizes) == x.size else np.broadcast_to(x, sizes)


def _transpose_type(x: Type, *, perm: Ints) -> Type:
    if sorted(perm) != list(range(x.rank)):
        raise ShapeError(
            f"perm must order the axes 0 to {x.rank - 1} of {short(x)}, got {tuple(perm)}"
        )
    return Type(x.dtype, tuple(x.shape[p] for p in perm), x.weak)


def _transpose_vjp(g: Any, n: Application) -> Any:
    return (g.Transpose(n.dy, perm=tuple(int(k) for k in np.argsort(n.attrs.perm))),)


@operator(
    "Transpose",
    type_rule=_transpose_type,
    compute=View(
        lambda layout, shape, attrs: Strided(
            shape, tuple(layout.strides[p] for p in attrs["perm"]), layout.offset
        )
    ),
    vjp=_transpose_vjp,
    onnx="Transpose",
    samples=(
        Sample((Input((3, 4)),), {"perm": (1, 0)}),
        Sample((Input((2, 3, 4)),), {"perm": (2, 0, 1)}),
        Sample((Input(()),), {"perm": ()}),
        Sample((Input((0, 3)),), {"perm": (1, 0)}),
    ),
    errors=(
        ErrorSample((Type("float32", (2, 3)),), ShapeError, "perm must order", {"perm": (0, 0)}),
    ),
)
def transpose(x: Array, *, perm: Ints) -> Array:
    """Axes in another order: axis k of the result is axis perm[k] of x."""
    return np.transpose(x, perm)


# ---- reshapes by name ----------------------------------------------------------------------------


def _squeeze_type(x: Type, *, axes: Ints) -> Type:
    axes = normalize_axes(axes, x.rank)
    for axis in axes:
        if x.shape[axis] != 1:
            raise ShapeError(f"axis {axis} of {short(x)} has size {x.shape[axis]}, not 1")
    return Type(x.dtype, tuple(d for k, d in enumerate(x.shape) if k not in axes), x.weak)


@operator(
    "Squeeze",
    type_rule=_squeeze_type,
    compute=View(reshape_layout, keeps_order=True),
    vjp=lambda g, n: (g.reshape(n.dy, n.x.type.shape),),
    onnx=lambda g, n: g.op("Squeeze", n.x, g.ints(n.attrs.axes)) if n.attrs.axes else n.x,
    samples=(
        Sample((Input((3, 1, 4)),), {"axes": (1,)}),
        Sample((Input((1, 1)),), {"axes": (0, -1)}),
        Sample((Input((2, 3)),), {"axes": ()}),
        Sample((Input((0, 1)),), {"axes": (1,)}),
        Sample((Input((4, 1, 6), layout="strided"),), {"axes": (1,)}),
    ),
    errors=(
        ErrorSample((Type("float32", (2, 3)),), ShapeError, "not 1", {"axes": (0,)}),
        ErrorSample((Type("float32", (2, 3)),), ShapeError, "out of range", {"axes": (2,)}),
    ),
)
def squeeze(x: Array, *, axes: Ints) -> Array:
    """x without some axes of size 1."""
    return np.squeeze(x, axis=normalize_axes(axes, x.ndim))


def _unsqueeze_type(x: Type, *, axes: Ints) -> Type:
    axes = normalize_axes(axes, x.rank + len(axes))
    sizes = iter(x.shape)
    shape = tuple(1 if k in axes else next(sizes) for k in range(x.rank + len(axes)))
    return Type(x.dtype, shape, x.weak)


@operator(
    "Unsqueeze",
    type_rule=_unsqueeze_type,
    compute=View(reshape_layout, keeps_order=True),
    vjp=lambda g, n: (g.reshape(n.dy, n.x.type.shape),),
    onnx=lambda g, n: g.op("Unsqueeze", n.x, g.ints(n.attrs.axes)) if n.attrs.axes else n.x,
    samples=(
        Sample((Input((3, 4)),), {"axes": (1,)}),
        Sample((Input(()),), {"axes": (0, 1)}),
        Sample((Input((3, 4)),), {"axes": (0, -1)}),
        Sample((Input((0,)),), {"axes": (0,)}),
    ),
    errors=(
        ErrorSample((Type("float32", (2, 3)),), ShapeError, "out of range", {"axes": (3,)}),
        ErrorSample((Type("float32", (2, 3)),), ShapeError, "named twice", {"axes": (0, 0)}),
    ),
)
def unsqueeze(x: Array, *, axes: Ints) -> Array:
    """x with new axes of size 1, at these positions of the result."""
    return np.expand_dims(x, axes)


def _flatten_type(x: Type, *, axis: int) -> Type:
    if not -x.rank <= axis <= x.rank:
        raise ShapeError(f"axis {axis} is out of range; possible: between {-x.rank} and {x.rank}")
    axis = axis + x.rank if axis < 0 else axis
    return Type(x.dtype, (dims.product(x.shape[:axis]), dims.product(x.shape[axis:])), x.weak)


@operator(
    "Flatten",
    type_rule=_flatten_type,
    compute=View(reshape_layout, keeps_order=True),
    vjp=lambda g, n: (g.reshape(n.dy, n.x.type.shape),),
    onnx="Flatten",
    samples=(
        Sample((Input((2, 3, 4)),), {"axis": 1}),
        Sample((Input((2, 3, 4)),), {"axis": 0}),
        Sample((Input((2, 3, 4)),), {"axis": 3}),
        Sample((Input((2, 3, 4)),), {"axis": -1}),
        Sample((Input(()),), {"axis": 0}),
        Sample((Input((0, 3)),), {"axis": 1}),
    ),
    errors=(ErrorSample((Type("float32", (2, 3)),), ShapeError, "out of range", {"axis": 3}),),
)
def flatten(x: Array, *, axis: int = 1) -> Array:
    """x as a matrix: the axes before `axis` made one, and those from it on."""
    axis = axis + x.ndim if axis < 0 else axis
    return np.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
