"""Views: Tensors that lie in another one's memory, and what a change of one means for the others.

Eager, memory itself is shared, so only histories have to follow a change; in a trace, where a Tensor stands for a value, values
follow too. Both go one way: the base of the changed view becomes "the base with that part replaced", and the other views are
derived from it anew when somebody asks for them.

Knows layouts and operators that rearrange; nothing of who changes what, which is `tracer.functions.mutation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ops.compute import Composite, Strided
from ops.compute import View as ViewCompute
from ops.dims import Dim
from ops.movement import contiguous_strides
from ops.operator import Application, Attributes, Operator, RuleBuilder, lookup
from ops.types import Type
from tracer.dispatch import BUILDER, apply_operator
from tracer.graph import GraphBuilder, Value
from tracer.modes import MODES, VOLATILE, Flag, Untracked, enable_grad, no_grad
from tracer.tensor import Tensor

if TYPE_CHECKING:
    from tracer.recording import Recorder


class View:
    """How a Tensor lies in another one's memory: the base, and the last of the operators that lead from it here.

    `op` None: the base's elements as they are, with a history of their own (`detach`). `previous`: the operators before.
    `recorded`: gradients were recorded when it was made, so it follows the base's history. `layout`: in a base that is
    row-major; None where sizes are symbols.
    """

    __slots__ = ("attrs", "base", "layout", "op", "previous", "recorded", "type")

    def __init__(
        self,
        base: Tensor,
        previous: View | None,
        op: Operator | None,
        attrs: Attributes,
        type_: Type,
        layout: Strided | None,
    ) -> None:
        self.base, self.previous, self.op, self.attrs = base, previous, op, attrs
        self.type, self.layout, self.recorded = type_, layout, MODES.grad_enabled is True

    @property
    def overlaps(self) -> bool:
        """Whether it was broadcast, so that elements share memory: as NumPy's broadcast arrays it cannot be written to."""
        size = self.base.type.size
        for step in steps_of(self):
            if step.op is not None and step.op.name == "Expand" and step.type.size != size:
                return True
            size = step.type.size
        return False


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


# ---- making views --------------------------------------------------------------------------------


def link(x: Tensor, y: Tensor, op: Operator, attrs: Attributes, number: int) -> bool:
    """Note that y, a result of an operator that rearranges, lies in x's memory; False where that takes a copy."""
    view = x._view
    if view is None or view.op is None:
        base, previous, layout = x, None, _row_major(x.type)
    else:
        base, previous, layout = view.base, view, view.layout
    for step_op, step_attrs, type_ in _rearrangements(op, attrs, number, x.type, y.type):
        compute = step_op.compute
        assert isinstance(compute, ViewCompute)
        if layout is not None and not _is_symbolic(type_):
            sizes: Any = type_.shape
            layout = compute.rule(layout, sizes, step_attrs)
            if layout is None:
                return False  # other elements lie between: eager code copies as well
        else:
            layout = None
            before = x.type if previous is None else previous.type
            if (
                compute.keeps_order
                and previous is not None
                and not _keeps_order(previous)
                and _without_ones(before) != _without_ones(type_)
            ):
                return False  # of symbolic sizes: not known to be a view
        previous = View(base, previous, step_op, step_attrs, type_, layout)
    y._view = previous
    y._seen = resolve(base)._generation
    return True


def link_alias(x: Tensor, y: Tensor) -> None:
    """Note that y has x's elements and a history of its own."""
    view = x._view
    if view is None:
        y._view = View(x, None, None, Attributes(), x.type, _row_major(x.type))
    elif view.op is None:
        y._view = view
    else:
        y._view = View(view.base, view, None, Attributes(), x.type, view.layout)
    y._seen = resolve(y._view.base)._generation


def _row_major(type_: Type) -> Strided | None:
    if _is_symbolic(type_):
        return None
    sizes: Any = type_.shape
    return Strided(sizes, contiguous_strides(sizes), 0)


def _is_symbolic(type_: Type) -> bool:
    return any(isinstance(d, Dim) for d in type_.shape)


def _without_ones(type_: Type) -> list[int | Dim]:
    """The axes that matter to where elements lie."""
    return [d for d in type_.shape if isinstance(d, Dim) or d != 1]


def _keeps_order(view: View) -> bool:
    """Whether the elements lie one after the other as in the base."""
    return all(
        step.op is None
        or (isinstance(step.op.compute, ViewCompute) and step.op.compute.keeps_order)
        for step in steps_of(view)
    )


