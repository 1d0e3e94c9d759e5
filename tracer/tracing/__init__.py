"""`@trace`: from a call to a graph, what it reads and changes outside, and the compiled programs kept for later calls.

Knows Python's objects, graphs and programs. Must not know modules by their class, nor any format.
"""

from __future__ import annotations

from tracer.tracing.programs.cache import Timings as Timings
from tracer.tracing.programs.paths import PathReport as PathReport
from tracer.tracing.traced_function import TracedFunction as TracedFunction
from tracer.tracing.traced_function import trace as trace
