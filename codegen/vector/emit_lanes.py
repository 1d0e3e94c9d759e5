"""The IR of functions across lanes: LANES_EMIT[name](builder, element, *values).

Must not know Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from codegen.vector.elements import WIDTH
from codegen.vector.emit import EMIT, extremum
from codegen.vector.emit_memory import live
from codegen.vector.llvm import INDEX, INT64, Builder, Value, constants, shuffle, splat

LANES_EMIT: dict[str, Callable[..., Any]] = {}


def emits(emit: Callable[..., Any]) -> Callable[..., Any]:
    """The IR of the function of that name, without its underscore."""
    LANES_EMIT[emit.__name__.lstrip("_")] = emit
    return emit


@emits
def _full(b: Builder, e: str, x: Value) -> Value:
    return splat(b, x)


@emits
def _below(b: Builder, e: str, left: Value) -> Value:
    return live(b, left)


@emits
def _lane_index(b: Builder, e: str, i: Value) -> Value:
    return b.add(splat(b, i), constants(INT64, range(WIDTH)))


@emits
def _first(b: Builder, e: str, v: Value) -> Value:
    return b.extract_element(v, INDEX(0))


def rotate(b: Builder, e: str, v: Value, count: int) -> Value:
    """Lane l gets lane l + count, around the end."""
    return shuffle(b, v, [(lane + count) % WIDTH for lane in range(WIDTH)])


def _tree(name: str, combine: Callable[[Builder, str, Value, Value], Value]) -> None:
    def emit(b: Builder, e: str, v: Value) -> Value:
        width = WIDTH
        while width > 1:
            width //= 2
            v = combine(b, e, shuffle(b, v, range(width)), shuffle(b, v, range(width, 2 * width)))
        return b.extract_element(v, INDEX(0))

    LANES_EMIT[name] = emit


_tree("lane_sum", EMIT["add"])
_tree("lane_product", EMIT["mul"])
_tree("lane_max", extremum(">"))
_tree("lane_min", extremum("<"))
_tree("lane_any", lambda b, e, x, y: b.or_(x, y))
_tree("lane_all", lambda b, e, x, y: b.and_(x, y))
