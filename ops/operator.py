"""What an operator is: one frozen record that every other part of the system reads, and the table of all records.

A rule has the form `rule(g, n)`: `g` builds (`g.Mul(a, b)` or `g.op("Mul", a, b)`), `n` is the application: inputs, outputs,
attributes and, in a gradient rule, the cotangents. Rules never see arrays; whatever builds may run at once or record.
"""

from __future__ import annotations

import inspect
import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, get_type_hints

import numpy as np

from ops.algebra import NONE, Algebra
from ops.attributes import ArrayData as ArrayData
from ops.attributes import Attribute as Attribute
from ops.attributes import Attributes as Attributes
from ops.attributes import Floats as Floats
from ops.attributes import Ints as Ints
from ops.attributes import Sizes as Sizes
from ops.building import RuleBuilder as RuleBuilder
from ops.compute import (
    Composite,
    Compute,
    Concatenation,
    Constant,
    Contraction,
    Control,
    Gather,
    Reduction,
    Replacement,
    Scalar,
    Scatter,
    Size,
    View,
)
from ops.errors import ArgumentError, ShapeError, TracerError
from ops.types import DTYPES, Type, short


@dataclass(frozen=True, slots=True)
class BlockType:
    """What type rules see of a block: the types of its inputs and outputs."""

    inputs: tuple[Type, ...]
    outputs: tuple[Type, ...]


@dataclass(frozen=True, slots=True)
class Application:
    """One use of an operator, as rules see it. `needs`: which inputs a gradient is wanted for; `cotangents`: one for each
    output, None where nothing depends on it."""

    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    attrs: Attributes
    cotangents: tuple[Any, ...] = ()
    needs: tuple[bool, ...] = ()
    blocks: tuple[Any, ...] = ()

    @property
    def x(self) -> Any:
        """The first input."""
        return self.inputs[0]

    @property
    def y(self) -> Any:
        """The first output."""
        return self.outputs[0]

    @property
    def dy(self) -> Any:
        """The cotangent of the first output."""
        return self.cotangents[0]


Rule = Callable[[Any, Application], Any]


@dataclass(frozen=True, slots=True)
class Effect:
    """What an application does beside giving results that follow from its operands.

    `ordered`: the world outside notices. It happens as often as the program says and in the program's order: passes neither drop,
    share, repeat nor rearrange such nodes. Effects that are not ordered are carried by operands and results, as the state of a
    generator is, and passes may treat the nodes as functions.
    """

    name: str
    ordered: bool


RANDOM = Effect("random numbers", ordered=False)


@dataclass(frozen=True, slots=True)
class ZeroGradient:
    """The derivative is zero wherever it exists (comparisons, rounding, integer results)."""


@dataclass(frozen=True, slots=True)
class NoGradient:
    """No derivative is offered; asking for one is an error that gives the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Derived:
    """The gradient follows from the decomposition."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """There is no ONNX form; exporting is an error that gives the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Expanded:
    """The ONNX form follows from the decomposition."""


@dataclass(frozen=True, slots=True)
class Input:
    """How a test draws one input: shape, element type (None: the type under test), range, or given values.

    `special` adds zeros, infinities, NaN and extremes to the values; `layout` "strided" gives a non-contiguous array.
    """

    shape: tuple[int, ...] = ()
    dtype: str | None = None
    low: float = -2.0
    high: float = 2.0
    special: bool = False
    layout: str = "contiguous"
    values: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """Inputs and attributes that tests feed to an operator. `dtypes` limits the types under test."""

    inputs: tuple[Input, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] | None = None
    gradient: bool = True


@dataclass(frozen=True, slots=True)
class ErrorSample:
    """A wrong use: operand types, attributes, the error's class and words of its message."""

    types: tuple[Type, ...]
    error: type[TracerError]
    match: str
    attrs: Mapping[str, Any] = field(default_factory=dict)


