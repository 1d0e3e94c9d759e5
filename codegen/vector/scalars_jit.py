"""Tells Numba our vector mathematics on single numbers: what a user's function of numbers calls as math.tanh or np.tanh.

The body is that of the lanes, so a function of the user's gives the bits of the operator, and a loop over lanes around it can
become vectors. Imports Numba.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from codegen.vector.emit import Emitted
from codegen.vector.functions import FUNCTIONS, VectorFunction
from codegen.vector.llvm import one_lane
from codegen.vector.numba_types import SCALAR, is_number, register, signature, types

_SAME_NAME = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh"),
    *("tanh", "asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh", "erf", "erfc", "cbrt"),
    "hypot",
)
_NUMPY = {
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "atan2": "arctan2",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
}


class NumberFunction:
    """A vector function on numbers: float32 if all are, else float64."""

    def __init__(self, function: VectorFunction) -> None:
        self.function = function
        self.__name__ = function.name

    def __repr__(self) -> str:
        return f"<{self.function.name} of numbers>"

    def __call__(self, *numbers: Any) -> Any:
        """Kernels call it, Python does not."""
        raise NotImplementedError(f"{self.function.name} of numbers is for compiled code")


@cache
def instead() -> Mapping[Any, NumberFunction]:
    """math's and NumPy's functions -> ours, told to Numba."""
    found: dict[Any, NumberFunction] = {}
    for name in _SAME_NAME:
        ours = NumberFunction(FUNCTIONS[name])
        register(ours, _typing(ours.function), _lowering(ours.function))
        for module, theirs in ((math, name), (np, _NUMPY.get(name, name))):
            if hasattr(module, theirs):
                found[getattr(module, theirs)] = ours
    return found


def _typing(function: VectorFunction) -> Any:
    def typing(*args: Any) -> Any:
        if len(args) != function.arity or not all(map(is_number, args)):
            return None
        single = all(types.unliteral(t) == types.float32 for t in args)
        element = "f32" if single else "f64"
        return signature(SCALAR[element], *(SCALAR[element],) * len(args))

    return typing


def _lowering(function: VectorFunction) -> Any:
    def lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
        element = "f32" if sig.return_type == types.float32 else "f64"
        with one_lane():
            return function.bodies[element](*(Emitted(b, element, x) for x in args)).value

    return lower
