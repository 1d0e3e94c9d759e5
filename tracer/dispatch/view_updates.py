"""Views: Tensors that lie in another one's memory, and what a change of one means for the others.

Eager, memory itself is shared, so only histories have to follow a change; in a trace, where a Tensor stands for a value, values
follow too. Both go one way: the base of the changed view becomes "the base with that part replaced", and the other views are
derived from it anew when somebody asks for them.

Knows what views are (`tracer.tensors.view`); nothing of who changes what, which is `tracer.functions.in_place`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ops.operator import Application, RuleBuilder, lookup
from tracer.dispatch.apply import attach_history
from tracer.tensors.grad_mode import enable_grad, no_grad
from tracer.tensors.modes import MODES, VOLATILE, Flag, Untracked
from tracer.tensors.tensor import Tensor
from tracer.tensors.view import View, steps_of

# ---- what a Tensor is now ------------------------------------------------------------------------


def history_of(view: View) -> Tensor:
    """A Tensor with the history that a view has by its base; eager its elements lie in the base's memory anyway."""
    found = view.base
    for step in steps_of(view):
        assert step.op is not None
        found = HISTORY.op(step.op.name, found, **step.attrs)
    return found


def give_history(x: Tensor, source: Tensor) -> None:
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
        op = lookup(name)
        normal = op.normalize(attrs)
        (type_,) = op.infer([x.type for x in inputs], normal)
        result = Tensor.without_elements(type_)
        needs = tuple(x.requires_grad for x in inputs)
        if any(x.volatile for x in inputs):
            result._requires_grad = VOLATILE
        elif any(needs):
            attach_history(op, inputs, normal, (result,), needs)
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
    x = MODES.interpreter.current(x)
    result = frozen(x)
    result._requires_grad, result._grad_fn = x._requires_grad, x._grad_fn
    result.output_number = x.output_number
    return result


def frozen(x: Tensor) -> Tensor:
    """x's elements now, without history. Eager they are in x's memory, and a later change is counted."""
    return MODES.interpreter.frozen(x)


def new_history(
    x: Tensor, new: Tensor, recorded: bool, fresh: bool, builder: RuleBuilder
) -> Tensor:
    """A Tensor with the history that x gets when new is written to it."""
    own = new.volatile or (fresh and new.requires_grad and new.grad_fn is not None)
    if not recorded or own:
        return new
    # a node of its own: new is somebody else's, or the old elements' gradient ends here
    result: Tensor = builder.op("SliceScatter", snapshot(x), new, **_WHOLE)
    return result


def write_history(
    target: Tensor,
    new: Tensor,
    builder: Any,
    recorded: bool = True,
    put: Callable[[Tensor, Tensor], None] | None = None,
) -> None:
    """Give a Tensor, and what it is a view of, the new history; with `put`, which gives a Tensor a value, the value too."""
    writable = MODES.interpreter.writable
    while True:
        view = target._view
        if view is not None:
            base = writable(view.base)
            goes_on = recorded and view.op is not None
            with enable_grad() if goes_on else no_grad():
                part = _replaced(builder, view, new)
        if put is not None:
            put(target, new)
        if recorded:
            give_history(target, MODES.interpreter.current(new))
        target._generation += 1
        if view is None:
            return
        target._seen = base._generation + 1  # what the base, which is changed next, will say
        target, new, recorded = base, part, goes_on
        if put is None and not recorded:
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


def set_flag(x: Tensor, flag: Flag) -> None:
    """Give x the flag that a program's run leaves it with. Of a volatile one its base and other views follow."""
    if isinstance(flag, Untracked) and flag.volatile:
        made = Tensor.without_elements(x.type)
        made._requires_grad = flag
        write_history(x, made, HISTORY)
    else:
        x._set_flag(flag)
