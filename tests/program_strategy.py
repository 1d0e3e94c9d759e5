"""Random programs over the whole table of operators, with arrays to run them on.

A program grows one operator at a time from values at hand. Each operator's reference runs as it is
drawn, so indices are valid, and operands that hold something (not only NaN) are preferred.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ops.compute import Composite, Control, Scalar
from ops.errors import TracerError
from ops.operator import TABLE, ArrayData, Operator, Sample
from ops.samples import special_values
from ops.types import DTYPES, Type, is_floating, numpy_dtype
from tracer.autograd.engine import grad
from tracer.autograd.history import replay
from tracer.dispatch import BUILDER, run_reference
from tracer.graph import Graph, GraphBuilder, Origin, Value
from tracer.recording import Recorder, recording
from tracer.tensor import Tensor

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

OPERATORS = tuple(op for op in TABLE.values() if not isinstance(op.compute, Control))
SIZES = (1, 3, 17, 33, 2, 0)
MOST_ELEMENTS = 640  # of one value

# Smooth everywhere that the operands of a smooth program lie: what finite differences are taken of.
SMOOTH = (
    "Add", "Sub", "Mul", "Neg", "Sin", "Cos", "Tanh", "Atan", "Sigmoid", "Softplus", "Erf", "Silu",
    "Gelu", "Softsign", "LogAddExp", "Asinh", "Mish", "Exp", "ReduceSum", "ReduceMean",
    "Variance", "ReduceLogSumExp", "Softmax", "LogSoftmax", "MatMul", "Reshape", "Expand",
    "Transpose", "Slice", "Concat", "Split", "Pad", "Gather", "GatherElements", "IndexAdd",
    "ScatterAdd", "Unsqueeze", "Flatten", "Diagonal", "Tile", "Repeat", "Roll", "PadBorder",
    "Trilu", "Where", "CumSum", "LayerNormalization", "RMSNormalization", "SoftmaxCrossEntropy",
)  # fmt: skip
COMMON = (
    "Add", "Mul", "Sub", "Neg", "Abs", "Maximum", "Where", "ReduceSum", "ReduceMax", "Transpose",
    "Slice", "Roll", "Concat", "Gather", "IndexAdd", "MatMul", "CumSum", "Reshape",
)  # fmt: skip
ENTANGLED = (
    *COMMON, "StandardDeviation", "LogSoftmax", "Softmax", "RMSNormalization", "Expand", "Sin",
    "Rsqrt", "ReduceMin", "Unsqueeze", "Squeeze", "Not", "Or", "Less", "Atan2", "Concat",
)  # fmt: skip
# What IEEE 754 rounds in one way only, and what moves or compares: equal bits everywhere.
EXACT = tuple(op.name for op in OPERATORS if not op.ulp and not isinstance(op.compute, Composite))


class Choices(Protocol):
    """Where a program's decisions come from."""

    def between(self, low: int, high: int) -> int:
        """A whole number from low to high; low is the simplest."""


class Drawn:
    """Decisions that Hypothesis makes, and makes simpler when a test fails."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        from hypothesis import strategies

        self.draw, self.integers = draw, strategies.integers

    def between(self, low: int, high: int) -> int:
        return int(self.draw(self.integers(low, high)))


class Seeded:
    """Decisions that follow from a number."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def between(self, low: int, high: int) -> int:
        return self.random.randint(low, high)


@dataclass(frozen=True, slots=True)
class Program:
    """A graph, arrays for its inputs (numbers for weak ones), and what was drawn."""

    graph: Graph
    arrays: tuple[Any, ...]
    operators: Counter[str]
    dtypes: Counter[str]

    def with_outputs(self, outputs: Sequence[Value]) -> Program:
        """The same program with other results."""
        g = self.graph
        graph = Graph(g.inputs, g.nodes, tuple(outputs), g.input_names, g.name)
        return Program(graph, self.arrays, self.operators, self.dtypes)


def program(
    choices: Choices,
    *,
    most: int = 40,
    least: int = 5,
    operators: Sequence[Operator] = OPERATORS,
    dtypes: Sequence[str] = DTYPES,
    first: Operator | None = None,
    moderate: bool = False,
    narrow: bool = False,
) -> Program:
    """A random program of `least` to `most` operators, `first` among them.

    `moderate`: values stay small, special ones are left out (for finite differences). `narrow`: few
    types and sizes, so that many values are alike.
    """
    if narrow:
        dtypes = [dtypes[choices.between(0, len(dtypes) - 1)] for _ in range(2)]
    drawer = _Drawer(choices, operators, dtypes, moderate)
    if narrow:
        drawer.sizes = drawer.sizes[:1] * 2 + [1]
        drawer.narrow = True
    if first is not None:
        drawer.add(first)
    count = choices.between(least, most)
    for _ in range(4 * count):
        if len(drawer.builder.nodes) >= count:
            break
        drawer.add(drawer.pick(operators))
    return drawer.finish()


