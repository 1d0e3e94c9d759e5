"""`@trace`: a function that is recorded once for each kind of call and then runs as a compiled program."""

from __future__ import annotations

import functools
import logging
import sys
import time
import types
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from ops.errors import ArgumentError, TraceError, TracerError
from tracer.core.config import CONFIG
from tracer.core.source_lines import located, name_of
from tracer.ir.graph import Graph
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor
from tracer.tracing.arguments.binding import Binding
from tracer.tracing.arguments.signature import Call, Leaf
from tracer.tracing.programs.cache import Programs, Timings
from tracer.tracing.programs.compiled_trace import CompiledTrace, SideExit
from tracer.tracing.programs.fast_call import MISS, fast_call_of
from tracer.tracing.programs.paths import PathReport
from tracer.tracing.recording.trace import record
from tracer.tracing.recording.trace_records import NeedNumber
from tracer.tracing.recording.value_guards import ValueGuard
from tracer.tracing.state.value_kinds import RunsPrograms

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
FAST_CALLS = 8  # kept for calls of the last kinds
MOST_LOST = 8  # traces of one call that ask otherwise than the one before
WITHOUT_DICT = 64  # instances with __slots__ whose methods are kept
_Known = Sequence[ValueGuard]
_LOG = logging.getLogger("tracer.retrace")


