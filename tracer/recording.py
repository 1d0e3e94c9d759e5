"""Recording a trace: which operations run, which outside Tensors they read, what they would change.

Nothing outside is touched while a trace runs: mutations, gradients and generator states are kept here until the compiled
program has run, so that an exception leaves everything as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ops.errors import TraceError
from ops.forms import Form
from ops.operator import Attributes, Operator
from ops.types import Type, short
from tracer.autograd.history import next_sequence
from tracer.autograd.hooks import RemovableHandle
from tracer.calls import Site
from tracer.graph import GraphBuilder, Node, Origin, Value
from tracer.modes import MODES, Flag
from tracer.source import here
from tracer.tensor import Tensor


class Capture:
    """An outside Tensor or array that the trace read, or (`is_grad`) the gradient of a `Holder`: its first value in the graph."""

    __slots__ = ("is_grad", "object", "value")

    def __init__(self, object_: Any, value: Value, is_grad: bool = False) -> None:
        self.object, self.value, self.is_grad = object_, value, is_grad

    def current(self, leaves: Sequence[Any]) -> Any:
        """What to read in a call with these argument leaves."""
        return held_by(self.object, leaves)._grad if self.is_grad else self.object


Holder = Tensor | int
"""Whose `.grad` is meant: an outside Tensor, or the number of an argument leaf, which is another Tensor at each call."""


def held_by(holder: Holder, leaves: Sequence[Any]) -> Any:
    """The Tensor that a holder is in a call with these argument leaves."""
    return leaves[holder] if isinstance(holder, int) else holder


class ScalarCapture:
    """A Python number in a container that the trace read as a 0-d value, such as a learning rate."""

    __slots__ = ("container", "key", "value")

    def __init__(self, container: Any, key: Any, value: Value) -> None:
        self.container, self.key, self.value = container, key, value


class Recorder:
    """The state of one running trace."""

    def __init__(self, name: str) -> None:
        self.builder = GraphBuilder(name)
        self.captures: dict[int, Capture] = {}
        self.scalars: dict[tuple[int, Any], ScalarCapture] = {}
        self.mutated: dict[int, tuple[Tensor, Value]] = {}
        self.arguments: dict[
            int, tuple[int, Tensor]
        ] = {}  # by placeholder: the leaf's number, the Tensor that was passed
        self.grads: dict[int, tuple[Holder, Tensor | None]] = {}
        self.read_grads: dict[int, tuple[Holder, bool]] = {}
        self.grad_captures: dict[int, tuple[Capture, Tensor]] = {}
        self.flags: dict[tuple[int, str], tuple[Any, str, bool]] = {}
        self.rebound: dict[tuple[int, str], tuple[dict[str, Any], str, Tensor]] = {}
        self.flagged: dict[int, tuple[Tensor, Flag]] = {}  # Tensors and the flags they had
        self.modules: dict[int, Any] = {}
        self.numbers: dict[Value, int] = {}  # values of float arguments -> their leaves
        self.gradient_origin: Origin | None = None
        # registered on what lies outside, each with the user's line
        self.hooks: list[tuple[RemovableHandle, str]] = []
        self.history_start = next_sequence()
        self.sites: list[Site] = []  # calls of Functions, inner ones first
        self.made: dict[Value, Node] = {}
        self._bases: dict[Value, Value] = {}  # of views
        self._views: dict[Value, list[Value]] = {}  # the other way round
        self._outdated: set[Value] = set()  # views of Tensors that have been changed since

    # ---- operations
    def apply(
        self, op: Operator, inputs: Sequence[Tensor], attrs: Attributes
    ) -> tuple[Tensor, ...]:
        """Record an application."""
        values = [self.value_of(x) for x in inputs]
        result = self.builder.emit(op, values, attrs, origin=self.gradient_origin or here())
        outputs = result if isinstance(result, tuple) else (result,)
        self.made.update(dict.fromkeys(outputs, self.builder.nodes[-1]))
        if op.is_view:
            base = self._bases.get(values[0], values[0])
            self._bases.update(dict.fromkeys(outputs, base))
            self._views.setdefault(base, []).extend(outputs)
        return tuple(Tensor.of_value(v, self) for v in outputs)

    @contextmanager
    def gradient_of(self, node: Any) -> Iterator[None]:
        """What is recorded inside computes the gradient of a recorded operation."""
        before = self.gradient_origin
        self.gradient_origin = Origin(node.origin.scope, node.origin.source, gradient=True)
        try:
            yield
        finally:
            self.gradient_origin = before

    def note_call(
        self,
        start: int,
        name: str,
        args: Sequence[Tensor],
        results: Sequence[Tensor],
        form: Form | None,
        again: Callable[[Sequence[Any]], Any],
    ) -> None:
        """What was recorded since there were `start` nodes is one call of a Function; see `tracer.calls`."""
        nodes = tuple(self.builder.nodes[start:])
        inputs, outputs = (tuple(map(self.value_of, tensors)) for tensors in (args, results))
        origin = self.gradient_origin or here()
        self.sites.append(Site(name, origin, nodes, inputs, outputs, form, again))

    # ---- reading what lies outside
    def value_of(self, tensor: Tensor) -> Value:
        """The current value of a Tensor, outside ones captured at first sight."""
        if tensor._recorder is self and tensor._value is not None:
            if tensor._value in self._outdated and self.gradient_origin is None:
                raise TraceError(
                    f"{short(tensor.type)} is a view of a Tensor that was changed in place after the view was made; without "
                    "a trace it would show the change, which is not recorded. Make the view again after the change, or copy "
                    "it before"
                )
            return tensor._value
        if tensor._value is not None:
            raise TraceError(
                f"a Tensor {short(tensor.type)} of a trace that is over (or of another one) is used; it has no data: "
                "return it from the traced function instead of keeping it in a variable"
            )
        changed = self.mutated.get(id(tensor))
        if changed is not None:
            return changed[1]
        return self._capture(tensor, tensor.type.strong())

    def value_of_array(self, array: np.ndarray[Any, Any]) -> Tensor:
        """A NumPy array from outside, captured."""
        return Tensor.of_value(self._capture(array, Type.of(array)), self)

    def _capture(self, object_: Any, type_: Type) -> Value:
        found = self.captures.get(id(object_))
        if found is None:
            found = self.captures[id(object_)] = Capture(object_, Value(type_))
        return found.value

    def scalar(self, container: Any, key: Any) -> Tensor:
        """container[key], a Python float, as a weak 0-d value that follows later changes."""
        found = self.scalars.get((id(container), key))
        if found is None:
            found = ScalarCapture(container, key, Value(Type("float64", (), True)))
            self.scalars[(id(container), key)] = found
        return Tensor.of_value(found.value, self)

    def is_nonzero(self, container: Any, key: str) -> bool:
        """Whether container[key] is not 0, which decides the program's structure; checked at each call."""
        result = bool(container[key] != 0)
        self.flags[id(container), key] = container, key, result
        return result

    def refuse_data(self, tensor: Tensor) -> None:
        """Called when somebody asks for the elements of an outside Tensor during the trace."""
        from tracer.dispatch import located

        raise located(
            TraceError(
                f"the elements of {short(tensor.type)} are read while a function is traced: the result would be a "
                "constant of the compiled program. Compute with tracer's functions on the Tensor, or move this code out "
                "of the traced function"
            )
        )

    def need_number(self, tensor: Tensor) -> None:
        """Called when Python asks a traced Tensor for its value: float arguments that alone decide it become static."""
        from tracer.tracing.record import NeedNumber

        if tensor._value is None or MODES.recorder is not self:
            return
        roots: set[Value] = set()
        stack, seen = [tensor._value], set()
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            node = self.made.get(value)
            if node is None:
                roots.add(value)
            else:
                stack.extend(node.inputs)
        if roots and all(v in self.numbers for v in roots):
            raise NeedNumber(min(self.numbers[v] for v in roots))

    def strengthen(self, tensor: Tensor) -> Value:
        """The Tensor's value, a Python number made a Tensor of the default type."""
        value = self.value_of(tensor)
        if not value.type.weak:
            return value
        dtype = "float32" if value.type.dtype == "float64" else value.type.dtype
        strong: Value = self.builder.op("Cast", value, to=dtype)
        return strong

    # ---- writing
    def assign(self, tensor: Tensor, new: Tensor) -> None:
        """tensor[...] = new, when the program runs."""
        value = self.value_of(new)
        old = self.value_of(tensor)  # captured, so that its memory is known to the program
        self._outdated.update(self._views.get(self._bases.get(old, old), ()))
        self._outdated.discard(value)
        if tensor._recorder is self:
            tensor._value = value
        else:
            self.mutated[id(tensor)] = (tensor, value)

    def rebind(self, members: dict[str, Any], name: str, new: Tensor) -> None:
        """members[name] = new while the trace runs, where there is a Tensor of the same type.

        When the program runs, that one gets the new value. Until then it keeps its old one, so that names which the function
        has for it mean what they mean without a trace.
        """
        old = members[name]
        if old._recorder is not self and (id(members), name) not in self.rebound:
            self.value_of(old)  # captured: its memory is known to the program
            self.rebound[id(members), name] = members, name, old
        members[name] = new

    def restore(self) -> list[tuple[Tensor, Tensor]]:
        """Put back what was rebound; (Tensor, new value) of each."""
        pairs = []
        for members, name, old in self.rebound.values():
            pairs.append((old, members[name]))
            members[name] = old
        self.rebound.clear()
        return [(old, new) for old, new in pairs if new is not old]

    def keep_flag(self, tensor: Tensor) -> None:
        """The flag of a Tensor is about to change. Where others know it, it is put back when the trace is over."""
        if tensor._recorder is not self or id(tensor) in self.arguments:
            self.flagged.setdefault(id(tensor), (tensor, tensor._requires_grad))

    def restore_flags(self) -> list[tuple[Holder, Flag]]:
        """Put flags back; those that programs have to set again."""
        changed: list[tuple[Holder, Flag]] = []
        for tensor, before in self.flagged.values():
            if tensor._requires_grad is not before:
                known = self.arguments.get(id(tensor))
                changed.append((tensor if known is None else known[0], tensor._requires_grad))
                tensor._requires_grad = before
        self.flagged.clear()
        return changed

    def read_grad(self, tensor: Tensor) -> Tensor | None:
        """tensor.grad as the trace sees it."""
        if id(tensor) in self.grads:
            return self.grads[id(tensor)][1]
        holder: Holder = tensor
        outside = tensor
        if tensor._recorder is self:
            if id(tensor) not in self.arguments:
                return tensor._grad
            holder, outside = self.arguments[id(tensor)]
        self.read_grads[id(tensor)] = (holder, outside._grad is not None)
        if outside._grad is None:
            return None
        found = self.grad_captures.get(id(tensor))
        if found is None:
            capture = Capture(holder, Value(outside._grad.type.strong()), is_grad=True)
            found = self.grad_captures[id(tensor)] = capture, Tensor.of_value(capture.value, self)
        return found[1]

    def write_grad(self, tensor: Tensor, value: Tensor | None) -> None:
        """tensor.grad = value, when the program runs."""
        if id(tensor) in self.arguments:
            self.grads[id(tensor)] = (self.arguments[id(tensor)][0], value)
        elif tensor._recorder is self:
            tensor._grad = value
        else:
            self.grads[id(tensor)] = (tensor, value)


