"""The history of a Tensor: one node for each recorded operation, pointing back at those that made its inputs.

What a node saves is found by building its gradient rule once on placeholders, so that nothing more is kept alive.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ops.errors import GradError
from ops.operator import Application, Attributes, NoGradient, Operator, ZeroGradient
from ops.types import Type, is_floating, short
from tracer.autograd.graph import Packed, packed, unpacked
from tracer.autograd.hooks import (
    AccumulateGrad,
    NodeHooks,
    RemovableHandle,
    accumulator_of,
    require_callable,
)
from tracer.calls import Applied
from tracer.dispatch import BUILDER, Unsaved
from tracer.graph import Graph, GraphBuilder, Value
from tracer.modes import INFERENCE, MODES, no_grad
from tracer.passes.inline import inline_calls
from tracer.source import here
from tracer.tensor import Tensor
from tracer.views import HISTORY, frozen

_sequence = itertools.count()
next_sequence: Callable[[], int] = _sequence.__next__
_SAVED: dict[Any, tuple[tuple[bool, ...], tuple[bool, ...]]] = {}


class Node:
    """One recorded operation. `edges`: for each input, the node and output number that made it, a leaf Tensor, or None."""

    __slots__ = (
        "__weakref__",
        "attrs",
        "edges",
        "hooks",
        "inputs",
        "needs",
        "op",
        "origin",
        "outputs",
        "released",
        "sequence",
        "states",
        "types",
    )

    def __init__(
        self,
        op: Operator,
        inputs: Sequence[Tensor],
        attrs: Attributes,
        outputs: Sequence[Tensor],
        needs: tuple[bool, ...],
    ) -> None:
        keep_inputs, keep_outputs = saved(
            op, attrs, [x.type for x in inputs], [y.type for y in outputs], needs
        )
        self.op, self.attrs, self.needs = op, attrs, needs
        self.sequence = next_sequence()
        self.origin = here()
        self.types = tuple([y.type for y in outputs])
        # the inputs are as they are now: see `apply_operator`
        self.edges: tuple[Any, ...] = tuple(
            [
                None if not need else x if x._grad_fn is None else (x._grad_fn, x.output_number)
                for x, need in zip(inputs, needs, strict=True)
            ]
        )
        # `states`: what tells whether a saved operand or result is changed in place later: its version, or its value in a trace
        recorder = MODES.recorder
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
            saved_inputs.append(x)
            states.append(x._version if recorder is None else recorder.value_of(x))
        for y, keep in zip(outputs, keep_outputs, strict=True):
            # without its history, which is this node: no cycle
            saved_outputs.append(frozen(y) if keep else Unsaved(y.type))
            if recorder is None:
                states.append(y._version if keep else None)
        self.inputs: tuple[Any, ...] = tuple(saved_inputs)
        self.outputs: tuple[Any, ...] = tuple(saved_outputs)
        self.states: tuple[Any, ...] = tuple(states)
        if MODES.packing is not None:
            self.inputs = tuple(Packed(x) if isinstance(x, Tensor) else x for x in self.inputs)
            self.outputs = tuple(Packed(y) if isinstance(y, Tensor) else y for y in self.outputs)
            self.states = (None,) * len(self.states)
        self.released = False
        self.hooks: NodeHooks | None = None

    def waiting(self) -> NodeHooks:
        """What waits here for gradients, to be added to."""
        if self.hooks is None:
            self.hooks = NodeHooks()
        return self.hooks

    def retain(self, tensor: Tensor, number: int) -> None:
        """`backward` keeps the gradient of this result too, as long as the result is there."""
        self.waiting().retained[number] = weakref.ref(tensor)

    def forget(self, tensor: Tensor, number: int) -> None:
        """Undo `retain`: the tensor has another history now."""
        retained = self.waiting().retained
        known = retained.get(number)
        if known is not None and known() is tensor:
            del retained[number]

    def register_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`hook(gradients of the inputs, gradients of the results)` runs after the node's backward.

        Both are tuples, with None where there is no gradient. A tuple that it returns stands in for the first.
        """
        require_callable(hook)
        return self.waiting().after.add(hook)

    def register_prehook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """`hook(gradients of the results)` runs before the node's backward, which gets what it returns instead."""
        require_callable(hook)
        return self.waiting().before.add(hook)

    def name(self) -> str:
        """The name of the operation that this goes back over, such as MulBackward."""
        return f"{self.op.name}Backward"

    @property
    def next_functions(self) -> tuple[tuple[Node | AccumulateGrad | None, int], ...]:
        """(node, output number) for each input: an `AccumulateGrad` for a leaf, None where no gradient is needed."""
        return tuple(
            (None, 0) if e is None else e if isinstance(e, tuple) else (accumulator_of(e), 0)
            for e in self.edges
        )

    def release(self) -> None:
        """Drop saved Tensors."""
        self.inputs, self.outputs, self.states, self.released = (), (), (), True

    def completed(self, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        """Cotangents with zeros for results that nothing depends on."""
        return tuple(
            BUILDER.zeros(t) if c is None else c
            for c, t in zip(cotangents, self.types, strict=True)
        )

    def saved_inputs(self) -> tuple[Any, ...]:
        """The inputs with the values that they had. In a trace these are at hand; eager they are gone after a change."""
        recorder = MODES.recorder
        result = []
        for x, state in zip((*self.inputs, *self.outputs), self.states, strict=False):
            if isinstance(state, int) and (
                x._version != state or (recorder is not None and recorder.inside(x) is not x)
            ):
                raise GradError(
                    f"an operand or result {short(x.type)} of {self.op.name} at {self.origin.source} was changed in place after "
                    f"that{changed_at(x)}, and its gradient needs the old value; change it after backward(), or make a new "
                    "Tensor instead"
                )
        for x, state, edge in zip(self.inputs, self.states, self.edges, strict=False):
            if (
                isinstance(state, Value)
                and recorder is not None
                and recorder.value_of(x) is not state
            ):
                x = as_it_was(state, edge, recorder)
            elif isinstance(x, Packed):
                x = with_history(x.unpacked(), edge)
            result.append(x)
        return tuple(result)

    def backward(self, builder: Any, cotangents: tuple[Any, ...]) -> Sequence[Any]:
        """Cotangents of the inputs."""
        if self.released:
            raise GradError(
                f"backward a second time through {self.op.name} at {self.origin.source}: its saved Tensors are gone; "
                "call the first backward with retain_graph=True"
            )
        if isinstance(self.op.vjp, NoGradient):
            raise GradError(
                f"{self.op.name} has no gradient: {self.op.vjp.reason}; recorded at {self.origin.source}"
            )
        if isinstance(self.op.vjp, ZeroGradient):
            return tuple(
                builder.zeros(x.type) if need else None
                for x, need in zip(self.inputs, self.needs, strict=True)
            )
        outputs = []
        for number, y in enumerate(self.outputs):
            if isinstance(y, Tensor | Packed):
                y = y.unpacked() if isinstance(y, Packed) else frozen(y)
                y._requires_grad, y._grad_fn, y.output_number = True, self, number
            outputs.append(y)
        n = Application(self.saved_inputs(), tuple(outputs), self.attrs, cotangents, self.needs)
        result: Sequence[Any] = self.op.vjp(builder, n)  # type: ignore[operator]
        return result

    def __repr__(self) -> str:
        return f"<{self.name()}>"


def edge_of(x: Tensor) -> Any:
    """Where x's gradient goes: to the node and the number of its output, or to the leaf x; None if none is wanted."""
    if x._view is not None or MODES.recorder is not None:
        x = x._current()
    if x._grad_fn is not None:
        return x._grad_fn, x.output_number
    return x if x._requires_grad is True else None


def as_it_was(value: Value, edge: Any, recorder: Any) -> Tensor:
    """An operand of a trace that was changed since, with the value and the history that it had."""
    return with_history(Tensor.of_value(value, recorder), edge)


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
    inputs: list[Type],
    outputs: list[Type],
    needs: tuple[bool, ...],
) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """Which inputs and outputs the gradient rule reads the elements of."""
    key = (op.name, attrs.key, tuple(inputs), tuple(outputs), needs)
    found = _SAVED.get(key)
    if found is None:
        if len(_SAVED) > 10_000:
            _SAVED.clear()
        found = _SAVED[key] = _find_saved(op, attrs, inputs, outputs, needs)
    return found


