"""The paths of one signature: programs that differ in what Python was told when it asked values of a trace, last used first.

What value guards observe, in their order, makes a tree; what is kept are its leaves, with the state that each was traced under.
Knows traces and their value guards. Must not know how programs are compiled and called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tracer.tensors.modes import Untracked
from tracer.tracing.arguments.signature import Leaf
from tracer.tracing.programs.compiled_trace import CompiledTrace
from tracer.tracing.recording.value_guards import ValueGuard


class Paths(Sequence[CompiledTrace]):
    """The traces of one signature. Replaced as a whole, never changed, so that any thread may read them.

    `reruns`: how often another known path was run because a value guard failed on the path that was tried. `retraces`: how often
    the function was traced again because no known path fits what was observed.
    """

    def __init__(self, signature: Sequence[Leaf], grad_enabled: bool | Untracked) -> None:
        mode = (
            ""
            if grad_enabled
            else f" in {'no_grad' if grad_enabled is False else grad_enabled} mode"
        )
        self.signature = f"({', '.join(map(str, signature))}){mode}"
        self._traces: tuple[CompiledTrace, ...] = ()
        self.reruns = self.retraces = 0

    def __len__(self) -> int:
        return len(self._traces)

    def __getitem__(self, index: Any) -> Any:
        return self._traces[index]

    def __iter__(self) -> Iterator[CompiledTrace]:
        return iter(self._traces)

    def find(
        self, leaves: Sequence[Any], known: Sequence[ValueGuard]
    ) -> tuple[CompiledTrace | None, str | None]:
        """The trace whose guard holds and whose first value guards are those of `known`; else None and what changed in the
        state."""
        observed = tuple(guard.observed for guard in known)
        reason = None
        for compiled in self._traces:
            if compiled.observed[: len(observed)] != observed:
                continue
            changed = compiled.guard(compiled.fn, leaves)
            if changed is None:
                return compiled, None
            reason = reason or changed
        return None, reason

    def put_first(self, compiled: CompiledTrace) -> None:
        """Try a trace, a new one too, before the others from now on."""
        self._traces = (compiled, *(c for c in self._traces if c is not compiled))

    def drop_beyond(self, most: int) -> bool:
        """Drop what was not used for the longest time, until `most` paths with value guards are left; whether there was any."""
        guarded = [c for c in self._traces if c.value_guards]
        gone = set(map(id, guarded[most:]))
        self._traces = tuple(c for c in self._traces if id(c) not in gone)
        return bool(gone)

    def drop_last(self) -> None:
        """Drop the trace that was not used for the longest time."""
        self._traces = self._traces[:-1]

    @property
    def weight(self) -> int:
        """How many programs this is, all paths counted as one."""
        guarded = [bool(c.value_guards) for c in self._traces]
        return guarded.count(False) + any(guarded)

    def answers(self, known: Sequence[ValueGuard]) -> int:
        """How many different answers to the last query the traces know that agree with those before it."""
        *before, last = known
        number, observed = len(before), tuple(guard.observed for guard in before)
        return len(
            {
                c.observed[number]
                for c in self._traces
                if len(c.observed) > number
                and c.observed[:number] == observed
                and c.value_guards[number].line == last.line
            }
        )

    def report(self) -> SignaturePaths:
        """What `fn.paths()` says of this signature."""
        paths = tuple(
            Path(
                tuple(Outcome(g.query, g.line, g.answer) for g in c.value_guards),
                c.runs if c.value_guards else None,
            )
            for c in self._traces
        )
        return SignaturePaths(self.signature, paths, self.reruns, self.retraces)


# ---- the report ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outcome:
    """What Python asked, such as "bool(t)", the user's line, and the answer on a path."""

    asked: str
    line: str
    answer: Any

    def __str__(self) -> str:
        return f"{self.line}  {self.asked} -> {self.answer!r:.60}"


@dataclass(frozen=True, slots=True)
class Path:
    """One path: its queries with their answers, and how often it ran to its end (None where nothing is asked: not counted)."""

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
        """Calls that ran a path with queries."""
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
