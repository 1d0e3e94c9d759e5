"""Views: Tensors that lie in another one's memory, and what a change of one means for the others.

Eager, memory itself is shared, so only histories have to follow a change; in a trace, where a Tensor stands for a value, values
follow too. Both go one way: the base of the changed view becomes "the base with that part replaced", and the other views are
derived from it anew when somebody asks for them.

Knows what views are (`tracer.view_links`); nothing of who changes what, which is `tracer.functions.mutation`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ops.operator import Application, RuleBuilder, lookup
from tracer.dispatch.apply import BUILDER, apply_operator
from tracer.tensors.grad_mode import enable_grad, no_grad
from tracer.tensors.modes import MODES, VOLATILE, Flag, Untracked
from tracer.tensors.tensor import Tensor
from tracer.tensors.view import View, steps_of

if TYPE_CHECKING:
    from tracer.tracing.recording.recorder import Recorder


# ---- what a Tensor is now ------------------------------------------------------------------------


def resolve(x: Tensor) -> Tensor:
    """What stands for an outside Tensor that the running trace has changed; else the Tensor."""
    recorder = MODES.recorder
    return x if recorder is None else recorder.standings.inside(x)


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
            MODES.recorder = None
            try:
                _give_history(x, _history_of(view))
            finally:
                MODES.recorder = recorder
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
        from tracer.autograd.tape import attach

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
    recorder = MODES.recorder
    return x._frozen() if recorder is None else Tensor.of_value(recorder.value_of(x), recorder)


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
        target[...] = new._data()
        x.count_change()
        if recorded:
            _write_history(x, new_history, HISTORY)
    else:
        _write_history(recorder.standings.of(x), new_history, BUILDER, recorded)


def _write_history(target: Tensor, new: Tensor, builder: Any, recorded: bool = True) -> None:
    """Give a Tensor, and what it is a view of, the new value (in a trace) and history."""
    recorder = MODES.recorder
    while True:
        view = target._view
        if view is not None:
            base = view.base if recorder is None else recorder.standings.of(view.base)
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
        _write_history(recorder.standings.of(x), made, BUILDER)


def set_flag(x: Tensor, flag: Flag) -> None:
    """Give x the flag that a program's run leaves it with. Of a volatile one its base and other views follow."""
    if isinstance(flag, Untracked) and flag.volatile:
        made = Tensor.__new__(Tensor)
        made._start(x.type)
        made._requires_grad = flag
        _write_history(x, made, HISTORY)
    else:
        x._set_flag(flag)
