"""Groups in order become rows of a program: buffers, specifications, argument blocks.

Every value that goes through memory has a buffer; graph inputs and outputs have slots of the program, temporaries share one
workspace, constants are memory that the lowered program owns.
"""

from __future__ import annotations

import math
import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from codegen import compile as kernels
from codegen import gemm
from codegen.runtime import AddressOf, HostCall, Program, Row, Slot
from ops.compute import Constant, Size, Strided
from ops.movement import contiguous_strides
from ops.operator import lookup
from ops.types import Type
from tracer.dispatch import run_reference
from tracer.graph import Graph, GraphBuilder, Node, Value
from tracer.lowering.fuse import Fusion, Group, Step, space
from tracer.lowering.layout import Buffer, Layout
from tracer.lowering.memory_plan import plan_memory
from tracer.lowering.specify import Bound, Specifier

PARALLEL_ELEMENTS = 1 << 15  # a row of less work runs on the caller alone
CHUNK_ELEMENTS = 1 << 14
_LANE_DTYPE = {"f32": "float32", "f64": "float64", "bool": "bool"} | {
    f"{k}{n}": f"{'u' if k == 'u' else ''}int{n}" for k in "iu" for n in (8, 16, 32, 64)
}


@dataclass(slots=True)
class Planned:
    """One row, or several of one library call: what it runs, reads and writes."""

    kind: str
    name: str
    nodes: list[Node]
    reads: list[Buffer]
    writes: list[Buffer]
    bound: Bound | None = None
    text: str = ""
    origin: str = ""
    rows: list[Any] = field(default_factory=list)
    chunk: int = 0
    count: int = 0
    call: Any = None


