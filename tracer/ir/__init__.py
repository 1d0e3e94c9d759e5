"""The graph as text, its identity, its invariants, and its gradient.

Knows the graph and the operators' records. Must not know how graphs are made or compiled.
"""

from __future__ import annotations

import typing as _typing

from ops.dims import Dim as Dim
from ops.types import Type as Type
from tracer.core.lazy_imports import lazily as _lazily
from tracer.ir.differentiation import Differentiated as Differentiated
from tracer.ir.differentiation import differentiate as differentiate
from tracer.ir.graph import Graph as Graph
from tracer.ir.graph import GraphBuilder as GraphBuilder
from tracer.ir.graph import Node as Node
from tracer.ir.graph import Origin as Origin
from tracer.ir.graph import Value as Value
from tracer.ir.interpreter import interpret as interpret
from tracer.ir.literals import INLINE_LIMIT as INLINE_LIMIT
from tracer.ir.literals import digest as digest
from tracer.ir.printer import constants as constants
from tracer.ir.printer import line as line
from tracer.ir.printer import names as names
from tracer.ir.printer import to_text as to_text
from tracer.ir.structure import equal as equal
from tracer.ir.structure import fingerprint as fingerprint
from tracer.ir.symbols import bind as bind
from tracer.ir.symbols import places as places
from tracer.ir.verifier import verify as verify

Graph.__str__ = to_text  # type: ignore[method-assign, assignment]  # the printer knows graphs, not the other way round
if _typing.TYPE_CHECKING:
    from tracer.ir.parser import parse as parse
else:
    __getattr__, __dir__, __all__ = _lazily(__name__, {"parse": "tracer.ir.parser"})
