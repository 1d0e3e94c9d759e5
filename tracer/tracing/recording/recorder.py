"""Recording a trace: which operations run, which outside Tensors they read, what they would change.

Nothing outside is touched while a trace runs: mutations, gradients and generator states are kept here until the compiled
program has run, so that an exception leaves everything as it was.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ops.dims import Dim
from ops.errors import TraceError
from ops.forms import Form
from ops.operator import Attributes, Operator, lookup
from ops.types import Type, short
from tracer.autograd.hooks import RemovableHandle
from tracer.autograd.tape import next_sequence
from tracer.core.source_lines import located
from tracer.dispatch.view_updates import refresh
from tracer.ir.call_sites import Site
from tracer.ir.graph import GraphBuilder, Node, Origin, Value
from tracer.tensors.modes import MODES, here
from tracer.tensors.tensor import Tensor
from tracer.tracing.recording.dynamic_index_views import PickedParts
from tracer.tracing.recording.functionalization import Standings
from tracer.tracing.state.side_effects import ABSENT, Before, leaves_of

if TYPE_CHECKING:
    from tracer.tracing.recording.value_guards import Questions

_DATA, _NOTHING = -1, -2  # what a value depends on, beside the numbers of float arguments


_PLAIN = (bool, int, float, str, type(None))


class Capture:
    """An outside Tensor or array that the trace read, or (`is_grad`) the gradient of a `Holder`: its first value in the graph.

    `place`: what gives the Tensor that is there now, where the function puts another one at each call.
    """

    __slots__ = ("is_grad", "object", "place", "value")

    def __init__(self, object_: Any, value: Value, is_grad: bool = False) -> None:
        self.object, self.value, self.is_grad = object_, value, is_grad
        self.place: Callable[[], Any] | None = None

    def current(self, leaves: Sequence[Any]) -> Any:
        """What to read in a call with these argument leaves."""
        if self.place is not None:
            return self.place()
        return held_by(self.object, leaves)._grad if self.is_grad else self.object


@dataclass(frozen=True, slots=True)
class Change:
    """Something that a trace has put somewhere: how it is put there and read from there, and what was there before."""

    assign: Callable[[Any], object]
    read: Callable[[], Any]
    before: Any
    now: Any


def _is_plain(value: Any) -> bool:
    """Whether it is a number, a string or the like, or a tuple of such, as shapes are."""
    return all(isinstance(x, _PLAIN) for x in (value if isinstance(value, tuple) else (value,)))


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
        self.standings = Standings(self)
        self.parts = PickedParts(self.standings)
        self.arguments: dict[
            int, tuple[int, Tensor]
        ] = {}  # by placeholder: the leaf's number, the Tensor that was passed
        self.grads: dict[int, tuple[Holder, Tensor | None]] = {}
        self.onward: dict[
            int, Tensor
        ] = {}  # gradients of arguments with a history outside, by leaf
        self.read_grads: dict[int, tuple[Holder, bool]] = {}
        self.grad_captures: dict[int, tuple[Capture, Tensor]] = {}
        self.flags: dict[tuple[int, str], tuple[Any, str, bool]] = {}
        self.rebound: dict[tuple[int, str], tuple[dict[str, Any], str, Tensor]] = {}
        self.attributes: dict[tuple[int, str], tuple[dict[str, Any], str, Before]] = {}
        self.unmoved: list[Before] = []  # attributes that hold what they held
        self.objects: list[tuple[str, Any]] = []  # by name, what else attributes hold now
        self.modules: dict[int, Any] = {}
        self.numbers: dict[Value, int] = {}  # values of float arguments -> their leaves
        self.questions: Questions | None = None  # answers what Python asks; None where nobody can
        self.lasting: set[Value] = set()  # arrays from outside that are constants of the graph
        self._roots: dict[Value, int] = {}
        self.gradient_origin: Origin | None = None
        # registered on what lies outside, each with the user's line
        self.hooks: list[tuple[RemovableHandle, str]] = []
        self.history_start = next_sequence()
        self.sites: list[Site] = []  # calls of Functions, inner ones first
        self.made: dict[Value, Node] = {}

    # ---- operations
    def apply(
        self, op: Operator, inputs: Sequence[Tensor], attrs: Attributes
    ) -> tuple[Tensor, ...]:
        """Record an application."""
        values = [self.value_of(x) for x in inputs]
        result = self.builder.emit(op, values, attrs, origin=self.gradient_origin or here())
        outputs = result if isinstance(result, tuple) else (result,)
        self.made.update(dict.fromkeys(outputs, self.builder.nodes[-1]))
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
        inputs: Sequence[Value],
        results: Sequence[Tensor],
        form: Form | None,
        again: Callable[[Sequence[Any]], Any],
    ) -> None:
        """What was recorded since there were `start` nodes is one call of a Function on `inputs`; see `tracer.calls`."""
        outputs = tuple(map(self.value_of, results))
        nodes = tuple(self.builder.nodes[start:])
        origin = self.gradient_origin or here()
        self.sites.append(Site(name, origin, nodes, tuple(inputs), outputs, form, again))

    # ---- reading what lies outside
    def value_of(self, tensor: Tensor) -> Value:
        """The current value of a Tensor, outside ones captured at first sight."""
        if tensor._recorder is self and tensor._value is not None:
            self.parts.read(tensor)
            if tensor._view is not None:
                refresh(tensor)
            return tensor._value
        if tensor._value is not None:
            raise TraceError(
                f"a Tensor {short(tensor.type)} of a trace that is over (or of another one) is used; it has no data: "
                "return it from the traced function instead of keeping it in a variable"
            )
        standing = self.standings.inside(tensor)
        if standing is not tensor:
            return self.value_of(standing)
        return self.capture(tensor, tensor.type.strong())

    def value_of_array(self, array: np.ndarray[Any, Any]) -> Tensor:
        """A NumPy array from outside, captured."""
        value = self.capture(array, Type.of(array))
        if self.questions is not None and not self.questions.many:
            self.lasting.add(value)
        return Tensor.of_value(value, self)

    def capture(self, object_: Any, type_: Type) -> Value:
        """The first value of something from outside, an input of the program."""
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
        raise located(
            TraceError(
                f"the elements of {short(tensor.type)} are read while a function is traced: the result would be a "
                "constant of the compiled program. Compute with tracer's functions on the Tensor, or move this code out "
                "of the traced function"
            )
        )

    # ---- what Python asks of values
    def answer(self, tensor: Tensor, asked: str) -> Any:
        """What Python asks of a Tensor while the function is traced, such as "bool(t)"; the answer becomes a guard.

        Float arguments that alone decide it become static instead.
        """
        value = self.value_of(tensor)
        fixed = self.need_number(value)
        if self.questions is None or not (fixed or self.questions.many):
            raise located(
                TraceError(
                    f"{asked} of a traced Tensor {short(tensor.type)}: what it is decides what the function does, and a graph "
                    "that is exported holds one path only. Use tracer.where(condition, a, b) for a choice between values, or "
                    "export the functions between which the code chooses"
                )
            )
        return self.questions.ask(value, asked, fixed)

    def answers(self, tensor: Tensor) -> bool:
        """Whether Python may ask for the Tensor's elements."""
        fixed = self.need_number(self.value_of(tensor))
        return self.questions is not None and (fixed or self.questions.many)

    def need_number(self, value: Value) -> bool:
        """Whether a value depends on nothing that another call could change; `NeedNumber` if on float arguments alone."""
        from tracer.tracing.recording.trace import NeedNumber

        root = self._root_of(value)
        if root >= 0:
            raise NeedNumber(root)
        return root == _NOTHING

    def _root_of(self, value: Value) -> int:
        """What a value depends on: `_DATA`, `_NOTHING`, or, if on float arguments alone, the first one's leaf."""
        known, stack = self._roots, [value]
        while stack:
            v = stack[-1]
            node = self.made.get(v)
            if v in known:
                stack.pop()
            elif node is None:
                lasting = _NOTHING if v in self.lasting else _DATA
                known[v] = self.numbers.get(v, lasting)
            elif _has_symbols(node):
                known.update(dict.fromkeys(node.outputs, _DATA))
            else:
                missing = [u for u in node.inputs if u not in known]
                stack.extend(missing)
                if not missing:
                    roots = {known[u] for u in node.inputs} - {_NOTHING}
                    root = _NOTHING if not roots else _DATA if _DATA in roots else min(roots)
                    known.update(dict.fromkeys(node.outputs, root))
        return known[value]

    def derive(self, name: str, value: Value, **attrs: Any) -> Value:
        """A value computed from another one, at the user's line, without history."""
        result: Value = self.builder.emit(lookup(name), (value,), attrs, origin=here())
        self.made[result] = self.builder.nodes[-1]
        return result

    def strengthen(self, tensor: Tensor) -> Value:
        """The Tensor's value, a Python number made a Tensor of the default type."""
        value = self.value_of(tensor)
        if not value.type.weak:
            return value
        dtype = "float32" if value.type.dtype == "float64" else value.type.dtype
        strong: Value = self.builder.op("Cast", value, to=dtype)
        return strong

    # ---- writing
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

    def note_attribute(self, members: dict[str, Any], name: str) -> None:
        """A plain attribute of a module is about to be set; it is put back when the trace is over."""
        key = id(members), name
        if key not in self.attributes:
            self.attributes[key] = members, name, Before(name, members.get(name, ABSENT))

    def is_computed(self, value: Any) -> bool:
        """Whether a value is a Tensor of this trace, or a tuple, list or dict that holds one."""
        return any(isinstance(x, Tensor) and x._recorder is self for x in leaves_of(value))

    def restore_attributes(self) -> list[Change]:
        """Put attributes back that have another value now."""
        changed: list[Change] = []
        for members, name, held in self.attributes.values():
            before, now = held.value, members.get(name, ABSENT)
            if now is before:
                self.unmoved.append(held)
                continue
            if now is ABSENT:
                continue
            if _is_plain(now) and type(now) is type(before) and repr(now) == repr(before):
                continue
            if not self.is_computed(now):
                self.objects.append((name, now))
            read = functools.partial(members.get, name)
            changed.append(Change(functools.partial(members.__setitem__, name), read, before, now))
            if before is ABSENT:
                del members[name]
            else:
                members[name] = before
        self.attributes.clear()
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

    def keep_changed_grads(self) -> None:
        """Have gradients that were changed in place, as in clipping, written back."""
        for key, (capture, gradient) in self.grad_captures.items():
            if key not in self.grads and self.value_of(gradient) is not capture.value:
                self.grads[key] = capture.object, gradient

    def write_grad(self, tensor: Tensor, value: Tensor | None) -> None:
        """tensor.grad = value, when the program runs."""
        if id(tensor) in self.arguments:
            self.grads[id(tensor)] = (self.arguments[id(tensor)][0], value)
        elif tensor._recorder is self:
            tensor._grad = value
        else:
            self.grads[id(tensor)] = (tensor, value)


def _has_symbols(node: Node) -> bool:
    """Whether what a node gives depends on sizes that are not known."""
    return any(
        isinstance(a, Dim) or (isinstance(a, tuple) and any(isinstance(d, Dim) for d in a))
        for a in node.attrs.values()
    )


class recording:  # noqa: N801 - a context manager
    """Make a recorder the current one of this thread."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def __enter__(self) -> Recorder:
        self.previous = MODES.recorder, MODES.scope, MODES.grad_enabled, MODES.modules
        self.packing, MODES.packing = MODES.packing, None
        MODES.recorder, MODES.scope, MODES.modules = self.recorder, (), ()
        return self.recorder

    def __exit__(self, *_: object) -> None:
        for handle, _line in self.recorder.hooks:
            handle.remove()
        MODES.recorder, MODES.scope, MODES.grad_enabled, MODES.modules = self.previous
        MODES.packing = self.packing
        self.recorder.restore()
        self.recorder.standings.restore_flags()
        self.recorder.restore_attributes()
