"""Symbolic sizes as ONNX nodes: read from the shapes of inputs, computed, put together to shapes.

Every size is computed once, at the head of the model, where all blocks see it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import dims
from ops.dims import Dim
from ops.errors import ExportError
from ops.types import Shape
from tracer.ir.symbols import Place
from tracer.onnx.values import OnnxValue


class Sizes:
    """Sizes of one model. `g` is a builder whose nodes come first; all values here are 1-D int64 of
    one element or more.
    """

    def __init__(self, g: Any, inputs: list[OnnxValue], places: dict[str, Place]) -> None:
        self.g = g
        self.inputs = inputs
        self.places = places
        self.known: dict[int | Dim, OnnxValue] = {}
        self.shapes: dict[Shape, OnnxValue] = {}
        self.scalars: dict[int | Dim, OnnxValue] = {}

    def shape(self, sizes: Shape) -> OnnxValue:
        """A shape as a 1-D value."""
        if not any(isinstance(d, Dim) for d in sizes):
            return self._ints(sizes)
        if sizes not in self.shapes:
            whole = next((x for x in self.inputs if x.shape == sizes), None)
            if whole is not None:
                self.shapes[sizes] = self.g.op("Shape", whole)
            elif len(sizes) == 1:
                self.shapes[sizes] = self.size(sizes[0])
            else:
                self.shapes[sizes] = self.g.op("Concat", *self._runs(sizes), axis=0)
        return self.shapes[sizes]

    def scalar(self, size: int | Dim) -> OnnxValue:
        """A size as a 0-d value."""
        if not isinstance(size, Dim):
            value: OnnxValue = self.g.array(np.asarray(size, np.int64))
            return value
        if size not in self.scalars:
            self.scalars[size] = self.g.op("Reshape", self.size(size), self._ints(()))
        return self.scalars[size]

    def size(self, size: int | Dim) -> OnnxValue:
        """A size as a 1-D value of one element."""
        if not isinstance(size, Dim):
            return self._ints((size,))
        if size not in self.known:
            self.known[size] = self._computed(size)
        return self.known[size]

    def _ints(self, sizes: Shape) -> OnnxValue:
        value: OnnxValue = self.g.array(np.array([int(d) for d in sizes], np.int64))
        return value

    def _runs(self, sizes: Shape) -> list[OnnxValue]:
        """The parts of a shape, neighbouring constants together."""
        parts: list[OnnxValue] = []
        constants: list[int] = []
        for size in sizes:
            if isinstance(size, Dim):
                if constants:
                    parts.append(self._ints(tuple(constants)))
                constants = []
                parts.append(self.size(size))
            else:
                constants.append(size)
        return [*parts, self._ints(tuple(constants))] if constants else parts

    def _computed(self, size: Dim) -> OnnxValue:
        total: OnnxValue | None = None
        for monomial, coefficient in size.terms:
            factors = [self._atom(a) for a in monomial]
            if coefficient != 1 or not factors:
                factors.append(self._ints((coefficient,)))
            term = factors[0]
            for factor in factors[1:]:
                term = self.g.op("Mul", term, factor)
            total = term if total is None else self.g.op("Add", total, term)
        assert total is not None
        return total

    def _atom(self, atom: Any) -> OnnxValue:
        key = Dim(terms=(((atom,), 1),))
        if key not in self.known:
            match atom:
                case dims.Symbol(name=name):
                    self.known[key] = self._symbol(name)
                case dims.Maximum(left=left, right=right):
                    self.known[key] = self.g.op("Max", self.size(left), self.size(right))
                case dims.FloorDivide(numerator=numerator, denominator=denominator):
                    self.known[key] = self._quotient(numerator, denominator)
        return self.known[key]

    def _quotient(self, numerator: int | Dim, denominator: int | Dim) -> OnnxValue:
        above, below = self.size(numerator), self.size(denominator)
        if isinstance(denominator, Dim):
            # A runtime that divides by zero may end the process.
            below = self.g.op("Max", below, self._ints((1,)))
        if not dims.never_negative(numerator) or not dims.never_negative(denominator):
            # Div rounds toward zero, sizes are rounded down: Mod has the divisor's sign.
            above = self.g.op("Sub", above, self.g.op("Mod", above, below))
        result: OnnxValue = self.g.op("Div", above, below)
        return result

    def _symbol(self, name: str) -> OnnxValue:
        place = self.places.get(name)
        if place is None:
            raise ExportError(
                f"the size {name} cannot be known when the model runs: no input's shape "
                "determines it"
            )
        source = self.inputs[place.input]
        size: OnnxValue = self.g.op("Shape", source, start=place.axis, end=place.axis + 1)
        if place.rest != 0:
            size = self.g.op("Sub", size, self.size(place.rest))
        if place.scale != 1:
            size = self.g.op("Div", size, self._ints((place.scale,)))
        return size
