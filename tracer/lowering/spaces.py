"""What one kernel can run: the common space of a group's steps, or why they have none.

One space D of rows P times an inner axis R; folds over R (a value for each row), folds over all rows (a value for each inner
position, finished by another kernel), folds of everything (likewise); elementwise values on D or P, and cheap ones on any part
of D.
"""

from __future__ import annotations

from collections.abc import Sequence

from ops.compute import Scalar
from tracer.ir.graph import Value
from tracer.lowering.axes import Atom, atoms_of
from tracer.lowering.groups import Shape, Step


def unsound(steps: Sequence[Step]) -> str:
    """Why steps whose maps were unified cannot share a kernel, or ""."""
    made = {s.output: s.result for s in steps if s.output is not None}
    left = {s.node for s in steps if s.leaves_partials}
    for s in steps:
        if s.fold is not None and s.fold.node in left:
            return "a fold over rows or of everything is finished by another kernel"
        for dims in (*s.operands, s.result):
            # An axis of the space that stood for two of a value would be the value's diagonal.
            if dims is not None and len({*atoms_of(dims)}) != len(atoms_of(dims)):
                return "it is read in two arrangements"
        for v, dims in zip(s.inputs, s.operands, strict=False):
            if v in made and dims is None:
                return "it is read at indices that depend on data"
            if v in made and dims != made[v]:
                return "it is read in two arrangements"
    return ""


def _is_cheap(step: Step) -> bool:
    compute = step.node.op.compute
    return step.kind in ("view", "point") or (
        step.kind == "map" and isinstance(compute, Scalar) and compute.effort != "high"
    )


def space(steps: list[Step], stored: set[Value]) -> Shape | str:
    """The form of the steps' common space, or why no kernel runs it."""
    everything: dict[Atom, None] = {}
    for s in steps:
        for dims in (*s.operands, s.result):
            if dims is not None:
                everything.update(dict.fromkeys(atoms_of(dims)))
    whole = frozenset(everything)
    kinds = {s.kind for s in steps}
    if "split" in kinds and ("row" in kinds or "column" in kinds):
        return "a fold of everything does not share a kernel with other folds"
    found = _axes_of_folds([s for s in steps if s.is_fold], whole)
    if found is None:
        return _map_space(steps, stored, everything)
    if isinstance(found, str):
        return found
    rows, inner = found
    row_set = frozenset(rows)
    for s in steps:
        reason = _fits(s, whole, row_set, stored) or _in_order(s, rows, inner)
        if reason:
            return reason
    return Shape(rows, inner)


def _axes_of_folds(
    folds: list[Step], whole: frozenset[Atom]
) -> tuple[tuple[Atom, ...], tuple[Atom, ...]] | str | None:
    """The rows and the inner axis that the folds ask for, why they ask for different ones, or None without folds.

    Folds over the rows fix the order of the rows, the others that of the inner axis.
    """
    rows: tuple[Atom, ...] | None = None
    inner: tuple[Atom, ...] | None = None
    rows_fixed = inner_fixed = False
    for s in folds:
        assert s.operands[0] is not None
        covered, result = atoms_of(s.operands[0]), set(atoms_of(s.result))
        if frozenset(covered) != whole:
            return "a fold runs over a part of the space only"
        kept = tuple(a for a in covered if a in result)
        reduced = tuple(a for a in covered if a not in result)
        mine_rows, mine_inner = (reduced, kept) if s.kind == "column" else (kept, reduced)
        if inner is not None and frozenset(inner) != frozenset(mine_inner):
            return "two folds run over different axes"
        if s.kind == "column":
            if rows_fixed and rows != mine_rows:
                return "two folds over rows take them in different orders"
            rows, rows_fixed = mine_rows, True
            inner = mine_inner if inner is None else inner
        else:
            if inner_fixed and inner != mine_inner:
                return "two folds take their elements in different orders"
            inner, inner_fixed = mine_inner, True
            rows = mine_rows if rows is None else rows
    return None if rows is None or inner is None else (rows, inner)


def _in_order(s: Step, rows: tuple[Atom, ...], inner: tuple[Atom, ...]) -> str:
    """Why a fold would be taken, or its partial results laid out, in another order than its own, or ""."""
    result = atoms_of(s.result)
    if s.kind == "finish" and result not in (rows, rows + inner):
        return "partial results lie in another order"
    if not s.is_fold:
        return ""
    assert s.operands[0] is not None
    reduced = tuple(a for a in atoms_of(s.operands[0]) if a not in set(result))
    if s.kind == "row":
        return "" if reduced == inner else "two folds take their elements in different orders"
    wanted = (reduced, result) if s.kind == "column" else (result, reduced)
    return (
        ""
        if (rows, inner) == wanted
        else "two folds lay out their partial results in different orders"
    )


def _fits(s: Step, whole: frozenset[Atom], rows: frozenset[Atom], stored: set[Value]) -> str:
    if s.output is None:
        return ""
    here = frozenset(atoms_of(s.result))
    if here in (whole, rows):
        return ""
    if s.kind in ("row", "finish"):
        return "a fold's results are no rows of the space"
    if s.output in stored:
        return "it is stored but does not run over the whole space"
    if not _is_cheap(s):
        return "it would be computed again and again"
    return ""


def _map_space(steps: list[Step], stored: set[Value], everything: dict[Atom, None]) -> Shape | str:
    """Without folds: rows only where a value must be computed once for each row."""
    whole = frozenset(everything)
    wanted = set()
    for s in steps:
        here = frozenset(atoms_of(s.result))
        if here == whole:
            continue
        if s.output in stored or not _is_cheap(s):
            wanted.add(here)
    if len(wanted) > 1:
        return "values of several shapes would be computed again and again"
    # Partial results lie in the order of their result, so a space that finishes folds follows it.
    order = max((atoms_of(s.result) for s in steps), key=lambda a: len(a))
    for s in steps:
        if s.kind == "finish" and len(s.result) and frozenset(atoms_of(s.result)) == whole:
            order = atoms_of(s.result)
    if frozenset(order) != whole:
        return "no value runs over the whole space"
    rows = wanted.pop() if wanted else frozenset()
    shape = Shape(tuple(a for a in order if a in rows), tuple(a for a in order if a not in rows))
    for s in steps:
        if s.kind == "finish" and frozenset(atoms_of(s.result)) not in (whole, rows):
            return "a fold's results are no rows of the space"
        if _in_order(s, shape.rows, shape.inner):
            return _in_order(s, shape.rows, shape.inner)
    return shape
