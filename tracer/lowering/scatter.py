"""Scatters as specifications: rows of updates added or written in order to places that an integer operand names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from codegen.spec.kernel_spec import (
    Axis,
    KernelSpec,
    Let,
    Load,
    Operand,
    Schedule,
    Stage,
    Statement,
    Store,
)
from ops.compute import Index, Scatter, Strided
from ops.reductions import lane
from tracer.ir.graph import Node, Value
from tracer.lowering.layout import Buffer, Layout
from tracer.lowering.specify import Bound


def scatter_bound(
    node: Node,
    layout: Callable[[Value], Layout],
    numbers: Callable[[int], Buffer],
    out: Layout,
) -> Bound | None:
    """The kernel that adds operand 2 (the updates) to `out`, whose start value is there, or writes it there; None when there are
    no updates.

    Trailing axes of the updates that go to axes of the result by position are the inner axis, one contiguous piece; the others
    are rows, taken in order by one task for each block of the inner axis. An index out of range goes to the first place: the
    program's check has refused it before (see `tracer.lowering.checks`); memory is safe all the same.
    """
    compute = node.op.compute
    assert isinstance(compute, Scatter)
    indices_value, updates_value = node.inputs[1], node.inputs[2]
    updates, index_layout = layout(updates_value), layout(indices_value)
    shape = updates.strided.shape
    if 0 in shape or 0 in out.strided.shape:
        return None
    indices = compute.rule([v.type for v in node.inputs], node.output.type, node.attrs)
    rows, tail = _row_axes(indices, updates.strided, out.strided)
    names = {a: f"p{a}" for a in rows}
    target = _target(indices, names, shape, index_layout.strided, out.strided)
    # What is only moved is moved as unsigned integers: every bit pattern stays, and types of one size share a kernel.
    element = updates_value.type
    dtype = _added_as(element.dtype) if compute.mode == "add" else f"uint{8 * element.itemsize}"
    strides = {
        "updates": tuple(updates.strided.strides[a] for a in rows) + ((1,) if tail else ()),
        "indices": tuple(s for _, s in target.looked_up),
        "result": tuple(s for _, s in target.index) + ((1,) if tail else ()),
    }
    inner = ("r",) if tail else ()
    operands = [
        Operand("updates", dtype, (None,) * len(rows) + ((1,) if tail else ())),
        Operand("indices", indices_value.type.dtype, (None,) * len(target.looked_up)),
        Operand("result", dtype, tuple(1 if s == 1 else None for s in strides["result"]), "inout"),
        *(Operand(f"size{k}", "int64", ()) for k in target.limits),
    ]
    value = "update"
    main: list[Statement] = [Load("update", "updates", (*names.values(), *inner))]
    if compute.mode == "add":
        inside = " & ".join(f"inside{k}" for k in target.limits)
        main.append(Let("value", dtype, f"select({inside}, update, {lane(dtype)}(0))"))
        value = "value"
    where = (*(n for n, _ in target.index), *inner)
    main.append(Store("result", where, value, compute.mode))
    found = tuple(target.statements)
    stages = (
        (Stage((), found), Stage(("r",), tuple(main))) if tail else (Stage((), (*found, *main)),)
    )
    sizes = {names[a]: shape[a] for a in rows}
    axes = [Axis(name, "row") for name in sizes]
    if tail:
        axes.append(Axis("r", "inner"))
        sizes["r"] = math.prod(shape[a] for a in tail)
    bindings = [(x.buffer, x.strided.offset) for x in (updates, index_layout, out)]
    bindings += [(numbers(out.strided.shape[k]), 0) for k in target.limits]
    spec = KernelSpec(f"k_scatter_{compute.mode}", tuple(axes), tuple(operands), stages)
    return Bound(spec, Schedule(mode="scatter"), tuple(bindings), sizes, strides, {})


def _row_axes(
    indices: Sequence[Index], updates: Strided, out: Strided
) -> tuple[list[int], list[int]]:
    """The axes of the updates that are rows, and those that are the inner axis together, if both lie there in one piece."""
    by_position = {
        i.axis: k for k, i in enumerate(indices) if i.operand is None and i.axis is not None
    }
    depends = {a for i in indices if i.operand is not None for a in i.operand_axes}
    rank = inner = len(updates.shape)
    while inner > 0 and inner - 1 in by_position and inner - 1 not in depends:
        inner -= 1
    tail = list(range(inner, rank))
    written = tuple(out.strides[by_position[a]] if a in by_position else 0 for a in range(rank))
    if all(_one_piece(tail, updates.shape, s) for s in (updates.strides, written)):
        return list(range(inner)), tail
    return list(range(rank)), []


@dataclass(frozen=True, slots=True)
class _Target:
    """Where an update goes. `index`: names and strides in the result, of what has one; `statements`: what computes them;
    `limits`: the axes of the result whose place is looked up; `looked_up`: rows and strides by which the indices are read."""

    index: list[tuple[str, int]] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)
    looked_up: list[tuple[str, int]] = field(default_factory=list)


def _target(
    indices: Sequence[Index],
    names: dict[int, str],
    shape: tuple[int, ...],
    index_layout: Strided,
    out: Strided,
) -> _Target:
    result = _Target()
    for k, (index, step) in enumerate(zip(indices, out.strides, strict=True)):
        if index.operand is None:
            assert index.axis is not None
            if index.axis in names and shape[index.axis] != 1:
                result.index.append((names[index.axis], step))
            continue
        pairs = zip(index.operand_axes, index_layout.strides, strict=True)
        result.looked_up[:] = [(names[a], s) for a, s in pairs if shape[a] != 1]
        result.statements.extend(
            [
                Load(f"limit{k}", f"size{k}", ()),
                Load(f"raw{k}", "indices", tuple(n for n, _ in result.looked_up)),
                Let(f"wide{k}", "int64", f"to_i64(raw{k})"),
                Let(f"whole{k}", "int64", f"select(wide{k} < i64(0), wide{k} + limit{k}, wide{k})"),
                Let(f"inside{k}", "bool", f"(whole{k} >= i64(0)) & (whole{k} < limit{k})"),
                Let(f"place{k}", "int64", f"select(inside{k}, whole{k}, i64(0))"),
            ]
        )
        result.limits.append(k)
        result.index.append((f"place{k}", step))
    return result


def _added_as(dtype: str) -> str:
    """Signed and unsigned integers of one size add up to the same bits, by one kernel."""
    return f"u{dtype}" if dtype.startswith("int") else dtype


def _one_piece(axes: list[int], shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    expected = 1
    for a in reversed(axes):
        if shape[a] != 1 and strides[a] != expected:
            return False
        expected *= shape[a]
    return True
