"""The history that traced functions leave: their results go back by a compiled program, and arguments come with a history that
the trace does not know. Also graphs applied to Tensors again, for gradients of gradients.

Knows nodes of the history and graphs. Must not know how functions are traced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ops.errors import GradError
from ops.types import Type, short
from tracer.autograd.gradient_node import GradientNode, edge_of
from tracer.autograd.graph import packed, unpacked
from tracer.autograd.tape import changed_at
from tracer.ir.call_sites import Applied
from tracer.ir.graph import Graph, Node, evaluate
from tracer.passes.inline_calls import inline_calls
from tracer.tensors.grad_mode import no_grad
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor


class CompiledNode(GradientNode):
    """The history of a compiled program's results: its gradients are another compiled program.

    `graph`: from residuals and cotangents to gradients of `sources`. `again`, if given, makes the outputs anew from Tensors that
    stand for the sources, with history: for gradients of gradients. `borrowed`: operands whose memory residuals share.
    """

    __slots__ = (
        "again",
        "borrowed",
        "executable",
        "graph",
        "label",
        "refusal",
        "residuals",
        "sources",
    )

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
        # one that requires a gradient only since the trace is a leaf of it: it is given its flag when the program has run
        edges = tuple(x if (edge := edge_of(x)) is None else edge for x in sources)
        super().__init__(edges, tuple(x.type for x in sources), tuple(y.type for y in outputs))
        self.refusal: Exception | None = None
        self.borrowed = (
            () if MODES.packing is not None else tuple((x, x._version) for x in borrowed)
        )
        self.graph, self.executable, self.label, self.again = graph, executable, label, again
        self.residuals, self.sources = tuple(map(packed, residuals)), tuple(sources)

    @staticmethod
    def released_node(label: str, refusal: Exception | None = None) -> CompiledNode:
        """The history of a result whose backward ran inside the traced function, or cannot run at all: `refusal`."""
        node = CompiledNode(None, None, (), (), (), label)
        node.types = (_ANY,)
        node.released = True
        node.refusal = refusal
        return node

    def name(self) -> str:
        """The name of the traced function that this goes back over."""
        return f"{self.label}Backward"

    def release(self) -> None:
        """Drop the residuals."""
        self.residuals, self.sources, self.borrowed = (), (), ()
        self.again, self.released = None, True

    def backward(self, builder: Any, cotangents: tuple[Any, ...]) -> Sequence[Any]:
        """Cotangents of the sources."""
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)
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
        return MODES.interpreter.run_graph(self.graph, inputs, self.executable)

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


class IncomingHistory(GradientNode):
    """The history, inside a trace, of an argument that has one outside: the walk goes on there when the program has run."""

    __slots__ = ("label", "leaf", "outgoing_gradients")

    def __init__(self, argument: Tensor, leaf: int, outgoing_gradients: dict[int, Any]) -> None:
        node = argument.grad_fn
        assert node is not None
        super().__init__((), (), (argument.type,))
        self.origin = node.origin
        self.label, self.leaf, self.outgoing_gradients = node.name(), leaf, outgoing_gradients

    def name(self) -> str:
        """The name of the operation outside."""
        return self.label

    def backward(self, builder: Any, cotangents: tuple[Any, ...]) -> Sequence[Any]:
        """Note the argument's gradient."""
        (gradient,) = cotangents
        known = self.outgoing_gradients.get(self.leaf)
        self.outgoing_gradients[self.leaf] = (
            gradient if known is None else builder.op("Add", known, gradient)
        )
        return ()


def replay(
    graph: Graph,
    inputs: Sequence[Tensor],
    builder: Any,
    applied: Mapping[Any, Applied] | None = None,
) -> list[Tensor]:
    """The graph's nodes applied to Tensors, with history: for gradients of gradients. `applied`: of calls of Functions."""

    def apply(node: Node, operands: tuple[Tensor, ...]) -> Sequence[Tensor]:
        if applied is not None and node in applied:
            return _applied_again(node, applied[node], operands, builder)
        if node.blocks:
            raise GradError(
                f"a gradient of a gradient goes through {node.op.name} at {node.source}, which has no reverse"
            )
        outputs = builder.op(node.op.name, *operands, **node.attrs)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    return evaluate(graph, inputs, apply, release=True)


def _applied_again(
    node: Node, how: Applied, operands: Sequence[Tensor], builder: Any
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
