"""What fusion works on: steps, which are nodes with the axes that they run over, and groups of steps that share a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ops.compute import Compute
from tracer.ir.graph import Node, Value
from tracer.lowering.axes import Atom, Dims, Substitution, atoms_of, replace
from tracer.lowering.layout import Buffer

StepKind = Literal["map", "view", "point", "row", "column", "split", "finish"]


@dataclass(eq=False, slots=True)
class Step:
    """One node in a group, with the maps of its operands and its result.

    `kind`: "map" (element by element), "view" (nothing to do), "point" (a fold over axes of size 1), "row" (a fold over the
    inner axis), "column" (a fold over the rows), "split" (a fold of everything), "finish" (of one of the last two, which leave
    partial results to another kernel). `fold`: the step that "finish" finishes.
    """

    node: Node
    kind: StepKind
    operands: tuple[Dims | None, ...]
    result: Dims
    fold: Step | None = None
    index: int = 0

    @property
    def is_fold(self) -> bool:
        """Whether it loops over elements that become one."""
        return self.kind in ("row", "column", "split")

    @property
    def leaves_partials(self) -> bool:
        """Whether it is a fold that another kernel finishes."""
        return self.kind in ("column", "split")

    @property
    def inputs(self) -> tuple[Value, ...]:
        """What it reads, besides partial results."""
        return () if self.kind == "finish" else self.node.inputs

    @property
    def output(self) -> Value | None:
        """What it makes; a fold that another kernel finishes makes nothing yet."""
        return None if self.leaves_partials else self.node.outputs[0]


@dataclass(eq=False, slots=True)
class Group:
    """Steps that share a kernel, or one `node` that no fused kernel computes."""

    steps: list[Step] = field(default_factory=list)
    node: Node | None = None
    producers: set[Group] = field(default_factory=set)
    first: int = 0
    last: int = 0
    depth: int = 0  # groups that must run one after the other before it
    merged: Group | None = None
    made: dict[Value, Dims] | None = (
        None  # of a plain group: all its steps run over its whole space
    )
    whole: frozenset[Atom] = frozenset()

    def note_plain(self) -> None:
        """See whether every step is element by element over the whole space; then one more such step needs no proof."""
        self.made = None
        if any(s.kind != "map" for s in self.steps):
            return
        self.whole = frozenset(
            a
            for s in self.steps
            for d in (*s.operands, s.result)
            if d is not None
            for a in atoms_of(d)
        )
        if all(frozenset(atoms_of(s.result)) == self.whole for s in self.steps):
            self.made = {s.node.outputs[0]: s.result for s in self.steps}

    def find(self) -> Group:
        """The group that this one has been merged into."""
        group = self
        while group.merged is not None:
            group = group.merged
        return group

    @property
    def is_empty(self) -> bool:
        """Whether it is a node whose results have no elements, so that nothing runs."""
        node = self.node
        return (
            node is not None
            and any(0 in v.type.shape for v in node.outputs)
            and not node.has_effect
        )

    @property
    def compute(self) -> Compute | None:
        """How its one node computes; None of a kernel, and where nothing runs."""
        return None if self.node is None or self.is_empty else self.node.op.compute

    @property
    def nodes(self) -> list[Node]:
        """The nodes of all steps, or the one node."""
        return [self.node] if self.node is not None else [s.node for s in self.steps]


@dataclass(frozen=True, slots=True)
class PartialFold:
    """What a fold leaves that another kernel finishes: `buffers`, one for each state; of how many elements each result is folded
    (`count`); the mode of the kernel that folds them."""

    buffers: list[Buffer]
    count: int
    mode: Literal["columns", "split"]


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


def substituted(step: Step, by: Substitution) -> Step:
    """The step with the atoms of its maps replaced."""
    if not by:
        return step
    operands = tuple(None if d is None else replace(d, by) for d in step.operands)
    return Step(step.node, step.kind, operands, replace(step.result, by), step.fold, step.index)
