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
from tracer.dispatch.view_updates import set_flag, set_history
from tracer.functions.in_place import require_history
from tracer.ir.graph import Graph, used
from tracer.runtime.executable import Executable
from tracer.tensors.grad_mode import enable_grad
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor, intern
from tracer.tracing.arguments.signature import Leaf
from tracer.tracing.programs.guards import build_guard
from tracer.tracing.programs.staged_executable import Departure, GuardedExecutable
from tracer.tracing.recording.trace_records import held_by
from tracer.tracing.recording.trace_result import Recorded
from tracer.tracing.recording.value_guards import Question

_UNKNOWN = object()


@dataclass(frozen=True, slots=True)
class Turned:
    """Where a call leaves a path: the entry that was run, its questions up to the first one with another outcome, and that."""

    entry: Entry
    known: tuple[Question, ...]


class Entry:
    """A trace with its guard; compiled when it first runs."""

    def __init__(
        self,
        fn: Any,
        recorded: Recorded,
        signature: tuple[Leaf, ...],
        leaves: list[Any],
        names: list[str],
        tree: Any,
    ) -> None:
        self.recorded = recorded
        self.questions = tuple(recorded.questions)
        self.outcomes = tuple(q.outcome for q in self.questions)
        self.runs = 0  # counted where there are questions
        self.signature = signature
        self.names = names
        self.fn = fn
        self.grad_enabled = MODES.grad_enabled
        self.key = (tree, signature, self.grad_enabled)
        objects = {
            n: x
            for n, x, leaf in zip(names, leaves, signature, strict=True)
            if leaf.kind == "object"
        }
        hooks = [
            hook
            for x, leaf in zip(leaves, signature, strict=True)
            if leaf.requires_grad
            for hook in functions_of(x)
        ]
        self.guard, self.paths, self.guard_source = build_guard(fn, recorded, objects, hooks)
        self.trace_seconds = 0.0
        self._executable: Executable | GuardedExecutable | None = None
        self._backward: Executable | None = None
        self._launch: Any = _UNKNOWN
        self._lock = threading.Lock()  # compiling once, whoever asks
        self.graph = self._named()

    def _named(self) -> Graph:
        """The graph with its inputs named: state by access path, arguments by parameter."""
        graph, recorded = self.recorded.graph, self.recorded
        names: list[str] = []
        for number, capture in enumerate(recorded.captures):
            path = self.paths.get(id(capture.object))
            name = path.name if path and path.name else f"captured{number}"
            if isinstance(capture.object, int):
                name = self.names[capture.object]
            names.append(f"{name}.grad" if capture.is_grad else name)
        for scalar in recorded.scalars:
            path = self.paths.get(id(scalar.container))
            names.append(f"{path.name}.{scalar.key}" if path and path.name else scalar.key)
        names += [self.names[k] for k in recorded.argument_leaves]
        seen: dict[str, int] = {}
        for k, name in enumerate(names):
            count = seen.get(name, 0)
            seen[name] = count + 1
            if count:
                names[k] = f"{name}.{count}"
        return Graph(graph.inputs, graph.nodes, graph.outputs, tuple(names), graph.name)

    @property
    def executable(self) -> Executable | GuardedExecutable:
        """The compiled program."""
        if self._executable is None:
            with self._lock:
                if self._executable is None:
                    self._executable = self._compile()
        return self._executable

    def _compile(self) -> Executable | GuardedExecutable:
        recorded = self.recorded
        state = {id(c.object): k for k, c in enumerate(recorded.captures) if not c.is_grad}
        base = len(recorded.captures) + len(recorded.scalars)
        number = recorded.result_count
        updates: dict[int, int] = {}
        for tensor in recorded.mutated:
            updates[number] = state[id(tensor)]
            number += 1
        for leaf in recorded.mutated_arguments:
            updates[number] = base + recorded.argument_leaves.index(leaf)
            number += 1
        asked = len(self.questions)
        count = len(self.graph.outputs) - asked
        shared = range(count - recorded.residuals, count)
        if asked:
            return GuardedExecutable(self.graph, updates, shared, asked)
        return Executable(self.graph, updates, shared)

    def launch(self, go_on: Callable[[tuple[Any, ...], Turned], Any]) -> Any:
        """The fast way into the program for calls like the ones that led here, None if there is none.

        `go_on` gives the result where a question has another outcome than on this path.
        """
        if self._launch is _UNKNOWN:
            from tracer.tracing.programs.fast_call import build_launch

            self._launch = build_launch(self, go_on)
        return self._launch

    def backward_executable(self) -> Executable:
        """The compiled program of the gradients of the results."""
        assert self.recorded.backward is not None
        if self._backward is None:
            with self._lock:
                if self._backward is None:
                    backward = Executable(self.recorded.backward, {})
                    backward.forward = self.graph
                    self._backward = backward
        return self._backward

    def released_node(self) -> CompiledNode:
        """The history of a result that has one, but no gradient after the call."""
        return CompiledNode.released_node(self.recorded.graph.name, self.recorded.refusal)

    # ---- which path
    def agreement(self, known: Sequence[Question]) -> int:
        """How many of the first questions have the outcomes of `known`."""
        count = 0
        for outcome, other in zip(self.outcomes, known, strict=False):
            if outcome != other.outcome:
                break
            count += 1
        return count

    def begin(self, leaves: Sequence[Any], agreed: int) -> list[list[Tensor]] | Turned:
        """Compute what Python asked for; nothing is changed. Where the call leaves this path, or what the rest goes on from.

        The first `agreed` outcomes are known to be right. Raises `BoundsError` for a bad index on the way.
        """
        executable = self.executable
        assert isinstance(executable, GuardedExecutable)
        found = executable.decide(self._inputs(leaves), self.outcomes, agreed)
        return self.turned(found) if isinstance(found, Departure) else found

    def turned(self, departure: Departure) -> Turned:
        """What is known when a call leaves this path."""
        number = departure.number
        last = self.questions[number].with_outcome(departure.outcome)
        return Turned(self, (*self.questions[:number], last))

    # ---- running
    def _inputs(self, leaves: Sequence[Any]) -> list[Any]:
        recorded = self.recorded
        inputs: list[Any] = [c.current(leaves) for c in recorded.captures]
        inputs += [s.container[s.key] for s in recorded.scalars]
        inputs += [leaves[k] for k in recorded.argument_leaves]
        return inputs

    def run(self, leaves: Sequence[Any], early: list[list[Tensor]] | None = None) -> Any:
        """Run the program on argument leaves and do what the trace did: outputs, state, gradients.

        `early`: what `begin` gave, where there are questions, whose outcomes are those of this path.
        """
        recorded, executable = self.recorded, self.executable
        for leaf in recorded.recorded_changes:
            require_history(leaves[leaf])
        inputs = self._inputs(leaves)
        if isinstance(executable, GuardedExecutable):
            assert early is not None
            results = executable.finish(inputs, early)
            self.runs += 1
        else:
            results = executable(inputs)
        number = recorded.result_count
        number += len(recorded.mutated) + len(
            recorded.mutated_arguments
        )  # written in place by the program
        for tensor in recorded.mutated:
            tensor.count_change(recorded.graph.name)
        for leaf in recorded.mutated_arguments:
            if isinstance(leaves[leaf], Tensor):
                leaves[leaf].count_change(recorded.graph.name)
        for holder, present in recorded.grads:
            held_by(holder, leaves)._grad = results[number] if present else None
            number += present
        onward = results[number : number + len(recorded.onward)]
        number += len(onward)
        result_grads = results[number : number + len(recorded.result_grads)]
        number += len(result_grads)
        for leaf in recorded.result_leaves:
            results[leaf]._requires_grad = True
        if onward:  # along the history that they came with
            backward([leaves[k] for k in recorded.onward], onward)
        if recorded.backward is not None:
            self._attach(results, number, inputs)
        for changed in recorded.changed_histories:
            if changed not in recorded.cotangent_outputs:
                released = self.released_node()
                set_history(results[changed], released, 0)
        for holder, flag in recorded.new_flags:  # histories have begun where they did in the trace
            set_flag(held_by(holder, leaves), flag)
        for assign in recorded.assignments:
            assign()
        made: set[int] = set()
        for k in recorded.aliases:
            self._make_view(k, leaves, results, made)
        for k, gradient in zip(recorded.result_grads, result_grads, strict=True):
            results[k]._grad = gradient
        out = []
        for output in recorded.outputs:
            if output.kind == "program":
                result = results[output.number]
                if result._grad_fn is None:
                    result._requires_grad = output.requires_grad
                    if output.requires_grad and output.number not in recorded.result_leaves:
                        result.grad_fn = self.released_node()
                out.append(result)
            else:
                kept = leaves[output.number] if output.kind == "argument" else output.object
                out.append(kept.copy() if output.kind == "copy" else kept)
        whole: Any = optree.tree_unflatten(recorded.tree, out)
        if not recorded.placed:
            return whole
        returned, held = whole
        for place, value in zip(recorded.placed, held, strict=True):
            place(value)
        return returned

    def _make_view(
        self, number: int, leaves: Sequence[Any], results: list[Any], made: set[int]
    ) -> None:
        """Put the view that a result is into its place."""
        if number in made:
            return
        made.add(number)
        alias = self.recorded.aliases[number]
        if alias.kind == "program":
            if alias.base in self.recorded.aliases:
                self._make_view(alias.base, leaves, results, made)
            base = results[alias.base]
        else:
            base = as_input(leaves[alias.base]) if alias.kind == "argument" else alias.base
        view, computed = alias.of(base), results[number]
        if view._grad_fn is None and computed._grad_fn is not None:
            # its history is not its base's: it was detached and got another one, or is what a Function made of its argument
            view._requires_grad, view._grad_fn = True, computed._grad_fn
            view.output_number = computed.output_number
        results[number] = view

    def _attach(self, results: list[Any], number: int, inputs: list[Any]) -> None:
        recorded = self.recorded
        assert recorded.backward is not None
        residuals = results[number : number + recorded.residuals]
        sources = [inputs[k] for k in recorded.differentiable]
        sources += [results[k] for k in recorded.result_sources]
        outputs = [results[k] for k in recorded.cotangent_outputs]
        borrowed = [
            inputs[k] for k in self.executable.borrowed(range(number, number + recorded.residuals))
        ]
        node = CompiledNode(
            recorded.backward,
            self.backward_executable,
            sources,
            residuals,
            outputs,
            recorded.graph.name,
            self._again(inputs),
            [x for x in borrowed if isinstance(x, Tensor)],
        )
        for k, (number, y) in enumerate(zip(recorded.cotangent_outputs, outputs, strict=True)):
            if number in recorded.changed_histories:
                set_history(y, node, k)
            else:
                y._requires_grad, y._grad_fn, y.output_number = True, node, k

    def _again(self, inputs: list[Any]) -> Callable[[Sequence[Tensor]], list[Tensor]] | None:
        """What makes the differentiable results anew from their sources; None if the program changed what it reads."""
        recorded = self.recorded
        if recorded.mutated or recorded.mutated_arguments or recorded.result_sources:
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
            wanted = tuple(graph.outputs[k] for k in recorded.cotangent_outputs)
            nodes, _ = used(Graph(graph.inputs, graph.nodes, wanted, graph.input_names, graph.name))
            part = Graph(graph.inputs, tuple(nodes), wanted, graph.input_names, graph.name)
            operands = list(tensors)
            for k, source in zip(recorded.differentiable, sources, strict=True):
                operands[k] = source
            with enable_grad():
                return replay(part, operands, BUILDER, recorded.applied)

        return again


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
