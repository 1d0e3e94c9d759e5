"""Where a mask holds: positions whose number the elements decide, and an attribute names.

A result has a size that is known before the program runs. So the number is given, and a mask that
has another one is an error where the program runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.compute import Host
from ops.dims import Dim, product
from ops.errors import DTypeError, ShapeError
from ops.operator import Application, ErrorSample, Input, Sample, ZeroGradient, operator
from ops.types import Type, short

Array = np.ndarray[Any, Any]


def _positions_type(mask: Type, *, size: int | Dim) -> Type:
    if mask.dtype != "bool":
        raise DTypeError(f"the mask must be bool, got {short(mask)}; compare it with 0 first")
    if isinstance(size, int) and size < 0:
        raise ShapeError(f"size is negative: {size}")
    if isinstance(size, int) and isinstance(mask.size, int) and size > mask.size:
        raise ShapeError(f"{short(mask)} does not hold {size} True elements, it has {mask.size}")
    return Type("int64", (size,))


def _positions_onnx(g: Any, n: Application) -> Any:
    flat = g.op("Reshape", n.x, g.shape((product(n.x.type.shape),)), allowzero=1)
    return g.op("Reshape", g.op("NonZero", flat), g.shape((n.attrs.size,)), allowzero=1)


@operator(
    "FlatNonzero",
    type_rule=_positions_type,
    compute=Host("each position needs the number of those before it", count="size"),
    vjp=ZeroGradient(),
    onnx=_positions_onnx,
    samples=(
        Sample((Input((6,), values=(1, 0, 1, 1, 0, 0)),), {"size": 3}),
        Sample((Input((2, 3), values=(0, 0, 1, 1, 0, 1)),), {"size": 3}),
        Sample((Input((2, 3), values=(1, 1, 1, 1, 1, 1), layout="strided"),), {"size": 6}),
        Sample((Input((3,), values=(0, 0, 0)),), {"size": 0}),
        Sample((Input((0, 3), values=()),), {"size": 0}),
        Sample((Input((), values=(1,)),), {"size": 1}),
    ),
    errors=(
        ErrorSample((Type("float32", (3,)),), DTypeError, "the mask must be bool", {"size": 1}),
        ErrorSample((Type("bool", (3,)),), ShapeError, "does not hold 4", {"size": 4}),
        ErrorSample((Type("bool", (3,)),), ShapeError, "negative", {"size": -1}),
    ),
    dtypes=("bool",),
)
def flat_nonzero(mask: Array, *, size: int | Dim) -> Array:
    """The row-major positions of a mask's True elements, in order, `size` of them.

    Raises `ShapeError` when there are more or fewer.
    """
    found = np.flatnonzero(mask)
    if found.size != size:
        raise ShapeError(
            f"the mask holds {found.size} True elements, but {size} are to be selected"
        )
    return found.astype(np.int64)
