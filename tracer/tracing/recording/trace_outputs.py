"""What a finished trace has made, as outputs of its graph: results, changed state, gradients, what backward and guards need.

Knows the recorder and the Tensors that the function returned. Must not know places that the function assigns to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree

from tracer.autograd.hooks import refuse_left_over
from tracer.functions.creation import copied
from tracer.ir.call_sites import fold
from tracer.ir.graph import Graph, Value
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor
from tracer.tracing.arguments.signature import NAMESPACE
from tracer.tracing.recording.functionalization import Flags
from tracer.tracing.recording.output_aliases import Alias, alias_of, overlapping_bases
from tracer.tracing.recording.output_checks import refuse_unfinished
from tracer.tracing.recording.output_gradients import result_gradients
from tracer.tracing.recording.program_outputs import Numbered, ProgramInputs, ProgramOutputs
from tracer.tracing.recording.recorder import Recorder
from tracer.tracing.recording.trace_result import ReturnedLeaf, TraceResult
from tracer.tracing.recording.value_guards import ValueGuards


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument leaf that is an input of the program: what was passed, and what stands for it in the trace.

    `value`: as it comes in. `source`: what its gradient is taken by, with the flags that it came with: the trace may change the
    elements and the history of the placeholder.
    """

    number: int
    passed: Any
    value: Value
    placeholder: Tensor
    source: Tensor
    flags_before: Flags

    @property
    def is_changed(self) -> bool:
        """Whether the placeholder has another value by now."""
        return self.placeholder._value is not self.value

    @property
    def has_memory(self) -> bool:
        """Whether it can change in place; a number that changed is another number."""
        return isinstance(self.passed, Tensor | np.ndarray)


def collect_outputs(
    recorder: Recorder, guards: ValueGuards, result: Any, arguments: Sequence[Argument]
) -> TraceResult:
    """The graph of a trace whose function gave `result`, and what its inputs and outputs are.

    Puts back what buffers were before they were assigned. Raises `TraceError` for what cannot be given back.
    """
    state = recorder.functional_state
    mutated_arguments = [a for a in arguments if a.is_changed and a.has_memory]
    whole = {id(a.placeholder): a.number for a in arguments if a.has_memory or not a.is_changed}
    leaves, tree = optree.tree_flatten(result, none_is_leaf=True, namespace=NAMESPACE)
    rebound = recorder.restore()
    returned, tensors = _returned(recorder, leaves, whole, [old for old, _ in rebound])
    aliases = _aliases(recorder, tensors, whole)
    # Outputs are numbered as they are put in. To take a value may record operations, so the order of the lines matters too.
    values, outputs = Numbered(), ProgramOutputs()
    outputs.results = values.add(recorder.strengthen(x) for x in tensors)
    for old, new in rebound:  # the results are what they were before
        MODES.interpreter.write(old, new, recorded=False)
    state.define_views()
    mutated = state.mutated
    changed = [shadow for _, shadow in mutated]
    outputs.state = values.add(map(recorder.value_of, changed))
    changed += [a.placeholder for a in mutated_arguments]
    outputs.arguments = values.add(recorder.value_of(a.placeholder) for a in mutated_arguments)
    recorder.keep_changed_grads()
    grads = {k: g for k, (_, g) in recorder.grads.items() if g is not None}
    outputs.gradients = values.add(map(recorder.value_of, grads.values()))
    outputs.outgoing_gradients = values.add(
        map(recorder.value_of, recorder.outgoing_gradients.values())
    )
    result_grads = {k: t._grad for k, t in enumerate(tensors) if t._grad is not None}
    outputs.result_gradients = values.add(map(recorder.value_of, result_grads.values()))
    refuse_left_over(recorder.hooks)
    histories = list(zip(outputs.changed, changed, strict=True))
    leaf_results = [
        k for k, t in enumerate(tensors) if t._requires_grad is True and t.grad_fn is None
    ]
    found = result_gradients(
        recorder,
        [*zip(outputs.results, tensors, strict=True), *histories],
        _differentiable_inputs(recorder, arguments),
        [(k, tensors[k]) for k in leaf_results if k not in aliases],
    )
    outputs.residuals = values.add(found.residuals)
    outputs.value_guards = values.add(guard.value for guard in guards.found)
    # a backward may have read more of what lies outside
    captures = [*recorder.captures.values(), *(c for c, _ in recorder.grad_captures.values())]
    scalars = list(recorder.scalars.values())
    given, inputs = Numbered(), ProgramInputs()
    inputs.captures = given.add(c.value for c in captures)
    inputs.scalars = given.add(s.value for s in scalars)
    inputs.arguments = given.add(a.value for a in arguments)
    number_of_input = {v: k for k, v in enumerate(given)}
    number_of_grad = dict(zip(grads, outputs.gradients, strict=True))
    nodes, applied = fold(recorder.builder.nodes, values, recorder.sites)
    return TraceResult(
        graph=Graph(tuple(given), nodes, tuple(values), name=recorder.builder.name),
        inputs=inputs,
        outputs=outputs,
        captures=captures,
        scalars=scalars,
        argument_leaves=[a.number for a in arguments],
        returned=returned,
        tree=tree,
        mutated=[t for t, _ in mutated],
        mutated_arguments=[a.number for a in mutated_arguments],
        grads=[(holder, number_of_grad.get(k)) for k, (holder, _) in recorder.grads.items()],
        outgoing_gradients=list(recorder.outgoing_gradients),
        read_grads=list(recorder.read_grads.values()),
        flags=list(recorder.flags.values()),
        modules=list(recorder.modules.values()),
        gradients=found,
        differentiable=[number_of_input[v] for v in found.inputs],
        applied=applied,
        value_guards=guards.found,
        aliases=aliases,
        result_grads=list(result_grads),
        leaf_results=leaf_results,
        changed_histories=[k for k, t in histories if t._grad_fn is not None and t._requires_grad],
        recorded_changes=sorted(state.recorded_changes),
    )


