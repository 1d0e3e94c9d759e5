"""`Function`: an operation of the user's own, with a forward and a backward in Python.

Knows how forward is called and what becomes of its results. Must not know how the walk goes back (`engine`); what backward gives
is checked in `function_node`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ops.errors import ArgumentError, TracerError
from ops.forms import Form
from ops.types import is_floating, short
from tracer.autograd.argument_trees import flatten
from tracer.autograd.function_node import FunctionContext, FunctionNode, refuse_second_gradient
from tracer.core.source_lines import located
from tracer.custom.onnx_symbolic import form_of
from tracer.dispatch.apply import apply as apply_named
from tracer.functions.creation import as_tensor, copied
from tracer.functions.in_place import require_changeable
from tracer.functions.public import public
from tracer.tensors.grad_mode import no_grad
from tracer.tensors.modes import MODES, untracked
from tracer.tensors.tensor import Tensor

_ARRAYS = (np.ndarray, np.generic)
_TENSOR = object()  # stands for a Tensor among arguments
_STATIC = ("forward", "backward", "setup_context", "symbolic")


class Function:
    """An operation with a gradient of its own. Subclass it, and call `apply`, which gives what forward gives.

    forward leaves no history of its own; backward gets a gradient for each result and gives one for each argument, None for those
    that have none. With `setup_context(ctx, inputs, output)`, forward is called without ctx. `symbolic(g, *inputs)`, if there is
    one, says what the operation is in ONNX.

    >>> class Exp(tracer.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         y = x.exp()
    ...         ctx.save_for_backward(y)
    ...         return y
    ...     @staticmethod
    ...     def backward(ctx, dy):
    ...         (y,) = ctx.saved_tensors
    ...         return dy * y
    >>> tracer.grad(Exp.apply)(0.0)
    tensor(1.)
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in _STATIC:
            given = cls.__dict__.get(name)
            if given is not None and not isinstance(given, staticmethod):
                _refuse(
                    f"{cls.__name__}.{name} must be a static method: write @staticmethod above it, and ctx, not self, as "
                    "its first parameter"
                )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """No: a Function is not called through an instance."""
        name = type(self).__name__
        _refuse(f"a Function has no instances; call {name}.apply(...)")

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """The results: a Tensor, or a tuple of Tensors and other objects. The first argument is ctx, without setup_context."""
        raise NotImplementedError

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Save what backward needs, where forward has no ctx."""
        raise NotImplementedError

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The gradients of forward's arguments, from those of its results."""
        raise NotImplementedError

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call forward, and record the operation if a Tensor among the arguments requires a gradient.

        Gradients are for Tensors that are arguments themselves; those inside lists and other objects are constants to it.
        """
        return _apply(cls, args, kwargs)


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator of a backward that computes without history, such as with NumPy: a second gradient is an error, not wrong.

    >>> class Double(tracer.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     @tracer.autograd.once_differentiable
    ...     def backward(ctx, dy):
    ...         return tracer.tensor(2 * dy.numpy())
    >>> tracer.grad(Double.apply)(3.0)
    tensor(2.)
    """

    @functools.wraps(backward)
    def wrapped(ctx: Any, *gradients: Any) -> Any:
        with no_grad():
            found = backward(ctx, *gradients)
        if not MODES.grad_enabled:
            return found
        return refuse_second_gradient(found, ctx, gradients)

    return wrapped


def _refuse(message: str) -> None:
    raise located(ArgumentError(message))


@public
def _apply(cls: type[Function], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    _check(cls, kwargs)
    args = tuple(as_tensor(x) if isinstance(x, _ARRAYS) else x for x in args)
    ctx = FunctionContext(cls, args)
    volatile = any(isinstance(x, Tensor) and x.volatile for x in args)
    recorded = MODES.grad_enabled is True and any(ctx.needs_input_grad) and not volatile
    before = [_state(x) for x in args]
    begun = MODES.interpreter.begin_call([x for x in args if isinstance(x, Tensor)])
    with no_grad():
        result = _forward(cls, ctx, args)
        given = result if isinstance(result, tuple) else (result,)
        outputs = _results(cls, ctx, args, given)
    results = [y for y in outputs if isinstance(y, Tensor)]

    def described() -> tuple[Form | None, Callable[[Sequence[Any]], Any]]:
        dirty = {id(x) for x in ctx._dirty}
        changed = tuple(id(x) in dirty for x in args)
        constants = tuple(_TENSOR if isinstance(x, Tensor) else x for x in args)
        return form_of(cls, args, results), functools.partial(_again, cls, constants, changed)

    MODES.interpreter.end_call(begun, cls.__name__, results, described)
    _check_changes(cls, ctx, args, before, given, recorded)
    for y in outputs if volatile else ():
        if isinstance(y, Tensor):
            y._requires_grad = untracked(True, y.is_inference())
    if recorded:
        _attach(cls, ctx, args, given, outputs)
    return tuple(outputs) if isinstance(result, tuple) else outputs[0]


def _again(
    cls: type[Function],
    constants: tuple[Any, ...],
    changed: tuple[bool, ...],
    tensors: Sequence[Tensor],
) -> Any:
    """The same call on other Tensors, on copies of those that it changes."""
    given = iter(tensors)
    args = [next(given) if x is _TENSOR else x for x in constants]
    return cls.apply(*(copied(x) if c else x for x, c in zip(args, changed, strict=True)))


def _check(cls: type[Function], kwargs: dict[str, Any]) -> None:
    name = cls.__name__
    if kwargs:
        raise ArgumentError(
            f"{name}.apply takes positional arguments only, as backward gives one gradient for each; got the keyword "
            f"{next(iter(kwargs))!r}"
        )
    if cls.forward is Function.forward:
        raise ArgumentError(f"{name} has no forward; give it a static method forward(ctx, ...)")


def _forward(cls: type[Function], ctx: FunctionContext, args: tuple[Any, ...]) -> Any:
    if cls.setup_context is Function.setup_context:
        return cls.forward(ctx, *args)
    result = cls.forward(*args)
    cls.setup_context(ctx, args, result)
    return result


def _results(
    cls: type[Function], ctx: FunctionContext, args: tuple[Any, ...], given: tuple[Any, ...]
) -> list[Any]:
    """What apply gives: Tensors that are nobody else's, so that history can be attached to them."""
    arguments = {id(x) for x in args if isinstance(x, Tensor)}
    dirty = {id(x) for x in ctx._dirty}
    seen: set[int] = set()
    outputs: list[Any] = []
    for y in given:
        if isinstance(y, _ARRAYS):
            y = as_tensor(y)
        if not isinstance(y, Tensor):
            _refuse_hidden(cls, y)
            outputs.append(y)
        elif id(y) in dirty:
            outputs.append(y)
        elif id(y) in arguments or id(y) in seen or y.requires_grad or y._view is not None:
            # An argument as it is or a part of it, a result twice, something from outside: another Tensor on its memory. It is a
            # view made without history, so a change of it in place that is recorded is refused.
            outputs.append(apply_named("Reshape", y, shape=y.type.shape))
        else:
            outputs.append(y.detach())
        seen.add(id(y))
    return outputs


def _refuse_hidden(cls: type[Function], y: Any) -> None:
    if not isinstance(y, list | tuple | dict):
        return
    leaves, _ = flatten(y)
    if any(isinstance(leaf, Tensor) for leaf in leaves):
        raise ArgumentError(
            f"{cls.__name__}.forward gives a {type(y).__name__} that holds Tensors; it gives a Tensor or a tuple of "
            "results, in which Tensors stand by themselves, so that each has a gradient"
        )


def _state(x: Any) -> Any:
    """What tells whether an argument was changed in place."""
    if not isinstance(x, Tensor):
        return None
    return MODES.interpreter.version_of(x)


def _check_changes(
    cls: type[Function],
    ctx: FunctionContext,
    args: tuple[Any, ...],
    before: list[Any],
    given: tuple[Any, ...],
    recorded: bool,
) -> None:
    """Changes in place must have been told, and what was told must fit."""
    name = cls.__name__
    arguments = [id(x) for x in args]
    results = {id(y) for y in given}
    for x in ctx._dirty:
        if id(x) not in arguments:
            raise ArgumentError(
                f"{name}: ctx.mark_dirty takes arguments of forward that it changes in place, got another Tensor {short(x.type)}"
            )
        if id(x) not in results:
            raise ArgumentError(
                f"{name}: an argument {short(x.type)} is marked as changed in place (ctx.mark_dirty), but forward does not "
                "return it; return every such argument"
            )
        if recorded:
            try:
                require_changeable(x, args)
            except TracerError as error:
                raise type(error)(f"{name} changes an argument in place: {error}") from None
        if (
            MODES.interpreter.known_elements(x) is not None
            and _state(x) == before[arguments.index(id(x))]
        ):
            x.count_change()  # through its array
    marked = {id(x) for x in ctx._dirty}
    for number, (x, state) in enumerate(zip(args, before, strict=True)):
        if not isinstance(x, Tensor) or id(x) in marked or not recorded:
            continue
        if (x.requires_grad or id(x) in results) and _state(x) != state:
            raise ArgumentError(
                f"{name}.forward changes argument {number}, {short(x.type)}, in place without saying so; call ctx.mark_dirty(x) "
                "and return it, or compute a new Tensor"
            )


def _attach(
    cls: type[Function],
    ctx: FunctionContext,
    args: tuple[Any, ...],
    given: tuple[Any, ...],
    outputs: list[Any],
) -> None:
    """Give floating results a history."""
    plain, dirty = {id(x) for x in ctx._non_differentiable}, {id(x) for x in ctx._dirty}
    differentiable = [
        isinstance(y, Tensor) and is_floating(y.type.dtype) and id(inner) not in plain
        for inner, y in zip(given, outputs, strict=True)
    ]
    node = FunctionNode(cls, ctx, args, outputs, differentiable)
    ctx.seal(node, given, outputs)
    for number, (y, has_gradient) in enumerate(zip(outputs, differentiable, strict=True)):
        if has_gradient and id(y) in dirty:
            MODES.interpreter.set_history(y, node, number)
        elif has_gradient:
            y._requires_grad, y._grad_fn, y.output_number = True, node, number


__all__ = ["Function", "once_differentiable"]
