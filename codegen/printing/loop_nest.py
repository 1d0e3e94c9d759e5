"""The loops of a kernel as text, as far as they are the same for all targets: which rows and which
part of the inner axis a task takes, the stages of a row, chunks, and which statement stands where.

A target (`cpu`, `cuda`) says how tasks are handed out, how the elements of an inner loop are, and
what the statements read. Knows analysed specs; no target, no text of values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from codegen.printing.folds import FoldText
from codegen.spec.analysis import Analysis, memory_element
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
from codegen.spec.positions import Extent, Positions
from codegen.text.source import Source

# Number of a statement, counted through the stages -> what is printed behind its line.
Notes = Mapping[int, str]


class LoopNest(ABC):
    """Prints a specification under a schedule; a subclass for each target."""

    folds: FoldText

    def __init__(self, spec: KernelSpec, schedule: Schedule | None, notes: Notes | None) -> None:
        self.spec, self.schedule, self.notes = spec, schedule or Schedule(), notes or {}
        self.facts = Analysis(spec, self.schedule)
        self.at = Positions(self.facts)
        self.inner, self.n_inner = self.at.inner, self.at.n_inner
        self.row, self.n_rows = self.at.row, self.at.n_rows

    # ---- arguments -------------------------------------------------------------------------------
    def unpack(self, out: Source, used: set[str]) -> None:
        """Those that are used, from the argument block."""
        spec = self.spec
        pointers = {o.name: f"pointer_{memory_element(o.dtype)}" for o in spec.operands}
        sizes = dict.fromkeys((*spec.size_names, *spec.stride_names), "word")
        for position, (name, read) in enumerate((pointers | sizes).items()):
            if name in used:
                out.line(f"{name} = {read}(args, {position})")

    # ---- what a target says ----------------------------------------------------------------------
    @abstractmethod
    def open_tasks(self, out: Source, task: str, count: str) -> None:
        """Start the loop over those of `count` tasks that a call (or a block of threads) takes."""

    @abstractmethod
    def vectors(
        self, out: Source, begin: str, end: str, body: Callable[[Extent, str], None]
    ) -> None:
        """The inner axis from begin to end; `body(extent, end)` writes one vector."""

    @abstractmethod
    def vector(self, inside: Source, extent: Extent, end: str) -> Source:
        """The statements of one vector behind the positions and masks that they use."""

    @abstractmethod
    def fill(self, out: Source, once: Source, looped: Source) -> None:
        """Stores once in a task, and in a loop over the whole inner axis, `left` elements of which are left."""

    @abstractmethod
    def chunk_end(self, out: Source, end: str) -> str:
        """Where the chunk that begins at `chunk` ends."""

    @abstractmethod
    def load(self, s: Load, extent: Extent) -> str:
        """The value of a Load."""

    @abstractmethod
    def let(self, s: Let, extent: Extent) -> str:
        """The value of a Let."""

    @abstractmethod
    def position(self, axis: str, extent: Extent) -> str:
        """The value of an Index."""

    @abstractmethod
    def store(self, s: Store, extent: Extent) -> str:
        """The statement of a Store."""

    # ---- which rows, and which part of the inner axis --------------------------------------------
    def rows(self) -> Source:
        """A task is a row."""
        out = Source()
        self.open_tasks(out, self.row, self.n_rows)
        self.one_row(out, "0", self.n_inner)
        return out

    def split(self) -> Source:
        """A task is a chunk of a row."""
        out, n = Source(), self.n_inner
        out.line(f"chunks = ({n} + {CHUNK - 1}) // {CHUNK}")
        self.open_tasks(out, "task", f"{self.n_rows}*chunks")
        out.line(f"{self.row} = task // chunks")
        out.line(f"begin = (task - {self.row}*chunks)*{CHUNK}")
        out.line(f"end = min({n}, begin + {CHUNK})")
        self.one_row(out, "begin", "end")
        return out

    def columns(self) -> Source:
        """A task is every 16th row of a chunk of rows."""
        out = Source()
        self.open_tasks(out, "task", f"({self.n_rows} + {CHUNK - 1}) // {CHUNK}*{WIDTH}")
        self._empty_partials(out)
        out.line(f"first_row = task // {WIDTH} * {CHUNK} + task % {WIDTH}")
        out.line(f"last_row = min({self.n_rows}, task // {WIDTH} * {CHUNK} + {CHUNK})")
        out.open(f"for {self.row} in range(first_row, last_row, {WIDTH}):")
        self.one_row(out, "0", self.n_inner)
        return out

    def _empty_partials(self, out: Source) -> None:
        """Fresh states in the partial operands of a task, which may have no row."""
        once, looped = Source(), Source()
        for stage, _ in self.facts.stages:
            place = self.at.task_place(bool(stage.over))
            lines, extent = (looped, Extent.LEFT) if stage.over else (once, Extent.ROW)
            for s in self.facts.row_folds(stage):
                for name, init in zip(s.dsts, self.folds.initial(s), strict=True):
                    lines.line(self.folds.write(name, place, init, extent))
        self.fill(out, once, looped)

    # ---- one row ---------------------------------------------------------------------------------
    def one_row(self, out: Source, begin: str, end: str) -> None:
        """The stages of a row, behind the positions of its axes."""
        body = Source()
        self.stages(body, begin, end)
        out.add(self.at.row_axes(body.identifiers))
        out.extend(body)

    def stages(self, out: Source, begin: str, end: str) -> None:
        """The stages of a row, on part of its inner axis."""
        for stage, start in self.facts.stages:
            if stage.over:
                self.loop(out, stage, start, begin, end)
            else:
                self.once(out, stage, start)

    def once(self, out: Source, stage: Stage, start: int) -> None:
        """Statements outside the loop over the inner axis."""
        self.statements(out, stage, start, Extent.ROW)

    def loop(self, out: Source, stage: Stage, start: int, begin: str, end: str) -> None:
        """The loop over part of the inner axis, and what its folds give."""
        folds = self.facts.folds(stage)

        def body(extent: Extent, end: str) -> None:
            out.extend(self.loop_body(stage, start, extent, end))

        if self.schedule.mode == "split":
            self.folds.start(out, folds)
            self.vectors(out, begin, end, body)
            self.folds.store_partials(out, folds)
            return
        rounding = [f for f in folds if not f.folding.exact]
        self.folds.start(out, [f for f in folds if f.folding.exact])
        if rounding:
            out.open(f"for chunk in range(0, max({end}, 1), {CHUNK}):")  # of no elements too
            chunk_end = self.chunk_end(out, end)
            self.folds.start(out, rounding)
            self.vectors(out, "chunk", chunk_end, body)
            self.folds.end_chunk(out, rounding, end)
            out.close()
        else:
            self.vectors(out, begin, end, body)
        numbers = [k for k, s in enumerate(stage.body, start) if any(s is f for f in folds)]
        self.folds.finish_row(out, folds, [self._note(k) for k in numbers])

    def loop_body(self, stage: Stage, start: int, extent: Extent, end: str) -> Source:
        """A stage for one vector."""
        inside = Source()
        self.statements(inside, stage, start, extent)
        return self.vector(inside, extent, end)

    # ---- statements ------------------------------------------------------------------------------
    def _note(self, number: int) -> str:
        return self.notes.get(number, "")

    def statements(self, out: Source, stage: Stage, start: int, extent: Extent) -> None:
        """The statements of a stage, the first of which is number `start`."""
        for number, s in enumerate(stage.body, start):
            self.statement(out, s, number, extent)

    def statement(self, out: Source, s: Statement, number: int, extent: Extent) -> None:
        """One statement."""
        note = self._note(number)
        if isinstance(s, Load):
            out.line(f"{s.dst} = {self.load(s, extent)}", note)
        elif isinstance(s, Let):
            out.line(f"{s.dst} = {self.let(s, extent)}", note)
        elif isinstance(s, Index):
            out.line(f"{s.dst} = {self.position(s.axis, extent)}", note)
        elif isinstance(s, Store):
            out.line(self.store(s, extent), note)
        elif isinstance(s, Combine):
            self.folds.combine(out, s, self.at.place(extent.looped), extent, note)
        elif s.over == "rows":
            self.folds.step_partial(out, s, self.at.task_place(extent.looped), extent, note)
        else:
            self.folds.step(out, s, extent, note)
