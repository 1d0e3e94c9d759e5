"""Operators that run blocks: which block, and on what.

Blocks are graphs, which this package sees as types and as functions only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ops.array_data import ArrayData
from ops.compute import Control
from ops.errors import DTypeError, ShapeError
from ops.forms import Form
from ops.operator import Application, BlockType, NoGradient, operator
from ops.types import Type, short

Array = np.ndarray[Any, Any]
Block = Callable[..., tuple[Array, ...]]


def _listed(types: tuple[Type, ...]) -> str:
    return "(" + ", ".join(short(t) for t in types) + ")"


def _if_type(
    condition: Type, *inputs: Type, blocks: tuple[BlockType, ...]
) -> Type | tuple[Type, ...]:
    if condition.dtype != "bool":
        raise DTypeError(f"the condition must be bool, got {short(condition)}")
    if condition.rank:
        raise ShapeError(f"the condition must be 0-d, got {short(condition)}")
    then_branch, else_branch = blocks
    for name, block in (("then_branch", then_branch), ("else_branch", else_branch)):
        if block.inputs != inputs:
            raise DTypeError(
                f"{name} takes {_listed(block.inputs)}, but is given {_listed(inputs)}"
            )
    if then_branch.outputs != else_branch.outputs:
        raise DTypeError(
            f"both branches must give results of one type: then_branch gives "
            f"{_listed(then_branch.outputs)}, else_branch {_listed(else_branch.outputs)}"
        )
    return then_branch.outputs


def _if_onnx(g: Any, n: Application) -> Any:
    # ONNX's branches take no inputs; they see the values around them.
    then_branch, else_branch = (g.block(block, n.inputs[1:]) for block in n.blocks)
    return g.op("If", n.x, then_branch=then_branch, else_branch=else_branch, outputs=len(n.outputs))


def _if_vjp(g: Any, n: Application) -> tuple[Any, ...]:
    """Backward takes the branch that forward took, on what that one kept.

    Branches give results of the same types, so each gives what either of them keeps: its own residuals, and zeros for those that
    only the other one has. Residuals of one type share a place; what is an operand anyway is not kept again.
    """
    operands, count = n.inputs[1:], len(n.outputs)
    wrt = [k for k, need in enumerate(n.needs[1:]) if need]
    arrived = [k for k, dy in enumerate(n.cotangents) if dy is not None]
    parts = [g.differentiate(block, wrt, arrived) for block in n.blocks]
    shared = sorted({k for part in parts for k in part.forwarded if k is not None})
    types: list[Type] = []
    places = [_places(part, shared, types) for part in parts]

    def keeping(b: Any, number: int) -> Any:
        def build(b: Any, *xs: Any) -> list[Any]:
            results = b.inline(parts[number].forward, xs)
            kept = dict(zip(places[number], results[count:], strict=True))
            spare = enumerate(types, len(shared))
            return [*results[:count], *(kept[k] if k in kept else _zeros(b, t) for k, t in spare)]

        return b.block([x.type for x in operands], build)

    def going_back(number: int) -> Any:
        def build(b: Any, *xs: Any) -> list[Any]:
            residuals = [xs[k] for k in places[number]]
            found: list[Any] = b.inline(parts[number].backward, (*residuals, *xs[-len(arrived) :]))
            return found

        return g.block([x.type for x in given], build)

    given = [operands[k] for k in shared]
    if types:
        given += g.forward(lambda f: f.op("If", *n.inputs, blocks=(keeping(f, 0), keeping(f, 1))))
    given += [n.cotangents[k] for k in arrived]
    found = g.op("If", n.x, *given, blocks=(going_back(0), going_back(1)))
    gradients = iter(found if isinstance(found, tuple) else (found,))
    return (None, *(next(gradients) if need else None for need in n.needs[1:]))


def _places(part: Any, shared: Sequence[int], types: list[Type]) -> list[int]:
    """Where a branch's residuals are: among the shared operands, or behind them, at a place of their type that is free or new."""
    free = list(enumerate(types, len(shared)))
    places = []
    for type_, number in zip(part.residuals, part.forwarded, strict=True):
        if number is not None:
            places.append(shared.index(number))
            continue
        found = next((k for k, t in free if t == type_), None)
        if found is None:
            types.append(type_)
            places.append(len(shared) + len(types) - 1)
        else:
            free.remove((found, type_))
            places.append(found)
    return places


def _zeros(g: Any, type_: Type) -> Any:
    """Zeros of exactly this type."""
    zero = ArrayData.of(np.zeros((), type_.numpy))
    return g.expand(g.op("Constant", value=zero, weak=type_.weak), type_.shape)


# No samples: a sample is arrays and attributes, and this operator also needs graphs. The tests of
# the interpreter and of the export have some.
@operator(
    "If",
    type_rule=_if_type,
    compute=Control(("then_branch", "else_branch")),
    vjp=_if_vjp,
    onnx=_if_onnx,
    samples=(),
    errors=(),
    dtypes=("bool",),
)
def if_(
    condition: Array, *inputs: Array, then_branch: Block, else_branch: Block
) -> tuple[Array, ...]:
    """The results of one of two blocks, called with the inputs; the other block does not run."""
    return then_branch(*inputs) if condition else else_branch(*inputs)


def _call_type(
    *inputs: Type, function: str, symbolic: Form | None, blocks: tuple[BlockType, ...]
) -> Type | tuple[Type, ...]:
    (body,) = blocks
    if body.inputs != inputs:
        raise DTypeError(f"body takes {_listed(body.inputs)}, but is given {_listed(inputs)}")
    if symbolic is not None and (
        len(symbolic.outputs) > len(body.outputs) or symbolic.inputs > len(inputs)
    ):
        raise ShapeError("symbolic has more inputs or results than body")
    return body.outputs


def _call_onnx(g: Any, n: Application) -> Any:
    # A call without a form, or with results beside it, is inlined before it comes to this.
    return n.attrs.symbolic.build(g, n.inputs)


@operator(
    "Call",
    type_rule=_call_type,
    compute=Control(("body",), transparent=True),
    vjp=NoGradient("its gradient is the backward of its Function, which a graph does not hold"),
    onnx=_call_onnx,
    samples=(),
    errors=(),
)
def call(
    *inputs: Array, function: str, symbolic: Form | None = None, body: Block
) -> tuple[Array, ...]:
    """What a function of the user's recorded, kept together: the results of its body.

    `function` is its name. `symbolic`, if given, is the ONNX form of the first results.
    """
    return body(*inputs)
