"""Scatters as specifications: rows of updates added or written in order to places that an integer operand names."""

from __future__ import annotations

from collections.abc import Callable

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
from ops.compute import Scatter
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
    if 0 in shape:
        return None
    if 0 in out.strided.shape:
        return None
    indices = compute.rule([v.type for v in node.inputs], node.outputs[0].type, node.attrs)
    by_position = {
        i.axis: k for k, i in enumerate(indices) if i.operand is None and i.axis is not None
    }
    depends = {a for i in indices if i.operand is not None for a in i.operand_axes}
    inner = len(shape)
    while inner > 0 and inner - 1 in by_position and inner - 1 not in depends:
        inner -= 1
    rows = list(range(inner))
    tail = list(range(inner, len(shape)))
    if not _one_piece(tail, shape, updates.strided.strides) or not _one_piece(
        tail,
        shape,
        tuple(
            out.strided.strides[by_position[a]] if a in by_position else 0
            for a in range(len(shape))
        ),
    ):
        rows, tail = list(range(len(shape))), []
    names = {a: f"p{a}" for a in rows}
    # What is only moved is moved as unsigned integers: every bit pattern stays, and types of one size share a kernel.
    element = updates_value.type
    dtype = _added_as(element.dtype) if compute.mode == "add" else f"uint{8 * element.itemsize}"
    body: list[Statement] = []
    operands = [
        Operand("updates", dtype, (None,) * len(rows) + ((1,) if tail else ())),
        Operand("indices", indices_value.type.dtype, ()),
        Operand("result", dtype, (), "inout"),
    ]
    bindings = [
        (updates.buffer, updates.strided.offset),
        (index_layout.buffer, index_layout.strided.offset),
    ]
    bindings.append((out.buffer, out.strided.offset))
    strides: dict[str, tuple[int, ...]] = {
        "updates": tuple(updates.strided.strides[a] for a in rows) + ((1,) if tail else ())
    }
    result_index: list[str] = []
    result_strides: list[int] = []
    checks: list[str] = []
    for k, index in enumerate(indices):
        size = int(node.outputs[0].type.shape[k])
        step = out.strided.strides[k]
        if index.operand is None:
            assert index.axis is not None
            if index.axis in names and shape[index.axis] != 1:
                result_index.append(names[index.axis])
                result_strides.append(step)
            continue
        axes = [a for a in index.operand_axes]
        used = [
            (names[a], s)
            for a, s in zip(axes, index_layout.strided.strides, strict=True)
            if shape[a] != 1
        ]
        operands[1] = Operand("indices", indices_value.type.dtype, (None,) * len(used))
        strides["indices"] = tuple(s for _, s in used)
        operands.append(Operand(f"size{k}", "int64", ()))
        bindings.append((numbers(size), 0))
        body += [
            Load(f"limit{k}", f"size{k}", ()),
            Load(f"raw{k}", "indices", tuple(n for n, _ in used)),
            Let(f"wide{k}", "int64", f"to_i64(raw{k})"),
            Let(f"whole{k}", "int64", f"select(wide{k} < i64(0), wide{k} + limit{k}, wide{k})"),
            Let(f"inside{k}", "bool", f"(whole{k} >= i64(0)) & (whole{k} < limit{k})"),
            Let(f"place{k}", "int64", f"select(inside{k}, whole{k}, i64(0))"),
        ]
        checks.append(f"inside{k}")
        result_index.append(f"place{k}")
        result_strides.append(step)
    if tail:
        result_index.append("r")
        result_strides.append(1)
    operands[2] = Operand(
        "result",
        dtype,
        tuple(1 if s == 1 else None for s in result_strides),
        "inout",
    )
    strides["result"] = tuple(result_strides)
    main: list[Statement] = [
        Load("update", "updates", tuple(names[a] for a in rows) + (("r",) if tail else ())),
        Store("result", tuple(result_index), "update", compute.mode),
    ]
    if compute.mode == "add":
        value = f"select({' & '.join(checks)}, update, {lane(dtype)}(0))"
        main[1:] = [
            Let("value", dtype, value),
            Store("result", tuple(result_index), "value", "add"),
        ]
    stages = (
        [Stage((), tuple(body)), Stage(("r",), tuple(main))]
        if tail
        else [Stage((), tuple(body + main))]
    )
    sizes = {names[a]: shape[a] for a in rows}
    axes_ = [Axis(names[a], "row") for a in rows]
    if tail:
        axes_.append(Axis("r", "inner"))
        sizes["r"] = 1
        for a in tail:
            sizes["r"] *= shape[a]
    spec = KernelSpec(f"k_scatter_{compute.mode}", tuple(axes_), tuple(operands), tuple(stages))
    return Bound(spec, Schedule(mode="scatter"), tuple(bindings), sizes, strides, {})


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
