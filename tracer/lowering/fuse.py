"""Fusion: which nodes share a kernel.

Nodes are taken in order; each starts a group of its own and is merged with the groups of its producers where the maps of the
values between them unify, the space of the merged group has a form that a kernel can run, and no path leads out of the group and
back. What a kernel can run: one space D of rows P times an inner axis R; folds over R (a value for each row), folds over all
rows (a value for each inner position, finished by another kernel), folds of everything (likewise); elementwise values on D
or P, and cheap ones on any part of D.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ops.compute import (
    Composite,
    Concatenation,
    Contraction,
    Constant,
    Control,
    Gather,
    Host,
    Reduction,
    Scalar,
    ScatterAdd,
    Size,
    Strided,
    View,
)
from ops.movement import contiguous_strides
from tracer.graph import Graph, Node, Value
from tracer.lowering.axes import Atom, Dims, Substitution, atoms_of, fresh, replace, unify, view_maps
from tracer.lowering.order import Order

MOST_NODES = 64  # of one kernel: keeps compile time linear in the graph's size
SPLIT_ELEMENTS = 4 * 4096  # a fold of at least so many elements into few results is split over tasks
SPLIT_RESULTS = 16


@dataclass(eq=False, slots=True)
class Step:
    """One node in a group, with the maps of its operands and its result.

    `kind`: "map" (element by element), "view" (nothing to do), "point" (a fold over axes of size 1), "row" (a fold over the inner axis), "column" and "split" (folds
    whose partial results another kernel finishes), "finish" (of one of those). `fold`: the step that "finish" finishes.
    """

    node: Node
    kind: str
    operands: tuple[Dims | None, ...]
    result: Dims
    fold: Step | None = None
    index: int = 0

    @property
    def inputs(self) -> tuple[Value, ...]:
        """What it reads, besides partial results."""
        return () if self.kind == "finish" else self.node.inputs

    @property
    def output(self) -> Value | None:
        """What it makes; a fold that another kernel finishes makes nothing yet."""
        return None if self.kind in ("column", "split") else self.node.outputs[0]


@dataclass(eq=False, slots=True)
class Group:
    """Steps that share a kernel, or one node that is no kernel (`kind` "contraction", "copy", "scatter", "host", "view")."""

    kind: str
    steps: list[Step] = field(default_factory=list)
    node: Node | None = None
    producers: set[Group] = field(default_factory=set)
    first: int = 0
    last: int = 0
    depth: int = 0  # groups that must run one after the other before it
    merged: Group | None = None
    made: dict[Value, Dims] | None = None  # of a plain group: all its steps run over its whole space
    whole: frozenset[Atom] = frozenset()

    def note_plain(self) -> None:
        """See whether every step is element by element over the whole space; then one more such step needs no proof."""
        self.made = None
        if any(s.kind != "map" for s in self.steps):
            return
        self.whole = frozenset(a for s in self.steps for d in (*s.operands, s.result) if d is not None for a in atoms_of(d))
        if all(frozenset(atoms_of(s.result)) == self.whole for s in self.steps):
            self.made = {s.node.outputs[0]: s.result for s in self.steps}

    def find(self) -> Group:
        """The group that this one has been merged into."""
        group = self
        while group.merged is not None:
            group = group.merged
        return group

    @property
    def nodes(self) -> list[Node]:
        """The nodes of all steps, or the one node."""
        return [self.node] if self.node is not None else [s.node for s in self.steps]


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of a group's space: all atoms, those of the rows, those of the inner axis (in order of the folds)."""

    rows: tuple[Atom, ...]
    inner: tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Cut:
    """Why a value goes through memory."""

    value: Value
    reason: str


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
            self._alone("empty", node, number)
            return
        steps = self._steps(node, number)
        if steps is None:
            kind = {
                Contraction: "contraction",
                Concatenation: "copy",
                ScatterAdd: "scatter",
                Host: "host",
                View: "view",
                Reduction: "host",
                Scalar: "host",
                Gather: "host",
            }[type(compute)]
            self._alone(kind, node, number)
            return
        for step in steps:
            self._place(step, number)

    def _alone(self, kind: str, node: Node, number: int) -> None:
        group = Group(kind, node=node, first=number, last=number)
        group.producers = self._producers(self.aliases.get(v, (v,))[0] for v in node.inputs)  # a view is only a layout here
        group.depth = _below(group.producers)
        self._register(group, node.outputs)

    def _register(self, group: Group, outputs: Iterable[Value]) -> None:
        self._groups.append(group)
        self._order.append(group)
        for v in outputs:
            self.group_of[v] = group

    def _producers(self, values: Iterable[Value]) -> set[Group]:
        return {self.group_of[v].find() for v in values if v in self.group_of}

    def _steps(self, node: Node, number: int) -> list[Step] | None:
        """The node as steps with maps of their own, or None when no fused kernel computes it."""
        compute = node.op.compute
        out = node.outputs[0].type
        if len(node.outputs) != 1:
            return None
        if isinstance(compute, Scalar):
            result = fresh(out.shape)  # type: ignore[arg-type]
            operands = tuple(_aligned(v, result) for v in node.inputs)
            return [Step(node, "map", operands, result, index=number)]
        if isinstance(compute, Gather):
            result = fresh(out.shape)  # type: ignore[arg-type]
            indices = compute.rule([v.type for v in node.inputs], out, node.attrs)
            maps: list[Dims | None] = [None] * len(node.inputs)
            for index in indices:
                if index.operand is not None:
                    maps[index.operand] = tuple(result[a] for a in index.operand_axes)
            return [Step(node, "map", tuple(maps), result, index=number)]
        if isinstance(compute, View):
            found = view_maps(node, node.inputs[0].type, out)
            if found is None:
                return None
            return [Step(node, "view", (found[0],), found[1], index=number)]
        if isinstance(compute, Reduction):
            return self._reduction(node, number, compute)
        return None

    def _reduction(self, node: Node, number: int, compute: Reduction) -> list[Step]:
        x = node.inputs[0].type
        operand = fresh(x.shape)  # type: ignore[arg-type]
        axes = tuple(a % x.rank for a in node.attrs["axes"])
        keepdims = node.attrs["keepdims"]
        result = tuple(() if k in axes else d for k, d in enumerate(operand) if keepdims or k not in axes)
        reduced = [a for k in axes for a in operand[k]]
        kept = [a for k, d in enumerate(operand) if k not in axes for a in d]
        count = kept_count = 1
        for a in reduced:
            count *= a.size
        for a in kept:
            kept_count *= a.size
        if not reduced:
            return [Step(node, "point", (operand,), result, index=number)]
        if not count:
            return [Step(node, "row", (operand,), result, index=number)]
        innermost = atoms_of(operand)[-1]
        folding = compute.folding(x, node.outputs[0].type)
        several = len(folding.state) > 1
        if not compute.positions and innermost not in reduced and kept_count >= 8 and not several:
            kind = "column"
        elif not compute.positions and kept_count < SPLIT_RESULTS and count >= SPLIT_ELEMENTS and not several:
            kind = "split"
        else:
            return [Step(node, "row", (operand,), result, index=number)]
        partial = Step(node, kind, (operand,), result, index=number)
        return [partial, Step(node, "finish", (), tuple(fresh(node.outputs[0].type.shape)), partial, number)]  # type: ignore[arg-type]

    def _place(self, step: Step, number: int) -> None:
        """Give a step a group, merged with its producers' where possible."""
        group = Group("kernel", [step], first=number, last=number)
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
        if producer.kind != "kernel":
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
        steps = [_substituted(s, by) for s in (*producer.steps, *consumer.steps)]
        reason = _unsound(steps)
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
        by = {b: (a,) for old, new in zip(image, step.result, strict=True) for a, b in zip(old, new, strict=True)}
        new = _substituted(step, by)
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
        producer.depth = max(producer.depth, _below(p for p in consumer.producers if p is not producer))
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
            if v is not None and (v in self.outputs or any(c not in inside for c in self.consumers.get(v, ()))):
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
        readers: dict[Value, list[Group]] = {}
        for group in self._groups:
            if group.merged is not None or group.kind != "kernel":
                continue
            made = {s.output for s in group.steps}
            for step in group.steps:
                for v, dims in zip(step.inputs, step.operands, strict=False):
                    if v not in made and dims is not None and atoms_of(dims):
                        known = readers.setdefault(v, [])
                        if group not in known:
                            known.append(group)
        for v, groups in readers.items():
            for first, second in zip(groups, groups[1:], strict=False):
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
        steps = [_substituted(s, by) for s in (*head.steps, *other.steps)]
        atoms = {a for s in steps for d in (*s.operands, s.result) if d is not None for a in atoms_of(d)}
        if set(atoms_of(replace(mine, by))) != atoms:
            return  # one of them runs over more than the common value
        if _unsound(steps) or isinstance(self._shape(steps), str):
            return
        if head.last > other.last:
            head, other = other, head
            steps = steps[len(other.steps) :] + steps[: len(other.steps)]
        self._join(head, other, steps)

    def _merge_siblings(self) -> None:
        """Merge kernels that finish folds of one kernel."""
        by_source: dict[Group, list[Group]] = {}
        for group in self._groups:
            if group.merged is None and group.kind == "kernel" and any(s.fold is not None for s in group.steps):
                source = next(self.finishes[s.fold.node].find() for s in group.steps if s.fold is not None)
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
                steps = [_substituted(s, by) for s in (*head.steps, *other.steps)]
                if _unsound(steps) or isinstance(self._shape(steps), str):
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
        shape: tuple[int, ...] = tuple(int(d) for d in v.type.shape)
        base, layout = result.get(v, (v, Strided(shape, contiguous_strides(shape))))
        target = tuple(int(d) for d in node.outputs[0].type.shape)
        found = node.op.compute.rule(layout, target, node.attrs)
        if found is not None:
            result[node.outputs[0]] = (base, found)
    return result


