"""How an operator computes, as data: the vocabulary that lowering reads. No operator is named here.

Texts are Python expressions on vector values in the functions of `codegen.vector`: `{0}`, `{1}` ... are the operands, `{T}`
the short name of operand 0's lane type (f32, i64, bool ...), `{R}` that of the result, `{index}` the row-major position of the
element in the result (int64), `{axis0}`, `{axis1}` ... its position along an axis. float16 and bfloat16 are float32
lanes; whoever lowers the text rounds its result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ops.types import Type

Attributes = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Folding:
    """A reduction step by step.

    `state`: (name, lane type) pairs. `init`: their first values. `step` names the states and {0}, {1} ... (the arguments).
    `merge` names the states and other_<state>, the states of a later part. `finish` gives the results from the states.
    `exact`: merging rounds nothing (max, argmax, integer sums, any), so the order is free. A folding that rounds has one
    state and is merged in the fixed order of the numerics contract.
    """

    name: str
    state: tuple[tuple[str, str], ...]
    init: tuple[str, ...]
    step: tuple[str, ...]
    merge: tuple[str, ...]
    finish: tuple[str, ...]
    exact: bool = False


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A Python function of floats that texts call by `name`, which nothing else in this world has: it holds a hash of what the
    function is made of. `part`: the result's place in the tuple that the function gives, None if it gives a number.
    """

    name: str
    arity: int
    part: int | None = None
    function: Callable[..., Any] | None = field(default=None, compare=False, repr=False)

    def __call__(self, *numbers: Any) -> Any:
        """What it gives for numbers, in Python."""
        assert self.function is not None
        result = self.function(*numbers)
        return result if self.part is None else result[self.part]


Effort = Literal["low", "medium", "high"]


@dataclass(frozen=True, slots=True)
class Scalar:
    """Element by element; operands broadcast. `text` may be a function of (operand types, result type, attributes).

    `effort`: "high" where computing it again costs more than reading it back from memory, "medium" where it costs more than
    reading it back from a cache (a division, a root). `functions`: of the user's, which the text calls.
    """

    text: str | Callable[[Sequence[Type], Type, Attributes], str]
    effort: Effort = "low"
    functions: tuple[ScalarFunction, ...] = ()


@dataclass(frozen=True, slots=True)
class Reduction:
    """A fold over the attribute `axes` (with `keepdims`). `folding` is a function of (operand type, result type).

    `positions`: the fold's second argument is the element's position in the reduced axes (int64).
    """

    folding: Callable[[Type, Type], Folding]
    positions: bool = False


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of a row-major array."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class Strided:
    """How a value lies in a buffer: sizes, strides and offset in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @staticmethod
    def row_major(shape: tuple[Any, ...]) -> Strided:
        """A value that has a buffer for itself."""
        return Strided(shape, contiguous_strides(shape))

    @property
    def is_row_major(self) -> bool:
        """Whether the elements lie one after the other, without gaps."""
        step = 1
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size > 1 and stride != step:
                return 0 in self.shape
            step *= size
        return True


@dataclass(frozen=True, slots=True)
class View:
    """Another arrangement of the operand's own elements. `rule(layout, result shape, attributes)` gives the result's layout
    in the operand's buffer, or None when only a copy can do it. `keeps_order`: these are all elements, row-major as before."""

    rule: Callable[[Strided, tuple[int, ...], Attributes], Strided | None]
    keeps_order: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """Where a result element comes from along one axis of operand 0.

    `axis`: the result's axis whose position is used, or None. `operand`: the integer operand that holds the index, and
    `operand_axes` the result's axes by which it is indexed. `offset`: added to the position.
    """

    axis: int | None = None
    operand: int | None = None
    operand_axes: tuple[int, ...] = ()
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Gather:
    """result[i] = operand 0 at an index for each of its axes. `rule(operand types, result type, attributes)` gives one `Index`
    an axis. `fill`: the attribute that holds the value of elements whose index is out of range (a pad), or None when an index
    out of range is an error. Negative indices from an operand count from the end."""

    rule: Callable[[Sequence[Type], Type, Attributes], tuple[Index, ...]]
    fill: str | None = None


@dataclass(frozen=True, slots=True)
class Scatter:
    """result = operand 0, then result[index] += operand 2 (or = operand 2, with mode "set") in row-major order of operand 2.

    `rule(operand types, result type, attributes)` gives one `Index` for each axis of the result, in terms of operand 2's axes;
    operand 1 holds the indices.
    """

    rule: Callable[[Sequence[Type], Type, Attributes], tuple[Index, ...]]
    mode: Literal["add", "set"]


@dataclass(frozen=True, slots=True)
class Replacement:
    """Operand 0 with operand 1 in the place of a part of it. `rule(layout of the result, shape of operand 1, attributes)` says
    where the part lies, as the rule of the `View` does that gives such a part."""

    rule: Callable[[Strided, tuple[int, ...], Attributes], Strided]


@dataclass(frozen=True, slots=True)
class Concatenation:
    """The operands one after the other along the attribute `axis`."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """Matrix multiplication over the last two axes, leading axes broadcast."""


@dataclass(frozen=True, slots=True)
class Composite:
    """Built from other operators: `rule(g, n)` gives the result (or a tuple of results). `views`: from views alone."""

    rule: Callable[[Any, Any], Any]
    views: bool = False


@dataclass(frozen=True, slots=True)
class Control:
    """Runs blocks: closed graphs that the node carries, named here in order.

    The type rule gets the keyword `blocks`, a `BlockType` for each; the reference gets each block under its name, as a
    function from arrays to a tuple of arrays. `transparent`: there is one block, which always runs on the operands, so that its
    nodes may stand in the place of the node.
    """

    blocks: tuple[str, ...]
    transparent: bool = False


@dataclass(frozen=True, slots=True)
class Constant:
    """The result is the attribute `value`, an array that is part of the program."""


@dataclass(frozen=True, slots=True)
class Size:
    """The result is the attribute `size`, a number of elements. It is known before the program runs, but no part of its kernels,
    which serve every size."""


@dataclass(frozen=True, slots=True)
class Host:
    """The reference, called by the program between kernels. `reason` says why it is no kernel. `count`: the attribute that is the
    number of operand 0's True elements; another number is an error found before the program writes anything."""

    reason: str
    count: str | None = None


Compute = (
    Scalar
    | Reduction
    | View
    | Gather
    | Scatter
    | Replacement
    | Concatenation
    | Contraction
    | Composite
    | Control
    | Constant
    | Size
    | Host
)
