"""How operators are applied in random programs: one function for each family."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ops.compute import Composite, Scalar
from ops.operator import TABLE, ArrayData, Operator
from ops.types import DTYPES, Type, numpy_dtype
from tests.support.program_drawing import Drawer, Shape
from tracer.ir.graph import Value

Recipe = Callable[[Drawer, Operator], None]
RECIPES: dict[str, Recipe] = {}


def _recipe(*names: str) -> Callable[[Recipe], Recipe]:
    def register(function: Recipe) -> Recipe:
        RECIPES.update(dict.fromkeys(names, function))
        return function

    return register


def recipes_of(op: Operator) -> list[Recipe]:
    """Ways to apply an operator, in the order in which they are tried."""
    return [RECIPES.get(op.name) or _usual_recipe(op)] * 3 + [_from_sample]


def _usual_recipe(op: Operator) -> Recipe:
    kinds = {a.kind for a in op.attributes.values()}
    simple = isinstance(op.compute, Scalar | Composite) and kinds <= {float, str}
    if simple and len(op.inputs) >= 1 and not op.optional and "state" not in op.inputs:
        return _elementwise
    if {"axes", "keepdims"} <= set(op.attributes) and len(op.inputs) == 1:
        return _reduction
    if op.inputs == ("x",) and "axis" in op.attributes:
        return _along_an_axis
    return _from_sample


def _elementwise(d: Drawer, op: Operator) -> None:
    sample = d.pick(op.samples)
    dtype = d.dtype(op, sample)
    operands: list[Value] = []
    shape: Shape = ()
    for k, x in enumerate(sample.inputs):
        kind = x.dtype or dtype
        v = d.operand(kind) if k == 0 else d.beside(kind, shape)
        operands.append(v)
        shape = np.broadcast_shapes(shape, v.type.shape)  # type: ignore[arg-type]
    d.emit(op.name, operands, dict(sample.attrs))


def _reduction(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op))
    attrs = {k: v for k, v in d.pick(op.samples).attrs.items() if k in op.attributes}
    axes = d.axes(x.type.rank) if d.chance(85) else tuple(range(x.type.rank))
    d.emit(op.name, [x], attrs | {"axes": axes, "keepdims": d.chance(50)})


def _along_an_axis(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    d.emit(op.name, [x], dict(d.pick(op.samples).attrs) | {"axis": d.axis(x.type.rank)})


def _from_sample(d: Drawer, op: Operator) -> None:
    """Operands of a sample's types; those whose values matter are new inputs."""
    sample = d.pick([s for s in op.samples if all(np.prod(x.shape) <= 4096 for x in s.inputs)])
    dtype = d.dtype(op, sample)
    operands = []
    for x in sample.inputs:
        kind = x.dtype or dtype
        if x.values is None:
            operands.append(d.exactly(kind, x.shape))
            continue
        values = np.maximum(x.values, 0) if kind.startswith("uint") else np.array(x.values)
        value = d.builder.input(Type(kind, x.shape), f"x{len(d.inputs)}")
        with np.errstate(all="ignore"):
            d.inputs.append(values.astype(numpy_dtype(kind)).reshape(x.shape))
        operands.append(d.known_as(value, d.inputs[-1]))
    d.emit(op.name, operands, dict(sample.attrs))


@_recipe("Constant")
def _constant(d: Drawer, op: Operator) -> None:
    array = d.array(d.dtype(op), d.shape() if d.chance(50) else ())
    d.emit("Constant", [], {"value": ArrayData.of(array)})


@_recipe("Iota")
def _iota(d: Drawer, op: Operator) -> None:
    shape = d.shape(1)
    dtype = d.dtype(op)
    d.emit("Iota", [], {"shape": shape, "axis": d.axis(len(shape)) % len(shape), "dtype": dtype})


@_recipe("Cast")
def _cast(d: Drawer, op: Operator) -> None:
    d.emit("Cast", [d.operand(d.dtype(op))], {"to": d.dtype(op)})


@_recipe("Reshape")
def _reshape(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op))
    shape = [s for s in x.type.shape if s != 1 or d.chance(50)]
    if d.chance(70) and len(shape) > 1:
        k = d.choices.between(0, len(shape) - 2)
        shape[k : k + 2] = [shape[k] * shape[k + 1]]
    if shape and d.chance(60):
        k = d.choices.between(0, len(shape) - 1)
        factors = [f for f in (2, 3, 11, 17) if shape[k] and shape[k] % f == 0]
        if factors:
            factor = d.pick(factors)
            shape[k : k + 1] = (
                [factor, shape[k] // factor] if d.chance(50) else [shape[k] // factor, factor]
            )
    if d.chance(40):
        shape.insert(d.choices.between(0, len(shape)), 1)
    d.emit("Reshape", [x], {"shape": tuple(shape)})


@_recipe("Expand")
def _expand(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op))
    shape = tuple(d.pick(d.sizes) if s == 1 and d.chance(70) else s for s in x.type.shape)
    lead = tuple(d.pick((1, 2, 3)) for _ in range(d.choices.between(0, 1)))
    d.emit("Expand", [x], {"shape": lead + shape})


