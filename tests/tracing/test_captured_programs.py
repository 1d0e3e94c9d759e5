"""Random programs whose middle is a traced function: what it names outside, views of one memory among it, is as without a trace.

The traced part is interpreted, so nothing is compiled.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tracer
from tests.support.view_programs import Program, Step, apply_step, draw, leaves, loss, run
from tracer import trace
from tracer.ir.graph import Graph
from tracer.ir.interpreter import interpret
from tracer.tensors.tensor import Tensor

Array = np.ndarray[Any, Any]
VARIABLES = 2  # leaves that require a gradient come first


class Interpreted:
    """Stands for `tracer.execution.Executable`: runs a graph by the operators' references, and writes what it updates."""

    def __init__(self, graph: Graph, updates: Mapping[int, int], shared: Any = ()) -> None:
        self.graph, self.updates = graph, dict(updates)
        self.sharing = SimpleNamespace(written=frozenset(self.updates.values()))
        read = {v for node in graph.nodes for v in node.inputs} | set(graph.outputs)
        self._read = [k for k, v in enumerate(graph.inputs) if v in read]
        self.results = [("new", k, v.type) for k, v in enumerate(graph.outputs)]

    def __call__(self, inputs: Sequence[Any]) -> list[Tensor]:
        """The outputs."""
        arrays = [x._data() if isinstance(x, Tensor) else np.asarray(x) for x in inputs]
        for written in self.sharing.written:
            for k in {*self._read, *self.sharing.written} - {written}:
                if np.shares_memory(arrays[k], arrays[written]):
                    raise tracer.ArgumentError("operands share memory")
        outputs = interpret(self.graph, [x.copy() for x in arrays])
        results = []
        for k, y in enumerate(outputs):
            if k in self.updates:
                arrays[self.updates[k]][...] = y
                results.append(inputs[self.updates[k]])
            else:
                results.append(Tensor.of_array(np.array(y)))
        return results

    def borrowed(self, numbers: Sequence[int]) -> list[int]:
        """No result shares memory with an input."""
        return []


def outcome(program: Program, traced: bool) -> Any:
    """All variables, whether they require a gradient, and the gradients; or the class of the error of the middle part."""
    rng = random.Random(program.seed)
    first = rng.randrange(3, 20)
    last = first + rng.randrange(2, 8)
    xs = [tracer.tensor(x, requires_grad=k < VARIABLES) for k, x in enumerate(leaves(program.seed))]

    def refused(step: Step, error: Exception) -> None:
        """Something else goes on in its place."""

    before = run(Program(program.seed, program.steps[:first]), list(xs), tracer.no_grad, refused)

    def middle() -> list[Any]:
        variables = list(before)
        for step in program.steps[first:last]:
            made = apply_step(step, variables, tracer.no_grad)
            if step.kind != "change":
                variables.append(made)
        return variables[len(before) :]

    function = trace(middle) if traced else middle
    try:
        variables = [*before, *[function(), function()][-1]]
    except tracer.TracerError as error:
        return type(error).__name__
    values = [np.array(v.detach()) for v in variables]
    flags = [v.requires_grad for v in variables]
    try:
        loss(variables, VARIABLES).backward()
    except tracer.GradError:
        return values, flags, None
    return values, flags, [x.grad for x in xs[:VARIABLES]]


def agree(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return np.allclose(np.asarray(one), np.asarray(other), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("first", [0, 40])
def test_programs_that_go_through_a_traced_function(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracer.tracing.programs.compiled_trace.Executable", Interpreted)
    monkeypatch.setattr("tracer.tracing.programs.fast_call.build_fast_call", lambda *_: None)
    counts: Counter[str] = Counter()
    for seed in range(first, first + 40):
        program = draw(seed, 30)
        eager, traced = outcome(program, False), outcome(program, True)
        if isinstance(eager, str) or isinstance(traced, str):
            # a Tensor beside its `detach()` is refused in a trace
            assert traced == eager or traced == "ArgumentError", str(program)
            counts["refused" if traced == eager else "memory is shared"] += 1
            continue
        assert eager[1] == traced[1], str(program)
        assert all(map(agree, eager[0], traced[0])), str(program)
        if eager[2] is not None:  # a trace has old values that are gone eagerly
            assert all(map(agree, eager[2], traced[2])), str(program)
            counts["equal"] += 1
    assert counts["equal"] >= 15, counts
    assert counts["memory is shared"] <= 8, counts
