"""The graph under the name by which users import it; it lives in `tracer.ir`."""

from __future__ import annotations

from tracer.ir.graph import Graph as Graph
from tracer.ir.graph import GraphBuilder as GraphBuilder
from tracer.ir.graph import Node as Node
from tracer.ir.graph import Origin as Origin
from tracer.ir.graph import Value as Value