def _find_saved(
    op: Operator,
    attrs: Attributes,
    inputs: list[Type],
    outputs: list[Type],
    needs: tuple[bool, ...],
) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    if not callable(op.vjp):
        return (False,) * len(inputs), (False,) * len(outputs)
    builder = GraphBuilder()
    xs, ys = [Value(t) for t in inputs], [Value(t) for t in outputs]
    dys = tuple(Value(t) for t in outputs)
    grads = op.vjp(builder, Application(tuple(xs), tuple(ys), attrs, dys, needs))
    needed = {g for g, need in zip(grads, needs, strict=False) if need and g is not None}
    for node in reversed(builder.nodes):
        if any(v in needed for v in node.outputs):
            needed.update(node.inputs)
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
    node = Node(op, inputs, attrs, outputs, needs)
    for number, y in enumerate(outputs):
        if is_floating(y.type.dtype):
            y._requires_grad, y._grad_fn, y.output_number = True, node, number


class CompiledNode(Node):
    """The history of a compiled program's results: its gradients are another compiled program.

    `graph`: from residuals and cotangents to gradients of `sources`. `again`, if given, makes the outputs anew from Tensors that
    stand for the sources, with history: for gradients of gradients. `borrowed`: operands whose memory residuals share.
    """

    __slots__ = ("again", "borrowed", "executable", "graph", "label", "residuals", "sources")

    def __init__(
        self,
        graph: Any,
        executable: Any,
        sources: Sequence[Tensor],
        residuals: Sequence[Tensor],
        outputs: Sequence[Tensor],
        label: str,
        again: Callable[[Sequence[Tensor]], Sequence[Tensor]] | None = None,
        borrowed: Sequence[Tensor] = (),
    ) -> None:
        self.borrowed = tuple((x, x._version) for x in borrowed)
        self.graph, self.executable, self.label, self.again = graph, executable, label, again
        self.residuals, self.sources = tuple(map(packed, residuals)), tuple(sources)
        if MODES.packing is not None:
            self.borrowed = ()
        self.sequence = next_sequence()
        self.origin = here()
        self.types = tuple(y.type for y in outputs)
        self.needs = (True,) * len(sources)
        # one that requires a gradient only since the trace is a leaf of it: it is given its flag when the program has run
        self.edges = tuple(x if (edge := edge_of(x)) is None else edge for x in sources)
        self.inputs = tuple(Unsaved(x.type) for x in sources)
        self.outputs, self.states, self.released, self.hooks = (), (), False, None

    @staticmethod
    def released_node(label: str) -> CompiledNode:
        """The history of a result whose backward ran inside the traced function."""
        node = CompiledNode(None, None, (), (), (), label)
        node.types = (_ANY,)
        node.released = True
        return node

    def name(self) -> str:
        """The name of the traced function that this goes back over."""
        return f"{self.label}Backward"

    def release(self) -> None:
        """Drop the residuals."""
        self.residuals, self.sources, self.borrowed, self.again, self.released = (
            (),
            (),
            (),
            None,
            True,
        )

    def backward(self, builder: Any, cotangents: tuple[Any, ...]) -> Sequence[Any]:
        """Cotangents of the sources."""
        if self.released:
            raise GradError(
                f"backward a second time through {self.label}: its saved Tensors are gone, or backward() already ran "
                "inside the traced function; call the first backward with retain_graph=True"
            )
        for x, version in self.borrowed:
            if x._version != version:
                raise GradError(
                    f"an operand {short(x.type)} of {self.label} was changed in place after the call{changed_at(x)}, and the "
                    "gradient needs the old value; change it after backward(), or pass a copy"
                )
        if MODES.grad_enabled:
            return self._differentiable(builder, cotangents)
        inputs = [*map(unpacked, self.residuals), *cotangents]
        if MODES.recorder is not None:
            return replay(self.graph, inputs, builder)
        result: Sequence[Any] = self.executable()(inputs)
        return result

    def _differentiable(self, builder: Any, cotangents: tuple[Any, ...]) -> Sequence[Any]:
        """The same with history. The residuals have none, so the function's graph runs once more on the sources."""
        from tracer.autograd.engine import grad

        if self.again is None:
            raise GradError(
                f"a gradient of a gradient goes through {self.label}, which is traced and changes state, so that it cannot run "
                "again; trace the whole of it, or take this function's @trace away"
            )
        fresh = [builder.op("Reshape", x, shape=x.type.shape) for x in self.sources]
        outputs = self.again(fresh)
        kept = [(y, c) for y, c in zip(outputs, cotangents, strict=True) if y.requires_grad]
        found = grad(
            [y for y, _ in kept], fresh, [c for _, c in kept], True, True, allow_unused=True
        )
        return [
            builder.zeros(x.type) if g is None else g for x, g in zip(fresh, found, strict=True)
        ]


