"""`@trace`: a function that is recorded once for each kind of call and then runs as a compiled program."""

from __future__ import annotations

import functools
import inspect
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar, overload

from ops.errors import ArgumentError, TracerError
from tracer.config import CONFIG
from tracer.dispatch import located
from tracer.graph import Graph
from tracer.modes import MODES
from tracer.tracing.entry import Entry
from tracer.tracing.launch import MISS
from tracer.tracing.record import NeedNumber, record
from tracer.tracing.signature import Leaf, flatten, leaf_names, leaf_of

P = ParamSpec("P")
R = TypeVar("R")
FAST_WAYS = 8  # kept for calls of the last kinds
WITHOUT_DICT = 64  # instances with __slots__ whose methods are kept
_LOG = logging.getLogger("tracer.retrace")


@dataclass(frozen=True, slots=True)
class Timings:
    """Seconds spent since the function was decorated, or since `clear`."""

    tracing: float
    compiling: float
    traces: int


class TracedFunction(Generic[P, R]):
    """A function under `@trace`. Call it as the function; `ir`, `kernels`, `plan`, `signatures`, `clear` look inside."""

    def __init__(
        self,
        function: Callable[P, R],
        static_argnames: Sequence[str] = (),
        name: str | None = None,
        max_traces: int = 64,
    ) -> None:
        if not callable(function):
            raise located(ArgumentError(f"trace takes a function, got {type(function).__name__}"))
        self._function = function
        self._name: str = name or str(getattr(function, "__qualname__", type(function).__name__))
        self._static = frozenset(
            (static_argnames,) if isinstance(static_argnames, str) else static_argnames
        )
        self._max_traces = max_traces
        self._lock = threading.RLock()
        self._static_leaves: set[tuple[Any, int]] = set()
        self._entries: dict[Any, list[Entry]] = {}
        self._count = 0
        self._bound: dict[
            Any, TracedFunction[Any, Any]
        ] = {}  # methods of instances that have no __dict__
        self._launches: tuple[Callable[[tuple[Any, ...]], Any], ...] = ()
        try:
            self._signature = inspect.signature(function)
            self._parameters = tuple(self._signature.parameters)
        except (TypeError, ValueError):
            self._parameters = ()
        unknown = self._static - set(self._parameters)
        if unknown and self._parameters:
            raise located(
                ArgumentError(
                    f"static_argnames names {sorted(unknown)}, but {self._name} takes {list(self._parameters)}"
                )
            )
        functools.update_wrapper(self, function)

    # ---- calling
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function's result, from a compiled program; inside another trace the function itself runs."""
        if MODES.recorder is not None or not CONFIG.jit:
            return self._function(*args, **kwargs)
        try:
            if not kwargs:
                for launch in self._launches:
                    result: R = launch(args)
                    if result is not MISS:
                        return result
            entry, leaves = self._find(args, kwargs)
            result = entry.run(leaves)
            if not kwargs and CONFIG.fast:
                self._keep(entry.launch(args))
            return result
        except TracerError as error:
            raise located(error) from None

    def _keep(self, launch: Callable[[tuple[Any, ...]], Any] | None) -> None:
        """Try this fast way first from now on."""
        if launch is not None:
            self._launches = (launch, *(known for known in self._launches if known is not launch))[
                :FAST_WAYS
            ]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        kept: dict[Any, Any] = getattr(instance, "__dict__", self._bound)
        slot = f"__traced_{self.__dict__['__name__']}" if kept is not self._bound else id(instance)
        bound = kept.get(slot)
        # one that belongs to another instance came with a copy
        if bound is None or bound._owner is not self or bound._function.__self__ is not instance:
            bound = TracedFunction(
                self._function.__get__(instance, owner),
                tuple(self._static),
                self._name,
                self._max_traces,
            )
            bound._owner = self
            kept[slot] = bound
            if kept is self._bound and len(kept) > WITHOUT_DICT:
                del kept[next(iter(kept))]
        return bound

    _owner: Any = None

    def _find(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Entry, list[Any]]:
        """The entry that fits a call, traced if there is none."""
        leaves, tree = flatten(args, kwargs)
        signature = self._classify(leaves, tree, args, kwargs)
        key = (tree, signature, MODES.grad_enabled)
        entry, reason = self._known(key, leaves)
        if entry is None:
            with self._lock:
                entry, reason = self._known(
                    key, leaves
                )  # another thread may have traced it meanwhile
                if entry is None:
                    entry = self._trace(args, kwargs, leaves, tree, signature, reason)
        return entry, leaves

    def _known(self, key: Any, leaves: list[Any]) -> tuple[Entry | None, str | None]:
        """The entry whose guard holds; else None and what changed for the first one. Lists are replaced, never changed."""
        entries = self._entries.get(key, ())
        reason = None
        for position, entry in enumerate(entries):
            changed = entry.guard(entry.fn, leaves)
            if changed is None:
                if position:
                    with self._lock:
                        self._entries[key] = [
                            entry,
                            *(e for e in self._entries.get(key, ()) if e is not entry),
                        ]
                return entry, None
            reason = reason or changed
        return None, reason

    def _classify(
        self, leaves: list[Any], tree: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Leaf, ...]:
        static = self._static_numbers(args, kwargs) if self._static else frozenset()
        signature = []
        for number, x in enumerate(leaves):
            signature.append(leaf_of(x, number in static or (tree, number) in self._static_leaves))
        return tuple(signature)

    def _static_numbers(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> frozenset[int]:
        names = leaf_names(args, kwargs, self._parameters)
        return frozenset(k for k, name in enumerate(names) if name.split(".")[0] in self._static)

    def _trace(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: list[Any],
        tree: Any,
        signature: tuple[Leaf, ...],
        reason: str | None,
    ) -> Entry:
        if self._parameters:
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise located(ArgumentError(f"{self._name}: {error}")) from None
        start = time.perf_counter()
        for _ in range(len(leaves) + 1):
            try:
                recorded = record(self._function, leaves, signature, tree, self._name)
                break
            except NeedNumber as need:
                names = leaf_names(args, kwargs, self._parameters)
                _LOG.info(
                    "%s: the float %s is used as a Python number; each value is a program of its own",
                    self._name,
                    names[need.leaf],
                )
                self._static_leaves.add((tree, need.leaf))
                signature = self._classify(leaves, tree, args, kwargs)
            except TracerError as error:
                raise located(error) from None
        entry = Entry(
            self._function, recorded, signature, leaves, leaf_names(args, kwargs, self._parameters)
        )
        entry.trace_seconds = time.perf_counter() - start
        self._report(signature, reason)
        key = (tree, signature, MODES.grad_enabled)
        self._entries[key] = [entry, *self._entries.get(key, ())]
        self._count += 1
        self._drop_oldest()
        return entry

    def _report(self, signature: tuple[Leaf, ...], reason: str | None) -> None:
        if not self._entries:
            return
        if reason is None:
            old = next(reversed(self._entries))[1]
            changes = [
                f"argument {k + 1}: {a} -> {b}"
                for k, (a, b) in enumerate(zip(old, signature, strict=False))
                if a != b
            ]
            reason = "; ".join(changes) or "the structure of the arguments changed"
        _LOG.info("%s is traced again: %s", self._name, reason)
        if self._count + 1 == self._max_traces:
            import warnings

            warnings.warn(
                f"{self._name} has been traced {self._max_traces} times, the last time because: {reason}; "
                "the least recently made programs are dropped from now on",
                RuntimeWarning,
                stacklevel=5,
            )

    def _drop_oldest(self) -> None:
        """Drop the oldest programs beyond the limit."""
        total = sum(len(e) for e in self._entries.values())
        while total > self._max_traces:
            key, kept = next(iter(self._entries.items()))
            if len(kept) > 1:
                self._entries[key] = kept[:-1]
            else:
                del self._entries[key]
            total -= 1

    # ---- looking inside
    def ir(self, *args: P.args, **kwargs: P.kwargs) -> Graph:
        """The graph of a call with these arguments; `print` shows it. Traces if need be, runs nothing."""
        return self._find(args, kwargs)[0].graph

    def kernels(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The generated kernels of a call: a sequence of texts; `print` shows them all."""
        return self._find(args, kwargs)[0].executable.kernels()

    def plan(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """The plan of a call as data: kernels, bytes moved, and why each edge between them was cut."""
        return self._find(args, kwargs)[0].executable.plan()

    def signatures(self) -> list[str]:
        """The calls that have been traced, as text."""
        return [
            f"({', '.join(map(str, signature))})"
            for (_, signature, _), entries in self._entries.items()
            for _ in entries
        ]

    def timings(self) -> Timings:
        """Seconds spent tracing and compiling, and how many traces there were."""
        entries = [e for group in self._entries.values() for e in group]
        return Timings(
            sum(e.trace_seconds for e in entries),
            sum(e._executable.compile_seconds for e in entries if e._executable is not None),
            self._count,
        )

    def clear(self) -> None:
        """Forget all programs."""
        with self._lock:
            self._entries.clear()
            self._static_leaves.clear()
            self._count = 0
            self._launches = ()

    def __repr__(self) -> str:
        return f"<traced function {self._name}: {sum(len(e) for e in self._entries.values())} programs>"

    def __reduce__(self) -> Any:
        return _restore, (self._function, tuple(self._static), self._name, self._max_traces)

    def __deepcopy__(self, memo: Any) -> TracedFunction[P, R]:
        return self


def _restore(function: Any, static: Any, name: str, limit: int) -> Any:
    if isinstance(function, TracedFunction):
        return function
    return TracedFunction(function, static, name, limit)


@overload
def trace(function: Callable[P, R]) -> TracedFunction[P, R]: ...
@overload
def trace(
    function: None = None,
    *,
    static_argnames: Sequence[str] = (),
    name: str | None = None,
    max_traces: int = 64,
) -> Callable[[Callable[P, R]], TracedFunction[P, R]]: ...
def trace(
    function: Any = None,
    *,
    static_argnames: Sequence[str] = (),
    name: str | None = None,
    max_traces: int = 64,
) -> Any:
    """Compile a function: it is recorded at the first call of each kind and runs as a compiled program from then on.

    Tensors, arrays and Python floats in its arguments (which may be nested in tuples, lists, dicts) are inputs; everything else
    is compared by value. Tensors that the function reaches through modules, cells and globals are state: what it changes
    is changed when the program has run. Use as `@trace` or `@trace(static_argnames=..., name=..., max_traces=...)`.

    Raises `TraceError` for what cannot be recorded, with the line.
    """
    if function is None:
        return lambda f: TracedFunction(f, static_argnames, name, max_traces)
    return TracedFunction(function, static_argnames, name, max_traces)
