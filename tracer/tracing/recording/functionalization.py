"""What stands inside a trace for Tensors from outside whose elements, history or flags it changes.

Nothing outside is touched while a trace runs: from its first change on another Tensor stands for an outside one, and for the
views of it that the trace uses. Knows what of that is written when the program has run. Must not know how a change is recorded,
which is `tracer.dispatch.view_updates`.
"""

from __future__ import annotations

from dataclasses import replace

from tracer.ir.graph import GraphBuilder, Node, Value
from tracer.tensors.modes import MODES, Flag
from tracer.tensors.tensor import Tensor
from tracer.tensors.view import part_of
from tracer.tracing.recording.trace_records import Holder, RunningTrace


class Flags:
    """A Tensor with the flag and the history that it had before a trace changed them."""

    __slots__ = ("flag", "history", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        if tensor._view is not None:
            MODES.interpreter.refresh(tensor)
        self.tensor, self.flag, self.history = tensor, tensor._requires_grad, tensor._grad_fn

    def restore(self) -> None:
        """Put them back."""
        self.tensor._requires_grad, self.tensor._grad_fn = self.flag, self.history


class FunctionalState:
    """The Tensors that stand for outside ones in one trace.

    `recorded_changes`: numbers of arguments whose changes are recorded for gradients, so that they get another history.
    """

    def __init__(self, recorder: RunningTrace) -> None:
        self._recorder = recorder
        self._pairs: dict[int, tuple[Tensor, Tensor]] = {}  # by the outside one
        self._flagged: dict[int, Flags] = {}
        self.recorded_changes: set[int] = set()

    # ---- elements and histories
    def writable(self, tensor: Tensor) -> Tensor:
        """The Tensor that takes changes of a Tensor: itself, or what stands for one from outside until the program has run."""
        if tensor._recorder is self._recorder:
            return tensor
        found = self._pairs.get(id(tensor))
        if found is None:
            if tensor._view is not None:
                self._recorder.refresh(tensor)
            recorder = self._recorder
            # captured, so that its memory is known to the program
            shadow = Tensor.of_value(recorder.capture(tensor, tensor.type.strong()), recorder)
            shadow._requires_grad, shadow._grad_fn = tensor._requires_grad, tensor._grad_fn
            shadow.output_number, shadow._generation = tensor.output_number, tensor._generation
            shadow._view, shadow._seen = tensor._view, tensor._seen
            found = self._pairs[id(tensor)] = tensor, shadow
        return found[1]

    def shadow_of(self, tensor: Tensor) -> Tensor:
        """What stands for an outside Tensor whose memory the trace has changed; else the Tensor."""
        if tensor._recorder is self._recorder:
            return tensor
        found = self._pairs.get(id(tensor))
        if found is not None:
            return found[1]
        view = tensor._view
        if view is None or id(view.base) not in self._pairs:
            return tensor
        return self.writable(tensor)

    def note_recorded_change(self, tensor: Tensor) -> Tensor | None:
        """The argument that a Tensor of the trace stands for, whose change is recorded for gradients; None for others."""
        known = self._recorder.arguments.get(id(tensor))
        if known is None:
            return None
        number, argument = known
        self.recorded_changes.add(number)
        return argument

    @property
    def mutated(self) -> list[tuple[Tensor, Tensor]]:
        """What the program writes when it runs, and what stands for it; a view is written where it lies in its base."""
        return [pair for pair in self._pairs.values() if pair[1]._view is None]

    def define_views(self) -> None:
        """Captured views of what the trace changes are parts of it, and no operands of their own."""
        first: list[Node] = []
        for capture in self._recorder.captures.values():
            view = getattr(capture.object, "_view", None)
            if view is None or id(view.base) not in self._pairs:
                continue
            builder = GraphBuilder()
            part_of(builder, view, self._recorder.captures[id(view.base)].value)
            *before, last = builder.nodes
            first += [*before, replace(last, outputs=(capture.value,))]
            capture.value = Value(capture.value.type)  # which nobody reads
        self._recorder.builder.nodes[:0] = first

    # ---- flags
    def set_flag(self, tensor: Tensor, flag: Flag) -> None:
        """Change the flag of a Tensor. Where others know it, it is put back when the trace is over."""
        if tensor._recorder is not self._recorder or id(tensor) in self._recorder.arguments:
            self._flagged.setdefault(id(tensor), Flags(tensor))
        tensor._set_flag(flag)
        self.shadow_of(tensor)._set_flag(flag)

    def flags_before(self, tensor: Tensor) -> Flags:
        """The flag and the history of an outside Tensor as the trace found them."""
        return self._flagged.get(id(tensor)) or Flags(tensor)

    def restore_flags(self) -> list[tuple[Holder, Flag]]:
        """Put flags back; those that programs have to set again."""
        changed: list[tuple[Holder, Flag]] = []
        for kept in self._flagged.values():
            tensor = kept.tensor
            if tensor._requires_grad is not kept.flag:
                known = self._recorder.arguments.get(id(tensor))
                changed.append((tensor if known is None else known[0], tensor._requires_grad))
            kept.restore()
        self._flagged.clear()
        return changed
