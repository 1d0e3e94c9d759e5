"""The errors that a user can cause. Each is also the builtin exception that fits.

A message says what was expected, what came and what to do; `tracer` adds the line of the user's code.
"""

from __future__ import annotations


class TracerError(Exception):
    """Base class of every error raised on purpose by this library."""


class ShapeError(TracerError, ValueError):
    """Shapes, axes or sizes do not fit."""


class BoundsError(TracerError, IndexError):
    """An index that is out of range."""


class DivisionError(TracerError, ZeroDivisionError):
    """A division of integers by zero."""


class IntegerOverflowError(TracerError, OverflowError):
    """A result that the integer type cannot hold."""


class DTypeError(TracerError, TypeError):
    """An element type does not fit the operator."""


class ArgumentError(TracerError, TypeError):
    """An argument is of a kind that the function cannot take."""


class TraceError(TracerError, RuntimeError):
    """Something that cannot be recorded while a function is traced."""


class GradError(TracerError, RuntimeError):
    """A gradient that cannot be computed."""


class AnomalyError(TracerError, FloatingPointError):
    """The first nan or infinity that appeared, in anomaly mode."""


class GradcheckError(GradError):
    """An analytical gradient that differs from the numerical one."""


class ExportError(TracerError, ValueError):
    """A graph that cannot be exported."""


class ParseError(TracerError, ValueError):
    """Text that is not the IR."""


class VerifyError(TracerError, ValueError):
    """A graph that breaks an invariant of the IR."""


class CheckpointError(TracerError, ValueError):
    """A file of weights or a checkpoint that cannot be read or written."""
