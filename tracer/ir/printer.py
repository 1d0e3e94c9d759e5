"""The graph as text, one line for each node, in the form of torch.onnx's dumps.

Names are given here and nowhere else: a value without a name of its own gets its number in order of
definition. The text says everything: `parser` makes the identical graph of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from ops.forms import Form
from ops.operator import ArrayData
from tracer.ir.forms import arrays, form_text
from tracer.ir.graph import Graph, Node, Value
from tracer.ir.literals import (
    FormatArray,
    array_text,
    attribute_text,
    comment_text,
    digest,
    inline_array_text,
    is_plain_name,
    is_small,
    quoted,
    scope_text,
)

Names = dict[Value, str]


def names(graph: Graph, output_names: Sequence[str] = ()) -> Names:
    """The printed name of every value of the graph, without the percent sign.

    Inputs keep their names if these are plain and no other input has the same; `output_names` name
    the results. A block is closed and has names of its own: it reads the same wherever it stands.

    >>> graph = tracer.trace(lambda x: -x).ir(np.zeros(2))
    >>> list(tracer.ir.names(graph).values())
    ['x', '1']
    """
    result: Names = {}
    seen: set[str] = set()
    for value, name in _named_inputs(graph):
        plain = is_plain_name(name) and name not in seen
        seen.add(name)
        result[value] = name if plain else str(len(result))
    for node in graph.nodes:
        for value in node.outputs:
            result[value] = str(len(result))
    for value, name in zip(graph.outputs, output_names, strict=False):
        if value not in graph.inputs and name not in seen and is_plain_name(name):
            result[value] = name
            seen.add(name)
    return result


def _named_inputs(graph: Graph) -> Iterator[tuple[Value, str]]:
    """Inputs with their names; graphs that break this rule print too, for the message about it."""
    given = graph.input_names[: len(graph.inputs)]
    yield from zip_longest(graph.inputs, given, fillvalue="")


def line(node: Node, known: Names, array: FormatArray = array_text) -> str:
    """The node as one line, without its blocks.

    >>> graph = tracer.trace(lambda x: -x).ir(np.zeros(2))
    >>> tracer.ir.line(graph.nodes[0], tracer.ir.names(graph))
    '%1 : Double(2) = Neg(%x)  # ...'
    """
    results = ", ".join(f"%{known.get(v, '?')} : {v.type}" for v in node.outputs)
    # What has a default is shown where it differs: readers of the text get it back from the declaration.
    shown = {
        k: v
        for k, v in node.attrs.items()
        if (v is not False and v is not None) or node.op.attributes[k].default is not v
    }
    attrs = ", ".join(f"{k}={_attribute_text(v, array)}" for k, v in shown.items())
    operands = ", ".join("%" + known.get(v, "?") for v in node.inputs)
    given = f"{results} = " if results else "= "
    text = f"{given}{node.op.name}{f'[{attrs}]' if attrs else ''}({operands})"
    origin = node.origin
    if origin.scope:
        text += f", scope: {scope_text(origin.scope)}"
    if origin.gradient:
        text += (
            f"  # gradient of {comment_text(origin.source)}" if origin.source else "  # gradient"
        )
    elif origin.source:
        text += f"  # {comment_text(origin.source)}"
    return text


def _attribute_text(value: Any, array: FormatArray) -> str:
    return form_text(value, array) if isinstance(value, Form) else attribute_text(value, array)


def lines(
    graph: Graph,
    array: FormatArray = array_text,
    output_names: Sequence[str] = (),
    indent: str = "",
) -> Iterator[tuple[str, Node | None]]:
    """The lines of the text, each with the node that it shows, if any."""
    known = names(graph, output_names)
    head = f"{indent}graph("
    opening = ") {" + (f"  # {comment_text(graph.name)}" if graph.name else "")
    for position, (value, name) in enumerate(_named_inputs(graph)):
        printed = known.get(value, "?")
        kept = f" {quoted(name)}" if (name and name != printed) or name.isdigit() else ""
        last = position == len(graph.inputs) - 1
        yield f"{head}%{printed}{kept} : {value.type}{opening if last else ''}", None
        head = " " * len(head)
    if not graph.inputs:
        yield head + opening, None
    for node in graph.nodes:
        yield f"{indent}  {line(node, known, array)}", node
        for block in node.blocks:
            yield from lines(block, array, (), indent + "    ")
    results = ", ".join("%" + known.get(v, "?") for v in graph.outputs)
    yield f"{indent}  return ({results});", None
    yield f"{indent}}}", None


def to_text(graph: Graph, *, inline: bool = False, output_names: Sequence[str] = ()) -> str:
    """The graph as text that `parse` reads back.

    Arrays of more than 16 elements are written as the hash of their content, which `constants`
    resolves; with `inline` all of them are written out. `output_names` name the results in the text
    only.

    Args:
        graph: What is printed.
        inline: Write large arrays out too, so that the text stands alone.
        output_names: Names for the graph's results, in order.

    >>> graph = tracer.onnx.to_graph(tracer.nn.ReLU(), tracer.zeros(3)).graph
    >>> print(tracer.ir.to_text(graph), end="")
    graph(%x : Float(3)) {  # ReLU
      %1 : Float(3) = Relu(%x), scope: ReLU  # ...
      return (%1);
    }
    """
    array = inline_array_text if inline else array_text
    return "\n".join(text for text, _ in lines(graph, array, output_names)) + "\n"


def constants(graph: Graph) -> dict[str, ArrayData]:
    """The arrays that the text names by hash, by hash: what `parse` needs beside the text.

    >>> graph = tracer.trace(lambda x: x + tracer.tensor(list(range(20)))).ir(np.zeros(20))
    >>> [array.shape for array in tracer.ir.constants(graph).values()]
    [(20,)]
    """
    result: dict[str, ArrayData] = {}
    pending = [graph]
    while pending:
        current = pending.pop()
        for node in current.nodes:
            pending.extend(node.blocks)
            for value in node.attrs.values():
                found = arrays(value) if isinstance(value, Form) else [value]
                for array in found:
                    if isinstance(array, ArrayData) and not is_small(array):
                        result[digest(array)] = array
    return result
