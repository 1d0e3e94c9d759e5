"""A user's function of numbers in kernel text: `f(count, x, y)` calls it for the first `count`
lanes; the others get what lane 0 got.

So it never sees a number that is nobody's: the lanes behind the end of a row hold none, and of a
value that is the same in all lanes one is enough. Here is the un-jitted meaning; `lane_function_jit`
tells Numba the compiled one. Must not know Numba.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from codegen.vector.elements import DTYPE, FLOATS, WIDTH
from codegen.vector.functions import VectorFunction
from codegen.vector.readings import Lanes, element_of
from ops.compute import ScalarFunction


class LaneFunction(VectorFunction):
    """The name of a user's function in kernel text."""

    def __init__(self, scalar: ScalarFunction) -> None:
        super().__init__(scalar.name, scalar.arity, {e: partial(self._each, e) for e in FLOATS})
        self.scalar = scalar

    def __repr__(self) -> str:
        return f"<user's function {self.name}>"

    def __call__(self, count: int, *operands: Any) -> Any:
        """The function for each lane that counts."""
        element = self.lead([(element_of(x), isinstance(x, Lanes)) for x in operands])
        lanes = (x if isinstance(x, Lanes) else Lanes(np.full(WIDTH, x)) for x in operands)
        return self._each(element, *lanes, count=count)

    def _each(self, element: str, *operands: Lanes, count: int = WIDTH) -> Lanes:
        result = np.empty(WIDTH, DTYPE[element])
        arrays = [x.array for x in operands]
        with np.errstate(all="ignore"):
            for lane in range(min(count, WIDTH)):
                result[lane] = self.scalar(*(a[lane] for a in arrays))
        result[min(count, WIDTH) :] = result[0]
        return Lanes(result)


_KNOWN: dict[ScalarFunction, LaneFunction] = {}


def lane_function(scalar: ScalarFunction) -> LaneFunction:
    """The one name of a function."""
    return _KNOWN.setdefault(scalar, LaneFunction(scalar))
