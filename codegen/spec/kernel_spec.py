"""What a kernel computes and in which order sums are taken, as frozen data: the input language of
code generation.

A `KernelSpec` is axes, operands and stages of statements. It knows neither graphs nor targets:
lowering writes it, the printers in `cpu` and `cuda` read it, and tests write it by hand. A
`Schedule` says how a target runs it and never changes a bit. Notes (the IR line, the user's line)
stand beside both, outside the key.

Iteration space: the row axes (outer, in order, row-major; flattened into one row number) times at
most one inner axis, whose index runs in vectors of 16 lanes. An inner axis made of several logical
axes has `parts`; an operand whose layout does not collapse over them is indexed with the parts,
which are recovered from the inner index by integer division.

Order of every rounding fold: element k of the reduced index goes to lane k % 16 of chunk k // 4096;
lanes combine in halves (l with l+8, l+4, l+2, l+1), chunks in pairs of neighbours, an odd one
passing up.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Literal

from ops.compute import Folding as Folding
from ops.compute import ScalarFunction as ScalarFunction

WIDTH = 16  # lanes of a vector value, on every CPU
CHUNK = 4096  # elements of a reduced index that share one set of lanes


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis. Sizes come at run time as `n_<name>`.

    `kind`: "row" (outer), "inner" (the vector loop of a stage) or "reduced" (not iterated here: the
    axis that an earlier kernel folded into partial results, see `Combine`; after the others).
    `parts`: names of the logical axes, slowest first, that an inner axis is made of; empty when
    every operand collapses over it. Sizes of parts are passed as `n_<part>` too.
    """

    name: str
    kind: Literal["row", "inner", "reduced"]
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Operand:
    """A buffer. `strides`: one per index position, in elements: 0, 1 or None (a run-time value,
    passed as an argument).

    `dtype` is NumPy's name ("float32", "bool", "bfloat16" ...). `role`: "in", "out", "inout",
    "partial" (float64 or integer partial results: one row per task, or per chunk, see
    `Schedule.mode`).
    """

    name: str
    dtype: str
    strides: tuple[int | None, ...]
    role: Literal["in", "out", "inout", "partial"] = "in"


@dataclass(frozen=True, slots=True)
class Load:
    """dst = operand[index]. An index is an axis, a part of an axis or an integer value (a gather).

    Where the boolean value `valid` is false nothing is read and dst is `fill` (a literal of the
    operand's dtype).
    """

    dst: str
    operand: str
    index: tuple[str, ...]
    valid: str | None = None
    fill: str | None = None


@dataclass(frozen=True, slots=True)
class Let:
    """dst = text: one operator's rule in the functions of `codegen.vector`. `dtype`: of dst.

    The text names values, sizes (`n_<axis>`), literals typed as f32(0.5), i64(7), True, and nothing
    else. float16 and bfloat16 are f32 lanes, and the text itself rounds: `round_f16(a*b)`.
    """

    dst: str
    dtype: str
    text: str


@dataclass(frozen=True, slots=True)
class Index:
    """dst = the position along an axis, a part, or (axis="*") the row-major position in the whole
    iteration space; int64.
    """

    dst: str
    axis: str


@dataclass(frozen=True, slots=True)
class Fold:
    """dsts = folding of args over an axis.

    Over the inner axis: dsts are values of the row. Over the rows (`over == "rows"`): dsts name
    "partial" operands, one a state and of its dtype, that get one row of inner length for each lane
    of each chunk of 4096 rows; a `Combine` finishes them. In Schedule.mode "split" a fold over the
    inner axis likewise writes "partial" operands: one number per (row, chunk). `args`: values, or
    typed literals.
    """

    dsts: tuple[str, ...]
    folding: Folding
    args: tuple[str, ...]
    over: str


@dataclass(frozen=True, slots=True)
class Store:
    """operand[index] = value, or += with mode "add". An integer value among the indices scatters:
    the rows then run in order within one task, never with atomics, so that the bits do not depend
    on threads.
    """

    operand: str
    index: tuple[str, ...]
    value: str
    mode: Literal["set", "add"] = "set"


