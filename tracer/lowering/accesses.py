"""What a kernel reads and writes: its accesses to buffers, each with strides for the axes that it runs over.

Knows where values lie and which positions texts ask for. Must not know the order of statements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ops.compute import Gather, Reduction, Scalar, contiguous_strides
from tracer.ir.graph import Value
from tracer.lowering.axes import Atom, Dims
from tracer.lowering.groups import PartialFold, Shape, Step
from tracer.lowering.layout import Buffer, Layout

Role = Literal["in", "out", "inout", "partial"]


@dataclass(slots=True)
class OperandAccess:
    """A buffer as an operand sees it: strides of each atom (0 where absent), a static byte offset."""

    name: str
    dtype: str
    strides: dict[Atom, int]
    role: Role
    buffer: Buffer
    offset: int = 0
    extra: tuple[tuple[str, int], ...] = ()  # (index value, stride) of gathered axes


class Accesses:
    """The accesses of the kernel of some steps. `layout(v)`: where a value lies; `literal(v)`: the value of a 0-d constant,
    else None; `partials`: of the folds that other kernels finish, by step.

    Attributes: `all` of them in order; `loads`, names by value and map; `stores` by value; `gathers` with the operators' indices;
    `partials` by step; `position_strides`, for each position that a step's text uses the strides of atoms.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        shape: Shape,
        stored: set[Value],
        layout: Callable[[Value], Layout],
        literal: Callable[[Value], Any],
        partials: Mapping[Step, PartialFold],
    ) -> None:
        self._steps, self._shape, self._stored = steps, shape, stored
        self._layout, self._literal, self._left = layout, literal, partials
        self._made = {s.output for s in steps if s.output is not None}
        self.all: list[OperandAccess] = []
        self.loads: dict[tuple[Value, Dims], str] = {}
        self.load_access: dict[str, OperandAccess] = {}
        self.stores: dict[Value, OperandAccess] = {}
        self.gathers: dict[Step, tuple[OperandAccess, tuple[Any, ...]]] = {}
        self.partials: dict[Step, list[OperandAccess]] = {}
        self.position_strides: dict[Step, dict[str, dict[Atom, int]]] = {}
        self.moved = self._moved()
        self._collect()

    def is_partial(self, access: OperandAccess) -> bool:
        """Whether it is to partial results of a fold."""
        return any(access in group for group in self.partials.values())

    def _collect(self) -> None:
        made = self._made
        for step in self._steps:
            if step.kind == "finish":
                assert step.fold is not None
                self.partials[step] = [
                    self.add(b.type.dtype, {}, "in", b, 0) for b in self._left[step.fold].buffers
                ]
                continue
            for v, dims in zip(step.inputs, step.operands, strict=True):
                if v in made:
                    continue
                if dims is None:
                    self.gathers[step] = self._gather_access(step, v)
                elif self._literal(v) is None and (v, dims) not in self.loads:
                    layout = self._layout(v)
                    access = self.add(
                        self.dtype(v),
                        self.atom_strides(dims, layout),
                        "in",
                        layout.buffer,
                        layout.strided.offset,
                    )
                    name = f"l{len(self.loads)}"
                    self.loads[(v, dims)] = name
                    self.load_access[name] = access
            self._collect_positions(step)
            if step.leaves_partials:
                self.partials[step] = [
                    self.add(b.type.dtype, {}, "partial", b, 0) for b in self._left[step].buffers
                ]
        for step in self._steps:
            made_here = step.output
            if made_here is not None and made_here in self._stored:
                layout = self._layout(made_here)
                strides = self.atom_strides(step.result, layout)
                self.stores[made_here] = self.add(
                    self.dtype(made_here), strides, "out", layout.buffer, layout.strided.offset
                )

    def add(
        self, dtype: str, strides: dict[Atom, int], role: Role, buffer: Buffer, offset: int
    ) -> OperandAccess:
        """An access, the one that there is if it reads the same."""
        for known in self.all:
            if (
                known.buffer is buffer
                and known.offset == offset
                and known.dtype == dtype
                and known.role == role == "in"
                and known.strides == strides
                and not known.extra
            ):
                return known
        access = OperandAccess(f"a{len(self.all)}", dtype, strides, role, buffer, offset)
        self.all.append(access)
        return access

    @staticmethod
    def atom_strides(dims: Dims, layout: Layout) -> dict[Atom, int]:
        """How far apart neighbours along each atom lie."""
        result: dict[Atom, int] = {}
        for axis, stride in zip(dims, layout.strided.strides, strict=True):
            for atom in reversed(axis):
                if stride:
                    result[atom] = result.get(atom, 0) + stride
                stride *= atom.size
        return result

    def _gather_access(self, step: Step, data: Value) -> tuple[OperandAccess, tuple[Any, ...]]:
        compute = step.node.op.compute
        assert isinstance(compute, Gather)
        indices = compute.rule(
            [v.type for v in step.inputs], step.node.outputs[0].type, step.node.attrs
        )
        layout = self._layout(data)
        strides: dict[Atom, int] = {}
        offset = layout.strided.offset
        for index, stride in zip(indices, layout.strided.strides, strict=True):
            offset += index.offset * stride if index.operand is None else 0
            if index.axis is not None:
                for atom in reversed(step.result[index.axis]):
                    strides[atom] = strides.get(atom, 0) + stride
                    stride *= atom.size
        access = OperandAccess(
            f"a{len(self.all)}", self.dtype(data), strides, "in", layout.buffer, offset
        )
        access.extra = tuple(
            (f"{access.name}_{k}", stride)
            for k, (index, stride) in enumerate(zip(indices, layout.strided.strides, strict=True))
            if index.operand is not None
        )
        self.all.append(access)
        return access, indices

    def _collect_positions(self, step: Step) -> None:
        """Positions that the step's text uses, as strides of atoms, so that axes that they need are not collapsed."""
        wanted: dict[str, dict[Atom, int]] = {}
        compute = step.node.op.compute
        shape = step.node.outputs[0].type.shape
        if step.kind == "map" and isinstance(compute, Scalar):
            text = scalar_text(step)
            if "{index" in text:
                strides: dict[Atom, int] = {}
                for axis, stride in zip(
                    step.result, contiguous_strides(tuple(map(int, shape))), strict=True
                ):
                    for atom in reversed(axis):
                        strides[atom] = stride
                        stride *= atom.size
                wanted["index"] = strides
            for k in range(len(shape)):
                if f"{{axis{k}" in text:
                    wanted[f"axis{k}"] = self._axis_strides(step.result[k])
        if step.kind == "map" and isinstance(compute, Gather) and compute.fill is not None:
            for k, axis in enumerate(step.result):
                wanted[f"axis{k}"] = self._axis_strides(axis)
        if step.kind == "row" and isinstance(compute, Reduction) and compute.positions:
            strides, stride = {}, 1
            for atom in reversed(self._shape.inner):
                strides[atom] = stride
                stride *= atom.size
            wanted["index"] = strides
        if wanted:
            self.position_strides[step] = wanted

    @staticmethod
    def _axis_strides(axis: tuple[Atom, ...]) -> dict[Atom, int]:
        strides, stride = {}, 1
        for atom in reversed(axis):
            strides[atom] = stride
            stride *= atom.size
        return strides

    def _moved(self) -> set[Value]:
        """The values whose elements are only moved. They are moved as unsigned integers of their size: every bit pattern stays,
        NaN's included, half types are not widened, and element types of one size share a kernel."""
        whole: dict[Value, Value] = {}  # values that moving joins, each leading to a representative
        computed: set[Value] = set()

        def find(v: Value) -> Value:
            while v in whole:
                v = whole[v]
            return v

        for step in self._steps:
            carried = _carried(step)
            for k, v in enumerate(step.inputs):
                if k not in carried:
                    computed.add(v)
            if step.output is None or not carried:
                computed.update(() if step.output is None else (step.output,))
                continue
            for k in carried:
                head, other = find(step.inputs[k]), find(step.output)
                if head is not other:
                    whole[other] = head
        spoiled = {find(v) for v in computed}
        return {v for v in {*whole, *whole.values()} if find(v) not in spoiled}

    def dtype(self, v: Value) -> str:
        """The element type under which a value is known in the kernel."""
        return f"uint{8 * v.type.itemsize}" if v in self.moved else v.type.dtype


_MOVING = {"{0}": (0,), "select({0}, {1}, {2})": (1, 2)}  # texts that compute no element


def _carried(step: Step) -> tuple[int, ...]:
    """The operands whose elements a step carries to its result as they are."""
    compute = step.node.op.compute
    if step.kind == "view" or (step.kind == "map" and isinstance(compute, Gather)):
        return (0,)
    if step.kind != "map" or not isinstance(compute, Scalar):
        return ()
    carried = _MOVING.get(scalar_text(step), ())
    out = step.node.outputs[0].type.dtype
    return carried if all(step.inputs[k].type.dtype == out for k in carried) else ()


def scalar_text(step: Step) -> str:
    """The text of an elementwise operator, operands not filled in."""
    compute = step.node.op.compute
    assert isinstance(compute, Scalar)
    types = [v.type for v in step.inputs]
    out = step.node.outputs[0].type
    return (
        compute.text if isinstance(compute.text, str) else compute.text(types, out, step.node.attrs)
    )
