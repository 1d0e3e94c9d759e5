"""A graph as an ONNX model: each operator's own ONNX form, applied node by node.

Knows the graph and drives the builder. No operator is named here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from ops.errors import ExportError, TracerError
from ops.operator import Application, ArrayData, Expanded, Rule, Unsupported
from ops.types import Type, dtype_name, short
from tracer.ir.graph import NOWHERE, Graph, Node, Value
from tracer.ir.printer import names
from tracer.ir.symbols import places
from tracer.onnx.builder import OnnxBuilder
from tracer.onnx.expand import expand
from tracer.onnx.model import build_model
from tracer.onnx.naming import Names
from tracer.onnx.sizes import Sizes
from tracer.onnx.values import Initializer, OnnxValue, Subgraph

_HALF = ("float16", "bfloat16")


def export_graph(
    graph: Graph,
    *,
    opset: int,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    initializers: Mapping[str, Any] | None = None,
    custom_opsets: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """The graph as a model. See `tracer.onnx.export_graph`."""
    exporter = _Exporter(expand(graph), opset, input_names, output_names, initializers or {})
    exporter.g.custom_opsets = dict(custom_opsets or {})
    return exporter.run()


class _Exporter:
    def __init__(
        self,
        graph: Graph,
        opset: int,
        input_names: Sequence[str] | None,
        output_names: Sequence[str] | None,
        initializers: Mapping[str, Any],
    ) -> None:
        self.graph = graph
        self.g = OnnxBuilder(opset)
        self.g.export_block = self._block
        self.names = Names()
        self.prefix = ""  # of the names in the block at hand
        self.known: dict[Value, OnnxValue] = {}
        self.output_names = _checked_names("output", output_names, len(graph.outputs))
        self.inputs, self.parameters = self._inputs(input_names, initializers)
        # Names of results that nodes give; where one is returned twice, the first name.
        self.wanted: dict[Value, str] = {}
        for value, name in zip(graph.outputs, self.output_names, strict=False):
            self.wanted.setdefault(value, name)
        values = [self.known[v] for v in graph.inputs]
        self.g.sizes = Sizes(self.g, values, places([v.type for v in graph.inputs]))

    def _inputs(
        self, input_names: Sequence[str] | None, initializers: Mapping[str, Any]
    ) -> tuple[list[OnnxValue], list[Initializer]]:
        graph = self.graph
        given = _checked_names("input", input_names, len(graph.inputs)) or graph.input_names
        printed = names(graph)
        chosen = [n or printed[v] for v, n in zip(graph.inputs, given, strict=True)]
        if input_names is None and len(set(chosen)) != len(chosen):
            chosen = [printed[v] for v in graph.inputs]
        twice = [n for n in self.output_names if n in chosen]
        if twice:
            raise ExportError(
                f"output_names has {twice[0]!r}, which is the name of an input; values of a model have different names"
            )
        self.names.reserve((*chosen, *self.output_names))
        unknown = [n for n in initializers if n not in chosen]
        if unknown:
            raise ExportError(
                f"there is no input {unknown[0]!r} to initialise; there are: {', '.join(chosen)}"
            )
        inputs, parameters = [], []
        for value, name in zip(graph.inputs, chosen, strict=True):
            result = OnnxValue(value.type.dtype, value.type.shape, name)
            self.known[value] = result
            if name in initializers:
                parameters.append(_initializer(result, initializers[name], value.type))
            else:
                inputs.append(result)
        return inputs, parameters

    def run(self) -> onnx.ModelProto:
        label = names(self.graph)
        self._nodes(self.graph, label)
        outputs = self._outputs(label)
        self.g.nodes = self.g.head + self.g.nodes
        self.names.head(self.g.head, self.g.initializers.values())
        shown = [self.known[v] for node in self.graph.nodes for v in node.outputs]
        return build_model(
            self.g,
            self.graph.name,
            self.inputs,
            outputs,
            [*self.parameters, *self.g.initializers.values()],
            shown,
        )

    # ---- results ---------------------------------------------------------------------------------

    def _outputs(self, label: Mapping[Value, str]) -> list[OnnxValue]:
        """The results under their names: through Identity where they are inputs, constants, or
        returned twice.
        """
        made = {v for node in self.g.nodes for v in node.outputs}
        results: list[OnnxValue] = []
        for position, value in enumerate(self.graph.outputs):
            x = self.known[value]
            wanted = self.output_names[position] if self.output_names else ""
            if x not in made or x in results or (wanted and x.name != wanted):
                self.g.origin = NOWHERE
                x = self.g.op("Identity", x)
                x.name = wanted or self.names.unique(f"{label[value]}_output")
            x.shape = value.type.shape
            results.append(x)
        return results

    # ---- nodes -----------------------------------------------------------------------------------

    def _nodes(self, graph: Graph, label: Mapping[Value, str]) -> None:
        outer = self.prefix
        for node in graph.nodes:
            first = outer + (label[node.output] if node.outputs else node.op.name)
            start, self.g.origin, self.prefix = len(self.g.nodes), node.origin, f"{first}."
            try:
                results = self._results(node)
            except TracerError as error:
                raise _located(node, error) from error
            made = {v for n in self.g.nodes[start:] for v in n.outputs}
            for value, result in zip(node.outputs, results, strict=True):
                self.known[value] = result
                if result.shape is None:
                    result.shape = value.type.shape
                if not result.name:
                    wanted = self.wanted.get(value) if result in made else None
                    result.name = wanted or self.names.unique(outer + label[value])
            self.names.rest(self.g.nodes[start:], first)
        self.prefix = outer

    def _results(self, node: Node) -> tuple[OnnxValue, ...]:
        rule = node.op.onnx
        if isinstance(rule, Unsupported):
            raise ExportError(f"it cannot be exported to ONNX: {rule.reason}")
        inputs = tuple(self.known[v] for v in node.inputs)
        if isinstance(rule, str):
            results = self.g.op(rule, *inputs, outputs=len(node.outputs), **node.attrs)
            return results if isinstance(results, tuple) else (results,)
        assert not isinstance(rule, Expanded)  # there is none left
        return self._by_rule(rule, node, inputs)

    def _by_rule(
        self, rule: Rule, node: Node, inputs: tuple[OnnxValue, ...]
    ) -> tuple[OnnxValue, ...]:
        g, start, detours = self.g, len(self.g.nodes), self.g.detours
        results = _apply(rule, g, node, inputs)
        for x, v in zip(results, node.outputs, strict=True):
            x.dtype = (
                x.dtype or v.type.dtype
            )  # of an operator of another domain: what the graph says
        if not node.blocks and g.detours != detours and any(x.dtype in _HALF for x in inputs):
            # Half types are computed in float32 and rounded once, not at each node of the rule.
            del g.nodes[start:]
            wide = tuple(g.op("Cast", x, to="float32") if x.dtype in _HALF else x for x in inputs)
            results = _apply(rule, g, node, wide)
        return tuple(
            x if x.dtype == v.type.dtype else g.op("Cast", x, to=v.type.dtype)
            for x, v in zip(results, node.outputs, strict=True)
        )

    def _block(self, block: Graph, inputs: Sequence[OnnxValue]) -> Subgraph:
        outer, self.g.nodes = self.g.nodes, []
        origin, prefix = self.g.origin, self.prefix
        known, self.known = self.known, dict(zip(block.inputs, inputs, strict=True))
        self.prefix = self.names.numbered(f"{prefix}block") + "."
        try:
            self._nodes(block, names(block))
            made = {v for node in self.g.nodes for v in node.outputs}
            outputs: list[OnnxValue] = []
            for position, value in enumerate(block.outputs):
                x = self.known[value]
                if x not in made or x in outputs:
                    x = self.g.op("Identity", x)
                    x.name = self.names.unique(f"{self.prefix}output_{position}")
                x.shape = value.type.shape
                outputs.append(x)
            return Subgraph(self.g.nodes, tuple(outputs), self.prefix[:-1])
        finally:
            self.g.nodes, self.g.origin, self.prefix, self.known = outer, origin, prefix, known


def _apply(
    rule: Rule, g: OnnxBuilder, node: Node, inputs: tuple[OnnxValue, ...]
) -> tuple[OnnxValue, ...]:
    results = rule(g, Application(inputs, node.outputs, node.attrs, blocks=node.blocks))
    results = tuple(results) if isinstance(results, tuple | list) else (results,)
    if len(results) != len(node.outputs):
        raise ExportError(
            f"its ONNX rule gave {len(results)} values instead of {len(node.outputs)}"
        )
    return results


def _checked_names(what: str, given: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if given is None:
        return ()
    result = tuple(given)
    if len(result) != count or not all(isinstance(n, str) and n for n in result):
        raise ExportError(f"{what}_names must be {count} names, one for each {what}, got {result}")
    if len(set(result)) != len(result):
        twice = next(n for n in result if result.count(n) > 1)
        raise ExportError(f"{what}_names has {twice!r} twice")
    return result


def _initializer(value: OnnxValue, given: Any, type_: Type) -> Initializer:
    array = np.asarray(given)
    fits = len(array.shape) == type_.rank and all(
        not isinstance(d, int) or d == size
        for d, size in zip(type_.shape, array.shape, strict=False)
    )
    if dtype_name(array.dtype) != type_.dtype or not fits:
        raise ExportError(
            f"the initial value of {value.name} must be {short(type_)}, got "
            f"{dtype_name(array.dtype)}{list(array.shape)}"
        )
    data = ArrayData.of(array)
    return Initializer(value, data.data, data.shape)


def _located(node: Node, error: TracerError) -> ExportError:
    """The error with operator and user's line, unless a node in a block gave them already."""
    if isinstance(error, ExportError) and error.__cause__ is not None:
        return error
    at = f" (at {node.origin.source})" if node.origin.source else ""
    scope = f" in {node.origin.scope}" if node.origin.scope else ""
    return ExportError(f"{node.op.name}{scope}: {error}{at}")
