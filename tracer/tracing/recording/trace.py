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
from tracer.autograd.compiled_backward import IncomingHistory
from tracer.ir.graph import Value
from tracer.tensors.modes import MODES, Flag, Untracked
from tracer.tensors.tensor import Tensor
from tracer.tracing.arguments.signature import NAMESPACE, Call, Leaf, has_history
from tracer.tracing.recording.concrete_values import Evaluation
from tracer.tracing.recording.functionalization import Flags
from tracer.tracing.recording.output_gradients import as_outside
from tracer.tracing.recording.recorder import Recorder, recording
from tracer.tracing.recording.trace_outputs import Argument, collect_outputs
from tracer.tracing.recording.trace_records import Holder
from tracer.tracing.recording.trace_result import TraceResult
from tracer.tracing.recording.value_guards import ValueGuard, ValueGuards
from tracer.tracing.state.assigned_places import GlobalGenerators, Named, NamedGenerators, Places
from tracer.tracing.state.container_contents import NamedLists
from tracer.tracing.state.named_arrays import NamedArrays
from tracer.tracing.state.side_effects import (
    At,
    Change,
    OneAt,
    SetAnew,
    leaves_with_accessors,
    refuse_grown,
    refuse_objects,
)

NOTHING: Mapping[str, Any] = {}


def record(
    function: Callable[..., Any],
    call: Call,
    signature: Sequence[Leaf],
    name: str,
    known: Sequence[ValueGuard] | None = None,
    objects: Mapping[str, Any] = NOTHING,
) -> TraceResult:
    """Trace `function` on arguments of the given signature. Raises what the function raises; nothing outside has changed then.

    `known`: the guards of what Python asks first, with what they must observe; later queries are answered by the leaves' and the
    state's elements. None: nothing can be asked but what never changes. `objects`: by name, arguments whose state is watched.
    """
    recorder = Recorder(name)
    is_computed = recorder.is_computed
    placeholders, arguments = _placeholders(recorder, call.leaves, signature)
    args, kwargs = optree.tree_unflatten(call.tree, placeholders)
    evaluate = _evaluation(recorder, arguments, call.leaves)
    guards = recorder.value_guards = ValueGuards(recorder, evaluate, known)
    named = Named(function, objects)
    arrays, places, lists = NamedArrays(named), Places(named), NamedLists(named.found)
    generators = GlobalGenerators(), NamedGenerators(named)
    try:
        with recording(recorder):
            grad_mode = MODES.grad_enabled
            result = function(*args, **kwargs)
            # These only look, while all is as the function has left it; of several errors the first one is told.
            arrays.check()
            for generator in generators:
                generator.check()
            recorder.dynamic_index_views.check()
            _refuse_changed_containers(name, args, kwargs, call.tree, placeholders)
            guards.check()
            _refuse_changed_grad_mode(name, grad_mode)
            # Put back what was assigned. What modules have noted themselves comes first: places that are the same hold what
            # they held by then, and are not listed as changes twice.
            changes = [*recorder.restore_attributes(), *places.restore(is_computed)]
            # Elements of lists that hold Tensors of the trace have been put back with the places; these are other changes.
            lists.check()
            # Restoring has found the objects and containers in which Tensors of the trace may hide.
            refuse_objects([*recorder.objects, *places.objects], is_computed)
            refuse_grown([*recorder.unmoved, *places.unmoved], is_computed)
            # What was put into places is a result too. Histories that begin in the trace are found by flags that it has set,
            # so these are still there.
            moved = [change for change in changes if is_computed(change.now)]
            if moved:
                result = result, [change.now for change in moved]
            recorded = collect_outputs(recorder, guards, result, arguments)
            # What is volatile is found by flags that lie outside, which are as they were again.
            recorded.new_flags = recorder.functional_state.restore_flags()
            recorded.new_flags += _volatile_since(recorder, recorded, arguments)
            _note_assignments(recorded, changes, moved)
            # State is followed to its place unless something that was found so far needs the very Tensor.
            _follow_places(recorded, moved, named)
            return recorded
    except BaseException:
        # nobody will run a program that puts into places what belongs there
        places.restore(is_computed)
        for place in (*recorder.unmoved, *places.unmoved):
            place.put_elements_back()
        raise
    finally:
        lists.restore()
        # and with these all elements and what lies outside, whoever keeps a Tensor of the trace
        recorder.value_guards = None
        del recorder.functional_state


