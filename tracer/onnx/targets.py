"""Modules and traced functions as graphs to export: traced anew with symbolic sizes, state as inputs.

Knows recording and modules. Must not know the format.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ops.errors import ExportError
from tracer.ir.graph import Graph, GraphBuilder, Value
from tracer.nn.module import Module
from tracer.onnx.dynamic import NONE, Aliases, with_symbols
from tracer.tensors.grad_mode import no_grad
from tracer.tensors.tensor import Tensor
from tracer.tensors.view import part_of
from tracer.tracing.arguments.signature import Call, Leaf, leaf_of
from tracer.tracing.programs.guards import build_guard
from tracer.tracing.recording.trace import record
from tracer.tracing.recording.trace_records import NeedNumber
from tracer.tracing.recording.trace_result import ReturnedLeaf, TraceResult
from tracer.tracing.state.object_paths import Path
from tracer.tracing.traced_function import TracedFunction


@dataclass(frozen=True, slots=True)
class Exportable:
    """What is exported: a graph, values of its inputs, and names for its results.

    The graph's first inputs are the state (parameters and buffers, as in a state_dict); `initializers`
    are the values of that state by input name; `output_names` name the results: those of the function,
    then the new state.

    >>> exported = tracer.onnx.to_graph(tracer.nn.Linear(3, 4), tracer.zeros((2, 3)))
    >>> sorted(exported.initializers), exported.output_names
    (['bias', 'weight'], ('output',))
    """

    graph: Graph
    initializers: Mapping[str, Any] = field(default_factory=dict)
    output_names: tuple[str, ...] = ()


def module_graph(
    module: Module, args: Any, dynamic_shapes: Any, aliases: Aliases = NONE
) -> Exportable:
    """A module's forward in evaluation mode: state_dict first (tied entries once, unused ones kept), then the arguments."""
    values, keywords = _arguments(args, module.forward)
    training = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        with no_grad():
            recorded, names, paths = _record(
                module,
                type(module).__name__,
                values,
                keywords,
                dynamic_shapes,
                _parameters(module.forward, len(values)),
                aliases,
            )
    finally:
        for m, mode in training:
            m.__dict__["training"] = mode
    by_id = {id(c.object): c for c in recorded.captures}
    inputs: list[Value] = []
    input_names: list[str] = []
    initial: dict[str, Any] = {}
    seen: set[int] = set()
    for path, owner in module.named_modules():
        for group in (owner._parameters, owner._buffers):
            for name, tensor in group.items():
                if tensor is None or id(tensor) in seen or name in owner.__dict__["_transient"]:
                    continue
                seen.add(id(tensor))
                capture = by_id.get(id(tensor))
                inputs.append(capture.value if capture is not None else Value(tensor.type.strong()))
                input_names.append(f"{path}.{name}" if path else name)
                initial[input_names[-1]] = tensor.array
    for number, capture in enumerate(recorded.captures):
        if id(capture.object) not in seen:
            inputs.append(capture.value)
            place = paths.get(id(capture.object))
            name = place.name if place and place.name else f"captured{number}"
            while name in initial:
                name += "_"
            input_names.append(name)
            initial[name] = np.asarray(capture.object)
    return _finish(recorded, inputs, input_names, names, initial)


def function_graph(
    traced: TracedFunction[Any, Any], args: Any, dynamic_shapes: Any, aliases: Aliases = NONE
) -> Exportable:
    """A traced function, such as a whole training step: the state that it reads (parameters first, as in state_dict),
    numbers such as learning rates, then the arguments; results, then the new state in the same order, named `<name>.next`, as are
    arguments that it changes.

    State that the function changes, and numbers beside it, are inputs of the model; state that it only reads has its value as
    an initializer.
    """
    values, keywords = _arguments(args, traced._function)
    recorded, names, paths = _record(
        traced._function,
        traced._name,
        values,
        keywords,
        dynamic_shapes,
        _parameters(traced._function, len(values)),
        aliases,
    )
    order: dict[int, int] = {}
    for module in recorded.modules:
        for _, tensor in [*module.named_parameters(), *module.named_buffers()]:
            order.setdefault(id(tensor), len(order))
    captures = sorted(
        (c for c in recorded.captures if not c.is_grad),
        key=lambda c: order.get(id(c.object), len(order)),
    )
    if len(captures) != len(recorded.captures):
        raise ExportError(
            "the function accumulates into gradients from outside; clear them in it (zero_grad) to export it"
        )
    inputs: list[Value] = []
    input_names: list[str] = []
    initial: dict[str, Any] = {}

    changed = {id(t) for t in (*recorded.mutated, *recorded.replaced)}

    def add(value: Value, name: str, content: Any, is_input: bool) -> None:
        unique = name
        while unique in input_names:
            unique += "_"
        inputs.append(value)
        input_names.append(unique)
        if not is_input:
            initial[unique] = content

    for number, capture in enumerate(captures):
        path = paths.get(id(capture.object))
        name = path.name if path and path.name else f"captured{number}"
        add(capture.value, name, np.asarray(capture.object), id(capture.object) in changed)
    for scalar in recorded.scalars:
        path = paths.get(id(scalar.container))
        name = f"{path.name}.{scalar.key}" if path and path.name else scalar.key
        add(scalar.value, name, np.float64(scalar.container[scalar.key]), bool(changed))
    names_of = dict(zip((id(c.object) for c in captures), input_names, strict=False))
    return _finish(recorded, inputs, input_names, names, initial, names_of)


