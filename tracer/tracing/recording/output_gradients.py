"""The backward program of what a traced function gives: gradients of its results, and of state that it changed, asked for later.

Knows the recorder, the tape and how graphs are differentiated. Must not know what else becomes of a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ops.errors import TraceError, TracerError
from tracer.autograd.backward_walk import is_used_up, key_of
from tracer.autograd.engine import cotangents_at
from tracer.autograd.tape_graph import tape_graph
from tracer.core.source_lines import located
from tracer.ir.differentiation import differentiate, partition
from tracer.ir.graph import Graph, GraphBuilder, Node, Value
from tracer.tensors.tensor import Tensor
from tracer.tracing.recording.functionalization import Flags
from tracer.tracing.recording.recorder import Recorder


@dataclass(frozen=True, slots=True)
class ResultGradients:
    """`graph`: from residuals and cotangents to gradients, None if nothing can be asked for, or nothing computed: `refusal`.

    `residuals`: the forward values that it reads. `inputs`: values of what was given and `leaves`: numbers of what was made, that
    the gradients are of; `outputs`: of what the cotangents are of.
    """

    graph: Graph | None = None
    residuals: list[Value] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    leaves: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    refusal: Exception | None = None


def as_outside(x: Tensor, recorder: Recorder) -> Tensor:
    """A Tensor from outside with the history that it has there, whatever the trace has done to it."""
    history = recorder.functional_state.flags_before(x).history
    if history is None:
        return x
    result = Tensor.__new__(Tensor)
    result._start(x.type)
    result._requires_grad, result._grad_fn = True, history
    result._value, result._recorder, result.output_number = x._value, x._recorder, x.output_number
    return result


def _written(recorder: Recorder) -> Any:
    """What the trace has written so far to what lies outside."""
    state = {id(x): shadow._value for x, shadow in recorder.functional_state.mutated}
    return state, {k: id(gradient) for k, (_, gradient) in recorder.grads.items()}


def result_gradients(
    recorder: Recorder,
    made: list[tuple[int, Tensor]],
    given: list[tuple[Value, Tensor, Flags]],
    own: list[tuple[int, Tensor]],
) -> ResultGradients:
    """The gradients of what a trace has made, with its numbers, with respect to what it was given, with its values.

    `given`: with the flags that they came with; what begins to require gradients in the trace has its history from there. `own`:
    leaves that the trace made, which are results.
    """
    candidates = [
        (k, as_outside(t, recorder) if came.flag is True else t)
        for k, t, came in given
        if came.flag is True or (t._requires_grad is True and t._grad_fn is None)
    ]
    # a base and a view of all of it may be one result of one node: the gradient goes there once
    candidates = list({key_of(t): (k, t) for k, t in candidates}.values())
    sources = [t for _, t in (*candidates, *own)]
    live = _live(made, sources)
    if not live:
        return ResultGradients()
    outputs = [t for _, t in live]
    if recorder.value_guards is not None:
        recorder.value_guards.closed = True  # hooks may ask
    before = _written(recorder)
    refusal: Exception | None = None
    walked: _Backward | None = None
    try:
        walked = _by_graph(recorder, outputs, sources) or _by_tape(recorder, outputs, sources)
    except (
        Exception
    ) as error:  # of a user's backward or hook: for the day when somebody calls backward()
        refusal = located(error) if isinstance(error, TracerError) else error
    if _written(recorder) != before:
        raise TraceError(
            "a backward (of a Function of your own, or a hook) writes state or .grad while gradients of "
            f"{recorder.builder.name}'s results are prepared: the program for backward() outside gives gradients only. Call "
            "backward() inside the traced function, where everything that it does is part of the program"
        )
    if walked is None:
        return ResultGradients(refusal=refusal and refusal.with_traceback(None))
    graph, residuals = partition(
        walked.nodes,
        walked.cotangents,
        [g for g in walked.gradients if g is not None],
        recorder.made.get,
        f"{recorder.builder.name}.backward",
    )
    found = [g is not None for g in walked.gradients]
    return ResultGradients(
        graph,
        residuals,
        [k for (k, _), given in zip(candidates, found, strict=False) if given],
        [k for (k, _), given in zip(own, found[len(candidates) :], strict=True) if given],
        [k for k, _ in live],
    )


@dataclass(frozen=True, slots=True)
class _Backward:
    """Nodes that read the trace's values, and compute gradients of sources, None where there is none, from cotangents."""

    nodes: Sequence[Node]
    cotangents: Sequence[Value]
    gradients: Sequence[Value | None]


def _by_graph(
    recorder: Recorder, outputs: Sequence[Tensor], sources: Sequence[Tensor]
) -> _Backward | None:
    """By `differentiate`, where what is on the tape is a graph."""
    found = tape_graph(outputs, sources, recorder.history_start)
    if found is None:
        return None
    graph, recorded = found
    halves = differentiate(graph, range(len(sources)), materialize_grads=False)
    builder = GraphBuilder()
    cotangents = [Value(t.type.strong()) for t in outputs]
    residuals = [recorded[v] for v in halves.backward.inputs[: -len(cotangents)]]
    gradients = builder.inline(halves.backward, (*residuals, *cotangents))
    of_source = dict(zip(halves.wrt, gradients, strict=True))
    return _Backward(builder.nodes, cotangents, [of_source.get(k) for k in range(len(sources))])


def _by_tape(recorder: Recorder, outputs: Sequence[Tensor], sources: Sequence[Tensor]) -> _Backward:
    """By a walk over the tape, which runs hooks and backwards in Python, recorded apart from the forward program."""
    cotangents = [Tensor.of_value(Value(t.type.strong()), recorder) for t in outputs]
    forward, recorder.builder = recorder.builder, GraphBuilder(recorder.builder.name)
    try:
        found = cotangents_at(outputs, sources, cotangents)
        gradients = [None if g is None else recorder.value_of(g) for g in found]
        return _Backward(
            recorder.builder.nodes, [recorder.value_of(t) for t in cotangents], gradients
        )
    finally:
        recorder.builder = forward


def _live(made: list[tuple[int, Tensor]], inputs: list[Tensor]) -> list[tuple[int, Tensor]]:
    """What has a history that no backward in the trace has used up."""
    live = [(k, t) for k, t in made if t.grad_fn is not None and not t.grad_fn.released]
    if live and is_used_up([t for _, t in live], inputs):
        live = [(k, t) for k, t in live if not is_used_up([t], inputs)]
    return live