class _UnfitError(Exception):
    """What was drawn does not fit; another try."""


class _Drawer:
    def __init__(
        self,
        choices: Choices,
        operators: Sequence[Operator],
        dtypes: Sequence[str],
        moderate: bool,
    ) -> None:
        self.choices = choices
        self.moderate = moderate
        self.narrow = False
        self.names = {op.name for op in operators}
        self.all_dtypes = dtypes
        self.builder = GraphBuilder("random")
        self.arrays: dict[Value, Array] = {}
        self.inputs: list[Any] = []
        self.values: list[Value] = []
        self.operators: Counter[str] = Counter()
        self.dtypes: Counter[str] = Counter()
        self.palette = [self.pick(dtypes) for _ in range(3)]
        sizes = SIZES[:4] if self.moderate else SIZES
        self.sizes = [self.pick(sizes) for _ in range(3)]
        self.numbers = np.random.default_rng(choices.between(0, 2**31))

    # ---- decisions
    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.choices.between(0, len(options) - 1)]

    def chance(self, percent: int) -> bool:
        return self.choices.between(1, 100) > 100 - percent

    def fresh(self, percent: int) -> bool:
        """Whether a new input is made although there are fitting values."""
        return self.chance(3 if self.narrow and len(self.inputs) > 3 else percent)

    def shape(self, least: int = 0, most: int = 3) -> Shape:
        rank = self.choices.between(least, most)
        for _ in range(8):
            shape = tuple(self.pick(self.sizes) for _ in range(rank))
            if int(np.prod(shape)) <= MOST_ELEMENTS:
                return shape
        return (1,) * rank

    def axis(self, rank: int) -> int:
        if rank == 0:
            raise _UnfitError
        return self.choices.between(-rank, rank - 1)

    def axes(self, rank: int) -> tuple[int, ...]:
        chosen = [k for k in range(rank) if self.chance(50)]
        return tuple(k - rank if self.chance(25) else k for k in chosen)

    # ---- values
    def new(self, dtype: str, shape: Shape, low: int | None = None, high: int = 0) -> Value:
        """A new input; integers from low to high where given."""
        array = self._array(dtype, shape) if low is None else self._between(dtype, shape, low, high)
        value = self.builder.input(Type(dtype, shape), f"x{len(self.inputs)}")
        self.inputs.append(array)
        return self._known(value, array)

    def _known(self, value: Value, array: Array) -> Value:
        self.values.append(value)
        self.arrays[value] = array
        return value

    def _between(self, dtype: str, shape: Shape, low: int, high: int) -> Array:
        if dtype.startswith("uint"):
            low = max(low, 0)
        if high < low:
            if 0 not in shape:
                raise _UnfitError
            high = low
        return self.numbers.integers(low, high, shape, endpoint=True).astype(numpy_dtype(dtype))

    def _array(self, dtype: str, shape: Shape) -> Array:
        if dtype == "bool":
            return np.asarray(self.numbers.random(shape) < 0.5)
        if is_floating(dtype):
            array = self.numbers.uniform(-2, 2, shape)
            special = special_values(dtype)
        else:
            low, high = (0, 20) if dtype.startswith("uint") else (-10, 10)
            array = self.numbers.integers(low, high, shape)
            special = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 0], dtype)
        result = np.asarray(array.astype(numpy_dtype(dtype)))
        if not self.moderate and result.size and self.chance(20):
            places = self.numbers.integers(0, result.size, 1 + result.size // 8)
            result.reshape(-1)[places] = self.numbers.choice(special, len(places))
        return result

    def _holds_something(self, v: Value) -> bool:
        array = self.arrays[v]
        if not array.size or not is_floating(v.type.dtype):
            return True
        wide = array.astype(np.float64)
        if self.moderate:
            return bool(np.abs(wide).max() < 50)
        return bool(np.isfinite(wide).mean() > 0.5)

    def known(self, dtype: str, fits: Callable[[Shape], bool] = lambda s: True) -> list[Value]:
        """Values of an element type and a shape that fits, recent ones last, dull ones left out."""
        found = [v for v in self.values if v.type == Type(dtype, v.type.shape)]
        found = [v for v in found if fits(v.type.shape)]  # type: ignore[arg-type]
        return [v for v in found if self._holds_something(v)] or found[:1]

    def operand(self, dtype: str, least: int = 0) -> Value:
        """A value of an element type, and at least so many axes: at hand, cast, or a new input."""
        found = self.known(dtype, lambda s: len(s) >= least)
        if found and not self.fresh(15):
            # recent ones are likelier, so that chains grow
            return found[max(self.choices.between(0, len(found) - 1) for _ in range(2))]
        others = [
            v for v in self.values if v.type.rank >= least and v.type.dtype in self.all_dtypes
        ]
        if others and "Cast" in self.names and self.chance(60):
            return self.emit("Cast", [self.pick(others)], {"to": dtype})
        return self.new(dtype, self.shape(least))

    def exactly(self, dtype: str, shape: Shape) -> Value:
        """A value of a type: at hand or a new input."""
        found = self.known(dtype, lambda s: s == shape)
        return self.pick(found) if found and not self.fresh(20) else self.new(dtype, shape)

    def beside(self, dtype: str, shape: Shape) -> Value:
        """A value that broadcasts with a shape and makes nothing large."""

        def fits(other: Shape) -> bool:
            try:
                together = np.broadcast_shapes(shape, other)
            except ValueError:
                return False
            return int(np.prod(together)) <= MOST_ELEMENTS

        found = self.known(dtype, fits)
        if found and not self.fresh(25):
            return self.pick(found)
        lead = self.choices.between(0, len(shape))
        return self.new(dtype, tuple(1 if self.chance(25) else d for d in shape[lead:]))

    def emit(self, name: str, inputs: Sequence[Value], attrs: dict[str, Any]) -> Any:
        """Append an operator and run its reference."""
        op = TABLE[name]
        normal = op.normalize(attrs)
        types = op.infer([v.type for v in inputs], normal)
        if any(int(t.size) > 4 * MOST_ELEMENTS for t in types):
            raise _UnfitError
        # The sign of a NaN is nobody's promise: nothing that shows it is drawn.
        if (
            name in ("CopySign", "Signbit")
            and np.isnan(self.arrays[inputs[-1]].astype(float)).any()
        ):
            raise _UnfitError
        arrays = run_reference(op, [self.arrays[v] for v in inputs], normal)
        if self.chance(30):
            line = self.choices.between(1, 99)
            self.builder.origin = Origin(self.pick(["", "Net", "Net/A[0]"]), f"net.py:{line}")
        result = self.builder.emit(op, inputs, attrs)
        outputs = result if isinstance(result, tuple) else (result,)
        for value, array in zip(outputs, arrays, strict=True):
            self._known(value, array)
        self.operators[name] += 1
        self.dtypes.update(v.type.dtype for v in (*inputs, *outputs))
        return result

    # ---- one operator
    def add(self, op: Operator) -> None:
        """Apply an operator to something, if a few tries find what fits."""
        for attempt in range(4):
            marks = len(self.builder.nodes), len(self.values), len(self.inputs)
            try:
                recipe = RECIPES.get(op.name) or _usual_recipe(op)
                (recipe if attempt < 3 else _from_sample)(self, op)
                return
            except (_UnfitError, TracerError):
                self._back_to(*marks)

    def _back_to(self, nodes: int, values: int, inputs: int) -> None:
        """Undo what a failed try has left, its inputs included."""
        kept = set(self.values[:values])
        for node in self.builder.nodes[nodes:]:
            self.operators[node.op.name] -= 1
        del self.builder.nodes[nodes:], self.values[values:], self.inputs[inputs:]
        del self.builder.inputs[inputs:], self.builder.input_names[inputs:]
        self.arrays = {v: a for v, a in self.arrays.items() if v in kept}

    def dtype(self, op: Operator, sample: Sample | None = None) -> str:
        """An element type for an operator: one of the program's where possible."""
        possible = [d for d in (sample and sample.dtypes) or op.dtypes if d in self.all_dtypes]
        if not possible:
            raise _UnfitError
        preferred = [d for d in self.palette if d in possible]
        return str(self.pick(preferred if preferred and self.chance(80) else possible))

    def index(self, n: int, shape: Shape, signed: bool = True) -> Value:
        """Integers that are valid indices of an axis of n elements."""
        if not n and 0 not in shape:
            raise _UnfitError
        if n and {"Remainder", "Constant", "Sub"} <= self.names and self.chance(35):
            v = self.exactly("int64", shape)
            size = self.emit("Constant", [], {"value": ArrayData.of(np.asarray(n))})
            v = self.emit("Remainder", [v, size], {})
            return self.emit("Sub", [v, size], {}) if signed and self.chance(30) else v
        dtype = self.pick(("int64", "int32", "int8", "uint8"))
        return self.new(dtype, shape, -n if signed else 0, n - 1)

    def finish(self) -> Program:
        """The program, with a few outputs: results, inputs, views, the same twice."""
        made = [v for node in self.builder.nodes for v in node.outputs]
        used = {v for node in self.builder.nodes for v in node.inputs}
        ends = [v for v in made if v not in used] or self.values or [self.new("float32", (3,))]
        outputs = [self.pick(ends) for _ in range(self.choices.between(1, 4))]
        outputs += [self.pick(self.values) for _ in range(self.choices.between(0, 2))]
        graph = self.builder.build(outputs)
        self.dtypes.update(v.type.dtype for v in graph.inputs)
        return Program(graph, tuple(self.inputs), +self.operators, self.dtypes)


# ---- how operators are applied: one function for each family -------------------------------------
Recipe = Callable[[_Drawer, Operator], None]
RECIPES: dict[str, Recipe] = {}


def _recipe(*names: str) -> Callable[[Recipe], Recipe]:
    def register(function: Recipe) -> Recipe:
        RECIPES.update(dict.fromkeys(names, function))
        return function

    return register


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


def _elementwise(d: _Drawer, op: Operator) -> None:
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


def _reduction(d: _Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op))
    attrs = {k: v for k, v in d.pick(op.samples).attrs.items() if k in op.attributes}
    axes = d.axes(x.type.rank) if d.chance(85) else tuple(range(x.type.rank))
    d.emit(op.name, [x], attrs | {"axes": axes, "keepdims": d.chance(50)})