@dataclass(frozen=True, slots=True)
class Combine:
    """dsts = the finished results of a fold whose partial results an earlier kernel left, at the
    present position.

    The position is the row-major one in the iteration space: in a loop over the inner axis its own
    elements, else the row. `mode`: of the kernel that wrote the `partials` (one operand a state):
    "columns" (its inner axis is this kernel's space) or "split" (its rows are). `reduced`: the axis
    that it folded. `dtypes`: of dsts. Outside the loop it is computed again by every piece of the
    driver's range, at about 2 ns a chunk.
    """

    dsts: tuple[str, ...]
    dtypes: tuple[str, ...]
    folding: Folding
    partials: tuple[str, ...]
    mode: Literal["columns", "split"]
    reduced: str


Statement = Load | Let | Index | Fold | Combine | Store


@dataclass(frozen=True, slots=True)
class Stage:
    """Statements in a loop over the inner axis (`over=("r",)`) or once for each row (`over=()`)."""

    over: tuple[str, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """Axes, operands and stages. Arguments at run time, in this order: the operands' pointers, the
    axes' sizes (rows in order, then inner, then the parts of the inner axis), then the run-time
    strides operand by operand. `functions`: the user's, which texts call by name.
    """

    name: str
    axes: tuple[Axis, ...]
    operands: tuple[Operand, ...]
    stages: tuple[Stage, ...]
    functions: tuple[ScalarFunction, ...] = ()

    @property
    def rows(self) -> tuple[Axis, ...]:
        """The row axes, outermost first."""
        return tuple(a for a in self.axes if a.kind == "row")

    @property
    def inner(self) -> Axis | None:
        """The inner axis, if there is one."""
        return next((a for a in self.axes if a.kind == "inner"), None)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """All statements in order: a statement's number is its place here."""
        return tuple(s for stage in self.stages for s in stage.body)

    @property
    def size_names(self) -> tuple[str, ...]:
        """n_<axis> of every axis and part, in argument order."""
        parts = self.inner.parts if self.inner else ()
        return tuple(f"n_{a.name}" for a in self.axes) + tuple(f"n_{p}" for p in parts)

    @property
    def stride_names(self) -> tuple[str, ...]:
        """<operand>_stride<position> of every run-time stride, in argument order."""
        return tuple(
            f"{o.name}_stride{i}"
            for o in self.operands
            for i, s in enumerate(o.strides)
            if s is None
        )

    def operand(self, name: str) -> Operand:
        """The operand of that name."""
        return next(o for o in self.operands if o.name == name)


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a target runs a spec; never changes a bit.

    `mode` says what the driver's range [lo, hi) counts:
      "rows"    rows (with no row axis: one row)
      "flat"    positions of the inner axis, for a spec without row axes and without folds
      "split"   (row, chunk of 4096 inner positions) pairs, row-major: folds write one partial each
      "columns" tasks of a fold over the rows: lane l of chunk c of 4096 rows is task 16*c + l, and
                takes rows 4096*c + l, 4096*c + l + 16 ...
      "scatter" blocks of `columns` inner positions, rows in order, for a Store at an integer value
    `tail`: "masked" (one loop, every access masked) or "peeled" (full vectors, then one masked).
    `swap`: the inner vector loop outside the rows of a task, for transposed reads.
    """

    mode: Literal["rows", "flat", "split", "columns", "scatter"] = "rows"
    tail: Literal["masked", "peeled"] = "peeled"
    swap: bool = False
    columns: int = 256


def canonical(spec: KernelSpec) -> str:
    """The spec as text with every name replaced by its position, so that equal kernels have equal
    text.
    """
    names: dict[str, str] = {}
    for o in spec.operands:
        names.setdefault(o.name, f"_{len(names)}")
    for a in spec.axes:
        for name in (a.name, *a.parts):
            names.setdefault(name, f"_{len(names)}")
            names.setdefault(f"n_{name}", f"_{len(names)}")
    for s in spec.statements:
        for name in (
            s.dsts if isinstance(s, Fold | Combine) else (() if isinstance(s, Store) else (s.dst,))
        ):
            names.setdefault(name, f"_{len(names)}")
    text = repr(replace(spec, name=""))
    return re.sub(r"\b[A-Za-z]\w*\b", lambda m: names.get(m[0], m[0]), text)


def key(spec: KernelSpec, schedule: Schedule) -> str:
    """What a compiled kernel is found by: names and notes left out."""
    return hashlib.sha256(f"{canonical(spec)}|{schedule}".encode()).hexdigest()[:32]
