"""JIT-compiled tracing for Python: record, differentiate, fuse, compile and export numerical programs.

Users import this package only; `ops` and `codegen` beside it are its engines.
"""

from __future__ import annotations

import importlib.util as _util
import pathlib as _pathlib


def _check_engines() -> None:
    """Raise ImportError when `ops` or `codegen` is somebody else's package of the same name."""
    here = _pathlib.Path(__file__).resolve().parent.parent
    for name in ("ops", "codegen"):
        spec = _util.find_spec(name)
        found = _pathlib.Path(spec.origin).resolve().parent if spec is not None and spec.origin else None
        if found != here / name:
            where = found or "nowhere"
            raise ImportError(
                f"tracer needs its own package {name!r} from {here / name}, but Python finds {where}: another package "
                f"of that name shadows it. Uninstall it, or put {here} first on sys.path."
            )


_check_engines()

from ops import table as _table
from tracer.config import configure_logging as _configure_logging
from tracer.errors import ArgumentError as ArgumentError
from tracer.errors import DTypeError as DTypeError
from tracer.errors import ExportError as ExportError
from tracer.errors import GradError as GradError
from tracer.errors import ParseError as ParseError
from tracer.errors import ShapeError as ShapeError
from tracer.errors import TraceError as TraceError
from tracer.errors import TracerError as TracerError
from tracer.errors import VerifyError as VerifyError
from tracer.modes import enable_grad as enable_grad
from tracer.modes import is_grad_enabled as is_grad_enabled
from tracer.modes import no_grad as no_grad
from tracer.tensor import Tensor as Tensor
from tracer.tracing import trace as trace

_configure_logging()
__version__ = "0.1.0"
