"""Arguments of a differentiated function as variables, and results back as gradients in the arguments' structure.

Knows trees of Tensors and the engine. Must not know which derivative is wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

from ops.errors import ArgumentError, GradError
from ops.types import dtype_name, is_floating, short
from tracer.autograd import engine
from tracer.autograd.compiled_backward import IncomingHistory
from tracer.core.source_lines import name_of
from tracer.dispatch.apply import apply
from tracer.functions.creation import as_tensor, cast, zeros_like
from tracer.tensors.grad_mode import inference_mode
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor

NAMESPACE = "tracer"
ArgNums = int | Sequence[int]


def flatten(tree: Any) -> tuple[list[Any], Any]:
    """Leaves and structure; None is a leaf."""
    leaves, structure = optree.tree_flatten(tree, none_is_leaf=True, namespace=NAMESPACE)
    return list(leaves), structure


def unflatten(structure: Any, leaves: Sequence[Any]) -> Any:
    """The tree of that structure."""
    return optree.tree_unflatten(structure, leaves)


def _variable(leaf: Any, what: str) -> Tensor | None:
    """A fresh Tensor with leaf's value that requires a gradient.

    It has history to the leaf if an outer gradient may be asked for.

    None stands for itself: a place without a value has no gradient.
    """
    if leaf is None:
        return None
    if not isinstance(leaf, Tensor | np.ndarray | np.generic | float | int):
        raise GradError(
            f"{what} is of class {type(leaf).__name__}; gradients are taken of floating Tensors, "
            "arrays and numbers"
        )
    x = as_tensor(leaf)
    if not is_floating(x.type.dtype):
        raise GradError(
            f"{what} is {short(x.type)}; gradients are taken of floating values: convert it to a "
            "float, or leave it out of argnums"
        )
    if x.type.weak:
        x = cast(x, "float32")
    if x.requires_grad and MODES.grad_enabled:
        return apply("Reshape", x, shape=x.type.shape)
    variable = x.detach()
    if (
        not variable.volatile
    ):  # what was made in inference mode is differentiated like anything else
        variable._requires_grad = False
    variable.requires_grad = True
    return variable


def _is_differentiable(leaf: Any) -> bool:
    """Whether a leaf is a floating value."""
    if isinstance(leaf, Tensor):
        return is_floating(leaf.type.dtype)
    if isinstance(leaf, np.ndarray | np.generic):
        return is_floating(dtype_name(leaf.dtype))
    return isinstance(leaf, float)


def variables_of(
    args: tuple[Any, ...], argnums: tuple[int, ...], strict: bool
) -> tuple[list[Any], list[Tensor], list[Any]]:
    """Arguments with those of `argnums` made of variables; all variables.

    For each such argument its tree and variables. Leaves that are not floating are errors, or, when
    not `strict`, constants, which have no variable.
    """
    replaced = list(args)
    everything: list[Tensor] = []
    trees: list[Any] = []
    for number in argnums:
        leaves, structure = flatten(args[number])
        several = len(leaves) > 1 or (leaves and leaves[0] is not args[number])
        variables = [
            _variable(leaf, f"leaf {k} of argument {number}" if several else f"argument {number}")
            if strict or _is_differentiable(leaf)
            else None
            for k, leaf in enumerate(leaves)
        ]
        filled = [leaf if v is None else v for v, leaf in zip(variables, leaves, strict=True)]
        replaced[number] = unflatten(structure, filled)
        trees.append((structure, variables))
        everything += [v for v in variables if v is not None]
    return replaced, everything, trees


class Run:
    """One run of a function on variables in the place of some arguments.

    `result`, and `aux` beside it: what the function gave. `variables`: all of them. `strict`: leaves that are not floating are
    errors rather than constants.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        positions: tuple[int, ...],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        strict: bool = True,
        has_aux: bool = False,
    ) -> None:
        self._recorded_outside = MODES.grad_enabled is True
        replaced, self.variables, self._trees = variables_of(args, positions, strict)
        with inference_mode(False):
            self.result = fn(*replaced, **kwargs)
        self.aux: Any = None
        if has_aux:
            if not isinstance(self.result, tuple) or len(self.result) != 2:
                raise GradError(
                    f"with has_aux, {name_of(fn)} must give a pair (value, aux), got "
                    f"{type(self.result).__name__}"
                )
            self.result, self.aux = self.result

    def has_history(self, outputs: Sequence[Tensor]) -> bool:
        """Whether what lies around can differentiate these outputs again."""
        return self._recorded_outside and depends_on_others(outputs, self.variables)

    def by_argument(self, gradients: Sequence[Tensor]) -> tuple[Any, ...]:
        """A gradient for each variable as one tree for each argument, with None for leaves that have none."""
        found = iter(gradients)
        return tuple(
            unflatten(structure, [None if v is None else next(found) for v in variables])
            for structure, variables in self._trees
        )


