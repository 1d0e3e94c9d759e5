"""What families of elementwise operators have in common: declarations and forms of gradient rules.

Must not name an operator that it declares itself; it declares none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ops import rules
from ops.compute import Attributes, Effort, Scalar
from ops.errors import DTypeError, ShapeError
from ops.operator import (
    Application,
    ErrorSample,
    Expanded,
    Operator,
    Rule,
    Sample,
    Unsupported,
    ZeroGradient,
    operator,
)
from ops.samples import UNARY
from ops.types import FLOATING, INTEGERS, Type

NUMERIC = INTEGERS + FLOATING
SIGNED = tuple(d for d in NUMERIC if not d.startswith("uint"))

NOT_FLOATING = (ErrorSample((Type("int64", (2,)),), DTypeError, "must be floating"),)
NOT_NUMERIC = (ErrorSample((Type("bool", (2,)),), DTypeError, "must be int8"),)


def mismatched(dtype: str, other: str) -> tuple[ErrorSample, ...]:
    """Two operands whose shapes, or whose element types, do not fit."""
    return (
        ErrorSample((Type(dtype, (2, 3)), Type(dtype, (3, 2))), ShapeError, "do not broadcast"),
        ErrorSample((Type(dtype, (2,)), Type(other, (2,))), DTypeError, "one element type"),
    )


MISMATCHED = mismatched("float32", "float64")
MISMATCHED_INTEGERS = mismatched("int32", "int64")
FLOATING_PAIR_ERRORS = (
    *MISMATCHED,
    ErrorSample((Type("int64", (2,)), Type("int64", (2,))), DTypeError, "must be floating"),
)

Declare = Callable[[Callable[..., Any]], Operator]


def floating_function(
    name: str,
    text: str,
    *,
    vjp: Rule | ZeroGradient,
    onnx: str | Rule | Unsupported | Expanded,
    ulp: float,
    samples: tuple[Sample, ...] = UNARY,
    effort: Effort = "high",
) -> Declare:
    """A function of one floating value, element by element; `text` is a kernel function's name."""
    return operator(
        name,
        type_rule=rules.floating,
        compute=Scalar(f"{text}({{0}})", effort=effort),
        vjp=vjp,
        onnx=onnx,
        samples=samples,
        errors=NOT_FLOATING,
        dtypes=FLOATING,
        ulp=ulp,
    )


def by_dtype(
    chosen: Callable[[str], bool], text: str, otherwise: str
) -> Callable[[Sequence[Type], Type, Attributes], str]:
    """Kernel text that depends on the element type of operand 0."""
    return lambda types, result, attrs: text if chosen(types[0].dtype) else otherwise


def each(*partials: Rule) -> Rule:
    """A gradient rule from one rule an input; only those asked for are built and keep values."""

    def rule(g: Any, n: Application) -> tuple[Any, ...]:
        return tuple(
            partial(g, n) if needed else None
            for partial, needed in zip(partials, n.needs, strict=True)
        )

    return rule


def scaled(g: Any, x: Any, factor: float) -> Any:
    """x times a Python number."""
    return g.Mul(x, g.like(factor, x))
