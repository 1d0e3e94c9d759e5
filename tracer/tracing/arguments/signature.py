"""What distinguishes calls: the tree of the arguments, and for each leaf its type or its value.

Tensors, arrays and Python floats are inputs of the program; everything else is static and compared by value, or by identity
when it is no plain value (a module, a function).
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree

from ops.errors import ArgumentError, TraceError
from ops.python_values import PLAIN_CLASSES, PlainValue
from ops.types import Type, short
from tracer.autograd.hooks import state_of
from tracer.tensors.modes import Flag, Untracked
from tracer.tensors.tensor import Tensor, intern
from tracer.tracing.state.value_kinds import is_used_up

NAMESPACE = "tracer"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One argument leaf: "tensor", "array", "float" (inputs), "static" (by value), "object" (by identity), or "alias": the same
    Tensor or array as an earlier leaf, whose number is the value.

    `value` of a tensor that requires a gradient: its hooks, or that it has a history.
    """

    kind: str
    type: Type | None = None
    requires_grad: Flag = False
    value: Any = None

    def __str__(self) -> str:
        if self.kind == "alias":
            return f"argument {self.value + 1} again"
        if self.type is not None:
            mark = f" {self.requires_grad}" if isinstance(self.requires_grad, Untracked) else ""
            return "float" if self.kind == "float" else short(self.type) + mark
        return repr(self.value)[:60]


FLOAT = Leaf("float", Type("float64", (), True))


class _Static:
    """A value that is compared, `by`: as a plain value where it is one (1, True and 1.0 are three), else by its identity."""

    __slots__ = ("_by", "value")

    def __init__(self, value: Any, by: Any) -> None:
        self.value, self._by = value, by

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Static) and self._by == other._by

    def __hash__(self) -> int:
        return hash(self._by)

    def __repr__(self) -> str:
        if isinstance(self._by, int):
            return f"{type(self.value).__name__} at {id(self.value):#x}"
        return repr(self.value)


def _static(x: Any) -> Leaf:
    return Leaf("static", value=_Static(x, PlainValue(x)))


def leaf_of(x: Any, static: bool = False) -> Leaf:
    """How an argument leaf enters the signature. `static`: a float is compared by value too."""
    if isinstance(x, Tensor):
        if x._value is not None:
            raise TraceError(
                f"a Tensor {short(x.type)} of a trace that is over is passed to a traced function; it has no data: return "
                "it from the traced function that made it instead of keeping it"
            )
        if x._view is not None:
            x._current()  # its flags follow the base
        history = history_key(x) if x._requires_grad is True else None
        return Leaf("tensor", intern(x.type.strong()), x._requires_grad, history)
    if isinstance(x, np.ndarray):
        return Leaf("array", intern(Type.of(x)))
    if type(x) is float:
        return _static(x) if static else FLOAT
    if isinstance(x, np.generic):
        return Leaf("array", intern(Type.of(np.asarray(x))))
    if isinstance(x, PLAIN_CLASSES):
        return _static(x)
    if is_used_up(x):
        raise ArgumentError(
            f"a traced function was given a {type(x).__name__}, whose elements can be taken once; pass a list or a tuple"
        )
    return Leaf("object", value=_Static(x, id(x)))


def has_history(leaf: Leaf) -> bool:
    """Whether an argument requires a gradient and is no leaf."""
    return leaf.kind == "tensor" and leaf.requires_grad is True and leaf.value == ()


def history_key(x: Tensor) -> tuple[Any, ...] | None:
    """What the gradient of an argument meets: the hooks of a leaf, None for none; () is another way back than a leaf's."""
    return () if x.grad_fn is not None else state_of(x) or None


class Call:
    """The arguments of one call, flattened once. `leaves` and `tree`: None is a leaf."""

    __slots__ = ("_names", "_parameters", "args", "kwargs", "leaves", "tree")

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], parameters: tuple[str, ...] = ()
    ) -> None:
        """`parameters`: the names of positional arguments. Raises `ArgumentError` for what is no tree."""
        self.args, self.kwargs = args, kwargs
        self._parameters = parameters
        self._names: list[str] | None = None
        try:
            whole: Any = (args, kwargs)
            self.leaves, self.tree = optree.tree_flatten(
                whole, none_is_leaf=True, namespace=NAMESPACE
            )
        except (ValueError, TypeError) as error:
            raise ArgumentError(
                f"the arguments are no tree that can be flattened: {error}"
            ) from None

    @property
    def names(self) -> list[str]:
        """A readable name for each leaf: the parameter, with the way inside it."""
        if self._names is None:
            whole: Any = (self.args, self.kwargs)
            paths, _, _ = optree.tree_flatten_with_path(
                whole, none_is_leaf=True, namespace=NAMESPACE
            )
            self._names = [".".join([self._head(path), *map(str, path[2:])]) for path in paths]
        return self._names

    def _head(self, path: tuple[Any, ...]) -> str:
        which, first = path[:2]
        if which == 0:
            return self._parameters[first] if first < len(self._parameters) else f"argument{first}"
        return str(first)

    def numbers_of(self, parameters: Container[str]) -> list[int]:
        """The leaves that these parameters hold."""
        return [k for k, name in enumerate(self.names) if name.split(".")[0] in parameters]

    def classify(self, static: Container[int] = ()) -> tuple[Leaf, ...]:
        """How each leaf enters the signature. `static`: numbers of those whose floats are compared by value too."""
        signature: list[Leaf] = []
        # by identity: what is changed in place changes under each of its names
        first: dict[int, int] = {}
        for number, x in enumerate(self.leaves):
            if isinstance(x, Tensor | np.ndarray) and first.setdefault(id(x), number) != number:
                signature.append(Leaf("alias", value=first[id(x)]))
            else:
                signature.append(leaf_of(x, number in static))
        return tuple(signature)

    def objects(self, signature: Sequence[Leaf]) -> dict[str, Any]:
        """By their names, the leaves that are compared by identity, such as modules."""
        found = zip(self.names, self.leaves, signature, strict=True)
        return {name: x for name, x, leaf in found if leaf.kind == "object"}
