"""Calls of Functions in a trace: while it runs, their nodes are recorded like all others; when it is over, those of each call are
kept together as the body of one node, `Call`.

A body is closed, so which of its values are used outside must be known: that is so at the end only. Knows graphs. Must not know
what a Function is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ops.attributes import Attributes
from ops.forms import Form
from ops.operator import lookup
from tracer.ir.graph import Graph, GraphBuilder, Node, Origin, Value


@dataclass(slots=True)
class Site:
    """A call that was recorded: its nodes, arguments and results. `again(tensors)` calls the Function on other Tensors."""

    name: str
    origin: Origin
    nodes: tuple[Node, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    form: Form | None
    again: Callable[[Sequence[Any]], Any]


@dataclass(frozen=True, slots=True)
class Applied:
    """How to make a `Call` again on Tensors, with its own gradient: `again` takes the first `inputs` operands; `picked`: for each
    of the first results, its place among the Tensors that `again` gives."""

    again: Callable[[Sequence[Any]], Any]
    inputs: int
    picked: tuple[int, ...]


_FOR_EVER = 1 << 60


def fold(
    nodes: Sequence[Node], results: Iterable[Value], sites: Sequence[Site]
) -> tuple[tuple[Node, ...], dict[Node, Applied]]:
    """The nodes with those of each site as one, inner sites first; and how to make these again."""
    if not sites:
        return tuple(nodes), {}
    place = {node: k for k, node in enumerate(nodes)}
    last_use: dict[Value, int] = {}
    for k, node in enumerate(nodes):
        last_use.update(dict.fromkeys(node.inputs, k))
    last_use.update(dict.fromkeys(results, _FOR_EVER))
    slots: list[Node | None] = list(nodes)
    applied: dict[Node, Applied] = {}
    for site in sites:
        places = [place[node] for node in site.nodes if node in place]
        if not places:
            continue  # of a gradient that was cut off
        start, stop = places[0], places[-1] + 1
        inside = [node for node in slots[start:stop] if node is not None]
        call, how = _call(site, inside, stop, last_use)
        applied[call] = how
        slots[start:stop] = [call, *[None] * (stop - start - 1)]
    return tuple(node for node in slots if node is not None), applied


def _call(
    site: Site, inside: list[Node], stop: int, last_use: dict[Value, int]
) -> tuple[Node, Applied]:
    made = {v: None for node in inside for v in node.outputs}
    outputs: dict[Value, None] = {}
    picked: list[int] = []
    for k, v in enumerate(site.outputs):
        if v in made and v not in outputs:  # what comes from outside, or twice, needs no result
            outputs[v] = None
            picked.append(k)
    form = site.form
    if form is not None:
        form = form.picked(picked)
    outputs.update((v, None) for v in made if last_use.get(v, -1) >= stop)
    read = dict.fromkeys(v for node in inside for v in node.inputs if v not in made)
    inputs = [*site.inputs, *(v for v in read if v not in site.inputs)]
    body = GraphBuilder()
    arguments: dict[Value, Value] = {}
    for v in inputs:
        argument = body.input(v.type)
        arguments.setdefault(v, argument)
    part = Graph(tuple(arguments), tuple(inside), tuple(outputs))
    block = body.build(body.inline(part, tuple(arguments.values())))
    attrs = Attributes(function=site.name, symbolic=form)
    call = Node(_CALL, tuple(inputs), attrs, tuple(outputs), site.origin, (block,))
    return call, Applied(site.again, len(site.inputs), tuple(picked))


_CALL = lookup("Call")
