"""The paths of one signature: programs that differ in what Python was told when it asked values of a trace, last used first.

Outcomes in the order of the questions make a tree; what is kept are its leaves, with the state that each was traced under. Knows
entries and their questions. Must not know how programs are compiled and called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tracer.tensors.modes import Untracked
from tracer.tracing.arguments.signature import Leaf
from tracer.tracing.programs.compiled_trace import Entry
from tracer.tracing.recording.value_guards import Question


class Paths(Sequence[Entry]):
    """The entries of one signature. Replaced as a whole, never changed, so that any thread may read them.

    `reruns`: how often another known path was run because a question had another outcome than on the path that was tried.
    `retraces`: how often the function was traced again because no known path had the outcomes.
    """

    def __init__(self, signature: Sequence[Leaf], grad_enabled: bool | Untracked) -> None:
        mode = (
            ""
            if grad_enabled
            else f" in {'no_grad' if grad_enabled is False else grad_enabled} mode"
        )
        self.signature = f"({', '.join(map(str, signature))}){mode}"
        self._entries: tuple[Entry, ...] = ()
        self.reruns = self.retraces = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, index: Any) -> Any:
        return self._entries[index]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries)

    def find(
        self, leaves: Sequence[Any], known: Sequence[Question]
    ) -> tuple[Entry | None, str | None]:
        """The entry whose guard holds and whose first outcomes are those of `known`; else None and what changed in the state."""
        outcomes = tuple(q.outcome for q in known)
        reason = None
        for entry in self._entries:
            if entry.outcomes[: len(outcomes)] != outcomes:
                continue
            changed = entry.guard(entry.fn, leaves)
            if changed is None:
                return entry, None
            reason = reason or changed
        return None, reason

    def put_first(self, entry: Entry) -> None:
        """Try an entry, a new one too, before the others from now on."""
        self._entries = (entry, *(e for e in self._entries if e is not entry))

    def drop_beyond(self, most: int) -> bool:
        """Drop what was not used for the longest time, until `most` paths with questions are left; whether there was any."""
        asking = [e for e in self._entries if e.questions]
        gone = set(map(id, asking[most:]))
        self._entries = tuple(e for e in self._entries if id(e) not in gone)
        return bool(gone)

    def drop_last(self) -> None:
        """Drop the entry that was not used for the longest time."""
        self._entries = self._entries[:-1]

    @property
    def weight(self) -> int:
        """How many programs this is, all paths counted as one."""
        return sum(not e.questions for e in self._entries) + any(e.questions for e in self._entries)

    def answers(self, known: Sequence[Question]) -> int:
        """How many different outcomes of the last question the entries know that agree with those before it."""
        *before, question = known
        number, outcomes = len(before), tuple(q.outcome for q in before)
        return len(
            {
                e.outcomes[number]
                for e in self._entries
                if len(e.outcomes) > number
                and e.outcomes[:number] == outcomes
                and e.questions[number].line == question.line
            }
        )

    def report(self) -> SignaturePaths:
        """What `fn.paths()` says of this signature."""
        paths = tuple(
            Path(
                tuple(Outcome(q.asked, q.line, q.answer) for q in entry.questions),
                entry.runs if entry.questions else None,
            )
            for entry in self._entries
        )
        return SignaturePaths(self.signature, paths, self.reruns, self.retraces)


# ---- the report ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """A question that Python asked, such as "bool(t)", the user's line, and the answer on a path."""

    asked: str
    line: str
    answer: Any

    def __str__(self) -> str:
        return f"{self.line}  {self.asked} -> {self.answer!r:.60}"


@dataclass(frozen=True, slots=True)
class Path:
    """One path: its questions with their outcomes, and how often it ran to its end (None where nothing is asked: not counted)."""

    outcomes: tuple[Outcome, ...]
    runs: int | None

    def __str__(self) -> str:
        lines = [_counted(self.runs, "run") if self.runs is not None else "no questions"]
        for text, same in groupby(map(str, self.outcomes)):
            count = len(list(same))
            lines.append(text + (f", {count:,} times" if count > 1 else ""))
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class SignaturePaths:
    """The paths of calls of one signature, last used first; how often another path than the one that was tried had to be run,
    or the function had to be traced again."""

    signature: str
    paths: tuple[Path, ...]
    reruns: int
    retraces: int

    @property
    def runs(self) -> int:
        """Calls that ran a path with questions."""
        return sum(p.runs or 0 for p in self.paths)

    def __str__(self) -> str:
        lines = [
            f"{self.signature}: {_counted(len(self.paths), 'path')}, {_counted(self.reruns, 're-run')}, "
            f"{_counted(self.retraces, 'retrace')}"
        ]
        for number, path in enumerate(self.paths, 1):
            first, *rest = str(path).split("\n")
            lines += [f"  path {number}: {first}", *(f"    {line}" for line in rest)]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class PathReport:
    """The paths of a traced function, by signature."""

    name: str
    signatures: tuple[SignaturePaths, ...]

    @property
    def reruns(self) -> int:
        """Re-runs of all signatures."""
        return sum(s.reruns for s in self.signatures)

    @property
    def retraces(self) -> int:
        """Retraces of all signatures."""
        return sum(s.retraces for s in self.signatures)

    def __iter__(self) -> Iterator[SignaturePaths]:
        return iter(self.signatures)

    def __len__(self) -> int:
        return len(self.signatures)

    def __str__(self) -> str:
        return "\n".join(
            [f"{self.name}: {_counted(len(self), 'signature')}", *map(str, self.signatures)]
        )


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")
