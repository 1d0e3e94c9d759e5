"""Every operator of the table: compiled equals the reference, alone and fused with neighbours; no part falls back to it.

The first sample is taken in every element type, the others in one, between two neighbours that it fuses with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ops import samples
from ops.accuracy import difference_in_ulp
from ops.compute import Composite, Control, Host, Scalar
from ops.operator import Operator, Sample
from ops.table import TABLE
from ops.types import Type
from tracer.dispatch import run_reference
from tracer.execution import Executable
from tracer.graph import Graph, GraphBuilder, Value
from tracer.tensor import Tensor

OPERATORS = [
    pytest.param(op, id=op.name) for op in TABLE.values() if not isinstance(op.compute, Control)
]
COMMON = ("float32", "int64", "bool", "uint64")


def one(dtype: str) -> np.ndarray[Any, Any]:
    return np.ones((), Type(dtype).numpy)


def graph_of(
    op: Operator, types: list[Type], sample: Sample, neighbours: bool
) -> tuple[Graph, list[str]]:
    """The operator on inputs; with neighbours each operand and result is multiplied by a 1 that the compiler cannot see.

    Second: element types of those ones, which are further inputs.
    """
    builder = GraphBuilder(op.name)
    inputs = [builder.input(t) for t in types]
    ones: dict[str, Value] = {}

    def beside(v: Value) -> Value:
        if not neighbours:
            return v
        if v.type.dtype not in ones:
            ones[v.type.dtype] = builder.input(Type(v.type.dtype))
        result: Value = builder.Mul(v, ones[v.type.dtype])
        return result

    result = builder.emit(op, [beside(v) for v in inputs], sample.attrs)
    outputs = result if isinstance(result, tuple) else (result,)
    return builder.build([beside(v) for v in outputs]), list(ones)


def check(op: Operator, sample: Sample, dtype: str, neighbours: bool) -> None:
    arrays = list(samples.draw(sample, dtype))
    wanted = run_reference(op, list(arrays), op.normalize(sample.attrs))
    graph, ones = graph_of(op, [Type.of(a) for a in arrays], sample, neighbours)
    executable = Executable(graph, {})
    results = executable([Tensor.of_array(a) for a in [*arrays, *map(one, ones)]])
    for result, w in zip(results, wanted, strict=True):
        got = result.array
        off = difference_in_ulp(got, w)
        assert off <= op.ulp, (
            f"{op.name} {dtype} {sample.attrs} {[a.shape for a in arrays]}: {off} ulp\n{got}\n{w}"
        )
    for part in executable.plan().parts:
        assert part.kind in ("kernel", "library") or isinstance(op.compute, Host), part


def check_together(op: Operator, sample: Sample, dtypes: tuple[str, ...]) -> None:
    """All element types in one graph, and in one kernel: each result goes through a choice by the same mask, all True."""
    builder = GraphBuilder(op.name)
    drawn = {d: list(samples.draw(sample, d)) for d in dtypes}
    inputs = {d: [builder.input(Type.of(a)) for a in arrays] for d, arrays in drawn.items()}
    results = [builder.emit(op, inputs[d], sample.attrs) for d in dtypes]
    mask = builder.input(Type("bool", results[0].type.shape))
    graph = builder.build([builder.Where(mask, y, y) for y in results])
    executable = Executable(graph, {})
    tensors = [Tensor.of_array(a) for arrays in drawn.values() for a in arrays]
    everywhere = Tensor.of_array(np.ones(mask.type.shape, np.bool_))
    for d, result in zip(dtypes, executable([*tensors, everywhere]), strict=True):
        (wanted,) = run_reference(op, list(drawn[d]), op.normalize(sample.attrs))
        off = difference_in_ulp(result.array, wanted)
        assert off <= op.ulp, f"{op.name} {d} {sample.attrs}: {off} ulp\n{result.array}\n{wanted}"
    assert {part.kind for part in executable.plan().parts} <= {"kernel"}, "a part falls back"


@pytest.mark.parametrize("op", OPERATORS)
def test_compiled_equals_the_reference_in_every_element_type(op: Operator) -> None:
    sample = op.samples[0]
    dtypes = samples.tested_types(op, sample)
    types = [Type.of(a) for a in samples.draw(sample, dtypes[0])]
    results = op.infer(types, op.normalize(sample.attrs))
    same = len(results) == 1 and all(t.shape == results[0].shape for t in types)
    fusible = isinstance(op.compute, Scalar | Composite) and not op.random
    if fusible and same and len(dtypes) > 1:
        check_together(op, sample, dtypes)
        return
    for dtype in dtypes:
        check(op, sample, dtype, neighbours=False)


@pytest.mark.parametrize("op", OPERATORS)
def test_fused_with_neighbours_it_equals_the_reference(op: Operator) -> None:
    for sample in op.samples:
        dtypes = samples.tested_types(op, sample)
        check(op, sample, next((d for d in COMMON if d in dtypes), dtypes[0]), neighbours=True)