class Lowering:
    """A graph of known sizes on its way to a program. `updates`: output number -> input number that receives it. `shared`:
    numbers of outputs which, being inputs, need no memory of their own."""

    def __init__(self, graph: Graph, updates: Mapping[int, int], shared: Container[int] = ()) -> None:
        self.graph = graph
        self.updates = dict(updates)
        self.shared = shared
        self.fusion = Fusion(graph)
        self.producer: dict[Value, Node] = {v: n for n in graph.nodes for v in n.outputs}
        self.buffers: dict[Value, Buffer] = {}
        self.arranged: dict[Value, Strided] = {}
        self.partials: dict[Step, list[Buffer]] = {}
        self.reduced: dict[Step, int] = {}
        self.modes: dict[Step, str] = {}
        self.numbers: dict[int, Buffer] = {}
        self.constants: list[Buffer] = []
        self.planned: list[Planned] = []
        self.final: list[Planned] = []
        self.output_buffers: list[Buffer | None] = []
        self.work_extra: list[Buffer] = []
        started = time.perf_counter()
        self._place_values()
        for group in self.fusion.groups:
            self._group(group)
        self._finish_outputs()
        self.lower_seconds = time.perf_counter() - started
        self._assemble()

    # ---- buffers
    def _place_values(self) -> None:
        inputs = {v: k for k, v in enumerate(self.graph.inputs)}
        for v, k in inputs.items():
            self.buffers[v] = Buffer(v.type, "input", k)
        self.output_buffers = [None] * len(self.graph.outputs)
        self.copies: list[tuple[int, Value]] = []
        order = {id(g): k for k, g in enumerate(self.fusion.groups)}
        readers = self._readers(order)
        for number, v in enumerate(self.graph.outputs):
            base, layout = self._base(v)
            whole = layout is None or (
                layout.offset == 0
                and Layout(Buffer(v.type, ""), layout).is_contiguous
                and int(base.type.size) == int(v.type.size)
            )
            if layout is not None and not whole and base not in self.buffers and base not in inputs:
                turned = self._turned(base, layout)
                if turned is not None and number not in self.updates:
                    buffer = Buffer(v.type.strong(), "output", number)
                    self.buffers[base] = self.output_buffers[number] = buffer
                    self.arranged[base] = turned
                    continue
            if base in inputs or base in self.buffers or not whole or self._is_data(base):
                if number in self.shared and inputs.get(v, -1) not in (-1, *self.updates.values()):
                    continue  # handed through
                self.copies.append((number, v))
                continue
            if number in self.updates:
                target = self.graph.inputs[self.updates[number]]
                if layout is None and self._can_update(base, target, readers, order):
                    self.buffers[base] = self.buffers[target]
                    continue
                self.copies.append((number, v))
                continue
            buffer = Buffer(base.type, "output", number)
            self.buffers[base] = self.output_buffers[number] = buffer

    def _turned(self, base: Value, view: Strided) -> Strided | None:
        """How a matrix product must lie so that a permutation of it that is returned is row-major; None for other views."""
        group = self.fusion.group_of.get(base)
        if group is None or group.find().kind != "contraction":
            return None
        shape = tuple(map(int, base.type.shape))
        old = contiguous_strides(shape)
        new = contiguous_strides(view.shape)
        moved = {s: n for d, s, n in zip(view.shape, view.strides, new, strict=True) if d != 1}
        sizes = {s: d for d, s in zip(view.shape, view.strides, strict=True) if d != 1}
        permutes = int(base.type.size) == math.prod(view.shape)
        if view.offset or not permutes or any(d != 1 and sizes.get(s) != d for d, s in zip(shape, old, strict=True)):
            return None
        turned = Strided(shape, tuple(moved.get(s, 1) if d != 1 else 1 for d, s in zip(shape, old, strict=True)))
        if 1 not in turned.strides[-2:]:  # products are written along rows or columns
            return None
        others = [u for u, (source, _) in self.fusion.aliases.items() if source is base]
        return turned if all(self._through(base, u, turned) is not None for u in others) else None

    def _readers(self, order: dict[int, int]) -> dict[Value, list[int]]:
        """For each value the positions of the groups that read its buffer, views included."""
        result: dict[Value, list[int]] = {}
        for group in self.fusion.groups:
            for node in group.nodes:
                for v in node.inputs:
                    base = self._base(v)[0]
                    result.setdefault(base, []).append(order[id(group)])
        return result

    def _can_update(self, v: Value, target: Value, readers: dict[Value, list[int]], order: dict[int, int]) -> bool:
        """Whether v can be written to the memory of an input while it is computed."""
        group = self.fusion.group_of.get(v)
        if group is None or v.type.strong() != target.type.strong() or target in self.graph.outputs:
            return False
        if any(self._base(u)[0] is target for u in self.graph.outputs):
            return False
        if sum(self.graph.inputs[i] is target for i in self.updates.values()) != 1:
            return False
        group = group.find()
        position = order[id(group)]
        if group.kind != "kernel" or any(r > position for r in readers.get(target, ())):
            return False
        if any(s.kind in ("row", "column", "split") for s in group.steps):
            return position not in readers.get(target, ())
        size = max(int(s.output.type.size) for s in group.steps if s.output is not None)
        if int(v.type.size) != size and position in readers.get(target, ()):
            return False  # every task computes v, and would read what another one has written
        own = next(s for s in group.steps if s.output is v)
        for s in group.steps:
            for x, dims in zip(s.inputs, s.operands, strict=True):
                if self._base(x)[0] is target and (x is not target or dims != own.result):
                    return False
        return True

    def _base(self, v: Value) -> tuple[Value, Strided | None]:
        alias = self.fusion.aliases.get(v)
        return (v, None) if alias is None else alias

    def _is_data(self, v: Value) -> bool:
        node = self.producer.get(v)
        return node is not None and isinstance(node.op.compute, Constant | Size)

    def buffer(self, v: Value) -> Buffer:
        """The buffer of a value that is no view."""
        found = self.buffers.get(v)
        if found is None:
            node = self.producer.get(v)
            if node is not None and self._is_data(v):
                found = self._constant(np.asarray(run_reference(node.op, [], node.attrs)[0]), v.type)
            else:
                found = Buffer(v.type, "work")
            self.buffers[v] = found
        return found

    def layout(self, v: Value) -> Layout:
        """Where a value lies."""
        base, strided = self._base(v)
        buffer = self.buffer(base)
        arranged = self.arranged.get(base)
        if arranged is not None:
            if strided is None:
                return Layout(buffer, arranged)
            strided = self._through(base, v, arranged)
        if strided is None:
            shape = tuple(map(int, v.type.shape))
            strided = Strided(shape, contiguous_strides(shape))
        return Layout(buffer, strided)

    def _through(self, base: Value, v: Value, layout: Strided) -> Strided | None:
        """The layout of a view of a value that does not lie row-major, None where only a copy can do it."""
        chain: list[Node] = []
        while v is not base:
            chain.append(self.producer[v])
            v = chain[-1].inputs[0]
        for node in reversed(chain):
            shape = tuple(map(int, node.outputs[0].type.shape))
            found = node.op.compute.rule(layout, shape, node.attrs)  # type: ignore[union-attr]
            if found is None:
                return None
            layout = found
        return layout

    def _constant(self, array: np.ndarray[Any, Any], type_: Type) -> Buffer:
        buffer = Buffer(type_, "constant", data=np.ascontiguousarray(array))
        self.constants.append(buffer)
        return buffer

    def number(self, value: int) -> Buffer:
        """A buffer that holds an int64."""
        found = self.numbers.get(value)
        if found is None:
            found = self.numbers[value] = self._constant(np.asarray(value, np.int64), Type("int64"))
        return found

    def literal(self, v: Value) -> Any:
        """The value of a 0-d constant, else None."""
        node = self.producer.get(v)
        if node is None or not isinstance(node.op.compute, Constant) or v.type.shape != ():
            return None
        return node.attrs["value"].array[()]

    # ---- groups
    def _group(self, group: Group) -> None:
        if group.kind in ("view", "empty"):
            if group.kind == "empty":
                for v in group.node.outputs:  # type: ignore[union-attr]
                    self.buffer(v)
            elif group.node is not None and group.node.outputs[0] not in self.fusion.aliases:
                self._copied_view(group.node)
            return
        getattr(self, f"_{group.kind}")(group)

    def _kernel(self, group: Group) -> None:
        stored = self.fusion.stored(group.steps)
        if not stored and not any(s.kind in ("column", "split") for s in group.steps):
            return
        shape = space(group.steps, stored)
        assert not isinstance(shape, str), shape
        for step in group.steps:
            if step.kind in ("column", "split"):
                folding = step.node.op.compute.folding(step.node.inputs[0].type, step.node.outputs[0].type)  # type: ignore[union-attr]
                self.partials[step] = [Buffer(Type(_LANE_DTYPE[d]), "work") for _, d in folding.state]
                self.modes[step] = "columns" if step.kind == "column" else "split"
                count = 1
                for atom in shape.rows if step.kind == "column" else shape.inner:
                    count *= atom.size
                self.reduced[step] = count
        specifier = Specifier(
            group, shape, stored, self.layout, self.literal, self.number, self.partials, self.reduced, self.modes,
            _kernel_name(group),
        )
        self._add_bound(specifier.run(), group)

    def _add_bound(self, bound: Bound, group: Group) -> None:
        spec, schedule = bound.spec, bound.schedule
        count = kernels.count(spec, schedule, bound.sizes)
        for step in group.steps:
            for buffer in self.partials.get(step, ()) if step.kind in ("column", "split") else ():
                buffer.type = Type(buffer.type.dtype, (kernels.partial_size(spec, schedule, bound.sizes),))
        reads = [b for (b, _), o in zip(bound.operands, spec.operands, strict=True) if o.role in ("in", "inout")]
        writes = [b for (b, _), o in zip(bound.operands, spec.operands, strict=True) if o.role != "in"]
        planned = Planned("kernel", spec.name, group.nodes, reads, writes, bound, count=count)
        planned.chunk = _chunk(bound, count)
        self.planned.append(planned)

    def _copy_to(self, v: Value, target: Layout, name: str = "copy") -> None:
        """A kernel that writes a value to a place of the same shape."""
        builder = GraphBuilder()
        source = builder.input(v.type.strong())
        builder.emit(lookup("Cast"), (source,), {"to": v.type.dtype})
        node = builder.nodes[0]
        node = Node(node.op, (v,), node.attrs, node.outputs)
        group = Group("kernel", node=None)
        from tracer.lowering.axes import fresh

        result = fresh(target.strided.shape)
        group.steps = [Step(node, "map", (result,), result)]
        stored = {node.outputs[0]}
        shape = space(group.steps, stored)
        assert not isinstance(shape, str)
        layouts = {v: self.layout(v), node.outputs[0]: target}
        specifier = Specifier(
            group, shape, stored, layouts.__getitem__, self.literal, self.number, {}, {}, {}, f"k_{name}"
        )
        self._add_bound(specifier.run(), group)

    def _copied_view(self, node: Node) -> None:
        """A view that strides cannot express, because of how its operand lies: the operand is copied first."""
        v, out = node.inputs[0], node.outputs[0]
        shape = tuple(map(int, v.type.shape))
        plain = Strided(shape, contiguous_strides(shape))
        view = node.op.compute.rule(plain, tuple(map(int, out.type.shape)), node.attrs)  # type: ignore[union-attr]
        assert view is not None, node
        target = self.layout(out)
        if not view.offset and Layout(target.buffer, view).is_contiguous and target.is_contiguous:
            self._copy_to(v, Layout(target.buffer, plain), "view")
            return
        whole = Value(v.type.strong())
        self._copy_to(v, self.layout(whole), "view")
        piece = Value(out.type.strong())
        self.buffers[piece] = self.buffer(whole)
        self.arranged[piece] = view
        self._copy_to(piece, target, "view")

    def _copy(self, group: Group) -> None:
        """Concatenation: each operand into its part of the result."""
        node = group.node
        assert node is not None
        out = self.layout(node.outputs[0])
        axis = node.attrs["axis"] % node.outputs[0].type.rank
        start = 0
        for v in node.inputs:
            shape = tuple(map(int, v.type.shape))
            if 0 not in shape:
                offset = out.strided.offset + start * out.strided.strides[axis]
                self._copy_to(v, Layout(out.buffer, Strided(shape, out.strided.strides, offset)), "concat")
            start += shape[axis]

    def _contraction(self, group: Group) -> None:
        node = group.node
        assert node is not None
        a, b, c = (self.layout(v) for v in (*node.inputs, *node.outputs))
        rank = len(c.strided.shape)
        batch = c.strided.shape[:-2]

        def matrix(layout: Layout) -> gemm.Layout:
            shape, strides = layout.strided.shape, layout.strided.strides
            lead = rank - len(shape)
            own = tuple(0 if d == 1 else s for d, s in zip(shape[:-2], strides[:-2], strict=True))
            return gemm.Layout(strides[-2], strides[-1], (0,) * lead + own)

        problem = gemm.Problem(
            m=c.strided.shape[-2], n=c.strided.shape[-1], k=a.strided.shape[-1], dtype=node.outputs[0].type.dtype,
            a=matrix(a), b=matrix(b), c=matrix(c), batch=batch,
        )
        plan = gemm.plan(problem)
        work = Buffer(Type("uint8", (plan.workspace,)), "work")
        planned = Planned("library", "matmul", [node], [a.buffer, b.buffer], [c.buffer])
        if plan.workspace:
            planned.writes.append(work)
        planned.rows = [(plan, {"a": a, "b": b, "c": c}, work)]
        self.planned.append(planned)

    def _scatter(self, group: Group) -> None:
        from tracer.lowering.scatter import scatter_bound

        node = group.node
        assert node is not None
        out = self.layout(node.outputs[0])
        self._copy_to(node.inputs[0], out, "scatter_base")
        bound = scatter_bound(node, self.layout, self.number, out)
        if bound is not None:
            self._add_bound(bound, bound.group)

    def _host(self, group: Group) -> None:
        node = group.node
        assert node is not None
        layouts = [self.layout(v) for v in node.inputs]
        outs = [self.layout(v) for v in node.outputs]
        planned = Planned("host", node.op.name, [node], [x.buffer for x in layouts], [y.buffer for y in outs])
        planned.call = (node, layouts, outs)
        self.planned.append(planned)

    def _finish_outputs(self) -> None:
        """Outputs that no kernel wrote to their place: views, inputs, values returned twice."""
        late: list[tuple[int, Value, Buffer]] = []
        for number, v in self.copies:
            if number in self.updates:
                if self._base(v)[0] in self.graph.inputs:
                    temporary = Buffer(v.type.strong(), "work")
                    self._copy_to(v, Layout.contiguous(temporary), "keep")
                    late.append((number, v, temporary))
                else:
                    late.append((number, v, self.layout(v).buffer))
            else:
                buffer = Buffer(v.type.strong(), "output", number)
                self.output_buffers[number] = buffer
                if 0 not in v.type.shape:
                    self._copy_to(v, Layout.contiguous(buffer), "output")
        for number, v, temporary in late:
            target = self.buffers[self.graph.inputs[self.updates[number]]]
            if 0 in v.type.shape:
                continue
            if self._base(v)[0] in self.graph.inputs:
                kept = Value(v.type.strong())
                self.buffers[kept] = temporary
                self._copy_to(kept, Layout.contiguous(target), "update")
            else:
                self._copy_to(v, Layout.contiguous(target), "update")

    # ---- the program
    def _assemble(self) -> None:
        self._lay_out()
        started = time.perf_counter()
        self.program = self._compile()
        self.compile_seconds = time.perf_counter() - started

    def _lay_out(self) -> None:
        """Places of temporaries and constants, slots of outputs and the workspace."""
        lives: dict[int, tuple[Buffer, int, int]] = {}
        for row, planned in enumerate(self.planned):
            for buffer in (*planned.reads, *planned.writes):
                if buffer.kind == "work":
                    first = lives[id(buffer)][1] if id(buffer) in lives else row
                    lives[id(buffer)] = (buffer, first, row)
        self.workspace = plan_memory(list(lives.values()))
        self.constant_memory = _pack(self.constants)
        self.output_slots: dict[int, int] = {}
        slot = len(self.graph.inputs)
        for number, buffer in enumerate(self.output_buffers):
            if buffer is not None:
                self.output_slots[number] = slot
                slot += 1
        self.workspace_slot = slot

    def _compile(self) -> Program:
        """The program: every kernel compiled or loaded."""
        rows: list[Any] = []
        for planned in self.planned:
            rows += self._rows(planned)
        return Program(rows, self.workspace_slot + 1)

    def _pointer(self, buffer: Buffer, offset: int = 0) -> Any:
        bytes_ = offset * buffer.type.itemsize
        if buffer.kind == "input":
            if buffer.type.weak:
                return AddressOf(buffer.number)
            return Slot(buffer.number, bytes_)
        if buffer.kind == "output":
            return Slot(self.output_slots[buffer.number], bytes_)
        if buffer.kind == "work":
            return Slot(self.workspace_slot, buffer.place + bytes_)
        return self.constant_memory.__array_interface__["data"][0] + buffer.place + bytes_

    def _rows(self, planned: Planned) -> list[Any]:
        if planned.bound is not None:
            bound = planned.bound
            kernel = kernels.compile_cpu(bound.spec, bound.schedule, bound.notes)
            planned.text, planned.origin = kernel.text, kernel.origin
            block = kernels.argument_block(
                bound.spec,
                {o.name: self._pointer(*b) for o, b in zip(bound.spec.operands, bound.operands, strict=True)},
                bound.sizes,
                bound.strides,
            )
            return [Row(kernel.address, planned.count, planned.chunk, tuple(block))]
        if planned.kind == "host":
            return [HostCall(self._host_function(*planned.call), planned.name)]
        ((plan, layouts, work),) = planned.rows
        result = []
        for row in plan.rows:
            kernel = gemm.kernel(row.kernel)
            words: list[Any] = []
            for w in row.words:
                if isinstance(w, gemm.Address):
                    if w.operand == "workspace":
                        words.append(Slot(self.workspace_slot, work.place + w.offset))
                    else:
                        layout = layouts[w.operand]
                        base = self._pointer(layout.buffer, layout.strided.offset)
                        words.append(
                            Slot(base.index, base.offset + w.offset) if isinstance(base, Slot) else base + w.offset
                        )
                else:
                    words.append(w)
            planned.origin = kernel.origin
            result.append(Row(kernel.address, row.n, row.chunk, tuple(words)))
        return result

    def _host_function(self, node: Node, layouts: Sequence[Layout], outs: Sequence[Layout]) -> Any:
        sources = [(self._pointer(x.buffer, x.strided.offset), x) for x in layouts]
        targets = [(self._pointer(y.buffer, y.strided.offset), y) for y in outs]

        def resolve(pointer: Any, words: Sequence[Any]) -> int:
            return int(words[pointer.index]) + pointer.offset if isinstance(pointer, Slot) else int(pointer)

        def call(*words: Any) -> None:
            arrays = [
                np.asarray(words[p.slot]) if isinstance(p, AddressOf) else _array_at(resolve(p, words), x)
                for p, x in sources
            ]
            results = run_reference(node.op, arrays, node.attrs)
            for (p, y), array in zip(targets, results, strict=True):
                _array_at(resolve(p, words), y)[...] = array

        return call


