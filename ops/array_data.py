"""Arrays as attributes: compared by content, and never changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ops.types import Type


@dataclass(frozen=True, slots=True)
class ArrayData:
    """An array as an attribute: dtype name, shape and bytes in C order, compared by content."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes = field(repr=False)

    @staticmethod
    def of(array: np.ndarray[Any, Any]) -> ArrayData:
        """A copy of the array's content."""
        type_ = Type.of(array)
        native = np.ascontiguousarray(array, type_.numpy)
        return ArrayData(type_.dtype, array.shape, native.tobytes())

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """A read-only array."""
        return np.frombuffer(self.data, Type(self.dtype).numpy).reshape(self.shape)
