"""The programs of one traced function: by signature, those of a signature by path, within limits, with warnings.

Knows traces and when to drop them. Must not know how a call finds its signature and how a function is traced.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ops.errors import ArgumentError
from tracer.core.source_lines import located, warn
from tracer.tracing.arguments.signature import Leaf
from tracer.tracing.programs.compiled_trace import CompiledTrace
from tracer.tracing.programs.paths import Paths
from tracer.tracing.recording.value_guards import ValueGuard

MANY_ANSWERS = 8  # of a query for a number that are worth a warning
_LOG = logging.getLogger("tracer.retrace")


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds spent since the function was decorated, or since `clear`."""

    tracing: float
    compiling: float
    traces: int


class Programs:
    """What has been traced and is kept. `max_traces`: programs, all paths of a signature counted as one; `max_paths`: paths of
    one signature. Reading needs no `lock`; tracing takes it."""

    def __init__(self, name: str, max_traces: int, max_paths: int) -> None:
        if max_paths < 1:
            raise located(ArgumentError(f"max_paths must be at least 1, got {max_paths}"))
        self.name, self.max_traces, self.max_paths = name, max_traces, max_paths
        self.lock = threading.RLock()
        self.by_signature: dict[Any, Paths] = {}
        self._traces = self._starts = 0  # starts: traces that were not of one more path
        self._warned: set[str] = set()  # lines of queries

    def __iter__(self) -> Iterator[Paths]:
        return iter(list(self.by_signature.values()))

    @property
    def count(self) -> int:
        """The number of programs."""
        return sum(len(paths) for paths in self)

    def find(
        self, key: Any, leaves: Sequence[Any], known: Sequence[ValueGuard]
    ) -> tuple[CompiledTrace | None, str | None]:
        """The last used trace that fits a call whose first value guards are known; else None and what changed in the state."""
        paths = self.by_signature.get(key)
        return (None, None) if paths is None else paths.find(leaves, known)

    def put_first(self, compiled: CompiledTrace) -> None:
        """Try a trace first from now on: it was used."""
        paths = self.by_signature.get(compiled.key)
        if paths is not None and paths[0] is not compiled:
            with self.lock:
                if compiled in paths:  # not dropped meanwhile
                    paths.put_first(compiled)

    def count_rerun(self, compiled: CompiledTrace) -> None:
        """Another path was run before this one, for the same call."""
        paths = self.by_signature.get(compiled.key)
        if paths is not None:
            with self.lock:
                paths.reruns += 1

    def add(self, compiled: CompiledTrace, reason: str | None, known: Sequence[ValueGuard]) -> None:
        """Keep a new trace, within the limits, and say why there is one more. `known`: value guards that no known path has."""
        if known:
            reason = f"{known[-1]} was {known[-1].answer!r:.60}"
        reason = reason or self._other_arguments(compiled.signature)
        is_path = bool(known) and compiled.key in self.by_signature
        paths = self.by_signature.setdefault(
            compiled.key, Paths(compiled.signature, compiled.grad_enabled)
        )
        paths.put_first(compiled)
        paths.retraces += is_path
        dropped = paths.drop_beyond(self.max_paths)
        self._traces += 1
        self._starts += not is_path
        self._drop_oldest()
        if reason:
            _LOG.info("%s is traced again: %s", self.name, reason)
        if is_path:
            self._warn_of_paths(paths, known, dropped)
        elif self._starts == self.max_traces and reason:
            warn(
                f"{self.name} has been traced {self.max_traces} times, the last time because: {reason}; "
                "the least recently made programs are dropped from now on"
            )

    def _other_arguments(self, signature: tuple[Leaf, ...]) -> str:
        """How a signature differs from the last one."""
        if not self.by_signature:
            return ""
        old = next(reversed(self.by_signature))[1]
        changes = [
            f"argument {k + 1}: {a} -> {b}"
            for k, (a, b) in enumerate(zip(old, signature, strict=False))
            if a != b
        ]
        return "; ".join(changes) or "the structure of the arguments changed"

    def _warn_of_paths(self, paths: Paths, known: Sequence[ValueGuard], dropped: bool) -> None:
        """Warn once of a query that is answered otherwise at each call, and once that paths are dropped."""
        last = known[-1]
        many = min(MANY_ANSWERS, self.max_paths)
        if (
            last.query != "bool(t)"
            and last.line not in self._warned
            and paths.answers(known) >= many
        ):
            self._warned.add(last.line)
            warn(
                f"{self.name}: {last} had {many} different answers, the last one {last.answer!r:.60}; each answer is a "
                "path of its own, which is traced and compiled. Where the number is only shown or returned, return the Tensor "
                "and convert it outside the traced function; where it is computed with, compute with the Tensor"
            )
        elif dropped and "" not in self._warned:
            self._warned.add("")
            warn(
                f"{self.name} has more than {self.max_paths} paths for one signature, the last one because {last} was "
                f"{last.answer!r:.60}; those that were not used for the longest time are dropped from now on. See paths(); "
                "allow more with max_paths, or choose between values with tracer.where"
            )

    def _drop_oldest(self) -> None:
        """Drop the oldest programs beyond the limit."""
        while sum(paths.weight for paths in self) > self.max_traces:
            key, paths = next(iter(self.by_signature.items()))
            if paths.weight > 1:
                paths.drop_last()
            else:
                del self.by_signature[key]

    def timings(self) -> Timings:
        """Seconds spent tracing and compiling, and how many traces there were."""
        kept = [compiled for paths in self for compiled in paths]
        return Timings(
            sum(c.trace_seconds for c in kept),
            sum(c._executable.compile_seconds for c in kept if c._executable is not None),
            self._traces,
        )

    def clear(self) -> None:
        """Forget all programs."""
        with self.lock:
            self.by_signature.clear()
            self._traces = self._starts = 0
            self._warned.clear()
