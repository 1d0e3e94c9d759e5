"""Groups in order become parts of a plan: kernels with their specifications, products of matrices, copies, host calls."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Literal

from codegen.spec.argument_block import partial_size
from codegen.targets.target import CPU, PYTHON, Target, TargetProgram
from ops.compute import Concatenation, Host, Reduction, Replacement, Scatter, Strided, View
from ops.operator import lookup
from ops.types import Type
from tracer.core.config import CONFIG
from tracer.ir.graph import Graph, Node, Value
from tracer.lowering.axes import fresh
from tracer.lowering.fuse import Fusion
from tracer.lowering.groups import Group, PartialFold, Shape, Step
from tracer.lowering.layout import Buffer, Layout
from tracer.lowering.libraries import LIBRARIES, library_call
from tracer.lowering.placement import Placement
from tracer.lowering.program import Planned, ProgramBuilder
from tracer.lowering.scatter import scatter_bound
from tracer.lowering.spaces import space
from tracer.lowering.specify import Bound, Specifier
from tracer.lowering.statements import LANE_DTYPES

_CAST = lookup("Cast")


class Lowering:
    """A graph of known sizes on its way to a program. `updates`: output number -> input number that receives it. `shared`:
    numbers of outputs which, being inputs, need no memory of their own. `target`: where it shall run, here unless given."""

    def __init__(
        self,
        graph: Graph,
        updates: Mapping[int, int],
        shared: Container[int] = (),
        target: Target | None = None,
    ) -> None:
        self.target = target or (CPU if CONFIG.compile else PYTHON)
        self.graph = graph
        self.updates = dict(updates)
        self.partials: dict[Step, PartialFold] = {}
        self.planned: list[Planned] = []
        started = time.perf_counter()
        self.fusion = Fusion(graph)
        self.places = Placement(graph, self.fusion, self.updates, shared)
        for group in self.fusion.groups:
            self._group(group)
        self._finish_outputs()
        self.memory = ProgramBuilder(graph, self.places, self.planned, self.target)
        self.lower_seconds = time.perf_counter() - started
        started = time.perf_counter()
        self.program = self._compile()
        self.compile_seconds = time.perf_counter() - started

    @property
    def workspace(self) -> int:
        """Bytes of temporaries."""
        return self.memory.workspace

    @property
    def output_slots(self) -> dict[int, int]:
        """The program's slots of outputs that get memory of their own, by number."""
        return self.memory.output_slots

    def _compile(self) -> TargetProgram:
        """The program: every kernel compiled or loaded."""
        rows = [row for planned in self.planned for row in self.memory.rows(planned)]
        return self.target.program(rows, self.memory.workspace_slot + 1)

    # ---- groups
    def _group(self, group: Group) -> None:
        node = group.node
        if node is None:
            self._kernel(group)
        elif group.is_empty:
            for v in node.outputs:
                self.places.buffer(v)
        elif type(node.op.compute) in LIBRARIES:
            self._library(node)
        elif type(node.op.compute) in EMITTERS:
            EMITTERS[type(node.op.compute)](self, node)
        else:
            raise AssertionError(
                f"no kernel computes {node.op.name} with {len(node.outputs)} results"
            )

    def _kernel(self, group: Group) -> None:
        stored = self.fusion.stored(group.steps)
        if not stored and not any(s.leaves_partials for s in group.steps):
            return
        shape = space(group.steps, stored)
        assert not isinstance(shape, str), shape
        for step in group.steps:
            if step.leaves_partials:
                self.partials[step] = _partial_fold(step, shape)
        bound = Specifier(
            group.steps,
            shape,
            stored,
            self.places.layout,
            self.places.literal,
            self.places.number,
            self.partials,
            self.target.schedule,
            _kernel_name(group.steps),
        ).run()
        for step in group.steps:
            for buffer in self.partials[step].buffers if step.leaves_partials else ():
                size = partial_size(bound.spec, bound.schedule, bound.sizes)
                buffer.type = Type(buffer.type.dtype, (size,))
        self._add_bound(bound, group.nodes)

    def _add_bound(self, bound: Bound, nodes: list[Node]) -> None:
        operands = list(zip(bound.operands, bound.spec.operands, strict=True))
        reads = [buffer for (buffer, _), o in operands if o.role in ("in", "inout")]
        writes = [buffer for (buffer, _), o in operands if o.role != "in"]
        self.planned.append(Planned("kernel", bound.spec.name, nodes, reads, writes, bound))

    def _copy_to(self, v: Value, target: Layout, name: str = "copy") -> None:
        """A kernel that writes a value to a place of the same shape."""
        made, axes = Value(v.type.strong()), fresh(target.strided.shape)
        node = Node(_CAST, (v,), _CAST.normalize({"to": v.type.dtype}), (made,))
        steps, layouts = (
            [Step(node, "map", (axes,), axes)],
            {v: self.places.layout(v), made: target},
        )
        shape = space(steps, {made})
        assert not isinstance(shape, str)
        # constants are read too, not written into the text: kernels of them are one
        read, literal = layouts.__getitem__, _no_literal
        bound = Specifier(
            steps,
            shape,
            {made},
            read,
            literal,
            self.places.number,
            {},
            self.target.schedule,
            f"k_{name}",
        ).run()
        self._add_bound(bound, [node])

    def _start_from(self, v: Value, out: Layout) -> None:
        """The elements that a result starts from, unless it has their memory."""
        if not self.places.layout(v).is_at(out):
            self._copy_to(v, out, "kept")

    def _view(self, node: Node) -> None:
        """A view that strides cannot express, because of how its operand lies: the operand is copied first."""
        v, out = node.inputs[0], node.outputs[0]
        if out in self.fusion.aliases:
            return  # only another layout
        plain = Strided.row_major(v.type.shape)
        assert isinstance(node.op.compute, View)
        view = node.op.compute.rule(plain, tuple(map(int, out.type.shape)), node.attrs)
        assert view is not None, node
        target = self.places.layout(out)
        if not view.offset and view.is_row_major and target.strided.is_row_major:
            self._copy_to(v, Layout(target.buffer, plain), "view")
            return
        whole = Value(v.type.strong())
        self._copy_to(v, self.places.layout(whole), "view")
        piece = Value(out.type.strong())
        self.places.buffers[piece] = self.places.buffer(whole)
        self.places.arranged[piece] = view
        self._copy_to(piece, target, "view")

    def _concatenation(self, node: Node) -> None:
        """Each operand into its part of the result."""
        out = self.places.layout(node.outputs[0])
        axis = node.attrs["axis"] % node.outputs[0].type.rank
        start = 0
        for v in node.inputs:
            shape = tuple(map(int, v.type.shape))
            if 0 not in shape:
                offset = out.strided.offset + start * out.strided.strides[axis]
                self._copy_to(
                    v, Layout(out.buffer, Strided(shape, out.strided.strides, offset)), "concat"
                )
            start += shape[axis]

    def _replacement(self, node: Node) -> None:
        """Operand 0, then operand 1 over its part."""
        assert isinstance(node.op.compute, Replacement)
        (x, part), out = node.inputs, self.places.layout(node.outputs[0])
        self._start_from(x, out)
        shape = tuple(map(int, part.type.shape))
        if 0 not in shape:
            where = Layout(out.buffer, node.op.compute.rule(out.strided, shape, node.attrs))
            if not self.places.layout(part).is_at(where):
                self._copy_to(part, where, "replaced")

    def _library(self, node: Node) -> None:
        inputs = [self.places.layout(v) for v in node.inputs]
        outputs = [self.places.layout(v) for v in node.outputs]
        call = library_call(self.target, node, inputs, outputs)
        planned = Planned(
            "library",
            call.library.name,
            [node],
            [x.buffer for x in inputs],
            [y.buffer for y in outputs],
            library=call,
        )
        if call.plan.workspace:
            planned.writes.append(call.workspace)
        self.planned.append(planned)

    def _scatter(self, node: Node) -> None:
        out = self.places.layout(node.outputs[0])
        self._start_from(node.inputs[0], out)
        bound = scatter_bound(node, self.places.layout, self.places.number, out)
        if bound is not None:
            self._add_bound(bound, [node])

    def _host(self, node: Node) -> None:
        layouts = [self.places.layout(v) for v in node.inputs]
        outs = [self.places.layout(v) for v in node.outputs]
        reads, writes = [x.buffer for x in layouts], [y.buffer for y in outs]
        self.planned.append(
            Planned("host", node.op.name, [node], reads, writes, host=(node, layouts, outs))
        )

    def _finish_outputs(self) -> None:
        """Outputs that no kernel wrote to their place: views, inputs, values returned twice."""
        late: list[
            tuple[Value, Layout]
        ] = []  # what is written when all that reads its target has run
        for number, v in self.places.copies:
            if number not in self.updates:
                buffer = Buffer(v.type.strong(), "output", number)
                self.places.output_buffers[number] = buffer
                if 0 not in v.type.shape:
                    self._copy_to(v, Layout.contiguous(buffer), "output")
            elif 0 not in v.type.shape:
                target = self.places.buffers[self.graph.inputs[self.updates[number]]]
                if self.places.base(v)[0] in self.graph.inputs:  # which may be written before
                    kept = Value(v.type.strong())
                    self.places.buffers[kept] = Buffer(kept.type, "work")
                    self._copy_to(v, self.places.layout(kept), "keep")
                    v = kept
                late.append((v, Layout.contiguous(target)))
        for v, place in late:
            self._copy_to(v, place, "update")


