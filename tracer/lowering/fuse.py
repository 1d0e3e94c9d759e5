"""Fusion: which nodes share a kernel.

Nodes are taken in order; each starts a group of its own and is merged with the groups of its producers where the maps of the
values between them unify, the space of the merged group has a form that a kernel can run, and no path leads out of the group and
back (see `tracer.lowering.spaces` and `order`). Nodes with effects keep their order and stay alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from ops.compute import Composite, Constant, Control, Size, Strided, View
from tracer.ir.graph import Graph, Node, Value
from tracer.lowering.axes import Dims, Substitution, atoms_of, replace, unify
from tracer.lowering.groups import Cut, Group, Shape, Step, substituted
from tracer.lowering.order import Order
from tracer.lowering.spaces import space, unsound
from tracer.lowering.steps import steps_of

MOST_NODES = 64  # of one kernel: keeps compile time linear in the graph's size


class Fusion:
    """The groups of a graph in an order that can be run, and the reasons for the edges between them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.consumers: dict[Value, list[Node]] = {}
        self.group_of: dict[Value, Group] = {}
        self.finishes: dict[Node, Group] = {}
        self.cuts: list[Cut] = []
        self.outputs = set(graph.outputs)
        self.aliases = _aliases(graph)
        self._groups: list[Group] = []
        self._order: Order[Group] = Order()
        self._last_effect: Group | None = None
        for node in graph.nodes:
            for v in node.inputs:
                self.consumers.setdefault(v, []).append(node)
        for number, node in enumerate(graph.nodes):
            self._add(node, number)
        self._merge_readers()
        self._merge_siblings()
        self.groups = self._ordered()

    # ---- one node
    def _add(self, node: Node, number: int) -> None:
        compute = node.op.compute
        if isinstance(compute, Constant | Size):
            return
        if isinstance(compute, Composite | Control):
            raise AssertionError(f"{node.op.name} must be expanded before fusion")
        if any(d == 0 for v in node.outputs for d in v.type.shape):
            self._alone(node, number)
            return
        steps = steps_of(node, number)
        if steps is None:
            self._alone(node, number)
            return
        for step in steps:
            self._place(step, number)

    def _alone(self, node: Node, number: int) -> None:
        group = Group(node=node, first=number, last=number)
        group.producers = self._producers(
            self.aliases.get(v, (v,))[0] for v in node.inputs
        )  # a view is only a layout here
        if node.has_effect:  # behind the one before, as if it read from it
            if self._last_effect is not None:
                group.producers.add(self._last_effect)
            self._last_effect = group
        group.depth = _below(group.producers)
        self._register(group, node.outputs)

    def _register(self, group: Group, outputs: Iterable[Value]) -> None:
        self._groups.append(group)
        self._order.append(group)
        for v in outputs:
            self.group_of[v] = group

    def _producers(self, values: Iterable[Value]) -> set[Group]:
        return {self.group_of[v].find() for v in values if v in self.group_of}

    def _place(self, step: Step, number: int) -> None:
        """Give a step a group, merged with its producers' where possible."""
        group = Group([step], first=number, last=number)
        group.note_plain()
        group.producers = self._producers(step.inputs)
        if step.fold is not None:
            group.producers = {self.finishes[step.fold.node].find()}
        group.depth = _below(group.producers)
        self._groups.append(group)
        self._order.append(group)
        if step.output is None:
            self.finishes[step.node] = group
        else:
            self.group_of[step.output] = group
        if step.fold is not None:
            return
        # The deepest first: it waits for the others anyway, and what else reads them need not wait for it.
        wanted = sorted(group.producers, key=lambda p: (-p.depth, -p.last))
        for producer in wanted:
            target = producer.find()
            if target is not group.find():
                self._try(target, group.find())

    # ---- merging
    def _try(self, producer: Group, consumer: Group) -> bool:
        """Merge a producer's group with its consumer's; a reason is noted when that is not possible."""
        if producer.node is not None:
            return False
        reason = self._merge(producer, consumer)
        if reason:
            made = {s.output for s in producer.steps}
            for step in consumer.steps:
                self.cuts += [Cut(v, reason) for v in step.inputs if v in made]
        return not reason

    def _merge(self, producer: Group, consumer: Group) -> str:
        """Merge two groups; the reason why not, or ""."""
        if len(producer.steps) + len(consumer.steps) > MOST_NODES:
            return f"a kernel has at most {MOST_NODES} operations"
        if self._append(producer, consumer):
            return ""
        made = {s.output: s.result for s in producer.steps if s.output is not None}
        by: Substitution = {}
        for step in consumer.steps:
            for v, dims in zip(step.inputs, step.operands, strict=False):
                if v not in made:
                    continue
                if dims is None:
                    return "it is read at indices that depend on data"
                found = unify(replace(made[v], by), replace(dims, by))
                if found is None:
                    return "its axes are read in another arrangement"
                by = {a: replace((t,), found)[0] for a, t in by.items()} | found
        steps = [substituted(s, by) for s in (*producer.steps, *consumer.steps)]
        reason = unsound(steps)
        if reason:
            return reason
        shape = self._shape(steps)
        if isinstance(shape, str):
            # a row's fold and what follows it meet along the inner axis only through what both read
            steps = _joined_at_inputs(steps, len(producer.steps), set(made))
            if isinstance(self._shape(steps), str):
                return shape
        if not self._join(producer, consumer, steps):
            return "a value between them is computed elsewhere"
        return ""

    def _append(self, producer: Group, consumer: Group) -> bool:
        """The common case in constant time: one more step of the same shape for a plain group. False: ask the general rule."""
        made = producer.made
        if made is None or consumer.made is None or len(consumer.steps) != 1:
            return False
        step = consumer.steps[0]
        shape = step.node.outputs[0].type.shape
        image = next((made[v] for v in step.inputs if v in made and v.type.shape == shape), None)
        if image is None or any(len(a) != len(b) for a, b in zip(image, step.result, strict=True)):
            return False
        by: Substitution = {
            b: (a,)
            for old, new in zip(image, step.result, strict=True)
            for a, b in zip(old, new, strict=True)
        }
        new = substituted(step, by)
        for v, dims in zip(step.inputs, new.operands, strict=True):
            if v in made and dims != made[v]:
                return False
        between = self._order.between(producer, consumer)
        if between is None:
            return False
        self._order.merge(producer, consumer, between)
        step.operands, step.result = new.operands, new.result
        producer.steps.append(step)
        made[step.node.outputs[0]] = step.result
        producer.producers |= consumer.producers
        producer.producers.discard(producer)
        producer.last = max(producer.last, consumer.last)
        producer.depth = max(
            producer.depth, _below(p for p in consumer.producers if p is not producer)
        )
        consumer.merged = producer
        return True

    def _join(self, target: Group, other: Group, steps: list[Step]) -> bool:
        """Make two groups one, unless what lies between them reads from the one and is read by the other."""
        between = self._order.between(target, other)
        if between is None:
            return False
        self._order.merge(target, other, between)
        for old, new in zip((*target.steps, *other.steps), steps, strict=True):
            old.operands, old.result = new.operands, new.result
        target.steps = sorted((*target.steps, *other.steps), key=lambda s: s.index)
        target.producers = {p.find() for p in target.producers | other.producers} - {target, other}
        target.first, target.last = min(target.first, other.first), max(target.last, other.last)
        target.depth = _below(target.producers)
        target.note_plain()
        other.merged = target
        return True

    def stored(self, steps: Iterable[Step]) -> set[Value]:
        """Values that somebody outside the steps reads, or that the graph returns."""
        inside = {s.node for s in steps}
        made = {s.output for s in steps}
        result = set()
        for s in steps:
            v = s.output
            if v is not None and (
                v in self.outputs or any(c not in inside for c in self.consumers.get(v, ()))
            ):
                alias = self.aliases.get(v)
                if alias is None:
                    result.add(v)
                elif alias[0] in made:
                    result.add(alias[0])
        return result

    def _shape(self, steps: list[Step]) -> Shape | str:
        return space(steps, self.stored(steps))

    def _merge_readers(self) -> None:
        """Merge kernels of one space that read the same values in one arrangement, so that these are read once."""
        readers: dict[Value, dict[Group, None]] = {}
        for group in self._groups:
            if group.merged is not None or group.node is not None:
                continue
            made = {s.output for s in group.steps}
            for step in group.steps:
                for v, dims in zip(step.inputs, step.operands, strict=False):
                    if v not in made and dims is not None:
                        readers.setdefault(v, {})[group] = None
        for v, groups in readers.items():
            for first, second in pairwise(groups):
                head, other = first.find(), second.find()
                if head is not other:
                    self._merge_reader(v, head, other)

    def _merge_reader(self, v: Value, head: Group, other: Group) -> None:
        if len(head.steps) + len(other.steps) > MOST_NODES:
            return
        mine, theirs = _map_of(head, v), _map_of(other, v)
        if mine is None or theirs is None:
            return
        by = unify(mine, theirs)
        if by is None:
            return
        steps = [substituted(s, by) for s in (*head.steps, *other.steps)]
        atoms = {
            a for s in steps for d in (*s.operands, s.result) if d is not None for a in atoms_of(d)
        }
        if set(atoms_of(replace(mine, by))) != atoms:
            return  # one of them runs over more than the common value
        if unsound(steps) or isinstance(self._shape(steps), str):
            return
        if head.last > other.last:
            head, other = other, head
            steps = steps[len(other.steps) :] + steps[: len(other.steps)]
        self._join(head, other, steps)

    def _merge_siblings(self) -> None:
        """Merge kernels that finish folds of one kernel."""
        by_source: dict[Group, list[Group]] = {}
        for group in self._groups:
            if (
                group.merged is None
                and group.node is None
                and any(s.fold is not None for s in group.steps)
            ):
                source = next(
                    self.finishes[s.fold.node].find() for s in group.steps if s.fold is not None
                )
                by_source.setdefault(source, []).append(group)
        for siblings in by_source.values():
            head = siblings[0].find()
            for other in siblings[1:]:
                if other.find() is head or other.merged is not None:
                    continue
                first = next(s for s in head.steps if s.fold is not None)
                second = next(s for s in other.steps if s.fold is not None)
                if len(first.result) != len(second.result):
                    continue
                by = unify(first.result, second.result)
                if by is None or len(head.steps) + len(other.steps) > MOST_NODES:
                    continue
                steps = [substituted(s, by) for s in (*head.steps, *other.steps)]
                if unsound(steps) or isinstance(self._shape(steps), str):
                    continue
                self._join(head, other, steps)

    def _ordered(self) -> list[Group]:
        """Groups after their producers, in order of their last nodes."""
        alive = [g for g in self._groups if g.merged is None]
        for g in alive:
            g.producers = {p.find() for p in g.producers} - {g}
        alive.sort(key=lambda g: (g.last, g.first))
        result: list[Group] = []
        placed: set[int] = set()
        for root in alive:
            stack = [(root, False)]
            while stack:
                group, ready = stack.pop()
                if id(group) in placed:
                    continue
                if ready:
                    placed.add(id(group))
                    result.append(group)
                    continue
                stack.append((group, True))
                waiting = [p for p in group.producers if id(p) not in placed]
                stack.extend((p, False) for p in sorted(waiting, key=lambda p: -p.last))
        return result


