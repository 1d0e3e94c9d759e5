"""Every operator of the table: compiled equals the reference, fused with neighbours and alone; no part falls back to it.

The first sample is taken in every element type, the others in one. Cases of equal shapes are one graph, in which lowering makes
one kernel of many; further samples of what only moves elements or is made of other operators are lowered as all programs are, and
run un-jitted. So the walk compiles hundreds of kernels, not thousands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from ops import samples
from ops.compute import Composite, Contraction, Control, Host, Reduction, Scalar
from ops.operator import Operator, Sample, run_reference
from ops.table import TABLE
from ops.types import Type
from tests.support.accuracy import difference_in_ulp
from tests.support.plain_programs import PlainProgram, same_bits
from tests.support.products import product_by_rule, within_rounding
from tracer.ir.graph import GraphBuilder, Value
from tracer.lowering import fuse
from tracer.runtime.executable import Executable
from tracer.tensors.tensor import Tensor

pytestmark = pytest.mark.cpu

Array = np.ndarray[Any, Any]
WALKED = [op for op in TABLE.values() if not isinstance(op.compute, Control)]
COMMON = ("float32", "int64", "bool", "uint64")
PRODUCTS = [op.reference for op in WALKED if isinstance(op.compute, Contraction)]
MOST = 48  # cases of one graph


@dataclass(frozen=True)
class Case:
    """An operator on a sample of an element type."""

    op: Operator
    sample: Sample
    dtype: str

    @property
    def arrays(self) -> list[Array]:
        """The sample's arrays, the same every time."""
        return list(samples.draw(self.sample, self.dtype))

    @property
    def shapes(self) -> tuple[tuple[Any, ...], ...]:
        """The shapes of operands and results."""
        types = [Type.of(a) for a in self.arrays]
        results = self.op.infer(types, self.op.normalize(self.sample.attrs))
        return tuple(t.shape for t in (*types, *results))

    def __str__(self) -> str:
        shapes = [a.shape for a in self.arrays]
        return f"{self.op.name} {self.dtype} {self.sample.attrs} {shapes}"


def common_type(op: Operator, sample: Sample) -> str:
    dtypes = samples.tested_types(op, sample)
    return next((d for d in COMMON if d in dtypes), dtypes[0])


def cases() -> Iterator[Case]:
    for op in WALKED:
        for number, sample in enumerate(op.samples):
            every = samples.tested_types(op, sample)
            for dtype in every if number == 0 else [common_type(op, sample)]:
                yield Case(op, sample, dtype)


class Neighbours:
    """A graph in which operands and results go through choices, all of which the compiler must expect to go either way.

    Values of one shape go by one mask, so that lowering sees kernels that read the same and makes one of them.
    """

    def __init__(self) -> None:
        self.builder = GraphBuilder("neighbours")
        self.arrays: dict[Value, Array] = {}
        self.masks: dict[Any, Value] = {}
        self.others: dict[str, Value] = {}

    def input(self, array: Array) -> Value:
        value = self.builder.input(Type.of(array))
        self.arrays[value] = array
        return value

    def beside(self, v: Value) -> Value:
        """v, chosen by a mask that is True everywhere."""
        shape, dtype = v.type.shape, v.type.dtype
        if shape not in self.masks:
            self.masks[shape] = self.input(np.ones(shape, np.bool_))  # type: ignore[arg-type]
        if dtype not in self.others:
            self.others[dtype] = self.input(np.ones((), v.type.numpy))
        chosen: Value = self.builder.Where(self.masks[shape], v, self.others[dtype])
        return chosen

    def add(self, case: Case) -> list[Value]:
        """The case's results."""
        operands = [self.beside(self.input(a)) for a in case.arrays]
        made = self.builder.emit(case.op, operands, case.sample.attrs)
        return [self.beside(v) for v in (made if isinstance(made, tuple) else (made,))]


