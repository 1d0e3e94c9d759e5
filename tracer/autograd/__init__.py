"""Gradients: the history that operations leave, and the engine that walks it back.

`backward` and `grad` work on Tensors with history, as PyTorch's; the functional forms are `tracer.grad`, `value_and_grad`,
`vjp` ... in `functional`. Must not know traces: what differs there is asked of `MODES.interpreter`.
"""

from __future__ import annotations

import typing as _typing

from tracer.autograd import graph as graph
from tracer.autograd import tensor_methods as _tensor_methods  # noqa: F401 - completes Tensor
from tracer.autograd.anomaly import detect_anomaly as detect_anomaly
from tracer.autograd.anomaly import is_anomaly_enabled as is_anomaly_enabled
from tracer.autograd.anomaly import set_detect_anomaly as set_detect_anomaly
from tracer.autograd.engine import backward as backward
from tracer.autograd.engine import grad as grad
from tracer.autograd.function import Function as Function
from tracer.autograd.function import once_differentiable as once_differentiable
from tracer.autograd.variable import Variable as Variable
from tracer.core.lazy_imports import lazily as _lazily

if _typing.TYPE_CHECKING:
    from tracer.autograd.finite_differences import gradcheck as gradcheck
    from tracer.autograd.finite_differences import gradgradcheck as gradgradcheck
else:
    __getattr__, __dir__, __all__ = _lazily(
        __name__,
        dict.fromkeys(("gradcheck", "gradgradcheck"), "tracer.autograd.finite_differences"),
        modules=("graph",),
    )
