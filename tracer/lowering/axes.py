"""Axes of iteration spaces, and how the axes of values map to them.

A `Dims` says for each axis of a value which atoms (axes of the space, slowest first) it runs over; an axis of size 1 runs over
none. Two maps of one value are unified by splitting atoms until they agree, so that reshapes, transposes and broadcasts inside a
kernel are nothing but maps.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ops.compute import Strided, View
from ops.types import Type


class Atom:
    """One axis of an iteration space."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size

    def __repr__(self) -> str:
        return f"<{self.size}>"


Dims = tuple[tuple[Atom, ...], ...]
Substitution = dict[Atom, tuple[Atom, ...]]


def fresh(shape: Sequence[int]) -> Dims:
    """A map with an atom for each axis that is not of size 1."""
    return tuple(() if d == 1 else (Atom(d),) for d in shape)


def atoms_of(dims: Dims) -> tuple[Atom, ...]:
    """The atoms in order."""
    return tuple(a for axis in dims for a in axis)


def replace(dims: Dims, by: Substitution) -> Dims:
    """The map with atoms substituted."""
    if not by:
        return dims
    return tuple(tuple(b for a in axis for b in by.get(a, (a,))) for axis in dims)


def resolve(by: Substitution) -> Substitution:
    """A substitution applied to itself until nothing changes."""
    result: Substitution = {}

    def expand(atom: Atom) -> tuple[Atom, ...]:
        if atom not in by:
            return (atom,)
        if atom not in result:
            result[atom] = tuple(c for b in by[atom] for c in expand(b))
        return result[atom]

    for atom in by:
        expand(atom)
    return result


def unify(first: Dims, second: Dims) -> Substitution | None:
    """A substitution under which two maps of one value agree, or None.

    Atoms of the second become those of the first; larger atoms on either side are split.
    """
    by: Substitution = {}
    for left, right in zip(first, second, strict=True):
        a, b = list(left), list(right)
        while a or b:
            if not a or not b:
                return None
            x, y = a.pop(0), b.pop(0)
            if x in by:
                a[:0] = by[x]
                b.insert(0, y)
                continue
            if y in by:
                b[:0] = by[y]
                a.insert(0, x)
                continue
            if x is y:
                continue
            if x.size == y.size:
                by[y] = (x,)
                continue
            large, small = (x, y) if x.size > y.size else (y, x)
            inner_first = small.size and large.size % small.size == 0
            if not inner_first:
                return None
            outer, rest = Atom(small.size), Atom(large.size // small.size)
            by[large] = (outer, rest)
            a.insert(0, x)
            b.insert(0, y)
    return resolve(by)


def view_maps(node: Any, operand: Type, result: Type) -> tuple[Dims, Dims] | None:
    """(map of the operand, map of the result) of a view whose elements correspond axis by axis, None for other views.

    Found by asking the operator where a contiguous buffer's elements go, and cutting both sides at common boundaries.
    """
    assert isinstance(node.op.compute, View)
    whole = Strided.row_major(operand.shape)
    shape, strides = whole.shape, whole.strides
    target: tuple[int, ...] = tuple(result.shape)  # type: ignore[arg-type]
    if 0 in shape or 0 in target:
        return None
    layout = node.op.compute.rule(whole, target, node.attrs)
    if layout is None or layout.offset or any(s < 0 for s in layout.strides):
        return None
    total = math.prod(shape)
    spans = [(s, s * d) for d, s in zip(shape, strides, strict=True) if d != 1]
    moved = [(s, s * d) for d, s in zip(target, layout.strides, strict=True) if d != 1 and s]
    bounds = sorted({1, total, *(b for span in spans + moved for b in span)})
    segments = list(pairwise(bounds))
    if any(high % low for low, high in segments) or bounds[-1] > total:
        return None
    atoms = {segment: Atom(segment[1] // segment[0]) for segment in segments}

    def cover(low: int, high: int) -> tuple[Atom, ...]:
        return tuple(atoms[s] for s in reversed(segments) if low <= s[0] and s[1] <= high)

    source = tuple(() if d == 1 else cover(s, s * d) for d, s in zip(shape, strides, strict=True))
    image = tuple(
        () if d == 1 else cover(s, s * d) if s else (Atom(d),)
        for d, s in zip(target, layout.strides, strict=True)
    )
    used = [a for axis, s in zip(image, layout.strides, strict=True) if s for a in axis]
    if len(used) != len(set(used)) or set(used) != set(atoms_of(source)):
        return None
    return source, image
