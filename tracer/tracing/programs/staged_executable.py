"""A program whose path depends on values: first what Python asked for, then, if the answers are the same, all the rest.

The early programs compute the guards and change nothing, so a call that turns out to take another path has done no harm. Their
indices are tested within them: a bad one counts only if all guards before it hold. The late program reads what the early ones
have computed, and updates state in place as any other does.

Knows graphs and executables. Must not know which paths there are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeVar

from tracer import passes
from tracer.ir.graph import Graph, Node
from tracer.lowering.checks import index_tests, refusal
from tracer.passes.inline_calls import inline_calls
from tracer.runtime.executable import Executable, Kernels, look_for_anomalies
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor
from tracer.tracing.programs.stages import Stage, cut

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FailedGuard:
    """The number of the first value guard that failed, and what it observed: there a call leaves the path."""

    number: int
    observed: bytes


class EarlyProgram:
    """The program of a stage that has guards. Its results: those of the stage, then the tests of its indices.

    Attributes: `tests`, the numbers of these; `offsets`, where what guards and tests observe lies in one piece of memory of
    `observed_bytes`.
    """

    def __init__(self, stage: Stage, shared: Collection[int], updated: Collection[int]) -> None:
        """`updated`: numbers of inputs that the late program changes, so that no result shares their memory."""
        self.stage, self.outputs = stage, stage.outputs
        graph, outputs = stage.graph, self.outputs
        simple = passes.run(graph)
        found = index_tests(simple)
        self._tests: list[tuple[Node, int]] = [] if found is None else found[1]
        self.tests = range(outputs.handed_on.stop, outputs.handed_on.stop + len(self._tests))
        position = {v: k for k, n in enumerate(simple.nodes) for v in n.outputs}
        # what decides, in the order of the function: guards as Python asked, and before each the tests of all that had been
        # gathered for it
        places = accumulate((position.get(simple.outputs[k], -1) for k in outputs.guards), max)
        order = [(place, 1, k) for k, place in enumerate(places)]
        if found is not None:
            there = set(simple.nodes)
            nodes = (*simple.nodes, *(n for n in found[0].nodes if n not in there))
            results = (*simple.outputs, *found[0].outputs)
            graph = Graph(simple.inputs, nodes, results, graph.input_names, graph.name)
            place_of = {n: k for k, n in enumerate(simple.nodes)}
            order += [(place_of[n], 0, k) for k, (n, _) in enumerate(self._tests)]
        self._order = [(bool(is_guard), k) for _, is_guard, k in sorted(order)]
        later = {simple.inputs[k] for k in updated}
        handed = {
            place
            for place, k in zip(outputs.results, stage.results, strict=True)
            if k in shared and simple.outputs[place] not in later
        }
        self.executable = Executable(graph, {}, handed, tested=False)
        self._place_observed()

    def _place_observed(self) -> None:
        self._observed = [*self.outputs.guards, *self.tests]
        types = [self.executable.results[k].type for k in self._observed]
        self._sizes = [int(t.size) * t.itemsize for t in types]
        self.offsets = [0] * len(types)
        end = 0
        for k in sorted(range(len(types)), key=lambda k: -types[k].itemsize):  # each is aligned
            self.offsets[k] = end
            end += self._sizes[k]
        self.observed_bytes = end

    def observed(self, results: Sequence[Tensor]) -> list[bytes]:
        """The bytes of the guards and tests in the program's results."""
        return [results[k]._data().tobytes() for k in self._observed]

    def packed(self, expected: Sequence[bytes]) -> bytes:
        """The memory where all guards observe what is expected, given for the whole path, and no index is bad."""
        memory = bytearray(self.observed_bytes)
        for offset, k in zip(self.offsets, self.stage.guards, strict=False):
            memory[offset : offset + len(expected[k])] = expected[k]
        return bytes(memory)

    def unpacked(self, memory: bytes) -> list[bytes]:
        """The bytes of the guards and tests in one piece of memory."""
        places = zip(self.offsets, self._sizes, strict=True)
        return [memory[offset : offset + size] for offset, size in places]

    def failed(
        self, observed: Sequence[bytes], expected: Sequence[bytes], agreed: int
    ) -> FailedGuard | None:
        """The first guard that does not observe what is expected; None if all do. The first `agreed` are known to.

        Raises `BoundsError` for a bad index that comes before it.
        """
        for is_guard, k in self._order:
            if not is_guard:
                if any(observed[len(self.stage.guards) + k]):
                    raise refusal(*self._tests[k])
                continue
            number = self.stage.guards[k]
            if number >= agreed and observed[k] != expected[number]:
                return FailedGuard(number, observed[k])
        return None

    def results(self, found: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """By their numbers in the whole graph, the program's results that are results of that."""
        for number, k in zip(self.stage.results, self.outputs.results, strict=True):
            yield number, found[k]


class StagedExecutable:
    """A compiled graph whose last outputs are `guards`. `updates` and `shared` as for `Executable`.

    Attributes: `early`, the programs that decide; `late`, the rest, None if there is none, and its `late_stage`; `results`, as of
    an `Executable`.
    """

    def __init__(
        self, graph: Graph, updates: Mapping[int, int], shared: Collection[int], guards: range
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
        self.results = self._in_order(
            [program.executable.results for program in self.early],
            [] if self.late is None else self.late.results,
        )

    def _in_order(self, early: Sequence[Sequence[T]], late: Sequence[T]) -> list[T]:
        """What the programs have for each output of the whole graph but the guards."""
        found = dict(zip(self.late_stage.results, late, strict=True))
        for program, results in zip(self.early, early, strict=True):
            found.update(program.results(results))
        return [found[k] for k in range(len(found))]

    # ---- running
    def decide(
        self, inputs: Sequence[Any], expected: Sequence[bytes], agreed: int
    ) -> list[list[Tensor]] | FailedGuard:
        """Run the early programs up to the first guard that observes something else; their results, if there is none.

        The first `agreed` are known to hold. Raises `BoundsError` for a bad index on the way.
        """
        done: list[list[Tensor]] = []
        for program in self.early:
            results = program.executable(_with(inputs, program.stage, done))
            failed = program.failed(program.observed(results), expected, agreed)
            if failed is not None:
                return failed
            done.append(results)
        return done

    def finish(self, inputs: Sequence[Any], early: list[list[Tensor]]) -> list[Tensor]:
        """Run the late program; all results but the guards. In anomaly mode the whole is examined first, now that the path is
        known to be this one."""
        if MODES.anomaly is not None:
            self._anomalies = look_for_anomalies(self._anomalies, self.graph, inputs)
        late = [] if self.late is None else self.late(_with(inputs, self.late_stage, early))
        return self._in_order(early, late)

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
        found = [self.results[k] for k in numbers]
        return [r.number for r in found if r.kind == "input" and r.number < count]

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
