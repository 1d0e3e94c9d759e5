"""The ONNX form of one call as data: what a user's `symbolic` built, so that a graph can hold, print and read it.

Values are numbered: the inputs first, then the results of the nodes in order. Must not know ONNX's schemas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ops.array_data import ArrayData
from ops.errors import ExportError

SUFFIXES = ("_i", "_f", "_s", "_t")
"""What an attribute is: integers, floats, strings or a tensor. One of the first three may be a list."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A value by its number."""

    number: int


Operand = Reference | ArrayData | bool | int | float | None


@dataclass(frozen=True, slots=True)
class FormNode:
    """An ONNX operator: its name, `domain::Name` unless it is a standard one, and attributes whose names have a suffix."""

    operator: str
    operands: tuple[Operand, ...]
    attributes: tuple[tuple[str, Any], ...]
    outputs: int = 1


@dataclass(frozen=True, slots=True)
class Form:
    """Nodes and which values are the results; None for a result that has no ONNX form. `problem`: why there is no form at all."""

    inputs: int
    nodes: tuple[FormNode, ...] = ()
    outputs: tuple[Operand, ...] = ()
    problem: str = ""

    def defined(self) -> Iterator[int]:
        """Before each node, and at the end, how many values there are."""
        count = self.inputs
        yield count
        for node in self.nodes:
            count += node.outputs
            yield count

    def build(self, g: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The results, built with an ONNX builder. Raises `ExportError` for a form that is none."""
        if self.problem:
            raise ExportError(self.problem)
        values = list(inputs[: self.inputs])

        def operand(x: Operand) -> Any:
            if isinstance(x, Reference):
                return values[x.number]
            return x.array if isinstance(x, ArrayData) else x

        for node in self.nodes:
            result = g.op(
                node.operator,
                *map(operand, node.operands),
                outputs=node.outputs,
                **dict(node.attributes),
            )
            values += result if isinstance(result, tuple) else (result,)
        for y in self.outputs:
            if not isinstance(y, Reference):
                raise ExportError(f"a result of an ONNX form is one of its values, not {y!r:.60}")
        return tuple(map(operand, self.outputs))

    def picked(self, numbers: Sequence[int]) -> Form:
        """The form of some of its results."""
        if self.problem:
            return self
        return replace(self, outputs=tuple(self.outputs[k] for k in numbers))
