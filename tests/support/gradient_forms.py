"""Gradients of many functions at the same points, in every form: eager, compiled, fused with a neighbour.

A set of functions is one compiled program, so that few kernels are compiled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tracer
from ops.types import numpy_dtype
from tracer import trace

Array = np.ndarray[Any, Any]
Function = Callable[[Any], Any]
inf, nan = math.inf, math.nan
TOLERANCE = {"float64": 1e-12, "float32": 2e-6, "float16": 1e-2, "bfloat16": 6e-2}


def slope(function: Function) -> Function:
    """The gradient of the sum of what a function gives."""
    return tracer.grad(lambda x: tracer.sum(function(x)))  # type: ignore[no-any-return]


def slopes(functions: Sequence[Function]) -> Callable[[Any, Any], tuple[Any, ...]]:
    """The gradients of all functions at x.

    Before and behind each one there is a product with `one`, which compilers cannot see.
    """

    def all_of_them(x: Any, one: Any) -> tuple[Any, ...]:
        if one is None:
            return tuple(slope(f)(x) for f in functions)
        return tuple(slope(lambda x, f=f: f(x * one) * one)(x) for f in functions)

    return all_of_them


def check_all(cases: Sequence[tuple[str, Function, Any]], x: Array, way: str, dtype: str) -> None:
    """Every case's gradient at x is what is expected."""
    run = slopes([f for _, f, _ in cases])
    points = x.astype(numpy_dtype(dtype))
    one = np.ones((), numpy_dtype(dtype)) if way == "fused" else None
    with np.errstate(all="ignore"):
        found = run(points, one) if way == "eager" else trace(run)(points, one)
    wrong = []
    for (name, _, expected), got in zip(cases, found, strict=True):
        wanted = np.broadcast_to(np.asarray(expected, np.float64), x.shape)
        values = np.asarray(got).astype(np.float64)
        if not np.allclose(values, wanted, rtol=TOLERANCE[dtype], atol=0, equal_nan=True):
            wrong.append(
                f"{name}\n  at {x.tolist()}\n  found {values.tolist()}\n  not {wanted.tolist()}"
            )
    assert not wrong, "\n".join(wrong)


# Compiled programs are few: alone in one type, fused with neighbours in the other.
FORMS = pytest.mark.parametrize(
    "way, dtype",
    [
        *itertools.product(["eager"], ["float32", "float64", "float16", "bfloat16"]),
        ("compiled", "float32"),
        ("fused", "float64"),
    ],
)
