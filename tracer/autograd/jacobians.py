"""Whole Jacobians: `jacobian` and `hessian`.

Reverse passes over one run of the function, one for each element of its value. Knows trees of Tensors and the engine; must not
know how gradients of one value are asked for, other than that `grad` gives them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

from ops.errors import GradError
from ops.types import is_floating, short
from tracer.autograd.argument_trees import (
    ArgNums,
    Run,
    flatten,
    gradients_of,
    positions_of,
    unflatten,
)
from tracer.autograd.functional import grad, require_function
from tracer.core.source_lines import name_of
from tracer.dispatch.apply import apply
from tracer.functions.creation import as_tensor, cast, zeros
from tracer.functions.joining import stack
from tracer.functions.movement import reshape
from tracer.functions.public import public
from tracer.tensors.tensor import Tensor

P = ParamSpec("P")


def jacobian(fn: Callable[P, Any], argnums: ArgNums = 0) -> Callable[P, Any]:
    """A function that gives the derivatives of fn's value by arguments.

    Of one Tensor by one Tensor they are a Tensor of shape value.shape + argument.shape. Of trees:
    in the place of each Tensor of the value stands the argument's own structure (with a sequence
    as argnums: a tuple of these) of such Tensors.

    One reverse pass for each element of the value; in a trace all of them are recorded. Raises
    `GradError` for arguments and values that are not floating.

    >>> tracer.jacobian(lambda x: x**2)(np.array([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]], dtype=float64)
    """
    require_function(fn, "jacobian")

    @functools.wraps(fn, updated=())
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Any:
        return _jacobian(fn, argnums, args, kwargs)

    return wrapped


def hessian(fn: Callable[P, Any], argnums: ArgNums = 0) -> Callable[P, Any]:
    """A function that gives the second derivatives of fn, which gives one floating 0-d value.

    They are the Jacobian of its gradient: of a Tensor, one of shape argument.shape +
    argument.shape; of arguments that are trees, and of several arguments, a tree of trees.

    >>> tracer.hessian(lambda x: (x**3).sum())(np.array([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]], dtype=float64)
    """
    return jacobian(grad(fn, argnums), argnums)


@public
def _jacobian(
    fn: Callable[..., Any], argnums: ArgNums, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    run = Run(fn, positions_of(argnums, len(args), name_of(fn)), args, kwargs)
    leaves, structure = flatten(run.result)
    outputs = [None if y is None else _floating(y, k, fn) for k, y in enumerate(leaves)]
    outer = run.has_history([y for y in outputs if y is not None])

    def by_arguments(y: Tensor) -> Any:
        found = run.by_argument(_rows(y, run.variables, outer))
        return found[0] if isinstance(argnums, int) else found

    return unflatten(structure, [None if y is None else by_arguments(y) for y in outputs])


def _floating(leaf: Any, number: int, fn: Any) -> Tensor:
    """A leaf of the value. Raises `GradError` for one that has no derivatives."""
    try:
        y = as_tensor(leaf)
    except TypeError:
        raise GradError(
            f"jacobian needs a function that gives floating Tensors, alone or in tuples, lists and "
            f"dicts; result {number} of {name_of(fn)} is a {type(leaf).__name__}"
        ) from None
    if y.type.weak:
        y = cast(y, "float32")
    if not is_floating(y.type.dtype):
        raise GradError(
            f"jacobian needs a function that gives floating Tensors, result {number} of "
            f"{name_of(fn)} is {short(y.type)}; leave it out, or cast it"
        )
    return y


def _rows(y: Tensor, variables: list[Tensor], again: bool) -> list[Tensor]:
    """The derivatives of y by each variable."""
    count, shape = int(y.type.size), y.type.shape
    if not count:
        return [zeros(shape + v.type.shape, v.type.dtype) for v in variables]
    passes = []
    for k in range(count):
        hot = apply("OneHot", as_tensor(k), depth=count, axis=0, dtype=y.type.dtype)
        passes.append(gradients_of([y], [reshape(hot, shape)], variables, True, again))
    return [
        reshape(stack(list(rows)), shape + v.type.shape)
        for v, rows in zip(variables, zip(*passes, strict=True), strict=True)
    ]
