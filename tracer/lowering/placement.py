"""Where values lie: every value that goes through memory has a buffer, of an input, an output, the workspace or the constants.

Results are computed where they are wanted if they can be: in the memory of an output, or of the input that they update.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from typing import Any

import numpy as np

from ops.compute import (
    Constant,
    Contraction,
    Replacement,
    Scatter,
    Size,
    Strided,
    View,
    contiguous_strides,
)
from ops.operator import run_reference
from ops.types import Type
from tracer.ir.graph import Graph, Node, Value
from tracer.lowering.accesses import Accesses
from tracer.lowering.fuse import Fusion
from tracer.lowering.groups import Group
from tracer.lowering.layout import Buffer, Layout
from tracer.lowering.literals import literal_of


class Placement:
    """The buffers of a graph's values. `updates`: output number -> input number that receives it. `shared`: numbers of outputs
    which, being inputs, need no memory of their own.

    Attributes: `buffers` by value; `arranged`, how values lie that are not row-major; `output_buffers` by number, None where an
    output is an input or updates one; `copies`, outputs that must be copied when all is computed; `constants`.
    """

    def __init__(
        self, graph: Graph, fusion: Fusion, updates: Mapping[int, int], shared: Container[int]
    ) -> None:
        self._graph, self._fusion, self._updates, self._shared = graph, fusion, updates, shared
        self.producer: dict[Value, Node] = {v: n for n in graph.nodes for v in n.outputs}
        self.buffers: dict[Value, Buffer] = {}
        self._literals: dict[Value, Any] = {}
        self.arranged: dict[Value, Strided] = {}
        self.output_buffers: list[Buffer | None] = [None] * len(graph.outputs)
        self.copies: list[tuple[int, Value]] = []
        self.constants: list[Buffer] = []
        self._numbers: dict[int, Buffer] = {}
        self._place_values()

    def _place_values(self) -> None:
        inputs = {v: k for k, v in enumerate(self._graph.inputs)}
        for v, k in inputs.items():
            self.buffers[v] = Buffer(v.type, "input", k)
        order = {id(g): k for k, g in enumerate(self._fusion.groups)}
        readers = self._readers(order)
        for number, v in enumerate(self._graph.outputs):
            base, layout = self.base(v)
            whole = layout is None or self._is_whole(base, layout)
            if layout is not None and not whole and base not in self.buffers and base not in inputs:
                turned = self._turned(base, layout)
                if turned is not None and number not in self._updates:
                    buffer = Buffer(v.type.strong(), "output", number)
                    self.buffers[base] = self.output_buffers[number] = buffer
                    self.arranged[base] = turned
                    continue
            if base in inputs or base in self.buffers or not whole or self._is_data(base):
                if number in self._shared and inputs.get(v, -1) not in (
                    -1,
                    *self._updates.values(),
                ):
                    continue  # handed through
                self.copies.append((number, v))
                continue
            if number in self._updates:
                target = self._graph.inputs[self._updates[number]]
                chain = self._written_over(base, readers, order)
                if self._is_changed(chain[-1], target) or (
                    layout is None and self._can_update(chain[-1], target, readers, order)
                ):
                    self.buffers.update(dict.fromkeys(chain, self.buffers[target]))
                    continue
                self.copies.append((number, v))
                continue
            buffer = Buffer(base.type, "output", number)
            self.buffers[base] = self.output_buffers[number] = buffer
        for group in reversed(self._fusion.groups):
            below = self._below(group, readers, order)
            if below is not None and below not in self.buffers and not self._is_data(below):
                self.buffers[below] = self.buffer(group.nodes[0].outputs[0])
        self._place_parts(readers, order)

    def _place_parts(self, readers: dict[Value, list[int]], order: dict[int, int]) -> None:
        """What replaces a part of a value in its memory is computed there, if nobody reads the part as it was by then.

        Outer replacements first: what replaces a part of a part lies in it, too.
        """
        around: dict[Value, set[int]] = {}  # the replacements that a value is a part of in the end
        for group in reversed(self._fusion.groups):
            if not isinstance(group.compute, Replacement):
                continue
            node = group.nodes[0]
            (x, part), result = node.inputs, node.outputs[0]
            base = self.base(x)[0]
            buffer = self.buffers.get(base)
            if buffer is None or self.buffers.get(result) is not buffer or 0 in part.type.shape:
                continue
            sizes = tuple(map(int, part.type.shape))
            where = group.compute.rule(self.layout(result).strided, sizes, node.attrs)
            source, seen = self.base(part)
            own = order[id(group)]
            later = {own} | around.get(result, set())
            lies = where if seen is None else self._through_back(source, part, where)
            made = self._fusion.group_of.get(source)
            if lies is None or made is None:
                continue
            if not set(readers.get(source, ())) <= {own, order[id(made.find())]}:
                continue
            if self._is_free(source, Layout(buffer, lies), base, later, readers, order):
                self.buffers[source], self.arranged[source] = buffer, lies
                around[source] = later

    def _through_back(self, source: Value, view: Value, where: Strided) -> Strided | None:
        """How a value must lie so that a view of all its elements lies as wanted; None where that is not found."""
        seen = self.base(view)[1]
        assert seen is not None
        sizes = tuple(map(int, source.type.shape))
        if math.prod(sizes) != math.prod(seen.shape):
            return None
        axes = {
            s: (d, w)
            for d, s, w in zip(seen.shape, seen.strides, where.strides, strict=True)
            if d != 1
        }
        strides = []
        for size, stride in zip(sizes, contiguous_strides(sizes), strict=True):
            found, wanted = axes.get(stride, (0, 0)) if size != 1 else (1, 0)
            if found != size:
                return None
            strides.append(wanted)
        lies = Strided(sizes, tuple(strides), where.offset)
        back = self.through(source, view, lies)
        buffer = Buffer(source.type, "")
        whole = back is not None and Layout(buffer, back).is_at(Layout(buffer, where))
        return lies if whole else None

    def _is_free(
        self,
        part: Value,
        place: Layout,
        base: Value,
        later: set[int],
        readers: dict[Value, list[int]],
        order: dict[int, int],
    ) -> bool:
        """Whether a value can be computed in a place that is a part of another one. `later`: groups that read that one, but not
        its elements there."""
        made = self._fusion.group_of.get(part)
        if made is None or part in self.buffers:
            return False
        if self._is_data(part) or any(self.base(v)[0] is part for v in self._graph.outputs):
            return False
        group, first = made.find(), self._fusion.group_of.get(base)
        own = order[id(group)]
        if first is not None and order[id(first.find())] >= own:
            return False  # the other elements are not there yet
        if any(r > own and r not in later for r in readers.get(base, ())):
            return False
        if isinstance(group.compute, Replacement | Scatter):
            node = group.nodes[0]
            return (
                self.base(node.inputs[0])[0] is base
                and self.layout(node.inputs[0]).is_at(place)
                and all(self.base(v)[0] is not base for v in node.inputs[1:])
            )
        return group.node is None and self._reads_in_step(group, part, place, base)

    def _reads_in_step(self, group: Group, part: Value, place: Layout, base: Value) -> bool:
        """Whether a kernel reads of a value only the element in whose place it writes its result."""
        step = next(s for s in group.steps if s.output is part)
        reading = [
            (x, dims)
            for s in group.steps
            for x, dims in zip(s.inputs, s.operands, strict=True)
            if self.base(x)[0] is base
        ]
        if not reading:
            return True
        size = max(int(s.output.type.size) for s in group.steps if s.output is not None)
        if int(part.type.size) != size or any(s.is_fold for s in group.steps):
            return False
        wanted = Accesses.atom_strides(step.result, place)
        return all(
            dims is not None
            and self.layout(x).strided.offset == place.strided.offset
            and Accesses.atom_strides(dims, self.layout(x)) == wanted
            for x, dims in reading
        )

    def _below(
        self, group: Group, readers: dict[Value, list[int]], order: dict[int, int]
    ) -> Value | None:
        """For a group that changes elements of its first operand: the value whose memory its result may have, since nobody reads
        it afterwards."""
        if not isinstance(group.compute, Replacement | Scatter):
            return None
        node = group.nodes[0]
        base, layout = self.base(node.inputs[0])
        if layout is not None and not self._is_whole(base, layout):
            return None
        if any(self.base(v)[0] is base for v in (*node.inputs[1:], *self._graph.outputs)):
            return None
        if any(r > order[id(group)] for r in readers[base]):
            return None
        return base

    def _written_over(
        self, v: Value, readers: dict[Value, list[int]], order: dict[int, int]
    ) -> list[Value]:
        """v and the values that may lie in its memory before it, the last one first."""
        chain = [v]
        while chain[-1] in self._fusion.group_of:
            below = self._below(self._fusion.group_of[chain[-1]].find(), readers, order)
            if below is None:
                break
            chain.append(below)
        return chain

    def _is_changed(self, v: Value, target: Value) -> bool:
        """Whether v is the input itself and nothing else is written to it."""
        return v is target and (
            sum(self._graph.inputs[i] is target for i in self._updates.values()) == 1
        )

    @staticmethod
    def _is_whole(base: Value, layout: Strided) -> bool:
        """Whether a view shows all elements of a value in their order."""
        same_size = int(base.type.size) == math.prod(layout.shape)
        return layout.offset == 0 and layout.is_row_major and same_size

    def _turned(self, base: Value, view: Strided) -> Strided | None:
        """How a matrix product must lie so that a permutation of it that is returned is row-major; None for other views."""
        group = self._fusion.group_of.get(base)
        if group is None or not isinstance(group.find().compute, Contraction):
            return None
        shape = tuple(map(int, base.type.shape))
        old = contiguous_strides(shape)
        new = contiguous_strides(view.shape)
        moved = {s: n for d, s, n in zip(view.shape, view.strides, new, strict=True) if d != 1}
        sizes = {s: d for d, s in zip(view.shape, view.strides, strict=True) if d != 1}
        permutes = int(base.type.size) == math.prod(view.shape)
        if (
            view.offset
            or not permutes
            or any(d != 1 and sizes.get(s) != d for d, s in zip(shape, old, strict=True))
        ):
            return None
        turned = Strided(
            shape, tuple(moved.get(s, 1) if d != 1 else 1 for d, s in zip(shape, old, strict=True))
        )
        if 1 not in turned.strides[-2:]:  # products are written along rows or columns
            return None
        others = [u for u, (source, _) in self._fusion.aliases.items() if source is base]
        return turned if all(self.through(base, u, turned) is not None for u in others) else None

    def _readers(self, order: dict[int, int]) -> dict[Value, list[int]]:
        """For each value the positions of the groups that read its buffer, through views too."""
        result: dict[Value, list[int]] = {}
        for group in self._fusion.groups:
            if (
                isinstance(group.compute, View)
                and group.nodes[0].outputs[0] in self._fusion.aliases
            ):
                continue  # only another layout
            for node in group.nodes:
                for v in node.inputs:
                    base = self.base(v)[0]
                    result.setdefault(base, []).append(order[id(group)])
        return result

    def _can_update(
        self, v: Value, target: Value, readers: dict[Value, list[int]], order: dict[int, int]
    ) -> bool:
        """Whether v can be written to the memory of an input while it is computed."""
        group = self._fusion.group_of.get(v)
        if (
            group is None
            or v.type.strong() != target.type.strong()
            or target in self._graph.outputs
        ):
            return False
        if any(self.base(u)[0] is target for u in self._graph.outputs):
            return False
        if sum(self._graph.inputs[i] is target for i in self._updates.values()) != 1:
            return False
        group = group.find()
        position = order[id(group)]
        if group.node is not None or any(r > position for r in readers.get(target, ())):
            return False
        if any(s.is_fold for s in group.steps):
            return position not in readers.get(target, ())
        size = max(int(s.output.type.size) for s in group.steps if s.output is not None)
        if int(v.type.size) != size and position in readers.get(target, ()):
            return False  # every task computes v, and would read what another one has written
        own = next(s for s in group.steps if s.output is v)
        for s in group.steps:
            for x, dims in zip(s.inputs, s.operands, strict=True):
                if self.base(x)[0] is target and (x is not target or dims != own.result):
                    return False
        return True

    def base(self, v: Value) -> tuple[Value, Strided | None]:
        """The value whose buffer holds v's elements, and where they lie in it; (v, None) for a value of its own."""
        alias = self._fusion.aliases.get(v)
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
                found = self.constant(np.asarray(run_reference(node.op, [], node.attrs)[0]), v.type)
            else:
                found = Buffer(v.type, "work")
            self.buffers[v] = found
        return found

    def layout(self, v: Value) -> Layout:
        """Where a value lies."""
        base, strided = self.base(v)
        buffer = self.buffer(base)
        arranged = self.arranged.get(base)
        if arranged is not None:
            if strided is None:
                return Layout(buffer, arranged)
            strided = self.through(base, v, arranged)
        if strided is None:
            strided = Strided.row_major(v.type.shape)
        return Layout(buffer, strided)

    def through(self, base: Value, v: Value, layout: Strided) -> Strided | None:
        """The layout of a view of a value that does not lie row-major, None where only a copy can do it."""
        chain: list[Node] = []
        while v is not base:
            chain.append(self.producer[v])
            v = chain[-1].inputs[0]
        for node in reversed(chain):
            shape = tuple(map(int, node.outputs[0].type.shape))
            assert isinstance(node.op.compute, View)
            found = node.op.compute.rule(layout, shape, node.attrs)
            if found is None:
                return None
            layout = found
        return layout

    def constant(self, array: np.ndarray[Any, Any], type_: Type) -> Buffer:
        """A buffer that holds an array."""
        buffer = Buffer(type_, "constant", data=np.ascontiguousarray(array))
        self.constants.append(buffer)
        return buffer

    def number(self, value: int) -> Buffer:
        """A buffer that holds an int64."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = self.constant(np.asarray(value, np.int64), Type("int64"))
        return found

    def literal(self, v: Value) -> Any:
        """The value of a 0-d constant that stands in kernels' texts, else None.

        Most floats are data, which kernels read: another epsilon or rate is no other kernel.
        """
        if v not in self._literals:
            consumers = self._fusion.consumers.get(v, ())
            self._literals[v] = literal_of(self.producer.get(v), v, consumers)
        return self._literals[v]
