"""Index checks: what a program refuses before it writes anything.

The indices of gathers and scatters, and the counts of masks, are tested by a small program of their own, so that a bad one raises
an error with the line and leaves all state as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from codegen.runtime.memory_pool import allocate
from ops.compute import Gather, Host, Scatter
from ops.errors import ArgumentError, BoundsError, ShapeError, TracerError
from tracer.ir.graph import Graph, GraphBuilder, Node, Value, used


class RunnableProgram(Protocol):
    """What an `IndexCheck` runs: a graph made ready to run."""

    workspace: int
    call: Callable[..., Any]

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The results for these inputs."""


class IndexCheck:
    """Runs the tests of `nodes`, (node, size) pairs, by a program whose results say of each whether an index is bad.

    Raises `BoundsError` naming the operator and the line.
    """

    def __init__(self, executable: RunnableProgram, nodes: list[tuple[Node, int]]) -> None:
        self.nodes, self.executable = nodes, executable

    def __call__(self, inputs: Sequence[Any]) -> None:
        """Test the indices of one call."""
        self._judge([bool(bad._data()[()]) for bad in self.executable(inputs)])

    def test_words(self, *words: Any) -> None:
        """The same, given the words of the inputs (pointers and numbers)."""
        block = allocate(64 * len(self.nodes) + self.executable.workspace + 64)
        pointers = [block.pointer + 64 * k for k in range(len(self.nodes))]
        self.executable.call(*words, *pointers, block.pointer + 64 * len(self.nodes))
        if block.array((len(self.nodes),), np.bool_, 0, (64,)).any():
            self._judge([bool(b) for b in block.array((len(self.nodes),), np.bool_, 0, (64,))])

    def _judge(self, bad: list[bool]) -> None:
        for (node, size), wrong in zip(self.nodes, bad, strict=True):
            if wrong:
                raise refusal(node, size)


def refusal(node: Node, size: int) -> TracerError:
    """What is raised for a node whose test failed: an index that is none of an axis of that size, or a mask of another count."""
    if isinstance(node.op.compute, Host):
        kind: type[TracerError] = ShapeError
        text = f"the mask does not hold {size} True elements, which is the size of what is selected"
    else:
        kind = BoundsError
        text = (
            f"an index is out of range for an axis of size {size}; possible: {-size} to {size - 1}"
        )
    where = f"\n  at {node.source}" if node.source else ""
    error = kind(f"{node.op.name}: {text}{where}")
    error.located = bool(where)  # type: ignore[attr-defined]
    return error


def index_tests(graph: Graph) -> tuple[Graph, list[tuple[Node, int]]] | None:
    """The tests that a graph needs, as a graph with one bool for each of the (node, size) pairs; None if there are none.

    Indices that other indices lead to are tested in it too, so it needs no tests of its own.
    """
    builder = GraphBuilder(f"{graph.name}.checks")
    builder.inputs, builder.input_names = list(graph.inputs), list(graph.input_names)
    builder.nodes = list(graph.nodes)
    outputs: list[Value] = []
    tested: list[tuple[Node, int]] = []
    seen: set[tuple[Value, int]] = set()
    positions: dict[int, set[Value]] = {}  # of elements of so many: always in range
    for node in graph.nodes:
        compute = node.op.compute
        if isinstance(compute, Host) and compute.count is not None:
            outputs.append(_miscounted(builder, node.inputs[0], node.attrs[compute.count]))
            tested.append((node, int(node.attrs[compute.count])))
            positions.setdefault(int(node.inputs[0].type.size), set()).add(node.output)
            continue
        if isinstance(compute, Gather) and compute.fill is None:
            axes = compute.rule([v.type for v in node.inputs], node.outputs[0].type, node.attrs)
            shape = node.inputs[0].type.shape
        elif isinstance(compute, Scatter):
            axes = compute.rule([v.type for v in node.inputs], node.outputs[0].type, node.attrs)
            shape = node.outputs[0].type.shape
        else:
            continue
        for index, size in zip(axes, shape, strict=True):
            operand = 1 if isinstance(compute, Scatter) else index.operand
            if index.operand is None or operand is None:
                continue
            v = node.inputs[operand]
            if (v, int(size)) in seen or 0 in v.type.shape or v in positions.get(int(size), ()):
                continue
            seen.add((v, int(size)))
            outputs.append(_bad(builder, v, int(size)))
            tested.append((node, int(size)))
    if not outputs:
        return None
    whole = builder.build(outputs)
    nodes, _ = used(whole)
    for node in nodes:
        if node.has_effect:
            where = f"\n  at {node.source}" if node.source else ""
            raise ArgumentError(
                f"{node.op.name}: an index follows from its result; indices are tested before the program runs, and "
                f"{node.op.effect.name if node.op.effect else 'its effect'} would happen twice{where}"
            )
    return Graph(whole.inputs, tuple(nodes), whole.outputs, whole.input_names, whole.name), tested


def _miscounted(builder: GraphBuilder, mask: Value, count: int) -> Value:
    """Whether a mask has more or fewer True elements."""
    axes = tuple(range(mask.type.rank))
    found = builder.ReduceSum(builder.Cast(mask, to="int64"), axes=axes, keepdims=False)
    result: Value = builder.NotEqual(found, builder.size(count))
    return result


def _bad(builder: GraphBuilder, v: Value, size: int) -> Value:
    """Whether any element of v is no index of an axis of the size."""
    limit = builder.size(size)
    unsigned = v.type.dtype.startswith("uint")
    wide = v if v.type.dtype in ("int64", "uint64") else builder.op("Cast", v, to="int64")
    if v.type.dtype == "uint64":
        limit = builder.op("Cast", limit, to="uint64")
    bad = builder.op("LessOrEqual", limit, wide)
    if not unsigned:
        bad = builder.op("Or", bad, builder.op("Less", wide, builder.op("Neg", limit)))
    result: Value = builder.op("ReduceAny", bad, axes=tuple(range(v.type.rank)), keepdims=False)
    return result
