"""Which kernels ONNX Runtime's CPU provider lacks: data, read from its registry (onnxruntime 1.32).

A key is an operator, with the schema's type parameter after a dot unless that is T. Listed are
element types that the schema has at some opset from 17 to 23 and the provider lacks. A test
compares this table with the registry of the installed runtime. Operators that are not here have all
their kernels.
"""

from __future__ import annotations

MISSING: dict[str, str] = {
    "Abs": "float16 bfloat16",
    "Acos": "float16 bfloat16 float64",
    "Acosh": "float16 bfloat16 float64",
    "Add": "float16 bfloat16",
    "ArgMax": "int16 uint16 uint32 uint64 float16 bfloat16",
    "ArgMin": "int16 uint16 uint32 uint64 float16 bfloat16",
    "Asin": "float16 bfloat16 float64",
    "Asinh": "float16 bfloat16 float64",
    "Atan": "float16 bfloat16 float64",
    "Atanh": "float16 bfloat16 float64",
    "AveragePool": "float16 bfloat16 float64",
    "BatchNormalization": "float16 bfloat16",
    "BatchNormalization.T1": "float16 bfloat16",
    "BatchNormalization.T2": "float16 bfloat16",
    "Ceil": "float16 bfloat16",
    "Clip": "int16 uint16 bfloat16",
    "Conv": "float16 bfloat16 float64",
    "ConvTranspose": "float16 bfloat16 float64",
    "Cos": "float16 bfloat16",
    "Cosh": "float16 bfloat16 float64",
    "CumSum": "uint32 uint64 float16 bfloat16",
    "DepthToSpace": "bool int16 int32 int64 uint16 uint32 uint64 float16 bfloat16",
    "Div": "float16 bfloat16",
    "Dropout": "float16 bfloat16",
    "Dropout.T1": "float16 bfloat16",
    "Einsum": "int8 int16 uint8 uint16 uint32 uint64 float16",
    "Elu": "float16 bfloat16 float64",
    "Equal": "float16 bfloat16",
    "Erf": "float16 bfloat16 float64",
    "Exp": "float16 bfloat16",
    "Expand": "bfloat16",
    "EyeLike.T1": "bool int8 int16 uint8 uint16 uint32 float16 bfloat16",
    "EyeLike.T2": "bool int8 int16 uint8 uint16 uint32 float16 bfloat16",
    "Floor": "float16 bfloat16",
    "Gelu": "float16 bfloat16 float64",
    "Gemm": "int32 int64 uint32 uint64 float16 bfloat16",
    "GlobalAveragePool": "float16 bfloat16 float64",
    "GlobalMaxPool": "float16 bfloat16 float64",
    "Greater": "float16 bfloat16",
    "GreaterOrEqual": "float16 bfloat16",
    "HardSigmoid": "float16 bfloat16 float64",
    "InstanceNormalization": "float16 bfloat16 float64",
    "IsNaN.T1": "bfloat16",
    "LayerNormalization.U": "bfloat16",
    "LeakyRelu": "float16 bfloat16 float64",
    "Less": "float16 bfloat16",
    "LessOrEqual": "float16 bfloat16",
    "Log": "float16 bfloat16",
    "LogSoftmax": "float16 bfloat16",
    "LpPool": "float16 bfloat16 float64",
    "MatMul": "float16 bfloat16",
    "Max": "int16 uint16 bfloat16",
    "MaxPool": "float16 bfloat16",
    "Mean": "float16 bfloat16 float64",
    "Min": "int16 uint16 bfloat16",
    "Mod": "bfloat16",
    "Mul": "float16 bfloat16",
    "Neg": "float16 bfloat16",
    "NonZero": "int8 int16 uint16 uint32 uint64 float16 bfloat16 float64",
    "PRelu": "int32 int64 uint32 uint64 float16 bfloat16 float64",
    "Pad": "int16 uint16 float16 bfloat16",
    "Pow": "float16 bfloat16",
    "Pow.T1": "int8 int16 uint8 uint16 uint32 uint64 float16 bfloat16",
    "RMSNormalization": "bfloat16",
    "RMSNormalization.V": "bfloat16",
    "Reciprocal": "float16 bfloat16",
    "ReduceL1": "uint32 uint64 float16 bfloat16",
    "ReduceL2": "uint32 uint64 float16 bfloat16",
    "ReduceLogSum": "uint32 uint64 float16 bfloat16",
    "ReduceLogSumExp": "uint32 uint64 float16 bfloat16",
    "ReduceMax": "uint32 uint64 float16 bfloat16",
    "ReduceMean": "uint32 uint64 float16 bfloat16",
    "ReduceMin": "uint32 uint64 float16 bfloat16",
    "ReduceProd": "uint32 uint64 float16 bfloat16",
    "ReduceSum": "uint32 uint64 float16 bfloat16",
    "ReduceSumSquare": "uint32 uint64 float16 bfloat16",
    "Relu": "int16 int64 float16 bfloat16",
    "Round": "bfloat16",
    "Selu": "float16 bfloat16 float64",
    "Sigmoid": "float16 bfloat16",
    "Sin": "float16 bfloat16",
    "Sinh": "float16 bfloat16 float64",
    "Softmax": "float16 bfloat16",
    "Softplus": "float16 bfloat16 float64",
    "Softsign": "float16 bfloat16 float64",
    "SpaceToDepth": "bool int16 int32 int64 uint16 uint32 uint64 float16 bfloat16",
    "Sqrt": "float16 bfloat16",
    "Sub": "float16 bfloat16",
    "Sum": "float16 bfloat16",
    "Tan": "float16 bfloat16 float64",
    "Tanh": "float16 bfloat16",
    "ThresholdedRelu": "float16 bfloat16 float64",
    "Tile": "float16 bfloat16",
    "TopK": "uint16 uint32 uint64 float16",
    "Trilu": "int8 int16 uint8 uint16 uint32 uint64 float16 bfloat16",
    "Where": "bool int16 uint16 uint64 float16 bfloat16",
}

# Kernels that are there, but give errors or wrong results. Sums and products of integers are taken
# in float64 and saturate: in int64 they reach further, and wrap around when cut down. Halves are
# not scattered with a reduction, bools have no extreme of nothing, and functions are made of
# operators that lack halves.
UNFIT: dict[str, str] = {
    "HardSwish": "float16 bfloat16",
    "Mish": "float16 bfloat16",
    "ReduceMax": "bool",
    "ReduceMin": "bool",
    "ReduceProd": "int32",
    "ReduceSum": "int32",
    "ScatterElements": "float16 bfloat16",
    "ScatterND": "float16 bfloat16",
}


def has_kernel(operator: str, parameter: str, dtype: str) -> bool:
    """Whether the provider runs an operator rightly with an element type for a type parameter."""
    key = operator if parameter == "T" else f"{operator}.{parameter}"
    return all(dtype not in table.get(key, "").split() for table in (MISSING, UNFIT))
