"""The functions of elements in one namespace, for the rest of `tracer`.

Each is defined in the module of its family.
"""

from __future__ import annotations

from tracer.functions.activation import *  # noqa: F403
from tracer.functions.applying import elementwise as elementwise
from tracer.functions.arithmetic import *  # noqa: F403
from tracer.functions.logic import *  # noqa: F403
from tracer.functions.transcendental import *  # noqa: F403
