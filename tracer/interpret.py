"""The interpreter of graphs under the name by which users import it; it lives in `tracer.ir`."""

from __future__ import annotations

from tracer.ir.interpreter import interpret as interpret

__all__ = ["interpret"]
