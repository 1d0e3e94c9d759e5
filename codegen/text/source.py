"""Builds the text of a kernel: lines with indentation, and notes aligned at their ends. Knows
nothing of what the lines say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_WORD = re.compile(r"[A-Za-z_]\w*")
_NOTE_COLUMN = 96  # notes stand further left when every noted line is shorter


def words(text: str) -> set[str]:
    """The identifiers in a piece of text."""
    return set(_WORD.findall(text))


@dataclass(frozen=True, slots=True)
class Line:
    """One line: how deep it is indented, its text, and the note behind it."""

    depth: int
    text: str
    note: str = ""


class Source:
    """Lines of Python. `open` starts a block, `close` ends it; `extend` puts another source in at
    the present depth.
    """

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.depth = 0

    def line(self, text: str, note: str = "") -> None:
        """Add one line."""
        self.lines.append(Line(self.depth, text, note))

    def add(self, texts: Iterable[str]) -> None:
        """Add several lines."""
        for text in texts:
            self.line(text)

    def open(self, text: str) -> None:
        """Add a line that starts a block."""
        self.line(text)
        self.depth += 1

    def close(self, count: int = 1) -> None:
        """End `count` blocks."""
        self.depth -= count

    def extend(self, other: Source) -> None:
        """Add the lines of another source here."""
        self.lines.extend(Line(self.depth + x.depth, x.text, x.note) for x in other.lines)

    @property
    def words(self) -> set[str]:
        """Every identifier used so far."""
        return words("\n".join(x.text for x in self.lines))

    def __str__(self) -> str:
        noted = [4 * x.depth + len(x.text) for x in self.lines if x.note]
        column = min(max(noted, default=0), _NOTE_COLUMN)
        result = []
        for x in self.lines:
            text = "    " * x.depth + x.text
            result.append(f"{text:<{column}}  # {x.note}" if x.note else text)
        return "\n".join(result) + "\n"
