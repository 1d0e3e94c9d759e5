"""Drawing a random program: decisions, values at hand, and operators applied to them.

Each operator's reference runs as it is drawn, so indices are valid, and operands that hold something
(not only NaN) are preferred. Knows no operator's attributes; see `program_recipes`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ops.errors import TracerError
from ops.operator import TABLE, ArrayData, Operator, Sample, run_reference
from ops.samples import special_values
from ops.types import Type, is_floating, numpy_dtype
from tracer.ir.graph import Graph, GraphBuilder, Origin, Value

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]

SIZES = (1, 3, 17, 33, 2, 0)
MOST_ELEMENTS = 640  # of one value


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


class UnfitError(Exception):
    """What was drawn does not fit; another try."""


class Drawer:
    """A program in the making: values, their arrays, and what is drawn of them."""

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
            raise UnfitError
        return self.choices.between(-rank, rank - 1)

    def axes(self, rank: int) -> tuple[int, ...]:
        chosen = [k for k in range(rank) if self.chance(50)]
        return tuple(k - rank if self.chance(25) else k for k in chosen)

    # ---- values
    def new(self, dtype: str, shape: Shape, low: int | None = None, high: int = 0) -> Value:
        """A new input; integers from low to high where given."""
        array = self.array(dtype, shape) if low is None else self._between(dtype, shape, low, high)
        value = self.builder.input(Type(dtype, shape), f"x{len(self.inputs)}")
        self.inputs.append(array)
        return self.known_as(value, array)

    def known_as(self, value: Value, array: Array) -> Value:
        self.values.append(value)
        self.arrays[value] = array
        return value

    def _between(self, dtype: str, shape: Shape, low: int, high: int) -> Array:
        if dtype.startswith("uint"):
            low = max(low, 0)
        if high < low:
            if 0 not in shape:
                raise UnfitError
            high = low
        return self.numbers.integers(low, high, shape, endpoint=True).astype(numpy_dtype(dtype))

    def array(self, dtype: str, shape: Shape) -> Array:
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
            raise UnfitError
        # The sign of a NaN is nobody's promise: nothing that shows it is drawn.
        if (
            name in ("CopySign", "Signbit")
            and np.isnan(self.arrays[inputs[-1]].astype(float)).any()
        ):
            raise UnfitError
        arrays = run_reference(op, [self.arrays[v] for v in inputs], normal)
        if self.chance(30):
            line = self.choices.between(1, 99)
            self.builder.origin = Origin(self.pick(["", "Net", "Net/A[0]"]), f"net.py:{line}")
        result = self.builder.emit(op, inputs, attrs)
        outputs = result if isinstance(result, tuple) else (result,)
        for value, array in zip(outputs, arrays, strict=True):
            self.known_as(value, array)
        self.operators[name] += 1
        self.dtypes.update(v.type.dtype for v in (*inputs, *outputs))
        return result

    # ---- one operator
    def add(self, op: Operator, recipes: Sequence[Callable[[Drawer, Operator], None]]) -> None:
        """Apply an operator to something in the first of the ways that fits."""
        for recipe in recipes:
            marks = len(self.builder.nodes), len(self.values), len(self.inputs)
            try:
                recipe(self, op)
                return
            except (UnfitError, TracerError):
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
            raise UnfitError
        preferred = [d for d in self.palette if d in possible]
        return str(self.pick(preferred if preferred and self.chance(80) else possible))

    def index(self, n: int, shape: Shape, signed: bool = True) -> Value:
        """Integers that are valid indices of an axis of n elements."""
        if not n and 0 not in shape:
            raise UnfitError
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
