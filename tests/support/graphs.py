"""Graphs that several tests need: with everything that the IR can hold, and random ones."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from ops import samples, table
from ops.dims import Dim
from ops.errors import TracerError
from ops.operator import TABLE, ArrayData, Operator
from ops.types import DTYPES, Type
from tracer.ir.graph import Graph, GraphBuilder, Origin, Value

OPERATORS = [op for op in table.TABLE.values() if op.samples]


def sample_graphs(op: Operator) -> Iterator[Graph]:
    """A graph of one node for every sample of an operator."""
    for sample in op.samples:
        dtype = samples.tested_types(op, sample)[0]
        g = GraphBuilder()
        g.origin = Origin("Net/Layer[0]", "net.py:1")
        inputs = [
            g.input(Type(x.dtype or dtype, x.shape), f"x{k}") for k, x in enumerate(sample.inputs)
        ]
        results = g.op(op.name, *inputs, **sample.attrs)
        yield g.build(results if isinstance(results, tuple) else (results,))


def bits(dtype: str, *patterns: int) -> ArrayData:
    """An array of floats given by their bits."""
    width = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    unsigned = np.array(patterns, dtype=f"u{width.itemsize}")
    return ArrayData(dtype, unsigned.shape, unsigned.tobytes())


AWKWARD = (
    bits("float16", 0x7E00, 0x7E01, 0xFE00, 0x7D00, 0x8000, 0x0001, 0x7C00, 0x3555),
    bits("bfloat16", 0x7FC0, 0xFFC1, 0x7F81, 0x8000, 0x0001, 0xFF80, 0x3F80, 0x3DCD),
    bits("float32", 0x7FC00000, 0x7FC00001, 0xFFC00000, 0x7F800001, 0x80000000, 1, 0x3DCCCCCD),
    bits("float64", 0x7FF8 << 48, 0x7FF8 << 48 | 1, 0xFFF8 << 48, 0x7FF0 << 48 | 1, 1 << 63, 1),
    ArrayData.of(np.array([True, False])),
    ArrayData.of(np.array([], np.int8)),
    ArrayData.of(np.array(-(2**63))),
    ArrayData.of(np.array([2**64 - 1, 0], np.uint64)),
    ArrayData.of(np.zeros((0, 3), np.float32)),
    ArrayData.of(np.arange(17.0)),
    ArrayData.of(np.arange(60, dtype=np.int16).reshape(3, 4, 5)),
    bits("float32", *[0x7FC00000 + k for k in range(40)]),
)


def full_graph() -> Graph:
    """All that a graph can hold: odd names, symbols, weak types, constants, blocks, origins."""
    n, m = Dim.symbol("n"), Dim.symbol("m")
    g = GraphBuilder('A "graph", with a name  # and more')
    x = g.input(Type("float32", (n, 2 * n + 1)), "x")
    g.input(Type("float32", (m // 2, 3)), "features.0.weight")
    same = g.input(Type("float32", (n, 1)), "x")
    g.input(Type("float32", ()), "42")
    g.input(Type("float32", (), weak=True), "learning rate")
    g.input(Type("bfloat16", (2, 0)))
    condition = g.input(Type("bool"), "%c")
    g.origin = Origin("Net/Sequential[features]/Linear[0]", "examples/net.py:21")
    y = g.Add(x, same)
    g.origin = Origin('step.<locals>.f, "quoted"\n', 'C:\\a folder\\b#c "d".py:3', gradient=True)
    y = g.Reshape(y, shape=(n * (2 * n + 1),))
    g.origin = Origin("ModuleDict[ключ]", " blanks.py:1 ", gradient=True)
    g.op("Dimension", size=3 * (n // 2) * (m // 3) + 1)
    g.origin = Origin("", "gradient of nothing.py:1")
    constants = [g.op("Constant", value=value) for value in AWKWARD]
    g.origin = Origin("", "", gradient=True)
    g.op("Constant", value=ArrayData.of(np.array(0.5, np.float32)), weak=True)
    g.origin = Origin("", "quelle/größe.py:7")
    branches = tuple(_branch(n, k) for k in range(2))
    z = g.emit(TABLE["If"], (condition, y), {}, branches)
    return g.build([z, x, z, *constants, condition])


def _branch(n: Any, depth: int) -> Graph:
    """A block, with a block in it unless `depth` is 0."""
    b = GraphBuilder(f"branch {depth}")
    y = b.input(Type("float32", (n * (2 * n + 1),)), "y")
    b.origin = Origin("Net", "net.py:5")
    if depth == 0:
        return b.build([b.Neg(y)])
    condition = b.Less(b.constant(0.0, "float32"), b.constant(1.0, "float32"))
    inner = tuple(_branch(n, depth - 1) for _ in range(2))
    return b.build([b.emit(TABLE["If"], (condition, y), {}, inner)])


def random_graph(seed: int, count: int) -> Graph:
    """Some samples of some operators, glued to values at hand where types fit."""
    draw = random.Random(seed)
    g = GraphBuilder(f"random {seed}")
    values: list[Value] = []
    for k in range(count):
        op = draw.choice(OPERATORS)
        sample = draw.choice(op.samples)
        dtype = draw.choice(samples.tested_types(op, sample))
        if draw.random() < 0.7:
            g.origin = Origin(
                draw.choice(["", "Net", "Net/A[0]"]), f"a.py:{k}", draw.random() < 0.5
            )
        inputs = [_operand(g, values, Type(x.dtype or dtype, x.shape), draw) for x in sample.inputs]
        try:
            results = g.op(op.name, *inputs, **sample.attrs)
        except TracerError:
            continue
        values += results if isinstance(results, tuple) else (results,)
    outputs = draw.sample(values, min(3, len(values)))
    return g.build(outputs)


def _operand(g: GraphBuilder, values: list[Value], type_: Type, draw: random.Random) -> Value:
    fitting = [v for v in values if v.type == type_]
    return draw.choice(fitting) if fitting and draw.random() < 0.8 else g.input(type_)


def chain(length: int) -> Graph:
    """A chain of nodes."""
    g = GraphBuilder("chain")
    x = g.input(Type("float32", (4,)), "x")
    half = g.constant(0.5, "float32")
    for k in range(length):
        x = g.Mul(x, half) if k % 2 else g.Add(x, x)
    return g.build([x])


def random_type(draw: random.Random) -> Type:
    """A type, weak or symbolic at times."""
    shape = tuple(
        draw.choice([0, 1, 3, Dim.symbol("n"), 2 * Dim.symbol("n") - 1])
        for _ in range(draw.randrange(4))
    )
    return Type(draw.choice(DTYPES), shape, weak=draw.random() < 0.2)
