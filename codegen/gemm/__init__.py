"""Matrix multiplication: a problem becomes rows of a program over one kernel for each element type.

    MATMUL.plan(Problem(m, n, k, "float32", a, b, c))  ->  GemmPlan: rows of tasks, argument blocks
    row.kernel.load()                                  ->  the compiled kernel that a row calls

`problem` says what is computed and in which order sums are taken, `plan` how it is cut into tasks,
`text` are the loops, `emit_*` their parts in LLVM IR. Must not know graphs, Tensors and threads.
"""

from __future__ import annotations

from codegen.gemm.planner import Choice, GemmKernel, GemmPlan, plan
from codegen.gemm.problem import MatrixStrides, Problem
from codegen.runtime.library import Epilogue, Library

MATMUL = Library("matmul", plan, frozenset({Epilogue.ACCUMULATE}))

__all__ = ["MATMUL", "Choice", "GemmKernel", "GemmPlan", "MatrixStrides", "Problem", "plan"]
