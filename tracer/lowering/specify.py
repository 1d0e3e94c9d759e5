"""From a group of steps to a kernel specification: the passes over the inner axis, and what stands in each.

What is read and written (`accesses`), the axes (`iteration`) and the statements of each step (`statements`) have files of their
own. The passes follow from the folds: a value that needs a fold's result is computed in a later pass, and what a later pass needs
of an earlier one is read back if it is stored anyway, kept in a result's memory that is written later if it takes some effort,
and computed again otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from codegen.spec.kernel_spec import (
    Combine,
    Fold,
    KernelSpec,
    Load,
    Schedule,
    Stage,
    Statement,
    Store,
)
from codegen.spec.schedule_choice import Mode
from ops.compute import Effort, Scalar, ScalarFunction
from tracer.ir.graph import Value
from tracer.lowering.accesses import Accesses, OperandAccess
from tracer.lowering.groups import PartialFold, Shape, Step
from tracer.lowering.iteration import Iteration
from tracer.lowering.layout import Buffer, Layout
from tracer.lowering.statements import Statements


@dataclass(frozen=True, slots=True)
class Bound:
    """A specification with what its operands are bound to: (buffer, offset in elements) each, sizes, run-time strides."""

    spec: KernelSpec
    schedule: Schedule
    operands: tuple[tuple[Buffer, int], ...]
    sizes: dict[str, int]
    strides: dict[str, tuple[int, ...]]
    notes: dict[int, str]


class Specifier:
    """Writes one specification. `layout(v)`: where a value that is read lies; `literal(v)`: the value of a 0-d constant, else
    None; `numbers(n)`: a buffer that holds an int64; `partials`: of the folds that other kernels finish, by step;
    `schedule(spec, mode)`: the target's."""

    def __init__(
        self,
        steps: Sequence[Step],
        shape: Shape,
        stored: set[Value],
        layout: Callable[[Value], Layout],
        literal: Callable[[Value], Any],
        numbers: Callable[[int], Buffer],
        partials: Mapping[Step, PartialFold],
        schedule: Callable[[KernelSpec, Mode], Schedule],
        name: str = "kernel",
    ) -> None:
        self.steps, self.stored, self.name, self.schedule = steps, stored, name, schedule
        made = [s.output for s in steps if s.output is not None]
        self.names = {v: f"v{k}" for k, v in enumerate(made)}
        self.own_names = dict(self.names)  # of those that are other values, read otherwise, too
        self.accesses = Accesses(steps, shape, stored, layout, literal, partials)
        self.iteration = Iteration(steps, shape, self.accesses, partials)
        self.statements = Statements(
            self.accesses, self.iteration, self.names, literal, numbers, partials
        )

    def run(self) -> Bound:
        """The specification of the steps."""
        stages = tuple(self._stages())
        every = self.accesses.all
        spec = KernelSpec(
            self.name,
            self.iteration.axes(),
            tuple(map(self.iteration.operand, every)),
            stages,
            self._functions(),
        )
        return Bound(
            spec,
            self.schedule(spec, self.iteration.mode()),
            tuple((a.buffer, a.offset) for a in every),
            dict(self.iteration.sizes),
            {
                a.name: self.iteration.index(a)[1]
                for a in every
                if a.role != "partial" and not self.accesses.is_partial(a)
            },
            self._notes(spec),
        )

    def _functions(self) -> tuple[ScalarFunction, ...]:
        """The user's functions that texts call."""
        computes = (s.node.op.compute for s in self.steps)
        found = (f for c in computes if isinstance(c, Scalar) for f in c.functions)
        return tuple(dict.fromkeys(found))

    def _stages(self) -> list[Stage]:
        self._depths()
        self._passes = max(self._pass_of.values(), default=-1) + 1
        stages: list[Stage] = []
        self._scratch: dict[Value, OperandAccess] = {}
        self._kept_in: dict[Value, int] = {}
        self._needed_by: dict[int, dict[Step, None]] = {}  # what is kept decides it
        self._plan_scratch()
        for number in range(self._passes + 1):
            row = self._row_stage(number)
            if row:
                stages.append(Stage((), tuple(row)))
            if number < self._passes:
                body = self._inner_stage(number)
                if body:
                    stages.append(Stage(("r",) if self.iteration.has_inner else (), tuple(body)))
        return stages

    def _depths(self) -> None:
        """For each value the first pass in which it can be computed; for folds and stores the pass in which they are."""
        self._depth: dict[Value, int] = {}
        self._pass_of: dict[Step, int] = {}
        for step in self.steps:
            depth = max([self._depth.get(v, 0) for v in step.inputs], default=0)
            if step.kind == "row":
                self._pass_of[step] = depth
                depth += 1
            elif step.leaves_partials:
                self._pass_of[step] = depth
            if step.output is not None:
                self._depth[step.output] = depth
                if step.output in self.stored and self.iteration.level(step.result) == "inner":
                    self._pass_of.setdefault(step, depth)
        self._step_of = {s.output: s for s in self.steps if s.output is not None}

    def _needed(self, number: int) -> dict[Step, None]:
        """Inner-level steps whose values pass `number` uses, in order."""
        known = self._needed_by.get(number)
        if known is None:
            known = self._needed_by[number] = dict.fromkeys(self._find_needed(number))
        return known

    def _find_needed(self, number: int) -> list[Step]:
        roots: list[Value] = []
        for step, when in self._pass_of.items():
            if when == number:
                roots += (
                    [step.output]
                    if step.kind in ("map", "view", "finish", "point") and step.output
                    else list(step.inputs)
                )
        needed: set[Step] = set()
        stack = roots
        while stack:
            v = stack.pop()
            made = self._step_of.get(v)
            if (
                made is None
                or made in needed
                or made.kind == "row"
                or self.iteration.level(made.result) == "row"
            ):
                continue
            needed.add(made)
            if not self._is_read_back(v, number):
                stack.extend(made.inputs)
        return [s for s in self.steps if s in needed]

    def _is_read_back(self, v: Value, number: int) -> bool:
        if v in self._scratch:
            return number > self._kept_in[v]
        return (
            number > self._depth[v]
            and v in self.accesses.stores
            and self.iteration.level(self._step_of[v].result) == "inner"
        )

    def _uses(self, v: Value) -> list[int]:
        """The passes that need a value."""
        step = self._step_of[v]
        return [n for n in range(self._passes) if step in self._needed(n)]

    def _plan_scratch(self) -> None:
        """Results written in a late pass lend their memory to earlier values that take some effort: the exponentials of a
        softmax to its gradient's memory, then their quotients to the same."""
        free = [
            v
            for v, access in self.accesses.stores.items()
            if self.iteration.level(self._step_of[v].result) == "inner"
            and access.buffer.kind != "input"
            and not self._is_read(access)
            and self._is_contiguous(access)
        ]
        if not free:
            return
        for effort in ("high", "medium"):
            for v in self._recomputed(effort):
                for result in free:
                    if self._lend(result, v):
                        break

    def _is_contiguous(self, access: OperandAccess) -> bool:
        """Whether neighbours of the loop are neighbours in memory; else reading back costs more than most computing does."""
        return dict(zip(*self.iteration.index(access), strict=True)).get("r") == 1

    def _recomputed(self, effort: Effort) -> list[Value]:
        """Values of this effort that a pass after their own needs, in the order of these passes."""
        found: dict[Value, None] = {}
        for number in range(1, self._passes):
            for step in self._needed(number):
                v, compute = step.output, step.node.op.compute
                assert v is not None
                if (
                    isinstance(compute, Scalar)
                    and compute.effort == effort
                    and self._depth[v] < number
                    and v not in self.accesses.stores
                ):
                    found[v] = None
        return list(found)

    def _lend(self, result: Value, v: Value) -> bool:
        """Keep a value in the memory of a result, if the two and what is kept there already do not meet."""
        uses = self._uses(v)
        same = {a for axis in self._step_of[result].result for a in axis}
        mine = {a for axis in self._step_of[v].result for a in axis}
        if len(uses) < 2 or same != mine or self.accesses.dtype(result) != self.accesses.dtype(v):
            return False
        access = self.accesses.stores[result]
        self._scratch[v], self._kept_in[v] = access, uses[0]
        self._needed_by = {}
        kept = sorted(
            (w for w, place in self._scratch.items() if place is access),
            key=self._kept_in.__getitem__,
        )
        starts = [*map(self._kept_in.__getitem__, kept), self._depth[result]]
        ends = [self._uses(w)[-1] for w in kept]  # fewer, now that v is read back
        # A pass reads an element before it writes there.
        apart = all(
            start < end <= after for (start, after), end in zip(pairwise(starts), ends, strict=True)
        )
        if apart and all(len(self._uses(w)) > 1 for w in self._scratch):
            access.role = "inout"
            return True
        del self._scratch[v], self._kept_in[v]
        self._needed_by = {}
        return False

    def _row_stage(self, number: int) -> list[Statement]:
        body: list[Statement] = []
        if number == 0:
            for (_, dims), name in self.accesses.loads.items():
                if self.iteration.level(dims) == "row":
                    access = self.accesses.load_access[name]
                    body.append(Load(name, access.name, self.iteration.index(access)[0]))
        for step in self.steps:
            v = step.output
            if v is None or self.iteration.level(step.result) != "row" or self._depth[v] != number:
                continue
            if step.kind != "row":
                body += self.statements.of(step, "row")
            if v in self.accesses.stores and (
                not self.iteration.has_inner or self.iteration.level(step.result) == "row"
            ):
                access = self.accesses.stores[v]
                body.append(Store(access.name, self.iteration.index(access)[0], self.names[v]))
        return body

    def _inner_stage(self, number: int) -> list[Statement]:
        body: list[Statement] = []
        late: list[Statement] = []
        loaded: set[str] = set()
        self.statements.begin_loop()
        # What lies in a result's memory is read before the result is written there.
        needed = sorted(
            self._needed(number),
            key=lambda s: not (s.output in self._scratch and self._is_read_back(s.output, number)),
        )
        for step in needed:
            v = step.output
            assert v is not None
            if self._is_read_back(v, number):
                access = self.accesses.stores[v] if v in self.accesses.stores else self._scratch[v]
                body.append(Load(self.names[v], access.name, self.iteration.index(access)[0]))
                continue
            body += self._inner_loads(step, loaded)
            body += self.statements.of(step, "inner")
            if v in self.accesses.stores and self._depth[v] == number:
                access = self.accesses.stores[v]
                # What is updated in place may be read by what comes after.
                where = late if access.buffer.kind == "input" or self._is_read(access) else body
                where.append(Store(access.name, self.iteration.index(access)[0], self.names[v]))
            elif v in self._scratch and self._kept_in[v] == number:
                access = self._scratch[v]
                body.append(Store(access.name, self.iteration.index(access)[0], self.names[v]))
        for step, when in self._pass_of.items():
            if when == number and step.is_fold:
                body += self._inner_loads(step, loaded)
                body += self.statements.fold(step)
        return body + late

    def _is_read(self, access: OperandAccess) -> bool:
        """Whether the kernel reads from a buffer that it writes to."""
        return any(a.buffer is access.buffer and a.role == "in" for a in self.accesses.all)

    def _inner_loads(self, step: Step, loaded: set[str]) -> list[Statement]:
        body: list[Statement] = []
        for v, dims in zip(step.inputs, step.operands, strict=True):
            name = self.accesses.loads.get((v, dims)) if dims is not None else None
            if name is not None and name not in loaded and self.iteration.level(dims) == "inner":  # type: ignore[arg-type]
                loaded.add(name)
                access = self.accesses.load_access[name]
                body.append(Load(name, access.name, self.iteration.index(access)[0]))
        return body

    def _notes(self, spec: KernelSpec) -> dict[int, str]:
        source_of = {name: self._step_of[v].node for v, name in self.own_names.items()}
        notes = {}
        for number, statement in enumerate(spec.statements):
            if isinstance(statement, Store):
                continue
            name = statement.dsts[-1] if isinstance(statement, Fold | Combine) else statement.dst
            node = source_of.get(name)
            read = self.accesses.load_access.get(name)
            if read is not None and read.buffer.kind == "constant" and read.buffer.type.shape == ():
                notes[number] = str(read.buffer.data.reshape(-1)[0])
            if node is not None:
                mark = "gradient of " if node.origin.gradient and node.origin.source else ""
                where = f" {mark}{node.origin.source}" if node.origin.source else ""
                notes[number] = f"{node.op.name}{where}"
        return notes
