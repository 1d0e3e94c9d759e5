"""Matrix multiplication: a problem becomes rows of a program over one kernel for each element type.

    plan(Problem(m, n, k, "float32", a, b, c))  ->  GemmPlan: rows of tasks, argument blocks
    kernel(row.kernel)                          ->  the compiled kernel that a row calls

`problem` says what is computed and in which order sums are taken, `plan` how it is cut into tasks,
`text` are the loops, `emit_*` their parts in LLVM IR, `plain` the same parts in NumPy. Knows
nothing of graphs, Tensors and threads.
"""

from __future__ import annotations

from codegen.gemm.compiled import kernel
from codegen.gemm.planner import Address, Choice, GemmKernel, GemmPlan, Row, plan
from codegen.gemm.problem import Layout, Problem

__all__ = [
    "Address",
    "Choice",
    "GemmKernel",
    "GemmPlan",
    "Layout",
    "Problem",
    "Row",
    "kernel",
    "plan",
]