def _along_an_axis(d: _Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    d.emit(op.name, [x], dict(d.pick(op.samples).attrs) | {"axis": d.axis(x.type.rank)})


def _from_sample(d: _Drawer, op: Operator) -> None:
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
        operands.append(d._known(value, d.inputs[-1]))
    d.emit(op.name, operands, dict(sample.attrs))


@_recipe("Constant")
def _constant(d: _Drawer, op: Operator) -> None:
    array = d._array(d.dtype(op), d.shape() if d.chance(50) else ())
    d.emit("Constant", [], {"value": ArrayData.of(array)})


@_recipe("Iota")
def _iota(d: _Drawer, op: Operator) -> None:
    shape = d.shape(1)
    dtype = d.dtype(op)
    d.emit("Iota", [], {"shape": shape, "axis": d.axis(len(shape)) % len(shape), "dtype": dtype})


@_recipe("Cast")
def _cast(d: _Drawer, op: Operator) -> None:
    d.emit("Cast", [d.operand(d.dtype(op))], {"to": d.dtype(op)})


@_recipe("Reshape")
def _reshape(d: _Drawer, op: Operator) -> None:
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
def _expand(d: _Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op))
    shape = tuple(d.pick(d.sizes) if s == 1 and d.chance(70) else s for s in x.type.shape)
    lead = tuple(d.pick((1, 2, 3)) for _ in range(d.choices.between(0, 1)))
    d.emit("Expand", [x], {"shape": lead + shape})