_ANY = Type("float32")


class Outside(Node):
    """The history, inside a trace, of an argument that has one outside: the walk goes on there when the program has run."""

    __slots__ = ("label", "leaf")

    def __init__(self, argument: Tensor, leaf: int) -> None:
        node = argument.grad_fn
        assert node is not None
        self.label, self.origin, self.sequence = node.name(), node.origin, next_sequence()
        self.leaf = leaf
        self.types, self.edges, self.inputs, self.needs = (argument.type,), (), (), ()
        self.outputs, self.states, self.released, self.hooks = (), (), False, None

    def name(self) -> str:
        """The name of the operation outside."""
        return self.label

    def release(self) -> None:
        """Nothing is saved."""

    def backward(self, builder: Any, cotangents: tuple[Any, ...]) -> Sequence[Any]:
        """Note the argument's gradient."""
        onward, (gradient,) = MODES.recorder.onward, cotangents  # type: ignore[union-attr]
        known = onward.get(self.leaf)
        onward[self.leaf] = gradient if known is None else builder.op("Add", known, gradient)
        return ()


def replay(
    graph: Graph,
    inputs: Sequence[Tensor],
    builder: Any,
    applied: Mapping[Any, Applied] | None = None,
) -> list[Tensor]:
    """The graph's nodes applied to Tensors, with history: for gradients of gradients. `applied`: of calls of Functions."""
    known = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.nodes:
        operands = [known[v] for v in node.inputs]
        if applied is not None and node in applied:
            outputs = _applied_again(node, applied[node], operands, builder)
        elif node.blocks:
            raise GradError(
                f"a gradient of a gradient goes through {node.op.name} at {node.source}, which has no reverse"
            )
        else:
            outputs = builder.op(node.op.name, *operands, **node.attrs)
        known.update(
            zip(node.outputs, outputs if isinstance(outputs, tuple) else (outputs,), strict=True)
        )
    return [known[v] for v in graph.outputs]


def _applied_again(
    node: Any, how: Applied, operands: list[Tensor], builder: Any
) -> tuple[Any, ...]:
    """A call of a Function: its results from the Function itself; what else is used of its inside has no history."""
    result = how.again(operands[: how.inputs])
    given = result if isinstance(result, tuple) else (result,)
    tensors = [y for y in given if isinstance(y, Tensor)]
    outputs = [tensors[k] for k in how.picked]
    if len(outputs) < len(node.outputs):
        with no_grad():
            flat = inline_calls(node.blocks[0])
            outputs += replay(flat, operands, builder)[len(outputs) :]
    return tuple(outputs)
