"""The errors that a user can cause; see `ops.errors`. Messages carry the line of the user's code."""

from __future__ import annotations

from ops.errors import AnomalyError as AnomalyError
from ops.errors import ArgumentError as ArgumentError
from ops.errors import BoundsError as BoundsError
from ops.errors import CheckpointError as CheckpointError
from ops.errors import DivisionError as DivisionError
from ops.errors import DTypeError as DTypeError
from ops.errors import ExportError as ExportError
from ops.errors import GradcheckError as GradcheckError
from ops.errors import GradError as GradError
from ops.errors import IntegerOverflowError as IntegerOverflowError
from ops.errors import ParseError as ParseError
from ops.errors import ShapeError as ShapeError
from ops.errors import TraceError as TraceError
from ops.errors import TracerError as TracerError
from ops.errors import VerifyError as VerifyError
