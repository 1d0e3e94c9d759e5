"""Prints a kernel specification as Numba source on 16-lane vector values: `def name(lo, hi, args)`.

Every value is a vector; a value of a row has 16 equal lanes. This file lays out the driver's range
and the vector loop with its tail (`loop_nest` has the rest of the loops). What stands in them comes
from `access` (loads, stores) and `folds` (reductions). Knows no Numba: the same text runs
un-jitted on NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable

from codegen.cpu.access import Access
from codegen.cpu.folds import CpuFolds
from codegen.cpu.widen_scalars import vector_text
from codegen.printing.loop_nest import LoopNest, Notes
from codegen.spec.analysis import function_name, lane_element
from codegen.spec.kernel_spec import CHUNK, WIDTH, KernelSpec, Let, Load, Schedule, Stage, Store
from codegen.spec.positions import Extent
from codegen.text.source import Source


def cpu_text(spec: KernelSpec, schedule: Schedule | None = None, notes: Notes | None = None) -> str:
    """The Numba source of a spec. It depends on nothing else, and its meaning not on `notes`."""
    return _Printer(spec, schedule, notes).text()


class _Printer(LoopNest):
    def __init__(self, spec: KernelSpec, schedule: Schedule | None, notes: Notes | None) -> None:
        super().__init__(spec, schedule, notes)
        self.access = Access(self.facts)
        self.folds = CpuFolds(self.facts)

    # ---- the function ----------------------------------------------------------------------------
    def text(self) -> str:
        body = {
            "rows": self._swapped if self.schedule.swap else self.rows,
            "flat": self._flat,
            "split": self.split,
            "columns": self.columns,
            "scatter": self._scatter,
        }[self.schedule.mode]()
        out, used = Source(), body.identifiers
        out.open(f"def {function_name(self.spec)}(lo, hi, args):")
        self.unpack(out, used | {self.n_inner} if "whole" in used else used)
        for name, stack in self.folds.memory.items():
            out.line(f"{name} = {stack}")
        if self.inner and "whole" in used:
            out.line(f"whole = {self.n_inner} & -{WIDTH}")
        out.extend(body)
        return str(out)

    # ---- what the range counts -------------------------------------------------------------------
    def open_tasks(self, out: Source, task: str, count: str) -> None:
        """The driver's range."""
        out.open(f"for {task} in range(lo, hi):")

    def _flat(self) -> Source:
        out = Source()
        self.stages(out, "lo", "hi")
        return out

    def _scatter(self) -> Source:
        out = Source()
        self.open_tasks(out, "block", "")
        if self.inner:
            out.line(f"begin = block*{self.schedule.columns}")
            out.line(f"end = min({self.n_inner}, begin + {self.schedule.columns})")
        out.open(f"for {self.row} in range({self.n_rows}):")
        self.one_row(out, "begin", "end")
        return out

    def _swapped(self) -> Source:
        """The inner loop outside the rows: a transposed operand is read while it is in cache."""
        out = Source()
        stage, start = self.facts.stages[-1]

        def rows(extent: Extent, end: str) -> None:
            self.open_tasks(out, self.row, self.n_rows)
            inside = Source()
            self.access.begin_row()
            for before, first in self.facts.stages[:-1]:
                self.once(inside, before, first)
            self._name_bases(inside, stage)
            inside.extend(self.loop_body(stage, start, extent, end))
            out.add(self.at.row_axes(inside.identifiers))
            out.extend(inside)
            out.close()

        self.vectors(out, "0", self.n_inner, rows)
        return out

    # ---- addresses -------------------------------------------------------------------------------
    def stages(self, out: Source, begin: str, end: str) -> None:
        """Addresses are named anew in each row."""
        self.access.begin_row()
        super().stages(out, begin, end)

    def loop(self, out: Source, stage: Stage, start: int, begin: str, end: str) -> None:
        """What addresses have in common is named before it."""
        self._name_bases(out, stage)
        super().loop(out, stage, start, begin, end)

    def _name_bases(self, out: Source, stage: Stage) -> None:
        for s in stage.body:
            if isinstance(s, Load | Store):
                self.access.name_base(out, s.operand, s.index)

    # ---- the vector loop -------------------------------------------------------------------------
    def vectors(
        self, out: Source, begin: str, end: str, body: Callable[[Extent, str], None]
    ) -> None:
        """One loop with all vectors masked, or full ones and one masked."""
        r = self.inner
        if self.schedule.tail == "masked":
            out.open(f"for {r} in range({begin}, {end}, {WIDTH}):")
            body(Extent.LEFT, end)
            out.close()
            return
        stop = "whole" if (begin, end) == ("0", self.n_inner) else "stop"
        if stop == "stop":
            out.line(f"stop = {begin} + ({end} - {begin} & -{WIDTH})")
        out.open(f"for {r} in range({begin}, {stop}, {WIDTH}):")
        body(Extent.ALL, end)
        out.close()
        out.open(f"if {stop} < {end}:")
        out.line(f"{r} = {stop}")
        body(Extent.LEFT, end)
        out.close()

    def vector(self, inside: Source, extent: Extent, end: str) -> Source:
        """Behind `left` and the mask `live` of the lanes that are there, and their positions."""
        out, used = Source(), inside.identifiers
        if used & {"left", "live"}:
            out.line(f"left = {end} - {self.inner}")
        if "live" in used:
            out.line("live = below(left)")
        if used & {"lanes", *self.facts.parts}:
            out.line(f"lanes = lane_index({self.inner})")
        out.add(self.at.parts("lanes", used, lambda x, n: f"quotient({x}, {n})"))
        out.extend(inside)
        return out

    def fill(self, out: Source, once: Source, looped: Source) -> None:
        """All vectors masked."""
        out.extend(once)
        if looped.lines:
            out.open(f"for {self.inner} in range(0, {self.n_inner}, {WIDTH}):")
            out.line(f"left = {self.n_inner} - {self.inner}")
            out.extend(looped)
            out.close()

    def chunk_end(self, out: Source, end: str) -> str:
        """A variable."""
        out.line(f"chunk_end = min({end}, chunk + {CHUNK})")
        return "chunk_end"

    # ---- statements ------------------------------------------------------------------------------
    def load(self, s: Load, extent: Extent) -> str:
        """A vector."""
        return self.access.load(s, extent)

    def store(self, s: Store, extent: Extent) -> str:
        """Of a vector."""
        return self.access.store(s, extent)

    def let(self, s: Let, extent: Extent) -> str:
        """The text on vectors."""
        # Of a full vector too the count is no constant: LLVM would unroll the loop over lanes
        # instead of making vectors of it.
        count = {
            Extent.ROW: "1",
            Extent.ALL: f"{self.n_inner} - {self.inner}",
            Extent.LEFT: "left",
        }[extent]
        facts = self.facts
        return vector_text(s.text, lane_element(s.dtype), facts.elements, facts.functions, count)

    def position(self, axis: str, extent: Extent) -> str:
        """Its lanes."""
        if axis == self.inner:
            return "lanes"
        if axis in self.facts.parts:
            return axis
        place = axis if axis != "*" else self.at.place(extent.looped)[0]
        if axis != "*" or not extent.looped:
            return f"full(i64({place}))"
        return "lanes" if place == self.inner else f"lane_index({place})"
