"""Element types in ONNX, and what to do where an operator has no kernel for one.

ONNX's operators are defined for more element types than ONNX Runtime's CPU provider has kernels
for. Where it has none, the node runs in another type that gives the same result, and its result is
cast back. `kernels` is the list of what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnx import TensorProto

from tracer.onnx.kernels import has_kernel

ELEMENT_TYPE: dict[str, int] = {
    "bool": TensorProto.BOOL,
    "int8": TensorProto.INT8,
    "int16": TensorProto.INT16,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
    "uint16": TensorProto.UINT16,
    "uint32": TensorProto.UINT32,
    "uint64": TensorProto.UINT64,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
}

# As ONNX's schemas write types.
_SCHEMA_NAME = {"float32": "float", "float64": "double"}
FROM_SCHEMA = {f"tensor({_SCHEMA_NAME.get(d, d)})": d for d in ELEMENT_TYPE}

# Types that hold every value of a type, the cheapest first. Arithmetic that wraps around in the
# wide type and is cut down to the narrow one has wrapped around in the narrow one.
_WIDER = {
    "bool": ("uint8", "int32"),
    "int8": ("int32", "int64"),
    "uint8": ("int32", "int64"),
    "int16": ("int32", "int64"),
    "uint16": ("int32", "int64"),
    "int32": ("int64",),
    "uint32": ("int64",),
    "float16": ("float32",),
    "bfloat16": ("float32",),
    "float32": ("float64",),
}

# Operators whose result depends on the order of values. As int64, a uint64 keeps its bits but not
# its place, unless its highest bit is flipped.
_ORDERED = frozenset(("ArgMax", "ArgMin", "ReduceMax", "ReduceMin", "TopK"))
# Operators whose result is right modulo 2**64, or that only move values.
_MODULAR = frozenset(
    ("CumSum", "Einsum", "Gemm", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Trilu", "Where")
)


@dataclass(frozen=True, slots=True)
class Detour:
    """The element type in which a node runs instead; `flipped`: a uint64 as int64 with its highest
    bit flipped.
    """

    dtype: str
    flipped: bool = False


def detour(operator: str, parameter: str, dtype: str, allowed: frozenset[str]) -> Detour | None:
    """The type to run in: None where the type itself will do, or nothing else will either.

    `allowed`: what the schema permits.
    """

    def runs(candidate: str) -> bool:
        return candidate in allowed and has_kernel(operator, parameter, candidate)

    if runs(dtype):
        return None
    for wide in _WIDER.get(dtype, ()):
        if runs(wide):
            return Detour(wide)
    if dtype == "uint64" and runs("int64"):
        if operator in _ORDERED:
            return Detour("int64", flipped=True)
        if operator in _MODULAR:
            return Detour("int64")
    return None
