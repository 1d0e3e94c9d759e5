"""Results of a traced function that are no Tensors and would not work when the trace is over: code that has not run, and objects
that hold Tensors of the trace.

Must not know how results are given back.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from ops.errors import TraceError
from tracer.tracing.state.side_effects import place_of_computed


def refuse_unfinished(x: Any, is_computed: Callable[[Any], bool]) -> None:
    """Raise `TraceError` for a result whose code has not run yet, or that holds Tensors of the trace where nobody looks."""
    if isinstance(x, types.GeneratorType | types.CoroutineType | types.AsyncGeneratorType):
        raise TraceError(
            f"a traced function returns its results, got a {type(x).__name__}, whose code would run after the trace; "
            "return a list or a tuple, and trace the function that the loop or `await` calls"
        )
    where = place_of_computed(x, is_computed)
    if where is not None:
        raise TraceError(
            f"a traced function returns or assigns a {type(x).__name__}{where} a Tensor that it computes; return "
            "Tensors by themselves, or in tuples, lists, dicts and other trees (optree.register_pytree_node)"
        )
