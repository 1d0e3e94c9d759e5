"""Where the values of symbolic sizes come from: the shapes of a graph's inputs.

Whoever runs a graph on arrays of other sizes binds its symbols here; whoever exports one learns
which axis of which input holds which symbol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ops import dims
from ops.dims import Dim
from ops.errors import ArgumentError, ShapeError
from ops.types import Type, short


@dataclass(frozen=True, slots=True)
class Place:
    """The symbol's value is (size of an axis of an input - rest) / scale.

    `rest` has only symbols whose places come earlier.
    """

    input: int
    axis: int
    scale: int
    rest: int | Dim


def places(types: Sequence[Type]) -> dict[str, Place]:
    """A place for every symbol that inputs' shapes determine, each after those that it needs.

    >>> graph = tracer.onnx.to_graph(tracer.nn.ReLU(), tracer.zeros((2, 3)), {"x": {0: "batch"}}).graph
    >>> list(tracer.ir.places([value.type for value in graph.inputs]))
    ['batch']
    """
    result: dict[str, Place] = {}
    pending = list(_symbolic_axes(types))
    while pending:
        left = []
        for input_, axis, size in pending:
            unknown = sorted(dims.symbols(size) - result.keys())
            scale = _coefficient(size, unknown[0]) if len(unknown) == 1 else 0
            if scale:
                rest = size - Dim.symbol(unknown[0]) * scale
                result[unknown[0]] = Place(input_, axis, scale, rest)
            elif unknown:
                left.append((input_, axis, size))
        if len(left) == len(pending):
            break
        pending = left
    return result


def _symbolic_axes(types: Sequence[Type]) -> Iterator[tuple[int, int, Dim]]:
    """Axes whose size is just a symbol first: they are the simplest to read."""
    found = [
        (k, axis, size)
        for k, type_ in enumerate(types)
        for axis, size in enumerate(type_.shape)
        if isinstance(size, Dim)
    ]
    yield from sorted(found, key=lambda f: not str(f[2]).isidentifier())


def _coefficient(size: Dim, symbol: str) -> int:
    """c when the size is c * symbol + what has no such symbol, else 0."""
    scale = 0
    for monomial, coefficient in size.terms:
        if (
            len(monomial) == 1
            and isinstance(monomial[0], dims.Symbol)
            and monomial[0].name == symbol
        ):
            scale = coefficient
        elif any(symbol in atom.symbols() for atom in monomial):
            return 0
    return scale


def bind(
    types: Sequence[Type], shapes: Sequence[tuple[int, ...]], names: Sequence[str] = ()
) -> dict[str, int]:
    """The values of all symbols that make the types' shapes equal to the given ones.

    Raises `ShapeError` if a shape does not fit, `ArgumentError` for another number of shapes; `names` say which input it was.

    >>> graph = tracer.onnx.to_graph(tracer.nn.ReLU(), tracer.zeros((2, 3)), {"x": {0: "batch"}}).graph
    >>> tracer.ir.bind([value.type for value in graph.inputs], [(5, 3)])
    {'batch': 5}
    """
    listed = [n or f"input {k}" for k, n in enumerate(names)] or [
        f"input {k}" for k in range(len(types))
    ]
    if len(shapes) != len(types):
        raise ArgumentError(f"there are {len(types)} inputs, got {len(shapes)} shapes")
    for name, type_, shape in zip(listed, types, shapes, strict=True):
        if len(shape) != type_.rank:
            raise ShapeError(
                f"{name} must have {type_.rank} axes ({short(type_)}), got shape {shape}"
            )
    result: dict[str, int] = {}
    for symbol, place in places(types).items():
        rest = dims.substitute(place.rest, result)
        count = shapes[place.input][place.axis] - rest
        if not isinstance(count, int) or count % place.scale or count // place.scale < 0:
            raise ShapeError(
                f"{listed[place.input]} must be {short(types[place.input])} with some "
                f"{symbol} >= 0, got shape {shapes[place.input]}"
            )
        result[symbol] = count // place.scale
    for name, type_, shape in zip(listed, types, shapes, strict=True):
        expected = type_.substitute(result).shape
        for axis, (wanted, size) in enumerate(zip(expected, shape, strict=True)):
            if isinstance(wanted, int) and wanted != size:
                bound = ", ".join(
                    f"{s} = {result[s]}" for s in sorted(dims.symbols(type_.shape[axis]))
                )
                raise ShapeError(
                    f"{name} must be {short(type_)}{f' with {bound}' if bound else ''}: axis "
                    f"{axis} should have size {wanted}, got shape {shape}"
                )
    return result
