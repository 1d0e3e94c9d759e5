"""Reductions of a CUDA kernel, as text: the tree over the 16 threads of a block through shared
memory, the tree over chunks on a stack of each thread, partial results. The order is the CPU's, see
`cpu_fold`.
"""

from __future__ import annotations

from collections.abc import Sequence

from codegen.cpu.folds import LEVELS, arguments, rename, state_names
from codegen.spec.analysis import Analysis, lane_element
from codegen.spec.kernel_spec import CHUNK, WIDTH, Combine, Fold, Folding
from codegen.spec.positions import PART_OF_NUMBER
from codegen.text.scalar_text import Used, typed
from codegen.text.source import Source


class CudaFolds:
    """Texts of folds. `arrays`: name -> text of the arrays that the kernel needs, filled while
    printing; `used`: the device functions called.
    """

    def __init__(self, facts: Analysis, used: Used) -> None:
        self.facts, self.used = facts, used
        self.arrays: dict[str, str] = {}

    def initial(self, folding: Folding) -> list[str]:
        """The first value of each state."""
        pairs = zip(folding.init, folding.state, strict=True)
        return [typed(init, lane_element(dtype), {}, (), self.used) for init, (_, dtype) in pairs]

    def start(self, out: Source, folds: Sequence[Fold]) -> None:
        """Fresh states."""
        for f in folds:
            states = state_names(f.folding, f.dsts[0])
            for state, init in zip(states, self.initial(f.folding), strict=True):
                out.line(f"{state} = {init}")

    def step(self, out: Source, f: Fold, note: str) -> None:
        """One element into the states."""
        values = arguments(f, self.facts)
        texts = [rename(s, f.folding, f.dsts[0]).format(*values) for s in f.folding.step]
        self._assign(out, f.folding, f.dsts[0], texts, note)

    def end_chunk(self, out: Source, folds: Sequence[Fold], end: str) -> None:
        """This chunk's lanes merged, then merged with earlier chunks; after the last, the total."""
        self.merge_lanes(out, folds)
        out.line(f"number = chunk // {CHUNK}")
        self._push(out, [(f.folding, f.dsts[0]) for f in folds], f"chunk + {CHUNK} >= {end}")

    def finish(
        self, out: Source, folding: Folding, prefix: str, dsts: Sequence[str], note: str
    ) -> None:
        """The results, from the states."""
        elements = self._elements(folding, prefix)
        for dst, text in zip(dsts, folding.finish, strict=True):
            renamed, element = rename(text, folding, prefix), self.facts.elements[dst]
            out.line(f"{dst} = {typed(renamed, element, elements, (), self.used)}", note)

    def store_partials(self, out: Source, folds: Sequence[Fold]) -> None:
        """The merged states of this task into the partial operands."""
        out.open("if lane == 0:")
        for f in folds:
            for name, state in zip(f.dsts, state_names(f.folding, f.dsts[0]), strict=True):
                out.line(f"{name}[task] = {state}")
        out.close()

    def step_partial(self, out: Source, f: Fold, where: str, note: str) -> None:
        """One element into the task's states in memory."""
        states = state_names(f.folding, f.dsts[0])
        for name, state in zip(f.dsts, states, strict=True):
            out.line(f"{state} = {name}[{where}]")
        self.step(out, f, note)
        for name, state in zip(f.dsts, states, strict=True):
            out.line(f"{name}[{where}] = {state}")

    def merge_lanes(self, out: Source, folds: Sequence[Fold]) -> None:
        """Thread l with l+8, then l+4 ...; then thread 0's states to all."""
        states = []
        for f in folds:
            names = state_names(f.folding, f.dsts[0])
            for state, (_, dtype) in zip(names, f.folding.state, strict=True):
                states.append(state)
                array = f"cuda.shared.array({WIDTH}, {_dtype(dtype)})"
                self.arrays[f"{state}_shared"] = array

        def exchange(prefix: str, place: str) -> None:
            for state in states:
                out.line(f"{state}_shared[lane] = {state}")
            out.line("cuda.syncthreads()")
            for state in states:
                out.line(f"{prefix}{state} = {state}_shared[{place}]")
            out.line("cuda.syncthreads()")

        out.line(f"distance = {WIDTH // 2}")
        out.open("while distance:")
        exchange("other_", f"(lane + distance) % {WIDTH}")
        for f in folds:
            self._merge(out, f.folding, f.dsts[0])
        out.line("distance >>= 1")
        out.close()
        exchange("", "0")

    def combine(self, out: Source, s: Combine, place: tuple[str, str], note: str) -> None:
        """The finished results of partial ones at `place` (position, number of positions)."""
        (position, positions), prefix = place, s.dsts[0]
        lanes = f"*{WIDTH}" if s.mode == "columns" else ""
        out.line(f"parts = (n_{s.reduced} + {CHUNK - 1}) // {CHUNK}{lanes}")
        states = state_names(s.folding, prefix)
        for state, init in zip(states, self.initial(s.folding), strict=True):
            out.line(f"{state} = {init}")
        out.open("for number in range(parts):")
        where = f"({position})*parts + number"
        if s.mode == "columns":
            out.add(PART_OF_NUMBER)
            where = f"part*{positions} + {position}"
        for name, state in zip(s.partials, states, strict=True):
            out.line(f"{state} = {name}[{where}]")
        self._push(out, [(s.folding, prefix)], "number == parts - 1")
        out.close()
        self.finish(out, s.folding, prefix, s.dsts, note)

    # ---- parts of these --------------------------------------------------------------------------
    def _elements(self, folding: Folding, prefix: str) -> dict[str, str]:
        """Lane elements of the states and of the states to merge with."""
        elements = {}
        for state, (_, dtype) in zip(state_names(folding, prefix), folding.state, strict=True):
            elements[state] = elements[f"other_{state}"] = lane_element(dtype)
        return elements

    def _assign(
        self, out: Source, folding: Folding, prefix: str, texts: Sequence[str], note: str = ""
    ) -> None:
        names = state_names(folding, prefix)
        elements = self.facts.elements | self._elements(folding, prefix)
        made = [
            typed(text, elements[name], elements, self.facts.sizes, self.used)
            for text, name in zip(texts, names, strict=True)
        ]
        out.line(f"{', '.join(names)} = {', '.join(made)}", note)

    def _merge(self, out: Source, folding: Folding, prefix: str) -> None:
        self._assign(out, folding, prefix, [rename(m, folding, prefix) for m in folding.merge])

    def _push(self, out: Source, foldings: Sequence[tuple[Folding, str]], last: str) -> None:
        """The tree over chunks, as on the CPU: every thread keeps the same stack."""
        out.line(f"pending = number if {last} else number & ~(number + 1)")
        out.line("level = 0")
        out.open("while pending:")
        out.open("if pending & 1:")
        for folding, prefix in foldings:
            for state, (_, dtype) in zip(state_names(folding, prefix), folding.state, strict=True):
                self.arrays[f"{state}_stack"] = f"cuda.local.array({LEVELS}, {_dtype(dtype)})"
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


def _dtype(dtype: str) -> str:
    element = lane_element(dtype)
    return "bool_" if element == "bool" else element
