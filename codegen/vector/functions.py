"""Vector functions: straight-line text on vector values, one body for each lane element.

The body is plain Python over primitives, so it is read like kernel text: un-jitted on `Lanes`, as
IR on `Emitted`. Numba runs it once over an IR builder, which costs no type inference. Must not know
LLVM or Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from codegen.vector.elements import DTYPE
from codegen.vector.primitives import fma, same
from codegen.vector.readings import Lanes, Reading, element_of, scalar

Body = Callable[..., Any]
FUNCTIONS: dict[str, VectorFunction] = {}


class VectorFunction:
    """A function with a body for each element it works on; of several operands, scalars take the
    vectors' element.
    """

    def __init__(
        self, name: str, arity: int, bodies: dict[str, Body], result: Callable[[str], str] = same
    ) -> None:
        self.__name__ = self.name = name
        self.arity, self.bodies, self.result = arity, bodies, result

    def __repr__(self) -> str:
        return f"<vector function {self.name}>"

    def __call__(self, *operands: Any) -> Any:
        """The body of the operands' element, read as they are."""
        element = self.lead([(element_of(x), isinstance(x, Reading)) for x in operands])
        leader = next(x for x in operands if isinstance(x, Reading))
        values = [x if isinstance(x, Reading) else scalar(element, x) for x in operands]
        if isinstance(leader, Lanes):  # a body may hand a scalar to a primitive of one operand
            shape = leader.array.shape
            values = [
                x if isinstance(x, Reading) else type(leader)(np.broadcast_to(x, shape))
                for x in values
            ]
        return self.bodies[element](*values)

    def lead(self, operands: Sequence[tuple[str, bool]]) -> str:
        """The lane element that operands (element, is a vector) agree on; TypeError when they do
        not.
        """
        if len(operands) != self.arity:
            raise TypeError(f"{self.name} takes {self.arity} operands; got {len(operands)}")
        found = {e for e, vector in operands if vector}
        if len(found) != 1 or not found <= set(self.bodies):
            wanted, came = ", ".join(self.bodies), ", ".join(sorted(found))
            raise TypeError(f"{self.name} works on {wanted} lanes; got {came}")
        return found.pop()

    def operand_element(self, position: int, element: str) -> str:
        """The element of operand `position`: that of the function."""
        return element


def define_function(
    name: str,
    arity: int = 1,
    result: Callable[[str], str] = same,
    bodies: Mapping[str, Body] | None = None,
    **more: Body,
) -> VectorFunction:
    """A named function of kernel text: define_function("exp", f32=body, f64=body)."""
    found = dict(bodies or {}) | more
    FUNCTIONS[name] = function = VectorFunction(name, arity, found, result)
    return function


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Horner's rule by fma, the highest power's coefficient first."""
    dtype = DTYPE[x.element]
    p = dtype(coefficients[0])
    for c in coefficients[1:]:
        p = fma(p, x, dtype(c))
    return p
