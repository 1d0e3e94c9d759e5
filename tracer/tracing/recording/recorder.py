"""Recording a trace: which operations run, which outside Tensors they read, what they would change.

Nothing outside is touched while a trace runs: mutations, gradients and generator states are kept here until the compiled
program has run, so that an exception leaves everything as it was.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ops.dims import Dim
from ops.errors import TraceError
from ops.operator import ArrayData, Attributes, Operator, lookup
from ops.python_values import same_value
from ops.types import Type, dtype_name, numpy_dtype, short
from tracer.autograd.compiled_backward import replay
from tracer.autograd.gradient_node import next_sequence
from tracer.autograd.hooks import RemovableHandle
from tracer.core.source_lines import located, user_line
from tracer.dispatch.apply import BUILDER, apply_operator
from tracer.dispatch.eager import EAGER
from tracer.dispatch.view_updates import give_history, new_history, write_history
from tracer.ir.call_sites import Site
from tracer.ir.graph import GraphBuilder, Node, Origin, Value
from tracer.tensors.anomaly_mode import AnomalyMode
from tracer.tensors.grad_mode import enable_grad, no_grad
from tracer.tensors.modes import MODES, Flag, Untracked, here, interpreted_by
from tracer.tensors.tensor import Array, Tensor
from tracer.tensors.view import View, link, link_detached, steps_of
from tracer.tracing.recording.dynamic_index_views import DynamicIndexViews
from tracer.tracing.recording.functionalization import FunctionalState
from tracer.tracing.recording.trace_records import (
    Capture,
    Holder,
    NeedNumber,
    RunningTrace,
    ScalarCapture,
)
from tracer.tracing.recording.value_guards import ValueGuards
from tracer.tracing.state.side_effects import ABSENT, SideEffect, Snapshot, leaves_of

_DATA, _NOTHING = -1, -2  # what a value depends on, beside the numbers of float arguments


class Recorder(RunningTrace):
    """Records what runs: the state of one running trace."""

    def __init__(self, name: str) -> None:
        self.builder = GraphBuilder(name)
        self.captures: dict[int, Capture] = {}
        self.scalars: dict[tuple[int, Any], ScalarCapture] = {}
        self.functional_state = FunctionalState(self)
        self.dynamic_index_views = DynamicIndexViews(self.functional_state)
        self.arguments: dict[
            int, tuple[int, Tensor]
        ] = {}  # by placeholder: the leaf's number, the Tensor that was passed
        self.grads: dict[int, tuple[Holder, Tensor | None]] = {}
        self.outgoing_gradients: dict[
            int, Tensor
        ] = {}  # gradients of arguments with a history outside, by leaf
        self.read_grads: dict[int, tuple[Holder, bool]] = {}
        self.grad_captures: dict[int, tuple[Capture, Tensor]] = {}
        self.flags: dict[tuple[int, str], tuple[Any, str, bool]] = {}
        self.rebound: dict[tuple[int, str], tuple[dict[str, Any], str, Tensor]] = {}
        self.attributes: dict[tuple[int, str], tuple[dict[str, Any], str, Snapshot]] = {}
        self.unmoved: list[Snapshot] = []  # attributes that hold what they held
        self.objects: list[tuple[str, Any]] = []  # by name, what else attributes hold now
        self.modules: dict[int, Any] = {}
        self.numbers: dict[Value, int] = {}  # values of float arguments -> their leaves
        # answers what Python asks; None where nobody can
        self.value_guards: ValueGuards | None = None
        self.lasting: set[Value] = set()  # arrays from outside that are constants of the graph
        self._roots: dict[Value, int] = {}
        self.gradient_origin: Origin | None = None
        # registered on what lies outside, each with the user's line
        self.hooks: list[tuple[RemovableHandle, str]] = []
        self.history_start = next_sequence()
        self.sites: list[Site] = []  # calls of Functions, inner ones first
        self.made: dict[Value, Node] = {}

    # ---- operations
    def operands(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """See `current`."""
        return tuple(map(self.current, inputs))

    def apply(self, op: Operator, inputs: tuple[Tensor, ...], attrs: Attributes) -> Any:
        """Record an application."""
        values = [self.value_of(x) for x in inputs]
        result = self.builder.emit(op, values, attrs, origin=self.gradient_origin or here())
        outputs = result if isinstance(result, tuple) else (result,)
        self.made.update(dict.fromkeys(outputs, self.builder.nodes[-1]))
        made = tuple([Tensor.of_value(v, self) for v in outputs])
        if op.is_view:
            for number, y in enumerate(made):
                link(inputs[0], y, op, attrs, number)
        return made

    def constant(self, value: Any, dtype: str, weak: bool = False) -> Tensor:
        """A constant of the graph."""
        result: Tensor
        if weak:
            array = ArrayData.of(np.asarray(value, numpy_dtype(dtype)))
            result = BUILDER.op("Constant", value=array, weak=True)
        else:
            result = BUILDER.constant(value, dtype)
        return result

    @contextmanager
    def computing_gradient_of(self, node: Any) -> Iterator[None]:
        """What is recorded inside computes the gradient of a recorded operation."""
        before = self.gradient_origin
        self.gradient_origin = Origin(node.origin.scope, node.origin.source, gradient=True)
        try:
            yield
        finally:
            self.gradient_origin = before

    def require_inside(self, node: Any) -> None:
        """See `Interpreter`. What ran before the trace is no part of its program."""
        if node.sequence < self.history_start:
            raise TraceError(
                f"a backward inside a traced function reaches {node.name()} at {node.origin.source}, which ran outside, before "
                "the call: the compiled program would repeat that call's history. Call backward on the traced function's "
                "result, compute this inside too, or pass x.detach()"
            )

    def anomaly_mode(self) -> AnomalyMode | None:
        """A program is looked at when it runs."""
        return None

    def runs_programs(self) -> bool:
        """The code of a traced function becomes part of this trace."""
        return False

    def begin_call(self, inputs: list[Tensor]) -> Any:
        """The values of the inputs, before forward may change them, and how many nodes there are."""
        return [self.value_of(x) for x in inputs], len(self.builder.nodes)

    def end_call(self, begun: Any, name: str, results: list[Tensor], described: Any) -> None:
        """Note which nodes are one call; see `tracer.ir.call_sites`."""
        values, start = begun
        outputs = tuple(map(self.value_of, results))
        nodes = tuple(self.builder.nodes[start:])
        origin = self.gradient_origin or here()
        form, again = described()
        self.sites.append(Site(name, origin, nodes, tuple(values), outputs, form, again))

    # ---- reading what lies outside
    def value_of(self, tensor: Tensor) -> Value:
        """The current value of a Tensor, outside ones captured at first sight."""
        if tensor._recorder is self and tensor._value is not None:
            self.dynamic_index_views.read(tensor)
            if tensor._view is not None:
                self.refresh(tensor)
            return tensor._value
        if tensor._value is not None:
            raise TraceError(
                f"a Tensor {short(tensor.type)} of a trace that is over (or of another one) is used; it has no data: "
                "return it from the traced function instead of keeping it in a variable"
            )
        shadow = self.functional_state.shadow_of(tensor)
        if shadow is not tensor:
            return self.value_of(shadow)
        return self.capture(tensor, tensor.type.strong())

    def from_array(self, array: Array) -> Tensor:
        """A NumPy array from outside, captured."""
        dtype_name(array.dtype)
        value = self.capture(array, Type.of(array))
        if self.value_guards is not None and not self.value_guards.many:
            self.lasting.add(value)
        return Tensor.of_value(value, self)

    def capture(self, object_: Any, type_: Type) -> Value:
        """The first value of something from outside, an input of the program."""
        found = self.captures.get(id(object_))
        if found is None:
            found = self.captures[id(object_)] = Capture(object_, Value(type_))
        return found.value

    # ---- what Python asks of values
    def elements(self, tensor: Tensor) -> Array:
        """Raises `TraceError`: elements are not known, or would be constants of the program."""
        if tensor._array is None and tensor._block is None:
            if tensor._recorder is not self:
                raise tensor.over()
            raise located(
                TraceError(
                    f"the elements of a traced Tensor {short(tensor.type)} are not known while its function is traced; "
                    "compute with tracer's functions, ask for numbers (t.item(), t.tolist()), or move this code out of the "
                    "traced function"
                )
            )
        raise located(
            TraceError(
                f"the elements of {short(tensor.type)} are read while a function is traced: the result would be a "
                "constant of the compiled program. Compute with tracer's functions on the Tensor, or move this code out "
                "of the traced function"
            )
        )

    def known_elements(self, tensor: Tensor) -> Array | None:
        """None are."""
        return None

    def answer(self, tensor: Tensor, asked: str) -> Any:
        """What Python asks of a Tensor while the function is traced, such as "bool(t)"; the answer becomes a guard.

        Float arguments that alone decide it become static instead.
        """
        value = self.value_of(tensor)
        fixed = self.need_number(value)
        if self.value_guards is None or not (fixed or self.value_guards.many):
            raise located(
                TraceError(
                    f"{asked} of a traced Tensor {short(tensor.type)}: what it is decides what the function does, and a graph "
                    "that is exported holds one path only. Use tracer.where(condition, a, b) for a choice between values, or "
                    "export the functions between which the code chooses"
                )
            )
        return self.value_guards.ask(value, asked, fixed)

    def guards(self, tensor: Tensor) -> bool:
        """Whether Python may ask for the Tensor's elements."""
        fixed = self.need_number(self.value_of(tensor))
        return self.value_guards is not None and (fixed or self.value_guards.many)

    def need_number(self, value: Value) -> bool:
        """Whether a value depends on nothing that another call could change; `NeedNumber` if on float arguments alone."""
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

    # ---- which Tensor is meant
    def shadow_of(self, tensor: Tensor) -> Tensor:
        """What stands for an outside Tensor that the trace has changed; else the Tensor."""
        return self.functional_state.shadow_of(tensor)

    def writable(self, tensor: Tensor) -> Tensor:
        """What takes changes of a Tensor: what stands for one from outside, until the program has run."""
        return self.functional_state.writable(tensor)

    def argument_of(self, tensor: Tensor) -> Tensor | None:
        """The argument that a placeholder stands for."""
        known = self.arguments.get(id(tensor))
        return None if known is None else known[1]

    def current(self, tensor: Tensor) -> Tensor:
        """What stands for the Tensor, where it has a history there: leaves stay themselves, so that gradients find them."""
        shadow = self.functional_state.shadow_of(tensor)
        if shadow._view is not None:
            self.refresh(shadow)
        if shadow._grad_fn is not None or isinstance(shadow._requires_grad, Untracked):
            return shadow
        return tensor

    def refresh(self, tensor: Tensor) -> None:
        """Derive views of this trace anew. What the trace does to a base is nothing to views outside of it."""
        if tensor._recorder is not self:
            with interpreted_by(EAGER):
                EAGER.refresh(tensor)
            return
        chain = []
        item = tensor
        while item._view is not None:
            chain.append(item)
            item = self.shadow_of(item._view.base)
        for item in reversed(chain):
            view = item._view
            assert view is not None
            generation = self.shadow_of(view.base)._generation
            if item._seen != generation:
                item._seen = generation
                self._derive(item, view)

    def _derive(self, x: Tensor, view: View) -> None:
        """A view of a trace gets its base's new elements, and where it follows also the new history."""
        follows = view.op is not None and view.recorded
        with enable_grad() if follows else no_grad():
            found = view.base  # not what stands for it: a leaf stays itself
            for step in steps_of(view):
                assert step.op is not None
                found = apply_operator(step.op, (found,), step.attrs)
            x._value = self.value_of(found)
            if follows:
                found = self.current(found)
                if found._requires_grad is not False:
                    give_history(x, found)
            else:
                x._generation += 1

    def frozen(self, tensor: Tensor) -> Tensor:
        """A Tensor of the same value."""
        return Tensor.of_value(self.value_of(tensor), self)

    def detach(self, tensor: Tensor) -> Tensor:
        """A Tensor of the same value that follows changes."""
        result = self.frozen(tensor)
        link_detached(tensor, result)
        return result

    def version_of(self, tensor: Tensor) -> Any:
        """Its value."""
        return self.value_of(tensor)

    def at_version(self, tensor: Tensor, version: Any) -> Tensor | None:
        """The value that it had is at hand; what eager code saved is gone when it was changed."""
        if isinstance(version, Value):
            return tensor if self.value_of(tensor) is version else Tensor.of_value(version, self)
        if not isinstance(version, int):
            return tensor
        unchanged = tensor._version == version and self.shadow_of(tensor) is tensor
        return tensor if unchanged else None

    # ---- changes in place
    def write(self, tensor: Tensor, new: Tensor, recorded: bool, fresh: bool = False) -> None:
        """A new value for what stands for the Tensor, and for all that shares its memory."""
        history = new_history(tensor, new, recorded, fresh, BUILDER)
        write_history(self.functional_state.writable(tensor), history, BUILDER, recorded, self._put)

    def _put(self, target: Tensor, new: Tensor) -> None:
        target._value = self.value_of(new)

    def set_history(self, tensor: Tensor, node: Any, number: int) -> None:
        """See `Interpreter`."""
        made = self.frozen(tensor)
        made._requires_grad, made._grad_fn, made.output_number = True, node, number
        write_history(self.functional_state.writable(tensor), made, BUILDER, True, self._put)

    def change_begins(self, tensor: Tensor) -> None:
        """Parts that a traced index picked are copies, so a change of one is watched."""
        self.dynamic_index_views.change(tensor)

    def require_writeable(self, tensor: Tensor) -> None:
        """The program looks when it runs."""

    def note_recorded_change(self, tensor: Tensor) -> Tensor | None:
        """See `Interpreter`; each call tests that the argument is neither a leaf nor a view of one."""
        return self.functional_state.note_recorded_change(tensor)

    def keep_elements(self, tensor: Tensor) -> None:
        """Values of a graph are never overwritten."""

    def own_memory(self, tensor: Tensor) -> None:
        """Values of a graph share none."""

    def index_picked(self, part: Tensor, tensor: Tensor) -> None:
        """See `tracer.tracing.recording.dynamic_index_views`."""
        self.dynamic_index_views.add(part, tensor)

    def value_assigned(self, value: object) -> None:
        """See `tracer.tracing.recording.dynamic_index_views`."""
        self.dynamic_index_views.assign(value)

    def assign_elements(self, tensor: Tensor, put: Any) -> bool:
        """Not before the program runs."""
        return False

    def without_base(self, tensor: Tensor) -> Tensor:
        """The Tensor: values of a graph have no base."""
        return tensor

    def run_graph(self, graph: Any, inputs: list[Tensor], compiled: Any) -> Sequence[Tensor]:
        """The graph's nodes, recorded."""
        return replay(graph, inputs, BUILDER)

    def set_flag(self, tensor: Tensor, flag: Flag) -> None:
        """Inside; of what lies outside when the program has run."""
        self.functional_state.set_flag(tensor, flag)

    def is_unshared_gradient(self, gradient: Tensor, leaf: Tensor, known: set[int]) -> bool:
        """Only objects can be shared."""
        return id(gradient) not in known and not leaf.is_symbolic

    # ---- Python state
    def hook_registered(self, handle: Any) -> None:
        """It is removed when the trace is over; the user gets its line if it is still there then."""
        self.hooks.append((handle, user_line()))

    def hook_removable(self, handle: Any) -> bool:
        """Those of this trace are."""
        return any(h is handle for h, _ in self.hooks)

    def module_begins(self, module: Any) -> bool:
        """Note the module and the lists below it, which nobody calls, so that a module replaced in one is noticed."""
        waiting = [module]
        while waiting:
            item = waiting.pop()
            if id(item) not in self.modules:
                self.modules[id(item)] = item
                waiting += item.uncalled_children()
        return True

    def require_repeatable(self, what: str, advice: str = "") -> None:
        """Raises."""
        raise located(
            TraceError(
                f"{what} while a function is traced: the compiled program would not repeat it. "
                f"{advice or 'Move this out of the traced function'}"
            )
        )

    def scalar(self, container: Any, key: Any) -> Any:
        """A float as a weak 0-d value that follows later changes; other numbers as they are."""
        number = container[key]
        if not isinstance(number, float):
            return number
        found = self.scalars.get((id(container), key))
        if found is None:
            found = ScalarCapture(container, key, Value(Type("float64", (), True)))
            self.scalars[(id(container), key)] = found
        return Tensor.of_value(found.value, self)

    def is_nonzero(self, container: Any, key: str) -> bool:
        """It decides the program's structure, and is checked at each call."""
        result = bool(container[key] != 0)
        self.flags[id(container), key] = container, key, result
        return result

    def rebind(self, members: dict[str, Any], name: str, new: Tensor) -> bool:
        """members[name] = new while the trace runs, where there is a Tensor of the same type; else False.

        When the program runs, that one gets the new value. Until then it keeps its old one, so that names which the function
        has for it mean what they mean without a trace.
        """
        old = members[name]
        if old is None or old.type != new.type.strong():
            return False
        if old._recorder is not self and (id(members), name) not in self.rebound:
            self.value_of(old)  # captured: its memory is known to the program
            self.rebound[id(members), name] = members, name, old
        members[name] = new
        return True

    def restore(self) -> list[tuple[Tensor, Tensor]]:
        """Put back what was rebound; (Tensor, new value) of each."""
        pairs = []
        for members, name, old in self.rebound.values():
            pairs.append((old, members[name]))
            members[name] = old
        self.rebound.clear()
        return [(old, new) for old, new in pairs if new is not old]

    def set_attribute_begins(self, members: dict[str, Any], name: str) -> None:
        """A plain attribute of a module is about to be set; it is put back when the trace is over."""
        key = id(members), name
        if key not in self.attributes:
            self.attributes[key] = members, name, Snapshot(name, members.get(name, ABSENT))

    def is_computed(self, value: Any) -> bool:
        """Whether a value is a Tensor of this trace, or a tuple, list or dict that holds one."""
        return any(isinstance(x, Tensor) and x._recorder is self for x in leaves_of(value))

    def restore_attributes(self) -> list[SideEffect]:
        """Put attributes back that have another value now."""
        changed: list[SideEffect] = []
        for members, name, held in self.attributes.values():
            before, now = held.value, members.get(name, ABSENT)
            if now is before:
                self.unmoved.append(held)
                continue
            if now is ABSENT:
                continue
            if same_value(now, before):
                continue
            if not self.is_computed(now):
                self.objects.append((name, now))
            read = functools.partial(members.get, name)
            changed.append(
                SideEffect(functools.partial(members.__setitem__, name), read, before, now)
            )
            if before is ABSENT:
                del members[name]
            else:
                members[name] = before
        self.attributes.clear()
        return changed

    def grad_of(self, tensor: Tensor) -> Tensor | None:
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

    def set_grad(self, tensor: Tensor, value: Tensor | None) -> None:
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
    """Make a recorder the interpreter of this thread."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def __enter__(self) -> Recorder:
        self.previous = MODES.interpreter, MODES.scope, MODES.grad_enabled, MODES.modules
        self.packing, MODES.packing = MODES.packing, None
        MODES.interpreter, MODES.scope, MODES.modules = self.recorder, (), ()
        return self.recorder

    def __exit__(self, *_: object) -> None:
        for handle, _line in self.recorder.hooks:
            handle.remove()
        MODES.interpreter, MODES.scope, MODES.grad_enabled, MODES.modules = self.previous
        MODES.packing = self.packing
        self.recorder.restore()
        self.recorder.functional_state.restore_flags()
        self.recorder.restore_attributes()
