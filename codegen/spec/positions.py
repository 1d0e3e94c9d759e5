"""Positions in the iteration space as text, for all printers: axes from a row number, parts from
an inner index, the position in the whole space; and how much of a vector a statement is about.

Knows analysed specifications only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from codegen.spec.analysis import Analysis


class Extent(Enum):
    """How much a statement works on: one element of a row, whose lanes are equal, or of the vector of
    a loop all lanes, or those below `left`. Where values have no lanes, "all" is the element of a thread.
    """

    ROW = "row"
    ALL = "all"
    LEFT = "left"

    @property
    def looped(self) -> bool:
        """Whether it is in a loop over the inner axis."""
        return self is not Extent.ROW


@dataclass(frozen=True, slots=True)
class Positions:
    """What the printers call positions. `row`: the variable with the row number."""

    facts: Analysis

    @property
    def row(self) -> str:
        """The variable that holds the row number: the axis itself where there is one."""
        rows = self.facts.rows
        return rows[0] if len(rows) == 1 else "row"

    @property
    def n_rows(self) -> str:
        """The number of rows."""
        return "*".join(f"n_{a}" for a in self.facts.rows) or "1"

    @property
    def inner(self) -> str:
        """The variable of the inner axis, "" without one."""
        return self.facts.inner or ""

    @property
    def n_inner(self) -> str:
        """The size of the inner axis."""
        return f"n_{self.inner}"

    def row_axes(self, used: set[str]) -> list[str]:
        """Lines that give the row axes from the row number, if any is used."""
        rows = self.facts.rows
        if len(rows) < 2 or not used & set(rows):
            return []
        return _split("row", rows, used | {rows[0]}, lambda x, n: f"{x} // {n}")

    def parts(self, whole: str, used: set[str], divide: Callable[[str, str], str]) -> list[str]:
        """Lines that give the used parts of the inner axis, from the inner index `whole`."""
        parts = self.facts.parts
        if not used & set(parts):
            return []
        if len(parts) == 1:
            return [f"{parts[0]} = {whole}"]
        return _split(whole, parts, used, divide)

    def place(self, looped: bool) -> tuple[str, str]:
        """The row-major position in the whole iteration space, and the number of positions."""
        n = self.n_inner
        if not looped:
            return (self.row, self.n_rows) if self.facts.rows else ("0", "1")
        if not self.facts.rows:
            return self.inner, n
        return f"{self.row}*{n} + {self.inner}", f"{self.n_rows}*{n}"

    def task_place(self, looped: bool) -> str:
        """Where a task of a fold over the rows keeps its partial result."""
        return f"task*{self.n_inner} + {self.inner}" if looped else "task"


def _split(
    whole: str, names: tuple[str, ...], used: set[str], divide: Callable[[str, str], str]
) -> list[str]:
    """Mixed-radix digits of `whole`, the last name fastest; only what the used ones need."""
    lines, rest = [], whole
    for k in range(len(names) - 1, 0, -1):
        name = names[k]
        earlier = used & set(names[:k])
        if not earlier and name not in used:
            break
        quotient = names[0] if k == 1 else f"{names[k - 1]}_rest"
        lines.append(f"{quotient} = {divide(rest, f'n_{name}')}")
        if name in used:
            lines.append(f"{name} = {rest} - {quotient}*n_{name}")
        rest = quotient
    return lines