def _aliases(graph: Graph) -> dict[Value, tuple[Value, Strided]]:
    """For views that strides can express: the value whose buffer holds their elements, and where in it."""
    result: dict[Value, tuple[Value, Strided]] = {}
    for node in graph.nodes:
        if not isinstance(node.op.compute, View):
            continue
        v = node.inputs[0]
        base, layout = result.get(v) or (v, Strided.row_major(v.type.shape))
        target = tuple(int(d) for d in node.outputs[0].type.shape)
        found = node.op.compute.rule(layout, target, node.attrs)
        if found is not None:
            result[node.outputs[0]] = (base, found)
    return result


def _below(producers: Iterable[Group]) -> int:
    """The depth of a group with these producers."""
    return 1 + max((p.find().depth for p in producers), default=-1)


def _map_of(group: Group, v: Value) -> Dims | None:
    """The map by which a group reads a value."""
    for step in group.steps:
        for x, dims in zip(step.inputs, step.operands, strict=False):
            if x is v and dims is not None:
                return dims
    return None


def _joined_at_inputs(steps: list[Step], first: int, made: set[Value | None]) -> list[Step]:
    """The steps with the maps of values from outside, which the first ones and the others read, unified where possible."""
    seen: dict[Value, int] = {}
    for k, s in enumerate(steps[:first]):
        for v, dims in zip(s.inputs, s.operands, strict=True):
            if dims is not None and v not in made:
                seen.setdefault(v, k)
    for k in range(first, len(steps)):
        for position, v in enumerate(steps[k].inputs):
            dims = steps[k].operands[position]
            if v not in seen or v in made or dims is None:
                continue
            other = steps[seen[v]]
            mine = other.operands[other.inputs.index(v)]
            assert mine is not None
            by = unify(mine, dims)
            if by:
                joined = [substituted(s, by) for s in steps]
                if not unsound(joined):
                    steps = joined
    return steps
