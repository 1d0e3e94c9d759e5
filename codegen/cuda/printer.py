"""Prints a kernel specification as numba.cuda source: every value is a scalar of one thread.

Lane l of a CPU vector and thread l of a block of 16 take the same elements, partial results combine
in the same tree, so the bits are the CPU's as long as the compiler contracts nothing. Without a
fold each thread takes positions on its own. With one this is a right schedule, not yet a fast one:
16 threads are half a warp.

The argument is the address of the argument block that the CPU's kernel takes. Knows no Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from codegen.cuda.device_functions import device_functions
from codegen.cuda.folds import CudaFolds
from codegen.errors import Unsupported
from codegen.printing.loop_nest import LoopNest, Notes
from codegen.spec.analysis import function_name, lane_element, memory_element
from codegen.spec.kernel_spec import (
    CHUNK,
    WIDTH,
    Fold,
    KernelSpec,
    Let,
    Load,
    ScalarFunction,
    Schedule,
    Stage,
    Store,
)
from codegen.spec.positions import Extent
from codegen.text.scalar_text import Used, typed
from codegen.text.source import Source

_GRID, _GRID_SIZE = "i64(cuda.grid(1))", "i64(cuda.gridsize(1))"


@dataclass(frozen=True, slots=True)
class CudaText:
    """A kernel for numba.cuda.

    `functions`: name -> text of the device functions it calls, callees first. `threads`: of a
    block, None when any number does. `users`: name -> function of the user's that it calls.
    """

    name: str
    text: str
    functions: Mapping[str, str]
    threads: int | None
    users: Mapping[str, ScalarFunction] = field(default_factory=dict)


def cuda_text(
    spec: KernelSpec, schedule: Schedule | None = None, notes: Notes | None = None
) -> CudaText:
    """The numba.cuda source of a spec. Raises Unsupported, with the reason, where there is none."""
    return _Printer(spec, schedule, notes).made()


class _Printer(LoopNest):
    """`lane`, `lanes`: where a thread starts on the inner axis, and how far its elements are apart. `alone`: a
    condition that one of the threads which compute the same fulfils, "" where there is one.
    """

    def __init__(self, spec: KernelSpec, schedule: Schedule | None, notes: Notes | None) -> None:
        super().__init__(spec, schedule, notes)
        self.used: Used = {}
        self.folds = CudaFolds(self.facts, self.used)
        self.lane, self.lanes, self.alone = "lane", str(WIDTH), "lane == 0"

    def made(self) -> CudaText:
        """The whole."""
        self._check()
        spec = self.spec
        folded = any(isinstance(s, Fold) for s in spec.statements)
        row_stores = any(
            isinstance(s, Store) for stage in spec.stages if not stage.over for s in stage.body
        )
        threads: int | None = None
        if self.schedule.mode == "scatter":
            body = self._scatter()
        elif folded or (self.inner and row_stores and self.facts.rows):
            threads = WIDTH  # a block of which takes a task
            blocks = {"split": self.split, "columns": self.columns}
            body = blocks.get(self.schedule.mode, self.rows)()
        else:
            body = self._positions()
        out = Source()
        out.open(f"def {function_name(spec)}(args):")
        self.unpack(out, body.identifiers)
        if "lane" in body.identifiers:
            out.line("lane = i64(cuda.threadIdx.x)")
        for name, text in self.folds.memory.items():
            out.line(f"{name} = {text}")
        out.extend(body)
        own = {f.name: f for f in spec.functions}
        functions = device_functions({u: None for u in self.used if u[0] not in own})
        users = {f"{name}_{e}": own[name] for name, e in self.used if name in own}
        return CudaText(function_name(spec), str(out), functions, threads, users)

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
    def open_tasks(self, out: Source, task: str, count: str) -> None:
        """A block takes every so many of them."""
        out.open(f"for {task} in range(cuda.blockIdx.x, {count}, cuda.gridDim.x):")

    def _positions(self) -> Source:
        """No folds: a thread takes whole positions (row, inner), one grid apart."""
        out, inside = Source(), Source()
        rows = bool(self.facts.rows)
        if self.inner and not rows:  # what is outside the loop is computed by every thread
            self.alone = "cuda.grid(1) == 0"
            for stage, start in self.facts.stages:
                if not stage.over:
                    self.once(out, stage, start)
            out.open(f"for {self.inner} in range({_GRID}, {self.n_inner}, {_GRID_SIZE}):")
        elif self.inner:
            positions = f"{self.n_rows}*{self.n_inner}"
            out.open(f"for position in range({_GRID}, {positions}, {_GRID_SIZE}):")
            out.line(f"{self.row} = position // {self.n_inner}")
            out.line(f"{self.inner} = position - {self.row}*{self.n_inner}")
        else:
            out.open(f"for {self.row} in range({_GRID}, {self.n_rows}, {_GRID_SIZE}):")
        for stage, start in self.facts.stages:
            if stage.over or rows or not self.inner:
                self.statements(inside, stage, start, Extent.ALL if stage.over else Extent.ROW)
        out.add(self.at.row_axes(inside.identifiers))
        out.extend(self.vector(inside, Extent.ALL, ""))
        return out

    def _scatter(self) -> Source:
        """Rows in order; a thread takes positions of the inner axis, one grid apart."""
        out = Source()
        self.lane, self.lanes = _GRID, _GRID_SIZE
        self.alone = "cuda.grid(1) == 0" if self.inner else ""
        if not self.inner:
            out.open("if cuda.grid(1) == 0:")
        out.open(f"for {self.row} in range({self.n_rows}):")
        self.one_row(out, "0", self.n_inner)
        return out

    def once(self, out: Source, stage: Stage, start: int) -> None:
        """Statements of a row, which all threads compute, and one stores."""
        stored = False
        for number, s in enumerate(stage.body, start):
            stores = isinstance(s, Store) or (isinstance(s, Fold) and s.over == "rows")
            if stores and self.alone:
                out.open(f"if {self.alone}:")
            self.statement(out, s, number, Extent.ROW)
            if stores and self.alone:
                out.close()
            stored = stored or stores
        if stored and self.alone == "lane == 0":
            out.line("cuda.syncthreads()")  # the other threads may read what one has stored

    # ---- the elements of a thread ----------------------------------------------------------------
    def vectors(
        self, out: Source, begin: str, end: str, body: Callable[[Extent, str], None]
    ) -> None:
        """One loop; `lane` is the CPU's."""
        first = self.lane if begin == "0" else f"{begin} + {self.lane}"
        out.open(f"for {self.inner} in range({first}, {end}, {self.lanes}):")
        body(Extent.ALL, end)
        out.close()

    def vector(self, inside: Source, extent: Extent, end: str) -> Source:
        """Behind the parts of its position."""
        out = Source()
        out.add(self.at.parts(self.inner, inside.identifiers, lambda x, n: f"{x} // {n}"))
        out.extend(inside)
        return out

    def fill(self, out: Source, once: Source, looped: Source) -> None:
        """One thread, and all threads."""
        for opened, lines in (
            ("if lane == 0:", once),
            (f"for {self.inner} in range(lane, {self.n_inner}, {WIDTH}):", looped),
        ):
            if lines.lines:
                out.open(opened)
                out.extend(lines)
                out.close()

    def chunk_end(self, out: Source, end: str) -> str:
        """An expression."""
        return f"min({end}, chunk + {CHUNK})"

    # ---- statements ------------------------------------------------------------------------------
    def load(self, s: Load, extent: Extent) -> str:
        """An element."""
        value = self._read(s.operand, s.index)
        if s.valid is None:
            return value
        element = lane_element(self.facts.operands[s.operand].dtype)
        return f"{value} if {s.valid} else {typed(str(s.fill), element, {}, (), self.used)}"

    def let(self, s: Let, extent: Extent) -> str:
        """The text on scalars."""
        facts, element = self.facts, lane_element(s.dtype)
        return typed(s.text, element, facts.elements, facts.sizes, self.used, facts.functions)

    def position(self, axis: str, extent: Extent) -> str:
        """A number."""
        return f"i64({self.at.place(extent.looped)[0] if axis == '*' else axis})"

    def store(self, s: Store, extent: Extent) -> str:
        """Of an element."""
        value = s.value
        if s.mode == "add":
            value = f"{self._read(s.operand, s.index)} + {s.value}"
        return f"{self._element(s.operand, s.index)} = {value}"

    def _read(self, operand: str, index: tuple[str, ...]) -> str:
        """An element as a value: float16 is computed on as float32."""
        where = self._element(operand, index)
        small = memory_element(self.facts.operands[operand].dtype) == "f16"
        return f"f32({where})" if small else where

    def _element(self, operand: str, index: tuple[str, ...]) -> str:
        facts = self.facts
        terms = []
        strides = facts.operands[operand].strides
        for position, (name, stride) in enumerate(zip(index, strides, strict=True)):
            if stride != 0:
                narrow = facts.is_value(name) and facts.elements[name] != "i64"
                wide = f"i64({name})" if narrow else name
                terms.append(wide if stride == 1 else f"{wide}*{operand}_stride{position}")
        return f"{operand}[{' + '.join(terms) or 0}]"
