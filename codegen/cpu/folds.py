"""Reductions of a CPU kernel, as text: steps, the tree over lanes, the tree over chunks, partial
results.

The order is the contract's: lanes combine in halves, chunks in pairs of neighbours, an odd one
passing up. The tree over chunks is a stack: chunk number k merges with as many earlier ones as k
has trailing one bits, the last chunk with all that are left. Knows analysed specs, and no loops but
the tree's own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from codegen.cpu.access import zero
from codegen.spec.analysis import Analysis, lane_element
from codegen.spec.kernel_spec import CHUNK, WIDTH, Combine, Fold, Folding
from codegen.spec.positions import PART_OF_NUMBER
from codegen.text.source import Source

LEVELS = 48  # of a tree over chunks: room for 2**48
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


def rename(text: str, folding: Folding, prefix: str) -> str:
    """A folding's text with its states named for this fold: `best` -> `<prefix>_best`, `other_best`
    alike.
    """
    for state, _ in folding.state:
        text = re.sub(rf"\b(other_)?{state}\b", rf"\g<1>{prefix}_{state}", text)
    return text


def arguments(f: Fold, facts: Analysis) -> list[str]:
    """The arguments of a fold as vectors: names of values, or literals widened."""
    return [a if a in facts.elements else f"full({a})" for a in f.args]


def state_names(folding: Folding, prefix: str) -> list[str]:
    """The variables that hold the states of a fold."""
    return [f"{prefix}_{state}" for state, _ in folding.state]


class FoldText:
    """Texts of folds. `stacks`: name -> text of the stacks that the function needs, filled while
    printing.
    """

    def __init__(self, facts: Analysis) -> None:
        self.facts = facts
        self.stacks: dict[str, str] = {}

    def initial(self, folding: Folding) -> list[str]:
        """The first value of each state, as vectors."""
        result = []
        for (_, dtype), init in zip(folding.state, folding.init, strict=True):
            element = lane_element(dtype)
            result.append(f"full({init})" if element == "bool" else f"full({element}({init}))")
        return result

    # ---- folds over the inner axis ---------------------------------------------------------------
    def start(self, out: Source, folds: Sequence[Fold]) -> None:
        """Fresh states."""
        for f in folds:
            for state, init in zip(
                state_names(f.folding, f.dsts[0]), self.initial(f.folding), strict=True
            ):
                out.line(f"{state} = {init}")

    def _steps(self, f: Fold, masked: bool) -> str:
        states = state_names(f.folding, f.dsts[0])
        steps = [
            rename(s, f.folding, f.dsts[0]).format(*arguments(f, self.facts))
            for s in f.folding.step
        ]
        if masked:
            steps = [f"select(live, {s}, {old})" for s, old in zip(steps, states, strict=True)]
        return f"{', '.join(states)} = {', '.join(steps)}"

    def step(self, out: Source, f: Fold, masked: bool, note: str) -> None:
        """One vector of arguments into the states."""
        out.line(self._steps(f, masked), note)

    def end_chunk(self, out: Source, folds: Sequence[Fold], end: str) -> None:
        """The lanes of this chunk combined, then merged with earlier chunks; after the last one the
        states are the total.
        """
        others = []
        for f in folds:
            (state,) = state_names(f.folding, f.dsts[0])
            tree = _TREES.get(_shape(f.folding))
            if tree:
                self.stacks[f"{state}_stack"] = (
                    f"stack_{lane_element(f.folding.state[0][1])}({LEVELS})"
                )
                out.line(f"{state} = {tree}({state}_stack, chunk, {end}, {state})")
            else:
                self._merge_lanes(out, f)
                others.append((f.folding, f.dsts[0]))
        if others:
            out.line(f"number = chunk // {CHUNK}")
            self._push(out, others, f"chunk_end == {end}", 1)

    def finish(self, out: Source, folds: Sequence[Fold], notes: Sequence[str]) -> None:
        """The results of the row, from the states."""
        for f, note in zip(folds, notes, strict=True):
            if f.folding.exact:
                self._merge_lanes(out, f)
            for dst, text in zip(f.dsts, f.folding.finish, strict=True):
                out.line(f"{dst} = {rename(text, f.folding, f.dsts[0])}", note)

    def store_partials(self, out: Source, folds: Sequence[Fold]) -> None:
        """The combined lanes of this task's chunk into the partial operands."""
        for f in folds:
            self._merge_lanes(out, f)
            for name, state in zip(f.dsts, state_names(f.folding, f.dsts[0]), strict=True):
                out.line(f"store_one({name}, task, {state})")

    def _merge_lanes(self, out: Source, f: Fold) -> None:
        folding, prefix = f.folding, f.dsts[0]
        states = state_names(folding, prefix)
        if len(states) == 1:
            function = _LANE_FUNCTIONS.get(_shape(folding))
            bitwise = function in ("lane_any", "lane_all")
            if function and bitwise <= (folding.state[0][1] == "bool"):
                out.line(f"{states[0]} = full({function}({states[0]}))")
                return
        for count in (8, 4, 2, 1):
            for state in states:
                out.line(f"other_{state} = rotate({state}, {count})")
            merged = ", ".join(rename(m, folding, prefix) for m in folding.merge)
            out.line(f"{', '.join(states)} = {merged}")
        for state in states:
            out.line(f"{state} = full(first({state}))")

    def _push(
        self, out: Source, foldings: Sequence[tuple[Folding, str]], last: str, width: int
    ) -> None:
        """States number `number` into the tree over the ones before; after the last one they are
        the total.

        `width`: 1 when all lanes of a state are equal, else 16.
        """
        load, store = ("load_one", "store_one") if width == 1 else ("load", "store")
        place = "level" if width == 1 else f"level*{width}"
        out.line(f"pending = number if {last} else number & ~(number + 1)")
        out.line("level = 0")
        out.open("while pending:")
        out.open("if pending & 1:")
        for folding, prefix in foldings:
            states = state_names(folding, prefix)
            for state, (_, dtype) in zip(states, folding.state, strict=True):
                self.stacks[f"{state}_stack"] = f"stack_{lane_element(dtype)}({LEVELS * width})"
                out.line(f"other_{state} = {state}")
                out.line(f"{state} = {load}({state}_stack, {place})")
            merged = ", ".join(rename(m, folding, prefix) for m in folding.merge)
            out.line(f"{', '.join(states)} = {merged}")
        out.close()
        out.line("pending >>= 1")
        out.line("level += 1")
        out.close()
        for folding, prefix in foldings:
            for state in state_names(folding, prefix):
                out.line(f"{store}({state}_stack, {place}, {state})")

    # ---- partial results -------------------------------------------------------------------------
    def step_partial(
        self, out: Source, f: Fold, where: str, looped: bool, masked: bool, note: str
    ) -> None:
        """One vector of arguments into the task's row of partial results in memory."""
        states = state_names(f.folding, f.dsts[0])
        for name, state, (_, dtype) in zip(f.dsts, states, f.folding.state, strict=True):
            fill = zero(lane_element(dtype))
            text = f"load({name}, {where})" if looped else f"load_one({name}, {where})"
            out.line(
                f"{state} = " + (f"load_part({name}, {where}, left, {fill})" if masked else text)
            )
        out.line(self._steps(f, False), note)
        for name, state in zip(f.dsts, states, strict=True):
            text = (
                f"store({name}, {where}, {state})"
                if looped
                else f"store_one({name}, {where}, {state})"
            )
            out.line(f"store_part({name}, {where}, left, {state})" if masked else text)

    def combine(
        self, out: Source, s: Combine, place: tuple[str, str], looped: bool, masked: bool, note: str
    ) -> None:
        """The finished results of partial ones at `place` (position, number of positions)."""
        position, positions = place
        folding, prefix = s.folding, s.dsts[0]
        states = state_names(folding, prefix)
        lanes = f" * {WIDTH}" if s.mode == "columns" else ""
        out.line(f"parts = (n_{s.reduced} + {CHUNK - 1}) // {CHUNK}{lanes}")
        for state, init in zip(states, self.initial(folding), strict=True):
            out.line(f"{state} = {init}")
        out.open("for number in range(parts):")
        if s.mode == "columns":
            out.add(PART_OF_NUMBER)
            where = f"part*{positions} + {position}"  # of products, too
        else:
            where = f"({position})*parts + number"
        for name, state, (_, dtype) in zip(s.partials, states, folding.state, strict=True):
            fill = zero(lane_element(dtype))
            if not looped:
                text = f"load_one({name}, {where})"
            elif s.mode == "split":
                index = f"lane_index({position})*parts + number"
                text = (
                    f"gather_part({name}, {index}, left, {fill})"
                    if masked
                    else f"gather({name}, {index})"
                )
            else:
                text = (
                    f"load_part({name}, {where}, left, {fill})"
                    if masked
                    else f"load({name}, {where})"
                )
            out.line(f"{state} = {text}")
        self._push(out, [(folding, prefix)], "number == parts - 1", WIDTH if looped else 1)
        out.close()
        for dst, text in zip(s.dsts, folding.finish, strict=True):
            out.line(f"{dst} = {rename(text, folding, prefix)}", note)
