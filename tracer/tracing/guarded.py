"""A program whose path depends on values: first what Python asked for, then, if the answers are the same, all the rest.

The early program computes the guards and changes nothing, so a call that turns out to take another path has done no harm. Its
indices are tested within it: a bad one counts only if all questions before it had the answers of this path. The late program
reads what the early one has computed, and updates state in place as any other does.

Knows graphs and executables. Must not know which paths there are.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from ops.operator import Operator
from tracer import passes
from tracer.execution import Executable, Kernels, look_for_anomalies
from tracer.graph import Graph, Node, Value, used
from tracer.lowering.checks import index_tests, refusal
from tracer.modes import MODES
from tracer.passes.inline import inline_calls
from tracer.tensor import Tensor


class GuardedExecutable:
    """A compiled graph whose last outputs are `guards`. `updates` and `shared` as for `Executable`.

    Attributes: `early` and `late`, its two programs (`late` None if nothing is left to do); `early_results`, pairs of a result's
    number and its place in the early program; `late_results`, the numbers of the late program's results in order; `crossing`,
    the places of values that the late program reads; `offsets` and `sizes` of outcomes that lie in one piece of memory, guards
    first, then tests; `guards`, `tests`, their counts.
    """

    def __init__(
        self, graph: Graph, updates: Mapping[int, int], shared: Container[int], guards: int
    ) -> None:
        graph = inline_calls(graph)
        self.graph, self.guards = graph, guards
        self.updates = dict(updates)
        count = len(graph.outputs) - guards
        results, asked = graph.outputs[:count], graph.outputs[count:]
        early = _Part(graph, asked)
        self.early_results = [
            (k, guards + place)
            for place, k in enumerate(
                k for k, v in enumerate(results) if k not in self.updates and v in early.available
            )
        ]
        done = {k for k, _ in self.early_results}
        self.late_results = [k for k in range(count) if k not in done]
        nodes, crossing = early.rest([results[k] for k in self.late_results])
        outputs = [*asked, *(results[k] for k, _ in self.early_results)]
        self.crossing: list[int] = []
        for v in crossing:
            found = next((place for k, place in self.early_results if results[k] is v), None)
            self.crossing.append(len(outputs) if found is None else found)
            if found is None:
                outputs.append(v)
        self.early = self._compile_early(
            early.graph(outputs), {place for k, place in self.early_results if k in shared}
        )
        self.late: Executable | None = None
        if self.late_results:
            late = Graph(
                (*graph.inputs, *crossing),
                tuple(nodes),
                tuple(results[k] for k in self.late_results),
                (*graph.input_names, *("" for _ in crossing)),
                graph.name,
            )
            number_of = {k: number for number, k in enumerate(self.late_results)}
            self.late = Executable(
                late,
                {number_of[k]: target for k, target in self.updates.items()},
                {number_of[k] for k in self.late_results if k in shared},
            )
            self.late.examined = False
        self._anomalies: Any = None
        self.results = self._result_kinds(count)
        self._place_outcomes()

    def _compile_early(self, graph: Graph, shared: set[int]) -> Executable:
        """The early program, with the tests of its indices as further results."""
        simple = passes.run(graph)
        found = index_tests(simple)
        self._tests: list[tuple[Node, int]] = [] if found is None else found[1]
        self.tests = len(self._tests)
        position = {v: k for k, n in enumerate(simple.nodes) for v in n.outputs}
        # what decides, in the order of the function: questions as they were asked, and before each the tests of all that had
        # been gathered for it
        places = accumulate((position.get(v, -1) for v in simple.outputs[: self.guards]), max)
        order = [(place, 1, k) for k, place in enumerate(places)]
        if found is not None:
            there = set(simple.nodes)
            nodes = (*simple.nodes, *(n for n in found[0].nodes if n not in there))
            place_of = {n: k for k, n in enumerate(simple.nodes)}
            order += [(place_of[n], 0, k) for k, (n, _) in enumerate(self._tests)]
            graph = Graph(
                simple.inputs,
                nodes,
                (*simple.outputs, *found[0].outputs),
                graph.input_names,
                graph.name,
            )
        self._order = [(bool(is_guard), k) for _, is_guard, k in sorted(order)]
        return Executable(graph, {}, shared, tested=False)

    def _result_kinds(self, count: int) -> list[tuple[str, int, Any]]:
        kinds: list[Any] = [None] * count
        for k, place in self.early_results:
            kinds[k] = self.early.results[place]
        for number, k in enumerate(self.late_results):
            assert self.late is not None
            kinds[k] = self.late.results[number]
        return kinds

    def _place_outcomes(self) -> None:
        results = self.early.results
        self._outcomes = [*range(self.guards), *range(len(results) - self.tests, len(results))]
        types = [results[place][2] for place in self._outcomes]
        self.sizes = [int(t.size) * t.itemsize for t in types]
        self.offsets = [0] * len(types)
        end = 0
        for k in sorted(range(len(types)), key=lambda k: -types[k].itemsize):  # each is aligned
            self.offsets[k] = end
            end += self.sizes[k]
        self.outcome_bytes = end

    # ---- running
    def begin(self, inputs: Sequence[Any]) -> list[Tensor]:
        """Run the early program."""
        return self.early(inputs)

    def outcomes(self, results: Sequence[Tensor]) -> list[bytes]:
        """The bytes of the guards and tests in the early program's results."""
        return [results[place]._data().tobytes() for place in self._outcomes]

    def packed(self, outcomes: Sequence[bytes]) -> bytes:
        """The memory of outcomes where all guards have these and no index is bad."""
        memory = bytearray(self.outcome_bytes)
        for offset, outcome in zip(self.offsets, outcomes, strict=False):
            memory[offset : offset + len(outcome)] = outcome
        return bytes(memory)

    def unpacked(self, memory: bytes) -> list[bytes]:
        """The bytes of the guards and tests in one piece of memory."""
        return [
            memory[offset : offset + size]
            for offset, size in zip(self.offsets, self.sizes, strict=True)
        ]

    def differing(
        self, outcomes: Sequence[bytes], expected: Sequence[bytes], agreed: int = 0
    ) -> int | None:
        """The number of the first guard whose outcome is another one, None if all are the same; `agreed` are known already.

        Raises `BoundsError` for a bad index that comes before it.
        """
        for is_guard, k in self._order:
            if is_guard:
                if k >= agreed and outcomes[k] != expected[k]:
                    return k
            elif any(outcomes[self.guards + k]):
                raise refusal(*self._tests[k])
        return None

    def finish(self, inputs: Sequence[Any], early: Sequence[Tensor]) -> list[Tensor]:
        """Run the late program; all results but the guards. In anomaly mode the whole is examined first, now that the path is
        known to be this one."""
        if MODES.anomaly is not None:
            self._anomalies = look_for_anomalies(self._anomalies, self.graph, inputs)
        results: list[Any] = [None] * len(self.results)
        for k, place in self.early_results:
            results[k] = early[place]
        if self.late is not None:
            found = self.late([*inputs, *(early[place] for place in self.crossing)])
            for k, tensor in zip(self.late_results, found, strict=True):
                results[k] = tensor
        return results

    # ---- looking inside
    @property
    def sharing(self) -> Any:
        """The test for operands that share memory."""
        return (self.late or self.early).sharing

    @property
    def compile_seconds(self) -> float:
        """Seconds spent compiling."""
        return self.early.compile_seconds + (self.late.compile_seconds if self.late else 0.0)

    def borrowed(self, numbers: Sequence[int]) -> list[int]:
        """The inputs whose memory results of these numbers share."""
        return [self.results[k][1] for k in numbers if self.results[k][0] == "input"]

    def kernels(self) -> Kernels:
        """The generated kernels."""
        return Kernels([*self.early.kernels(), *(self.late.kernels() if self.late else ())])

    def plan(self) -> Any:
        """The plan of both programs as data."""
        early = self.early.plan()
        if self.late is None:
            return early
        late = self.late.plan()
        return replace(
            early,
            parts=early.parts + late.parts,
            cuts=early.cuts + late.cuts,
            workspace=max(early.workspace, late.workspace),
            nodes=early.nodes + late.nodes,
            residuals=early.residuals + late.residuals,
        )