@_recipe("Transpose")
def _transpose(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    left, perm = list(range(x.type.rank)), []
    while left:
        perm.append(left.pop(d.choices.between(0, len(left) - 1)))
    d.emit("Transpose", [x], {"perm": tuple(perm)})


@_recipe("Squeeze")
def _squeeze(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op))
    axes = tuple(k for k, s in enumerate(x.type.shape) if s == 1 and d.chance(70))
    d.emit("Squeeze", [x], {"axes": axes})


@_recipe("Unsqueeze")
def _unsqueeze(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op))
    rank = x.type.rank + 1
    d.emit("Unsqueeze", [x], {"axes": (d.choices.between(-rank, rank - 1),)})


@_recipe("Slice", "SliceScatter")
def _slice(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    starts, ends, axes, steps = [], [], [], []
    for k, size in enumerate(x.type.shape):
        if not d.chance(60):
            continue
        step = d.pick((1, 2, 3, -1, -2))
        a, b = d.choices.between(-1, size), d.choices.between(0, size + 2)
        starts.append(a if step > 0 else b - 1)
        ends.append(b if step > 0 else d.pick((a, -(2**63))))
        axes.append(k if d.chance(70) else k - x.type.rank)
        steps.append(step)
    attrs = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    _view_or_scatter(d, op, x, "Slice", {name: tuple(v) for name, v in attrs.items()})


def _view_or_scatter(d: Drawer, op: Operator, x: Value, view: str, attrs: dict[str, Any]) -> None:
    """A view of x, or x with another value in its place."""
    if op.name == view:
        d.emit(view, [x], attrs)
        return
    (part,) = TABLE[view].infer([x.type], TABLE[view].normalize(attrs))
    src = d.exactly(x.type.dtype, part.shape)  # type: ignore[arg-type]
    d.emit(op.name, [x, src], attrs)


@_recipe("Select", "SelectScatter")
def _select(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    axis = d.axis(x.type.rank)
    size = int(x.type.shape[axis])
    if size:
        _view_or_scatter(
            d, op, x, "Select", {"axis": axis, "index": d.choices.between(-size, size - 1)}
        )


@_recipe("Pad")
def _pad(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    pads = tuple(d.pick((0, 1, 2, -1)) for _ in range(2 * x.type.rank))
    d.emit("Pad", [x], {"pads": pads, "value": float(d.pick((0, 1, 2)))})


@_recipe("PadBorder")
def _pad_border(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    pads = tuple(d.pick((0, 1, 2)) for _ in range(2 * x.type.rank))
    d.emit("PadBorder", [x], {"pads": pads, "mode": d.pick(("edge", "wrap", "reflect"))})


@_recipe("Concat")
def _concat(d: Drawer, op: Operator) -> None:
    dtype = d.dtype(op)
    x = d.operand(dtype, 1)
    axis = d.axis(x.type.rank) % x.type.rank
    parts = [x]
    for _ in range(d.choices.between(0, 2)):
        if d.chance(40):
            parts.append(d.pick(parts))
            continue
        shape = list(x.type.shape)
        shape[axis] = d.pick((1, 3, shape[axis]))
        parts.append(d.exactly(dtype, tuple(shape)))
    d.emit("Concat", parts, {"axis": axis if d.chance(70) else axis - x.type.rank})


@_recipe("Split")
def _split(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    axis = d.axis(x.type.rank)
    size = int(x.type.shape[axis])
    first = d.choices.between(0, size)
    rest = d.choices.between(0, size - first)
    parts = (first, rest, size - first - rest) if d.chance(50) else (first, size - first)
    d.emit("Split", [x], {"axis": axis, "split": parts})


@_recipe("Tile")
def _tile(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op))
    d.emit("Tile", [x], {"repeats": tuple(d.pick((1, 2, 3)) for _ in x.type.shape)})


@_recipe("Repeat")
def _repeat(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    d.emit("Repeat", [x], {"repeats": d.pick((2, 1, 3)), "axis": d.axis(x.type.rank)})


@_recipe("Roll")
def _roll(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    axes = tuple(k for k in range(x.type.rank) if d.chance(60))
    d.emit("Roll", [x], {"shifts": tuple(d.pick((1, -2, 40, 0)) for _ in axes), "axes": axes})


@_recipe("Trilu")
def _trilu(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 2)
    d.emit("Trilu", [x], {"upper": d.chance(50), "k": d.choices.between(-2, 3)})


@_recipe("Diagonal", "DiagonalScatter")
def _diagonal(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 2)
    first = d.choices.between(0, x.type.rank - 1)
    second = (first + d.choices.between(1, x.type.rank - 1)) % x.type.rank
    attrs = {"offset": d.choices.between(-1, 2), "axis1": first, "axis2": second}
    _view_or_scatter(d, op, x, "Diagonal", attrs)


@_recipe("MatMul")
def _matmul(d: Drawer, op: Operator) -> None:
    dtype = d.dtype(op)
    x = d.operand(dtype, 2)
    k = int(x.type.shape[-1])
    found = d.known(dtype, lambda s: len(s) >= 2 and s[-2] == k)
    if found and d.chance(60):
        y = d.pick(found)
    else:
        lead = x.type.shape[:-2] if d.chance(30) else ()
        y = d.new(dtype, (*(1 if d.chance(30) else s for s in lead), k, d.pick((1, 3, 17))))  # type: ignore[arg-type]
    d.emit("MatMul", [x, y], {})


@_recipe("Gather")
def _gather(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    axis = d.axis(x.type.rank)
    indices = d.index(int(x.type.shape[axis]), d.pick(((3,), (2, 3), (), (17,))))
    d.emit("Gather", [x, indices], {"axis": axis})


@_recipe("GatherElements")
def _gather_elements(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    axis, shape = d.axis(x.type.rank), list(x.type.shape)
    n = int(shape[axis])
    shape[axis] = d.pick((1, 3, n))
    d.emit("GatherElements", [x, d.index(n, tuple(shape))], {"axis": axis})  # type: ignore[arg-type]


@_recipe("IndexAdd", "IndexCopy")
def _index_add(d: Drawer, op: Operator) -> None:
    dtype = d.dtype(op)
    x = d.operand(dtype, 1)
    axis, shape = d.axis(x.type.rank) % x.type.rank, x.type.shape
    indices = d.index(int(shape[axis]), d.pick(((3,), (2, 3), (), (17,))))
    updates = d.exactly(dtype, (*shape[:axis], *indices.type.shape, *shape[axis + 1 :]))  # type: ignore[arg-type]
    d.emit(op.name, [x, indices, updates], {"axis": axis})


@_recipe("ScatterAdd", "ScatterElements")
def _scatter_add(d: Drawer, op: Operator) -> None:
    dtype = d.dtype(op)
    x = d.operand(dtype, 1)
    axis, shape = d.axis(x.type.rank), list(x.type.shape)
    n = int(shape[axis])
    shape[axis] = d.pick((1, 3, n))
    indices = d.index(n, tuple(shape))  # type: ignore[arg-type]
    d.emit(op.name, [x, indices, d.exactly(dtype, tuple(shape))], {"axis": axis})  # type: ignore[arg-type]


@_recipe("OneHot")
def _one_hot(d: Drawer, op: Operator) -> None:
    depth = d.pick((3, 1, 17))
    indices = d.index(depth, d.shape(0, 2))
    rank = indices.type.rank + 1
    axis = d.choices.between(-rank, rank - 1)
    d.emit("OneHot", [indices], {"depth": depth, "axis": axis, "dtype": d.pick(DTYPES)})


@_recipe("SoftmaxCrossEntropy")
def _cross_entropy(d: Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    axis = d.axis(x.type.rank) % x.type.rank
    shape = (*x.type.shape[:axis], *x.type.shape[axis + 1 :])
    labels = d.index(int(x.type.shape[axis]), shape, signed=False)  # type: ignore[arg-type]
    smoothing = d.pick((0.0, 0.1))
    d.emit(
        op.name,
        [x, labels],
        {"axis": axis, "label_smoothing": smoothing, "ignore_index": d.pick((-100, 1))},
    )


@_recipe("LayerNormalization", "RMSNormalization")
def _normalization(d: Drawer, op: Operator) -> None:
    dtype = d.dtype(op)
    x = d.operand(dtype, 1)
    axis = d.axis(x.type.rank)
    more = d.choices.between(0, len(op.inputs) - 1)
    operands = [x, *(d.exactly(dtype, x.type.shape[axis:]) for _ in range(more))]  # type: ignore[arg-type]
    d.emit(op.name, operands, {"axis": axis, "epsilon": 1e-3})


@_recipe("IntegerPow")
def _integer_pow(d: Drawer, op: Operator) -> None:
    dtype = d.dtype(op)
    x = d.operand(dtype)
    d.emit(op.name, [x, d.new(dtype, d.pick(((), x.type.shape)), -3, 12)], {})