def _placeholders(
    recorder: Recorder, leaves: Sequence[Any], signature: Sequence[Leaf]
) -> tuple[list[Any], list[Argument]]:
    """What the function is given for each argument leaf, and those that are inputs of the program."""
    placeholders: list[Any] = []
    arguments: list[Argument] = []
    for number, (leaf, x) in enumerate(zip(signature, leaves, strict=True)):
        if leaf.type is None:
            placeholders.append(placeholders[leaf.value] if leaf.kind == "alias" else x)
            continue
        value = Value(leaf.type)
        placeholder = source = Tensor.of_value(value, recorder)
        placeholder._requires_grad = leaf.requires_grad
        if has_history(leaf):  # as it comes in: the placeholder may be changed in place
            placeholder._grad_fn = IncomingHistory(x, number, recorder.outgoing_gradients)
            source = as_outside(placeholder, recorder)
        if leaf.kind == "float":
            recorder.numbers[value] = number
        elif leaf.kind == "tensor":
            recorder.arguments[id(source)] = recorder.arguments[id(placeholder)] = number, x
            source._accumulator = placeholder._accumulator = x._accumulator
        placeholders.append(placeholder)
        arguments.append(Argument(number, x, value, placeholder, source, Flags(source)))
    return placeholders, arguments


def _evaluation(
    recorder: Recorder, arguments: Sequence[Argument], leaves: Sequence[Any]
) -> Evaluation:
    """The elements of values of a trace on the actual arguments; state is read as it is."""
    actual = {a.value: _elements(a.passed) for a in arguments}

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


def _refuse_changed_containers(
    name: str, args: Any, kwargs: Any, tree: Any, placeholders: list[Any]
) -> None:
    """Raise `TraceError` for a list or dict of the caller's that the function changed: it was given copies."""
    whole: Any = optree.tree_unflatten(tree, placeholders)
    befores = (*whole[0], *whole[1].values())
    for before, given in zip(befores, (*args, *kwargs.values()), strict=True):
        old, shape = optree.tree_flatten(before, none_is_leaf=True, namespace=NAMESPACE)
        new, other = optree.tree_flatten(given, none_is_leaf=True, namespace=NAMESPACE)
        if shape != other or any(x is not y for x, y in zip(old, new, strict=True)):
            raise TraceError(
                f"{name} changes a {type(given).__name__} that it is given, which its compiled program would not do; return the "
                "new elements, or change Tensors in place (x.add_(1), x[...] = y)"
            )


def _refuse_changed_grad_mode(name: str, before: Flag) -> None:
    if MODES.grad_enabled is not before:
        raise TraceError(
            f"{name} leaves the gradient mode changed, which its compiled program would not repeat; use "
            "`with tracer.set_grad_enabled(...):` inside, or change the mode around the call"
        )


def _volatile_since(
    recorder: Recorder, recorded: TraceResult, arguments: Sequence[Argument]
) -> list[tuple[Holder, Flag]]:
    """What was changed in place by something volatile, and so is volatile itself."""
    changed: list[tuple[Holder, Tensor, Flag]] = [
        (tensor, shadow, tensor._requires_grad)
        for tensor, shadow in recorder.functional_state.mutated
    ]
    changed += [
        (a.number, a.placeholder, a.flags_before.flag)
        for a in arguments
        if a.number in recorded.mutated_arguments and isinstance(a.passed, Tensor)
    ]
    return [
        (holder, x._requires_grad)
        for holder, x, before in changed
        if isinstance(x._requires_grad, Untracked) and x._requires_grad is not before
    ]


def _note_assignments(
    recorded: TraceResult, changes: Sequence[Change], moved: Sequence[Change]
) -> None:
    """What the program puts into places: values that are known now, and in the order of the result those that it computes."""
    computed = set(map(id, moved))
    for change in changes:
        if id(change) not in computed:
            recorded.assignments.append(SetAnew(change.assign, change.now))
    for change in moved:
        recorded.placed.append(change.assign)
        old = dict(leaves_with_accessors(change.before))
        recorded.replaced += [old.get(at) for at, _ in leaves_with_accessors(change.now)]


def _follow_places(recorded: TraceResult, moved: Sequence[Change], named: Named) -> None:
    """State that is another Tensor after each call is read from its place at each call, if it is known by that place only."""
    used = [x.object for x in recorded.returned] + [a.base for a in recorded.aliases.values()]
    used += [holder for holder, _ in (*recorded.grads, *recorded.read_grads, *recorded.new_flags)]
    used += recorded.mutated
    captured = {id(c.object): c for c in recorded.captures if not c.is_grad}
    held: dict[int, tuple[Any, list[Callable[[], Any]], list[str]]] = {}
    for change in moved:
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
