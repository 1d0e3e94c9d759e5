"""What is to be multiplied: sizes, strides and element type, and the one form in which equal
problems look alike.

Knows no machine, no kernel and no threads. C[e, i, j] = sum over k of A[e, i, k] * B[e, k, j] for
each batch entry e.

The order of a sum is fixed by k alone: k is cut into blocks of `k_blocks`, each block is one chain
of multiply-adds from zero in order of k, and the blocks' sums are added in order. Integers wrap;
bool is "or" of "and". float16 and bfloat16 are multiplied and summed in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from codegen.gemm.element import ELEMENTS, Element
from codegen.vector.elements import WIDTH

# Most k's in one chain: bounds the error of long sums, and a panel of B fits a first-level cache.
K_BLOCK = 256


@dataclass(frozen=True, slots=True)
class MatrixStrides:
    """Strides of a matrix in elements: from row to row, from column to column, and along each batch
    axis. 0 repeats.
    """

    row: int
    column: int
    batch: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """m x k times k x n, for each entry of `batch`. With `accumulate`, the (rounded) product is
    added to C: `Epilogue.ACCUMULATE`.
    """

    m: int
    n: int
    k: int
    dtype: str
    a: MatrixStrides
    b: MatrixStrides
    c: MatrixStrides
    batch: tuple[int, ...] = ()
    accumulate: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in ELEMENTS:
            raise TypeError(f"matmul: expected a dtype of {', '.join(ELEMENTS)}; got {self.dtype}")
        if min(self.m, self.n, self.k, *self.batch) < 0:
            raise ValueError(
                f"matmul: sizes cannot be negative: m={self.m} n={self.n} k={self.k} "
                f"batch={self.batch}"
            )
        for name in "abc":
            strides = getattr(self, name).batch
            if len(strides) != len(self.batch):
                raise ValueError(
                    f"matmul: expected {len(self.batch)} batch strides of {name}, one for each "
                    f"of {self.batch}; got {strides}"
                )

    @property
    def element(self) -> Element:
        """How the dtype is computed on."""
        return ELEMENTS[self.dtype]

    @property
    def empty(self) -> bool:
        """Whether C has no element."""
        return 0 in (self.m, self.n, *self.batch)


def k_blocks(k: int) -> tuple[int, int]:
    """Length of a block of k and how many there are. They are about equal, and whole vectors."""
    k = max(1, k)
    length = ceil_div(ceil_div(k, ceil_div(k, K_BLOCK)), WIDTH) * WIDTH
    return length, ceil_div(k, length)


def ceil_div(x: int, y: int) -> int:
    """x / y rounded up."""
    return -(-x // y)


def canonical(problem: Problem) -> tuple[Problem, bool]:
    """The same products with the fewest batch axes, and with the columns of C contiguous. C must
    have no empty size.

    Second: whether A and B have changed places, as they do to compute C.T = B.T A.T.
    """
    p = _merge_batch(problem)
    while (folded := _fold_batch(p)) is not None and any(_contiguous(folded)):
        p = folded
    rows, columns = _contiguous(p)
    turned = columns and (p.n == 1 or not rows)
    if not (rows or columns):
        raise ValueError(
            "matmul: expected a result whose rows or columns are contiguous; got strides of "
            f"{problem.c.row} and {problem.c.column} elements. Multiply into a contiguous array "
            "and copy"
        )
    return (_transpose(p) if turned else p), turned


def _contiguous(p: Problem) -> tuple[bool, bool]:
    """Whether the rows of C are contiguous, whether its columns are."""
    return p.c.column == 1 or p.n == 1, p.c.row == 1 or p.m == 1


def _merge_batch(p: Problem) -> Problem:
    """Drop batch axes of one entry; join neighbours over which every operand steps evenly."""
    axes: list[tuple[int, tuple[int, ...]]] = []
    for size, *strides in zip(p.batch, p.a.batch, p.b.batch, p.c.batch, strict=True):
        if size == 1:
            continue
        if axes and axes[-1][1] == tuple(size * s for s in strides):
            size *= axes.pop()[0]
        axes.append((size, tuple(strides)))
    return _with_batch(p, axes)


def _with_batch(p: Problem, axes: Sequence[tuple[int, tuple[int, ...]]]) -> Problem:
    a, b, c = (
        replace(layout, batch=tuple(strides[i] for _, strides in axes))
        for i, layout in enumerate((p.a, p.b, p.c))
    )
    return replace(p, a=a, b=b, c=c, batch=tuple(size for size, _ in axes))


def _fold_batch(p: Problem) -> Problem | None:
    """The last batch axis as more rows where all its entries share B, or as more columns where they
    share A.
    """
    if not p.batch:
        return None
    size = p.batch[-1]
    a, b, c = p.a.batch[-1], p.b.batch[-1], p.c.batch[-1]
    axes = list(zip(p.batch, zip(p.a.batch, p.b.batch, p.c.batch, strict=True), strict=True))[:-1]
    if b == 0 and (p.m == 1 or (a, c) == (p.a.row * p.m, p.c.row * p.m)):
        if p.m == 1:
            p = replace(p, a=replace(p.a, row=a), c=replace(p.c, row=c))
        return _with_batch(replace(p, m=p.m * size), axes)
    if a == 0 and (p.n == 1 or (b, c) == (p.b.column * p.n, p.c.column * p.n)):
        if p.n == 1:
            p = replace(p, b=replace(p.b, column=b), c=replace(p.c, column=c))
        return _with_batch(replace(p, n=p.n * size), axes)
    return None


def _transpose(p: Problem) -> Problem:
    """C.T = B.T A.T: the same chains, as a product does not depend on its factors' order."""
    a, b, c = (MatrixStrides(layout.column, layout.row, layout.batch) for layout in (p.b, p.a, p.c))
    return replace(p, m=p.n, n=p.m, a=a, b=b, c=c)