class recording:  # noqa: N801 - a context manager
    """Make a recorder the current one of this thread."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def __enter__(self) -> Recorder:
        self.previous = MODES.recorder, MODES.scope, MODES.grad_enabled, MODES.modules
        MODES.recorder, MODES.scope, MODES.modules = self.recorder, (), ()
        return self.recorder

    def __exit__(self, *_: object) -> None:
        for handle, _line in self.recorder.hooks:
            handle.remove()
        MODES.recorder, MODES.scope, MODES.grad_enabled, MODES.modules = self.previous
        self.recorder.restore()
        self.recorder.restore_flags()


def scalar(container: Any, key: Any) -> Any:
    """container[key]: a Python number, in a trace a value that follows later changes of it."""
    number = container[key]
    if MODES.recorder is None or not isinstance(number, float):
        return number
    return MODES.recorder.scalar(container, key)


def is_nonzero(container: Any, key: str) -> bool:
    """Whether container[key] is not 0; in a trace checked again at each call."""
    if MODES.recorder is None:
        return bool(container[key] != 0)
    return MODES.recorder.is_nonzero(container, key)


def assign(target: Tensor, new: Tensor) -> None:
    """target[...] = new: in its memory at once, or when the program that is being traced runs."""
    recorder = MODES.recorder
    if new.type.shape != target.type.shape or new.type.dtype != target.type.dtype:
        raise TraceError(f"cannot assign {short(new.type)} to {short(target.type)}")
    if recorder is not None:
        recorder.assign(target, new)
        return
    np.copyto(target._data(), new._data())
    target._version += 1
