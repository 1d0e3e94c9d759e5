"""Which constants stand in kernels' texts, and which are data that kernels read.

Most floats are data: another epsilon or rate is no other kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from ops.compute import Constant, Scalar
from ops.types import is_floating
from tracer.ir.graph import Node, Value

_COMPUTED_WITH = (0.0, 1.0, -1.0)  # by compilers


def literal_of(producer: Node | None, v: Value, consumers: Iterable[Node]) -> Any:
    """The value of a 0-d constant that stands in texts, else None."""
    if producer is None or not isinstance(producer.op.compute, Constant) or v.type.shape != ():
        return None
    value = producer.attrs["value"].array[()]
    if not is_floating(v.type.dtype):
        return value
    number = float(value)
    if number in _COMPUTED_WITH or not math.isfinite(number):
        return value
    is_power_of_two = abs(math.frexp(number)[0]) == 0.5
    return value if is_power_of_two and any(_divided(c, v) for c in consumers) else None


def _divided(node: Node, v: Value) -> bool:
    """Whether something is divided by v: where compilers know a power of two, they multiply."""
    compute = node.op.compute
    return (
        isinstance(compute, Scalar)
        and isinstance(compute.text, str)
        and "/ {1}" in compute.text
        and node.inputs[1] is v
    )
