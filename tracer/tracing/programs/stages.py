"""A graph cut into stages that run one after the other: what the first guards need, what the next ones need, the rest.

A call that leaves its path at an early guard has then not run what only later ones need. Small work stays in one stage,
since a cut costs a call and puts values into memory. Knows graphs only.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from ops.compute import Contraction
from tracer.ir.graph import Graph, Node, Value

WORTH_A_STAGE = 1 << 20  # elements read and written, which take a few hundred microseconds
MOST_STAGES = 32
_PER_ELEMENT = 16  # multiplications of a matrix product that take as long as reading an element


@dataclass(frozen=True, slots=True)
class StageOutputs:
    """The numbers of a stage's outputs, part by part in this order."""

    guards: range
    results: range  # of the whole graph
    handed_on: range  # what only later stages read


@dataclass(slots=True)
class Stage:
    """What runs together. `guards`, `results`: which guards and which outputs of the whole graph it computes.

    `reads`: (stage, number of its output) of the values that are inputs after the graph's own.
    """

    guards: range
    results: list[int]
    graph: Graph
    reads: list[tuple[int, int]] = field(default_factory=list)

    @property
    def outputs(self) -> StageOutputs:
        """Which outputs are what."""
        first = len(self.guards)
        later = first + len(self.results)
        return StageOutputs(
            range(first), range(first, later), range(later, len(self.graph.outputs))
        )


def cut(graph: Graph, guards: range, updates: Collection[int]) -> list[Stage]:
    """The stages of a graph some of whose outputs are guards; those in `updates` change state, so they wait for all guards.

    The last stage is that of the rest and has no guards; it may have no results either.
    """
    guarded = [graph.outputs[k] for k in guards]
    made = {v: node for node in graph.nodes for v in node.outputs}
    stage_of, ranges = _assigned(made, guarded)
    last = len(ranges)
    stages = [Stage(numbers, [], graph) for numbers in (*ranges, range(0))]
    for number, v in enumerate(graph.outputs):
        if number not in guards:
            early = last - 1 if v not in made else stage_of.get(made[v], last)
            stages[last if number in updates else early].results.append(number)
    outputs = [
        [*(guarded[k] for k in stage.guards), *(graph.outputs[k] for k in stage.results)]
        for stage in stages
    ]
    place: dict[Value, tuple[int, int]] = {}
    for k, values in enumerate(outputs[:last]):
        for p, v in enumerate(values):
            if v in made and stage_of[made[v]] == k:
                place.setdefault(v, (k, p))
    parts = []
    for k, values in enumerate(outputs):
        nodes, crossing = _needed(graph, values, stage_of, k)
        for v in crossing:
            if v not in place:
                source = stage_of[made[v]]
                place[v] = source, len(outputs[source])
                outputs[source].append(v)
        parts.append((nodes, crossing))
    for k, (stage, (nodes, crossing)) in enumerate(zip(stages, parts, strict=True)):
        stage.reads = [place[v] for v in crossing]
        stage.graph = replace(
            graph,
            inputs=(*graph.inputs, *crossing),
            nodes=tuple(nodes),
            outputs=tuple(outputs[k]),
            input_names=(*graph.input_names, *("" for _ in crossing)),
            _cache={},
        )
    return stages


def _assigned(
    made: dict[Value, Node], guarded: Sequence[Value]
) -> tuple[dict[Node, int], list[range]]:
    """The stage of each node that a guard needs, and the guards of each stage."""
    first: dict[Node, int] = {}  # the first guard that needs a node
    work = [0] * len(guarded)
    for k, v in enumerate(guarded):
        stack = [v]
        while stack:
            node = made.get(stack.pop())
            if node is not None and node not in first:
                first[node] = k
                work[k] += _work(node)
                stack.extend(node.inputs)
    # two stages that follow each other are more than that
    enough = max(WORTH_A_STAGE, 2 * sum(work) // MOST_STAGES + 1)
    ranges, start, total = [], 0, 0
    for k, amount in enumerate(work):
        if total + amount > enough and total:
            ranges.append(range(start, k))
            start, total = k, 0
        total += amount
    ranges.append(range(start, len(guarded)))
    stage_of_guard = [number for number, guards in enumerate(ranges) for _ in guards]
    return {node: stage_of_guard[k] for node, k in first.items()}, ranges


def _work(node: Node) -> int:
    """How long a node takes, in elements."""
    elements = sum(int(v.type.size) for v in (*node.inputs, *node.outputs))
    if isinstance(node.op.compute, Contraction):
        elements += int(node.output.type.size) * int(node.inputs[0].type.shape[-1]) // _PER_ELEMENT
    return 0 if _is_cheap(node) else elements


def _needed(
    graph: Graph, values: Sequence[Value], stage_of: dict[Node, int], stage: int
) -> tuple[list[Node], list[Value]]:
    """The nodes that a stage runs for these values, and the values of stages before it that they read."""
    needed: set[Value] = set(values)
    crossing: dict[Value, None] = {}
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        if not any(v in needed for v in node.outputs):
            continue
        if stage_of.get(node, stage) < stage and not _is_cheap(node):
            crossing.update(dict.fromkeys(v for v in node.outputs if v in needed))
            continue
        nodes.append(node)
        needed.update(node.inputs)
    nodes.reverse()
    return nodes, list(crossing)


def _is_cheap(node: Node) -> bool:
    """Whether a node is computed again rather than kept: views, constants, Python numbers."""
    return node.op.is_view or not node.inputs or all(v.type.weak for v in node.outputs)
