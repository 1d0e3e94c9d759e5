"""Every operator of the table, every sample and element type: compiled equals the reference, no part falls back to it."""

from __future__ import annotations

import numpy as np
import pytest

from ops.compute import Host, Control
from ops.operator import Operator, Sample
from ops.table import TABLE
from ops.types import DTYPES, Type, is_floating, numpy_dtype
from tests.drawing import draw, dtypes_of, same_within
from tracer.execution import Executable
from tracer.graph import GraphBuilder
from tracer.tensor import Tensor
from tracer.dispatch import run_reference

CASES = [
    pytest.param(op, id=op.name)
    for op in TABLE.values()
    if not isinstance(op.compute, Control)
]


def compiled(op: Operator, arrays: list[np.ndarray], sample: Sample) -> tuple[list[np.ndarray], Executable]:
    builder = GraphBuilder(op.name)
    values = [builder.input(Type.of(a)) for a in arrays]
    result = builder.emit(op, values, sample.attrs)
    outputs = result if isinstance(result, tuple) else (result,)
    executable = Executable(builder.build(outputs), {})
    return [t.array for t in executable([Tensor.of_array(a) for a in arrays])], executable


@pytest.mark.parametrize("op", CASES)
def test_compiled_equals_the_reference(op: Operator) -> None:
    rng = np.random.default_rng(0)
    for sample in op.samples:
        for dtype in dtypes_of(op, sample):
            arrays = draw(sample, dtype, rng)
            wanted = run_reference(op, list(arrays), op.normalize(sample.attrs))
            got, executable = compiled(op, arrays, sample)
            for g, w in zip(got, wanted, strict=True):
                assert g.dtype == w.dtype and g.shape == w.shape, (dtype, sample)
                assert same_within(g, w, op.ulp), (op.name, dtype, sample.attrs, [a.shape for a in arrays], g, w)
            for part in executable.plan().parts:
                assert part.kind in ("kernel", "library") or isinstance(op.compute, Host), part
