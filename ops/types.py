"""Types of values: element type, shape, and whether it came from a Python number. All that type rules ever see."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from ops import dims
from ops.dims import Dim
from ops.errors import ArgumentError, BoundsError, DTypeError, ShapeError

Shape = tuple[int | Dim, ...]

# The printed name of each element type, in the manner of torch.onnx's dumps.
PRINTED = {
    "bool": "Bool",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "uint8": "Byte",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "float32": "Float",
    "float64": "Double",
}
DTYPES = tuple(PRINTED)
INTEGERS = tuple(d for d in DTYPES if "int" in d)
UNSIGNED = tuple(d for d in DTYPES if d.startswith("uint"))
FLOATING = ("float16", "bfloat16", "float32", "float64")
SIZE_OF = {d: 1 if d == "bool" else int("".join(filter(str.isdigit, d))) // 8 for d in DTYPES}
_NUMPY = {d: np.dtype(ml_dtypes.bfloat16 if d == "bfloat16" else d) for d in DTYPES}
_NAME = {dtype: name for name, dtype in _NUMPY.items()}
MOST_BYTES = 1 << 45  # 32 TiB
DEFAULT_FLOAT, DEFAULT_INTEGER = "float32", "int64"


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """NumPy's dtype of an element type's name."""
    return _NUMPY[dtype]


@cache
def _dtype_name(dtype: Any) -> str:
    if isinstance(dtype, str) and dtype in _NUMPY:
        return dtype
    python = {bool: "bool", int: DEFAULT_INTEGER, float: DEFAULT_FLOAT}
    if dtype in python:
        return python[dtype]
    try:
        resolved = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):  # the last of texts with commas
        hint = "; a shape is one argument, as in (2, 3)" if isinstance(dtype, int) else ""
        raise DTypeError(
            f"not an element type: {dtype!r}; use one of {', '.join(DTYPES)}{hint}"
        ) from None
    native = resolved.newbyteorder("=") if resolved.kind in "iufb" else resolved
    if native not in _NAME:
        raise DTypeError(f"unsupported element type {resolved}; use one of {', '.join(DTYPES)}")
    return _NAME[native]


def dtype_name(dtype: Any) -> str:
    """The name of an element type given as a name, a NumPy dtype or scalar type, or bool, int, float.

    int is int64 and float is float32. Raises `DTypeError` for anything else.
    """
    try:
        return _dtype_name(dtype)
    except TypeError as error:  # unhashable
        if isinstance(error, DTypeError):
            raise
        raise DTypeError(f"not an element type: {dtype!r}") from None


def is_floating(dtype: str) -> bool:
    """Whether elements are floating-point numbers."""
    return dtype in FLOATING


def is_integer(dtype: str) -> bool:
    """Whether elements are integers (bool is none)."""
    return "int" in dtype


@dataclass(frozen=True, slots=True)
class Type:
    """Element type (NumPy's name), shape, and `weak`: it came from a Python number and does not decide promotion.

    >>> from tracer.ir import Type
    >>> Type("float32", (2, 3)).rank
    2
    """

    dtype: str
    shape: Shape = ()
    weak: bool = False

    @staticmethod
    def of(array: np.ndarray[Any, Any]) -> Type:
        """The type of a NumPy array."""
        return Type(dtype_name(array.dtype), array.shape)

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int | Dim:
        """The number of elements."""
        return dims.product(self.shape)

    @property
    def is_too_large(self) -> bool:
        """Whether it has more bytes than any memory, and more elements than programs count."""
        sizes = [d for d in self.shape if not isinstance(d, Dim)]
        return math.prod(sizes) * SIZE_OF[self.dtype] >= MOST_BYTES

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return SIZE_OF[self.dtype]

    @property
    def numpy(self) -> np.dtype[Any]:
        """NumPy's dtype."""
        return _NUMPY[self.dtype]

    @property
    def is_static(self) -> bool:
        """Whether every size is an int."""
        return not any(isinstance(d, Dim) for d in self.shape)

    def sizes(self) -> Shape:
        """The shape, under the name that ONNX symbolic functions use."""
        return self.shape

    def with_dtype(self, dtype: str) -> Type:
        """The same shape with another element type, not weak."""
        return Type(dtype, self.shape)

    def strong(self) -> Type:
        """The type with `weak` cleared."""
        return replace(self, weak=False) if self.weak else self

    def substitute(self, values: Mapping[str, int | Dim]) -> Type:
        """The type with symbols of its sizes replaced."""
        return replace(self, shape=tuple(dims.substitute(d, values) for d in self.shape))

    def __str__(self) -> str:
        weak = "~" if self.weak else ""
        return f"{PRINTED[self.dtype]}{weak}({', '.join(map(str, self.shape))})"


def short(type_: Type) -> str:
    """The type as error messages write it: float32[32, 3]."""
    return f"{type_.dtype}[{', '.join(map(str, type_.shape))}]"


def normalize_axis(axis: int, rank: int, what: str = "axis") -> int:
    """The axis counted from the front. Raises `ShapeError` when it is out of range, `ArgumentError` for what is no integer."""
    if type(axis) is not int:
        try:
            if isinstance(axis, bool):
                raise TypeError
            axis = operator.index(axis)
        except (TypeError, ValueError):
            raise ArgumentError(f"{what} must be an integer, got {axis!r:.60}") from None
    if not -rank <= axis < rank:
        span = f"between {-rank} and {rank - 1}" if rank else "none: the value is 0-d"
        raise ShapeError(f"{what} {axis} is out of range; possible: {span}")
    return axis % rank


def require_index(index: int, axis: int, size: int | Dim, what: str) -> None:
    """Raise `BoundsError` for an index of an axis that is known to be out of range. `what`: of which this is an axis."""
    if isinstance(size, int) and not -size <= index < size:
        possible = f"possible: {-size} to {size - 1}" if size else "the axis has no elements"
        raise BoundsError(f"index {index} is out of range for axis {axis} of {what}; {possible}")


def normalize_axes(axes: Any, rank: int) -> tuple[int, ...]:
    """Axes (None for all, an int or a sequence) counted from the front, sorted; each at most once."""
    if axes is None:
        return tuple(range(rank))
    given = (axes,) if isinstance(axes, int | np.integer) else tuple(axes)
    result = sorted(normalize_axis(a, rank) for a in given)
    if len(set(result)) != len(result):
        raise ShapeError(f"an axis is named twice in {tuple(given)}")
    return tuple(result)


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The shape that all broadcast to. A symbolic size meets only itself and 1. Raises `ShapeError`."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[int | Dim] = []
    for position in range(rank):
        size: int | Dim = 1
        for shape in shapes:
            k = position - rank + len(shape)
            if k < 0 or shape[k] == 1:
                continue
            if size != 1 and shape[k] != size:
                listed = " and ".join("(" + ", ".join(map(str, s)) + ")" for s in shapes)
                raise ShapeError(
                    f"shapes {listed} do not broadcast: axis {position - rank} has sizes {size} and "
                    f"{shape[k]}; sizes must be equal or 1"
                )
            size = shape[k]
        result.append(size)
    return tuple(result)