def compare(case: Case, results: Sequence[Array]) -> None:
    wanted = run_reference(case.op, case.arrays, case.op.normalize(case.sample.attrs))
    for got, w in zip(results, wanted, strict=True):
        if case.op.reference in PRODUCTS:  # the machine's order of adding is not ours
            assert same_bits(got, product_by_rule(*case.arrays)), case
            assert within_rounding(got, w, *case.arrays), f"{case}\n{got}\n{w}"
            continue
        off = difference_in_ulp(got, w)
        assert off <= case.op.ulp, f"{case}: {off} ulp\n{got}\n{w}"


def is_host_call(names: Sequence[str]) -> bool:
    return all(isinstance(TABLE[name].compute, Host) for name in names)


def no_part_falls_back(executable: Executable) -> None:
    for part in executable.plan().parts:
        assert part.kind in ("kernel", "library") or is_host_call(part.operators), part


def check(op: Operator, sample: Sample, dtype: str) -> None:
    """The operator as a program of its own."""
    case, builder = Case(op, sample, dtype), GraphBuilder(op.name)
    result = builder.emit(op, [builder.input(Type.of(a)) for a in case.arrays], sample.attrs)
    executable = Executable(builder.build(result if isinstance(result, tuple) else (result,)), {})
    results = executable([Tensor.of_array(a) for a in case.arrays])
    compare(case, [r.array for r in results])
    no_part_falls_back(executable)


def batches(compiled: bool) -> list[Any]:
    """Cases by their shapes, with a name for each batch: those that are compiled, or the others."""
    groups: dict[Any, list[Case]] = {}
    for case in cases():
        groups.setdefault(case.shapes, []).append(case)
    found = []
    for shapes, group in groups.items():
        if any(map(must_compile, group)) is not compiled:
            continue
        name = ",".join("x".join(map(str, s)) or "0d" for s in shapes)
        for k in range(0, len(group), MOST):
            found.append(pytest.param(group[k : k + MOST], id=f"{name}-{k}" if k else name))
    return found


def must_compile(case: Case) -> bool:
    """Whether it is the first sample, or the operator has kernel text of its own; else its kernels are like others."""
    return case.sample is case.op.samples[0] or isinstance(case.op.compute, Scalar | Reduction)


@pytest.mark.parametrize("batch", batches(compiled=True))
def test_fused_with_neighbours_it_equals_the_reference(
    batch: list[Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuse, "MOST_NODES", 10 * MOST)  # a kernel for all that fuses
    graph, results = graph_of(batch)
    built = graph.builder.build([v for values in results for v in values])
    executable = Executable(built, {})
    found = executable([Tensor.of_array(graph.arrays[v]) for v in built.inputs])
    compare_all(batch, results, [r.array for r in found])
    no_part_falls_back(executable)


@pytest.mark.parametrize("batch", batches(compiled=False))
def test_fused_with_neighbours_and_run_unjitted_it_equals_the_reference(batch: list[Case]) -> None:
    """Other arrangements of the same kernels' elements: lowered as all programs are, and not compiled."""
    graph, results = graph_of(batch)
    built = graph.builder.build([v for values in results for v in values])
    arrays = [np.array(graph.arrays[v], order="C") for v in built.inputs]
    compare_all(batch, results, PlainProgram(built)(arrays))


def graph_of(batch: list[Case]) -> tuple[Neighbours, list[list[Value]]]:
    graph = Neighbours()
    return graph, [graph.add(case) for case in batch]


def compare_all(batch: list[Case], results: list[list[Value]], found: list[Array]) -> None:
    at = 0
    for case, values in zip(batch, results, strict=True):
        compare(case, found[at : at + len(values)])
        at += len(values)


def is_elementwise(op: Operator) -> bool:
    sample = op.samples[0]
    shapes = Case(op, sample, common_type(op, sample)).shapes
    return isinstance(op.compute, Scalar | Composite) and not op.random and len({*shapes}) == 1


OTHERS = [pytest.param(op, id=op.name) for op in WALKED if not is_elementwise(op)]


@pytest.mark.parametrize("op", OTHERS)
def test_alone_it_equals_the_reference(op: Operator) -> None:
    """What is no elementwise computation also as a program of its own, from operands to results."""
    check(op, op.samples[0], common_type(op, op.samples[0]))
