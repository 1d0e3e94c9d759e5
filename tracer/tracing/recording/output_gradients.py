"""The backward program of what a traced function gives: gradients of its results, and of state that it changed, asked for later.

Knows the recorder and the walk. Must not know what else becomes of a trace.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ops.errors import TraceError, TracerError
from tracer.autograd.backward_walk import is_used_up, key_of
from tracer.autograd.engine import cotangents_at
from tracer.core.source_lines import located
from tracer.ir.graph import Graph, Node, Value
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
    history = recorder.standings.came_with(x).history
    if history is None:
        return x
    result = Tensor.__new__(Tensor)
    result._start(x.type)
    result._requires_grad, result._grad_fn = True, history
    result._value, result._recorder, result.output_number = x._value, x._recorder, x.output_number
    return result


def _written(recorder: Recorder) -> Any:
    """What the trace has written so far to what lies outside."""
    state = {id(x): standing._value for x, standing in recorder.standings.mutated}
    return state, {k: id(gradient) for k, (_, gradient) in recorder.grads.items()}


def _is_free(node: Node) -> bool:
    return not (node.inputs or node.blocks or node.op.random)


def result_gradients(
    recorder: Recorder,
    made: list[tuple[int, Tensor]],
    given: list[tuple[Value, Tensor, Flags]],
    own: list[tuple[int, Tensor]],
) -> ResultGradients:
    """The gradients of what a trace has made, with its numbers, with respect to what it was given, with its values.

    `given`: with the flags that they came with; what begins to require gradients in the trace has its history from there. `own`:
    leaves that the trace made, which are results. The recorder's nodes are those of the forward program again afterwards.
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
    forward_count = len(recorder.builder.nodes)
    cotangents = [Tensor.of_value(Value(t.type.strong()), recorder) for _, t in live]
    if recorder.questions is not None:
        recorder.questions.closed = True  # hooks may ask
    before = _written(recorder)
    refusal: Exception | None = None
    found: list[Tensor | None] = []
    try:
        found = cotangents_at([t for _, t in live], sources, cotangents)
    except (
        Exception
    ) as error:  # of a user's backward or hook: for the day when somebody calls backward()
        del recorder.builder.nodes[forward_count:]
        refusal = located(error) if isinstance(error, TracerError) else error
    if _written(recorder) != before:
        raise TraceError(
            "a backward (of a Function of your own, or a hook) writes state or .grad while gradients of "
            f"{recorder.builder.name}'s results are prepared: the program for backward() outside gives gradients only. Call "
            "backward() inside the traced function, where everything that it does is part of the program"
        )
    if refusal is not None:
        return ResultGradients(refusal=refusal.with_traceback(None))
    backward_nodes = recorder.builder.nodes[forward_count:]
    recorder.builder.nodes = recorder.builder.nodes[:forward_count]
    outputs = [recorder.value_of(g) for g in found if g is not None]
    known = {v for node in backward_nodes for v in node.outputs} | {t._value for t in cotangents}
    needed = set(outputs)
    kept = []
    for node in reversed(backward_nodes):
        if any(v in needed for v in node.outputs):
            kept.append(node)
            needed.update(node.inputs)
    kept.reverse()
    wanted = [*(v for n in kept for v in n.inputs), *outputs]
    # what takes no operands, such as a constant, is computed again rather than handed over
    makers = {recorder.made[v]: None for v in wanted if v in recorder.made and v not in known}
    free = [node for node in makers if _is_free(node)]
    known.update(v for node in free for v in node.outputs)
    kept = [*free, *kept]
    residuals = list(dict.fromkeys(v for v in wanted if v not in known))
    heads = [recorder.value_of(t) for t in cotangents]
    name = f"{recorder.builder.name}.backward"
    return ResultGradients(
        Graph((*residuals, *heads), tuple(kept), tuple(outputs), name=name),
        residuals,
        [k for (k, _), g in zip(candidates, found, strict=False) if g is not None],
        [k for (k, _), g in zip(own, found[len(candidates) :], strict=True) if g is not None],
        [k for k, _ in live],
    )


def _live(made: list[tuple[int, Tensor]], inputs: list[Tensor]) -> list[tuple[int, Tensor]]:
    """What has a history that no backward in the trace has used up."""
    live = [(k, t) for k, t in made if t.grad_fn is not None and not t.grad_fn.released]
    if live and is_used_up([t for _, t in live], inputs):
        live = [(k, t) for k, t in live if not is_used_up([t], inputs)]
    return live
