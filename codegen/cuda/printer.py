"""Prints a kernel specification as numba.cuda source: every value is a scalar of one thread.

Lane l of a CPU vector and thread l of a block of 16 take the same elements, partial results combine
in the same tree, so the bits are the CPU's as long as the compiler contracts nothing. Without a
fold each thread takes positions on its own. With one this is a right schedule, not yet a fast one:
16 threads are half a warp.

Arguments, in order: the operands as flat arrays, the axes' sizes and the run-time strides as in the
CPU's argument block, then for each operand with a run-time stride the element of its array that
index 0...0 is (`<operand>_origin`). Knows no Numba.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from codegen.cuda.device_functions import device_functions
from codegen.cuda.folds import CudaFolds
from codegen.errors import Unsupported
from codegen.spec.analysis import Analysis, function_name, lane_element, memory_element
from codegen.spec.kernel_spec import (
    CHUNK,
    WIDTH,
    Combine,
    Fold,
    Index,
    KernelSpec,
    Let,
    Load,
    ScalarFunction,
    Schedule,
    Stage,
    Statement,
    Store,
)
from codegen.spec.positions import Positions
from codegen.text.scalar_text import Used, typed
from codegen.text.source import Source

_GRID, _GRID_SIZE = "i64(cuda.grid(1))", "i64(cuda.gridsize(1))"


@dataclass(frozen=True, slots=True)
class CudaText:
    """A kernel for numba.cuda.

    `functions`: name -> text of the device functions it calls, callees first. `threads`: of a
    block, None when any number does. `arrays`: the memory element of each operand, in order;
    `integers`: the names of the arguments behind them. `users`: name -> function of the user's that it calls.
    """

    name: str
    text: str
    functions: Mapping[str, str]
    threads: int | None
    arrays: tuple[str, ...]
    integers: tuple[str, ...]
    users: Mapping[str, ScalarFunction] = field(default_factory=dict)


def cuda_text(
    spec: KernelSpec, schedule: Schedule | None = None, notes: Mapping[int, str] | None = None
) -> CudaText:
    """The numba.cuda source of a spec. Raises Unsupported, with the reason, where there is none."""
    return _Printer(spec, schedule or Schedule(), notes or {}).made()


class _Printer:
    def __init__(self, spec: KernelSpec, schedule: Schedule, notes: Mapping[int, str]) -> None:
        self.spec, self.schedule, self.notes = spec, schedule, notes
        self.facts = Analysis(spec, schedule)
        self.used: Used = {}
        self.folds = CudaFolds(self.facts, self.used)
        self.at = Positions(self.facts)
        self.inner, self.row, self.n_rows = self.at.inner, self.at.row, self.at.n_rows
        self.origins = {o.name: f"{o.name}_origin" for o in spec.operands if None in o.strides}
        self.begin, self.step, self.end = "lane", str(WIDTH), self.at.n_inner

    def made(self) -> CudaText:
        """The whole."""
        self._check()
        spec, facts = self.spec, self.facts
        folded = any(isinstance(s, Fold) for s in spec.statements)
        row_stores = any(
            isinstance(s, Store) for stage in spec.stages if not stage.over for s in stage.body
        )
        threads: int | None = None
        if self.schedule.mode == "scatter":
            body = self._scatter()
        elif folded or (self.inner and row_stores and facts.rows):
            threads = WIDTH
            body = self._blocks()
        else:
            body = self._positions()
        integers = (*spec.size_names, *spec.stride_names, *self.origins.values())
        parameters = ", ".join([*(o.name for o in spec.operands), *integers])
        out = Source()
        out.open(f"def {function_name(spec)}({parameters}):")
        if "lane" in body.words:
            out.line("lane = i64(cuda.threadIdx.x)")
        for name, text in self.folds.arrays.items():
            out.line(f"{name} = {text}")
        out.extend(body)
        arrays = tuple(memory_element(o.dtype) for o in spec.operands)
        own = {f.name: f for f in spec.functions}
        functions = device_functions({u: None for u in self.used if u[0] not in own})
        users = {f"{name}_{e}": own[name] for name, e in self.used if name in own}
        return CudaText(function_name(spec), str(out), functions, threads, arrays, integers, users)

    def _check(self) -> None:
        for o in self.spec.operands:
            if memory_element(o.dtype) == "bf16":
                raise self._unsupported(
                    f"operand {o.name} is bfloat16, of which numba.cuda has no arrays"
                )
        for s in self.spec.statements:
            if isinstance(s, Store) and any(n in self.facts.varying for n in s.index):
                raise self._unsupported(
                    "a store at indices that differ along the inner axis needs their order"
                )

    def _unsupported(self, reason: str) -> Unsupported:
        return Unsupported(f"kernel {self.spec.name} on CUDA: {reason}")

    # ---- who takes what --------------------------------------------------------------------------
    def _positions(self) -> Source:
        """No folds: a thread takes whole positions (row, inner), one grid apart."""
        out, inside = Source(), Source()
        rows = bool(self.facts.rows)
        if self.inner and not rows:  # what is outside the loop is computed by every thread
            for stage, start in self.facts.stages:
                if not stage.over:
                    self._once(out, stage, start, "cuda.grid(1) == 0")
            out.open(f"for {self.inner} in range({_GRID}, {self.at.n_inner}, {_GRID_SIZE}):")
        elif self.inner:
            positions = f"{self.n_rows}*{self.at.n_inner}"
            out.open(f"for position in range({_GRID}, {positions}, {_GRID_SIZE}):")
            out.line(f"{self.row} = position // {self.at.n_inner}")
            out.line(f"{self.inner} = position - {self.row}*{self.at.n_inner}")
        else:
            out.open(f"for {self.row} in range({_GRID}, {self.n_rows}, {_GRID_SIZE}):")
        for stage, start in self.facts.stages:
            if stage.over or rows or not self.inner:
                for number, s in enumerate(stage.body, start):
                    self._statement(inside, s, number, bool(stage.over))
        out.add(self.at.row_axes(inside.words))
        out.add(self.at.parts(self.inner, inside.words, lambda x, n: f"{x} // {n}"))
        out.extend(inside)
        return out

    def _blocks(self) -> Source:
        """A block of 16 threads takes a row (or a row and chunk, or a task of rows)."""
        out, mode, n = Source(), self.schedule.mode, self.at.n_inner
        mine = "range(cuda.blockIdx.x, {}, cuda.gridDim.x):"
        if mode == "split":
            out.line(f"chunks = ({n} + {CHUNK - 1}) // {CHUNK}")
            out.open("for task in " + mine.format(f"{self.n_rows}*chunks"))
            out.line(f"{self.row} = task // chunks")
            out.line(f"begin = (task - {self.row}*chunks)*{CHUNK}")
            out.line(f"end = min({n}, begin + {CHUNK})")
            self.begin, self.end = "begin + lane", "end"
        elif mode == "columns":
            tasks = f"({self.n_rows} + {CHUNK - 1}) // {CHUNK}*{WIDTH}"
            out.open("for task in " + mine.format(tasks))
            self._empty_partials(out)
            out.line(f"first_row = task // {WIDTH}*{CHUNK} + task % {WIDTH}")
            out.line(f"last_row = min({self.n_rows}, task // {WIDTH}*{CHUNK} + {CHUNK})")
            out.open(f"for {self.row} in range(first_row, last_row, {WIDTH}):")
        else:
            out.open(f"for {self.row} in " + mine.format(self.n_rows))
        self._stages(out, "lane == 0")
        return out

    def _scatter(self) -> Source:
        """Rows in order; a thread takes positions of the inner axis, one grid apart."""
        out = Source()
        self.begin, self.step = _GRID, _GRID_SIZE
        if not self.inner:
            out.open("if cuda.grid(1) == 0:")
        out.open(f"for {self.row} in range({self.n_rows}):")
        self._stages(out, "cuda.grid(1) == 0" if self.inner else "")
        return out

    def _stages(self, out: Source, alone: str) -> None:
        body = Source()
        for stage, start in self.facts.stages:
            if stage.over:
                self._loop(body, stage, start)
            else:
                self._once(body, stage, start, alone)
        out.add(self.at.row_axes(body.words))
        out.extend(body)

    def _empty_partials(self, out: Source) -> None:
        """Fresh states in the partial operands of a task, which may have no row."""
        for stage, _ in self.facts.stages:
            place = self.at.task_place(bool(stage.over))
            for s in self.facts.row_folds(stage):
                loop = f"for {self.inner} in range(lane, {self.at.n_inner}, {WIDTH}):"
                out.open(loop if stage.over else "if lane == 0:")
                for name, init in zip(s.dsts, self.folds.initial(s.folding), strict=True):
                    out.line(f"{name}[{place}] = {init}")
                out.close()

    # ---- stages ----------------------------------------------------------------------------------
    def _once(self, out: Source, stage: Stage, start: int, alone: str) -> None:
        """Statements of a row, which all threads compute; `alone` says who stores."""
        stored = False
        for number, s in enumerate(stage.body, start):
            stores = isinstance(s, Store) or (isinstance(s, Fold) and s.over == "rows")
            if stores and alone:
                out.open(f"if {alone}:")
            self._statement(out, s, number, False)
            if stores and alone:
                out.close()
            stored = stored or stores
        if stored and alone == "lane == 0":
            out.line("cuda.syncthreads()")  # the other threads may read what one has stored

    def _loop(self, out: Source, stage: Stage, start: int) -> None:
        folds, split = self.facts.folds(stage), self.schedule.mode == "split"
        rounding = [f for f in folds if not f.folding.exact and not split]
        others = [f for f in folds if f.folding.exact or split]
        self.folds.start(out, others)
        begin, end = self.begin, self.end
        if rounding:
            out.open(f"for chunk in range(0, max({end}, 1), {CHUNK}):")
            begin, end = f"chunk + {begin}", f"min({end}, chunk + {CHUNK})"
            self.folds.start(out, rounding)
        out.open(f"for {self.inner} in range({begin}, {end}, {self.step}):")
        inside = Source()
        for number, s in enumerate(stage.body, start):
            self._statement(inside, s, number, True)
        out.add(self.at.parts(self.inner, inside.words, lambda x, n: f"{x} // {n}"))
        out.extend(inside)
        out.close()
        if rounding:
            self.folds.end_chunk(out, rounding, self.end)
            out.close()
        if others:
            self.folds.merge_lanes(out, others)
        if split and folds:
            self.folds.store_partials(out, folds)
            return
        for f in folds:
            self.folds.finish(out, f.folding, f.dsts[0], f.dsts, "")

    # ---- statements ------------------------------------------------------------------------------
    def _statement(self, out: Source, s: Statement, number: int, looped: bool) -> None:
        note = self.notes.get(number, "")
        if isinstance(s, Load):
            out.line(f"{s.dst} = {self._load(s)}", note)
        elif isinstance(s, Let):
            element = lane_element(s.dtype)
            facts = self.facts
            text = typed(s.text, element, facts.elements, facts.sizes, self.used, facts.functions)
            out.line(f"{s.dst} = {text}", note)
        elif isinstance(s, Index):
            place = self.at.place(looped)[0] if s.axis == "*" else s.axis
            out.line(f"{s.dst} = i64({place})", note)
        elif isinstance(s, Store):
            where = self._element(s.operand, s.index)
            value = s.value
            if s.mode == "add":
                value = f"{self._read(s.operand, s.index)} + {s.value}"
            out.line(f"{where} = {value}", note)
        elif isinstance(s, Combine):
            self.folds.combine(out, s, self.at.place(looped), note)
        elif s.over == "rows":
            self.folds.step_partial(out, s, self.at.task_place(looped), note)
        else:
            self.folds.step(out, s, note)

    def _load(self, s: Load) -> str:
        value = self._read(s.operand, s.index)
        if s.valid is None:
            return value
        element = lane_element(self.facts.operands[s.operand].dtype)
        return f"{value} if {s.valid} else {typed(str(s.fill), element, {}, (), self.used)}"

    def _read(self, operand: str, index: tuple[str, ...]) -> str:
        """An element as a value: float16 is computed on as float32."""
        where = self._element(operand, index)
        small = memory_element(self.facts.operands[operand].dtype) == "f16"
        return f"f32({where})" if small else where

    def _element(self, operand: str, index: tuple[str, ...]) -> str:
        facts = self.facts
        terms = [self.origins[operand]] if operand in self.origins else []
        strides = facts.operands[operand].strides
        for position, (name, stride) in enumerate(zip(index, strides, strict=True)):
            if stride != 0:
                narrow = facts.is_value(name) and facts.elements[name] != "i64"
                wide = f"i64({name})" if narrow else name
                terms.append(wide if stride == 1 else f"{wide}*{operand}_stride{position}")
        return f"{operand}[{' + '.join(terms) or 0}]"
