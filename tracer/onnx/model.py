"""The finished model as ONNX's protobufs.

Knows the format's records only. Deterministic: the same values and nodes give the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto

from ops.dims import Dim
from ops.errors import ExportError
from ops.operator import ArrayData
from tracer.onnx.builder import OnnxBuilder
from tracer.onnx.dtypes import ELEMENT_TYPE
from tracer.onnx.schemas import schema
from tracer.onnx.values import Initializer, OnnxNode, OnnxValue, Subgraph

# Protobuf cannot write more.
_MOST_BYTES = (1 << 31) - 1
_METADATA_SINCE_IR = 10


def build_model(
    g: OnnxBuilder,
    name: str,
    inputs: Sequence[OnnxValue],
    outputs: Sequence[OnnxValue],
    initializers: Sequence[Initializer],
    shown: Sequence[OnnxValue],
) -> ModelProto:
    """The model of a builder's nodes. `shown` are the values whose types are written down."""
    size = sum(len(i.data) for i in initializers)
    if size > _MOST_BYTES:
        raise ExportError(
            f"the model would have {size / 2**30:.1f} GiB of parameters and constants, the format "
            "takes 2; export without parameters (export_params=False)"
        )
    nodes = _needed(g.nodes, outputs)
    used = _used_values(nodes, outputs)
    ir_version = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", g.opset)])
    model = ModelProto(ir_version=ir_version, producer_name="tracer")
    model.opset_import.append(onnx.helper.make_opsetid("", g.opset))
    for domain in sorted(_domains(nodes) - {""}):
        model.opset_import.append(onnx.helper.make_opsetid(domain, g.custom_opsets.get(domain, 1)))
    graph = model.graph
    graph.name = name or "graph"
    writer = _Writer(g.opset, ir_version >= _METADATA_SINCE_IR)
    graph.input.extend(_value_info(v) for v in inputs)
    graph.output.extend(_value_info(v) for v in outputs)
    graph.initializer.extend(_tensor(i) for i in initializers if i.value in used)
    described = {*inputs, *outputs, *(i.value for i in initializers)}
    made = {v for node in nodes for v in node.outputs}
    graph.value_info.extend(
        _value_info(v) for v in dict.fromkeys(shown) if v in made and v not in described
    )
    graph.node.extend(writer.node(node) for node in nodes)
    return model


def _needed(nodes: Sequence[OnnxNode], outputs: Sequence[OnnxValue]) -> list[OnnxNode]:
    """The nodes that results depend on: rules that were tried again leave others behind."""
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):
        if any(v in needed for v in node.outputs):
            kept.append(node)
            needed |= _read(node)
    kept.reverse()
    return kept


def _domains(nodes: Sequence[OnnxNode]) -> set[str]:
    """The domains of the operators, those in blocks included."""
    found: set[str] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        found.add(node.domain)
        for attribute in node.attributes.values():
            if isinstance(attribute, Subgraph):
                pending += attribute.nodes
    return found


def _read(node: OnnxNode) -> set[OnnxValue]:
    """What a node and the blocks in it read."""
    read = {x for x in node.inputs if x is not None}
    for attribute in node.attributes.values():
        if isinstance(attribute, Subgraph):
            read.update(attribute.outputs)
            for inner in attribute.nodes:
                read |= _read(inner)
    return read


def _used_values(nodes: Sequence[OnnxNode], outputs: Sequence[OnnxValue]) -> set[OnnxValue]:
    return set(outputs).union(*(_read(node) for node in nodes))


def _tensor(initializer: Initializer) -> TensorProto:
    value = initializer.value
    return TensorProto(
        name=value.name,
        dims=initializer.shape,
        data_type=ELEMENT_TYPE[value.dtype],
        raw_data=initializer.data,
    )


