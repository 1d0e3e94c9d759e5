"""Running a function once with symbolic Tensors: from a call to a graph and what must happen around it.

Knows what a trace leaves behind, and in which order that is looked at, put back and made outputs of the graph. Must not know
programs and how they are run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import optree

from ops.errors import TraceError
from tracer.autograd.compiled_backward import Outside as IncomingHistory
from tracer.ir.graph import Value
from tracer.tensors.modes import MODES, Flag, Untracked
from tracer.tensors.tensor import Tensor
from tracer.tracing.arguments.signature import NAMESPACE, Call, Leaf, has_history
from tracer.tracing.recording.concrete_values import Evaluation
from tracer.tracing.recording.functionalization import Flags
from tracer.tracing.recording.output_gradients import as_outside
from tracer.tracing.recording.recorder import Change, Holder, Recorder, recording
from tracer.tracing.recording.trace_outputs import Argument, collect_outputs
from tracer.tracing.recording.trace_result import TraceResult
from tracer.tracing.recording.value_guards import ValueGuard, ValueGuards
from tracer.tracing.state.assigned_places import GlobalGenerators, Named, NamedGenerators, Places
from tracer.tracing.state.container_contents import NamedLists
from tracer.tracing.state.named_arrays import NamedArrays
from tracer.tracing.state.side_effects import (
    At,
    OneAt,
    SetAnew,
    leaves_with_accessors,
    refuse_grown,
    refuse_objects,
)


class NeedNumber(BaseException):
    """A float argument was used where Python needs a number; it must be static. Not an Exception: users' handlers are passed."""

    def __init__(self, leaf: int) -> None:
        self.leaf = leaf


def record(
    function: Callable[..., Any],
    call: Call,
    signature: Sequence[Leaf],
    name: str,
    known: Sequence[ValueGuard] | None = None,
    objects: Mapping[str, Any] | None = None,
) -> TraceResult:
    """Trace `function` on arguments of the given signature. Raises what the function raises; nothing outside has changed then.

    `known`: the guards of what Python asks first, with what they must observe; later queries are answered by the leaves' and the
    state's elements. None: nothing can be asked but what never changes. `objects`: by name, arguments whose state is watched.
    """
    return _Trace(function, call, signature, name, known, objects or {}).run()


