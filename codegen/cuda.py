"""Prints a kernel specification as numba.cuda source: every value is a scalar of one thread.

Lane l of a CPU vector and thread l of a block of 16 take the same elements, partial results combine in the same tree, so the
bits are the CPU's as long as the compiler contracts nothing. Without a fold each thread takes positions on its own. This is
a right schedule, not yet a fast one: 16 threads are half a warp.

Arguments, in order: the operands as flat arrays, the axes' sizes and the run-time strides as in the CPU's argument block, then
for each operand with a run-time stride the element of its array that index 0...0 is (`<operand>_origin`). Knows no Numba.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegen.analysis import Analysis, function_name, lane_element, memory_element
from codegen.errors import Unsupported
from codegen.cpu_fold import LEVELS, arguments, rename, state_names
from codegen.cuda_functions import device_functions
from codegen.cuda_scalar import Used, typed
from codegen.source import Source, words
from codegen.spec import (
    CHUNK,
    WIDTH,
    Combine,
    Fold,
    Folding,
    Index,
    KernelSpec,
    Let,
    Load,
    Schedule,
    Stage,
    Statement,
    Store,
)


@dataclass(frozen=True, slots=True)
class CudaText:
    """A kernel for numba.cuda. `functions`: name -> text of the device functions it calls, callees first.

    `threads`: of a block, None when any number does. `arrays`: the memory element of each operand, in order; `integers`: the
    names of the arguments behind them.
    """

    name: str
    text: str
    functions: Mapping[str, str]
    threads: int | None
    arrays: tuple[str, ...]
    integers: tuple[str, ...]


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
        self.stacks: dict[str, str] = {}
        self.shared: dict[str, str] = {}
        self.inner = self.facts.inner or ""
        rows = self.facts.rows
        self.row = rows[0] if len(rows) == 1 else "row"
        self.n_rows = "*".join(f"n_{a}" for a in rows) or "1"
        self.origins = {o.name: f"{o.name}_origin" for o in spec.operands if None in o.strides}
        self.begin, self.step, self.end = "lane", str(WIDTH), f"n_{self.inner}"
        for o in spec.operands:
            if memory_element(o.dtype) == "bf16":
                raise self._unsupported(
                    f"operand {o.name} is bfloat16, of which numba.cuda has no arrays"
                )

    def _unsupported(self, reason: str) -> Unsupported:
        return Unsupported(f"kernel {self.spec.name} on CUDA: {reason}")

    def made(self) -> CudaText:
        """The whole."""
        spec, facts = self.spec, self.facts
        mode = self.schedule.mode
        folded = any(isinstance(s, Fold) for s in spec.statements)
        loops = [s for s in spec.stages if s.over]
        stored = any(
            isinstance(s, Store) for stage in spec.stages if not stage.over for s in stage.body
        )
        threads: int | None = None
        if mode == "scatter":
            body = self._scatter()
        elif folded or (loops and stored and facts.rows):
            threads = WIDTH
            body = self._blocks()
        else:
            body = self._positions()
        integers = (*spec.size_names, *spec.stride_names, *self.origins.values())
        out = Source()
        out.open(f"def {function_name(spec)}({', '.join([o.name for o in spec.operands] + list(integers))}):")
        if "lane" in body.words:
            out.line("lane = i64(cuda.threadIdx.x)")
        for name, element in self.shared.items():
            out.line(f"{name} = cuda.shared.array({WIDTH}, {_dtype(element)})")
        for name, element in self.stacks.items():
            out.line(f"{name} = cuda.local.array({LEVELS}, {_dtype(element)})")
        out.extend(body)
        arrays = tuple(memory_element(o.dtype) for o in spec.operands)
        return CudaText(function_name(spec), str(out), device_functions(self.used), threads, arrays, integers)

    # ---- who takes what --------------------------------------------------------------------------------------------------
    def _positions(self) -> Source:
        """No folds: a thread takes whole positions (row, inner), one grid apart."""
        self._refuse_ordered_scatter()
        out, inside = Source(), Source()
        step = "i64(cuda.gridsize(1))"
        if not self.inner:
            out.open(f"for {self.row} in range(i64(cuda.grid(1)), {self.n_rows}, {step}):")
        elif not self.facts.rows:
            self._numbered(out, inside, once=True)
            out.open(f"for {self.inner} in range(i64(cuda.grid(1)), n_{self.inner}, {step}):")
        else:
            out.open(
                f"for position in range(i64(cuda.grid(1)), {self.n_rows}*n_{self.inner}, {step}):"
            )
            out.line(f"{self.row} = position // n_{self.inner}")
            out.line(f"{self.inner} = position - {self.row}*n_{self.inner}")
        number = 0
        for stage in self.spec.stages:
            for s in stage.body:
                if stage.over or self.facts.rows or not self.inner:
                    self._statement(inside, s, number, looped=bool(stage.over))
                number += 1
        self._decode(out, inside.words)
        self._parts(out, inside.words)
        out.extend(inside)
        return out

    def _numbered(self, out: Source, inside: Source, once: bool) -> None:
        """The statements outside the loop of a spec without rows: every thread computes them."""
        number = 0
        for stage in self.spec.stages:
            for s in stage.body:
                if not stage.over:
                    if isinstance(s, Store):
                        out.open("if cuda.grid(1) == 0:")
                    self._statement(out, s, number, looped=False)
                    if isinstance(s, Store):
                        out.close()
                number += 1

    def _blocks(self) -> Source:
        """A block of 16 threads takes a row (or a row and chunk, or a task of rows)."""
        self._refuse_ordered_scatter()
        out, mode, n = Source(), self.schedule.mode, f"n_{self.inner}"
        grid = "cuda.gridDim.x"
        body = Source()
        if mode == "split":
            out.line(f"chunks = ({n} + {CHUNK - 1}) // {CHUNK}")
            out.open(f"for task in range(cuda.blockIdx.x, {self.n_rows}*chunks, {grid}):")
            out.line(f"{self.row} = task // chunks")
            out.line(f"begin = (task - {self.row}*chunks)*{CHUNK}")
            out.line(f"end = min({n}, begin + {CHUNK})")
            self.begin, self.end = "begin + lane", "end"
        elif mode == "columns":
            out.open(
                f"for task in range(cuda.blockIdx.x, ({self.n_rows} + {CHUNK - 1}) // {CHUNK}*{WIDTH}, {grid}):"
            )
            self._empty_partials(out)
            out.line(f"first_row = task // {WIDTH}*{CHUNK} + task % {WIDTH}")
            out.line(f"last_row = min({self.n_rows}, task // {WIDTH}*{CHUNK} + {CHUNK})")
            out.open(f"for {self.row} in range(first_row, last_row, {WIDTH}):")
        else:
            out.open(f"for {self.row} in range(cuda.blockIdx.x, {self.n_rows}, {grid}):")
        number = 0
        for stage in self.spec.stages:
            if stage.over:
                self._loop(body, stage, number)
            else:
                self._once(body, stage, number)
            number += len(stage.body)
        self._decode(out, body.words)
        out.extend(body)
        return out

    def _scatter(self) -> Source:
        """Rows in order; a thread takes positions of the inner axis, one grid apart."""
        self._refuse_ordered_scatter()
        if any(isinstance(s, Fold) for s in self.spec.statements):
            raise self._unsupported("a fold in mode 'scatter'")
        out, body = Source(), Source()
        self.begin, self.step = "i64(cuda.grid(1))", "i64(cuda.gridsize(1))"
        if not self.inner:
            out.open("if cuda.grid(1) == 0:")
        out.open(f"for {self.row} in range({self.n_rows}):")
        number = 0
        for stage in self.spec.stages:
            if stage.over:
                self._loop(body, stage, number)
            elif any(isinstance(s, Store) for s in stage.body) and self.inner:
                raise self._unsupported("a store outside the loop in mode 'scatter'")
            else:
                for k, s in enumerate(stage.body, number):
                    self._statement(body, s, k, looped=False)
            number += len(stage.body)
        self._decode(out, body.words)
        out.extend(body)
        return out

    def _refuse_ordered_scatter(self) -> None:
        for s in self.spec.statements:
            if isinstance(s, Store) and any(n in self.facts.varying for n in s.index):
                raise self._unsupported(
                    "a store at indices that differ along the inner axis needs their order"
                )

    def _empty_partials(self, out: Source) -> None:
        for stage in self.spec.stages:
            for s in stage.body:
                if isinstance(s, Fold) and s.over == "rows":
                    place = f"task*n_{self.inner} + {self.inner}" if stage.over else "task"
                    out.open(
                        f"for {self.inner} in range(lane, n_{self.inner}, {WIDTH}):"
                        if stage.over
                        else "if lane == 0:"
                    )
                    for name, init in zip(s.dsts, self._initial(s.folding), strict=True):
                        out.line(f"{name}[{place}] = {init}")
                    out.close()

    # ---- positions -------------------------------------------------------------------------------------------------------
    def _decode(self, out: Source, used: set[str]) -> None:
        rows = self.facts.rows
        if len(rows) < 2 or not used & set(rows):
            return
        rest = "row"
        for name, before in zip(rows[:0:-1], rows[-2::-1], strict=True):
            quotient = before if before == rows[0] else f"{before}_rest"
            out.line(f"{quotient} = {rest} // n_{name}")
            out.line(f"{name} = {rest} - {quotient}*n_{name}")
            rest = quotient

    def _parts(self, out: Source, used: set[str]) -> None:
        parts, rest = self.facts.parts, self.inner
        if not used & set(parts):
            return
        for name, before in zip(parts[:0:-1], parts[-2::-1], strict=True):
            quotient = before if before == parts[0] else f"{before}_rest"
            out.line(f"{quotient} = {rest} // n_{name}")
            out.line(f"{name} = {rest} - {quotient}*n_{name}")
            rest = quotient
        if len(parts) == 1:
            out.line(f"{parts[0]} = {rest}")

    def _place(self, looped: bool) -> tuple[str, str]:
        rows, n = self.facts.rows, f"n_{self.inner}"
        if not looped:
            return (self.row, self.n_rows) if rows else ("0", "1")
        return (f"{self.row}*{n} + {self.inner}", f"{self.n_rows}*{n}") if rows else (self.inner, n)

    def _at(self, operand: str, index: tuple[str, ...]) -> str:
        facts, terms = self.facts, [self.origins[operand]] if operand in self.origins else []
        for position, (name, stride) in enumerate(
            zip(index, facts.operands[operand].strides, strict=True)
        ):
            if stride != 0:
                wide = (
                    f"i64({name})"
                    if facts.is_value(name) and facts.elements[name] != "i64"
                    else name
                )
                terms.append(wide if stride == 1 else f"{wide}*{operand}_stride{position}")
        return f"{operand}[{' + '.join(terms) or 0}]"

    # ---- stages ----------------------------------------------------------------------------------------------------------
    def _once(self, out: Source, stage: Stage, number: int) -> None:
        stores = False
        for k, s in enumerate(stage.body, number):
            alone = isinstance(s, Store) or (isinstance(s, Fold) and s.over == "rows")
            if alone:
                out.open("if lane == 0:")
            self._statement(out, s, k, looped=False)
            if alone:
                out.close()
            stores = stores or alone
        if stores:
            out.line("cuda.syncthreads()")  # the other threads may read what one has stored

    def _loop(self, out: Source, stage: Stage, number: int) -> None:
        folds, split = self.facts.folds(stage), self.schedule.mode == "split"
        rounding = [f for f in folds if not f.folding.exact and not split]
        self._start(out, [f for f in folds if f not in rounding])
        begin, end = self.begin, self.end
        if rounding:
            out.open(f"for chunk in range(0, max({end}, 1), {CHUNK}):")
            begin, end = f"chunk + {begin}", f"min({end}, chunk + {CHUNK})"
            self._start(out, rounding)
        out.open(f"for {self.inner} in range({begin}, {end}, {self.step}):")
        inside = Source()
        for k, s in enumerate(stage.body, number):
            self._statement(inside, s, k, looped=True)
        self._parts(out, inside.words)
        out.extend(inside)
        out.close()
        if rounding:
            self._merge_lanes(out, rounding)
            out.line(f"number = chunk // {CHUNK}")
            self._push(
                out, [(f.folding, f.dsts[0]) for f in rounding], f"chunk + {CHUNK} >= {self.end}"
            )
            out.close()
        rest = [f for f in folds if f.folding.exact or split]
        if rest:
            self._merge_lanes(out, rest)
        for f in folds:
            if split:
                out.open("if lane == 0:")
                for name, state in zip(f.dsts, state_names(f.folding, f.dsts[0]), strict=True):
                    out.line(f"{name}[task] = {state}")
                out.close()
            else:
                self._finish(out, f.folding, f.dsts[0], f.dsts, "")

    # ---- folds -----------------------------------------------------------------------------------------------------------
    def _initial(self, folding: Folding) -> list[str]:
        return [
            typed(i, lane_element(d), {}, (), self.used)
            for i, (_, d) in zip(folding.init, folding.state, strict=True)
        ]

    def _start(self, out: Source, folds: Sequence[Fold]) -> None:
        for f in folds:
            for state, init in zip(
                state_names(f.folding, f.dsts[0]), self._initial(f.folding), strict=True
            ):
                out.line(f"{state} = {init}")

    def _state_elements(self, folding: Folding, prefix: str) -> dict[str, str]:
        elements = {}
        for state, (_, dtype) in zip(state_names(folding, prefix), folding.state, strict=True):
            elements[state] = elements[f"other_{state}"] = lane_element(dtype)
        return elements

    def _assign(
        self, out: Source, folding: Folding, prefix: str, texts: Sequence[str], note: str = ""
    ) -> None:
        names = state_names(folding, prefix)
        elements = self.facts.elements | self._state_elements(folding, prefix)
        made = [
            typed(t, elements[n], elements, self.facts.sizes, self.used) for t, n in zip(texts, names, strict=True)
        ]
        out.line(f"{', '.join(names)} = {', '.join(made)}", note)

    def _step(self, out: Source, f: Fold, note: str) -> None:
        prefix = f.dsts[0]
        texts = [rename(s, f.folding, prefix).format(*arguments(f, self.facts)) for s in f.folding.step]
        self._assign(out, f.folding, prefix, texts, note)

    def _merge(self, out: Source, folding: Folding, prefix: str) -> None:
        self._assign(out, folding, prefix, [rename(m, folding, prefix) for m in folding.merge])

    def _finish(
        self, out: Source, folding: Folding, prefix: str, dsts: Sequence[str], note: str
    ) -> None:
        elements = self._state_elements(folding, prefix)
        for dst, text in zip(dsts, folding.finish, strict=True):
            made = typed(
                rename(text, folding, prefix), self.facts.elements[dst], elements, (), self.used
            )
            out.line(f"{dst} = {made}", note)

    def _merge_lanes(self, out: Source, folds: Sequence[Fold]) -> None:
        """The tree over lanes through shared memory: thread l with l+8, then l+4 ...; then thread 0's states to all."""
        states = [n for f in folds for n in state_names(f.folding, f.dsts[0])]
        for f in folds:
            for state, (_, dtype) in zip(
                state_names(f.folding, f.dsts[0]), f.folding.state, strict=True
            ):
                self.shared[f"{state}_shared"] = lane_element(dtype)

        def exchange(target: str, place: str) -> None:
            for state in states:
                out.line(f"{state}_shared[lane] = {state}")
            out.line("cuda.syncthreads()")
            for state in states:
                out.line(f"{target}{state} = {state}_shared[{place}]")
            out.line("cuda.syncthreads()")

        out.line(f"distance = {WIDTH // 2}")
        out.open("while distance:")
        exchange("other_", f"(lane + distance) % {WIDTH}")
        for f in folds:
            self._merge(out, f.folding, f.dsts[0])
        out.line("distance >>= 1")
        out.close()
        exchange("", "0")

    def _push(self, out: Source, foldings: Sequence[tuple[Folding, str]], last: str) -> None:
        """The tree over chunks, as on the CPU: every thread keeps the same stack."""
        out.line(f"pending = number if {last} else number & ~(number + 1)")
        out.line("level = 0")
        out.open("while pending:")
        out.open("if pending & 1:")
        for folding, prefix in foldings:
            for state, (_, dtype) in zip(state_names(folding, prefix), folding.state, strict=True):
                self.stacks[f"{state}_stack"] = lane_element(dtype)
                out.line(f"other_{state} = {state}")
                out.line(f"{state} = {state}_stack[level]")
            self._merge(out, folding, prefix)
        out.close()
        out.line("pending >>= 1")
        out.line("level += 1")
        out.close()
        for folding, prefix in foldings:
            for state in state_names(folding, prefix):
                out.line(f"{state}_stack[level] = {state}")

    def _combine(self, out: Source, s: Combine, looped: bool, note: str) -> None:
        position, positions = self._place(looped)
        prefix = s.dsts[0]
        columns = s.mode == "columns"
        out.line(
            f"chunks = (n_{s.reduced} + {CHUNK - 1}) // {CHUNK}" + (f"*{WIDTH}" if columns else "")
        )
        for state, init in zip(
            state_names(s.folding, prefix), self._initial(s.folding), strict=True
        ):
            out.line(f"{state} = {init}")
        out.open("for number in range(chunks):")
        where = f"({position})*chunks + number"
        if columns:
            out.line(
                "task = (number & -16) | (number & 1) << 3 | (number & 2) << 1 | (number & 4) >> 1 | (number & 8) >> 3"
            )
            where = f"task*({positions}) + {position}"
        for name, state in zip(s.partials, state_names(s.folding, prefix), strict=True):
            out.line(f"{state} = {name}[{where}]")
        self._push(out, [(s.folding, prefix)], "number == chunks - 1")
        out.close()
        self._finish(out, s.folding, prefix, s.dsts, note)

    # ---- statements ------------------------------------------------------------------------------------------------------
    def _statement(self, out: Source, s: Statement, number: int, *, looped: bool) -> None:
        note = self.notes.get(number, "")
        if isinstance(s, Load):
            o = self.facts.operands[s.operand]
            value = self._at(s.operand, s.index)
            if memory_element(o.dtype) == "f16":
                value = f"f32({value})"
            if s.valid is not None:
                fill = typed(str(s.fill), lane_element(o.dtype), {}, (), self.used)
                value = f"{value} if {s.valid} else {fill}"
            out.line(f"{s.dst} = {value}", note)
        elif isinstance(s, Let):
            elements = {n: e for n, e in self.facts.elements.items() if n in words(s.text)}
            out.line(f"{s.dst} = {typed(s.text, lane_element(s.dtype), elements, self.facts.sizes, self.used)}", note)
        elif isinstance(s, Index):
            place = self._place(looped)[0] if s.axis == "*" else s.axis
            out.line(f"{s.dst} = i64({place})", note)
        elif isinstance(s, Store):
            where = self._at(s.operand, s.index)
            value = s.value
            if s.mode == "add":
                o = self.facts.operands[s.operand]
                old = f"f32({where})" if memory_element(o.dtype) == "f16" else where
                value = f"{old} + {s.value}"
            out.line(f"{where} = {value}", note)
        elif isinstance(s, Combine):
            self._combine(out, s, looped, note)
        elif s.over == "rows":
            states = state_names(s.folding, s.dsts[0])
            place = f"task*n_{self.inner} + {self.inner}" if looped else "task"
            for name, state in zip(s.dsts, states, strict=True):
                out.line(f"{state} = {name}[{place}]")
            self._step(out, s, note)
            for name, state in zip(s.dsts, states, strict=True):
                out.line(f"{name}[{place}] = {state}")
        else:
            self._step(out, s, note)


def _dtype(element: str) -> str:
    return "bool_" if element == "bool" else element
