"""A program whose path depends on values: first what Python asked for, then, if the answers are the same, all the rest.

The early programs compute the guards and change nothing, so a call that turns out to take another path has done no harm. Their
indices are tested within them: a bad one counts only if all questions before it had the answers of this path. The late program
reads what the early ones have computed, and updates state in place as any other does.

Knows graphs and executables. Must not know which paths there are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from tracer import passes
from tracer.ir.graph import Graph, Node
from tracer.lowering.checks import index_tests, refusal
from tracer.passes.inline_calls import inline_calls
from tracer.runtime.executable import Executable, Kernels, look_for_anomalies
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor
from tracer.tracing.programs.stages import Stage, cut


@dataclass(frozen=True, slots=True)
class Departure:
    """Where a call leaves the path: the number of the first question with another outcome, and that."""

    number: int
    outcome: bytes


class EarlyProgram:
    """The program of a stage that has guards. Its results: those of the stage, then the tests of its indices.

    Attributes: `tests`, their count; `offsets`, places of the guards' and the tests' outcomes in one piece of memory of
    `outcome_bytes`.
    """

    def __init__(self, stage: Stage, shared: Collection[int], updated: Collection[int]) -> None:
        """`updated`: numbers of inputs that the late program changes, so that no result shares their memory."""
        self.stage = stage
        count = len(stage.guards)
        graph = stage.graph
        simple = passes.run(graph)
        found = index_tests(simple)
        self._tests: list[tuple[Node, int]] = [] if found is None else found[1]
        self.tests = len(self._tests)
        position = {v: k for k, n in enumerate(simple.nodes) for v in n.outputs}
        # what decides, in the order of the function: questions as they were asked, and before each the tests of all that had
        # been gathered for it
        places = accumulate((position.get(v, -1) for v in simple.outputs[:count]), max)
        order = [(place, 1, k) for k, place in enumerate(places)]
        if found is not None:
            there = set(simple.nodes)
            nodes = (*simple.nodes, *(n for n in found[0].nodes if n not in there))
            outputs = (*simple.outputs, *found[0].outputs)
            graph = Graph(simple.inputs, nodes, outputs, graph.input_names, graph.name)
            place_of = {n: k for k, n in enumerate(simple.nodes)}
            order += [(place_of[n], 0, k) for k, (n, _) in enumerate(self._tests)]
        self._order = [(bool(is_guard), k) for _, is_guard, k in sorted(order)]
        later = {simple.inputs[k] for k in updated}
        handed = {
            place
            for place, k in enumerate(stage.results, count)
            if k in shared and simple.outputs[place] not in later
        }
        self.executable = Executable(graph, {}, handed, tested=False)
        self._place_outcomes()

    def _place_outcomes(self) -> None:
        results = self.executable.results
        count = len(results)
        self._outcomes = [*range(len(self.stage.guards)), *range(count - self.tests, count)]
        types = [results[place][2] for place in self._outcomes]
        self._sizes = [int(t.size) * t.itemsize for t in types]
        self.offsets = [0] * len(types)
        end = 0
        for k in sorted(range(len(types)), key=lambda k: -types[k].itemsize):  # each is aligned
            self.offsets[k] = end
            end += self._sizes[k]
        self.outcome_bytes = end

    def outcomes(self, results: Sequence[Tensor]) -> list[bytes]:
        """The bytes of the guards and tests in the program's results."""
        return [results[place]._data().tobytes() for place in self._outcomes]

    def packed(self, expected: Sequence[bytes]) -> bytes:
        """The memory of outcomes where all guards have the expected ones, given for the whole path, and no index is bad."""
        memory = bytearray(self.outcome_bytes)
        for offset, k in zip(self.offsets, self.stage.guards, strict=False):
            memory[offset : offset + len(expected[k])] = expected[k]
        return bytes(memory)

    def unpacked(self, memory: bytes) -> list[bytes]:
        """The bytes of the guards and tests in one piece of memory."""
        places = zip(self.offsets, self._sizes, strict=True)
        return [memory[offset : offset + size] for offset, size in places]

    def departure(
        self, outcomes: Sequence[bytes], expected: Sequence[bytes], agreed: int
    ) -> Departure | None:
        """The first question whose outcome is not the expected one; None if all are. The first `agreed` are known already.

        Raises `BoundsError` for a bad index that comes before it.
        """
        start = self.stage.guards.start
        for is_guard, k in self._order:
            if not is_guard:
                if any(outcomes[len(self.stage.guards) + k]):
                    raise refusal(*self._tests[k])
            elif start + k >= agreed and outcomes[k] != expected[start + k]:
                return Departure(start + k, outcomes[k])
        return None


