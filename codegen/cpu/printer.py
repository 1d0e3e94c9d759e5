"""Prints a kernel specification as Numba source on 16-lane vector values: `def name(lo, hi, args)`.

This file lays out the loops: the driver's range, rows, the vector loop of a stage with its tail.
What stands in them comes from `cpu_access` (loads, stores) and `cpu_fold` (reductions). Every value
is a vector; a value of a row has 16 equal lanes. Knows no Numba: the same text runs un-jitted on
NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from codegen.cpu.access import Access
from codegen.cpu.folds import FoldText
from codegen.cpu.widen_scalars import vector_text
from codegen.spec.analysis import Analysis, function_name, lane_element, memory_element
from codegen.spec.kernel_spec import (
    CHUNK,
    WIDTH,
    Combine,
    Index,
    KernelSpec,
    Let,
    Load,
    Schedule,
    Stage,
    Statement,
    Store,
)
from codegen.spec.positions import Positions
from codegen.text.source import Source

Notes = Mapping[
    int, str
]  # number of a statement, counted through the stages -> what is printed behind its line


def cpu_text(spec: KernelSpec, schedule: Schedule | None = None, notes: Notes | None = None) -> str:
    """The Numba source of a spec. It depends on nothing else, and its meaning not on `notes`."""
    return _Printer(spec, schedule or Schedule(), notes or {}).text()


class _Printer:
    def __init__(self, spec: KernelSpec, schedule: Schedule, notes: Notes) -> None:
        self.spec, self.schedule, self.notes = spec, schedule, notes
        self.facts = Analysis(spec, schedule)
        self.access = Access(self.facts)
        self.folds = FoldText(self.facts)
        self.at = Positions(self.facts)
        self.inner, self.row, self.n_rows = self.at.inner, self.at.row, self.at.n_rows

    # ---- the function ----------------------------------------------------------------------------
    def text(self) -> str:
        body = {
            "rows": self._rows,
            "flat": self._flat,
            "split": self._split,
            "columns": self._columns,
            "scatter": self._scatter,
        }[self.schedule.mode]()
        out = Source()
        out.open(f"def {function_name(self.spec)}(lo, hi, args):")
        self._unpack(out, body.words)
        out.extend(body)
        return str(out)

    def _unpack(self, out: Source, used: set[str]) -> None:
        """The arguments that the body uses, from the block of words."""
        position = 0
        whole = self.spec.inner is not None and "whole" in used
        used = used | ({self.at.n_inner} if whole else set())
        for o in self.spec.operands:
            if o.name in used:
                out.line(f"{o.name} = pointer_{memory_element(o.dtype)}(args, {position})")
            position += 1
        for name in (*self.spec.size_names, *self.spec.stride_names):
            if name in used:
                out.line(f"{name} = word(args, {position})")
            position += 1
        for name, stack in self.folds.stacks.items():
            out.line(f"{name} = {stack}")
        if whole:
            out.line(f"whole = n_{self.inner} & -{WIDTH}")

    # ---- what the range counts -------------------------------------------------------------------
    def _rows(self) -> Source:
        out = Source()
        if self.schedule.swap:
            return self._swapped()
        out.open(f"for {self.row} in range(lo, hi):")
        self._one_row(out, "0", self.at.n_inner)
        return out

    def _flat(self) -> Source:
        out = Source()
        self._stages(out, "lo", "hi")
        return out

    def _split(self) -> Source:
        out = Source()
        n = self.at.n_inner
        out.line(f"chunks = ({n} + {CHUNK - 1}) // {CHUNK}")
        out.open("for task in range(lo, hi):")
        out.line(f"{self.row} = task // chunks")
        out.line(f"begin = (task - {self.row}*chunks)*{CHUNK}")
        out.line(f"end = min({n}, begin + {CHUNK})")
        self._one_row(out, "begin", "end")
        return out

    def _columns(self) -> Source:
        out = Source()
        out.open("for task in range(lo, hi):")
        self._empty_partials(out)
        out.line(f"first_row = task // {WIDTH} * {CHUNK} + task % {WIDTH}")
        out.line(f"last_row = min({self.n_rows}, task // {WIDTH} * {CHUNK} + {CHUNK})")
        out.open(f"for {self.row} in range(first_row, last_row, {WIDTH}):")
        self._one_row(out, "0", self.at.n_inner)
        return out

    def _scatter(self) -> Source:
        out = Source()
        out.open("for block in range(lo, hi):")
        if self.inner:
            out.line(f"begin = block*{self.schedule.columns}")
            out.line(f"end = min(n_{self.inner}, begin + {self.schedule.columns})")
        out.open(f"for {self.row} in range({self.n_rows}):")
        self._one_row(out, "begin", "end")
        return out

    def _empty_partials(self, out: Source) -> None:
        """Fresh states in the partial operands of a task, which may have no row."""
        looped = Source()
        for stage, _ in self.facts.stages:
            place = self.at.task_place(bool(stage.over))
            for s in self.facts.row_folds(stage):
                for name, init in zip(s.dsts, self.folds.initial(s.folding), strict=True):
                    if stage.over:
                        looped.line(f"store_part({name}, {place}, left, {init})")
                    else:
                        out.line(f"store_one({name}, {place}, {init})")
        if looped.lines:
            out.open(f"for {self.inner} in range(0, n_{self.inner}, {WIDTH}):")
            out.line(f"left = n_{self.inner} - {self.inner}")
            out.extend(looped)
            out.close()

    def _swapped(self) -> Source:
        """The inner loop outside the rows: a transposed operand is read while it is in cache."""
        out = Source()
        stage, start = self.facts.stages[-1]

        def rows(masked: bool, end: str) -> None:
            out.open(f"for {self.row} in range(lo, hi):")
            inside = Source()
            self.access.begin_row()
            for before, first in self.facts.stages[:-1]:
                self._once(inside, before, first)
            self._bases(inside, stage)
            inside.extend(self._body(stage, start, masked, end))
            out.add(self.at.row_axes(inside.words))
            out.extend(inside)
            out.close()

        self._vectors(out, "0", self.at.n_inner, rows)
        return out

    # ---- one row ---------------------------------------------------------------------------------
    def _one_row(self, out: Source, begin: str, end: str) -> None:
        body = Source()
        self._stages(body, begin, end)
        out.add(self.at.row_axes(body.words))
        out.extend(body)

    def _stages(self, out: Source, begin: str, end: str) -> None:
        self.access.begin_row()
        for stage, start in self.facts.stages:
            if stage.over:
                self._loop(out, stage, start, begin, end)
            else:
                self._once(out, stage, start)

    def _once(self, out: Source, stage: Stage, start: int) -> None:
        for number, s in enumerate(stage.body, start):
            self._statement(out, s, number, looped=False, masked=False)

    # ---- the loop of a stage ---------------------------------------------------------------------
    def _loop(self, out: Source, stage: Stage, start: int, begin: str, end: str) -> None:
        self._bases(out, stage)
        folds = self.facts.folds(stage)

        def body(masked: bool, end: str) -> None:
            out.extend(self._body(stage, start, masked, end))

        if self.schedule.mode == "split":
            self.folds.start(out, folds)
            self._vectors(out, begin, end, body)
            self.folds.store_partials(out, folds)
            return
        rounding = [f for f in folds if not f.folding.exact]
        self.folds.start(out, [f for f in folds if f.folding.exact])
        if rounding:
            out.open(f"for chunk in range(0, max({end}, 1), {CHUNK}):")  # of no elements too
            out.line(f"chunk_end = min({end}, chunk + {CHUNK})")
            self.folds.start(out, rounding)
            self._vectors(out, "chunk", "chunk_end", body)
            self.folds.end_chunk(out, rounding, end)
            out.close()
        else:
            self._vectors(out, begin, end, body)
        numbers = [k for k, s in enumerate(stage.body, start) if any(s is f for f in folds)]
        self.folds.finish(out, folds, [self._note(k) for k in numbers])

    def _vectors(
        self, out: Source, begin: str, end: str, body: Callable[[bool, str], None]
    ) -> None:
        """The vectors from begin to end: one loop with all masked, or full ones and one masked.

        `body(masked, end)` writes one vector.
        """
        r = self.inner
        if self.schedule.tail == "masked":
            out.open(f"for {r} in range({begin}, {end}, {WIDTH}):")
            body(True, end)
            out.close()
            return
        stop = "whole" if (begin, end) == ("0", f"n_{r}") else "stop"
        if stop == "stop":
            out.line(f"stop = {begin} + ({end} - {begin} & -{WIDTH})")
        out.open(f"for {r} in range({begin}, {stop}, {WIDTH}):")
        body(False, end)
        out.close()
        out.open(f"if {stop} < {end}:")
        out.line(f"{r} = {stop}")
        body(True, end)
        out.close()

    def _bases(self, out: Source, stage: Stage) -> None:
        for s in stage.body:
            if isinstance(s, Load | Store):
                self.access.name_base(out, s.operand, s.index)

    def _body(self, stage: Stage, start: int, masked: bool, end: str) -> Source:
        """The statements of a stage for one vector, behind the positions and masks they use."""
        inside, out = Source(), Source()
        for number, s in enumerate(stage.body, start):
            self._statement(inside, s, number, looped=True, masked=masked)
        used = inside.words
        if used & {"left", "live"}:
            out.line(f"left = {end} - {self.inner}")
        if "live" in used:
            out.line("live = below(left)")
        if used & {"lanes", *self.facts.parts}:
            out.line(f"lanes = lane_index({self.inner})")
        out.add(self.at.parts("lanes", used, lambda x, n: f"quotient({x}, {n})"))
        out.extend(inside)
        return out

    # ---- statements ------------------------------------------------------------------------------
    def _note(self, number: int) -> str:
        return self.notes.get(number, "")

    def _statement(
        self, out: Source, s: Statement, number: int, *, looped: bool, masked: bool
    ) -> None:
        note = self._note(number)
        if isinstance(s, Load):
            out.line(f"{s.dst} = {self.access.load(s, looped, masked)}", note)
        elif isinstance(s, Let):
            # Of a full vector too the count is no constant: LLVM would unroll the loop over lanes
            # instead of making vectors of it.
            rest = f"{self.at.n_inner} - {self.inner}"
            count = "1" if not looped else "left" if masked else rest
            text = vector_text(
                s.text, lane_element(s.dtype), self.facts.elements, self.facts.functions, count
            )
            out.line(f"{s.dst} = {text}", note)
        elif isinstance(s, Index):
            out.line(f"{s.dst} = {self._position(s.axis, looped)}", note)
        elif isinstance(s, Store):
            out.line(self.access.store(s, looped, masked), note)
        elif isinstance(s, Combine):
            self.folds.combine(out, s, self.at.place(looped), looped, masked, note)
        elif s.over == "rows":
            where = self.at.task_place(looped)
            self.folds.step_partial(out, s, where, looped, masked, note)
        else:
            self.folds.step(out, s, masked, note)

    def _position(self, axis: str, looped: bool) -> str:
        if axis == self.inner:
            return "lanes"
        if axis in self.facts.parts:
            return axis
        if axis != "*":
            return f"full(i64({axis}))"
        place = self.at.place(looped)[0]
        if not looped:
            return f"full(i64({place}))"
        return "lanes" if place == self.inner else f"lane_index({place})"
