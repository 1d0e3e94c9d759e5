"""Running a function once with symbolic Tensors: from a call to a graph and what must happen around it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

from ops.errors import TraceError
from tracer.autograd.compiled_backward import IncomingHistory
from tracer.autograd.hooks import refuse_left_over
from tracer.dispatch.view_updates import write
from tracer.functions.creation import copied
from tracer.ir.call_sites import fold
from tracer.ir.graph import Graph, Value
from tracer.tensors.modes import MODES, Flag, Untracked
from tracer.tensors.tensor import Tensor
from tracer.tracing.arguments.signature import NAMESPACE, Leaf, has_history
from tracer.tracing.recording.concrete_values import Evaluation
from tracer.tracing.recording.functionalization import Flags
from tracer.tracing.recording.output_aliases import Alias, alias_of, overlapping_bases
from tracer.tracing.recording.output_checks import refuse_unfinished
from tracer.tracing.recording.output_gradients import as_outside, result_gradients
from tracer.tracing.recording.recorder import Recorder, recording
from tracer.tracing.recording.trace_records import Holder
from tracer.tracing.recording.trace_result import Output, Recorded
from tracer.tracing.recording.value_guards import Question, Questions
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


def record(
    function: Callable[..., Any],
    leaves: Sequence[Any],
    signature: Sequence[Leaf],
    tree: Any,
    name: str,
    known: Sequence[Question] | None = None,
    names: Sequence[str] = (),
) -> Recorded:
    """Trace `function` on leaves of the given signature. Raises what the function raises; nothing outside has changed then.

    `known`: the questions that Python asks first, with outcomes that are imposed; later ones are answered by the leaves' and the
    state's elements. None: nothing can be asked but what never changes. `names`: of the leaves.
    """
    recorder = Recorder(name)
    placeholders: list[Any] = []
    originals: dict[int, Value] = {}
    dynamic: list[int] = []
    # what the gradient of an argument is taken by, and what it came with: the trace may change its flag and its elements
    sources: dict[int, tuple[Tensor, Flags]] = {}
    for number, (leaf, x) in enumerate(zip(signature, leaves, strict=True)):
        if leaf.type is None:
            placeholders.append(placeholders[leaf.value] if leaf.kind == "alias" else x)
            continue
        value = Value(leaf.type)
        placeholder = Tensor.of_value(value, recorder)
        placeholder._requires_grad = leaf.requires_grad
        source = placeholder
        if has_history(leaf):  # as it comes in: the placeholder may be changed in place
            placeholder._grad_fn = IncomingHistory(x, number, recorder.onward)
            source = as_outside(placeholder, recorder)
        sources[number] = source, Flags(source)
        if leaf.kind == "float":
            recorder.numbers[value] = number
        elif leaf.kind == "tensor":
            recorder.arguments[id(source)] = recorder.arguments[id(placeholder)] = number, x
            source._accumulator = placeholder._accumulator = x._accumulator
        originals[number] = value
        dynamic.append(number)
        placeholders.append(placeholder)
    args, kwargs = optree.tree_unflatten(tree, placeholders)
    actual = {v: _elements(leaves[k]) for k, v in originals.items()}
    recorder.questions = Questions(recorder, evaluation(recorder, actual, leaves), known)
    objects = {
        n: x for n, x, leaf in zip(names, leaves, signature, strict=False) if leaf.kind == "object"
    }
    named = Named(function, objects)
    arrays, places = NamedArrays(named), Places(named)
    generators, own_generators = GlobalGenerators(), NamedGenerators(named)
    lists = NamedLists(named.found)
    over = False
    try:
        with recording(recorder):
            mode = MODES.grad_enabled
            result = function(*args, **kwargs)
            arrays.check()
            generators.check()
            own_generators.check()
            recorder.parts.check()
            _refuse_changed_containers(args, kwargs, tree, placeholders, name)
            if recorder.questions is not None and recorder.questions.failure is not None:
                raise recorder.questions.failure
            if MODES.grad_enabled is not mode:
                raise TraceError(
                    f"{name} leaves the gradient mode changed, which its compiled program would not repeat; use "
                    "`with tracer.set_grad_enabled(...):` inside, or change the mode around the call"
                )
            changed = [*recorder.restore_attributes(), *places.restore(recorder.is_computed)]
            lists.check()
            refuse_objects([*recorder.objects, *places.objects], recorder.is_computed)
            refuse_grown([*recorder.unmoved, *places.unmoved], recorder.is_computed)
            held = [change.now for change in changed if recorder.is_computed(change.now)]
            if held:  # what the function has put somewhere is a result too
                result = result, held
            recorded = _finish(recorder, result, placeholders, originals, dynamic, leaves, sources)
            recorded.new_flags = recorder.standings.restore_flags()
            recorded.new_flags += _volatile_since(recorder, recorded, placeholders, signature)
            recorded.assignments = [
                SetAnew(change.assign, change.now)
                for change in changed
                if not recorder.is_computed(change.now)
            ]
            moved = [change for change in changed if recorder.is_computed(change.now)]
            recorded.placed = [change.assign for change in moved]
            for change in moved:
                old = dict(leaves_with_accessors(change.before))
                recorded.replaced += [old.get(at) for at, _ in leaves_with_accessors(change.now)]
            _follow_places(recorder, recorded, moved, named)
            over = True
            return recorded
    finally:
        if not over:
            places.restore(recorder.is_computed)
            for place in (*recorder.unmoved, *places.unmoved):
                place.put_elements_back()
        lists.restore()
        # and with these all elements and what lies outside, whoever keeps a Tensor of the trace
        recorder.questions = None
        del recorder.standings


def _refuse_changed_containers(
    args: Any, kwargs: Any, tree: Any, placeholders: list[Any], name: str
) -> None:
    """Raise `TraceError` for a list or dict of the caller's that the function changed: it was given copies."""
    for given, before in zip(
        (*args, *kwargs.values()),
        itertools.chain(
            *(
                x if isinstance(x, tuple) else x.values()
                for x in optree.tree_unflatten(tree, placeholders)
            )
        ),
        strict=False,
    ):
        old, shape = optree.tree_flatten(before, none_is_leaf=True, namespace=NAMESPACE)
        new, other = optree.tree_flatten(given, none_is_leaf=True, namespace=NAMESPACE)
        if shape != other or any(x is not y for x, y in zip(old, new, strict=True)):
            raise TraceError(
                f"{name} changes a {type(given).__name__} that it is given, which its compiled program would not do; return the "
                "new elements, or change Tensors in place (x.add_(1), x[...] = y)"
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


def _finish(
    recorder: Recorder,
    result: Any,
    placeholders: list[Any],
    originals: dict[int, Value],
    dynamic: list[int],
    leaves: Sequence[Any],
    sources: dict[int, tuple[Tensor, Flags]],
) -> Recorded:
    changed = [k for k in dynamic if placeholders[k]._value is not originals[k]]
    # a number that changed is another number: only what has memory changes in place
    mutated_arguments = [k for k in changed if isinstance(leaves[k], Tensor | np.ndarray)]
    arguments = {
        id(placeholders[k]): k for k in dynamic if k not in changed or k in mutated_arguments
    }
    result_leaves, tree = optree.tree_flatten(result, none_is_leaf=True, namespace=NAMESPACE)
    rebound = recorder.restore()
    outputs, tensors = _outputs(recorder, result_leaves, arguments, [old for old, _ in rebound])
    aliases = _aliases(recorder, tensors, arguments)
    values = [recorder.strengthen(x) for x in tensors]
    count = len(values)
    for old, new in rebound:
        write(old, new, recorded=False)
    recorder.standings.define_views()
    mutated = recorder.standings.mutated
    values += [recorder.value_of(standing) for _, standing in mutated]
    values += [placeholders[k]._value for k in mutated_arguments]
    recorder.keep_changed_grads()
    grads = list(recorder.grads.values())
    values += [recorder.value_of(g) for _, g in grads if g is not None]
    values += [recorder.value_of(g) for g in recorder.onward.values()]
    result_grads = {k: t._grad for k, t in enumerate(tensors) if t._grad is not None}
    values += [recorder.value_of(g) for g in result_grads.values()]
    refuse_left_over(recorder.hooks)
    own_leaves = [
        k for k, t in enumerate(tensors) if t._requires_grad is True and t.grad_fn is None
    ]
    changed_state = [standing for _, standing in mutated]
    changed_state += [placeholders[k] for k in mutated_arguments]
    made = [*enumerate(tensors), *enumerate(changed_state, count)]
    given = [
        (c.value, c.object, recorder.standings.came_with(c.object))
        for c in recorder.captures.values()
        if isinstance(c.object, Tensor)
    ]
    given += [(originals[leaf], *sources[leaf]) for leaf in dynamic]
    own = [(k, tensors[k]) for k in own_leaves if k not in aliases]
    gradients = result_gradients(recorder, made, given, own)
    values += gradients.residuals
    questions = [] if recorder.questions is None else recorder.questions.asked
    values += [q.value for q in questions]
    # a backward may have read more of what lies outside
    captures = [*recorder.captures.values(), *(c for c, _ in recorder.grad_captures.values())]
    scalars = list(recorder.scalars.values())
    inputs = [*(c.value for c in captures), *(s.value for s in scalars)]
    inputs += [originals[k] for k in dynamic]
    place = {v: k for k, v in enumerate(inputs)}
    nodes, applied = fold(recorder.builder.nodes, values, recorder.sites)
    return Recorded(
        graph=Graph(tuple(inputs), nodes, tuple(values), name=recorder.builder.name),
        captures=captures,
        scalars=scalars,
        argument_leaves=dynamic,
        outputs=outputs,
        tree=tree,
        mutated=[t for t, _ in mutated],
        mutated_arguments=mutated_arguments,
        grads=[(holder, g is not None) for holder, g in grads],
        onward=list(recorder.onward),
        read_grads=list(recorder.read_grads.values()),
        flags=list(recorder.flags.values()),
        modules=list(recorder.modules.values()),
        result_count=count,
        backward=gradients.graph,
        refusal=gradients.refusal,
        residuals=len(gradients.residuals),
        applied=applied,
        differentiable=[place[v] for v in gradients.inputs],
        cotangent_outputs=gradients.outputs,
        questions=questions,
        aliases=aliases,
        result_grads=list(result_grads),
        result_leaves=own_leaves,
        result_sources=gradients.leaves,
        changed_histories=[
            k for k, t in made[count:] if t._grad_fn is not None and t._requires_grad
        ],
        recorded_changes=sorted(recorder.standings.recorded_changes),
    )


def _outputs(
    recorder: Recorder, result: Sequence[Any], arguments: dict[int, int], olds: Sequence[Tensor]
) -> tuple[list[Output], list[Tensor]]:
    """Where the leaves of the result come from, and those that the program computes.

    `olds`: what buffers were before they were assigned, whose memory changes.
    """
    outputs: list[Output] = []
    tensors: list[Tensor] = []
    numbers: dict[int, int] = {}
    replaced = set(map(id, olds))
    for x in result:
        if id(x) in replaced:
            x = copied(x)
        if isinstance(x, np.ndarray) and id(x) not in recorder.captures:
            outputs.append(
                Output("copy", object=x.copy())
            )  # made in the trace: each call makes one
        elif not isinstance(x, Tensor):
            refuse_unfinished(x, recorder.is_computed)
            outputs.append(Output("object", object=x))
        elif id(x) in arguments:
            outputs.append(Output("argument", arguments[id(x)]))
        elif not x.is_symbolic:
            outputs.append(Output("object", object=x))
        else:
            if id(x) not in numbers:
                numbers[id(x)] = len(tensors)
                tensors.append(x)  # and kept alive: identities decide
            outputs.append(Output("program", numbers[id(x)], requires_grad=x._flag_now()))
    return outputs, tensors


def _aliases(
    recorder: Recorder, tensors: list[Tensor], arguments: dict[int, int]
) -> dict[int, Alias]:
    """By their numbers, the results that are views of an argument, of state or of another result, and what they are views of.

    What several overlapping results are views of becomes a result too.
    """
    state = {id(standing): tensor for tensor, standing in recorder.standings.mutated}

    def known(x: Tensor) -> tuple[str, Any] | None:
        if id(x) in arguments:
            return "argument", arguments[id(x)]
        if id(x) in state:
            return "object", state[id(x)]
        if not x.is_symbolic:
            return "object", x
        return ("program", results[id(x)]) if id(x) in results else None

    results = {id(x): number for number, x in enumerate(tensors)}
    tensors += overlapping_bases([x for x in tensors if alias_of(x, known) is None])
    results = {id(x): number for number, x in enumerate(tensors)}
    found = {number: alias_of(x, known) for number, x in enumerate(tensors)}
    return {number: alias for number, alias in found.items() if alias is not None}


def _follow_places(
    recorder: Recorder, recorded: Recorded, moved: list[Change], named: Named
) -> None:
    """State that is another Tensor after each call is read from its place at each call, if it is known by that place only."""
    used = [o.object for o in recorded.outputs] + [a.base for a in recorded.aliases.values()]
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


def _volatile_since(
    recorder: Recorder, recorded: Recorded, placeholders: list[Any], signature: Sequence[Leaf]
) -> list[tuple[Holder, Flag]]:
    """What was changed in place by something volatile, and so is volatile itself."""
    changed: list[tuple[Holder, Tensor, Flag]] = [
        (tensor, standing, tensor._requires_grad) for tensor, standing in recorder.standings.mutated
    ]
    changed += [
        (k, placeholders[k], signature[k].requires_grad)
        for k in recorded.mutated_arguments
        if signature[k].kind == "tensor"
    ]
    return [
        (holder, x._requires_grad)
        for holder, x, before in changed
        if isinstance(x._requires_grad, Untracked) and x._requires_grad is not before
    ]
