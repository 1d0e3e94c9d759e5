"""A trace that is over, as data: its graph, and what must happen around a run of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tracer.ir.call_sites import Applied
from tracer.ir.graph import Graph, Node
from tracer.tensors.modes import Flag
from tracer.tensors.tensor import Tensor
from tracer.tracing.recording.output_aliases import Alias
from tracer.tracing.recording.trace_records import Capture, Holder, ScalarCapture
from tracer.tracing.recording.value_guards import Question


@dataclass(frozen=True, slots=True)
class Output:
    """Where a leaf of the result comes from.

    `kind`: "program" (its output number), "argument" (leaf number), "object", or "copy" (of the object).
    """

    kind: str
    number: int = 0
    object: Any = None
    requires_grad: Flag = False


@dataclass(slots=True)
class Recorded:
    """A trace that is over. Graph inputs: captures, scalars, then dynamic argument leaves. Graph outputs: results, then new
    values of mutated Tensors, then gradients, then gradients of arguments that have a history outside, then what the backward
    graph needs, then what Python asked for. `applied`: how calls of Functions in the graph are made again on Tensors, with
    their own gradients."""

    graph: Graph
    captures: list[Capture]
    scalars: list[ScalarCapture]
    argument_leaves: list[int]
    outputs: list[Output]
    tree: Any
    mutated: list[Tensor]
    mutated_arguments: list[int]
    grads: list[tuple[Holder, bool]]
    read_grads: list[tuple[Holder, bool]]
    flags: list[tuple[Any, str, bool]]  # whether options of optimisers are 0
    modules: list[Any]
    result_count: int
    backward: Graph | None = None
    refusal: Exception | None = None  # why there is none
    residuals: int = 0
    applied: dict[Node, Applied] = field(default_factory=dict)
    differentiable: list[int] = field(default_factory=list)
    cotangent_outputs: list[int] = field(default_factory=list)
    new_flags: list[tuple[Holder, Flag]] = field(default_factory=list)  # of `requires_grad`
    questions: list[Question] = field(default_factory=list)
    onward: list[int] = field(default_factory=list)  # arguments whose gradient goes on outside
    aliases: dict[int, Alias] = field(default_factory=dict)
    result_grads: list[int] = field(default_factory=list)  # results that have a `.grad`
    result_leaves: list[int] = field(default_factory=list)  # that require gradients themselves
    result_sources: list[int] = field(default_factory=list)  # of these, whose gradients are there
    placed: list[Callable[[Any], object]] = field(
        default_factory=list
    )  # what takes the last outputs
    replaced: list[Any] = field(default_factory=list)  # what was in their place, for each output
    followed: list[Tensor] = field(default_factory=list)  # state that is read from its place
    assignments: list[Callable[[], object]] = field(default_factory=list)  # of plain values
    # outputs: changed state with a history
    changed_histories: list[int] = field(default_factory=list)
    # arguments whose changes are recorded for gradients, so that they must not be leaves
    recorded_changes: list[int] = field(default_factory=list)
