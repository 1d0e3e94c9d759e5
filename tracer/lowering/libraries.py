"""Which library computes what is no fused loop nest: one line of `LIBRARIES` for each compute kind.

Knows nodes, where values lie, and what a library's problems look like. Must not know how a library plans or what its rows do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from codegen.gemm import MatrixStrides, Problem
from codegen.runtime.library import Library, LibraryPlan
from codegen.targets.target import Target
from ops.compute import Contraction
from ops.types import Type
from tracer.ir.graph import Node
from tracer.lowering.layout import Buffer, Layout


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A library's plan and what its operands are, by the names that the plan gives them. `workspace`: the plan's own memory."""

    library: Library
    plan: LibraryPlan
    operands: Mapping[str, Layout]
    workspace: Buffer


@dataclass(frozen=True, slots=True)
class ByLibrary:
    """How nodes of a compute kind reach the target's library of that name. `problem(node, inputs, outputs)`, told where they lie,
    gives the library's problem and the layouts of its operands by name."""

    library: str
    problem: Callable[[Node, Sequence[Layout], Sequence[Layout]], tuple[Any, Mapping[str, Layout]]]


def library_call(
    target: Target, node: Node, inputs: Sequence[Layout], outputs: Sequence[Layout]
) -> LibraryCall:
    """The call of the target's library that computes a node."""
    entry = LIBRARIES[type(node.op.compute)]
    library = target.library(entry.library)
    problem, operands = entry.problem(node, inputs, outputs)
    plan = library.plan(problem)
    return LibraryCall(library, plan, operands, Buffer(Type("uint8", (plan.workspace,)), "work"))


def _matmul(
    node: Node, inputs: Sequence[Layout], outputs: Sequence[Layout]
) -> tuple[Problem, Mapping[str, Layout]]:
    (a, b), (c,) = inputs, outputs
    *batch, m, n = c.strided.shape

    def strides(layout: Layout) -> MatrixStrides:
        shape, steps = layout.strided.shape, layout.strided.strides
        own = tuple(0 if d == 1 else s for d, s in zip(shape[:-2], steps[:-2], strict=True))
        lead = (0,) * (len(batch) + 2 - len(shape))
        return MatrixStrides(steps[-2], steps[-1], lead + own)

    dtype, k = node.output.type.dtype, a.strided.shape[-1]
    problem = Problem(m, n, k, dtype, strides(a), strides(b), strides(c), tuple(batch))
    return problem, {"a": a, "b": b, "c": c}


LIBRARIES: dict[type, ByLibrary] = {Contraction: ByLibrary("matmul", _matmul)}
