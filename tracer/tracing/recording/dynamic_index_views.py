"""x[i] with an index that is known when the program runs: a copy in a trace, where eager code has a view.

What would show the difference is an error: the part is changed in place and not assigned to x[i] again, or it is used after x has
changed. Knows the Tensors of a running trace. Must not know how they are recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ops.errors import TraceError
from ops.types import short
from tracer.core.source_lines import user_line
from tracer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tracer.tracing.recording.functionalization import FunctionalState


@dataclass(frozen=True, slots=True)
class _DynamicIndexView:
    """A part, the base that it is of, that base's generation then, and the line."""

    tensor: Tensor
    base: Tensor
    generation: int
    line: str


class DynamicIndexViews:
    """The parts of one trace, by identity; `changed` are those that were changed in place, with the line."""

    def __init__(self, state: FunctionalState) -> None:
        self._state = state
        self._parts: dict[int, _DynamicIndexView] = {}
        self._changed: dict[int, str] = {}

    def add(self, part: Tensor, x: Tensor) -> None:
        """A part is x[i]."""
        base = x if x._view is None else x._view.base
        generation = self._state.shadow_of(base)._generation
        self._parts[id(part)] = _DynamicIndexView(part, base, generation, user_line())

    def change(self, tensor: Tensor) -> None:
        """A Tensor is changed in place: a part, a view of one, or something else."""
        for key in self._under(tensor):
            self._changed.setdefault(key, user_line())

    def assign(self, value: object) -> None:
        """A value is assigned to a part of a Tensor, as `x[i] += y` does in the end."""
        self._changed.pop(id(value), None)

    def check(self) -> None:
        """Raise `TraceError` for a part that was changed and not assigned."""
        for key, line in self._changed.items():
            raise _error(
                self._parts[key],
                "is changed in place: where i is known, x changes as well",
                "Write x[i] = ... or x[i] += ..., or change a copy of your own, x[i].clone()",
                line,
            )

    def read(self, tensor: Tensor) -> None:
        """Raise `TraceError` for a part that is used when x has changed since."""
        for key in self._under(tensor):
            part = self._parts[key]
            if self._state.shadow_of(part.base)._generation != part.generation:
                raise _error(
                    part,
                    "is used after x was changed in place: where i is known, the part changes as well",
                    "Take a copy of your own, x[i].clone(), or pick it again after the change",
                    part.line,
                )

    def _under(self, tensor: Tensor) -> list[int]:
        if not self._parts:
            return []
        view = tensor._view
        keys = (id(tensor), None if view is None else id(view.base))
        return [key for key in keys if key in self._parts]


def _error(part: _DynamicIndexView, happened: str, advice: str, line: str) -> TraceError:
    at = f" (at {line})" if line else ""
    return TraceError(
        f"a part {short(part.tensor.type)} that a traced index picked, as in x[i]{at}, {happened}, but in a compiled program "
        f"the part is a copy. {advice}"
    )