def _rearrangements(
    op: Operator, attrs: Attributes, number: int, x: Type, y: Type
) -> list[tuple[Operator, Attributes, Type]]:
    """The operator as views with one result: a part of a split is a slice."""
    if not isinstance(op.compute, Composite):
        return [(op, attrs, y)]
    builder = GraphBuilder()
    operand = builder.input(x)
    results = op.compute.rule(builder, Application((operand,), (), attrs))
    value: Value = results[number] if isinstance(results, tuple) else results
    made = {v: node for node in builder.nodes for v in node.outputs}
    steps = []
    while value is not operand:
        node = made[value]
        steps.append((node.op, node.attrs, value.type))
        value = node.inputs[0]
    steps.reverse()
    return steps


# ---- what a Tensor is now ------------------------------------------------------------------------


def resolve(x: Tensor) -> Tensor:
    """What stands for an outside Tensor that the running trace has changed; else the Tensor."""
    recorder = MODES.recorder
    return x if recorder is None else recorder.inside(x)


def current(x: Tensor) -> Tensor:
    """The Tensor with its value and history brought up to date.

    In a trace what stands for it, where it has a history there: leaves stay themselves, so that gradients find them.
    """
    standing = resolve(x)
    if standing._view is not None:
        refresh(standing)
    if standing._grad_fn is not None or isinstance(standing._requires_grad, Untracked):
        return standing
    return x


def refresh(x: Tensor) -> None:
    """Derive a view anew if its base has changed since. What a trace does to the base is nothing to views outside of it."""
    recorder = MODES.recorder
    if recorder is None or x._recorder is not recorder:
        view = x._view
        assert view is not None
        if x._seen == view.base._generation:
            return
        x._seen = view.base._generation
        if x._changes is not view.base._changes:
            x._view = None  # the base has other memory now (`_start_again`)
        elif view.recorded and view.base._requires_grad is not False:
            _give_history(x, _history_of(view))
        return
    chain = []
    item = x
    while item._view is not None:
        chain.append(item)
        item = resolve(item._view.base)
    for item in reversed(chain):
        view = item._view
        assert view is not None
        generation = resolve(view.base)._generation
        if item._seen != generation:
            item._seen = generation
            _derive(item, view, recorder)


def _history_of(view: View) -> Tensor:
    """A Tensor with the history that a view has by its base; eager its elements lie in the base's memory anyway."""
    found = view.base
    for step in steps_of(view):
        assert step.op is not None
        found = HISTORY.op(step.op.name, found, **step.attrs)
    return found


def _derive(x: Tensor, view: View, recorder: Recorder) -> None:
    """A view of a trace gets its base's new elements, and where it follows also the new history."""
    follows = view.op is not None and view.recorded
    with enable_grad() if follows else no_grad():
        found = view.base  # not what stands for it: a leaf stays itself
        for step in steps_of(view):
            assert step.op is not None
            found = apply_operator(step.op, (found,), step.attrs)
        x._value = recorder.value_of(found)
        if follows:
            found = current(found)
            if found._requires_grad is not False:
                _give_history(x, found)
        else:
            x._generation += 1


def _give_history(x: Tensor, source: Tensor) -> None:
    """x's history is source's from now on; the gradient that x keeps is that of x as it is now."""
    retains = x.retains_grad
    if retains and x._grad_fn is not None:
        x._grad_fn.forget(x, x.output_number)
    x._requires_grad, x._grad_fn = source._requires_grad, source._grad_fn
    x.output_number = source.output_number
    if retains and x._grad_fn is not None:
        x._grad_fn.retain(x, x.output_number)


# ---- changes -------------------------------------------------------------------------------------


class _HistoryBuilder(RuleBuilder):
    """Builds with Tensors that have a type and a history and no elements: eager changes write memory themselves."""

    def op(self, name: str, *inputs: Any, **attrs: Any) -> Any:
        from tracer.autograd.history import attach

        op = lookup(name)
        normal = op.normalize(attrs)
        (type_,) = op.infer([x.type for x in inputs], normal)
        result = Tensor.__new__(Tensor)
        result._start(type_)
        needs = tuple(x.requires_grad for x in inputs)
        if any(x.volatile for x in inputs):
            result._requires_grad = VOLATILE
        elif any(needs):
            attach(op, inputs, normal, (result,), needs)
        return result


HISTORY = _HistoryBuilder()
_SCATTERS = {
    "Slice": "SliceScatter",
    "Select": "SelectScatter",
    "Diagonal": "DiagonalScatter",
}
_WHOLE: dict[str, Any] = {"starts": (), "ends": (), "axes": (), "steps": ()}


