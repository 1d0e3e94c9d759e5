"""A trace that is over, as data: its graph, and what must happen around a run of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tracer.ir.call_sites import Applied
from tracer.ir.graph import Graph, Node
from tracer.tensors.modes import Flag
from tracer.tensors.tensor import Tensor
from tracer.tracing.recording.output_aliases import Alias
from tracer.tracing.recording.output_gradients import ResultGradients
from tracer.tracing.recording.program_outputs import ProgramInputs, ProgramOutputs
from tracer.tracing.recording.trace_records import Capture, Holder, ScalarCapture
from tracer.tracing.recording.value_guards import ValueGuard


@dataclass(frozen=True, slots=True)
class ReturnedLeaf:
    """Where a leaf of the result comes from.

    `kind`: "program" (its output number), "argument" (leaf number), "object", or "copy" (of the object).
    """

    kind: str
    number: int = 0
    object: Any = None
    requires_grad: Flag = False


@dataclass(slots=True)
class TraceResult:
    """A trace that is over. `inputs` and `outputs` say which of the graph's are what; the lists of captures, scalars, arguments,
    changed Tensors and so on have one item for each number of their part.

    `applied`: how calls of Functions in the graph are made again on Tensors, with their own gradients.
    """

    graph: Graph
    inputs: ProgramInputs
    outputs: ProgramOutputs
    captures: list[Capture]
    scalars: list[ScalarCapture]
    argument_leaves: list[int]
    returned: list[ReturnedLeaf]
    tree: Any
    mutated: list[Tensor]
    mutated_arguments: list[int]
    grads: list[tuple[Holder, int | None]]  # with the number of the output; None where it is None
    outgoing_gradients: list[int]  # arguments whose gradient goes on outside
    read_grads: list[tuple[Holder, bool]]
    flags: list[tuple[Any, str, bool]]  # whether options of optimisers are 0
    modules: list[Any]
    gradients: ResultGradients  # of results and of state with a history
    differentiable: list[int]  # inputs that these are taken by
    applied: dict[Node, Applied]
    value_guards: list[ValueGuard]
    aliases: dict[int, Alias]
    result_grads: list[int]  # results that have a `.grad`
    leaf_results: list[int]  # that require gradients themselves
    changed_histories: list[int]  # outputs: changed state with a history
    # arguments whose changes are recorded for gradients, so that they must not be leaves
    recorded_changes: list[int]
    new_flags: list[tuple[Holder, Flag]] = field(default_factory=list)  # of `requires_grad`
    # what takes the last leaves of what is returned, and what was in their place
    placed: list[Callable[[Any], object]] = field(default_factory=list)
    replaced: list[Any] = field(default_factory=list)
    followed: list[Tensor] = field(default_factory=list)  # state that is read from its place
    assignments: list[Callable[[], object]] = field(default_factory=list)  # of plain values

    def current_inputs(self, leaves: Sequence[Any]) -> list[Any]:
        """What the graph's inputs are in a call with these argument leaves, part by part as `inputs` numbers them."""
        found: list[Any] = [capture.current(leaves) for capture in self.captures]
        found += [scalar.container[scalar.key] for scalar in self.scalars]
        found += [leaves[k] for k in self.argument_leaves]
        return found

    @property
    def input_of_leaf(self) -> dict[int, int]:
        """By argument leaves, the numbers of the inputs that they are."""
        return dict(zip(self.argument_leaves, self.inputs.arguments, strict=True))

    @property
    def updates(self) -> dict[int, int]:
        """By numbers of outputs, those of the inputs whose memory receives them."""
        captures = zip(self.inputs.captures, self.captures, strict=True)
        state = {id(c.object): number for number, c in captures if not c.is_grad}
        leaves = self.input_of_leaf
        targets = [state[id(tensor)] for tensor in self.mutated]
        targets += [leaves[leaf] for leaf in self.mutated_arguments]
        return dict(zip(self.outputs.changed, targets, strict=True))
