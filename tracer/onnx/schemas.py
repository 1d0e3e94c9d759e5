"""ONNX's own schemas, asked what an operator takes and gives at an opset.

Knows `onnx.defs`. Must not know the graph or the operators of this project.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import onnx

from ops.errors import ExportError
from tracer.onnx.dtypes import ELEMENT_TYPE, FROM_SCHEMA

# Outputs whose element type an attribute names, and what they are without it ("": like the first
# input).
_BY_ATTRIBUTE = {
    "Cast": ("to", ""),
    "Bernoulli": ("dtype", ""),
    "EyeLike": ("dtype", ""),
    "RandomNormal": ("dtype", "float32"),
    "RandomNormalLike": ("dtype", ""),
    "RandomUniform": ("dtype", "float32"),
    "RandomUniformLike": ("dtype", ""),
    "ConstantOfShape": ("value", "float32"),
}


@dataclass(frozen=True, slots=True)
class Schema:
    """What is asked of an operator's schema. `inputs` and `outputs` are type parameters or fixed
    element types.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    variadic: bool
    homogeneous: bool
    least: int
    allowed: Mapping[str, frozenset[str]]
    attributes: Mapping[str, int]

    def input_type(self, position: int) -> str:
        """The type parameter, or fixed element type, of an input."""
        if position >= len(self.inputs) and not self.variadic:
            raise ExportError(
                f"ONNX's {self.name} takes at most {len(self.inputs)} inputs, got {position + 1}"
            )
        return self.inputs[min(position, len(self.inputs) - 1)]


@cache
def schema(operator: str, opset: int) -> Schema:
    """The schema of an operator at an opset. Raises `ExportError` if it is not in that opset."""
    try:
        found = onnx.defs.get_schema(operator, opset, "")
    except onnx.defs.SchemaError:
        raise ExportError(_absent(operator, opset)) from None
    if found.deprecated:
        raise ExportError(f"ONNX's {operator} is deprecated at opset {opset}")
    last = found.inputs[-1] if found.inputs else None
    return Schema(
        operator,
        tuple(FROM_SCHEMA.get(p.type_str, p.type_str) for p in found.inputs),
        tuple(FROM_SCHEMA.get(p.type_str, p.type_str) for p in found.outputs),
        last is not None and last.option == onnx.defs.OpSchema.FormalParameterOption.Variadic,
        last is None or last.is_homogeneous,
        found.min_input,
        {
            c.type_param_str: frozenset(
                FROM_SCHEMA[t] for t in c.allowed_type_strs if t in FROM_SCHEMA
            )
            for c in found.type_constraints
        },
        {name: _number(a.type) for name, a in found.attributes.items()},
    )


def _number(kind: Any) -> int:
    """An attribute's kind as the number in protobufs; its type stub does not know that it is an
    enumeration.
    """
    return int(kind.value)


def _absent(operator: str, opset: int) -> str:
    versions = [
        s.since_version
        for s in onnx.defs.get_all_schemas_with_history()
        if s.name == operator and s.domain == ""
    ]
    if not versions:
        return f"ONNX has no operator {operator}"
    return f"ONNX has {operator} since opset {min(versions)}, the model is for opset {opset}"


def bind(found: Schema, dtypes: Sequence[str | None]) -> dict[str, str]:
    """The element type of each type parameter, from those of the inputs (None: left out)."""
    bound: dict[str, str] = {}
    for position, dtype in enumerate(dtypes):
        parameter = found.input_type(position)
        if dtype is None:
            continue
        if parameter not in found.allowed:
            if parameter in FROM_SCHEMA.values() and parameter != dtype:
                raise ExportError(
                    f"input {position} of ONNX's {found.name} must be {parameter}, got {dtype}"
                )
            continue
        if bound.setdefault(parameter, dtype) != dtype and found.homogeneous:
            raise ExportError(
                f"the inputs of ONNX's {found.name} must have one element type, got "
                f"{bound[parameter]} and {dtype}"
            )
    return bound


def output_dtypes(
    found: Schema, bound: Mapping[str, str], attributes: Mapping[str, Any], count: int
) -> tuple[str, ...]:
    """The element types of an operator's results."""
    result = []
    for position in range(count):
        parameter = found.outputs[min(position, len(found.outputs) - 1)]
        allowed = found.allowed.get(parameter, frozenset())
        only = next(iter(allowed)) if len(allowed) == 1 else parameter
        dtype = bound.get(parameter, only)
        if found.name in _BY_ATTRIBUTE and position == 0:
            attribute, default = _BY_ATTRIBUTE[found.name]
            given = attributes.get(attribute, default or next(iter(bound.values()), "float32"))
            if isinstance(given, int):  # the format's number of a type
                given = next((d for d, number in ELEMENT_TYPE.items() if number == given), "")
            dtype = given if isinstance(given, str) else given.dtype
        result.append(
            dtype if dtype in ELEMENT_TYPE else ""
        )  # not known: what an unknown type led to
    return tuple(result)
