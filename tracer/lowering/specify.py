"""From a group of steps to a kernel specification: axes, operands, stages of statements.

The passes over the inner axis follow from the folds: a value that needs a fold's result is computed in a later pass, and what a
later pass needs of an earlier one is read back if it is stored anyway, kept in a result's memory that is written later if it
is expensive, and computed again otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from codegen.schedule import schedule_for
from codegen.spec import Axis, Combine, Fold, Index, KernelSpec, Let, Load, Operand, Schedule, Stage, Statement, Store
from ops.compute import Folding, Gather, Reduction, Scalar
from ops.movement import contiguous_strides
from ops.reductions import lane
from ops.types import Type
from tracer.graph import Value
from tracer.lowering.axes import Atom, Dims
from tracer.lowering.fuse import Group, Shape, Step
from tracer.lowering.layout import Buffer, Layout

_LANE_NAMES = {"f32": "float32", "f64": "float64", "bool": "bool"} | {
    f"{k}{n}": f"{'u' if k == 'u' else ''}int{n}" for k in "iu" for n in (8, 16, 32, 64)
}
_ROUND = {"float16": "round_f16", "bfloat16": "round_bf16"}
SMALL_INNER = 16  # a shorter innermost axis is joined with the others


@dataclass(slots=True)
class Access:
    """A buffer as an operand sees it: strides of each atom (0 where absent), a static byte offset."""

    name: str
    dtype: str
    strides: dict[Atom, int]
    role: str
    buffer: Buffer
    offset: int = 0
    extra: tuple[tuple[str, int], ...] = ()  # (index value, stride) of gathered axes


@dataclass(frozen=True, slots=True)
class Bound:
    """A specification with what its operands are bound to: (buffer, offset in elements) each, sizes, run-time strides."""

    spec: KernelSpec
    schedule: Schedule
    operands: tuple[tuple[Buffer, int], ...]
    sizes: dict[str, int]
    strides: dict[str, tuple[int, ...]]
    notes: dict[int, str]
    group: Group


@dataclass(eq=False)
class Specifier:
    """Writes one specification. `layout(v)`: where a value that is read lies; `numbers(n)`: a buffer that holds an int64;
    `partials`: buffers of folds that other kernels finish, by fold step."""

    group: Group
    shape: Shape
    stored: set[Value]
    layout: Callable[[Value], Layout | None]
    literal: Callable[[Value], Any]
    numbers: Callable[[int], Buffer]
    partials: dict[Step, list[Buffer]]
    reduced: dict[Step, int]
    modes: dict[Step, str]
    name: str = "kernel"
    accesses: list[Access] = field(default_factory=list)
    names: dict[Value, str] = field(default_factory=dict)
    positions: dict[tuple[tuple[Atom, int], ...], str] = field(default_factory=dict)

    # ---- the way through
    def run(self) -> Bound:
        """The specification of the group."""
        self._name_values()
        self.moved = self._moved()
        self._collect()
        self._collapse()
        stages = self._stages()
        axes = self._axes()
        operands = tuple(self._operand(a) for a in self.accesses)
        spec = KernelSpec(self.name, axes, operands, tuple(stages))
        sizes = {name: size for name, size in self._sizes.items()}
        strides = {
            a.name: self._index(a)[1] for a in self.accesses if a.role != "partial" and not self._is_partial(a)
        }
        return Bound(
            spec,
            schedule_for(spec, self._mode()),  # type: ignore[arg-type]
            tuple((a.buffer, a.offset) for a in self.accesses),
            sizes,
            strides,
            self._notes(spec),
            self.group,
        )

    def _name_values(self) -> None:
        for step in self.group.steps:
            if step.output is not None:
                self.names[step.output] = f"v{len(self.names)}"

    def _moved(self) -> set[Value]:
        """The values of a kernel that only moves elements. It moves them as unsigned integers of their size: every bit
        pattern stays, NaN's included, and element types of one size share a kernel."""
        made = set(self.names)
        moved: set[Value] = set()
        for step in self.group.steps:
            compute = step.node.op.compute
            if step.kind == "map" and isinstance(compute, Gather):
                if any(v in made for v in step.inputs[1:]):
                    return set()  # what is moved is an index as well
                moved |= {step.inputs[0], step.node.outputs[0]}
            elif step.kind == "view" or (
                step.kind == "map" and isinstance(compute, Scalar) and self._raw_text(step) == "{0}"
            ):
                moved |= {step.inputs[0], step.node.outputs[0]}
            else:
                return set()
        indices = {v for s in self.group.steps if isinstance(s.node.op.compute, Gather) for v in s.inputs[1:]}
        return set() if moved & indices else moved

    def _dtype(self, v: Value) -> str:
        """The element type under which a value is known in the kernel."""
        return f"uint{8 * v.type.itemsize}" if v in self.moved else v.type.dtype

    def _literal(self, value: Any, v: Value) -> str:
        """A literal of a value's type."""
        if v in self.moved:
            bits = np.asarray(value).astype(v.type.numpy).reshape(1).view(f"u{v.type.itemsize}")[0]
            return _literal_text(bits, self._dtype(v))
        return _literal_text(value, v.type.dtype)

    # ---- what is read and written
    def _collect(self) -> None:
        self._loads: dict[tuple[Value, Dims], str] = {}
        self._load_access: dict[str, Access] = {}
        self._stores: dict[Value, Access] = {}
        self._gathers: dict[Step, tuple[Access, tuple[Any, ...]]] = {}
        self._partials: dict[Step, list[Access]] = {}
        self._position_strides: dict[Step, dict[str, dict[Atom, int]]] = {}
        made = set(self.names)
        for step in self.group.steps:
            if step.kind == "finish":
                assert step.fold is not None
                self._partials[step] = [
                    self._access(b.type.dtype, {}, "in", b, 0) for b in self.partials[step.fold]
                ]
                continue
            for number, (v, dims) in enumerate(zip(step.inputs, step.operands, strict=True)):
                if v in made:
                    continue
                if dims is None:
                    self._gathers[step] = self._gather_access(step, v)
                elif self.literal(v) is None and (v, dims) not in self._loads:
                    layout = self.layout(v)
                    assert layout is not None, (step.node, number)
                    access = self._access(
                        self._dtype(v), self._atom_strides(dims, layout), "in", layout.buffer, layout.strided.offset
                    )
                    name = f"l{len(self._loads)}"
                    self._loads[(v, dims)] = name
                    self._load_access[name] = access
            self._collect_positions(step)
            if step.kind in ("column", "split"):
                self._partials[step] = [self._access(b.type.dtype, {}, "partial", b, 0) for b in self.partials[step]]
        for step in self.group.steps:
            v = step.output
            if v is not None and v in self.stored:
                layout = self.layout(v)
                assert layout is not None
                self._stores[v] = self._access(
                    self._dtype(v), self._atom_strides(step.result, layout), "out", layout.buffer, layout.strided.offset
                )

    def _access(self, dtype: str, strides: dict[Atom, int], role: str, buffer: Buffer, offset: int) -> Access:
        for known in self.accesses:
            if (
                known.buffer is buffer
                and known.offset == offset
                and known.role == role == "in"
                and known.strides == strides
                and not known.extra
            ):
                return known
        access = Access(f"a{len(self.accesses)}", dtype, strides, role, buffer, offset)
        self.accesses.append(access)
        return access

    @staticmethod
    def _atom_strides(dims: Dims, layout: Layout) -> dict[Atom, int]:
        result: dict[Atom, int] = {}
        for axis, stride in zip(dims, layout.strided.strides, strict=True):
            for atom in reversed(axis):
                if stride:
                    result[atom] = result.get(atom, 0) + stride
                stride *= atom.size
        return result

    def _gather_access(self, step: Step, data: Value) -> tuple[Access, tuple[Any, ...]]:
        compute = step.node.op.compute
        assert isinstance(compute, Gather)
        indices = compute.rule([v.type for v in step.inputs], step.node.outputs[0].type, step.node.attrs)
        layout = self.layout(data)
        assert layout is not None
        strides: dict[Atom, int] = {}
        offset = layout.strided.offset
        for index, stride in zip(indices, layout.strided.strides, strict=True):
            offset += index.offset * stride if index.operand is None else 0
            if index.axis is not None:
                for atom in reversed(step.result[index.axis]):
                    strides[atom] = strides.get(atom, 0) + stride
                    stride *= atom.size
        access = Access(f"a{len(self.accesses)}", self._dtype(data), strides, "in", layout.buffer, offset)
        access.extra = tuple(
            (f"{access.name}_{k}", stride)
            for k, (index, stride) in enumerate(zip(indices, layout.strided.strides, strict=True))
            if index.operand is not None
        )
        self.accesses.append(access)
        return access, indices

    def _collect_positions(self, step: Step) -> None:
        """Positions that the step's text uses, as strides of atoms, so that axes that they need are not collapsed."""
        wanted: dict[str, dict[Atom, int]] = {}
        compute = step.node.op.compute
        shape = step.node.outputs[0].type.shape
        if step.kind == "map" and isinstance(compute, Scalar):
            text = self._raw_text(step)
            if "{index" in text:
                strides: dict[Atom, int] = {}
                for axis, stride in zip(step.result, contiguous_strides(tuple(map(int, shape))), strict=True):
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
            for atom in reversed(self.shape.inner):
                strides[atom] = stride
                stride *= atom.size
            wanted["index"] = strides
        if wanted:
            self._position_strides[step] = wanted

    @staticmethod
    def _axis_strides(axis: tuple[Atom, ...]) -> dict[Atom, int]:
        strides, stride = {}, 1
        for atom in reversed(axis):
            strides[atom] = stride
            stride *= atom.size
        return strides

    # ---- axes
    def _collapse(self) -> None:
        """Atoms that every access steps over as one become one axis."""
        vectors = [a.strides for a in self.accesses if a.role != "partial" and not (a.role == "in" and self._is_partial(a))]
        vectors += [s for wanted in self._position_strides.values() for s in wanted.values()]

        def joined(atoms: tuple[Atom, ...]) -> list[list[Atom]]:
            result: list[list[Atom]] = []
            for atom in atoms:
                if result and all(v.get(result[-1][-1], 0) == v.get(atom, 0) * atom.size for v in vectors):
                    result[-1].append(atom)
                else:
                    result.append([atom])
            return result

        rows, inner = (joined(atoms) for atoms in self._in_memory_order())
        self.flat = False
        folds = any(s.kind in ("row", "column", "split") for s in self.group.steps)
        finishing = any(s.kind == "finish" for s in self.group.steps)
        if not folds and not rows:
            if len(inner) == 1:
                self.flat = True
            elif len(inner) > 1:
                last = 1
                for atom in inner[-1]:
                    last *= atom.size
                if last >= SMALL_INNER and not finishing:
                    rows, inner = inner[:-1], inner[-1:]
                else:
                    self.flat = True
        self.row_axes = [(f"p{k}", group) for k, group in enumerate(rows)]
        self.inner_parts = [(f"r{k}", group) for k, group in enumerate(inner)] if len(inner) > 1 else []
        self.inner_atoms = [a for group in inner for a in group]
        self.has_inner = bool(inner)
        self._sizes: dict[str, int] = {}
        for name, group in self.row_axes:
            self._sizes[name] = _size(group)
        if self.has_inner:
            self._sizes["r"] = _size(self.inner_atoms)
        for name, group in self.inner_parts:
            self._sizes[name] = _size(group)
        self.row_atoms = {a for _, group in self.row_axes for a in group}
        for step in self.group.steps:
            if step.kind == "finish":
                assert step.fold is not None
                self._sizes[f"k{self.reduced[step.fold]}"] = self.reduced[step.fold]

    def _in_memory_order(self) -> tuple[tuple[Atom, ...], tuple[Atom, ...]]:
        """Rows and inner axis, their atoms in the order in which results lie in memory where no fold fixes another."""
        kinds = {s.kind for s in self.group.steps}
        rows, inner = self.shape.rows, self.shape.inner
        if kinds & {"finish", "column", "split"}:
            return rows, inner
        whole = {*rows, *inner}
        full = [a for a in self.accesses if a.role != "partial" and whole <= a.strides.keys()]
        if not full:
            return rows, inner
        first = min(full, key=lambda a: a.role == "in")  # results before operands

        def ordered(atoms: tuple[Atom, ...]) -> tuple[Atom, ...]:
            return tuple(sorted(atoms, key=lambda a: -abs(first.strides[a])))

        return ordered(rows), inner if "row" in kinds else ordered(inner)

    def _is_partial(self, access: Access) -> bool:
        return any(access in group for group in self._partials.values())

    def _axes(self) -> tuple[Axis, ...]:
        axes = [Axis(name, "row") for name, _ in self.row_axes]
        if self.has_inner:
            axes.append(Axis("r", "inner", tuple(name for name, _ in self.inner_parts)))
        for name in self._sizes:
            if name.startswith("k"):
                axes.append(Axis(name, "reduced"))
        return tuple(axes)

    def _index(self, access: Access) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Names of the axes that an access runs over, and its strides there."""
        if access.role == "partial" or self._is_partial(access):
            return (), ()
        names: list[str] = []
        strides: list[int] = []
        for name, group in self.row_axes:
            if access.strides.get(group[-1], 0):
                names.append(name)
                strides.append(access.strides[group[-1]])
        if self.has_inner:
            whole = self._linear(access.strides)
            if whole:
                names.append("r")
                strides.append(whole)
            elif whole is None:
                for name, group in self.inner_parts:
                    if access.strides.get(group[-1], 0):
                        names.append(name)
                        strides.append(access.strides[group[-1]])
        for name, stride in access.extra:
            names.append(name)
            strides.append(stride)
        return tuple(names), tuple(strides)

    def _linear(self, strides: dict[Atom, int]) -> int | None:
        """The stride of the whole inner axis, None if its atoms are stepped over in different ways."""
        atoms = self.inner_atoms
        for outer, inner in zip(atoms, atoms[1:], strict=False):
            if strides.get(outer, 0) != strides.get(inner, 0) * inner.size:
                return None
        return strides.get(atoms[-1], 0)

    def _operand(self, access: Access) -> Operand:
        if access.role == "partial" or self._is_partial(access):
            return Operand(access.name, access.dtype, (1,), access.role)  # type: ignore[arg-type]
        _, strides = self._index(access)
        return Operand(access.name, access.dtype, tuple(1 if s == 1 else None for s in strides), access.role)  # type: ignore[arg-type]

    def _mode(self) -> str:
        kinds = {s.kind for s in self.group.steps}
        if "column" in kinds:
            return "columns"
        if "split" in kinds:
            return "split"
        return "flat" if self.flat else "rows"

    # ---- statements
    def _level(self, dims: Dims) -> str:
        """Whether a value is one of the row or runs over the inner axis."""
        return "inner" if self.has_inner and any(a not in self.row_atoms for axis in dims for a in axis) else "row"

    def _stages(self) -> list[Stage]:
        self._depths()
        passes = max([d for s, d in self._pass_of.items()], default=-1) + 1
        stages: list[Stage] = []
        self._scratch: dict[Value, Access] = {}
        self._kept_in: dict[Value, int] = {}
        self._plan_scratch(passes)
        self._ready: set[str] = set()
        for number in range(passes + 1):
            row = self._row_stage(number)
            if row:
                stages.append(Stage((), tuple(row)))
            if number < passes:
                body = self._inner_stage(number)
                if body:
                    stages.append(Stage(("r",) if self.has_inner else (), tuple(body)))
        return stages

    def _depths(self) -> None:
        """For each value the first pass in which it can be computed; for folds and stores the pass in which they are."""
        self._depth: dict[Value, int] = {}
        self._pass_of: dict[Step, int] = {}
        for step in self.group.steps:
            depth = max([self._depth.get(v, 0) for v in step.inputs], default=0)
            if step.kind == "row":
                self._pass_of[step] = depth
                depth += 1
            elif step.kind in ("column", "split"):
                self._pass_of[step] = depth
            if step.output is not None:
                self._depth[step.output] = depth
                if step.output in self.stored and self._level(step.result) == "inner":
                    self._pass_of.setdefault(step, depth)
        self._step_of = {s.output: s for s in self.group.steps if s.output is not None}

    def _needed(self, number: int) -> list[Step]:
        """Inner-level steps whose values pass `number` uses, in order."""
        roots: list[Value] = []
        for step, when in self._pass_of.items():
            if when == number:
                roots += [step.output] if step.kind in ("map", "view", "finish", "point") and step.output else list(step.inputs)
        needed: set[Step] = set()
        stack = roots
        while stack:
            v = stack.pop()
            step = self._step_of.get(v)
            if step is None or step in needed or self._level(step.result) == "row":
                continue
            if step.kind == "row":
                continue
            needed.add(step)
            if not self._is_read_back(v, number):
                stack.extend(step.inputs)
        return [s for s in self.group.steps if s in needed]

    def _is_read_back(self, v: Value, number: int) -> bool:
        if v in self._scratch:
            return number > self._kept_in[v]
        return number > self._depth[v] and v in self._stores and self._level(self._step_of[v].result) == "inner"

    def _plan_scratch(self, passes: int) -> None:
        """Results written in a late pass lend their memory to expensive values of earlier ones."""
        free = [
            (self._depth[v], v)
            for v, access in self._stores.items()
            if self._level(self._step_of[v].result) == "inner" and access.buffer.kind != "input"
        ]
        for number in range(1, passes):
            for step in self._needed(number):
                v = step.output
                assert v is not None
                compute = step.node.op.compute
                if self._depth[v] >= number or v in self._stores or v in self._scratch:
                    continue
                if not (isinstance(compute, Scalar) and compute.expensive):
                    continue
                uses = [n for n in range(passes) if step in self._needed(n)]
                if len(uses) < 2:
                    continue
                for k, (depth, other) in enumerate(free):
                    same = frozenset(a for axis in self._step_of[other].result for a in axis)
                    mine = frozenset(a for axis in step.result for a in axis)
                    if other.type.dtype == v.type.dtype and same == mine and depth > uses[0] and depth >= uses[-1]:
                        access = self._stores[other]
                        access.role = "inout"
                        self._scratch[v] = access
                        self._kept_in[v] = uses[0]
                        del free[k]
                        break

    def _row_stage(self, number: int) -> list[Statement]:
        body: list[Statement] = []
        if number == 0:
            for (_, dims), name in self._loads.items():
                if self._level(dims) == "row":
                    access = self._load_access[name]
                    body.append(Load(name, access.name, self._index(access)[0]))
        for step in self.group.steps:
            v = step.output
            if v is None or self._level(step.result) != "row" or self._depth[v] != number:
                continue
            if step.kind != "row":
                body += self._statements(step, "row")
            if v in self._stores and (not self.has_inner or self._level(step.result) == "row"):
                access = self._stores[v]
                body.append(Store(access.name, self._index(access)[0], self.names[v]))
        return body

    def _inner_stage(self, number: int) -> list[Statement]:
        body: list[Statement] = []
        late: list[Statement] = []
        loaded: set[str] = set()
        self.positions = {k: n for k, n in self.positions.items() if n.startswith("row_")}
        needed = self._needed(number)
        # What lies in a result's memory is read before the result is written there.
        needed.sort(key=lambda s: not (s.output in self._scratch and self._is_read_back(s.output, number)))
        for step in needed:
            v = step.output
            assert v is not None
            if self._is_read_back(v, number):
                access = self._stores[v] if v in self._stores else self._scratch[v]
                body.append(Load(self.names[v], access.name, self._index(access)[0]))
                continue
            body += self._inner_loads(step, loaded)
            body += self._statements(step, "inner")
            if v in self._stores and self._depth[v] == number:
                access = self._stores[v]
                # An input that is updated in place may be read by what comes after.
                where = late if access.buffer.kind == "input" else body
                where.append(Store(access.name, self._index(access)[0], self.names[v]))
            elif v in self._scratch and self._kept_in[v] == number:
                access = self._scratch[v]
                body.append(Store(access.name, self._index(access)[0], self.names[v]))
        for step, when in self._pass_of.items():
            if when == number and step.kind in ("row", "column", "split"):
                body += self._inner_loads(step, loaded)
                body += self._fold(step)
        return body + late

    def _inner_loads(self, step: Step, loaded: set[str]) -> list[Statement]:
        body: list[Statement] = []
        for v, dims in zip(step.inputs, step.operands, strict=True):
            name = self._loads.get((v, dims)) if dims is not None else None
            if name is not None and name not in loaded and self._level(dims) == "inner":  # type: ignore[arg-type]
                loaded.add(name)
                access = self._load_access[name]
                body.append(Load(name, access.name, self._index(access)[0]))
        return body

    def _argument(self, v: Value, dims: Dims | None) -> str:
        if v in self.names:
            return self.names[v]
        literal = self.literal(v)
        if literal is not None:
            return self._literal(literal, v)
        assert dims is not None
        return self._loads[(v, dims)]

    def _vector(self, v: Value, name: str, body: list[Statement]) -> str:
        """The name of a vector value that holds a literal."""
        body.append(Let(name, self._dtype(v), self._literal(self.literal(v), v)))
        return name

    def _raw_text(self, step: Step) -> str:
        compute = step.node.op.compute
        assert isinstance(compute, Scalar)
        types = [v.type for v in step.inputs]
        out = step.node.outputs[0].type
        text = compute.text if isinstance(compute.text, str) else compute.text(types, out, step.node.attrs)
        return text

    def _statements(self, step: Step, level: str) -> list[Statement]:
        """What computes the step's value, its loads done."""
        v = step.node.outputs[0]
        name, compute = self.names[v], step.node.op.compute
        if step.kind == "view":
            argument = self._argument(step.inputs[0], step.operands[0])
            return [Let(name, self._dtype(v), argument)]
        if step.kind == "finish":
            return self._combine(step, level)
        if step.kind == "point":
            return self._point(step)
        if isinstance(compute, Gather):
            return self._gather(step, level)
        body: list[Statement] = []
        keys: dict[str, str] = {}
        for what, strides in self._position_strides.get(step, {}).items():
            keys[what] = self._position(strides, level, body)
        arguments = [self._argument(x, d) for x, d in zip(step.inputs, step.operands, strict=True)]
        if all(self.literal(x) is not None and x not in self.names for x in step.inputs):
            # Text on literals alone would be Python's: ~True is -2.
            arguments = [self._vector(x, f"{name}_{k}", body) for k, x in enumerate(step.inputs)]
        out = v.type
        first = step.inputs[0].type.dtype if step.inputs else out.dtype
        text = self._raw_text(step).format(*arguments, T=lane(first), R=lane(out.dtype), **keys)
        rounding = _ROUND.get(out.dtype)
        if rounding and text not in arguments:
            text = f"{rounding}({text})"
        body.append(Let(name, self._dtype(v), text))
        return body

    def _position(self, strides: dict[Atom, int], level: str, body: list[Statement]) -> str:
        """The name of an int64 value: the position that the strides describe."""
        key = tuple(sorted(strides.items(), key=lambda item: id(item[0])))
        if key in self.positions:
            return self.positions[key]
        access = Access("", "int64", strides, "in", Buffer(Type("int64"), "constant"))
        names, steps = self._index(access)
        prefix = "row_" if level == "row" else ""
        terms = []
        for axis, stride in zip(names, steps, strict=True):
            name = f"{prefix}i{len(self.positions)}_{len(terms)}"
            body.append(Index(name, axis))
            if stride != 1:
                number = self._access("int64", {}, "in", self.numbers(stride), 0)
                loaded = f"{prefix}n{len(self.positions)}_{len(terms)}"
                body.append(Load(loaded, number.name, ()))
                terms.append(f"{name} * {loaded}")
            else:
                terms.append(name)
        result = f"{prefix}i{len(self.positions)}"
        body.append(Let(result, "int64", " + ".join(terms) or "i64(0)"))
        self.positions[key] = result
        return result

    def _number(self, value: int, body: list[Statement]) -> str:
        access = self._access("int64", {}, "in", self.numbers(value), 0)
        name = f"c{access.name}"
        body.append(Load(name, access.name, ()))
        return name

    def _gather(self, step: Step, level: str) -> list[Statement]:
        access, indices = self._gathers[step]
        compute = step.node.op.compute
        assert isinstance(compute, Gather)
        v, data = step.node.outputs[0], step.inputs[0].type
        body: list[Statement] = []
        checks: list[str] = []
        for k, index in enumerate(indices):
            size = int(data.shape[k])
            if index.operand is not None:
                which = step.inputs[index.operand]
                raw = self._argument(which, step.operands[index.operand])
                if self.literal(which) is not None and which not in self.names:
                    raw = self._vector(which, f"{access.name}_{k}_raw", body)
                limit = self._number(size, body)
                wide = f"to_i64({raw})"
                name = f"{access.name}_{k}"
                body.append(Let(f"{name}_w", "int64", wide))
                body.append(Let(name, "int64", f"select({name}_w < i64(0), {name}_w + {limit}, {name}_w)"))
                checks.append(f"({name} >= i64(0)) & ({name} < {limit})")
            elif compute.fill is not None and index.axis is not None:
                strides = self._position_strides[step][f"axis{index.axis}"]
                position = self._position(strides, level, body) if strides else "i64(0)"
                limit, offset = self._number(size, body), self._number(index.offset, body)
                name = f"{access.name}_{k}"
                body.append(Let(name, "int64", f"{position} + {offset}"))
                checks.append(f"({name} >= i64(0)) & ({name} < {limit})")
        valid = fill = None
        if checks:
            valid = f"{access.name}_valid"
            body.append(Let(valid, "bool", " & ".join(f"({c})" for c in checks)))
            value = step.node.attrs[compute.fill] if compute.fill is not None else 0
            fill = self._literal(value, v)
        body.append(Load(self.names[v], access.name, self._index(access)[0], valid, fill))
        return body

    def _folding(self, step: Step) -> Folding:
        compute = step.node.op.compute
        assert isinstance(compute, Reduction)
        folding = compute.folding(step.node.inputs[0].type, step.node.outputs[0].type)
        rounding = _ROUND.get(step.node.outputs[0].type.dtype)
        if rounding:
            folding = replace(folding, finish=tuple(f"{rounding}({t})" for t in folding.finish))
        return folding

    def _point(self, step: Step) -> list[Statement]:
        """A fold over one element: its init, one step, its finish."""
        folding = self._folding(step)
        name = self.names[step.node.outputs[0]]
        body: list[Statement] = []
        which = step.inputs[0]
        argument = self._argument(which, step.operands[0])
        if self.literal(which) is not None and which not in self.names:
            argument = self._vector(which, f"{name}_x", body)
        arguments = (argument, "i64(0)")
        states = {state: f"{name}_{state}" for state, _ in folding.state}

        def renamed(text: str, suffix: str) -> str:
            pattern = r"\b(" + "|".join(states) + r")\b"
            return re.sub(pattern, lambda m: states[m[0]] + suffix, text).format(*arguments)

        for (state, kind), init in zip(folding.state, folding.init, strict=True):
            literal = init if kind == "bool" else f"{kind}({init})"
            body.append(Let(f"{states[state]}_0", _LANE_NAMES[kind], f"select({argument} == {argument}, {literal}, {literal})"))
        for (state, kind), text in zip(folding.state, folding.step, strict=True):
            body.append(Let(f"{states[state]}_1", _LANE_NAMES[kind], renamed(text, "_0")))
        body.append(Let(name, step.node.outputs[0].type.dtype, renamed(folding.finish[-1], "_1")))
        return body

    def _fold(self, step: Step) -> list[Statement]:
        body: list[Statement] = []
        arguments = [self._argument(step.inputs[0], step.operands[0])]
        compute = step.node.op.compute
        assert isinstance(compute, Reduction)
        if compute.positions:
            arguments.append(self._position(self._position_strides[step]["index"], "inner", body))
        folding = self._folding(step)
        if step.kind == "row":
            dsts = tuple(
                self.names[step.node.outputs[0]] if k == len(folding.finish) - 1 else f"{self.names[step.node.outputs[0]]}_{k}"
                for k in range(len(folding.finish))
            )
            body.append(Fold(dsts, folding, tuple(arguments), "r"))
            return body
        names = tuple(a.name for a in self._partials[step])
        body.append(Fold(names, folding, tuple(arguments), "rows" if step.kind == "column" else "r"))
        return body

    def _combine(self, step: Step, level: str) -> list[Statement]:
        assert step.fold is not None
        folding = self._folding(step.fold)
        mode = self.modes[step.fold]
        return [
            Combine(
                (self.names[step.node.outputs[0]],),
                (step.node.outputs[0].type.dtype,),
                folding,
                tuple(a.name for a in self._partials[step]),
                mode,  # type: ignore[arg-type]
                f"k{self.reduced[step.fold]}",
            )
        ]

    def _notes(self, spec: KernelSpec) -> dict[int, str]:
        source_of = {self.names[s.output]: s.node for s in self.group.steps if s.output is not None}
        notes = {}
        for number, statement in enumerate(spec.statements):
            if isinstance(statement, Store):
                continue
            name = statement.dsts[-1] if isinstance(statement, Fold | Combine) else statement.dst
            node = source_of.get(name)
            if node is not None:
                mark = "gradient of " if node.origin.gradient and node.origin.source else ""
                where = f" {mark}{node.origin.source}" if node.origin.source else ""
                notes[number] = f"{node.op.name}{where}"
        return notes


def _size(atoms: list[Atom]) -> int:
    size = 1
    for atom in atoms:
        size *= atom.size
    return size


def _literal_text(value: Any, dtype: str) -> str:
    """A typed literal of kernel text."""
    name = lane(dtype)
    if dtype == "bool":
        return "True" if value else "False"
    if name[0] == "f":
        number = float(value)
        if number != number:
            return f"{name}(nan)"
        if number in (float("inf"), float("-inf")):
            return f"{name}({'-' if number < 0 else ''}inf)"
        return f"{name}({number!r})"
    return f"{name}({int(value)})"
