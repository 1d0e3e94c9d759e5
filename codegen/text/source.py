"""Writes Python: lines with indentation and notes aligned at their ends; and whole functions, with the
objects that their text names.

Kernels are text (`Source`), and so is what runs at each call and must be quick, such as guards
(`FunctionSource`). Knows nothing of what the lines say.
"""

from __future__ import annotations

import itertools
import linecache
import re
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from ops.python_values import same_value

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_NOTE_COLUMN = 96  # notes stand further left when every noted line is shorter
_MOST_FILES = 100_000  # after as many texts their numbers are used again
_numbers = itertools.count(1)


def identifiers(text: str) -> set[str]:
    """The identifiers in a piece of text."""
    return set(_IDENTIFIER.findall(text))


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
    def identifiers(self) -> set[str]:
        """Every identifier used so far."""
        return identifiers("\n".join(x.text for x in self.lines))

    def __str__(self) -> str:
        noted = [4 * x.depth + len(x.text) for x in self.lines if x.note]
        column = min(max(noted, default=0), _NOTE_COLUMN)
        result = []
        for x in self.lines:
            text = "    " * x.depth + x.text
            result.append(f"{text:<{column}}  # {x.note}" if x.note else text)
        return "\n".join(result) + "\n"


class FunctionSource(Source):
    """A function that is being written, line by line, with the objects that its text names.

    `known`: names that the text may use; `constant` gives names to further objects.
    """

    def __init__(self, name: str, parameters: str, known: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.name = name
        self.known: dict[str, Any] = {"same_value": same_value, **(known or {})}
        self._named: dict[int, str] = {}
        self.open(f"def {name}({parameters}):")

    def constant(self, value: Any) -> str:
        """An expression for an object: a name, the same one for the same object."""
        if value is None or value is True or value is False:
            return repr(value)
        if id(value) not in self._named:
            self._named[id(value)] = f"k{len(self._named)}"
            self.known[self._named[id(value)]] = value
        return self._named[id(value)]

    def differs(self, expression: str, value: Any) -> str:
        """A condition: the expression has another value than this plain one (`same_value`)."""
        if value is None or value is True or value is False:
            return f"{expression} is not {value!r}"
        name = self.constant(value)
        other = f"not same_value(v, {name})"
        if type(value) in (int, str, bytes):  # quicker than a call
            other = f"(v.__class__ is not {name}.__class__ or v != {name})"
        return f"(v := {expression}) is not {name} and {other}"

    def return_if(self, condition: str, result: str) -> None:
        """Add a line that returns what an expression gives if a condition holds."""
        self.line(f"if {condition}: return {result}")

    def function(self, kind: str) -> FunctionType:
        """What has been written. `kind` is what tracebacks call its file, with a number."""
        file = f"<{kind} {next(_numbers) % _MOST_FILES}>"
        return compile_function(str(self), self.name, self.known, file)


def compile_function(
    text: str, name: str, known: Mapping[str, Any], file: str | None = None
) -> FunctionType:
    """The function `name` of a text, in a namespace of its own. Tracebacks and debuggers show its lines
    as long as it lives, under a name of a file: the kernel's, if no other is given.
    """
    file = file or f"<kernel {name}>"
    namespace = dict(known)
    exec(compile(text, file, "exec"), namespace)
    made: FunctionType = namespace[name]
    lines = (len(text), None, text.splitlines(keepends=True), file)
    linecache.cache[file] = lines
    weakref.finalize(made, _forget, file, lines).atexit = False
    return made


def _forget(file: str, lines: Any) -> None:
    if linecache.cache.get(file) is lines:  # and not those of a later text of this name
        del linecache.cache[file]