def positions_of(argnums: ArgNums, count: int, name: str) -> tuple[int, ...]:
    """Which arguments `argnums` names. Raises `ArgumentError` for one that is not there or named twice."""
    given = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    positions = []
    for number in given:
        if not isinstance(number, int) or not -count <= number < count:
            raise ArgumentError(
                f"argnums={argnums} names argument {number}, but {name} was called with {count} "
                "positional arguments"
            )
        positions.append(number % count)
    if len(set(positions)) < len(positions):
        raise ArgumentError(f"argnums={argnums} names an argument twice")
    return tuple(positions)


def depends_on_others(outputs: Sequence[Tensor], variables: Sequence[Tensor]) -> bool:
    """Whether gradients of outputs reach anything beside the variables.

    An outer variable, or a parameter.
    """
    own = {id(v) for v in variables}
    seen: set[int] = set()
    stack_ = [t.grad_fn for t in outputs if t.grad_fn is not None]
    joined = {id(v.grad_fn) for v in variables if v.grad_fn is not None}
    if any(t.grad_fn is None and t.requires_grad and id(t) not in own for t in outputs):
        return True
    while stack_:
        node = stack_.pop()
        if id(node) in seen:
            continue
        if id(node) in joined or isinstance(node, IncomingHistory):
            return True
        seen.add(id(node))
        for edge in node.edges:
            if isinstance(edge, Tensor):
                if id(edge) not in own:
                    return True
            elif edge is not None:
                stack_.append(edge[0])
    return False


def gradients_of(
    outputs: Sequence[Tensor],
    cotangents: Sequence[Tensor] | None,
    variables: Sequence[Tensor],
    retain: bool,
    create: bool,
) -> list[Tensor]:
    """Gradients of the outputs that have any, zeros for variables that nothing depends on."""
    engine.refuse_volatile(outputs)
    chosen = [k for k, y in enumerate(outputs) if y.requires_grad]
    if not chosen or not variables:
        return [zeros_like(v.detach()) for v in variables]
    seeds = None if cotangents is None else [cotangents[k] for k in chosen]
    found = engine.grad(
        [outputs[k] for k in chosen], variables, seeds, retain, create, allow_unused=True
    )
    return [
        zeros_like(v.detach()) if g is None else g for v, g in zip(variables, found, strict=True)
    ]


def detached(tree: Any) -> Any:
    """The tree with Tensors that have no history."""
    leaves, structure = flatten(tree)
    return unflatten(
        structure, [x.detach() if isinstance(x, Tensor) and x.requires_grad else x for x in leaves]
    )


def cotangent_of(given: Any, output: Tensor, position: int) -> Tensor:
    """What was given as an output's cotangent, in its type; zeros for None. Raises `GradError` for another shape."""
    if given is None:
        return zeros_like(output.detach())
    cotangent = as_tensor(given)
    if cotangent.type.shape != output.type.shape:
        raise GradError(
            f"cotangent {position} must be {short(output.type)} like the value, got "
            f"{short(cotangent.type)}"
        )
    return cast(cotangent, output.type.dtype)
