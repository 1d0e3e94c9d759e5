"""Which inputs and outputs of a trace's graph are what: the one place where they are counted.

Knows the parts and their order. Must not know how a program is run and what becomes of a part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tracer.ir.graph import Value

NONE = range(0)


class Numbered(list[Value]):
    """Values as a graph has them, put in part by part."""

    def add(self, part: Iterable[Value]) -> range:
        """The numbers that the values of one more part have."""
        start = len(self)
        self.extend(part)
        return range(start, len(self))


@dataclass(slots=True)
class ProgramInputs:
    """The numbers of a graph's inputs, part by part in this order."""

    captures: range = NONE  # Tensors, arrays and gradients that lie outside
    scalars: range = NONE  # Python numbers in containers
    arguments: range = NONE  # argument leaves that are inputs


@dataclass(slots=True)
class ProgramOutputs:
    """The numbers of a graph's outputs, part by part in this order."""

    results: range = NONE  # what is returned and put into places, and what such views share
    state: range = NONE  # new elements of Tensors that lie outside
    arguments: range = NONE  # new elements of arguments
    gradients: range = NONE  # that become the `.grad` of what lies outside
    outgoing_gradients: range = NONE  # of arguments, for the history that they came with
    result_gradients: range = NONE  # that become the `.grad` of results
    residuals: range = NONE  # what the backward graph reads
    value_guards: range = NONE  # what Python asked for

    @property
    def changed(self) -> range:
        """What the program writes into memory that is there."""
        return range(self.state.start, self.arguments.stop)