class GuardedExecutable:
    """A compiled graph whose last outputs are `guards`. `updates` and `shared` as for `Executable`.

    Attributes: `early`, the programs that decide; `late`, the rest, None if there is none, and its `late_stage`; `results`, as of
    an `Executable`.
    """

    def __init__(
        self, graph: Graph, updates: Mapping[int, int], shared: Collection[int], guards: int
    ) -> None:
        graph = inline_calls(graph)
        self.graph = graph
        self.updates = dict(updates)
        *stages, rest = cut(graph, guards, self.updates)
        self.early = [EarlyProgram(stage, shared, self.updates.values()) for stage in stages]
        self.late_stage = rest
        self.late: Executable | None = None
        if rest.results:
            number_of = {k: number for number, k in enumerate(rest.results)}
            self.late = Executable(
                rest.graph,
                {number_of[k]: target for k, target in self.updates.items()},
                {number_of[k] for k in rest.results if k in shared},
                read_before={
                    k
                    for program in self.early
                    for k in range(len(graph.inputs))
                    if k not in program.executable.unread
                },
            )
            self.late.examined = False
        self._anomalies: Any = None
        kinds: dict[int, tuple[str, int, Any]] = {}
        for program in self.early:
            found = program.executable.results[len(program.stage.guards) :]
            kinds.update(zip(program.stage.results, found, strict=False))
        if self.late is not None:
            kinds.update(zip(rest.results, self.late.results, strict=True))
        self.results = [kinds[k] for k in range(len(kinds))]

    # ---- running
    def decide(
        self, inputs: Sequence[Any], expected: Sequence[bytes], agreed: int
    ) -> list[list[Tensor]] | Departure:
        """Run the early programs up to the first question with another outcome than expected; their results, if there is none.

        The first `agreed` outcomes are known to be right. Raises `BoundsError` for a bad index on the way.
        """
        done: list[list[Tensor]] = []
        for program in self.early:
            results = program.executable(_with(inputs, program.stage, done))
            departure = program.departure(program.outcomes(results), expected, agreed)
            if departure is not None:
                return departure
            done.append(results)
        return done

    def finish(self, inputs: Sequence[Any], early: list[list[Tensor]]) -> list[Tensor]:
        """Run the late program; all results but the guards. In anomaly mode the whole is examined first, now that the path is
        known to be this one."""
        if MODES.anomaly is not None:
            self._anomalies = look_for_anomalies(self._anomalies, self.graph, inputs)
        results: dict[int, Tensor] = {}
        for program, found in zip(self.early, early, strict=True):
            results.update(
                zip(program.stage.results, found[len(program.stage.guards) :], strict=False)
            )
        if self.late is not None:
            rest = self.late(_with(inputs, self.late_stage, early))
            results.update(zip(self.late_stage.results, rest, strict=True))
        return [results[k] for k in range(len(results))]

    # ---- looking inside
    def _programs(self) -> list[Executable]:
        programs = [program.executable for program in self.early]
        return programs if self.late is None else [*programs, self.late]

    @property
    def unread(self) -> frozenset[int]:
        """The numbers of inputs that no program reads or writes."""
        return frozenset.intersection(*(program.unread for program in self._programs()))

    @property
    def sharing(self) -> Any:
        """The test for operands that share memory."""
        return self._programs()[-1].sharing

    @property
    def compile_seconds(self) -> float:
        """Seconds spent compiling."""
        return sum(program.compile_seconds for program in self._programs())

    def borrowed(self, numbers: Sequence[int]) -> list[int]:
        """The inputs whose memory results of these numbers share. The others lie in what an early program has computed."""
        count = len(self.graph.inputs)
        found = [self.results[k][1] for k in numbers if self.results[k][0] == "input"]
        return [number for number in found if number < count]

    def kernels(self) -> Kernels:
        """The generated kernels."""
        return Kernels([text for program in self._programs() for text in program.kernels()])

    def plan(self) -> Any:
        """The plan of all programs as data."""
        plans = [program.plan() for program in self._programs()]
        return replace(
            plans[0],
            parts=tuple(part for plan in plans for part in plan.parts),
            cuts=tuple(edge for plan in plans for edge in plan.cuts),
            workspace=max(plan.workspace for plan in plans),
            nodes=tuple(node for plan in plans for node in plan.nodes),
            residuals=sum(plan.residuals for plan in plans),
        )


def _with(inputs: Sequence[Any], stage: Stage, done: Sequence[Sequence[Tensor]]) -> list[Any]:
    """The inputs of a stage: those of the whole, and what it reads of the stages before."""
    return [*inputs, *(done[k][place] for k, place in stage.reads)]