def _array_at(address: int, layout: Layout) -> np.ndarray[Any, Any]:
    """The elements at an address as an array."""
    import ctypes

    dtype = layout.buffer.type.numpy
    shape, strides = layout.strided.shape, layout.strided.strides
    if 0 in shape:
        return np.empty(shape, dtype)
    low = sum(min(0, s * (d - 1)) for d, s in zip(shape, strides, strict=True))
    high = sum(max(0, s * (d - 1)) for d, s in zip(shape, strides, strict=True)) + 1
    memory = (ctypes.c_char * ((high - low) * dtype.itemsize)).from_address(address + low * dtype.itemsize)
    return np.ndarray(shape, dtype, memory, -low * dtype.itemsize, tuple(s * dtype.itemsize for s in strides))


def _pack(constants: Sequence[Buffer]) -> np.ndarray[Any, Any]:
    """All constants in one array of bytes, `place` set; aligned to 64."""
    size = 64
    for buffer in constants:
        buffer.place = size
        size += -(-max(buffer.data.nbytes, 1) // 64) * 64
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.__array_interface__["data"][0] % 64
    memory = raw[start : start + size]
    for buffer in constants:
        memory[buffer.place : buffer.place + buffer.data.nbytes] = np.frombuffer(buffer.data.tobytes(), np.uint8)
    return memory


def _chunk(bound: Bound, count: int) -> int:
    """How many of a row's tasks one thread takes at a time. Never changes a bit."""
    inner = bound.sizes.get("r", 1)
    mode = bound.schedule.mode
    if mode == "scatter":
        return 1 if count > 1 else max(count, 1)
    if mode == "flat":
        total, each = count, 1
    elif mode == "split":
        each = min(inner, 4096)
        total = each * count
    elif mode == "columns":
        rows = 1
        for axis in bound.spec.rows:
            rows *= bound.sizes[axis.name]
        each = max(1, inner * rows // max(count, 1))
        total = each * count
    else:
        each = max(1, inner)
        total = each * count
    if total < PARALLEL_ELEMENTS:
        return max(count, 1)
    chunk = max(16 if bound.schedule.swap else 1, CHUNK_ELEMENTS // each)
    return -(-chunk // 16) * 16 if mode == "flat" else chunk


def _kernel_name(group: Group) -> str:
    """A readable name from the operators in the kernel."""
    names: list[str] = []
    for step in group.steps:
        if step.kind == "view":
            continue
        name = step.node.op.name.lower()
        if not names or names[-1] != name:
            names.append(name)
    if len(names) > 5:
        names = [*names[:3], "and", str(len(names) - 3), "more"]
    return "k_" + ("_".join(names) or "copy")
