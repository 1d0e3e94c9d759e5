"""What forward leaves for backward (`ctx`), and the node of the history that calls backward.

Knows how saved Tensors are kept and what backward may give. Must not know how forward is called.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from ops.errors import GradError
from ops.types import Type, broadcast_shapes, is_floating, short
from tracer.autograd.gradient_node import GradientNode, edge_of
from tracer.autograd.graph import packed
from tracer.autograd.tape import as_saved
from tracer.dispatch.apply import BUILDER
from tracer.dispatch.view_updates import frozen
from tracer.functions.creation import as_tensor
from tracer.tensors.modes import MODES, here
from tracer.tensors.tensor import Tensor


class SavedTensor:
    """A Tensor kept for backward, and what tells whether it is changed in place later: its version, or its value in a trace.

    `number`: which result it is, None for all else. A result is kept without its history, which is this node: no cycle. `edge`:
    the history of all else.
    """

    __slots__ = ("edge", "inference", "number", "state", "tensor")

    def __init__(self, tensor: Tensor, number: int | None = None) -> None:
        self.number = number
        self.tensor = packed(tensor if number is None else frozen(tensor))
        self.inference = tensor.is_inference()
        self.state: Any = MODES.interpreter.version_of(tensor)
        self.edge = edge_of(tensor) if number is None else None

    def require_history(self, name: str) -> None:
        """Raise `GradError` for a Tensor that gradients must not use."""
        if self.inference:
            raise GradError(
                f"{name} saves a Tensor {short(self.tensor.type)} for backward that was made in inference mode; use x.clone() of "
                "it"
            )

    def value(self, node: FunctionNode | None, name: str, source: str) -> Tensor:
        """The Tensor with the value that it had. In a trace that is at hand; eager it is gone after a change."""
        x: Tensor = as_saved(
            self.tensor,
            self.state,
            self.edge,
            lambda x: f"a Tensor {short(x.type)} that {name} at {source} saved for backward",
        )
        if self.number is not None and node is not None and node.differentiable[self.number]:
            x = frozen(x)
            x._requires_grad, x._grad_fn, x.output_number = True, node, self.number
        return x


class FunctionContext:
    """`ctx`: what forward leaves for backward. Any attribute may be set on it, beside these."""

    def __init__(self, function: type, args: tuple[Any, ...]) -> None:
        self._name: str = function.__name__
        self.needs_input_grad = tuple(isinstance(x, Tensor) and x.requires_grad for x in args)
        self._materialize = True
        self._dirty: tuple[Tensor, ...] = ()
        self._non_differentiable: tuple[Tensor, ...] = ()
        self._to_save: tuple[Tensor | None, ...] = ()
        self._saved: tuple[SavedTensor | None, ...] | None = None
        self._node: weakref.ref[FunctionNode] | None = None
        self._source = here().source

    # ---- what forward says
    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep Tensors for backward, which reads them from `saved_tensors`. Called once; None stands for itself."""
        for x in tensors:
            if x is not None and not isinstance(x, Tensor):
                raise GradError(
                    f"{self._name}: save_for_backward takes Tensors and None, got {type(x).__name__}; keep other objects as "
                    "attributes (ctx.n = n)"
                )
        self._to_save = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say which arguments forward changes in place. It returns them too."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which results have no gradient. backward gets zeros for them."""
        self._non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros, or None, for the gradients of results that nothing depends on."""
        self._materialize = bool(value)

    # ---- what backward reads
    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved, with its values of then. Raises `GradError` if they are gone."""
        if self._saved is None:
            return self._to_save
        node = None if self._node is None else self._node()
        if node is not None and node.released:
            raise GradError(
                f"the Tensors that {self._name} at {self._source} saved for backward are gone, since backward() ran; call the "
                "first backward with retain_graph=True"
            )
        return tuple(
            None if s is None else s.value(node, self._name, self._source) for s in self._saved
        )

    # ---- what the node does
    def seal(self, node: FunctionNode, given: Sequence[Any], outputs: Sequence[Any]) -> None:
        """forward is over: from now on what it saved is guarded against changes."""
        numbers = {id(y): k for k, y in reversed(list(enumerate(given))) if isinstance(y, Tensor)}
        self._saved = tuple(
            None
            if x is None
            else SavedTensor(outputs[numbers[id(x)]], numbers[id(x)])
            if id(x) in numbers
            else SavedTensor(x)
            for x in self._to_save
        )
        for s in self._saved:
            if s is not None:
                s.require_history(self._name)
        self._node = weakref.ref(node)
        self._to_save = self._dirty = self._non_differentiable = ()

    def release(self) -> None:
        """Drop what was saved."""
        self._saved = ()