def _below(producers: Iterable[Group]) -> int:
    """The depth of a group with these producers."""
    return 1 + max((p.find().depth for p in producers), default=-1)


def _aligned(v: Value, result: Dims) -> Dims:
    """The map of an operand that broadcasts to the result."""
    lead = len(result) - v.type.rank
    return tuple(() if d == 1 else result[lead + k] for k, d in enumerate(v.type.shape))


def _substituted(step: Step, by: Substitution) -> Step:
    if not by:
        return step
    operands = tuple(None if d is None else replace(d, by) for d in step.operands)
    return Step(step.node, step.kind, operands, replace(step.result, by), step.fold, step.index)


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
                joined = [_substituted(s, by) for s in steps]
                if not _unsound(joined):
                    steps = joined
    return steps


def _unsound(steps: Sequence[Step]) -> str:
    """Why steps whose maps were unified cannot share a kernel, or ""."""
    made = {s.output: s.result for s in steps if s.output is not None}
    left = {s.node for s in steps if s.kind in ("column", "split")}
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
    return step.kind in ("view", "point") or (step.kind == "map" and isinstance(compute, Scalar) and not compute.expensive)


def space(steps: list[Step], stored: set[Value]) -> Shape | str:
    """The form of the steps' common space, or why no kernel runs it."""
    everything: dict[Atom, None] = {}
    for s in steps:
        for dims in (*s.operands, s.result):
            if dims is not None:
                everything.update(dict.fromkeys(atoms_of(dims)))
    whole = frozenset(everything)
    inner: tuple[Atom, ...] | None = None
    rows: tuple[Atom, ...] | None = None
    kinds = {s.kind for s in steps}
    if "split" in kinds and ("row" in kinds or "column" in kinds):
        return "a fold of everything does not share a kernel with other folds"
    for s in steps:
        if s.kind not in ("row", "column", "split"):
            continue
        operand = s.operands[0]
        assert operand is not None
        covered = atoms_of(operand)
        if frozenset(covered) != whole:
            return "a fold runs over a part of the space only"
        kept = tuple(a for a in covered if a in set(atoms_of(s.result)))
        reduced = tuple(a for a in covered if a not in set(kept))
        mine_inner, mine_rows = (kept, reduced) if s.kind == "column" else (reduced, kept)
        fixed_inner, fixed_rows = s.kind != "column", s.kind == "column"
        if inner is not None and frozenset(inner) != frozenset(mine_inner):
            return "two folds run over different axes"
        if fixed_inner:
            if inner is not None and any(t.kind in ("row", "split") for t in steps[: steps.index(s)]) and inner != mine_inner:
                return "two folds take their elements in different orders"
            inner = mine_inner
        elif inner is None:
            inner = mine_inner
        if fixed_rows:
            if rows is not None and any(t.kind == "column" for t in steps[: steps.index(s)]) and rows != mine_rows:
                return "two folds over rows take them in different orders"
            rows = mine_rows
        elif rows is None:
            rows = mine_rows
    if inner is None:
        return _map_space(steps, stored, everything)
    assert rows is not None
    row_set = frozenset(rows)
    for s in steps:
        reason = _fits(s, whole, row_set, stored) or _in_order(s, rows, inner)
        if reason:
            return reason
    return Shape(rows, inner)


def _in_order(s: Step, rows: tuple[Atom, ...], inner: tuple[Atom, ...]) -> str:
    """Why a fold would be taken, or its partial results laid out, in another order than its own, or ""."""
    result = atoms_of(s.result)
    if s.kind == "finish" and result not in (rows, rows + inner):
        return "partial results lie in another order"
    if s.kind not in ("row", "column", "split"):
        return ""
    assert s.operands[0] is not None
    reduced = tuple(a for a in atoms_of(s.operands[0]) if a not in set(result))
    if s.kind == "row":
        return "" if reduced == inner else "two folds take their elements in different orders"
    wanted = (reduced, result) if s.kind == "column" else (result, reduced)
    return "" if (rows, inner) == wanted else "two folds lay out their partial results in different orders"


def _fits(s: Step, whole: frozenset[Atom], rows: frozenset[Atom], stored: set[Value]) -> str:
    if s.output is None:
        return ""
    here = frozenset(atoms_of(s.result))
    if here == whole or here == rows:
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
