"""Replaced parts in programs: what simplification leaves of them, and whose memory is written."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np

from ops.slicing import END
from ops.types import Type
from tests.programs.test_random_programs import check_updates
from tests.support.plain_programs import PlainProgram
from tests.support.program_drawing import Program
from tracer.ir.graph import Graph, GraphBuilder, Value
from tracer.ir.interpreter import interpret
from tracer.passes.dead_code import remove_dead_code
from tracer.passes.simplify import simplify

Array = np.ndarray[Any, Any]


def part(start: int, end: int, step: int = 1) -> dict[str, Any]:
    return {"starts": (start,), "ends": (end,), "axes": (0,), "steps": (step,)}


# ---- what simplification makes of them -----------------------------------------------------------


def simplified(build: Any) -> tuple[list[str], Graph]:
    g = GraphBuilder()
    x, a, b = (g.input(Type("float32", (n,))) for n in (6, 2, 2))
    graph = g.build([build(g, x, a, b)])
    simple = simplify(graph)
    arrays = [np.arange(n, dtype=np.float32) - n * k for k, n in enumerate((6, 2, 2))]
    (one,), (other,) = interpret(graph, arrays), interpret(simple, arrays)
    assert np.array_equal(one, other)
    return [n.op.name for n in remove_dead_code(simple).nodes], simple


def test_replacements_that_say_nothing_are_left_out() -> None:
    def whole(g: Any, x: Value, a: Value, b: Value) -> Value:
        return g.SliceScatter(a, b, **part(0, END))  # type: ignore[no-any-return]

    def nothing(g: Any, x: Value, a: Value, b: Value) -> Value:
        return g.SliceScatter(x, g.Slice(x, **part(1, 5, 2)), **part(1, 4, 2))  # type: ignore[no-any-return]

    def read_back(g: Any, x: Value, a: Value, b: Value) -> Value:
        return g.Slice(g.SliceScatter(x, a, **part(1, 3)), **part(-5, -3))  # type: ignore[no-any-return]

    def twice(g: Any, x: Value, a: Value, b: Value) -> Value:
        return g.SliceScatter(g.SliceScatter(x, a, **part(1, 3)), b, **part(1, 3))  # type: ignore[no-any-return]

    def apart(g: Any, x: Value, a: Value, b: Value) -> Value:
        return g.SliceScatter(g.SliceScatter(x, a, **part(1, 3)), b, **part(2, 4))  # type: ignore[no-any-return]

    def elsewhere(g: Any, x: Value, a: Value, b: Value) -> Value:
        return g.Slice(g.SliceScatter(x, a, **part(1, 3)), **part(2, 4))  # type: ignore[no-any-return]

    assert simplified(whole)[0] == []
    assert simplified(nothing)[0] == []
    assert simplified(read_back)[0] == []
    assert simplified(twice)[0] == ["SliceScatter"]
    assert simplified(apart)[0] == ["SliceScatter"] * 2
    assert simplified(elsewhere)[0] == ["SliceScatter", "Slice"]


# ---- whose memory a program writes ---------------------------------------------------------------


def run(build: Any, updates: dict[int, int]) -> PlainProgram:
    """A program on x (8 elements), a and b (2): run un-jitted, it leaves what the interpreter says."""
    g = GraphBuilder()
    x, a, b = (g.input(Type("float32", (n,))) for n in (8, 2, 2))
    graph = g.build(build(g, x, a, b))
    arrays = tuple(np.arange(n, dtype=np.float32) + 10 * k for k, n in enumerate((8, 2, 2)))
    check_updates(Program(graph, arrays, Counter(), Counter()), updates, compiled=False)
    return PlainProgram(graph, updates)


def names(program: PlainProgram) -> list[str]:
    return [part.name for part in program.lowering.planned]


def test_a_part_of_state_is_replaced_in_its_memory() -> None:
    def build(g: Any, x: Value, a: Value, b: Value) -> list[Value]:
        once = g.SliceScatter(x, a, **part(1, 3))
        return [g.SliceScatter(once, g.Add(b, g.Slice(once, **part(0, 2))), **part(2, 6, 2))]

    program = run(build, {0: 0})
    assert names(program) == ["k_replaced", "k_add", "k_replaced"]


def test_parts_of_parts_are_replaced_in_their_memory() -> None:
    def nested(g: Any, x: Value, a: Value, b: Value) -> list[Value]:
        piece = g.Slice(x, **part(1, 7))
        inner = g.SliceScatter(piece, g.Mul(a, b), **part(5, 1, -2))
        return [g.SliceScatter(x, inner, **part(1, 7))]

    def added(g: Any, x: Value, a: Value, b: Value) -> list[Value]:
        piece = g.Slice(x, **part(6, 2, -2))
        return [g.SliceScatter(x, g.Add(piece, g.Mul(piece, a)), **part(6, 2, -2))]

    def indexed(g: Any, x: Value, a: Value, b: Value) -> list[Value]:
        piece = g.Slice(x, **part(2, 8))
        places = g.constant([4, -6], "int64")
        return [g.SliceScatter(x, g.IndexCopy(piece, places, a, axis=0), **part(2, 8))]

    def matrix(g: Any, x: Value, a: Value, b: Value) -> list[Value]:
        square = g.reshape(x, (2, 4))
        piece = g.Transpose(g.Slice(square, **part(0, 2)), perm=(1, 0))
        line = g.Diagonal(g.Slice(piece, **part(1, 3)))
        new = g.DiagonalScatter(g.Slice(piece, **part(1, 3)), g.Add(line, a))
        whole = g.Transpose(g.SliceScatter(piece, new, **part(1, 3)), perm=(1, 0))
        return [g.reshape(whole, (8,))]

    def row(g: Any, x: Value, a: Value, b: Value) -> list[Value]:
        square = g.reshape(x, (2, 4))
        attrs = {"starts": (1,), "ends": (2,), "axes": (0,), "steps": (1,)}
        line = g.op("Squeeze", g.Slice(square, **attrs), axes=(0,))
        new = g.op("Unsqueeze", g.Neg(line), axes=(0,))
        return [g.reshape(g.SliceScatter(square, new, **attrs), (8,))]

    for build, kernels in (
        (row, ["k_neg"]),
        (nested, ["k_mul"]),
        (added, ["k_mul_add"]),
        (indexed, ["k_scatter_set"]),
        (matrix, None),
    ):
        program = run(build, {0: 0})
        assert kernels is None or names(program) == kernels
        run(build, {})


def test_parts_that_are_read_later_are_computed_elsewhere() -> None:
    def read(g: Any, x: Value, a: Value, b: Value) -> list[Value]:
        new = g.Add(g.Slice(x, **part(1, 3)), a)
        return [g.SliceScatter(x, new, **part(1, 3)), g.Mul(new, g.Slice(x, **part(0, 2)))]

    def shifted(g: Any, x: Value, a: Value, b: Value) -> list[Value]:
        new = g.Add(g.Slice(x, **part(1, 6)), g.Slice(x, **part(0, 5)))
        return [g.SliceScatter(x, new, **part(1, 6))]

    def backwards(g: Any, x: Value, a: Value, b: Value) -> list[Value]:
        new = g.Neg(g.Slice(x, **part(5, 0, -1)))
        return [g.SliceScatter(x, new, **part(1, 6))]

    def folded(g: Any, x: Value, a: Value, b: Value) -> list[Value]:
        old = g.Slice(x, **part(1, 6))
        total = g.ReduceSum(old, axes=(0,), keepdims=True)
        return [g.SliceScatter(x, g.Sub(old, total), **part(1, 6))]

    def early(g: Any, x: Value, a: Value, b: Value) -> list[Value]:
        new = g.Add(a, b)
        y = g.SliceScatter(g.Mul(x, x), g.Mul(a, a), **part(0, 2))
        return [g.SliceScatter(y, new, **part(1, 3))]

    for build in (read, shifted, backwards, folded, early):
        run(build, {0: 0})
        run(build, {})


def test_memory_that_is_read_later_is_kept() -> None:
    def later(g: Any, x: Value, a: Value, b: Value) -> list[Value]:
        new = g.SliceScatter(x, a, **part(1, 3))
        return [new, g.Add(g.Slice(x, **part(0, 2)), g.Slice(new, **part(1, 3)))]

    def overlapping(g: Any, x: Value, a: Value, b: Value) -> list[Value]:
        return [g.SliceScatter(x, g.Slice(x, **part(0, 4)), **part(2, 6))]

    def returned(g: Any, x: Value, a: Value, b: Value) -> list[Value]:
        return [g.SliceScatter(x, a, **part(3, 1, -1)), g.Slice(x, **part(1, 5))]

    def fresh(g: Any, x: Value, a: Value, b: Value) -> list[Value]:
        y = g.Mul(x, x)
        new = g.SliceScatter(y, a, **part(1, 8, 4))
        return [g.SliceScatter(new, b, **part(0, 2)), g.SliceScatter(new, a, **part(0, 2))]

    for build in (later, overlapping, returned):
        run(build, {0: 0})
        run(build, {})
    program = run(fresh, {})
    assert names(program).count("k_kept") == 1  # the second result's; y and new are written over


def test_scatters_of_state_are_in_its_memory_too() -> None:
    g = GraphBuilder()
    counts, indices = g.input(Type("int64", (2, 3))), g.input(Type("int64", (4,)))
    flat = g.reshape(counts, (6,))
    ones = g.expand(g.constant(1, "int64"), (4,))
    graph = g.build([g.reshape(g.IndexAdd(flat, indices, ones, axis=0), (2, 3))])
    program = PlainProgram(graph, {0: 0})
    memory = np.zeros((2, 3), np.int64)
    program([memory, np.array([1, -1, 1, 0])])
    assert memory.tolist() == [[1, 2, 0], [0, 0, 1]]
    assert names(program) == ["k_scatter_add"]


# ---- random programs -----------------------------------------------------------------------------


class Views:
    """Draws programs that change parts of parts of two inputs, which they update."""

    def __init__(self, seed: int) -> None:
        self.draw, self.g = random.Random(seed), GraphBuilder()
        shape = self.draw.choice([(6,), (4, 5), (2, 3, 4), (16,), (3, 17)])
        self.state = [self.g.input(Type("float32", shape)) for _ in range(2)]
        self.seen = list(self.state)
        rng = np.random.default_rng(seed)
        self.arrays = [rng.integers(-9, 9, shape).astype(np.float32) for _ in self.state]

    def slice(self, shape: Any) -> dict[str, Any]:
        attrs: dict[str, list[int]] = {"starts": [], "ends": [], "axes": [], "steps": []}
        for axis, size in enumerate(shape):
            if self.draw.random() < 0.6:
                step = self.draw.choice([1, 1, 2, -1, -2])
                a, b = sorted((self.draw.randint(0, size), self.draw.randint(0, size)))
                bounds = (
                    (a, b) if step > 0 else (b - 1 if b else -size - 1, a - 1 if a else -END - 1)
                )
                for name, value in zip(attrs, (*bounds, axis, step), strict=True):
                    attrs[name].append(value)
        return {name: tuple(values) for name, values in attrs.items()}

    def view(self, x: Value) -> tuple[list[Any], Value]:
        """Steps from x to a part of it."""
        steps = []
        for _ in range(self.draw.randint(1, 3)):
            name = self.draw.choice(
                ["Slice", "Slice", "Select", "Transpose", "Diagonal", "Reshape"]
            )
            rank, shape = x.type.rank, x.type.shape
            attrs: dict[str, Any] = {"shape": (int(x.type.size),)}
            if name == "Slice" or (name == "Diagonal" and rank < 2):
                name, attrs = "Slice", self.slice(x.type.shape)
            elif name == "Select":
                axis = self.draw.randrange(rank) if rank else 0
                if not rank or shape[axis] == 0:
                    continue
                attrs = {
                    "axis": axis,
                    "index": self.draw.randint(-int(shape[axis]), int(shape[axis]) - 1),
                }
            elif name == "Transpose":
                attrs = {"perm": tuple(self.draw.sample(range(rank), rank))}
            elif name == "Diagonal":
                attrs = {"offset": self.draw.randint(-1, 1), "axis1": 0, "axis2": rank - 1}
            steps.append((name, attrs, x))
            x = self.g.op(name, x, **attrs)
        return steps, x

    def put_back(self, steps: list[Any], new: Value) -> Value:
        for name, attrs, x in reversed(steps):
            if name in ("Slice", "Select", "Diagonal"):
                new = self.g.op(f"{name}Scatter", x, new, **attrs)
            elif name == "Transpose":
                new = self.g.Transpose(new, perm=tuple(map(int, np.argsort(attrs["perm"]))))
            else:
                new = self.g.reshape(new, x.type.shape)
        return new

    def changed(self, x: Value) -> Value:
        g, same = self.g, [v for v in self.seen if v.type == x.type]
        other = self.draw.choice([x, *same])
        made = [
            lambda: g.Add(x, other),
            lambda: g.Neg(x),
            lambda: other,
            lambda: g.expand(g.constant(self.draw.randint(0, 5), "float32"), x.type.shape),
            lambda: g.expand(self.g.op("Slice", x, **self.slice(())), x.type.shape),
        ]
        if x.type.rank and x.type.shape[-1] != 0:
            axes, size = (x.type.rank - 1,), int(x.type.shape[-1])
            total = g.ReduceSum(x, axes=axes, keepdims=True)
            made.append(lambda: g.Sub(x, g.expand(total, x.type.shape)))
            indices = g.constant([self.draw.randint(-size, size - 1) for _ in "ab"], "int64")
            taken = g.Gather(x, indices, axis=axes[0])
            for name in ("IndexCopy", "IndexAdd"):
                made.append(
                    lambda name=name: g.op(name, x, indices, g.Add(taken, taken), axis=axes[0])
                )
        result: Value = self.draw.choice(made)()
        return result

    def program(self) -> tuple[Program, dict[int, int]]:
        outputs: list[Value] = []
        for _ in range(self.draw.randint(1, 7)):
            k = self.draw.randrange(2)
            steps, x = self.view(self.state[k])
            new = self.changed(x)
            self.seen += [x, new]
            self.state[k] = self.put_back(steps, new)
            if self.draw.random() < 0.2:
                outputs.append(self.draw.choice(self.seen))
        updates = {len(outputs) + k: k for k in range(2) if self.draw.random() < 0.8}
        graph = self.g.build([*outputs, *self.state])
        return Program(graph, tuple(self.arrays), Counter(), Counter()), updates


def test_random_changes_of_parts_of_parts() -> None:
    for seed in range(150):
        check_updates(*Views(seed).program(), compiled=False)
