"""Scalars of kernel text written down: what a printer puts where a value was known."""

from __future__ import annotations

from typing import Any

from codegen.vector.readings import scalar


def literal(element: str, x: Any) -> str:
    """A scalar as text: f32(0.5), i64(7), f32(nan)."""
    value = scalar(element, x).item()
    return repr(value) if element == "bool" else f"{element}({value!r})"
