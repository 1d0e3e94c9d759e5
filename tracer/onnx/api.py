"""`tracer.onnx.export`: what a user calls. Imports `onnx` only when called.

Knows what can be exported and where files go. Must not know the format.
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ops.errors import ExportError
from tracer.ir import to_text
from tracer.ir.graph import Graph
from tracer.ir.symbols import bind
from tracer.nn.module import Module
from tracer.onnx.dynamic import NONE, Aliases
from tracer.onnx.targets import Exportable, function_graph, module_graph
from tracer.tracing import TracedFunction

if TYPE_CHECKING:
    from onnx import ModelProto

# Opsets that the exporter writes, and the one it writes unless asked otherwise: recent, and read by
# runtimes for some years.
OPSETS = range(17, 24)
DEFAULT_OPSET = 21


def to_graph(
    target: Any, args: Any = None, dynamic_shapes: Any = None, aliases: Aliases = NONE
) -> Exportable:
    """What a target is as a graph, with the values of its state and names of its results.

    Graphs are themselves; their sizes are as symbolic as they were recorded. `dynamic_shapes`: which
    sizes may change, as in `export`.

    Raises:
        ExportError: The target is none that can be exported, or the arguments do not fit it.

    >>> print(tracer.onnx.to_graph(tracer.nn.ReLU(), tracer.zeros(3)).graph, end="")
    graph(%x : Float(3)) {  # ReLU
      %1 : Float(3) = Relu(%x), scope: ReLU  # ...
      return (%1);
    }
    """
    if isinstance(target, Graph):
        if dynamic_shapes:
            raise ExportError(
                "a graph's sizes are fixed when it is recorded; record it with symbolic sizes "
                "instead of passing dynamic_shapes"
            )
        _check_arguments(target, args)
        return Exportable(target)
    if isinstance(target, Module):
        return module_graph(target, args, dynamic_shapes, aliases)
    if isinstance(target, TracedFunction):
        return function_graph(target, args, dynamic_shapes, aliases)
    if callable(target):
        return function_graph(TracedFunction(target), args, dynamic_shapes, aliases)
    raise ExportError(
        f"{type(target).__name__} cannot be exported; export a Graph, a Module or a traced function"
    )


def _check_arguments(graph: Graph, args: Any) -> None:
    """Example arguments are not needed for a graph; given, they must fit."""
    import numpy as np

    if args is None:
        return
    arrays = [np.asarray(a) for a in (args if isinstance(args, tuple | list) else (args,))]
    if arrays and len(arrays) != len(graph.inputs):
        raise ExportError(f"the graph has {len(graph.inputs)} inputs, got {len(arrays)} arguments")
    if arrays:
        bind([v.type for v in graph.inputs], [a.shape for a in arrays], graph.input_names)


def export_graph(
    graph: Graph,
    *,
    opset: int = DEFAULT_OPSET,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    initializers: Mapping[str, Any] | None = None,
    custom_opsets: Mapping[str, int] | None = None,
) -> ModelProto:
    """The graph as an ONNX model.

    Args:
        graph: What is exported. Its symbolic sizes are dimension parameters of the model.
        opset: Version of ONNX's operator set, 17 to 23.
        input_names: Names of the inputs, instead of the graph's own.
        output_names: Names of the results, instead of those in the graph's text.
        initializers: Values of inputs, by name, that become part of the model.
        custom_opsets: Versions of other domains that the graph's own operators name, 1 unless given.

    Raises:
        ExportError: An operator has no ONNX form, or the names or values do not fit; the message
            has the line of the user's code.

    >>> exported = tracer.onnx.to_graph(tracer.nn.Linear(3, 4), tracer.zeros((2, 3)))
    >>> model = tracer.onnx.export_graph(exported.graph, opset=20)
    >>> model.opset_import[0].version
    20
    """
    if opset not in OPSETS:
        raise ExportError(f"opset_version must be {OPSETS[0]} to {OPSETS[-1]}, got {opset!r}")
    try:
        from tracer.onnx import exporter
    except ImportError as error:
        raise ExportError(
            f"exporting needs the package onnx (pip install onnx): {error}"
        ) from error
    return exporter.export_graph(
        graph,
        opset=opset,
        input_names=input_names,
        output_names=output_names,
        initializers=initializers,
        custom_opsets=_checked_opsets(custom_opsets),
    )


def _checked_opsets(given: Mapping[str, int] | None) -> dict[str, int]:
    for domain, version in (given or {}).items():
        if domain in ("", "onnx", "ai.onnx"):
            raise ExportError("custom_opsets is for other domains; for ONNX's own: opset_version")
        if not isinstance(domain, str) or not isinstance(version, int) or version < 1:
            raise ExportError(
                f"custom_opsets gives versions by domain, got {domain!r}: {version!r}"
            )
    return dict(given or {})


def export(
    target: Any,
    args: Any = None,
    path: str | os.PathLike[str] | Any = None,
    *,
    verbose: bool = False,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    dynamic_shapes: Any = None,
    dynamic_axes: Any = None,
    opset_version: int | None = None,
    export_params: bool = True,
    custom_opsets: Mapping[str, int] | None = None,
) -> ModelProto:
    """Write a target as an ONNX model, in standard operators and those that its own functions name.

    Args:
        target: A graph.
        args: Example arguments, a tuple unless there is one.
        path: The file, or a binary file object; None writes nothing.
        verbose: Print the graph's text.
        input_names: Names of all inputs in order: state first, then arguments.
        output_names: Names of all results in order.
        dynamic_shapes: Which sizes may change.
        dynamic_axes: The same under its older name.
        opset_version: Version of ONNX's operator set, 17 to 23; 21 unless given.
        export_params: Make parameters part of the model; otherwise they are inputs.
        custom_opsets: Versions of other domains than ONNX's, which only custom functions name; 1
            unless given.

    Returns:
        The model.

    Raises:
        ExportError: Something has no ONNX form, or the file cannot be written. No partial file is
            left.

    >>> model = tracer.onnx.export(tracer.nn.Linear(3, 4), tracer.zeros((2, 3)), "linear.onnx")
    >>> [node.op_type for node in model.graph.node]
    ['Transpose', 'MatMul', 'Add']
    """
    if dynamic_shapes is not None and dynamic_axes is not None:
        raise ExportError("dynamic_shapes and dynamic_axes are one thing; pass one of them")
    _check_path(path)
    for what, names in (("input_names", input_names), ("output_names", output_names)):
        if isinstance(names, str):
            raise ExportError(f"{what} is a list of names, got {names!r}; write [{names!r}]")
    aliases = Aliases(tuple(input_names or ()), tuple(output_names or ()))
    dynamic = dynamic_axes if dynamic_shapes is None else dynamic_shapes
    found = to_graph(target, args, dynamic, aliases)
    graph, initial = found.graph, dict(found.initializers) if export_params else {}
    if input_names is not None:
        graph, initial = _renamed(graph, tuple(input_names), initial)
    results: Sequence[str] | None = output_names
    if output_names is None and found.output_names:
        results = _distinct(found.output_names, graph.input_names)
    model = export_graph(
        graph,
        opset=DEFAULT_OPSET if opset_version is None else opset_version,
        output_names=results,
        initializers=initial,
        custom_opsets=custom_opsets,
    )
    if verbose:
        print(to_text(graph, output_names=results or ()), end="")
    if path is not None:
        _write(model.SerializeToString(deterministic=True), path)
    return model


def _renamed(
    graph: Graph, names: tuple[str, ...], initial: dict[str, Any]
) -> tuple[Graph, dict[str, Any]]:
    """The graph with these names of all inputs, or of those that have no value in the model."""
    old = graph.input_names
    free = [n for n in old if n not in initial]
    if len(set(names)) != len(names) or len(names) not in (len(old), len(free)):
        also = f", or {len(free)}, for those that are no part of the model" if initial else ""
        raise ExportError(
            f"input_names must be {len(old)} different names, one for each input{also}; got {names}"
        )
    new = dict(zip(old if len(names) == len(old) else free, names, strict=True))
    for name in old:
        if name not in new:
            new[name] = name
            while new[name] in names:
                new[name] += "_"
    renamed = replace(graph, input_names=tuple(new[n] for n in old), _cache={})
    return renamed, {new[n]: value for n, value in initial.items()}


def _distinct(names: Sequence[str], taken: Sequence[str]) -> list[str]:
    """The names of results, other ones where inputs have them."""
    result: list[str] = []
    for name in names:
        while name in taken or name in result:
            name += "_"
        result.append(name)
    return result


def _check_path(path: Any) -> None:
    """Fail before the work is done, not after."""
    if isinstance(path, io.TextIOBase):
        raise ExportError(
            "a model is written to a binary file, got one for text; open it with mode 'wb'"
        )
    if path is None or hasattr(path, "write"):
        return
    if not isinstance(path, str | os.PathLike):
        raise ExportError(f"the path must be a file name or a binary file, got {path!r}")
    file = Path(path)
    if file.is_dir():
        raise ExportError(f"{file} is a folder; give the name of a file")
    if not file.parent.is_dir():
        raise ExportError(f"the folder {file.parent} does not exist; make it first")


def _write(data: bytes, path: Any) -> None:
    """All of the file or nothing: written beside its place, then moved there."""
    if hasattr(path, "write"):
        path.write(data)
        return
    target = Path(path)
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        # mkstemp makes files that only their owner reads.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        raise ExportError(f"{target} cannot be written: {error.strerror or error}") from error