class _Trace:
    """One trace of a function: the Tensors that it is given, what it names, and what has become of that when it returns."""

    def __init__(
        self,
        function: Callable[..., Any],
        call: Call,
        signature: Sequence[Leaf],
        name: str,
        known: Sequence[ValueGuard] | None,
        objects: Mapping[str, Any],
    ) -> None:
        self.function, self.name, self.tree = function, name, call.tree
        self.recorder = Recorder(name)
        self.arguments: list[Argument] = []  # what is no input of the program is none
        self.placeholders: list[Any] = []
        for number, (leaf, x) in enumerate(zip(signature, call.leaves, strict=True)):
            self.placeholders.append(self._placeholder(number, leaf, x))
        self.args, self.kwargs = optree.tree_unflatten(call.tree, self.placeholders)
        known_values = {a.value: _elements(a.passed) for a in self.arguments}
        self.recorder.questions = ValueGuards(
            self.recorder, evaluation(self.recorder, known_values, call.leaves), known
        )
        self.named = Named(function, objects)
        self.arrays, self.places = NamedArrays(self.named), Places(self.named)
        self.generators = GlobalGenerators(), NamedGenerators(self.named)
        self.lists = NamedLists(self.named.found)
        self.result: Any = None
        self.changes: list[Change] = []  # what was put into attributes and places
        self.recorded: TraceResult

    def _placeholder(self, number: int, leaf: Leaf, x: Any) -> Any:
        """What the function is given for an argument leaf."""
        if leaf.type is None:
            return self.placeholders[leaf.value] if leaf.kind == "alias" else x
        recorder, value = self.recorder, Value(leaf.type)
        placeholder = source = Tensor.of_value(value, recorder)
        placeholder._requires_grad = leaf.requires_grad
        if has_history(leaf):  # as it comes in: the placeholder may be changed in place
            placeholder._grad_fn = IncomingHistory(x, number)
            source = as_outside(placeholder, recorder)
        if leaf.kind == "float":
            recorder.numbers[value] = number
        elif leaf.kind == "tensor":
            recorder.arguments[id(source)] = recorder.arguments[id(placeholder)] = number, x
            source._accumulator = placeholder._accumulator = x._accumulator
        self.arguments.append(
            Argument(number, x, leaf.requires_grad, value, placeholder, source, Flags(source))
        )
        return placeholder

    def run(self) -> TraceResult:
        """Call the function and take the steps that follow. Where anything raises, what lies outside is as it was."""
        try:
            with recording(self.recorder):
                self.grad_mode = MODES.grad_enabled
                self.result = self.function(*self.args, **self.kwargs)
                for step in self.AFTER_THE_FUNCTION:
                    step(self)
                return self.recorded
        except BaseException:
            self._put_back()
            raise
        finally:
            self.lists.restore()
            # and with these all elements and what lies outside, whoever keeps a Tensor of the trace
            self.recorder.questions = None
            del self.recorder.standings

    def _put_back(self) -> None:
        """Leave places and containers as they were: nobody will run a program that sets them again."""
        self.places.restore(self.recorder.is_computed)
        for place in (*self.recorder.unmoved, *self.places.unmoved):
            place.put_elements_back()

    # ---- what only looks at what the function has left
    def _refuse_changed_arrays(self) -> None:
        self.arrays.check()

    def _refuse_drawn_numbers(self) -> None:
        for generators in self.generators:
            generators.check()

    def _refuse_changed_parts(self) -> None:
        self.recorder.parts.check()

    def _refuse_changed_arguments(self) -> None:
        """Raise `TraceError` for a list or dict of the caller's that the function changed: it was given copies."""
        whole: Any = optree.tree_unflatten(self.tree, self.placeholders)
        args, kwargs = whole
        for before, given in zip(
            (*args, *kwargs.values()), (*self.args, *self.kwargs.values()), strict=True
        ):
            old, shape = optree.tree_flatten(before, none_is_leaf=True, namespace=NAMESPACE)
            new, other = optree.tree_flatten(given, none_is_leaf=True, namespace=NAMESPACE)
            if shape != other or any(x is not y for x, y in zip(old, new, strict=True)):
                raise TraceError(
                    f"{self.name} changes a {type(given).__name__} that it is given, which its compiled program would not do; "
                    "return the new elements, or change Tensors in place (x.add_(1), x[...] = y)"
                )

    def _raise_what_a_query_raised(self) -> None:
        guards = self.recorder.questions
        if guards is not None and guards.failure is not None:
            raise guards.failure

    def _refuse_changed_grad_mode(self) -> None:
        if MODES.grad_enabled is not self.grad_mode:
            raise TraceError(
                f"{self.name} leaves the gradient mode changed, which its compiled program would not repeat; use "
                "`with tracer.set_grad_enabled(...):` inside, or change the mode around the call"
            )

    # ---- what puts back
    def _restore_attributes(self) -> None:
        self.changes += self.recorder.restore_attributes()

    def _restore_places(self) -> None:
        self.changes += self.places.restore(self.recorder.is_computed)

    def _refuse_changed_lists(self) -> None:
        self.lists.check()

    def _refuse_hidden_tensors(self) -> None:
        is_computed = self.recorder.is_computed
        refuse_objects([*self.recorder.objects, *self.places.objects], is_computed)
        refuse_grown([*self.recorder.unmoved, *self.places.unmoved], is_computed)

    # ---- what makes the result
    @property
    def _moved(self) -> list[Change]:
        """The changes that put something there which the program computes."""
        return [change for change in self.changes if self.recorder.is_computed(change.now)]

    def _collect_outputs(self) -> None:
        held = [change.now for change in self._moved]  # is a result too
        result = (self.result, held) if held else self.result
        self.recorded = collect_outputs(self.recorder, result, self.arguments)

    def _restore_flags(self) -> None:
        self.recorded.new_flags = self.recorder.standings.restore_flags()

    def _note_volatile_changes(self) -> None:
        """What was changed in place by something volatile is volatile itself."""
        changed: list[tuple[Holder, Tensor, Flag]] = [
            (tensor, standing, tensor._requires_grad)
            for tensor, standing in self.recorder.standings.mutated
        ]
        changed += [
            (a.number, a.placeholder, a.requires_grad)
            for a in self.arguments
            if a.number in self.recorded.mutated_arguments and isinstance(a.passed, Tensor)
        ]
        self.recorded.new_flags += [
            (holder, x._requires_grad)
            for holder, x, before in changed
            if isinstance(x._requires_grad, Untracked) and x._requires_grad is not before
        ]

    def _note_assignments(self) -> None:
        """What is put into places when the program has run, in the order in which the function's result holds it."""
        recorded, is_computed = self.recorded, self.recorder.is_computed
        recorded.assignments = [
            SetAnew(change.assign, change.now)
            for change in self.changes
            if not is_computed(change.now)
        ]
        recorded.placed = [change.assign for change in self._moved]
        for change in self._moved:
            old = dict(leaves_with_accessors(change.before))
            recorded.replaced += [old.get(at) for at, _ in leaves_with_accessors(change.now)]

    def _follow_places(self) -> None:
        """State that is another Tensor after each call is read from its place at each call, if it is known by that place only."""
        recorded, named = self.recorded, self.named
        used = [leaf.object for leaf in recorded.returned]
        used += [alias.base for alias in recorded.aliases.values()]
        used += [holder for holder, _ in (*recorded.grads, *recorded.read_grads)]
        used += [holder for holder, _ in recorded.new_flags]
        used += recorded.mutated
        captured = {id(c.object): c for c in recorded.captures if not c.is_grad}
        held: dict[int, tuple[Any, list[Callable[[], Any]], list[str]]] = {}
        for change in self._moved:
            names = named.expressions_of(change.before)
            for access, state in leaves_with_accessors(change.before):
                _, places, known = held.setdefault(id(state), (state, [], []))
                places.append(At(change.read, access) if access else change.read)
                known += names
                if len(names) > 1:  # by which of them it is read is not known
                    used.append(state)
        for state, places, known in held.values():
            if (
                isinstance(state, Tensor)
                and state._requires_grad is not True
                and state._view is None  # else its base is what the program reads
                and all(name.startswith(tuple(known)) for name in named.expressions_of(state))
                and all(x is not state for x in used)
            ):
                recorded.followed.append(state)
                if id(state) in captured:
                    captured[id(state)].place = places[0] if len(places) == 1 else OneAt(places)

    # What follows when the function has returned, in this order.
    AFTER_THE_FUNCTION: tuple[Callable[[_Trace], None], ...] = (
        # These only look, while all is as the function has left it; of several errors the first one is told.
        _refuse_changed_arrays,
        _refuse_drawn_numbers,
        _refuse_changed_parts,
        _refuse_changed_arguments,
        _raise_what_a_query_raised,  # the function has caught it, as a program would not
        _refuse_changed_grad_mode,
        # What modules have noted themselves comes first: places that are the same hold what they held by then, and are not
        # listed as changes twice.
        _restore_attributes,
        _restore_places,
        # Elements of lists that hold Tensors of the trace are put back with the places; any other change of a list that the
        # code reads is refused.
        _refuse_changed_lists,
        # Putting back has found the objects and containers in which Tensors of the trace may hide.
        _refuse_hidden_tensors,
        # What was put into places is a result too, so that comes after them; histories that begin in the trace are found by the
        # flags that it has set, so these are still there.
        _collect_outputs,
        _restore_flags,
        # Compares with the flags that lie outside, as they were and are again.
        _note_volatile_changes,
        _note_assignments,
        # State is followed to its place unless anything that was found so far needs the very Tensor.
        _follow_places,
    )


def evaluation(
    recorder: Recorder, actual: dict[Value, np.ndarray[Any, Any]], leaves: Sequence[Any]
) -> Evaluation:
    """The elements of values of a trace, given those of its arguments; state is read as it is."""

    def outside(value: Value) -> np.ndarray[Any, Any]:
        if value not in actual:  # state that the trace has read since
            captures = [
                *recorder.captures.values(),
                *(c for c, _ in recorder.grad_captures.values()),
            ]
            actual.update((c.value, _elements(c.current(leaves))) for c in captures)
            numbers = recorder.scalars.values()
            actual.update((s.value, _elements(s.container[s.key])) for s in numbers)
        return actual[value]

    return Evaluation(recorder.made.get, outside)


def _elements(x: Any) -> np.ndarray[Any, Any]:
    return x._data() if isinstance(x, Tensor) else np.asarray(x)