def _differentiable_inputs(
    recorder: Recorder, arguments: Sequence[Argument]
) -> list[tuple[Value, Tensor, Flags]]:
    """What gradients may be taken by, with their values and the flags that they came with."""
    captured = [c for c in recorder.captures.values() if isinstance(c.object, Tensor)]
    return [
        *((c.value, c.object, recorder.functional_state.flags_before(c.object)) for c in captured),
        *((a.value, a.source, a.flags_before) for a in arguments),
    ]


def _returned(
    recorder: Recorder, result: Sequence[Any], arguments: dict[int, int], olds: Sequence[Tensor]
) -> tuple[list[ReturnedLeaf], list[Tensor]]:
    """Where the leaves of the result come from, and those that the program computes.

    `olds`: what buffers were before they were assigned, whose memory changes.
    """
    returned: list[ReturnedLeaf] = []
    tensors: list[Tensor] = []
    numbers: dict[int, int] = {}
    replaced = set(map(id, olds))
    for x in result:
        if id(x) in replaced:
            x = copied(x)
        if isinstance(x, np.ndarray) and id(x) not in recorder.captures:
            # made in the trace: each call makes one
            returned.append(ReturnedLeaf("copy", object=x.copy()))
        elif not isinstance(x, Tensor):
            refuse_unfinished(x, recorder.is_computed)
            returned.append(ReturnedLeaf("object", object=x))
        elif id(x) in arguments:
            returned.append(ReturnedLeaf("argument", arguments[id(x)]))
        elif not x.is_symbolic:
            returned.append(ReturnedLeaf("object", object=x))
        else:
            if id(x) not in numbers:
                numbers[id(x)] = len(tensors)
                tensors.append(x)  # and kept alive: identities decide
            returned.append(ReturnedLeaf("program", numbers[id(x)], requires_grad=x._flag_now()))
    return returned, tensors


def _aliases(
    recorder: Recorder, tensors: list[Tensor], arguments: dict[int, int]
) -> dict[int, Alias]:
    """By their numbers, the results that are views of an argument, of state or of another result, and what they are views of;
    another result that is such a view itself comes first.

    What several overlapping results are views of becomes a result too.
    """
    state = {id(shadow): tensor for tensor, shadow in recorder.functional_state.mutated}

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
    found = [alias_of(x, known) for x in tensors]
    aliases: dict[int, Alias] = {}

    def put(number: int) -> None:
        alias = found[number]
        if alias is not None and number not in aliases:
            if alias.kind == "program":
                put(alias.base)
            aliases[number] = alias

    for number in range(len(found)):
        put(number)
    return aliases