# Kinds that passes and fusion rearrange; composites and blocks have the effects of what they are made of.
_FUNCTIONS = (
    Scalar,
    Reduction,
    View,
    Gather,
    Scatter,
    Replacement,
    Concatenation,
    Contraction,
    Composite,
    Control,
    Constant,
    Size,
)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Operator:
    """Everything that is known of an operator. See the modules of `ops` for the declarations.

    `inputs`: names; the last may be variadic (`*inputs`). `ulp`: how far compiled results may be from the reference's, in
    units in the last place of the result type; 0 means equal bits. `dtypes`: element types of operand 0. `random`: its effect is
    `RANDOM`. `calls_user`: its text calls functions of the user's. These two run compiled in an eager call too.
    """

    name: str
    doc: str
    inputs: tuple[str, ...]
    variadic: bool
    optional: int
    attributes: Mapping[str, Attribute]
    type_rule: Callable[..., Any]
    reference: Callable[..., Any]
    compute: Compute
    vjp: Rule | ZeroGradient | NoGradient | Derived
    onnx: str | Rule | Unsupported | Expanded
    samples: tuple[Sample, ...]
    errors: tuple[ErrorSample, ...]
    dtypes: tuple[str, ...]
    ulp: float
    effect: Effect | None = None
    algebra: Algebra = NONE
    random: bool = field(init=False)
    calls_user: bool = field(init=False)

    def __post_init__(self) -> None:
        functions = self.compute.functions if isinstance(self.compute, Scalar) else ()
        object.__setattr__(self, "random", self.effect is RANDOM)
        object.__setattr__(self, "calls_user", bool(functions))
        if self.has_ordered_effect and isinstance(self.compute, _FUNCTIONS):
            raise ValueError(
                f"operator {self.name!r}: {self.effect.name} cannot be the effect of a "  # type: ignore[union-attr]
                f"{type(self.compute).__name__}, which is computed as a function of its operands; "
                "use Host, or a kind that a library computes"
            )

    @property
    def has_ordered_effect(self) -> bool:
        """Whether the world outside notices when it is applied."""
        return self.effect is not None and self.effect.ordered

    @property
    def is_view(self) -> bool:
        """Whether results are the operand's own elements, in its memory."""
        return isinstance(self.compute, View) or (
            isinstance(self.compute, Composite) and self.compute.views
        )

    @property
    def block_names(self) -> tuple[str, ...]:
        """Names of the blocks that a node of this operator carries."""
        return self.compute.blocks if isinstance(self.compute, Control) else ()

    def infer(
        self, types: Sequence[Type], attrs: Mapping[str, Any], blocks: Sequence[BlockType] = ()
    ) -> tuple[Type, ...]:
        """Types of the outputs. Raises the type rule's error, with the operator's name in front."""
        if len(blocks) != len(self.block_names):
            expected = " and ".join(self.block_names) or "none"
            raise ArgumentError(
                f"{self.name}: its blocks are {expected}, got {len(blocks)} of them"
            )
        try:
            if blocks:
                result = self.type_rule(*types, **attrs, blocks=tuple(blocks))
            else:
                result = self.type_rule(*types, **attrs)
        except TracerError as error:
            if not str(error).startswith(self.name):
                raise type(error)(f"{self.name}: {error}") from None
            raise
        types = result if isinstance(result, tuple) else (result,)
        for made in types:
            if made.is_too_large:
                raise ShapeError(f"{self.name}: the result {short(made)} is larger than any memory")
        return types

    def normalize(self, attrs: Mapping[str, Any]) -> Attributes:
        """Attributes in declared order and types. Raises `ArgumentError` for unknown, missing or mistyped ones."""
        unknown = [a for a in attrs if a not in self.attributes]
        if unknown:
            known = ", ".join(self.attributes) or "none"
            raise ArgumentError(f"{self.name} has no attribute {unknown[0]!r}; it has: {known}")
        result = Attributes()
        for name, attribute in self.attributes.items():
            value = attrs.get(name, attribute.default)
            if value is inspect.Parameter.empty:
                raise ArgumentError(f"{self.name} needs the attribute {name!r}")
            result[name] = attribute.normalize(value)
        return result

    def __repr__(self) -> str:
        return f"<operator {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return lookup, (self.name,)


_TABLE: dict[str, Operator] = {}
TABLE: Mapping[str, Operator] = MappingProxyType(_TABLE)


_USERS: weakref.WeakValueDictionary[str, Operator] = weakref.WeakValueDictionary()


def lookup(name: str) -> Operator:
    """The operator of that name. Raises `ArgumentError` if there is none."""
    found = find(name)
    if found is None:
        raise ArgumentError(f"there is no operator {name!r}")
    return found


def find(name: str) -> Operator | None:
    """The operator of that name: of the table, or one of the user's that somebody still has."""
    return _TABLE.get(name) or _USERS.get(name)


def register(record: Operator) -> None:
    """Let an operator of the user's be found by its name, as long as it lives."""
    if record.name in _TABLE:
        raise ArgumentError(
            f"{record.name} is the name of an operator that exists; choose another one"
        )
    _USERS[record.name] = record


def operator(
    name: str,
    *,
    type_rule: Callable[..., Any],
    compute: Compute,
    vjp: Rule | ZeroGradient | NoGradient | Derived,
    onnx: str | Rule | Unsupported | Expanded,
    samples: tuple[Sample, ...],
    errors: tuple[ErrorSample, ...] = (),
    dtypes: tuple[str, ...] = DTYPES,
    ulp: float = 0,
    optional: int = 0,
    effect: Effect | None = None,
    algebra: Algebra = NONE,
) -> Callable[[Callable[..., Any]], Operator]:
    """Declare an operator. The decorated function is its signature, documentation and meaning in NumPy.

    Positional parameters are operands (the last `optional` may be left out, `*name` takes any number), keyword-only
    parameters are attributes with their types, or the blocks that `compute` names.
    """

    def declare(reference: Callable[..., Any]) -> Operator:
        if name in _TABLE:
            raise ValueError(f"operator {name!r} is already declared")
        parameters = inspect.signature(reference).parameters.values()
        blocks = compute.blocks if isinstance(compute, Control) else ()
        named = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in blocks]
        hints = get_type_hints(reference) if named else {}  # slow: most have none
        attributes = {p.name: Attribute(p.name, hints[p.name], p.default) for p in named}
        operands = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
        record = Operator(
            name=name,
            doc=inspect.cleandoc(reference.__doc__ or ""),
            inputs=tuple(p.name for p in operands),
            variadic=any(p.kind is p.VAR_POSITIONAL for p in operands),
            optional=optional,
            attributes=MappingProxyType(attributes),
            type_rule=type_rule,
            reference=reference,
            compute=compute,
            vjp=vjp,
            onnx=onnx,
            samples=samples,
            errors=errors,
            dtypes=dtypes,
            ulp=ulp,
            effect=effect,
            algebra=algebra,
        )
        _TABLE[name] = record
        return record

    return declare


def run_reference(op: Operator, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    """The operator's meaning on arrays, always a tuple. NumPy warns of nothing."""
    with np.errstate(all="ignore"):
        result = op.reference(*arrays, **attrs)
    return result if isinstance(result, tuple) else (result,)


def fits(text: str) -> bool:
    """Whether a docstring opens with a one-line summary."""
    return bool(re.match(r"\S.*\.(\n\n|\n?$)", text))
