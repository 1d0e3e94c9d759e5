"""Reductions of a CUDA kernel, as text: on scalars, the states of the 16 threads of a block merged
through shared memory. Knows what `folds` knows; the order is the CPU's.
"""

from __future__ import annotations

from collections.abc import Sequence

from codegen.printing.folds import FoldText, state_elements, state_names
from codegen.spec.analysis import Analysis
from codegen.spec.kernel_spec import WIDTH, Combine, Fold
from codegen.spec.positions import Extent
from codegen.text.scalar_text import Used, typed
from codegen.text.source import Source


class CudaFolds(FoldText):
    """Texts of folds on the scalars of a thread. `used`: the device functions called."""

    def __init__(self, facts: Analysis, used: Used) -> None:
        super().__init__(facts)
        self.used = used

    def initial(self, s: Fold | Combine) -> list[str]:
        """The first value of each state."""
        pairs = zip(s.folding.init, state_elements(s), strict=True)
        return [typed(init, element, {}, (), self.used) for init, element in pairs]

    def expression(self, text: str, element: str, s: Fold | Combine) -> str:
        """The text with the element of every operation written out."""
        elements = dict(self.facts.elements)
        for state, e in zip(state_names(s), state_elements(s), strict=True):
            elements[state] = elements[f"other_{state}"] = e
        return typed(text, element, elements, self.facts.sizes, self.used)

    def stack(self, element: str, size: int) -> str:
        """Every thread keeps the same one."""
        return f"cuda.local.array({size}, {_dtype(element)})"

    def read(self, memory: str, place: str, element: str, extent: Extent) -> str:
        """An element."""
        return f"{memory}[{place}]"

    def write(self, memory: str, place: str, value: str, extent: Extent) -> str:
        """An element."""
        return f"{memory}[{place}] = {value}"

    def finish_row(self, out: Source, folds: Sequence[Fold], notes: Sequence[str]) -> None:
        """All lanes at once; threads wait for each other."""
        self.merge_lanes(out, [f for f in folds if f.folding.exact])
        for f in folds:
            self.finish(out, f, "")

    def store_partials(self, out: Source, folds: Sequence[Fold]) -> None:
        """One thread stores."""
        self.merge_lanes(out, folds)
        if folds:
            out.open("if lane == 0:")
            out.add(self.partial_stores(folds))
            out.close()

    def merge_lanes(self, out: Source, folds: Sequence[Fold]) -> None:
        """Thread l with l+8, then l+4 ...; then thread 0's states to all."""
        if not folds:
            return
        states = [state for f in folds for state in state_names(f)]
        elements = [element for f in folds for element in state_elements(f)]
        for state, element in zip(states, elements, strict=True):
            self.memory[f"{state}_shared"] = f"cuda.shared.array({WIDTH}, {_dtype(element)})"

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
            self.merge(out, f)
        out.line("distance >>= 1")
        out.close()
        exchange("", "0")


def _dtype(element: str) -> str:
    return "bool_" if element == "bool" else element