class TracedFunction(RunsPrograms, Generic[P, R]):
    """A function under `@trace`. Call it as the function; `ir`, `kernels`, `plan`, `paths`, `signatures`, `clear` look inside."""

    _function: Callable[P, R]

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
        # by tree, floats that Python needs as numbers
        self._static_leaves: dict[Any, set[int]] = {}
        # methods of instances that have no __dict__
        self._bound: dict[Any, TracedFunction[Any, Any]] = {}
        self._fast: tuple[CompiledTrace, ...] = ()  # whose fast calls are tried
        self._fast_calls: tuple[Callable[[tuple[Any, ...]], Any], ...] = ()
        self._binding = Binding(function)
        parameters = self._binding.parameters
        unknown = self._static.difference(parameters)
        if unknown and parameters:
            raise located(
                ArgumentError(
                    f"static_argnames names {sorted(unknown)}, but {self._name} takes {list(parameters)}"
                )
            )
        functools.update_wrapper(self, function, updated=())
        # not a module: its attributes are no names of ours
        if isinstance(function, types.FunctionType):
            self.__dict__.update(function.__dict__ | self.__dict__)

    # ---- calling
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function's result, from a compiled program; inside another trace the function itself runs."""
        if not (CONFIG.jit and MODES.interpreter.runs_programs()):
            return self._function(*args, **kwargs)
        try:
            if not kwargs:
                for fast_call in self._fast_calls:
                    result: R = fast_call(args)
                    if result is not MISS:
                        return result
            if kwargs or len(args) > self._binding.least:
                form, named = self._binding.canonical(args, kwargs)
                if not named and (kwargs or len(form) < len(args)):
                    for fast_call in self._fast_calls:
                        result = fast_call(form)
                        if result is not MISS:
                            return result
            else:
                form, named = args, kwargs
            found: R = self._run(Call(form, named, self._binding.parameters))
            return found
        except TracerError as error:
            raise located(error) from None

    def _run(self, call: Call, known: _Known = ()) -> Any:
        """The general way: find the path, run it to its end."""
        compiled, early = self._find(call, known)
        result = compiled.run(call.leaves, early)
        self._programs.put_first(compiled)
        if not call.kwargs and CONFIG.fast:
            self._keep(compiled)
        return result

    def _resume(self, args: tuple[Any, ...], side_exit: SideExit) -> Any:
        """Go on where a fast call has left its path: by the fast calls of other paths as far as these are known."""
        call = Call(args, {}, self._binding.parameters)
        while True:
            known = side_exit.known
            compiled, _ = self._programs.find(side_exit.path.key, call.leaves, known)
            fast_call = None if compiled is None else fast_call_of(compiled, self._resume)
            result = MISS if fast_call is None else fast_call(args, len(known))
            if compiled is None or result is MISS:
                return self._run(call, known)
            self._programs.count_rerun(compiled)
            if result.__class__ is not SideExit:
                self._programs.put_first(compiled)
                self._keep(compiled)
                return result
            side_exit = result

    def _keep(self, compiled: CompiledTrace) -> None:
        """Try the fast call of this trace first from now on; of the paths of a signature the last one only."""
        fast_call = fast_call_of(compiled, self._resume)
        if fast_call is None or (self._fast and self._fast[0] is compiled):
            return
        others = [
            other
            for other in self._fast
            if other is not compiled and not (other.value_guards and other.key == compiled.key)
        ]
        self._fast = (compiled, *others)[:FAST_CALLS]
        self._fast_calls = tuple(c.fast_call for c in self._fast)

    @overload
    def __get__(self, instance: None, owner: Any = None) -> TracedFunction[P, R]: ...
    @overload
    def __get__(
        self: TracedFunction[Concatenate[Any, Q], R], instance: Any, owner: Any = None
    ) -> TracedFunction[Q, R]: ...
    def __get__(self: Any, instance: Any, owner: Any = None) -> Any:
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
        self, call: Call, known: _Known = (), counted: bool = True
    ) -> tuple[CompiledTrace, list[list[Tensor]] | None]:
        """The trace whose path a call takes, and what was computed to know it. Changes nothing.

        `known`: the value guards whose elements a program has observed. These are imposed on the paths that are tried next, so
        each try knows more, and a program that computes a borderline value otherwise changes nothing about them.
        """
        lost = 0
        while True:
            compiled = self._fitting(call, known, counted)
            if not compiled.value_guards:
                return compiled, None
            agreed = compiled.agreement(known)
            if agreed < len(known):  # asked otherwise although nothing has changed
                lost += 1
                if lost > MOST_LOST:
                    raise TraceError(
                        f"{self._name} asks other questions each time it is traced with the same arguments and state, the last "
                        f"time {known[agreed]}: what decides them is neither. Make it an argument"
                    )
            found = compiled.begin(call.leaves, agreed)
            if not isinstance(found, SideExit):
                return compiled, found
            known = found.known

    def _fitting(self, call: Call, known: _Known, counted: bool) -> CompiledTrace:
        """The last used trace that fits a call as far as its path is known; a new one if there is none.

        `counted`: that another path is run counts in the report.
        """
        signature = self._classify(call)
        key = (call.tree, signature, MODES.grad_enabled)
        compiled, reason = self._programs.find(key, call.leaves, known)
        if compiled is None:
            with self._programs.lock:
                # another thread may have traced it meanwhile
                compiled, reason = self._programs.find(key, call.leaves, known)
                if compiled is None:
                    return self._trace(call, signature, reason, known)
        if known and counted:
            self._programs.count_rerun(compiled)
        return compiled

    def _classify(self, call: Call) -> tuple[Leaf, ...]:
        static = self._static_leaves.get(call.tree, set())
        if self._static:
            static = static.union(call.numbers_of(self._static))
        return call.classify(static)

    def _trace(
        self, call: Call, signature: tuple[Leaf, ...], reason: str | None, known: _Known
    ) -> CompiledTrace:
        try:
            self._binding.check(call.args, call.kwargs)
        except TypeError as error:
            raise located(ArgumentError(f"{self._name}: {error}")) from None
        start = time.perf_counter()
        for _ in range(len(call.leaves) + 1):
            try:
                objects = call.objects(signature)
                recorded = record(self._function, call, signature, self._name, known, objects)
                break
            except NeedNumber as need:
                _LOG.info(
                    "%s: the float %s is used as a Python number; each value is a program of its own",
                    self._name,
                    call.names[need.leaf],
                )
                self._static_leaves.setdefault(call.tree, set()).add(need.leaf)
                signature = self._classify(call)
            except TracerError as error:
                raise located(error) from None
        compiled = CompiledTrace(self._function, recorded, call, signature)
        compiled.trace_seconds = time.perf_counter() - start
        self._programs.add(compiled, reason, known)
        return compiled

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

    def _shown(self, asked: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CompiledTrace:
        """The program of a call; of the only signature if nothing is given."""
        known = [] if args or kwargs else list(self._programs)
        if len(known) == 1:
            last: CompiledTrace = known[0][0]
            return last
        if args or kwargs or not self._binding.needs_arguments:
            form, named = self._binding.canonical(args, kwargs)
            return self._find(Call(form, named, self._binding.parameters), counted=False)[0]
        example = ", ".join(self._binding.parameters)
        which = f"say which call, as in {asked}({example})"
        if not known:
            problem = f"it has not been called yet. Call it, or {which}"
        else:
            signatures = "".join(f"\n  {paths.signature}" for paths in known)
            problem = f"it has {len(known)} signatures; {which}. They are{signatures}"
        raise located(ArgumentError(f"{self._name}.{asked}(): {problem}"))

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
        self._fast = self._fast_calls = ()

    def __repr__(self) -> str:
        return f"<traced function {self._name}: {self._programs.count} programs>"

    def __reduce__(self) -> Any:
        # decorated where it is defined: found by its name, as functions are
        if _named(self) is self:
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
def trace(
    function: Callable[P, R],
    *,
    static_argnames: Sequence[str] = (),
    name: str | None = None,
    max_traces: int = 64,
    max_paths: int = 64,
) -> TracedFunction[P, R]: ...
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

    >>> @tracer.trace
    ... def scaled(x, factor=2.0):
    ...     return tracer.exp(x) * factor
    >>> scaled(np.zeros(2))
    tensor([2., 2.], dtype=float64)
    """
    if function is None:
        return lambda f: TracedFunction(f, static_argnames, name, max_traces, max_paths)
    return TracedFunction(function, static_argnames, name, max_traces, max_paths)
