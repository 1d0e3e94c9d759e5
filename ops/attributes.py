"""Attributes of operators: their declared types, and their values for one application."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np

from ops.array_data import ArrayData as ArrayData
from ops.dims import Dim
from ops.errors import ArgumentError
from ops.forms import Form

Sizes = tuple[int | Dim, ...]
Ints = tuple[int, ...]
Floats = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute's declared type: one of bool, int, float, str, Sizes, Ints, Floats, "Dim" (a size), ArrayData, Form."""

    name: str
    kind: Any
    default: Any = inspect.Parameter.empty

    def normalize(self, value: Any) -> Any:
        """The value in its declared type: 1 for a float attribute is 1.0, lists are tuples."""
        kind = self.kind
        try:
            if value is None and self.default is None:
                return None
            if kind is bool and isinstance(value, bool | np.bool_):
                return bool(value)
            if kind is int and not isinstance(value, bool | str):
                return _int64(value)
            if kind is float and not isinstance(value, bool | str):
                return float(value)
            if kind is str and isinstance(value, str):
                return value
            if kind == Floats:
                return tuple(float(v) for v in value)
            if kind == Ints:
                return tuple(map(_int64, value))
            if kind == Sizes:
                return tuple(v if isinstance(v, Dim) else _int64(v) for v in value)
            if kind == (int | Dim):
                return value if isinstance(value, Dim) else _int64(value)
            if kind is ArrayData and isinstance(value, ArrayData):
                return value
            if kind == (Form | None) and isinstance(value, Form):
                return value
        except OverflowError:
            raise ArgumentError(
                f"attribute {self.name} takes {_kind_name(kind)} of at most 64 bits, got {value!r}"
            ) from None
        except (TypeError, ValueError, AttributeError):
            pass
        raise ArgumentError(f"attribute {self.name} takes {_kind_name(kind)}, got {value!r}")


def _int64(value: Any) -> int:
    """An integer that ONNX's attributes and programs can hold; OverflowError for another one."""
    number: int = value.__index__()
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError
    return number


def _kind_name(kind: Any) -> str:
    return {
        Sizes: "sizes",
        Ints: "integers",
        Floats: "floats",
        int | Dim: "a size",
        Form | None: "an ONNX form",
    }.get(kind, getattr(kind, "__name__", str(kind)))


class Attributes(dict[str, Any]):
    """Attributes of one application, read as `n.attrs.axis` in rules."""

    __slots__ = ()

    @property
    def key(self) -> tuple[Any, ...]:
        """The values, to be compared and hashed: unlike -0.0 and 0.0, equal ones are the same to the bit."""
        return tuple(_exactly(v) for v in self.values())

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def _exactly(value: Any) -> Any:
    if isinstance(value, float):
        return value.hex()
    return tuple(map(_exactly, value)) if isinstance(value, tuple) else value
