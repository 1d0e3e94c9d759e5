"""The check that a compiled program still fits the state that its trace saw, as one generated function.

It runs at every call, so it is straight-line Python: follow each way to an object, compare by identity, compare scalars by value.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from codegen.text.source import FunctionSource
from ops.python_values import PLAIN_CLASSES
from tracer.autograd.hooks import REGISTRATIONS, HookWatch
from tracer.core.source_lines import name_of
from tracer.random import default_generator
from tracer.tensors.modes import Untracked
from tracer.tensors.tensor import Tensor, intern
from tracer.tracing.recording.trace_records import Capture, Holder
from tracer.tracing.recording.trace_result import TraceResult
from tracer.tracing.state.code_reads import Known, Use, uses
from tracer.tracing.state.container_contents import contents_of
from tracer.tracing.state.named_arrays import is_small, lenders
from tracer.tracing.state.object_paths import code_names, find_paths
from tracer.tracing.state.sources import Source, named_globals_of, references_of
from tracer.tracing.state.value_kinds import Watch, watch_of

Guard = Callable[[Any, Sequence[Any]], str | None]


def build_guard(
    fn: Any, recorded: TraceResult, objects: Mapping[str, Any], hooks: Sequence[Any] = ()
) -> tuple[Guard, dict[int, str]]:
    """(guard, names of captured objects by id). `guard(fn, leaves)` is None when all holds, else what changed.

    `objects`: arguments that the signature compares by identity, such as modules, under their names; what was read through them
    has a name too. `hooks`: those of arguments.
    """
    builder = _GuardBuilder(fn, recorded, objects, hooks)
    out = builder.out
    out.open("try:")
    builder.hooks()
    builder.state_in_code()
    builder.modules()
    builder.options()
    builder.captures()
    builder.gradients()
    builder.numbers()
    out.close()
    out.open("except (KeyError, AttributeError, IndexError, TypeError, ValueError):")
    out.line("return 'an object that the trace used is gone'")
    out.close()
    out.line("return None")
    return out.function("tracer guard"), builder.names


class _GuardBuilder:
    """Writes the guard of a trace, part by part."""

    def __init__(
        self, fn: Any, recorded: TraceResult, objects: Mapping[str, Any], hooks: Sequence[Any]
    ) -> None:
        self.fn, self.recorded = fn, recorded
        captured = [c.object for c in recorded.captures if isinstance(c.object, Tensor)]
        self.watch = HookWatch([*captured, *recorded.modules])
        known = {"Tensor": Tensor, "watch": self.watch, "registrations": REGISTRATIONS}
        self.out = FunctionSource("guard", "fn, leaves", known)
        self._told: set[str] = set()
        self._objects = {name: Source(x, name) for name, x in objects.items()}
        self._hooks = [Source(h, name_of(h)) for h in (*hooks, *self.watch.functions())]
        self._paths = self._found()
        self.names = {key: path.dotted_name for key, path in self._paths.items()}

    def _found(self) -> dict[int, Source]:
        """The ways to what the trace has captured, by id."""
        recorded = self.recorded
        roots, names = _references(self.fn)
        targets: dict[int, Any] = {id(c.object): c.object for c in recorded.captures}
        targets |= {id(s.container): s.container for s in recorded.scalars}
        targets |= {id(m): m for m in recorded.modules}
        starts = [*roots, *self._objects.values(), Source(default_generator, "generator")]
        return find_paths([*starts, *self._hooks], targets, names)

    # ---- pieces of text
    def constant(self, value: Any) -> str:
        """An expression for an object."""
        return "fn" if value is self.fn else self.out.constant(value)

    def holder(self, whose: Holder) -> str:
        """An expression for the Tensor whose gradient is meant."""
        return f"leaves[{whose}]" if isinstance(whose, int) else self.constant(whose)

    def fails(self, condition: str, what: str) -> None:
        """The guard fails if a condition holds."""
        self.out.return_if(condition, repr(what))

    def same(self, expression: str, value: Any, what: str) -> None:
        """The expression must give this object."""
        if expression not in self._told:
            self._told.add(expression)
            self.fails(f"{expression} is not {self.constant(value)}", what)

    def equal(self, expression: str, value: Any, name: str) -> None:
        """The expression must give this plain value."""
        self.fails(self.out.differs(expression, value), f"{name} was {value!r}")

    def reached(self, value: Any, kind: str, otherwise: str = "") -> None:
        """A captured object must be what lies at the end of its way."""
        path = self._paths.get(id(value))
        if path is not None:
            name = self.names[id(value)] or otherwise
            self.same(path.text(self.constant), value, f"{name} was another {kind}")

    def typed(self, expression: str, value: Tensor, name: str) -> None:
        """The expression must give a Tensor of the same type."""
        known, flag = self.constant(value.type), self.constant(value._requires_grad)
        self.out.line(f"v = {expression}")
        self.fails(
            f"not isinstance(v, Tensor) or v._value is not None or v.type != {known} or v._flag_now() is not {flag}",
            f"the type of {name} changed",
        )

    # ---- the parts of a guard
    def hooks(self) -> None:
        """No hooks were registered or removed."""
        self.fails(
            "watch.seen != registrations.count and watch.changed()",
            "hooks were registered or removed",
        )

    def state_in_code(self) -> None:
        """What the code of the function, of modules and of hooks reads is what it was."""
        recorded = self.recorded
        starts: list[tuple[Source, Known]] = [(Source(self.fn), self._objects)]
        starts += [(Source(m, type(m).__name__), {}) for m in recorded.modules]
        starts += [(hook, {}) for hook in self._hooks]
        followed = frozenset(map(id, recorded.followed))  # checked with the captures
        captures = {id(c.object) for c in recorded.captures}
        # Arrays that tracer's functions read are inputs; what NumPy computes with others is part of the trace.
        inputs = {id(x) for c in recorded.captures for x in lenders(c.object)}
        for use in uses(starts):
            if id(use.source.value) in followed:
                continue
            if use.kind == "elements":
                self._elements(use.source, followed)
            elif use.kind == "read":
                self._read(use, captures, inputs)

    def _read(self, use: Use, captures: set[int], inputs: set[int]) -> None:
        source, value = use.source, use.source.value
        expression, name, watch = source.text(self.constant), source.name, watch_of(value)
        if watch is Watch.TENSOR:
            if id(value) in captures or value._view is not None:
                self.same(expression, value, f"{name} was another object")
            else:  # only what everybody sees of it can have been used
                self.typed(expression, value, name)
        elif watch is Watch.VALUE:
            self.equal(expression, value, name)
        elif watch is Watch.ARRAY:
            if id(value) not in inputs and is_small(value):
                self._array(expression, value, name)
        elif watch is Watch.CLASS:
            kind = self.constant(type(value))
            self.fails(f"{expression}.__class__ is not {kind}", f"{name} was of another class")
        elif watch is Watch.IDENTITY:
            self.same(expression, value, f"{name} was another function")

    def _array(self, expression: str, array: np.ndarray[Any, Any], name: str) -> None:
        kind, dtype = self.constant(type(array)), self.constant(array.dtype)
        self.out.line(f"v = {expression}")
        self.fails(
            f"v.__class__ is not {kind} or v.dtype != {dtype} or v.shape != {array.shape} "
            f"or v.tobytes() != {self.constant(array.tobytes())}",
            f"the array {name} had other elements",
        )

    def _elements(self, source: Source, followed: frozenset[int]) -> None:
        contents = contents_of(source.value, followed)
        if contents is not None:
            self.fails(
                f"not {self.constant(contents)}.are_in({source.text(self.constant)})",
                f"{source.name} had other elements",
            )

    def modules(self) -> None:
        """The modules that ran are the same ones, with the same plain attributes and members."""
        for module in self.recorded.modules:
            self.reached(module, "module", "the module")
            members = module.__dict__
            table, name = self.constant(members), self.names.get(id(module), "")
            forward = members.get("forward")
            self.same(f"{table}.get('forward')", forward, "forward was another function")
            for key, value in members.items():
                if isinstance(value, PLAIN_CLASSES):
                    self.equal(f"{table}[{key!r}]", value, f"{name or type(module).__name__}.{key}")
            for group in ("_parameters", "_buffers", "_modules"):
                if isinstance(members.get(group), dict):
                    self._members(f"{table}[{group!r}]", members[group], f"{name}." if name else "")

    def _members(self, expression: str, members: dict[str, Any], prefix: str) -> None:
        self.fails(f"len({expression}) != {len(members)}", "the members of a module changed")
        table = self.constant(members)
        for key, value in members.items():
            self.same(f"{table}.get({key!r})", value, f"{prefix}{key} was another object")

    def options(self) -> None:
        """Options of optimisers that were 0 are 0, and the others are not."""
        for container, key, flag in self.recorded.flags:
            now = f"({self.constant(container)}[{key!r}] != 0)"
            self.fails(f"{now} is not {flag}", f"{key} became {0 if flag else 1}")

    def captures(self) -> None:
        """What the trace has captured is in its place, of the same type."""
        for capture in self.recorded.captures:
            if capture.is_grad:
                known, name = intern(capture.value.type), self.holder(capture.object)
                self.fails(
                    f"{name}._grad is None or {name}._grad.type != {self.constant(known)}",
                    "a gradient changed",
                )
            elif capture.place is not None:
                place, name = (
                    self.constant(capture.place),
                    self.names.get(id(capture.object)) or "state",
                )
                self.typed(f"{place}()", capture.object, name)
            else:
                self.reached(capture.object, "object")
                self._captured(capture)

    def _captured(self, capture: Capture) -> None:
        value, name = capture.object, self.constant(capture.object)
        if not isinstance(value, Tensor):
            shape, dtype = self.constant(value.shape), self.constant(value.dtype)
            self.fails(
                f"{name}.shape != {shape} or {name}.dtype != {dtype}",
                "a captured array changed its type",
            )
            return
        known = self.constant(intern(value.type))
        # a view's flag follows the base
        now = name if value._view is None else f"{name}._current()"
        mark = value._requires_grad
        expected = self.constant(mark) if isinstance(mark, Untracked) else repr(mark)
        self.fails(
            f"{name}.type is not {known} and {name}.type != {known} or {now}._requires_grad is not {expected}",
            f"the type of {self.names.get(id(value)) or 'a captured Tensor'} changed",
        )

    def gradients(self) -> None:
        """Gradients are there, or not, as they were."""
        for whose, present in self.recorded.read_grads:
            self.fails(
                f"{self.holder(whose)}._grad {'is None' if present else 'is not None'}",
                "a gradient that was there is gone, or the other way round",
            )

    def numbers(self) -> None:
        """The numbers that the program reads are in their containers, and floats."""
        for scalar in self.recorded.scalars:
            self.reached(scalar.container, "object")
            self.out.line(f"v = {self.constant(scalar.container)}[{scalar.key!r}]")
            self.fails(
                "v.__class__ is not float and not isinstance(v, float)", f"{scalar.key} is no float"
            )


def _references(fn: Any) -> tuple[list[Source], frozenset[str]]:
    """What a traced function refers to, and the names that its code uses."""
    source, bound = Source(fn), []
    plain = fn
    while not isinstance(plain, types.FunctionType) and hasattr(plain, "__func__"):
        plain = plain.__func__
    if not isinstance(plain, types.FunctionType):
        return [source], frozenset()
    if plain is not fn:
        bound = [source.attribute("__self__", fn.__self__, "self")]
        source = source.attribute("__func__", plain)
    return [*bound, *references_of(source), *named_globals_of(source)], code_names(plain.__code__)
