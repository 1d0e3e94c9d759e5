"""The history of a Tensor: one node for each recorded operation, pointing back at those that made its inputs.

What a node saves is found by building its gradient rule once on placeholders, so that nothing more is kept alive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ops.errors import GradError
from ops.operator import Application, Attributes, Operator
from ops.types import Type, is_floating, short
from tracer.autograd.gradient_node import GradientNode
from tracer.autograd.graph import Packed
from tracer.dispatch.apply import Unsaved, attach_history_with
from tracer.dispatch.view_updates import HISTORY, frozen
from tracer.ir.differentiation import pullback
from tracer.ir.graph import Graph, GraphBuilder, Value, used
from tracer.tensors.modes import INFERENCE, MODES
from tracer.tensors.tensor import Tensor

_SAVED: dict[Any, tuple[tuple[bool, ...], tuple[bool, ...]]] = {}


class OperationNode(GradientNode):
    """One recorded operation, with what its gradient rule reads."""

    __slots__ = ("attrs", "inputs", "needs", "op", "outputs", "states")

    def __init__(
        self,
        op: Operator,
        inputs: Sequence[Tensor],
        attrs: Attributes,
        outputs: Sequence[Tensor],
        needs: tuple[bool, ...],
    ) -> None:
        # the inputs are as they are now: see `apply_operator`
        edges = tuple(
            [
                None if not need else x if x._grad_fn is None else (x._grad_fn, x.output_number)
                for x, need in zip(inputs, needs, strict=True)
            ]
        )
        types = tuple([x.type for x in inputs]), tuple([y.type for y in outputs])
        super().__init__(edges, *types)
        self.op, self.attrs, self.needs = op, attrs, needs
        keep_inputs, keep_outputs = saved(op, attrs, *types, needs)
        # `states`: what tells whether a saved operand or result is changed in place later: its version, or its value in a trace
        version_of = MODES.interpreter.version_of
        saved_inputs: list[Any] = []
        saved_outputs: list[Any] = []
        states: list[Any] = []
        for x, keep in zip(inputs, keep_inputs, strict=True):
            if not keep:
                saved_inputs.append(Unsaved(x.type))
                states.append(None)
                continue
            if x._requires_grad is INFERENCE:
                raise GradError(
                    f"{op.name} keeps its operand {short(x.type)} for the gradient, but that was made in inference mode; "
                    "use x.clone() of it"
                )
            states.append(version_of(x))
            if x._view is not None and not (x._requires_grad is True and x._grad_fn is None):
                x = MODES.interpreter.without_base(x)
            saved_inputs.append(x)
        for y, keep in zip(outputs, keep_outputs, strict=True):
            if not keep:
                saved_outputs.append(Unsaved(y.type))
                states.append(None)
                continue
            saved_outputs.append(frozen(y))  # without its history, which is this node: no cycle
            version = version_of(
                y
            )  # in a trace the value that it stands for now is never another one
            states.append(version if isinstance(version, int) else None)
        self.inputs: tuple[Any, ...] = tuple(saved_inputs)
        self.outputs: tuple[Any, ...] = tuple(saved_outputs)
        self.states: tuple[Any, ...] = tuple(states)
        if MODES.packing is not None:
            self.inputs = tuple(Packed(x) if isinstance(x, Tensor) else x for x in self.inputs)
            self.outputs = tuple(Packed(y) if isinstance(y, Tensor) else y for y in self.outputs)
            self.states = (None,) * len(self.states)

    def name(self) -> str:
        """The name of the operation that this goes back over, such as MulBackward."""
        return f"{self.op.name}Backward"

    def release(self) -> None:
        """Drop saved Tensors."""
        self.inputs, self.outputs, self.states, self.released = (), (), (), True

    def saved_inputs(self) -> tuple[Any, ...]:
        """The inputs with the values that they had. In a trace these are at hand; eager they are gone after a change."""
        for y, version in zip(self.outputs, self.states[len(self.inputs) :], strict=False):
            if version is not None:
                as_saved(y, version, None, self._described)
        return tuple(
            as_saved(x, version, edge, self._described)
            for x, version, edge in zip(self.inputs, self.states, self.edges, strict=False)
        )

    def _described(self, x: Tensor) -> str:
        return f"an operand or result {short(x.type)} of {self.op.name} at {self.origin.source}"

    def backward(self, builder: Any, cotangents: tuple[Any, ...]) -> Sequence[Any]:
        """Cotangents of the inputs."""
        if self.released:
            raise GradError(
                f"backward a second time through {self.op.name} at {self.origin.source}: its saved Tensors are gone; "
                "call the first backward with retain_graph=True"
            )
        outputs = []
        for number, y in enumerate(self.outputs):
            if isinstance(y, Tensor | Packed):
                y = y.unpacked() if isinstance(y, Packed) else frozen(y)
                y._requires_grad, y._grad_fn, y.output_number = True, self, number
            outputs.append(y)
        n = Application(self.saved_inputs(), tuple(outputs), self.attrs, cotangents, self.needs)
        return pullback(builder, self.op, n, self.origin.source)


def as_saved(x: Any, version: Any, edge: Any, what: Callable[[Tensor], str]) -> Any:
    """A saved Tensor with the elements and the history that it had. Raises `GradError`, which says `what` it is, where they are
    gone. `version`: None for what has no elements, or is kept as something else."""
    if isinstance(x, Packed):
        return with_history(x.unpacked(), edge)
    if version is None:
        return x
    then = MODES.interpreter.at_version(x, version)
    if then is None:
        raise GradError(
            f"{what(x)} was changed in place after that{changed_at(x)}, and its gradient needs the old value; change it after "
            "backward(), or make a new Tensor instead"
        )
    return x if then is x else with_history(then, edge)


def with_history(old: Tensor, edge: Any) -> Tensor:
    """A Tensor that nobody else has, with a history: a node and output number, a leaf, or None."""
    if isinstance(edge, Tensor):  # a leaf: its gradient must find it
        edge = (HISTORY.op("Reshape", edge, shape=edge.type.shape)._grad_fn, 0)
    if edge is not None:
        old._requires_grad, (old._grad_fn, old.output_number) = True, edge
    return old


def changed_at(x: Tensor) -> str:
    """Where a Tensor was last changed in place, for a message."""
    where = "" if x._changes is None else x._changes[1]
    return f", at {where}" if where and ":" in where else f", by {where}" if where else ""


def saved(
    op: Operator,
    attrs: Attributes,
    inputs: tuple[Type, ...],
    outputs: tuple[Type, ...],
    needs: tuple[bool, ...],
) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """Which inputs and outputs the gradient rule reads the elements of."""
    key = (op.name, attrs.key, inputs, outputs, needs)
    found = _SAVED.get(key)
    if found is None:
        if len(_SAVED) > 10_000:
            _SAVED.clear()
        found = _SAVED[key] = _find_saved(op, attrs, inputs, outputs, needs)
    return found


def _find_saved(
    op: Operator,
    attrs: Attributes,
    inputs: tuple[Type, ...],
    outputs: tuple[Type, ...],
    needs: tuple[bool, ...],
) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    if not callable(op.vjp):
        return (False,) * len(inputs), (False,) * len(outputs)
    builder = GraphBuilder()
    xs, ys = [Value(t) for t in inputs], [Value(t) for t in outputs]
    dys = tuple(Value(t) for t in outputs)
    grads = op.vjp(builder, Application(tuple(xs), tuple(ys), attrs, dys, needs))
    wanted = [g for g, need in zip(grads, needs, strict=False) if need and g is not None]
    _, needed = used(Graph((), tuple(builder.nodes), tuple(wanted)))
    return tuple(x in needed for x in xs), tuple(y in needed for y in ys)


def attach(
    op: Operator,
    inputs: Sequence[Tensor],
    attrs: Attributes,
    outputs: Sequence[Tensor],
    needs: tuple[bool, ...],
) -> None:
    """Give floating outputs a history."""
    if not any(is_floating(y.type.dtype) for y in outputs):
        return
    node = OperationNode(op, inputs, attrs, outputs, needs)
    for number, y in enumerate(outputs):
        if is_floating(y.type.dtype):
            y._requires_grad, y._grad_fn, y.output_number = True, node, number


attach_history_with(attach)
