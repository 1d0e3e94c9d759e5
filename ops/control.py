"""Operators that run blocks: which block, and on what.

Blocks are graphs, which this package sees as types and as functions only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

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


# No samples: a sample is arrays and attributes, and this operator also needs graphs. The tests of
# the interpreter and of the export have some.
@operator(
    "If",
    type_rule=_if_type,
    compute=Control(("then_branch", "else_branch")),
    vjp=NoGradient("blocks have no reverse yet; use where, whose two sides are both computed"),
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
