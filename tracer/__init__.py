"""JIT-compiled tracing for Python: record, differentiate, fuse, compile and export programs.

Users import this package only; `ops` and `codegen` beside it are its engines.
"""

# ruff: noqa: E402 - the engines are checked before anything is imported from them

from __future__ import annotations

import importlib.util as _util
import pathlib as _pathlib
import typing as _typing


def _check_engines() -> None:
    """Raise ImportError when `ops` or `codegen` is somebody else's package of the same name."""
    here = _pathlib.Path(__file__).resolve().parent.parent
    for name in ("ops", "codegen"):
        spec = _util.find_spec(name)
        found = (
            _pathlib.Path(spec.origin).resolve().parent
            if spec is not None and spec.origin
            else None
        )
        if found != here / name:
            where = (spec.origin if spec is not None else None) or "nowhere"
            raise ImportError(
                f"tracer needs its own package {name!r} from {here / name}, but Python finds "
                f"{where}: another package of that name shadows it. Uninstall it, or put {here} "
                "first on sys.path."
            )


_check_engines()

from codegen.runtime import get_num_threads as get_num_threads
from codegen.runtime import set_num_threads as set_num_threads
from ops import table as _table  # noqa: F401
from tracer import autograd as autograd
from tracer import errors as errors
from tracer import random as random
from tracer.autograd.functional import grad as grad
from tracer.autograd.functional import hvp as hvp
from tracer.autograd.functional import jvp as jvp
from tracer.autograd.functional import value_and_grad as value_and_grad
from tracer.autograd.functional import vjp as vjp
from tracer.autograd.jacobians import hessian as hessian
from tracer.autograd.jacobians import jacobian as jacobian
from tracer.autograd.variable import Variable as Variable
from tracer.core.config import configure_logging as _configure_logging
from tracer.core.lazy_imports import lazily as _lazily
from tracer.custom.operators import op as op
from tracer.errors import *  # noqa: F403 - it holds nothing else
from tracer.functions.activation import *  # noqa: F403 - each module of functions lists its names in __all__
from tracer.functions.arithmetic import *  # noqa: F403
from tracer.functions.creation import *  # noqa: F403
from tracer.functions.dtype_constants import *  # noqa: F403
from tracer.functions.dtype_queries import *  # noqa: F403
from tracer.functions.einsum import *  # noqa: F403
from tracer.functions.gather_scatter import *  # noqa: F403
from tracer.functions.joining import *  # noqa: F403
from tracer.functions.linear_algebra import *  # noqa: F403
from tracer.functions.logic import *  # noqa: F403
from tracer.functions.methods import attach as _methods
from tracer.functions.movement import *  # noqa: F403
from tracer.functions.ranges import *  # noqa: F403
from tracer.functions.reductions import *  # noqa: F403
from tracer.functions.setitem import *  # noqa: F403
from tracer.functions.slice_scatter import *  # noqa: F403
from tracer.functions.transcendental import *  # noqa: F403
from tracer.interop.name_hints import hint as _hint
from tracer.interop.numpy_protocol import attach as _attach_numpy
from tracer.random import Generator as Generator
from tracer.random import manual_seed as manual_seed
from tracer.random import rand as rand
from tracer.random import randint as randint
from tracer.random import randn as randn
from tracer.runtime.memory_stats import empty_cache as empty_cache
from tracer.runtime.memory_stats import max_memory_reserved as max_memory_reserved
from tracer.runtime.memory_stats import memory_allocated as memory_allocated
from tracer.runtime.memory_stats import memory_reserved as memory_reserved
from tracer.runtime.memory_stats import reset_peak_memory_stats as reset_peak_memory_stats
from tracer.tensors.grad_mode import enable_grad as enable_grad
from tracer.tensors.grad_mode import inference_mode as inference_mode
from tracer.tensors.grad_mode import is_grad_enabled as is_grad_enabled
from tracer.tensors.grad_mode import is_inference_mode_enabled as is_inference_mode_enabled
from tracer.tensors.grad_mode import no_grad as no_grad
from tracer.tensors.grad_mode import set_grad_enabled as set_grad_enabled
from tracer.tensors.tensor import Tensor as Tensor
from tracer.tracing import trace as trace

_configure_logging()
_methods.attach()
_attach_numpy()
__version__ = "0.1.0"
if _typing.TYPE_CHECKING:
    from tracer import checkpoint as checkpoint
    from tracer import graph as graph
    from tracer import interpret as interpret
    from tracer import ir as ir
    from tracer import nn as nn
    from tracer import onnx as onnx
    from tracer import optim as optim
    from tracer.checkpoint import *  # noqa: F403
else:
    _packages = ("checkpoint", "graph", "interpret", "ir", "nn", "onnx", "optim")
    _saving = ("load_checkpoint", "load_file", "save_checkpoint", "save_file")
    __getattr__, __dir__, __all__ = _lazily(
        __name__,
        {name: f"tracer.{name}" for name in _packages}
        | dict.fromkeys(_saving, "tracer.checkpoint"),
        _hint,
        ("autograd", "errors", "random"),
    )