def _finish(
    recorded: TraceResult,
    inputs: list[Value],
    input_names: list[str],
    argument_names: list[str],
    initial: dict[str, Any],
    names_of: Mapping[int, str] | None = None,
) -> Exportable:
    """The whole. `names_of`: the names of state, if its new values are results too, and those of arguments that change."""
    graph = recorded.graph
    for k, leaf in zip(recorded.inputs.arguments, recorded.argument_leaves, strict=True):
        inputs.append(graph.inputs[k])
        name = argument_names[leaf]
        while name in input_names:
            name += "_"
        input_names.append(name)
    builder = GraphBuilder()
    program = recorded.outputs
    changed = {
        id(t): graph.outputs[k] for k, t in zip(program.state, recorded.mutated, strict=True)
    }
    state = {id(c.object): c.value for c in recorded.captures} | changed
    given = {leaf: graph.inputs[k] for leaf, k in recorded.input_of_leaf.items()}
    moved = {
        leaf: graph.outputs[k]
        for k, leaf in zip(program.arguments, recorded.mutated_arguments, strict=True)
    }
    given |= moved

    def value_of(output: ReturnedLeaf, what: str) -> Value | None:
        """Where a result is in the graph; None for what is no Tensor."""
        if output.kind == "program":
            return graph.outputs[output.number]
        if output.kind == "argument":
            return given[output.number]
        if not isinstance(output.object, Tensor | np.ndarray):
            return None
        view = getattr(output.object, "_view", None)
        if view is not None and id(view.base) in changed:
            return part_of(builder, view, changed[id(view.base)])
        if id(output.object) not in state:
            raise ExportError(f"{what} is a Tensor that the function only hands through")
        return state[id(output.object)]

    count = len(recorded.returned) - len(recorded.replaced)
    found = [
        (f"output{k}" if count > 1 else "output", value_of(output, f"result {k}"))
        for k, output in enumerate(recorded.returned[:count])
    ]
    if names_of is not None:
        new: dict[int, Value | None] = dict(changed)
        for before, output in zip(recorded.replaced, recorded.returned[count:], strict=True):
            if id(before) in names_of:
                new[id(before)] = value_of(output, f"the new {names_of[id(before)]}")
        found += [(f"{name}.next", new[key]) for key, name in names_of.items() if key in new]
        own = dict(zip(recorded.argument_leaves, input_names[-len(given) :], strict=True))
        found += [(f"{own[leaf]}.next", value) for leaf, value in moved.items()]
    outputs = [value for _, value in found if value is not None]
    names = [name for name, value in found if value is not None]
    if not outputs:
        raise ExportError(
            f"{graph.name} returns no Tensor and changes none; there is nothing to export"
        )
    nodes = (*graph.nodes, *builder.nodes)
    whole = Graph(tuple(inputs), nodes, tuple(outputs), tuple(input_names), graph.name)
    return Exportable(whole, initial, tuple(names))


def _arguments(args: Any, function: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments. A dict at the end holds keywords, unless the function takes it as an argument only."""
    if args is None:
        raise ExportError("example arguments are needed: the model is traced with them")
    values = tuple(args) if isinstance(args, tuple | list) else (args,)
    if values and isinstance(values[-1], dict):
        keywords = values[-1]
        named = all(isinstance(k, str) for k in keywords)
        if named and (_takes(function, values[:-1], keywords) or not _takes(function, values, {})):
            return values[:-1], keywords
    return values, {}


def _takes(function: Any, values: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    try:
        inspect.signature(function).bind(*values, **keywords)
    except (TypeError, ValueError):
        return False
    return True


def _parameters(function: Any, count: int) -> tuple[str, ...]:
    """The names of so many positional arguments; those of `*xs` are xs.0, xs.1 ..."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
    return (*names, *(f"{name}.{k}" for name in rest for k in range(count - len(names))))


def _record(
    function: Any,
    name: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dynamic_shapes: Any,
    parameters: tuple[str, ...],
    aliases: Aliases,
) -> tuple[TraceResult, list[str], dict[int, Path]]:
    call = Call(args, kwargs, parameters)
    signature = [leaf_of(x) for x in call.leaves]
    heads = [parameters[k] if k < len(parameters) else f"argument{k}" for k in range(len(args))]
    signature = with_symbols(signature, call.names, [*heads, *kwargs], dynamic_shapes, aliases)
    recorded = _traced(function, call, signature, name)
    _, paths, _ = build_guard(function, recorded, call.objects(signature))
    return recorded, call.names, paths


def _traced(function: Any, call: Call, signature: list[Leaf], name: str) -> TraceResult:
    """The trace. A float that decides what the function does is part of the model, with its value."""
    while True:
        try:
            return record(function, call, signature, name)
        except NeedNumber as need:
            signature[need.leaf] = leaf_of(call.leaves[need.leaf], static=True)
