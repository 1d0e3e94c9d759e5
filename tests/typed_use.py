"""Never run: what a type checker makes of programs that use the package. `make check` reads it.

An error that is expected carries `type: ignore`, and one that is not there is an error too.
"""

from __future__ import annotations

from typing import assert_type

import tracer
from tracer import Tensor
from tracer.ir.graph import Graph


@tracer.trace
def scaled(x: Tensor, factor: float = 2.0) -> Tensor:
    """A function whose types outlive the decorator."""
    return tracer.exp(x) * factor


def names(x: Tensor) -> None:
    """Names that are imported when they are first used have their types; misspelt ones are found."""
    assert_type(tracer.nn.Linear(3, 4), tracer.nn.Linear)
    assert_type(tracer.ir.parse(""), Graph)
    assert_type(tracer.autograd.gradcheck(scaled, (x,)), bool)
    tracer.save_file({"x": x}, 3)  # type: ignore[arg-type]
    tracer.sofmax(x)  # type: ignore[attr-defined]
    tracer.ir.prase("")  # type: ignore[attr-defined]
    tracer.autograd.gradchek(scaled, (x,))  # type: ignore[attr-defined]


def calls(x: Tensor) -> None:
    """A traced function is called, and looked into, with its own arguments or with none."""
    assert_type(scaled(x), Tensor)
    assert_type(scaled.ir(x, factor=3.0), Graph)
    assert_type(scaled.ir(), Graph)
    scaled("x")  # type: ignore[arg-type]
    scaled.ir("x")  # type: ignore[call-overload]