@_recipe("Transpose")
def _transpose(d: _Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    left, perm = list(range(x.type.rank)), []
    while left:
        perm.append(left.pop(d.choices.between(0, len(left) - 1)))
    d.emit("Transpose", [x], {"perm": tuple(perm)})


@_recipe("Squeeze")
def _squeeze(d: _Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op))
    axes = tuple(k for k, s in enumerate(x.type.shape) if s == 1 and d.chance(70))
    d.emit("Squeeze", [x], {"axes": axes})


@_recipe("Unsqueeze")
def _unsqueeze(d: _Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op))
    rank = x.type.rank + 1
    d.emit("Unsqueeze", [x], {"axes": (d.choices.between(-rank, rank - 1),)})


@_recipe("Slice")
def _slice(d: _Drawer, op: Operator) -> None:
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
    d.emit("Slice", [x], {name: tuple(v) for name, v in attrs.items()})


@_recipe("Pad")
def _pad(d: _Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    pads = tuple(d.pick((0, 1, 2, -1)) for _ in range(2 * x.type.rank))
    d.emit("Pad", [x], {"pads": pads, "value": float(d.pick((0, 1, 2)))})


@_recipe("PadBorder")
def _pad_border(d: _Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    pads = tuple(d.pick((0, 1, 2)) for _ in range(2 * x.type.rank))
    d.emit("PadBorder", [x], {"pads": pads, "mode": d.pick(("edge", "wrap", "reflect"))})


@_recipe("Concat")
def _concat(d: _Drawer, op: Operator) -> None:
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
def _split(d: _Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    axis = d.axis(x.type.rank)
    size = int(x.type.shape[axis])
    first = d.choices.between(0, size)
    rest = d.choices.between(0, size - first)
    parts = (first, rest, size - first - rest) if d.chance(50) else (first, size - first)
    d.emit("Split", [x], {"axis": axis, "split": parts})


@_recipe("Tile")
def _tile(d: _Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op))
    d.emit("Tile", [x], {"repeats": tuple(d.pick((1, 2, 3)) for _ in x.type.shape)})


@_recipe("Repeat")
def _repeat(d: _Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    d.emit("Repeat", [x], {"repeats": d.pick((2, 1, 3)), "axis": d.axis(x.type.rank)})


@_recipe("Roll")
def _roll(d: _Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    axes = tuple(k for k in range(x.type.rank) if d.chance(60))
    d.emit("Roll", [x], {"shifts": tuple(d.pick((1, -2, 40, 0)) for _ in axes), "axes": axes})


@_recipe("Trilu")
def _trilu(d: _Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 2)
    d.emit("Trilu", [x], {"upper": d.chance(50), "k": d.choices.between(-2, 3)})


@_recipe("Diagonal")
def _diagonal(d: _Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 2)
    first = d.choices.between(0, x.type.rank - 1)
    second = (first + d.choices.between(1, x.type.rank - 1)) % x.type.rank
    d.emit("Diagonal", [x], {"offset": d.choices.between(-1, 2), "axis1": first, "axis2": second})


@_recipe("MatMul")
def _matmul(d: _Drawer, op: Operator) -> None:
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
def _gather(d: _Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    axis = d.axis(x.type.rank)
    indices = d.index(int(x.type.shape[axis]), d.pick(((3,), (2, 3), (), (17,))))
    d.emit("Gather", [x, indices], {"axis": axis})


@_recipe("GatherElements")
def _gather_elements(d: _Drawer, op: Operator) -> None:
    x = d.operand(d.dtype(op), 1)
    axis, shape = d.axis(x.type.rank), list(x.type.shape)
    n = int(shape[axis])
    shape[axis] = d.pick((1, 3, n))
    d.emit("GatherElements", [x, d.index(n, tuple(shape))], {"axis": axis})  # type: ignore[arg-type]


@_recipe("IndexAdd")
def _index_add(d: _Drawer, op: Operator) -> None:
    dtype = d.dtype(op)
    x = d.operand(dtype, 1)
    axis, shape = d.axis(x.type.rank) % x.type.rank, x.type.shape
    indices = d.index(int(shape[axis]), d.pick(((3,), (2, 3), (), (17,))))
    updates = d.exactly(dtype, (*shape[:axis], *indices.type.shape, *shape[axis + 1 :]))  # type: ignore[arg-type]
    d.emit("IndexAdd", [x, indices, updates], {"axis": axis})


@_recipe("ScatterAdd")
def _scatter_add(d: _Drawer, op: Operator) -> None:
    dtype = d.dtype(op)
    x = d.operand(dtype, 1)
    axis, shape = d.axis(x.type.rank), list(x.type.shape)
    n = int(shape[axis])
    shape[axis] = d.pick((1, 3, n))
    indices = d.index(n, tuple(shape))  # type: ignore[arg-type]
    d.emit("ScatterAdd", [x, indices, d.exactly(dtype, tuple(shape))], {"axis": axis})  # type: ignore[arg-type]


@_recipe("OneHot")
def _one_hot(d: _Drawer, op: Operator) -> None:
    depth = d.pick((3, 1, 17))
    indices = d.index(depth, d.shape(0, 2))
    rank = indices.type.rank + 1
    axis = d.choices.between(-rank, rank - 1)
    d.emit("OneHot", [indices], {"depth": depth, "axis": axis, "dtype": d.pick(DTYPES)})


@_recipe("SoftmaxCrossEntropy")
def _cross_entropy(d: _Drawer, op: Operator) -> None:
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
def _normalization(d: _Drawer, op: Operator) -> None:
    dtype = d.dtype(op)
    x = d.operand(dtype, 1)
    axis = d.axis(x.type.rank)
    more = d.choices.between(0, len(op.inputs) - 1)
    operands = [x, *(d.exactly(dtype, x.type.shape[axis:]) for _ in range(more))]  # type: ignore[arg-type]
    d.emit(op.name, operands, {"axis": axis, "epsilon": 1e-3})


@_recipe("IntegerPow")
def _integer_pow(d: _Drawer, op: Operator) -> None:
    dtype = d.dtype(op)
    x = d.operand(dtype)
    d.emit(op.name, [x, d.new(dtype, d.pick(((), x.type.shape)), -3, 12)], {})


def seeded(count: int, **options: Any) -> Iterator[Program]:
    """Programs that follow from their numbers, each operator the first of some."""
    for seed in range(count):
        yield program(Seeded(seed), first=OPERATORS[seed % len(OPERATORS)], **options)


# ---- programs made of programs -------------------------------------------------------------------
def with_updates(choices: Choices, *, most: int = 20) -> tuple[Program, dict[int, int]]:
    """A program some of whose outputs (output number -> input number) are written to inputs' memory.

    What is written may be a computed value, another input (two of them swapped), or a view of one.
    """
    if (
        choices.between(0, 3) > 0
    ):  # mostly of few operators, whose kernels read and write the same memory
        operators = tuple(TABLE[name] for name in COMMON)
        p = program(
            choices, most=most, narrow=True, operators=operators, dtypes=("float32", "int32")
        )
    else:
        p = program(choices, most=most)
    updates: dict[int, int] = {}
    outputs = list(p.graph.outputs)
    free = [k for k, v in enumerate(p.graph.inputs) if not v.type.weak]
    made = {v for node in p.graph.nodes for v in node.outputs}
    for _ in range(choices.between(1, 4)):
        pairs = [(k, v) for v in p.graph.values() for k in free if v.type == p.graph.inputs[k].type]
        if choices.between(0, 3) > 0:
            pairs = [(k, v) for k, v in pairs if v in made] or pairs
        if not pairs:
            break
        k, v = pairs[choices.between(0, len(pairs) - 1)]
        free.remove(k)
        updates[len(outputs)] = k
        outputs.append(v)
    return p.with_outputs(outputs), updates


def gradients(p: Program, eager: bool = False) -> Any:
    """(graph, arrays): outputs of a program, then gradients of its floating inputs; arrays for its
    inputs and the outputs' cotangents. With `eager` the results themselves, computed at once."""
    recorder = Recorder("gradient")
    numbers = np.random.default_rng(7)
    values = [Value(v.type) for v in p.graph.inputs]
    floating = [k for k, v in enumerate(values) if is_floating(v.type.dtype) and not v.type.weak]

    def leaf(k: int) -> Tensor:
        if eager:
            return Tensor.of_array(p.arrays[k].copy())
        return Tensor.of_value(values[k], recorder)

    arrays = list(p.arrays)
    with contextlib.nullcontext() if eager else recording(recorder):
        inputs = [leaf(k) for k in range(len(values))]
        for k in floating:
            inputs[k].requires_grad = True
        outputs = replay(p.graph, inputs, BUILDER)
        ends = [y for y in outputs if y.requires_grad]
        heads = []
        for y in ends:
            array = numbers.uniform(-1, 1, y.shape).astype(y.dtype)
            arrays.append(np.asarray(array))
            values.append(Value(y.type.strong()))
            heads.append(Tensor.of_array(array) if eager else Tensor.of_value(values[-1], recorder))
        wanted = [inputs[k] for k in floating]
        found = grad(ends, wanted, heads, allow_unused=True) if ends else []
        zeros = [BUILDER.zeros(x.type) for x in wanted]
        results = [z if g is None else g for g, z in zip(found or zeros, zeros, strict=True)]
        if eager:
            return [np.asarray(t.detach()) for t in (*outputs, *results)]
        made = [recorder.value_of(t) for t in (*outputs, *results)]
    graph = Graph(tuple(values), tuple(recorder.builder.nodes), tuple(made), name="gradient")
    return graph, tuple(arrays)


__all__ = [
    "ENTANGLED",
    "EXACT",
    "OPERATORS",
    "SMOOTH",
    "Drawn",
    "Program",
    "Seeded",
    "gradients",
    "program",
    "seeded",
    "with_updates",
]
