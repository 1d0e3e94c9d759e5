"""The parts of a trace's graph have the numbers that their values have, in the trace and in the stages of a program."""

from __future__ import annotations

from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np

import tracer
from ops.types import Type
from tracer import trace
from tracer.functions.state_values import scalar
from tracer.ir.graph import GraphBuilder, Value
from tracer.tensors.tensor import Tensor
from tracer.tracing.arguments.signature import Call
from tracer.tracing.programs.compiled_trace import CompiledTrace
from tracer.tracing.programs.stages import cut
from tracer.tracing.recording.program_outputs import Numbered, ProgramOutputs
from tracer.tracing.recording.trace import record
from tracer.tracing.recording.trace_result import TraceResult


def recorded(function: Any, *args: Any) -> TraceResult:
    call = Call(args, {}, ("x", "y"))
    return record(function, call, call.classify(), "f", ())


def leaf() -> Tensor:
    return tracer.tensor(np.ones(2, np.float32), requires_grad=True)


def parts(found: Any) -> list[range]:
    return [getattr(found, field.name) for field in fields(found)]


def test_values_are_numbered_as_they_are_put_in() -> None:
    one, other, third = (Value(Type("float32", ())) for _ in range(3))
    values = Numbered()
    assert values.add([]) == range(0)
    assert values.add([one, other]) == range(2)
    assert values.add(iter([third])) == range(2, 3)
    assert list(values) == [one, other, third]
    found = ProgramOutputs(results=range(2), state=range(2, 4), arguments=range(4, 7))
    assert found.changed == range(2, 7) and not found.value_guards


SETUP: dict[str, Any] = {}


def everything(x: Tensor, y: Tensor) -> Any:
    """What `setup` has, changed in each way that has a part."""
    state, weight, scale = SETUP["state"], SETUP["weight"], scalar(SETUP["options"], "scale")
    state.add_(1)
    y.mul_(2)
    (weight * x).sum().backward()
    result = weight * x + y * scale
    own = tracer.ones(2)
    own.requires_grad = True
    own.grad = tracer.full(2, 5.0)
    return result + 1 if bool(x.sum() > 0) else result, own, x


def test_each_part_of_a_trace_is_where_its_record_says() -> None:
    SETUP["state"] = tracer.zeros(2)
    SETUP["weight"] = leaf()
    SETUP["options"] = {"scale": 2.0}
    arriving = leaf() * 3
    found = recorded(everything, arriving, tracer.ones(2))
    graph = found.graph
    for record_, values in ((found.inputs, graph.inputs), (found.outputs, graph.outputs)):
        ranges = parts(record_)
        assert [k for part in ranges for k in part] == list(range(len(values)))
        assert all(before.stop == after.start for before, after in pairwise(ranges))
    assert [graph.inputs[k] for k in found.inputs.captures] == [c.value for c in found.captures]
    assert len(found.inputs.scalars) == len(found.scalars) == 1
    assert [found.input_of_leaf[k] for k in (0, 1)] == list(found.inputs.arguments)
    outputs = found.outputs
    assert len(outputs.results) == 2 and len(outputs.state) == len(found.mutated) == 1
    assert len(outputs.arguments) == 1 and found.mutated_arguments == [1]
    assert [k for _, k in found.grads] == list(outputs.gradients) and len(outputs.gradients) == 1
    assert found.outgoing_gradients == [0] and len(outputs.outgoing_gradients) == 1
    assert found.result_grads == [1] and len(outputs.result_gradients) == 1
    assert found.gradients.graph is not None
    kept = found.gradients.graph.inputs[: len(outputs.residuals)]
    assert tuple(graph.outputs[k] for k in outputs.residuals) == kept
    assert [graph.outputs[k] for k in outputs.value_guards] == [g.value for g in found.value_guards]
    number = {id(c.object): k for k, c in enumerate(found.captures) if not c.is_grad}
    assert found.updates == {
        outputs.state.start: number[id(SETUP["state"])],
        outputs.arguments.start: found.input_of_leaf[1],
    }


def test_a_gradient_that_is_none_has_no_output() -> None:
    weight = leaf()

    def function(x: Any) -> Any:
        weight.grad = None
        return x + weight.detach()

    found = recorded(function, np.ones(2, np.float32))
    assert found.grads == [(weight, None)] and not found.outputs.gradients


def test_a_stage_says_what_its_outputs_are() -> None:
    builder = GraphBuilder()
    x = builder.input(Type("float32", (1000, 1000)))
    root = builder.Sqrt(x)
    positive = builder.ReduceAny(builder.Cast(root, to="bool"), axes=(0, 1), keepdims=False)
    graph = builder.build([builder.Mul(root, root), root, positive])
    early, late = cut(graph, range(2, 3), ())
    assert early.guards == range(1) and early.results == [1] and late.results == [0]
    assert parts(early.outputs) == [range(1), range(1, 2), range(2, 2)]
    assert [early.graph.outputs[k] for k in early.outputs.guards] == [positive]
    assert [early.graph.outputs[k] for k in early.outputs.results] == [root]
    assert late.reads == [(0, early.outputs.results.start)]
    (guarded, rest) = cut(builder.build([builder.Mul(root, root), positive]), range(1, 2), ())
    assert [guarded.graph.outputs[k] for k in guarded.outputs.handed_on] == [root]
    assert rest.reads == [(0, guarded.outputs.handed_on.start)]


def test_results_of_a_staged_program_are_those_of_the_graph() -> None:
    @trace
    def f(x: Any) -> Any:
        y = x * 2
        return (y + 1, y) if bool(y.sum() > 0) else (y - 1, y)

    for sign in (1.0, -1.0, 1.0):
        x = np.full(3, sign, np.float32)
        first, second = f(x)
        np.testing.assert_array_equal(first, 2 * x + sign)
        np.testing.assert_array_equal(second, 2 * x)
    compiled: CompiledTrace
    for compiled in next(iter(f._programs)):
        assert len(compiled.executable.results) == len(compiled.graph.outputs) - 1
        assert {r.kind for r in compiled.executable.results} == {"new"}


# ---- arguments -----------------------------------------------------------------------------------


def test_a_call_is_flattened_once_and_names_its_leaves() -> None:
    shared, other = np.ones(2), object()
    call = Call((shared, [1.5, {"k": shared}]), {"flag": True, "it": other}, ("x",))
    assert call.names == ["x", "argument1.0", "argument1.1.k", "flag", "it"]
    assert call.names is call.names and call.leaves[0] is shared
    signature = call.classify()
    assert [leaf.kind for leaf in signature] == ["array", "float", "alias", "static", "object"]
    assert signature[2].value == 0 and call.objects(signature) == {"it": other}
    assert call.classify({1})[1].kind == "static"
    assert call.numbers_of({"argument1", "flag"}) == [1, 2, 3]
    again = Call((shared, [1.5, {"k": shared}]), {"flag": True, "it": other}, ("x",))
    assert again.tree == call.tree and again.classify() == signature
    assert hash(again.classify()) == hash(signature)


def test_static_values_are_compared_with_their_class_and_others_by_identity() -> None:
    one, true, float_, negative = (Call((x,), {}).classify({0}) for x in (1, True, 1.0, -0.0))
    assert len({one, true, float_, negative, Call((0.0,), {}).classify({0})}) == 5
    assert Call((type,), {}).classify() == Call((type,), {}).classify()
    box = type("Box", (), {"__eq__": lambda *_: True, "__hash__": lambda _: 0})
    assert Call((box(),), {}).classify() != Call((box(),), {}).classify()
