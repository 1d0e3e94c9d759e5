"""A view: how a Tensor lies in another one's memory.

Knows layouts and operators that rearrange. Must not know what becomes of views when memory is changed,
which is `tracer.dispatch.view_updates`.
"""

from __future__ import annotations

from typing import Any

from ops.compute import Composite, Strided
from ops.compute import View as ViewCompute
from ops.dims import Dim
from ops.errors import ArgumentError
from ops.operator import Application, Attributes, Operator
from ops.types import Type, short
from tracer.ir.graph import GraphBuilder, Value
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor


class View:
    """How a Tensor lies in another one's memory: the base, and the last of the operators that lead from it here.

    `op` None: the base's elements as they are, with a history of their own (`detach`). `previous`: the operators before.
    `recorded`: gradients were recorded when it was made, so it follows the base's history.
    """

    __slots__ = ("_layout", "attrs", "base", "op", "previous", "recorded", "type")

    def __init__(
        self,
        base: Tensor,
        previous: View | None,
        op: Operator | None,
        attrs: Attributes,
        type_: Type,
    ) -> None:
        self.base, self.previous, self.op, self.attrs, self.type = base, previous, op, attrs, type_
        self.recorded = MODES.grad_enabled is True
        self._layout: Any = _UNKNOWN

    @property
    def layout(self) -> Strided | None:
        """Where the elements lie in a base that is row-major; None if they do not lie in its memory, or sizes are symbols."""
        chain: list[View] = []
        view: View | None = self
        while view is not None and view._layout is _UNKNOWN:
            chain.append(view)
            view = view.previous
        layout = _layout_of(self.base) if view is None else view._layout
        for view in reversed(chain):
            if view.op is not None:
                layout = view._layout_in(layout)
            view._layout = layout
        return layout

    def _layout_in(self, layout: Strided | None) -> Strided | None:
        if layout is None or _is_symbolic(self.type):
            return None
        assert self.op is not None
        assert isinstance(self.op.compute, ViewCompute)
        sizes: Any = self.type.shape
        found: Strided | None = self.op.compute.rule(layout, sizes, self.attrs)
        return found

    @property
    def is_in_memory(self) -> bool:
        """Whether the operator takes no copy, in a base that is row-major, as far as that is known."""
        if self.layout is not None:
            return True
        before = self.base._view if self.previous is None else self.previous
        known = _layout_of(self.base) if before is None else before.layout
        if known is not None and not _is_symbolic(self.type):
            return False  # other elements lie between
        if before is None or not _takes_order(self):
            return True
        same = _without_ones(before.type) == _without_ones(self.type)
        return same or all(map(_takes_order, steps_of(before)))

    @property
    def overlaps(self) -> bool:
        """Whether it was broadcast, so that elements share memory: as NumPy's broadcast arrays it cannot be written to."""
        size = self.base.type.size
        for step in steps_of(self):
            if step.op is not None and step.op.name == "Expand" and step.type.size != size:
                return True
            size = step.type.size
        return False


_UNKNOWN = object()


def steps_of(view: View) -> list[View]:
    """The operators from the base to the view, in order."""
    steps: list[View] = []
    step: View | None = view
    while step is not None:
        if step.op is not None:
            steps.append(step)
        step = step.previous
    steps.reverse()
    return steps


def part_of(builder: GraphBuilder, view: View, base: Value) -> Value:
    """The part of a graph's value that a view is of its base."""
    for step in steps_of(view):
        assert step.op is not None
        base = builder.emit(step.op, (base,), step.attrs)
    return base


def not_writable_error(x: Tensor) -> ArgumentError:
    """The error for a Tensor whose memory cannot be written to."""
    return ArgumentError(
        f"{short(x.type)} cannot be changed in place: several of its elements share memory (it was broadcast), or its memory is "
        "read-only; use x.clone() first"
    )


# ---- making views --------------------------------------------------------------------------------


def link(
    x: Tensor, y: Tensor, op: Operator, attrs: Attributes, number: int, certain: bool = False
) -> bool:
    """Note that y, a result of an operator that rearranges, lies in x's memory; False where that takes a copy.

    `certain`: the two are known to share memory. Else it follows from layouts, so that it is the same in traces.
    """
    view = x._view
    base, previous = (x, None) if view is None or view.op is None else (view.base, view)
    if isinstance(op.compute, Composite):
        steps = _rearrangements(op, attrs, number, x.type)
    else:
        steps = ((op, attrs, y.type),)
    for step_op, step_attrs, type_ in steps:
        previous = View(base, previous, step_op, step_attrs, type_)
        if not certain and not previous.is_in_memory:
            return False
    y._view = previous
    _begin(y, base)
    return True


def link_detached(x: Tensor, y: Tensor) -> None:
    """Note that y has x's elements and a history of its own."""
    view = x._view
    if view is None:
        view = View(x, None, None, Attributes(), x.type)
    elif view.op is not None:
        view = View(view.base, view, None, Attributes(), x.type)
    y._view = view
    _begin(y, view.base)


def _begin(y: Tensor, base: Tensor) -> None:
    """y is what its base says now."""
    base = MODES.interpreter.shadow_of(base)
    generation = base._generation
    y._seen, base._generation = generation, generation  # set from now on, which is quicker to read


def _layout_of(base: Tensor) -> Strided | None:
    """How a base lies: row-major, unless it is the `detach` of a view in a trace."""
    return _row_major(base.type) if base._view is None else base._view.layout


def _row_major(type_: Type) -> Strided | None:
    if _is_symbolic(type_):
        return None
    sizes: Any = type_.shape
    return Strided.row_major(sizes)


def _is_symbolic(type_: Type) -> bool:
    return any(isinstance(d, Dim) for d in type_.shape)


def _without_ones(type_: Type) -> list[int | Dim]:
    """The axes that matter to where elements lie."""
    return [d for d in type_.shape if isinstance(d, Dim) or d != 1]


def _takes_order(step: View) -> bool:
    """Whether an operator takes and gives all elements row-major."""
    compute = None if step.op is None else step.op.compute
    return isinstance(compute, ViewCompute) and compute.keeps_order


_REARRANGEMENTS: dict[Any, tuple[tuple[Operator, Attributes, Type], ...]] = {}


def _rearrangements(
    op: Operator, attrs: Attributes, number: int, x: Type
) -> tuple[tuple[Operator, Attributes, Type], ...]:
    """An operator with several results as views with one: a part of a split is a slice."""
    key = (op.name, attrs.key, number, x)
    found = _REARRANGEMENTS.get(key)
    if found is not None:
        return found
    builder = GraphBuilder()
    operand = builder.input(x)
    assert isinstance(op.compute, Composite)
    results = op.compute.rule(builder, Application((operand,), (), attrs))
    value: Value = results[number] if isinstance(results, tuple) else results
    made = {v: node for node in builder.nodes for v in node.outputs}
    steps = []
    while value is not operand:
        node = made[value]
        steps.append((node.op, node.attrs, value.type))
        value = node.inputs[0]
    if len(_REARRANGEMENTS) > 10_000:
        _REARRANGEMENTS.clear()
    found = _REARRANGEMENTS[key] = tuple(reversed(steps))
    return found