class FunctionNode(GradientNode):
    """The history of a Function's results. `types`: of results, None for those that are no Tensors."""

    __slots__ = ("context", "differentiable", "function")

    def __init__(
        self,
        function: Any,
        context: FunctionContext,
        args: Sequence[Any],
        outputs: Sequence[Any],
        differentiable: Sequence[bool],
    ) -> None:
        needs = context.needs_input_grad
        super().__init__(
            tuple(edge_of(x) if need else None for x, need in zip(args, needs, strict=True)),
            tuple(x.type if isinstance(x, Tensor) else None for x in args),
            tuple(y.type if isinstance(y, Tensor) else None for y in outputs),
        )
        self.function, self.context, self.differentiable = function, context, tuple(differentiable)

    def name(self) -> str:
        """The class's name, with Backward behind it."""
        return f"{self.context._name}Backward"

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What forward saved for backward."""
        return self.context.saved_tensors

    def release(self) -> None:
        """Drop what was saved."""
        self.released = True
        self.context.release()

    def completed(self, cotangents: Sequence[Tensor | None]) -> tuple[Any, ...]:
        """Cotangents with zeros for results that nothing depends on, unless the Function wants to know."""
        return tuple(
            BUILDER.zeros(t) if c is None and t is not None and self.context._materialize else c
            for c, t in zip(cotangents, self.types, strict=True)
        )

    def backward(self, builder: Any, cotangents: tuple[Any, ...]) -> Sequence[Any]:
        """What the user's backward gives, checked."""
        if self.released:
            raise GradError(
                f"backward a second time through {self.context._name} at {self.origin.source}: its saved Tensors are gone; "
                "call the first backward with retain_graph=True"
            )
        from tracer.autograd.function import Function

        if self.function.backward is Function.backward:
            raise GradError(
                f"{self.context._name} has no backward; give it a static method backward(ctx, *gradients). Applied at "
                f"{self.origin.source}"
            )
        found = self.function.backward(self.context, *cotangents)
        given = list(found) if isinstance(found, tuple | list) else [found]
        count = len(self.input_types)
        while len(given) > count and given[-1] is None:
            given.pop()
        if len(given) != count:
            raise GradError(
                f"{self.context._name}.backward gave {len(given)} gradients, forward has {count} arguments (without ctx): one "
                f"for each is needed, None for those without. Applied at {self.origin.source}"
            )
        return [self._checked(number, g) for number, g in enumerate(given)]

    def _checked(self, number: int, gradient: Any) -> Any:
        """A gradient of the argument's type, None where nobody asks for it."""
        if gradient is None or self.edges[number] is None:
            return None
        type_ = self.input_types[number]
        assert type_ is not None
        wanted = type_.strong()
        where = f"{self.context._name}.backward gave for argument {number}, {short(wanted)},"
        if isinstance(gradient, np.ndarray | np.generic):
            gradient = as_tensor(gradient)
        if not isinstance(gradient, Tensor):
            raise GradError(
                f"{where} a gradient of class {type(gradient).__name__}; it must be a Tensor of the argument's shape, or None. "
                f"Applied at {self.origin.source}"
            )
        got = gradient.type
        if not is_floating(got.dtype):
            raise GradError(
                f"{where} a gradient {short(got)}, which is not floating; convert it. Applied at {self.origin.source}"
            )
        if got.shape != wanted.shape and not _spread(wanted, got):
            raise GradError(
                f"{where} a gradient {short(got)}; it must have the argument's shape. Applied at {self.origin.source}"
            )
        return (
            gradient if got.dtype == wanted.dtype else BUILDER.op("Cast", gradient, to=wanted.dtype)
        )


def _spread(wanted: Type, got: Type) -> bool:
    """Whether a gradient is of the argument broadcast: it is summed then, as for every operator."""
    try:
        return broadcast_shapes(wanted.shape, got.shape) == got.shape
    except ValueError:
        return False


class _RefusingNode(GradientNode):
    """The history of gradients that cannot be differentiated again. They depend on all that their node depends on."""

    __slots__ = ("label",)

    def __init__(self, label: str, sources: Sequence[tuple[Any, Type | None]], type_: Type) -> None:
        edges, types = zip(*sources, strict=True)
        super().__init__(edges, types, (type_,))
        self.label = label

    def name(self) -> str:
        """Whose gradient it is, with Backward behind it."""
        return f"{self.label}BackwardBackward"

    def backward(self, builder: Any, cotangents: tuple[Any, ...]) -> Sequence[Any]:
        """No."""
        raise GradError(
            f"a gradient of a gradient goes through the backward of {self.label}, which is marked once_differentiable; "
            "write it with tracer's functions on Tensors and take the mark away"
        )


def refuse_second_gradient(found: Any, context: FunctionContext, gradients: Sequence[Any]) -> Any:
    """What a backward found, such that `GradError` is raised where it is differentiated."""
    node = None if context._node is None else context._node()
    if node is None:
        return found
    sources = [(e, t) for e, t in zip(node.edges, node.input_types, strict=True) if e is not None]
    for g in gradients:
        if isinstance(g, Tensor) and g.requires_grad:
            sources.append((edge_of(g), g.type))

    def marked(g: Any) -> Any:
        g = as_tensor(g) if isinstance(g, np.ndarray) else g
        if not isinstance(g, Tensor) or not is_floating(g.type.dtype):
            return g
        g = g.detach()
        g._requires_grad, g.output_number = True, 0
        g.grad_fn = _RefusingNode(context._name, sources, g.type)
        return g

    return tuple(map(marked, found)) if isinstance(found, tuple | list) else marked(found)
