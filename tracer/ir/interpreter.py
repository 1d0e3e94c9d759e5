"""Runs a graph node by node through the operators' references: the oracle for every pass, kernel
and export.

Knows the graph and the references. Must not know kernels; nothing compiled ever falls back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ops import dims
from ops.dims import Dim
from ops.errors import ArgumentError, DTypeError, ShapeError, TracerError
from ops.types import Type, dtype_name, is_floating, short
from tracer.ir.graph import Graph, Node, evaluate
from tracer.ir.symbols import bind

Array = np.ndarray[Any, Any]
Symbols = Mapping[str, int | Dim]


def interpret(
    graph: Graph, arrays: Sequence[Any], *, symbols: Mapping[str, int] | None = None
) -> list[Array]:
    """The graph's outputs for given inputs, computed by the operators' references.

    Values are freed after their last use. Results share no memory with the inputs or each other.

    Args:
        graph: What is run.
        arrays: One for each input: of its element type, and of a shape that its type allows. A
            Python number may stand for a 0-d array.
        symbols: Values of symbolic sizes that the shapes of the inputs do not determine.

    Raises:
        ArgumentError: There are too many or too few arrays.
        DTypeError: An array has another element type than the input.
        ShapeError: A shape does not fit, or a symbol has no value.

    >>> graph = tracer.trace(lambda x: -x).ir(np.zeros(2))
    >>> tracer.interpret.interpret(graph, [np.array([1.0, 2.0])])
    [array([-1., -2.])]
    """
    if len(arrays) != len(graph.inputs):
        raise ArgumentError(f"the graph has {len(graph.inputs)} inputs, got {len(arrays)} arrays")
    names = tuple(name or f"input {k}" for k, name in enumerate(graph.input_names))
    given = [
        _array(a, v.type, name) for a, v, name in zip(arrays, graph.inputs, names, strict=True)
    ]
    values = dict(symbols or {})
    values.update(bind([v.type for v in graph.inputs], [a.shape for a in given], names))
    return _owned(_run(graph, given, values), given)


def _array(given: Any, type_: Type, name: str) -> Array:
    if isinstance(given, bool | int | float) and type_.rank == 0:
        # A Python number becomes what the input is, unless that cannot hold numbers of its kind.
        widest = float if is_floating(type_.dtype) else bool if type_.dtype == "bool" else int
        if not isinstance(given, (bool, int, float)[: (bool, int, float).index(widest) + 1]):
            raise DTypeError(f"{name} must be {short(type_)}, got {given!r}")
        return np.asarray(np.asarray(given).astype(type_.numpy))
    array = np.asarray(given)
    dtype = dtype_name(array.dtype)
    if dtype != type_.dtype:
        raise DTypeError(f"{name} must be {short(type_)}, got {dtype}{list(array.shape)}")
    return array


def _owned(results: list[Array], inputs: list[Array]) -> list[Array]:
    """The results, copied where they share memory with an input, a constant or one another."""
    seen = {id(a) for a in inputs}
    owned = []
    for array in results:
        if not (array.flags.owndata and array.flags.writeable) or id(array) in seen:
            array = array.copy()
        seen.add(id(array))
        owned.append(array)
    return owned


def _run(graph: Graph, arrays: Sequence[Array], symbols: Symbols) -> list[Array]:
    return evaluate(graph, arrays, lambda n, xs: _apply(n, xs, symbols), release=True)


def _apply(node: Node, arrays: Sequence[Array], symbols: Symbols) -> tuple[Array, ...]:
    attrs: dict[str, Any] = {k: _substituted(v, symbols, node) for k, v in node.attrs.items()}
    for name, block in zip(node.op.block_names, node.blocks, strict=True):
        attrs[name] = _callable(block, symbols)
    result = node.op.reference(*arrays, **attrs)
    results = result if isinstance(result, tuple) else (result,)
    if len(results) != len(node.outputs):
        raise TracerError(
            f"the reference of {node.op.name} gave {len(results)} results instead of "
            f"{len(node.outputs)}"
        )
    return tuple(
        _checked(array, value.type.substitute(symbols) if symbols else value.type, node)
        for array, value in zip(results, node.outputs, strict=True)
    )


def _callable(block: Graph, symbols: Symbols) -> Callable[..., tuple[Array, ...]]:
    return lambda *arrays: tuple(_run(block, arrays, symbols))


def _substituted(value: Any, symbols: Symbols, node: Node) -> Any:
    """An attribute with symbols replaced by their values."""
    if isinstance(value, tuple):
        return tuple(_substituted(v, symbols, node) for v in value)
    if not isinstance(value, Dim):
        return value
    size = dims.substitute(value, symbols)
    if isinstance(size, Dim):
        listed = ", ".join(sorted(dims.symbols(size)))
        raise ShapeError(
            f"{node.op.name}: the size {value} has no value: nothing determines {listed}; pass "
            "symbols={...}"
        )
    return size


def _checked(result: Any, type_: Type, node: Node) -> Array:
    """A reference's result, held to its type rule."""
    array = np.asarray(result)
    if array.dtype != type_.numpy or array.shape != type_.shape:
        raise TracerError(
            f"the reference of {node.op.name} gave {array.dtype}{list(array.shape)}, its type rule "
            f"says {short(type_)}"
        )
    return array
