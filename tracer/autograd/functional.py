"""Gradients of functions: `grad`, `value_and_grad`, `vjp`, `jvp`, `hvp`. Whole Jacobians are in `jacobians`.

Each runs the function on fresh variables that stand for its arguments, so the arguments' own
`.grad` and `requires_grad` stay untouched, and walks the history back with the one engine there is.
What lies around (an outer `grad`, a trace, parameters that require gradients) sees the whole
computation and can differentiate it again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, TypeVarTuple, overload

import numpy as np

from ops.errors import ArgumentError, GradError
from ops.types import is_floating, short
from tracer.autograd.argument_trees import (
    ArgNums,
    Run,
    cotangent_of,
    detached,
    flatten,
    gradients_of,
    positions_of,
    unflatten,
)
from tracer.core.source_lines import name_of
from tracer.dispatch.apply import apply
from tracer.functions.creation import as_tensor, cast, zeros_like
from tracer.functions.public import public
from tracer.functions.reductions import sum as sum_of
from tracer.tensors.grad_mode import inference_mode, is_grad_enabled
from tracer.tensors.tensor import Tensor

Aux = TypeVar("Aux")
P = ParamSpec("P")
V = TypeVar("V")
Vs = TypeVarTuple("Vs")

# ---- gradients of scalar functions ---------------------------------------------------------------


@overload
def value_and_grad(
    fn: Callable[P, Any], argnums: ArgNums = 0, has_aux: Literal[False] = False
) -> Callable[P, tuple[Tensor, Any]]: ...
@overload
def value_and_grad(
    fn: Callable[P, tuple[Any, Aux]], argnums: ArgNums = 0, *, has_aux: Literal[True]
) -> Callable[P, tuple[tuple[Tensor, Aux], Any]]: ...
def value_and_grad(fn: Any, argnums: ArgNums = 0, has_aux: bool = False) -> Any:
    """A function that gives fn's value and its gradients: `(value, gradients)`.

    fn must give one floating 0-d value; with `has_aux`, a pair of it and anything else, and the
    result is `((value, aux), gradients)`. argnums: which positional arguments; an int gives
    their gradient in the argument's own structure (Tensors in lists, dicts ...), a sequence a
    tuple of these. NumPy arrays and Python floats count as constants' values. Arguments that
    the value does not depend on get zeros, None leaves None.

    Works eagerly, in `@trace`, on traced functions and on its own results. Raises `GradError`
    for arguments that are not floating and values that are not 0-d.

    >>> def loss(weights, x):
    ...     return ((weights["w"] * x).sum() - 1.0) ** 2
    >>> tracer.value_and_grad(loss)({"w": np.array([1.0, 2.0])}, np.array([3.0, 4.0]))
    (tensor(100., dtype=float64), {'w': tensor([60., 80.], dtype=float64)})
    """
    require_function(fn)

    @functools.wraps(fn, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        return _value_and_grad(fn, argnums, has_aux, args, kwargs)

    return wrapped


@overload
def grad(
    fn: Callable[P, Any], argnums: ArgNums = 0, has_aux: Literal[False] = False
) -> Callable[P, Any]: ...
@overload
def grad(
    fn: Callable[P, tuple[Any, Aux]], argnums: ArgNums = 0, *, has_aux: Literal[True]
) -> Callable[P, tuple[Any, Aux]]: ...
def grad(fn: Any, argnums: ArgNums = 0, has_aux: bool = False) -> Any:
    """A function that gives fn's gradients; with `has_aux`, `(gradients, aux)`.

    See `value_and_grad`, for the errors too: `GradError`. `tracer.autograd.grad` is another one: of
    outputs with respect to inputs, as PyTorch's.

    >>> tracer.grad(lambda x: x**3)(2.0)
    tensor(12.)
    >>> tracer.grad(tracer.grad(lambda x: x**3))(2.0)
    tensor(12.)
    """
    require_function(fn)

    @functools.wraps(fn, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        value, gradients = _value_and_grad(fn, argnums, has_aux, args, kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return wrapped


@public
def require_function(fn: Any, what: str = "grad") -> None:
    """Raise `ArgumentError` unless fn, which `what` is asked of, can be called."""
    if callable(fn):
        return
    hint = (
        "; for gradients of Tensors there are t.backward() and tracer.autograd.grad"
        if isinstance(fn, Tensor)
        else ""
    )
    raise ArgumentError(f"{what} takes a function, got {type(fn).__name__}{hint}")


@public
def _value_and_grad(
    fn: Callable[..., Any],
    argnums: ArgNums,
    has_aux: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> tuple[Any, Any]:
    run = Run(fn, positions_of(argnums, len(args), name_of(fn)), args, kwargs, has_aux=has_aux)
    value, aux = _scalar(run.result, fn), run.aux
    outer = run.has_history([value])
    gradients = run.by_argument(gradients_of([value], None, run.variables, outer, outer))
    if not outer:
        value, aux = detached((value, aux))
    found = gradients[0] if isinstance(argnums, int) else gradients
    return ((value, aux) if has_aux else value), found


def _scalar(result: Any, fn: Any) -> Tensor:
    if not isinstance(result, Tensor | np.ndarray | np.generic | float | int):
        raise GradError(
            f"grad needs a function that gives one 0-d value, {name_of(fn)} gave "
            f"{type(result).__name__}; pass has_aux=True for a "
            "pair (value, aux), or use tracer.vjp"
        )
    value = as_tensor(result)
    if value.type.weak:
        value = cast(value, "float32")
    if value.type.shape != () or not is_floating(value.type.dtype):
        hint = (
            "reduce it, with .sum() or .mean(), or use tracer.vjp"
            if value.type.shape != ()
            else "return a floating one"
        )
        raise GradError(
            f"grad needs a function that gives one floating 0-d value, {name_of(fn)} gave "
            f"{short(value.type)}; {hint}"
        )
    return value


# ---- products with Jacobians ---------------------------------------------------------------------


@overload
def vjp(
    fn: Callable[[*Vs], V], *args: *Vs, has_aux: Literal[False] = False
) -> tuple[V, Callable[[Any], tuple[Any, ...]]]: ...
@overload
def vjp(
    fn: Callable[[*Vs], tuple[V, Aux]], *args: *Vs, has_aux: Literal[True]
) -> tuple[V, Callable[[Any], tuple[Any, ...]], Aux]: ...
@public  # type: ignore[misc]  # mypy takes `*args: Any` for less than `*args: *Vs`
def vjp(fn: Any, *args: Any, has_aux: bool = False) -> Any:
    """fn's value and the function from cotangents to gradients.

    The result is `(value, vjp_fn)`; with `has_aux`, `(value, vjp_fn, aux)`.

    vjp_fn takes cotangents in the structure of the value (floating leaves have their types, for
    others anything will do) and gives a tuple of gradients, one for each argument in its
    structure, with None for leaves that are not floating. It may be called several times.

    Raises `GradError` for cotangents of another structure, and with `has_aux` for a value that is no pair.

    >>> value, pull = tracer.vjp(lambda x, y: x * y, np.array([1.0, 2.0]), 3.0)
    >>> value
    tensor([3., 6.], dtype=float64)
    >>> pull(np.array([1.0, 1.0]))
    (tensor([3., 3.], dtype=float64), tensor(3.))
    """
    require_function(fn)
    run = Run(fn, tuple(range(len(args))), args, {}, strict=False, has_aux=has_aux)
    leaves, structure = flatten(run.result)
    outputs = [x if x is None else as_tensor(x) for x in leaves]
    outer = run.has_history([y for y in outputs if y is not None])

    @public
    def vjp_fn(cotangents: Any) -> tuple[Any, ...]:
        given, other = flatten(cotangents)
        if len(given) != len(outputs) or other != structure:
            raise GradError(
                f"the cotangents must have the structure of the value, {structure}, got {other}"
            )
        pairs = [
            (y, cotangent_of(c, y, k))
            for k, (y, c) in enumerate(zip(outputs, given, strict=True))
            if y is not None and is_floating(y.type.dtype)
        ]
        again = is_grad_enabled() and (outer or any(c.requires_grad for _, c in pairs))
        found = gradients_of(
            [y for y, _ in pairs], [c for _, c in pairs], run.variables, True, again
        )
        return run.by_argument(found)

    shown = [None if y is None else y if outer else y.detach() for y in outputs]
    value = unflatten(structure, shown)
    if has_aux:
        return value, vjp_fn, run.aux if outer else detached(run.aux)
    return value, vjp_fn


def _directions(
    what: str, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[tuple[Any, ...], list[Any]]:
    """The arguments, and the leaves of the tangents, of which there is a tree for each."""
    points, directions = tuple(primals), tuple(tangents)
    if len(points) != len(directions):
        raise GradError(
            f"{what} needs a tangent for each of {len(points)} primals, got {len(directions)}"
        )
    return points, flatten(directions)[0]


@public
def jvp(fn: Callable[..., V], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[V, V]:
    """fn's value, and its derivative along tangents: `(value, tangent)`.

    Both have the structure of the value. The tangent is taken by two reverse passes: vjp_fn is
    linear in its cotangents, and its own transpose is what is wanted. It costs about three
    times as much as the function.

    Raises `GradError` where tangents do not fit the primals, and what `vjp` raises.

    >>> tracer.jvp(lambda x: x**2, (3.0,), (1.0,))
    (tensor(9.), tensor(6.))
    """
    points, wanted = _directions("jvp", primals, tangents)
    value, pull = vjp(fn, *points)
    leaves, structure = flatten(value)
    floating = [isinstance(y, Tensor) and is_floating(y.type.dtype) for y in leaves]
    with inference_mode(False):
        seeds = [
            zeros_like(y.detach()).requires_grad_() if f else None
            for y, f in zip(leaves, floating, strict=True)
        ]
        pulled = pull(unflatten(structure, seeds))
    gradients, _ = flatten(pulled)
    if len(gradients) != len(wanted):
        raise GradError("jvp needs tangents in the structure of the primals")
    pairs = [
        (g, cotangent_of(t, g, k))
        for k, (g, t) in enumerate(zip(gradients, wanted, strict=True))
        if g is not None
    ]
    again = is_grad_enabled() and any(y.requires_grad for y in leaves if isinstance(y, Tensor))
    again = again or (is_grad_enabled() and any(t.requires_grad for _, t in pairs))
    found = iter(
        gradients_of(
            [g for g, _ in pairs],
            [t for _, t in pairs],
            [s for s in seeds if s is not None],
            again,
            again,
        )
    )
    tangent = [next(found) if f else None for f in floating]
    return value, unflatten(structure, tangent)


@public
def hvp(
    fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """fn's gradients and the product of its Hessian with tangents, both tuples by argument.

    fn gives one floating 0-d value. The product is the gradient of the gradients' product with
    the tangents: forward and reverse, and reverse of both.

    Raises `GradError` where tangents do not fit the primals, and what `grad` raises.

    >>> tracer.hvp(lambda x: (x**3).sum(), (np.array([1.0, 2.0]),), (np.array([1.0, 0.0]),))
    ((tensor([ 3., 12.], dtype=float64),), (tensor([6., 0.], dtype=float64),))
    """
    points, wanted = _directions("hvp", primals, tangents)
    every = tuple(range(len(points)))

    def slope(*arguments: Any) -> tuple[Tensor, Any]:
        gradients = grad(fn, every)(*arguments)
        leaves, _ = flatten(gradients)
        total: Tensor | None = None
        for k, (g, t) in enumerate(zip(leaves, wanted, strict=True)):
            if g is not None:
                term = sum_of(apply("Mul", g, cotangent_of(t, g, k)))
                total = term if total is None else apply("Add", total, term)
        return as_tensor(0.0) if total is None else total, gradients

    (_, gradients), products = value_and_grad(slope, every, has_aux=True)(*points)
    return gradients, products
