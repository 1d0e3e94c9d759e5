"""Graphs as ONNX models, in standard operators only.

The one package that knows the format; `onnx` itself is imported when something is exported. Must
not know how graphs are transformed or compiled.
"""

from __future__ import annotations

import typing as _typing

from tracer.core.lazy_imports import lazily as _lazily
from tracer.onnx.api import DEFAULT_OPSET as DEFAULT_OPSET
from tracer.onnx.api import OPSETS as OPSETS
from tracer.onnx.api import export as export
from tracer.onnx.api import export_graph as export_graph
from tracer.onnx.api import to_graph as to_graph
from tracer.onnx.targets import Exportable as Exportable

if not _typing.TYPE_CHECKING:
    __getattr__, __dir__, __all__ = _lazily(__name__, {})
