"""Passes: functions from a graph to a graph, and the order in which they run.

A pass states why it is safe. `PIPELINE` is the whole order; with TRACER_CHECK=1 the graph is verified after each. Must not know
kernels, memory or Tensors.
"""

from __future__ import annotations

from collections.abc import Callable

from tracer.core.config import CONFIG
from tracer.ir.graph import Graph
from tracer.passes.common_subexpressions import share_subexpressions
from tracer.passes.dead_code import remove_dead_code
from tracer.passes.decompose import decompose
from tracer.passes.inline_calls import inline_calls
from tracer.passes.rematerialize_scalars import spread_scalars
from tracer.passes.simplify import simplify

Pass = Callable[[Graph], Graph]

PIPELINE: tuple[Pass, ...] = (
    inline_calls,  # the rest sees flat graphs, except for control flow
    remove_dead_code,  # before anything is expanded: gradients nobody asked for go
    decompose,  # composites to what kernels compute
    simplify,  # rewrites that change no bit
    share_subexpressions,  # equal computations once
    spread_scalars,  # after sharing: learning rates and the like go into every kernel that needs them
    remove_dead_code,
)


def run(graph: Graph, passes: tuple[Pass, ...] = PIPELINE) -> Graph:
    """The graph after all passes."""
    for step in passes:
        graph = step(graph)
        if CONFIG.check:
            from tracer.ir import verify

            verify(graph)
    return graph
