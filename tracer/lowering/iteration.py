"""The axes over which a kernel runs: atoms that every access steps over as one joined, rows and the inner axis named.

Knows accesses and shapes. Must not know statements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

from codegen.spec.kernel_spec import Axis, Operand
from tracer.lowering.accesses import Accesses, OperandAccess
from tracer.lowering.axes import Atom, Dims
from tracer.lowering.groups import PartialFold, Shape, Step

SMALL_INNER = 16  # a shorter innermost axis is joined with the others
Mode = Literal["rows", "flat", "split", "columns"]


class Iteration:
    """The axes of the kernel of some steps. `partials`: of the folds that other kernels finish, by step.

    Attributes: `row_axes` and `inner_parts`, (name, atoms) pairs; `has_inner`; `sizes` by name; `flat`: one loop over everything.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        shape: Shape,
        accesses: Accesses,
        partials: Mapping[Step, PartialFold],
    ) -> None:
        self._steps, self._shape, self._accesses, self._partials = steps, shape, accesses, partials
        self._collapse()

    def _collapse(self) -> None:
        """Atoms that every access steps over as one become one axis."""
        vectors = [
            a.strides
            for a in self._accesses.all
            if a.role != "partial" and not self._accesses.is_partial(a)
        ]
        vectors += [
            s for wanted in self._accesses.position_strides.values() for s in wanted.values()
        ]

        def joined(atoms: tuple[Atom, ...]) -> list[list[Atom]]:
            result: list[list[Atom]] = []
            for atom in atoms:
                if result and all(
                    v.get(result[-1][-1], 0) == v.get(atom, 0) * atom.size for v in vectors
                ):
                    result[-1].append(atom)
                else:
                    result.append([atom])
            return result

        rows, inner = (joined(atoms) for atoms in self._in_memory_order())
        self.flat = False
        folds = any(s.is_fold for s in self._steps)
        finishing = any(s.kind == "finish" for s in self._steps)
        if not folds and not rows:
            if len(inner) == 1:
                self.flat = True
            elif len(inner) > 1:
                if _size(inner[-1]) >= SMALL_INNER and not finishing:
                    rows, inner = inner[:-1], inner[-1:]
                else:
                    self.flat = True
        self.row_axes = [(f"p{k}", group) for k, group in enumerate(rows)]
        self.inner_parts = (
            [(f"r{k}", group) for k, group in enumerate(inner)] if len(inner) > 1 else []
        )
        self.inner_atoms = [a for group in inner for a in group]
        self.has_inner = bool(inner)
        self.sizes: dict[str, int] = {}
        for name, group in self.row_axes:
            self.sizes[name] = _size(group)
        if self.has_inner:
            self.sizes["r"] = _size(self.inner_atoms)
        for name, group in self.inner_parts:
            self.sizes[name] = _size(group)
        self.row_atoms = {a for _, group in self.row_axes for a in group}
        for step in self._steps:
            if step.kind == "finish":
                assert step.fold is not None
                count = self._partials[step.fold].count
                self.sizes[f"k{count}"] = count

    def _in_memory_order(self) -> tuple[tuple[Atom, ...], tuple[Atom, ...]]:
        """Rows and inner axis, their atoms in the order in which results lie in memory where no fold fixes another."""
        kinds = {s.kind for s in self._steps}
        rows, inner = self._shape.rows, self._shape.inner
        if kinds & {"finish", "column", "split"}:
            return rows, inner
        whole = {*rows, *inner}
        full = [a for a in self._accesses.all if a.role != "partial" and whole <= a.strides.keys()]
        if not full:
            return rows, inner
        first = min(full, key=lambda a: a.role == "in")  # results before operands

        def ordered(atoms: tuple[Atom, ...]) -> tuple[Atom, ...]:
            return tuple(sorted(atoms, key=lambda a: -abs(first.strides[a])))

        return ordered(rows), inner if "row" in kinds else ordered(inner)

    def axes(self) -> tuple[Axis, ...]:
        """The axes of the specification."""
        axes = [Axis(name, "row") for name, _ in self.row_axes]
        if self.has_inner:
            axes.append(Axis("r", "inner", tuple(name for name, _ in self.inner_parts)))
        axes += [Axis(name, "reduced") for name in self.sizes if name.startswith("k")]
        return tuple(axes)

    def index(self, access: OperandAccess) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Names of the axes that an access runs over, and its strides there."""
        if access.role == "partial" or self._accesses.is_partial(access):
            return (), ()
        names: list[str] = []
        strides: list[int] = []
        for name, group in self.row_axes:
            if access.strides.get(group[-1], 0):
                names.append(name)
                strides.append(access.strides[group[-1]])
        if self.has_inner:
            whole = self._linear(access.strides)
            if whole:
                names.append("r")
                strides.append(whole)
            elif whole is None:
                for name, group in self.inner_parts:
                    if access.strides.get(group[-1], 0):
                        names.append(name)
                        strides.append(access.strides[group[-1]])
        for name, stride in access.extra:
            names.append(name)
            strides.append(stride)
        return tuple(names), tuple(strides)

    def _linear(self, strides: dict[Atom, int]) -> int | None:
        """The stride of the whole inner axis, None if its atoms are stepped over in different ways."""
        atoms = self.inner_atoms
        for outer, inner in pairwise(atoms):
            if strides.get(outer, 0) != strides.get(inner, 0) * inner.size:
                return None
        return strides.get(atoms[-1], 0)

    def operand(self, access: OperandAccess) -> Operand:
        """An access as an operand of the specification."""
        if access.role == "partial" or self._accesses.is_partial(access):
            return Operand(access.name, access.dtype, (1,), access.role)
        _, steps = self.index(access)
        strides = tuple(1 if s == 1 else None for s in steps)
        return Operand(access.name, access.dtype, strides, access.role)

    def mode(self) -> Mode:
        """What the kernel's range counts, see `codegen.spec.kernel_spec.Schedule`."""
        kinds = {s.kind for s in self._steps}
        if "column" in kinds:
            return "columns"
        if "split" in kinds:
            return "split"
        return "flat" if self.flat else "rows"

    def level(self, dims: Dims) -> Literal["row", "inner"]:
        """Whether a value is one of the row or runs over the inner axis."""
        return (
            "inner"
            if self.has_inner and any(a not in self.row_atoms for axis in dims for a in axis)
            else "row"
        )


def _size(atoms: list[Atom]) -> int:
    return math.prod(a.size for a in atoms)
