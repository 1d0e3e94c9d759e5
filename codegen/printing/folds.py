"""Reductions of a kernel as text, as far as they are the same for all targets: steps, the tree over
chunks, partial results and their combination.

The order is the contract's: lanes combine in halves, chunks in pairs of neighbours, an odd one
passing up. The tree over chunks is a stack: chunk number k merges with as many earlier ones as k
has trailing one bits, the last chunk with all that are left. Knows analysed specs, and no loops but
the tree's own; how lanes merge, and how a state lies in memory, a target says (`cpu.folds`,
`cuda.folds`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence

from codegen.spec.analysis import Analysis, lane_element
from codegen.spec.kernel_spec import CHUNK, WIDTH, Combine, Fold
from codegen.spec.positions import Extent
from codegen.text.source import Source

LEVELS = 48  # of a tree over chunks: room for 2**48
# Partial results of 16 lanes in the order of their bits read backwards: neighbours are then l and
# l+8, pairs of neighbours l and l+4 ...
_PART_OF_NUMBER = (
    "turned = (number & 1) << 3 | (number & 2) << 1 | (number & 4) >> 1 | (number & 8) >> 3",
    "part = (number & -16) | turned",
)


def state_names(s: Fold | Combine) -> list[str]:
    """The variables that hold the states of a fold."""
    return [f"{s.dsts[0]}_{state}" for state, _ in s.folding.state]


def state_elements(s: Fold | Combine) -> list[str]:
    """Their lane elements."""
    return [lane_element(dtype) for _, dtype in s.folding.state]


def rename(text: str, s: Fold | Combine) -> str:
    """A folding's text with its states named for this fold: `best` -> `<result>_best`, `other_best`
    alike.
    """
    for state, _ in s.folding.state:
        text = re.sub(rf"\b(other_)?{state}\b", rf"\g<1>{s.dsts[0]}_{state}", text)
    return text


class FoldText(ABC):
    """Texts of folds. `memory`: name -> text of the stacks and other arrays that the function needs,
    filled while printing.
    """

    lanes = 1  # of a value in a loop over the inner axis

    def __init__(self, facts: Analysis) -> None:
        self.facts = facts
        self.memory: dict[str, str] = {}

    # ---- what a target says ----------------------------------------------------------------------
    @abstractmethod
    def initial(self, s: Fold | Combine) -> list[str]:
        """The first value of each state."""

    @abstractmethod
    def expression(self, text: str, element: str, s: Fold | Combine) -> str:
        """A text on the states of `s`, as a value of an element."""

    @abstractmethod
    def stack(self, element: str, size: int) -> str:
        """Room for as many elements."""

    @abstractmethod
    def read(self, memory: str, place: str, element: str, extent: Extent) -> str:
        """What lies at a place, as a value."""

    @abstractmethod
    def write(self, memory: str, place: str, value: str, extent: Extent) -> str:
        """The statement that puts a value there."""

    @abstractmethod
    def merge_lanes(self, out: Source, folds: Sequence[Fold]) -> None:
        """The lanes of the states combined; all of them get the total."""

    @abstractmethod
    def finish_row(self, out: Source, folds: Sequence[Fold], notes: Sequence[str]) -> None:
        """The results of the row, from the states; the lanes of exact ones are still to be merged."""

    @abstractmethod
    def store_partials(self, out: Source, folds: Sequence[Fold]) -> None:
        """The combined lanes of this task's chunk into the partial operands."""

    # ---- folds over the inner axis ---------------------------------------------------------------
    def start(self, out: Source, folds: Sequence[Fold | Combine]) -> None:
        """Fresh states."""
        for f in folds:
            for state, init in zip(state_names(f), self.initial(f), strict=True):
                out.line(f"{state} = {init}")

    def step(self, out: Source, f: Fold, extent: Extent, note: str) -> None:
        """One vector of arguments into the states. Literals among them are widened."""
        arguments = [a if a in self.facts.elements else f"full({a})" for a in f.args]
        texts = [rename(text, f).format(*arguments) for text in f.folding.step]
        if extent is Extent.LEFT:
            pairs = zip(texts, state_names(f), strict=True)
            texts = [f"select(live, {text}, {state})" for text, state in pairs]
        self._assign(out, f, texts, note)

    def end_chunk(self, out: Source, folds: Sequence[Fold], end: str) -> None:
        """The lanes of this chunk combined, then merged with earlier chunks; after the last one the
        states are the total.
        """
        self.merge_lanes(out, folds)
        out.line(f"number = chunk // {CHUNK}")
        self._push(out, folds, f"chunk + {CHUNK} >= {end}", Extent.ROW)

    def finish(self, out: Source, s: Fold | Combine, note: str) -> None:
        """The results, from the states."""
        for dst, text in zip(s.dsts, s.folding.finish, strict=True):
            value = self.expression(rename(text, s), self.facts.elements[dst], s)
            out.line(f"{dst} = {value}", note)

    def merge(self, out: Source, s: Fold | Combine) -> None:
        """Each state with the other one of its name."""
        self._assign(out, s, [rename(text, s) for text in s.folding.merge])

    def _assign(self, out: Source, s: Fold | Combine, texts: Sequence[str], note: str = "") -> None:
        pairs = zip(texts, state_elements(s), strict=True)
        values = [self.expression(text, element, s) for text, element in pairs]
        out.line(f"{', '.join(state_names(s))} = {', '.join(values)}", note)

    def _push(
        self, out: Source, folds: Sequence[Fold | Combine], last: str, extent: Extent
    ) -> None:
        """States number `number` into the tree over the ones before; after the last one they are
        the total. Outside loops over the inner axis all lanes of a state are equal, and one is kept.
        """
        count = self.lanes if extent.looped else 1
        extent = Extent.ALL if extent.looped else Extent.ROW
        place = "level" if count == 1 else f"level*{count}"
        out.line(f"pending = number if {last} else number & ~(number + 1)")
        out.line("level = 0")
        out.open("while pending:")
        out.open("if pending & 1:")
        for s in folds:
            for state, element in zip(state_names(s), state_elements(s), strict=True):
                self.memory[f"{state}_stack"] = self.stack(element, LEVELS * count)
                out.line(f"other_{state} = {state}")
                out.line(f"{state} = {self.read(f'{state}_stack', place, element, extent)}")
            self.merge(out, s)
        out.close()
        out.line("pending >>= 1")
        out.line("level += 1")
        out.close()
        for s in folds:
            for state in state_names(s):
                out.line(self.write(f"{state}_stack", place, state, extent))

    # ---- partial results -------------------------------------------------------------------------
    def partial_stores(self, folds: Sequence[Fold]) -> list[str]:
        """The states of this task's chunk into the partial operands."""
        pairs = [p for f in folds for p in zip(f.dsts, state_names(f), strict=True)]
        return [self.write(name, "task", state, Extent.ROW) for name, state in pairs]

    def step_partial(self, out: Source, f: Fold, place: str, extent: Extent, note: str) -> None:
        """One vector of arguments into the task's row of partial results in memory."""
        states = list(zip(f.dsts, state_names(f), state_elements(f), strict=True))
        for name, state, element in states:
            out.line(f"{state} = {self.read(name, place, element, extent)}")
        self.step(out, f, Extent.ALL, note)
        for name, state, _ in states:
            out.line(self.write(name, place, state, extent))

    def combine(
        self, out: Source, s: Combine, place: tuple[str, str], extent: Extent, note: str
    ) -> None:
        """The finished results of partial ones at `place` (position, number of positions)."""
        position, positions = place
        by_columns = s.mode == "columns"
        lanes = f" * {WIDTH}" if by_columns else ""
        out.line(f"parts = (n_{s.reduced} + {CHUNK - 1}) // {CHUNK}{lanes}")
        self.start(out, [s])
        out.open("for number in range(parts):")
        if by_columns:
            out.add(_PART_OF_NUMBER)
        for name, state, element in zip(s.partials, state_names(s), state_elements(s), strict=True):
            if by_columns:
                value = self.read(name, f"part*{positions} + {position}", element, extent)
            else:
                value = self.read_apart(name, position, element, extent)
            out.line(f"{state} = {value}")
        self._push(out, [s], "number == parts - 1", extent)
        out.close()
        self.finish(out, s, note)

    def read_apart(self, memory: str, position: str, element: str, extent: Extent) -> str:
        """Partial result `number` of a position that has `parts` of them."""
        return self.read(memory, f"({position})*parts + number", element, extent)
