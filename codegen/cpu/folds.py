"""Reductions of a CPU kernel, as text: on vectors, whose lanes merge by functions and shuffles. Knows
what `folds` knows.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from codegen.cpu.access import load, store
from codegen.printing.folds import LEVELS, FoldText, state_elements, state_names
from codegen.spec.kernel_spec import WIDTH, Combine, Fold, Folding
from codegen.spec.positions import Extent
from codegen.text.source import Source

_LANE_FUNCTIONS = {  # merge texts that have a function over the lanes of their own
    "{0} + other_{0}": "lane_sum",
    "{0} * other_{0}": "lane_product",
    "maximum({0}, other_{0})": "lane_max",
    "minimum({0}, other_{0})": "lane_min",
    "{0} | other_{0}": "lane_any",
    "{0} & other_{0}": "lane_all",
}
_TREES = {"{0} + other_{0}": "tree_sum", "{0} * other_{0}": "tree_product"}


def _shape(folding: Folding) -> str:
    """The merge text of a folding with one state, that state's name taken out."""
    return re.sub(rf"\b(other_)?{folding.state[0][0]}\b", r"\g<1>{0}", folding.merge[0])


class CpuFolds(FoldText):
    """Texts of folds on vectors of 16 lanes."""

    lanes = WIDTH

    def initial(self, s: Fold | Combine) -> list[str]:
        """The first value of each state, as vectors."""
        pairs = zip(state_elements(s), s.folding.init, strict=True)
        return [f"full({init})" if e == "bool" else f"full({e}({init}))" for e, init in pairs]

    def expression(self, text: str, element: str, s: Fold | Combine) -> str:
        """The text as it is: vectors know their elements."""
        return text

    def stack(self, element: str, size: int) -> str:
        """In the frame of the function."""
        return f"stack_{element}({size})"

    def read(self, memory: str, place: str, element: str, extent: Extent) -> str:
        """A vector load."""
        return load("load", memory, place, element, extent)

    def write(self, memory: str, place: str, value: str, extent: Extent) -> str:
        """A vector store."""
        return store("store", memory, place, value, extent)

    def read_apart(self, memory: str, position: str, element: str, extent: Extent) -> str:
        """In a loop the lanes' positions are neighbours, and what is read of them is not."""
        if not extent.looped:
            return super().read_apart(memory, position, element, extent)
        index = f"lane_index({position})*parts + number"
        return load("gather", memory, index, element, extent)

    def end_chunk(self, out: Source, folds: Sequence[Fold], end: str) -> None:
        """Sums and products have a function that merges lanes and chunks."""
        others = []
        for f in folds:
            tree = _TREES.get(_shape(f.folding))
            if not tree:
                others.append(f)
                continue
            (state,), (element,) = state_names(f), state_elements(f)
            self.memory[f"{state}_stack"] = self.stack(element, LEVELS)
            out.line(f"{state} = {tree}({state}_stack, chunk, {end}, {state})")
        if others:
            super().end_chunk(out, others, end)

    def finish_row(self, out: Source, folds: Sequence[Fold], notes: Sequence[str]) -> None:
        """One fold after the other."""
        for f, note in zip(folds, notes, strict=True):
            if f.folding.exact:
                self.merge_lanes(out, [f])
            self.finish(out, f, note)

    def store_partials(self, out: Source, folds: Sequence[Fold]) -> None:
        """One fold after the other."""
        for f in folds:
            self.merge_lanes(out, [f])
            out.add(self.partial_stores([f]))

    def merge_lanes(self, out: Source, folds: Sequence[Fold]) -> None:
        """By a function over the lanes, or in halves by rotations."""
        for f in folds:
            states, function = state_names(f), None
            if len(states) == 1:
                function = _LANE_FUNCTIONS.get(_shape(f.folding))
            bitwise = function in ("lane_any", "lane_all")
            if function and bitwise <= (f.folding.state[0][1] == "bool"):
                out.line(f"{states[0]} = full({function}({states[0]}))")
                continue
            for count in (8, 4, 2, 1):
                for state in states:
                    out.line(f"other_{state} = rotate({state}, {count})")
                self.merge(out, f)
            for state in states:
                out.line(f"{state} = full(first({state}))")
