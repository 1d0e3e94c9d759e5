"""One compiled variant of a traced function: guard, program, and what happens around a run of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree

from ops.errors import GradError
from ops.types import Type
from tracer.autograd.compiled_backward import CompiledNode, replay
from tracer.autograd.engine import backward
from tracer.autograd.hooks import functions_of
from tracer.dispatch.apply import BUILDER
from tracer.dispatch.view_updates import set_flag
from tracer.functions.in_place import require_history
from tracer.ir.graph import Graph
from tracer.passes.dead_code import remove_dead_code
from tracer.runtime.executable import Executable
from tracer.tensors.grad_mode import enable_grad
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor, intern
from tracer.tracing.arguments.signature import Call, Leaf
from tracer.tracing.programs.guards import build_guard
from tracer.tracing.programs.staged_executable import EarlyProgram, FailedGuard, StagedExecutable
from tracer.tracing.recording.output_aliases import Alias
from tracer.tracing.recording.trace_records import held_by
from tracer.tracing.recording.trace_result import TraceResult
from tracer.tracing.recording.value_guards import ValueGuard

UNKNOWN = object()


@dataclass(frozen=True, slots=True)
class SideExit:
    """Where a call leaves a path: the trace that was run, and its value guards up to the first one that failed, with what that
    one observed."""

    path: CompiledTrace
    known: tuple[ValueGuard, ...]


class CompiledTrace:
    """A trace with its guard; compiled when it first runs."""

    def __init__(
        self, fn: Any, recorded: TraceResult, call: Call, signature: tuple[Leaf, ...]
    ) -> None:
        self.recorded = recorded
        self.value_guards = tuple(recorded.value_guards)
        self.observed = tuple(guard.observed for guard in self.value_guards)
        self.runs = 0  # counted where there are value guards
        self.signature = signature
        self.fn = fn
        self.grad_enabled = MODES.grad_enabled
        self.key = (call.tree, signature, self.grad_enabled)
        hooks = [
            hook
            for x, leaf in zip(call.leaves, signature, strict=True)
            if leaf.requires_grad
            for hook in functions_of(x)
        ]
        self.guard, self.state_names = build_guard(fn, recorded, call.objects(signature), hooks)
        self.trace_seconds = 0.0
        self._executable: Executable | StagedExecutable | None = None
        self._backward: Executable | None = None
        self.fast_call: Any = UNKNOWN  # None where there is none
        self._lock = threading.Lock()  # compiling once, whoever asks
        self.graph = self._named(call.names)

    def _named(self, leaf_names: Sequence[str]) -> Graph:
        """The graph with its inputs named: state by access path, arguments by parameter."""
        graph, recorded = self.recorded.graph, self.recorded
        names: list[str] = []
        for number, capture in enumerate(recorded.captures):
            name = self.state_names.get(id(capture.object)) or f"captured{number}"
            if isinstance(capture.object, int):
                name = leaf_names[capture.object]
            names.append(f"{name}.grad" if capture.is_grad else name)
        for scalar in recorded.scalars:
            owner = self.state_names.get(id(scalar.container))
            names.append(f"{owner}.{scalar.key}" if owner else scalar.key)
        names += [leaf_names[k] for k in recorded.argument_leaves]
        seen: dict[str, int] = {}
        for k, name in enumerate(names):
            count = seen.get(name, 0)
            seen[name] = count + 1
            if count:
                names[k] = f"{name}.{count}"
        return Graph(graph.inputs, graph.nodes, graph.outputs, tuple(names), graph.name)

    @property
    def executable(self) -> Executable | StagedExecutable:
        """The compiled program."""
        if self._executable is None:
            with self._lock:
                if self._executable is None:
                    self._executable = self._compile()
        return self._executable

    def _compile(self) -> Executable | StagedExecutable:
        outputs, updates = self.recorded.outputs, self.recorded.updates
        if self.value_guards:
            return StagedExecutable(self.graph, updates, outputs.residuals, outputs.value_guards)
        return Executable(self.graph, updates, outputs.residuals)

    def backward_executable(self) -> Executable:
        """The compiled program of the gradients of the results."""
        assert self.recorded.gradients.graph is not None
        if self._backward is None:
            with self._lock:
                if self._backward is None:
                    backward = Executable(self.recorded.gradients.graph, {})
                    backward.forward = self.graph
                    self._backward = backward
        return self._backward

    def released_node(self) -> CompiledNode:
        """The history of a result that has one, but no gradient after the call."""
        return CompiledNode.released_node(self.recorded.graph.name, self.recorded.gradients.refusal)

    # ---- which path
    def agreement(self, known: Sequence[ValueGuard]) -> int:
        """How many of the first value guards observe what those of `known` have observed."""
        count = 0
        for observed, other in zip(self.observed, known, strict=False):
            if observed != other.observed:
                break
            count += 1
        return count

    def begin(self, leaves: Sequence[Any], agreed: int) -> list[list[Tensor]] | SideExit:
        """Compute what Python asked for; nothing is changed. Where the call leaves this path, or what the rest goes on from.

        The first `agreed` value guards are known to hold. Raises `BoundsError` for a bad index on the way.
        """
        executable = self.executable
        assert isinstance(executable, StagedExecutable)
        found = executable.decide(self.recorded.current_inputs(leaves), self.observed, agreed)
        return self.side_exit(found) if isinstance(found, FailedGuard) else found

    def side_exit(self, failed: FailedGuard) -> SideExit:
        """What is known when a call leaves this path."""
        guard = self.value_guards[failed.number]
        last = ValueGuard(guard.query, guard.line, guard.value, failed.observed)
        return SideExit(self, (*self.value_guards[: failed.number], last))

    def side_exit_of(self, program: EarlyProgram, memory: bytes, agreed: int) -> SideExit | None:
        """The same by the memory of what a program has observed; None if its guards hold."""
        failed = program.failed(program.unpacked(memory), self.observed, agreed)
        return None if failed is None else self.side_exit(failed)

    # ---- running
    def run(self, leaves: Sequence[Any], early: list[list[Tensor]] | None = None) -> Any:
        """Run the program on argument leaves and do what the trace did: outputs, state, gradients.

        `early`: what `begin` gave, where there are value guards, which are those of this path.
        """
        recorded, outputs = self.recorded, self.recorded.outputs
        for leaf in recorded.recorded_changes:
            require_history(leaves[leaf])
        inputs = recorded.current_inputs(leaves)
        results = self._compute(inputs, early)
        self._note_changes(leaves, results)
        for leaf in recorded.leaf_results:
            results[leaf]._requires_grad = True
        if recorded.outgoing_gradients:  # along the history that they came with
            outgoing = [results[k] for k in outputs.outgoing_gradients]
            backward([leaves[k] for k in recorded.outgoing_gradients], outgoing)
        self._attach_histories(results, inputs)
        for holder, flag in recorded.new_flags:  # histories have begun where they did in the trace
            set_flag(held_by(holder, leaves), flag)
        for assign in recorded.assignments:
            assign()
        for k, alias in recorded.aliases.items():
            results[k] = _view(alias, leaves, results, results[k])
        for k, number in zip(recorded.result_grads, outputs.result_gradients, strict=True):
            results[k]._grad = results[number]
        return self._give_back(leaves, results)

    def _compute(self, inputs: list[Any], early: list[list[Tensor]] | None) -> list[Tensor]:
        """All outputs but the value guards; changed state and arguments are written in place."""
        executable = self.executable
        if isinstance(executable, StagedExecutable):
            assert early is not None
            results = executable.finish(inputs, early)
            self.runs += 1
            return results
        return executable(inputs)

    def _note_changes(self, leaves: Sequence[Any], results: list[Tensor]) -> None:
        """Count the changes that the program has made, and set gradients."""
        recorded = self.recorded
        name = recorded.graph.name
        for tensor in recorded.mutated:
            tensor.count_change(name)
        for leaf in recorded.mutated_arguments:
            if isinstance(leaves[leaf], Tensor):
                leaves[leaf].count_change(name)
        for holder, number in recorded.grads:
            held_by(holder, leaves)._grad = None if number is None else results[number]

    def _give_back(self, leaves: Sequence[Any], results: list[Tensor]) -> Any:
        """The result in its tree; what belongs into places is put there."""
        recorded = self.recorded
        found = []
        for leaf in recorded.returned:
            if leaf.kind == "program":
                result = results[leaf.number]
                if result._grad_fn is None:
                    result._requires_grad = leaf.requires_grad
                    if leaf.requires_grad and leaf.number not in recorded.leaf_results:
                        result.grad_fn = self.released_node()
                found.append(result)
            else:
                kept = leaves[leaf.number] if leaf.kind == "argument" else leaf.object
                found.append(kept.copy() if leaf.kind == "copy" else kept)
        whole: Any = optree.tree_unflatten(recorded.tree, found)
        if not recorded.placed:
            return whole
        returned, held = whole
        for place, value in zip(recorded.placed, held, strict=True):
            place(value)
        return returned

    def _attach_histories(self, results: list[Any], inputs: list[Any]) -> None:
        """Give results, and state that was changed with a history, the backward program as theirs."""
        recorded, gradients = self.recorded, self.recorded.gradients
        if gradients.graph is not None:
            residuals = recorded.outputs.residuals
            sources = [inputs[k] for k in recorded.differentiable]
            sources += [results[k] for k in gradients.leaves]
            outputs = [results[k] for k in gradients.outputs]
            borrowed = [inputs[k] for k in self.executable.borrowed(residuals)]
            node = CompiledNode(
                gradients.graph,
                self.backward_executable,
                sources,
                [results[k] for k in residuals],
                outputs,
                recorded.graph.name,
                self._again(inputs),
                [x for x in borrowed if isinstance(x, Tensor)],
            )
            for k, number in enumerate(gradients.outputs):
                y = results[number]
                if number in recorded.changed_histories:
                    MODES.interpreter.set_history(y, node, k)
                else:
                    y._requires_grad, y._grad_fn, y.output_number = True, node, k
        for number in recorded.changed_histories:
            if number not in gradients.outputs:
                MODES.interpreter.set_history(results[number], self.released_node(), 0)

    def _again(self, inputs: list[Any]) -> Callable[[Sequence[Tensor]], list[Tensor]] | None:
        """What makes the differentiable results anew from their sources; None if the program changed what it reads."""
        recorded, gradients = self.recorded, self.recorded.gradients
        if recorded.mutated or recorded.mutated_arguments or gradients.leaves:
            return None
        graph = recorded.graph
        tensors = [as_input(x) for x in inputs]
        versions = [t._version for t in tensors]

        def again(sources: Sequence[Tensor]) -> list[Tensor]:
            if any(t._version != v for t, v in zip(tensors, versions, strict=True)):
                raise GradError(
                    f"an input of {graph.name} was changed in place after the call, and its gradient needs the old value; "
                    "change it after backward()"
                )
            wanted = tuple(graph.outputs[k] for k in gradients.outputs)
            whole = Graph(graph.inputs, graph.nodes, wanted, graph.input_names, graph.name)
            part = remove_dead_code(whole)
            operands = list(tensors)
            for k, source in zip(recorded.differentiable, sources, strict=True):
                operands[k] = source
            with enable_grad():
                return replay(part, operands, BUILDER, recorded.applied)

        return again


def _view(
    alias: Alias, leaves: Sequence[Any], results: Sequence[Tensor], computed: Tensor
) -> Tensor:
    """The view that a result is, instead of what the program has computed for it."""
    if alias.kind == "program":
        base = results[alias.base]
    else:
        base = as_input(leaves[alias.base]) if alias.kind == "argument" else alias.base
    view = alias.of(base)
    if view._grad_fn is None and computed._grad_fn is not None:
        # its history is not its base's: it was detached and got another one, or is what a Function made of its argument
        view._requires_grad, view._grad_fn = True, computed._grad_fn
        view.output_number = computed.output_number
    return view


def as_input(x: Any) -> Tensor:
    """A Tensor of an argument leaf, for programs."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, float):
        return Tensor.of_array(np.float64(x), Type("float64", (), True))
    array = np.asarray(x)
    result = Tensor.of_array(array)
    result.type = intern(result.type)
    return result