def scatter(builder: Any, step: View, x: Any, part: Any) -> Any:
    """x with the part that a view takes replaced."""
    op = step.op
    assert op is not None
    if op.name in _SCATTERS:
        return builder.op(_SCATTERS[op.name], x, part, **step.attrs)
    if op.name == "Expand":  # no axis grows, or writing would have been refused
        return builder.op("Reshape", part, shape=x.type.shape)
    assert callable(op.vjp)
    # all elements in another order: the gradient rule puts them back
    n = Application((x,), (part,), step.attrs, (part,), (True,))
    return op.vjp(builder, n)[0]


def snapshot(x: Tensor) -> Tensor:
    """x as it is now, with its history: what comes later does not show. Eager it shares memory until that is written."""
    x = current(x)
    result = frozen(x)
    result._requires_grad, result._grad_fn = x._requires_grad, x._grad_fn
    result.output_number = x.output_number
    return result


def frozen(x: Tensor) -> Tensor:
    """x's elements now, without history. Eager they are in x's memory, and a later change is counted."""
    result = Tensor.__new__(Tensor)
    result._start(x.type)
    recorder = MODES.recorder
    if recorder is not None:
        result._value, result._recorder = recorder.value_of(x), recorder
    else:
        result._array, result._block, result._pointer = x._array, x._block, x._pointer
        result._value, result._recorder = x._value, x._recorder
        result._changes = x.changes()
    return result


def write(x: Tensor, new: Tensor, recorded: bool, fresh: bool = False) -> None:
    """x's elements become new's, of the same type; what shares x's memory sees it.

    `recorded`: the history follows too, or the flag of a volatile value. `fresh`: new was made for this and nobody else has it.
    """
    recorder = MODES.recorder
    if (
        recorded
        and not new.volatile
        and not (fresh and new.requires_grad and new.grad_fn is not None)
    ):
        # a node of its own: new is somebody else's, or the old elements' gradient ends here
        builder = HISTORY if recorder is None else BUILDER
        new_history = builder.op("SliceScatter", snapshot(x), new, **_WHOLE)
    else:
        new_history = new
    if recorder is None:
        target = x._data()
        np.copyto(target, new._data())
        x.count_change()
        if recorded:
            _write_history(x, new_history, HISTORY)
    else:
        _write_history(recorder.standing(x), new_history, BUILDER, recorded)


def _write_history(target: Tensor, new: Tensor, builder: Any, recorded: bool = True) -> None:
    """Give a Tensor, and what it is a view of, the new value (in a trace) and history."""
    recorder = MODES.recorder
    while True:
        view = target._view
        if view is not None:
            base = view.base if recorder is None else recorder.standing(view.base)
            goes_on = recorded and view.op is not None
            with enable_grad() if goes_on else no_grad():
                part = _replaced(builder, view, new)
        _replace(target, new, recorded)
        if view is None:
            return
        _seen_after(target, base)
        target, new, recorded = base, part, goes_on
        if recorder is None and not recorded:
            return


def _replaced(builder: Any, view: View, part: Tensor) -> Tensor:
    """The base with a view's part replaced."""
    steps = steps_of(view)
    whole = [snapshot(view.base)]
    for step in steps[:-1]:
        assert step.op is not None
        whole.append(builder.op(step.op.name, whole[-1], **step.attrs))
    for step, x in zip(reversed(steps), reversed(whole), strict=False):
        part = scatter(builder, step, x, part)
    return part


def _replace(target: Tensor, new: Tensor, recorded: bool) -> None:
    recorder = MODES.recorder
    if recorder is not None:
        target._value = recorder.value_of(new)
    if recorded:
        _give_history(target, current(new))
    target._generation += 1


def _seen_after(target: Tensor, base: Tensor) -> None:
    """The target is what the base, which is changed next, will say it is."""
    target._seen = base._generation + 1


def set_history(x: Tensor, node: Any, number: int) -> None:
    """x's elements were changed by what a history node stands for; its base and other views follow."""
    recorder = MODES.recorder
    if recorder is None:
        made = Tensor.__new__(Tensor)
        made._start(x.type)
    else:
        made = Tensor.of_value(recorder.value_of(x), recorder)
    made._requires_grad, made._grad_fn, made.output_number = True, node, number
    if recorder is None:
        _write_history(x, made, HISTORY)
    else:
        _write_history(recorder.standing(x), made, BUILDER)


def set_flag(x: Tensor, flag: Flag) -> None:
    """Give x the flag that a program's run leaves it with. Of a volatile one its base and other views follow."""
    if isinstance(flag, Untracked) and flag.volatile:
        made = Tensor.__new__(Tensor)
        made._start(x.type)
        made._requires_grad = flag
        _write_history(x, made, HISTORY)
    else:
        x._set_flag(flag)
