"""`@trace`: a function that is recorded once for each kind of call and then runs as a compiled program."""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import time
import types
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, overload

import numpy as np

from ops.errors import ArgumentError, TraceError, TracerError
from tracer.core.config import CONFIG
from tracer.core.source_lines import located, name_of
from tracer.dispatch.eager import EAGER
from tracer.ir.graph import Graph
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor
from tracer.tracing.arguments.binding import Binding
from tracer.tracing.arguments.signature import Leaf, flatten, leaf_names, leaf_of
from tracer.tracing.programs.cache import Programs, Timings
from tracer.tracing.programs.compiled_trace import Entry, Turned
from tracer.tracing.programs.fast_call import MISS
from tracer.tracing.programs.paths import PathReport
from tracer.tracing.recording.trace import record
from tracer.tracing.recording.trace_records import NeedNumber
from tracer.tracing.recording.value_guards import Question

P = ParamSpec("P")
R = TypeVar("R")
FAST_WAYS = 8  # kept for calls of the last kinds
MOST_LOST = 8  # traces of one call that ask otherwise than the one before
WITHOUT_DICT = 64  # instances with __slots__ whose methods are kept
_Known = Sequence[Question]
_LOG = logging.getLogger("tracer.retrace")


class TracedFunction(Generic[P, R]):
    """A function under `@trace`. Call it as the function; `ir`, `kernels`, `plan`, `paths`, `signatures`, `clear` look inside."""

    def __init__(
        self,
        function: Callable[P, R],
        static_argnames: Sequence[str] = (),
        name: str | None = None,
        max_traces: int = 64,
        max_paths: int = 64,
    ) -> None:
        if not callable(function):
            raise located(ArgumentError(f"trace takes a function, got {type(function).__name__}"))
        self._function = function
        self._name: str = name or name_of(function)
        self._static = frozenset(
            (static_argnames,) if isinstance(static_argnames, str) else static_argnames
        )
        self._programs = Programs(self._name, max_traces, max_paths)
        self._static_leaves: set[tuple[Any, int]] = set()
        self._bound: dict[
            Any, TracedFunction[Any, Any]
        ] = {}  # methods of instances that have no __dict__
        self._fast: tuple[tuple[Entry, Callable[[tuple[Any, ...]], Any]], ...] = ()
        self._launches: tuple[Callable[[tuple[Any, ...]], Any], ...] = ()
        try:
            self._signature = inspect.signature(function)
            self._parameters = tuple(self._signature.parameters)
        except (TypeError, ValueError):
            self._parameters = ()
        self._binding = Binding(function)
        unknown = self._static - set(self._parameters)
        if unknown and self._parameters:
            raise located(
                ArgumentError(
                    f"static_argnames names {sorted(unknown)}, but {self._name} takes {list(self._parameters)}"
                )
            )
        functools.update_wrapper(self, function, updated=())
        if isinstance(
            function, types.FunctionType
        ):  # not a module: its attributes are no names of ours
            self.__dict__.update(function.__dict__ | self.__dict__)

    # ---- calling
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function's result, from a compiled program; inside another trace the function itself runs."""
        if MODES.interpreter is not EAGER or not CONFIG.jit:
            return self._function(*args, **kwargs)
        try:
            if not kwargs:
                for launch in self._launches:
                    result: R = launch(args)
                    if result is not MISS:
                        return result
            if kwargs or len(args) > self._binding.least:
                form, named = self._binding.canonical(args, kwargs)
                if not named and (kwargs or len(form) < len(args)):
                    return self(*form)  # type: ignore[call-arg]
            found: R = self._run(args, kwargs)
            return found
        except TracerError as error:
            raise located(error) from None

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any], known: _Known = ()) -> Any:
        """The general way: find the path, run it to its end."""
        entry, leaves, early = self._find(args, kwargs, known)
        result = entry.run(leaves, early)
        self._programs.put_first(entry)
        if not kwargs and CONFIG.fast:
            self._keep(entry)
        return result

    def _go_on(self, args: tuple[Any, ...], turned: Turned) -> Any:
        """Go on where the fast way has left its path: by the fast ways of other paths as far as these are known."""
        leaves, _ = flatten(args, {})
        while True:
            known = turned.known
            entry, _ = self._programs.find(turned.entry.key, leaves, known)
            launch = None if entry is None else entry.launch(self._go_on)
            result = MISS if launch is None else launch(args, len(known))
            if entry is None or result is MISS:
                return self._run(args, {}, known)
            self._programs.count_rerun(entry)
            if result.__class__ is not Turned:
                self._programs.put_first(entry)
                self._keep(entry)
                return result
            turned = result

    def _keep(self, entry: Entry) -> None:
        """Try this entry's fast way first from now on; of the paths of a signature the last one only."""
        launch = entry.launch(self._go_on)
        if launch is None or (self._fast and self._fast[0][0] is entry):
            return
        others = [
            (e, known)
            for e, known in self._fast
            if e is not entry and not (e.questions and e.key == entry.key)
        ]
        self._fast = ((entry, launch), *others)[:FAST_WAYS]
        self._launches = tuple(known for _, known in self._fast)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        kept: dict[Any, Any] = getattr(instance, "__dict__", self._bound)
        if isinstance(instance, type):  # a class method
            kept = self._bound
        slot = f"__traced_{self.__dict__['__name__']}" if kept is not self._bound else id(instance)
        bound = kept.get(slot)
        # one that belongs to another instance came with a copy
        if bound is None or bound._owner is not self or bound._function.__self__ is not instance:
            bound = TracedFunction(
                self._function.__get__(instance, owner),
                tuple(self._static),
                self._name,
                self._programs.max_traces,
                self._programs.max_paths,
            )
            bound._owner = self
            kept[slot] = bound
            if kept is self._bound and len(kept) > WITHOUT_DICT:
                del kept[next(iter(kept))]
        return bound

    _owner: Any = None

    def _find(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        known: _Known = (),
        counted: bool = True,
    ) -> tuple[Entry, list[Any], list[list[Tensor]] | None]:
        """The entry whose path a call takes, the leaves, and what was computed to know it. Changes nothing.

        `known`: the questions whose outcomes a program has seen. They are imposed on the paths that are tried next, so each
        try knows more, and a program that computes a borderline value otherwise changes nothing about them.
        """
        args, kwargs = self._binding.canonical(args, kwargs)
        leaves, tree = flatten(args, kwargs)
        lost = 0
        while True:
            entry = self._fitting(args, kwargs, leaves, tree, known, counted)
            if not entry.questions:
                return entry, leaves, None
            agreed = entry.agreement(known)
            if agreed < len(known):  # asked otherwise although nothing has changed
                lost += 1
                if lost > MOST_LOST:
                    raise TraceError(
                        f"{self._name} asks other questions each time it is traced with the same arguments and state, the last "
                        f"time {known[agreed]}: what decides them is neither. Make it an argument"
                    )
            found = entry.begin(leaves, agreed)
            if not isinstance(found, Turned):
                return entry, leaves, found
            known = found.known

    def _fitting(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        leaves: list[Any],
        tree: Any,
        known: _Known,
        counted: bool,
    ) -> Entry:
        """The last used entry that fits a call as far as its outcomes are known, traced if there is none.

        `counted`: that another path is run counts in the report.
        """
        signature = self._classify(leaves, tree, args, kwargs)
        key = (tree, signature, MODES.grad_enabled)
        entry, reason = self._programs.find(key, leaves, known)
        if entry is None:
            with self._programs.lock:
                # another thread may have traced it meanwhile
                entry, reason = self._programs.find(key, leaves, known)
                if entry is None:
                    return self._trace(args, kwargs, leaves, tree, signature, reason, known)
        if known and counted:
            self._programs.count_rerun(entry)
        return entry

    def _classify(
        self, leaves: list[Any], tree: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Leaf, ...]:
        static = self._static_numbers(args, kwargs) if self._static else frozenset()
        signature: list[Leaf] = []
        first: dict[
            int, int
        ] = {}  # by identity: what is changed in place changes under each of its names
        for number, x in enumerate(leaves):
            if isinstance(x, Tensor | np.ndarray) and first.setdefault(id(x), number) != number:
                signature.append(Leaf("alias", value=first[id(x)]))
                continue
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
        known: _Known,
    ) -> Entry:
        if self._parameters:
            try:
                self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise located(ArgumentError(f"{self._name}: {error}")) from None
        start = time.perf_counter()
        for _ in range(len(leaves) + 1):
            try:
                recorded = record(
                    self._function,
                    leaves,
                    signature,
                    tree,
                    self._name,
                    known,
                    leaf_names(args, kwargs, self._parameters),
                )
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
            self._function,
            recorded,
            signature,
            leaves,
            leaf_names(args, kwargs, self._parameters),
            tree,
        )
        entry.trace_seconds = time.perf_counter() - start
        self._programs.add(entry, reason, known)
        return entry

    # ---- looking inside
    @overload
    def ir(self) -> Graph: ...
    @overload
    def ir(self, *args: P.args, **kwargs: P.kwargs) -> Graph: ...
    def ir(self, *args: Any, **kwargs: Any) -> Graph:
        """The graph of a call with these arguments; `print` shows it. Traces if need be, and runs what decides the path only.

        What Python asked for comes last among its outputs. Without arguments: of the one signature that has been called. If
        there is none or more than one, of a call without arguments; `ArgumentError` if the function needs some.
        """
        return self._shown("ir", args, kwargs).graph

    @overload
    def kernels(self) -> Any: ...
    @overload
    def kernels(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...
    def kernels(self, *args: Any, **kwargs: Any) -> Any:
        """The generated kernels of a call: a sequence of texts; `print` shows them all. Without arguments as in `ir`."""
        return self._shown("kernels", args, kwargs).executable.kernels()

    @overload
    def plan(self) -> Any: ...
    @overload
    def plan(self, *args: P.args, **kwargs: P.kwargs) -> Any: ...
    def plan(self, *args: Any, **kwargs: Any) -> Any:
        """The plan of a call as data: kernels, bytes moved, and why each edge between them was cut. Without arguments as in
        `ir`."""
        return self._shown("plan", args, kwargs).executable.plan()

    def _shown(self, asked: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Entry:
        """The program of a call; of the only signature if nothing is given."""
        known = [] if args or kwargs else list(self._programs)
        if len(known) == 1:
            last: Entry = known[0][0]
            return last
        if args or kwargs or not self._needs_arguments():
            return self._find(args, kwargs, counted=False)[0]
        example = ", ".join(self._parameters)
        which = f"say which call, as in {asked}({example})"
        if not known:
            problem = f"it has not been called yet. Call it, or {which}"
        else:
            signatures = "".join(f"\n  {paths.signature}" for paths in known)
            problem = f"it has {len(known)} signatures; {which}. They are{signatures}"
        raise located(ArgumentError(f"{self._name}.{asked}(): {problem}"))

    def _needs_arguments(self) -> bool:
        try:
            self._signature.bind()
        except TypeError:
            return True
        except AttributeError:  # no Python function
            pass
        return False

    def signatures(self) -> list[str]:
        """The calls that have been traced, as text."""
        return [paths.signature for paths in self._programs for _ in range(paths.weight)]

    def paths(self) -> PathReport:
        """The paths that calls took where Python asked values of the trace: questions, lines, answers, runs; `print` shows it."""
        return PathReport(self._name, tuple(paths.report() for paths in self._programs))

    def timings(self) -> Timings:
        """Seconds spent tracing and compiling, and how many traces there were."""
        return self._programs.timings()

    def clear(self) -> None:
        """Forget all programs."""
        self._programs.clear()
        self._static_leaves.clear()
        self._fast = self._launches = ()

    def __repr__(self) -> str:
        return f"<traced function {self._name}: {self._programs.count} programs>"

    def __reduce__(self) -> Any:
        if (
            _named(self) is self
        ):  # decorated where it is defined: found by its name, as functions are
            return self.__dict__["__qualname__"]
        return _restore, (
            self._function,
            tuple(self._static),
            self._name,
            self._programs.max_traces,
            self._programs.max_paths,
        )

    def __deepcopy__(self, memo: Any) -> TracedFunction[P, R]:
        return self


def _named(traced: TracedFunction[Any, Any]) -> Any:
    """What there is under the name of a traced function."""
    names = traced.__dict__
    found: Any = sys.modules.get(names.get("__module__", ""))
    for name in names.get("__qualname__", "").split("."):
        found = getattr(found, name, None)
    return found


def _restore(function: Any, static: Any, name: str, traces: int, paths: int) -> Any:
    if isinstance(function, TracedFunction):
        return function
    return TracedFunction(function, static, name, traces, paths)


@overload
def trace(function: Callable[P, R]) -> TracedFunction[P, R]: ...
@overload
def trace(
    function: None = None,
    *,
    static_argnames: Sequence[str] = (),
    name: str | None = None,
    max_traces: int = 64,
    max_paths: int = 64,
) -> Callable[[Callable[P, R]], TracedFunction[P, R]]: ...
def trace(
    function: Any = None,
    *,
    static_argnames: Sequence[str] = (),
    name: str | None = None,
    max_traces: int = 64,
    max_paths: int = 64,
) -> Any:
    """Compile a function: it is recorded at the first call of each kind and runs as a compiled program from then on.

    Tensors, arrays and Python floats in its arguments (which may be nested in tuples, lists, dicts) are inputs; everything else
    is compared by value. Tensors that the function reaches through modules, cells and globals are state: what it changes
    is changed when the program has run. Use as `@trace` or with arguments: `@trace(static_argnames=..., name=...)`.

    Where Python asks a value (`if t`, `int(t)`, `t.item()`), each answer leads to a path of its own: `max_paths` for one
    signature are kept, the last used ones. See `paths`.

    Raises `TraceError` for what cannot be recorded, with the line.
    """
    if function is None:
        return lambda f: TracedFunction(f, static_argnames, name, max_traces, max_paths)
    return TracedFunction(function, static_argnames, name, max_traces, max_paths)
