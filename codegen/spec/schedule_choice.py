"""A schedule for a specification, where whoever writes it has no better one. Knows specifications;
a schedule never changes a bit, only the time to compile and to run.
"""

from __future__ import annotations

from typing import Literal

from codegen.spec.kernel_spec import Fold, KernelSpec, Load, Schedule, Store

# Statements in loops above which a second copy of them costs more to compile than it saves: full
# vectors without masks take 10 to 30 % less time, the copy a quarter of the compile time.
MANY = 56


Mode = Literal["rows", "flat", "split", "columns", "scatter"]


def schedule_for(spec: KernelSpec, mode: Mode = "rows", columns: int = 256) -> Schedule:
    """The schedule of a mode: bodies of many statements are not copied for the tail, and rows are
    swapped with the inner axis where an operand lies transposed.
    """
    looped = sum(len(s.body) for s in spec.stages if s.over)
    tail: Literal["masked", "peeled"] = "masked" if looped > MANY else "peeled"
    return Schedule(mode, tail, mode == "rows" and _swap(spec), columns)


def _swap(spec: KernelSpec) -> bool:
    """Whether neighbouring rows are neighbours in an operand, so that a vector of each is read
    while its lines are in cache.
    """
    loops = [s for s in spec.stages if s.over]
    if not spec.rows or len(loops) != 1 or spec.stages[-1] is not loops[0]:
        return False
    if any(isinstance(s, Fold) for s in spec.statements):
        return False
    return any(isinstance(s, Load | Store) and _transposed(spec, s) for s in loops[0].body)


def _transposed(spec: KernelSpec, s: Load | Store) -> bool:
    assert spec.inner is not None
    strides = dict(zip(s.index, spec.operand(s.operand).strides, strict=True))
    return (
        strides.get(spec.rows[-1].name) == 1
        and strides.get(spec.inner.name) is None
        and spec.inner.name in strides
    )
