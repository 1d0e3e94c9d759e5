"""Which sizes of the arguments are symbolic: what `dynamic_shapes` says, in each of its forms.

Knows argument leaves and their names. Must not know recording, nor the format.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ops.dims import Dim
from ops.errors import ExportError
from ops.types import Type
from tracer.tensors.tensor import intern
from tracer.tracing.arguments.signature import Leaf


@dataclass(frozen=True, slots=True)
class Aliases:
    """The names that inputs and results will have in the model, if they are given: dynamic_axes may use them too."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


NONE = Aliases()


def with_symbols(
    signature: Sequence[Leaf],
    names: Sequence[str],
    arguments: Sequence[str],
    dynamic_shapes: Any,
    aliases: Aliases,
) -> list[Leaf]:
    """The argument leaves with the sizes that may change as symbols.

    `names` are those of the leaves, such as `batch.x`, `arguments` those of the function's arguments in order, such as `batch`.

    Raises:
        ExportError: What is said does not fit the arguments.

    """
    axes_of: dict[int, Any] = {}
    for name, axes in _by_argument(dynamic_shapes, arguments, aliases):
        axes_of.update(_by_leaf(_argument(name, signature, names, aliases), axes, names))
    symbols: dict[int, dict[int, str]] = {}
    taken: dict[str, tuple[Any, str]] = {}  # sizes of the example, and whose they are
    for number in sorted(axes_of):
        leaf, name = signature[number], names[number]
        if axes_of[number] is None:
            continue
        if leaf.type is None:
            raise ExportError(f"dynamic_shapes names {name!r}, which is no Tensor")
        symbols[number] = dict(_symbols(axes_of[number], name, leaf.type))
        for axis, symbol in symbols[number].items():
            _check_size(taken, symbol, leaf.type.shape[axis], f"axis {axis} of {name!r}")
    result = list(signature)
    for number, chosen in symbols.items():
        type_ = signature[number].type
        assert type_ is not None
        shape = list(type_.shape)
        for axis, symbol in chosen.items():
            shape[axis] = Dim.symbol(symbol or _free(f"{names[number]}_{axis}", taken))
        symbolic = intern(Type(type_.dtype, tuple(shape), type_.weak))
        result[number] = replace(signature[number], type=symbolic)
    return result


def _by_argument(
    given: Any, arguments: Sequence[str], aliases: Aliases
) -> Iterator[tuple[str, Any]]:
    """What is said of each argument, by its name."""
    if given is None:
        return
    if isinstance(given, Mapping):
        for name, axes in given.items():
            if name not in aliases.outputs or name in arguments:  # sizes of results follow
                yield name, axes
    elif isinstance(given, list | tuple):
        if len(given) > len(arguments):
            raise ExportError(
                f"dynamic_shapes has {len(given)} entries for {len(arguments)} arguments"
            )
        yield from zip(arguments, given, strict=False)
    else:
        raise ExportError(
            "dynamic_shapes is a dict by the names of arguments, or a tuple with an entry for each, such as "
            f"({{0: 'batch'}}, None); got {given!r:.60}"
        )


def _argument(name: Any, signature: Sequence[Leaf], names: Sequence[str], aliases: Aliases) -> str:
    """The name of an argument or leaf, also where its name in the model is given."""
    if name in names or any(n.startswith(f"{name}.") for n in names):
        return str(name)
    inputs = [n for n, leaf in zip(names, signature, strict=True) if leaf.type is not None]
    last = aliases.inputs[-len(inputs) :] if inputs else ()
    if name in last and len(last) == len(inputs):
        return inputs[last.index(name)]
    raise ExportError(f"dynamic_shapes names {name!r}, but the arguments are {', '.join(names)}")


def _by_leaf(name: str, given: Any, names: Sequence[str]) -> Iterator[tuple[int, Any]]:
    """What is said of each leaf of an argument: trees of arguments have trees of axes."""
    if name in names:
        yield names.index(name), given
    elif isinstance(given, Mapping | list | tuple):
        parts = given.items() if isinstance(given, Mapping) else enumerate(given)
        for key, axes in parts:
            inner = f"{name}.{key}"
            if inner not in names and not any(n.startswith(f"{inner}.") for n in names):
                raise ExportError(
                    f"dynamic_shapes names {inner!r}, but the arguments are {', '.join(names)}"
                )
            yield from _by_leaf(inner, axes, names)
    elif given is not None:
        raise ExportError(
            f"dynamic_shapes of {name!r} follows its structure, got {given!r:.60}; the arguments are {', '.join(names)}"
        )


def _symbols(axes: Any, name: str, type_: Type) -> Iterator[tuple[int, str]]:
    """Axes that may change with their symbols, "" where any will do."""
    if isinstance(axes, Mapping):
        pairs = list(axes.items())
    elif not isinstance(axes, list | tuple | set | frozenset):
        raise ExportError(
            f"dynamic_shapes of {name!r} is a dict such as {{0: 'batch'}} or a list of axes, got {axes!r:.60}"
        )
    elif all(isinstance(a, int) for a in axes):
        pairs = [(a, "") for a in sorted(axes)]
    else:
        pairs = list(enumerate(axes))
    seen = set()
    for axis, symbol in pairs:
        if not isinstance(axis, int) or not -type_.rank <= axis < type_.rank:
            raise ExportError(
                f"dynamic_shapes names axis {axis!r} of {name!r}, which has {type_.rank} axes"
            )
        if axis % type_.rank in seen:
            raise ExportError(f"dynamic_shapes names axis {axis} of {name!r} twice")
        seen.add(axis % type_.rank)
        if isinstance(symbol, Dim):
            symbol = str(symbol)
        if isinstance(symbol, int) and not isinstance(symbol, bool):
            if symbol != type_.shape[axis]:
                raise ExportError(
                    f"dynamic_shapes says that axis {axis} of {name!r} is {symbol}, the example has {type_.shape[axis]}"
                )
        elif isinstance(symbol, str):
            if symbol and (not symbol.isidentifier() or symbol == "max"):
                raise ExportError(
                    f"dynamic_shapes: the size of axis {axis} of {name!r} is named by an identifier, got {symbol!r}"
                )
            yield axis % type_.rank, symbol
        elif symbol is not None:
            raise ExportError(
                f"dynamic_shapes: the size of axis {axis} of {name!r} is a name, or None where it is fixed; got {symbol!r:.60}"
            )


def _check_size(taken: dict[str, tuple[Any, str]], symbol: str, size: Any, what: str) -> None:
    """Raise `ExportError` where one name stands for two sizes."""
    known, first = taken.setdefault(symbol, (size, what)) if symbol else (size, what)
    if known != size:
        raise ExportError(
            f"dynamic_shapes calls {first}, of size {known}, and {what}, of size {size}, both {symbol!r}: a name stands for "
            "one size"
        )


def _free(name: str, taken: dict[str, tuple[Any, str]]) -> str:
    """An identifier like this name that no other size has."""
    plain = re.sub(r"\W", "_", name)
    plain = plain if plain.isidentifier() else f"_{plain}"
    while plain in taken:
        plain += "_"
    taken[plain] = 0, name
    return plain