def _value_info(value: OnnxValue) -> ValueInfoProto:
    info = ValueInfoProto(name=value.name)
    tensor = info.type.tensor_type
    tensor.elem_type = ELEMENT_TYPE[value.dtype]
    tensor.shape.SetInParent()
    for size in value.shape or ():
        dimension = tensor.shape.dim.add()
        if isinstance(size, Dim):
            dimension.dim_param = str(size)
        else:
            dimension.dim_value = size
    return info


def _kind(key: str, value: Any) -> int:
    """What an attribute without a schema is, by its ending: an integer, or integers ..."""
    single, several = {
        "_i": (AttributeProto.INT, AttributeProto.INTS),
        "_f": (AttributeProto.FLOAT, AttributeProto.FLOATS),
        "_s": (AttributeProto.STRING, AttributeProto.STRINGS),
        "_t": (AttributeProto.TENSOR, AttributeProto.TENSORS),
    }[key[-2:]]
    return several if isinstance(value, tuple | list) else single


class _Writer:
    def __init__(self, opset: int, metadata: bool) -> None:
        self.opset = opset
        self.metadata = metadata

    def node(self, node: OnnxNode) -> NodeProto:
        origin = node.origin
        name = f"{node.operator}.{node.outputs[0].name}" if node.outputs else node.operator
        result = NodeProto(
            op_type=node.operator,
            domain=node.domain,
            name=f"{origin.scope}/{name}" if origin.scope else name,
            input=["" if x is None else x.name for x in node.inputs],
            output=[v.name for v in node.outputs],
        )
        if origin.source:
            result.doc_string = f"gradient of {origin.source}" if origin.gradient else origin.source
        if self.metadata:
            facts = {
                "scope": origin.scope,
                "source": origin.source,
                "gradient": "true" if origin.gradient else "",
            }
            for key, value in facts.items():
                if value:
                    result.metadata_props.add(key=key, value=value)
        if node.domain:
            attributes = [(k[:-2], v, _kind(k, v)) for k, v in node.attributes.items()]
        else:
            kinds = schema(node.operator, self.opset).attributes
            attributes = [(k, v, kinds[k]) for k, v in node.attributes.items()]
        for key, value, kind in sorted(attributes, key=lambda a: a[0]):
            result.attribute.append(self._attribute(key, value, kind))
        return result

    def _attribute(self, name: str, value: Any, kind: int) -> AttributeProto:
        """An attribute in the type that the schema says."""
        if isinstance(value, str) and value in ELEMENT_TYPE and kind == AttributeProto.INT:
            value = ELEMENT_TYPE[value]
        result = AttributeProto(name=name, type=AttributeProto.AttributeType.Name(kind))
        try:
            if kind == AttributeProto.INT:
                result.i = int(value)
            elif kind == AttributeProto.FLOAT:
                result.f = float(np.float32(value))
            elif kind == AttributeProto.STRING:
                result.s = value.encode()
            elif kind == AttributeProto.INTS:
                result.ints.extend(int(v) for v in value)
            elif kind == AttributeProto.FLOATS:
                result.floats.extend(float(np.float32(v)) for v in value)
            elif kind == AttributeProto.STRINGS:
                result.strings.extend(v.encode() for v in value)
            elif kind == AttributeProto.TENSOR:
                data = value if isinstance(value, ArrayData) else ArrayData.of(np.asarray(value))
                result.t.CopyFrom(
                    TensorProto(
                        dims=data.shape, data_type=ELEMENT_TYPE[data.dtype], raw_data=data.data
                    )
                )
            elif kind == AttributeProto.GRAPH and isinstance(value, Subgraph):
                result.g.CopyFrom(self._subgraph(value))
            else:
                raise ExportError(f"the attribute {name} is of a kind that is not exported")
        except (TypeError, ValueError, AttributeError) as error:
            if isinstance(error, ExportError):
                raise
            raise ExportError(f"the attribute {name} cannot be {value!r}") from None
        return result

    def _subgraph(self, block: Subgraph) -> GraphProto:
        graph = GraphProto(name=block.name)
        graph.node.extend(self.node(node) for node in block.nodes)
        graph.output.extend(_value_info(v) for v in block.outputs)
        return graph