class _Part:
    """The nodes that values need, and what is `available` when they have run."""

    def __init__(self, whole: Graph, values: Sequence[Value]) -> None:
        self._whole = whole
        nodes, _ = used(replace(whole, outputs=tuple(values), _cache={}))
        self._nodes = set(nodes)
        self.available = {*whole.inputs, *(v for n in nodes for v in n.outputs)}

    def rest(self, results: Sequence[Value]) -> tuple[list[Node], list[Value]]:
        """The nodes that results need beyond this part, and the values of it that those read."""
        needed: set[Value] = set(results)
        crossing: dict[Value, None] = {}
        nodes: list[Node] = []
        for node in reversed(self._whole.nodes):
            if not any(v in needed for v in node.outputs):
                continue
            if node in self._nodes and not _is_cheap(node):
                crossing.update(dict.fromkeys(v for v in node.outputs if v in needed))
                continue
            nodes.append(node)
            needed.update(node.inputs)
        nodes.reverse()
        return nodes, list(crossing)

    def graph(self, outputs: Sequence[Value]) -> Graph:
        """The part as a graph."""
        nodes = tuple(n for n in self._whole.nodes if n in self._nodes)
        return replace(self._whole, nodes=nodes, outputs=tuple(outputs), _cache={})


def _is_cheap(node: Node) -> bool:
    """Whether a node is computed again rather than kept: views, constants, Python numbers."""
    op: Operator = node.op
    return op.is_view or not node.inputs or all(v.type.weak for v in node.outputs)
