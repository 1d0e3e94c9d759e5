"""The model while it is built: values that get their names at the end, and nodes.

Plain records; knows nothing of ONNX's protobufs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ops.errors import ExportError
from ops.types import Shape, Type
from tracer.ir.graph import NOWHERE, Origin


@dataclass(slots=True, eq=False)
class OnnxValue:
    """A value of the model. Its shape is unknown inside rules that build with operators that only
    ONNX has, its element type ("") behind operators of other domains.
    """

    dtype: str
    shape: Shape | None = None
    name: str = ""

    @property
    def type(self) -> Type | DtypeOnly:
        """Element type and shape."""
        return DtypeOnly(self.dtype) if self.shape is None else Type(self.dtype, self.shape)


@dataclass(frozen=True, slots=True)
class DtypeOnly:
    """The type of a value whose shape is not known: asking for it is an error."""

    dtype: str
    weak: bool = False

    @property
    def shape(self) -> Shape:
        """Not known."""
        raise ExportError("the shape of a value that ONNX operators gave in a rule is not known")

    @property
    def rank(self) -> int:
        """Not known."""
        return len(self.shape)

    def sizes(self) -> Shape:
        """Not known."""
        return self.shape


@dataclass(slots=True, eq=False)
class OnnxNode:
    """A node of the model; `domain` is "" for ONNX's own operators."""

    operator: str
    inputs: tuple[OnnxValue | None, ...]
    outputs: tuple[OnnxValue, ...]
    attributes: dict[str, Any]
    origin: Origin = NOWHERE
    domain: str = ""


@dataclass(slots=True, eq=False)
class Subgraph:
    """A branch or body: nodes that see the values around them, and results."""

    nodes: list[OnnxNode]
    outputs: tuple[OnnxValue, ...]
    name: str = ""


@dataclass(slots=True, eq=False)
class Initializer:
    """A constant of the model."""

    value: OnnxValue
    data: bytes = field(repr=False)
    shape: tuple[int, ...] = ()