# What nodes that are no part of a fused kernel become, by compute kind; see `LIBRARIES` too.
EMITTERS: dict[type, Callable[[Lowering, Node], None]] = {
    View: Lowering._view,
    Concatenation: Lowering._concatenation,
    Replacement: Lowering._replacement,
    Scatter: Lowering._scatter,
    Host: Lowering._host,
}


def _no_literal(v: Value) -> None:
    """Of no value."""


def _partial_fold(step: Step, shape: Shape) -> PartialFold:
    """What a fold leaves to another kernel; the buffers' size is known with the schedule."""
    compute = step.node.op.compute
    assert isinstance(compute, Reduction)
    folding = compute.folding(step.node.inputs[0].type, step.node.output.type)
    buffers = [Buffer(Type(LANE_DTYPES[d]), "work") for _, d in folding.state]
    folded = shape.rows if step.kind == "column" else shape.inner
    mode: Literal["columns", "split"] = "columns" if step.kind == "column" else "split"
    return PartialFold(buffers, math.prod(a.size for a in folded), mode)


def _kernel_name(steps: Sequence[Step]) -> str:
    """A readable name from the operators in the kernel."""
    names: list[str] = []
    for step in steps:
        if step.kind == "view":
            continue
        name = step.node.op.name.lower().replace(".", "_")
        if not names or names[-1] != name:
            names.append(name)
    if len(names) > 5:
        names = [*names[:3], "and", str(len(names) - 3), "more"]
    return "k_" + ("_".join(names) or "copy")
