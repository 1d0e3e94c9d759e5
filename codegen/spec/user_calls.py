"""Which functions of the user's a specification calls, and with what. Must not know how they are compiled."""

from __future__ import annotations

from collections.abc import Mapping

from codegen.spec.analysis import lane_element
from codegen.spec.kernel_spec import KernelSpec, Let
from codegen.text.source import identifiers
from codegen.user_functions.lane_function import LaneFunction, lane_function
from ops.compute import ScalarFunction


def names(spec: KernelSpec) -> Mapping[str, LaneFunction]:
    """The users' functions that a spec calls, by name."""
    return {f.name: lane_function(f) for f in spec.functions}


def calls(spec: KernelSpec) -> dict[tuple[ScalarFunction, str], None]:
    """(function, lane element) of each call."""
    by_name = {f.name: f for f in spec.functions}
    return {
        (by_name[name], lane_element(s.dtype)): None
        for s in spec.statements
        if isinstance(s, Let)
        for name in identifiers(s.text)
        if name in by_name
    }
