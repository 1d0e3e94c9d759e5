"""Anomaly mode: an error names the operator and the line where the first nan or infinity appeared, in forward or backward.

Eager operators are looked at one by one. A compiled program is looked at before it runs, by a second program that computes
the same values and keeps them all, so that nothing has been written when the error is raised. Knows operators and graphs;
must not know what records them.
"""

from __future__ import annotations

import contextlib
import inspect
import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ops.errors import AnomalyError, ArgumentError
from ops.types import Type, is_floating, short
from tracer.core.source_lines import located
from tracer.ir.graph import Graph, Node, Value
from tracer.passes.inline_calls import inline_calls
from tracer.runtime.executable import Executable
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Array, Tensor

if TYPE_CHECKING:
    from tracer.autograd.gradient_node import GradientNode

MOST_OPERANDS = 4  # that an error describes
_PLUMBING = (
    "Constant",
    "Cast",
    "Reshape",
    "Expand",
    "Dimension",
)  # not what a user calls an operator of a line


# ---- the mode ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Checks:
    """What counts as an anomaly."""

    nan: bool = True
    inf: bool = True

    def look_at(self, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Raise `AnomalyError` if an eager operator gave the first value that is not finite."""
        _look_at(self, name, inputs, outputs)

    def look_at_gradients(self, node: GradientNode, gradients: Sequence[Tensor | None]) -> None:
        """The same for the results of a gradient rule, whose own operators have been looked at."""
        _look_at_gradients(self, node, gradients)

    def within(self, node: GradientNode | None = None) -> contextlib.AbstractContextManager[None]:
        """What is computed inside is part of a rule: a node's gradient, or an operator made of others.

        A nan that a rule uses for what is undefined counts only if it gets into the results.
        """
        return _within(node)

    def of_graph(self, graph: Graph, forward: Graph | None = None) -> GraphChecks:
        """What looks at every value of a graph for given inputs. `forward`: what a graph of gradients belongs to."""
        return GraphChecks(graph, forward)


def _checks(mode: Any, check_nan: bool, check_inf: bool) -> Checks | None:
    for what in (mode, check_nan, check_inf):
        if not isinstance(what, bool):
            raise located(ArgumentError(f"anomaly mode takes True or False, got {what!r:.60}"))
    MODES.interpreter.require_repeatable(
        "anomaly mode is changed",
        "Use `with tracer.autograd.detect_anomaly():` around the call of the traced function",
    )
    return Checks(check_nan, check_inf) if mode and (check_nan or check_inf) else None


class detect_anomaly(contextlib.ContextDecorator):  # noqa: N801 - PyTorch's name
    """Inside, the first nan or infinity raises `AnomalyError`; a context manager and a decorator, for this thread.

    `check_nan=False`, `check_inf=False`: such values are let pass. Infinities that the code itself names, such as
    -inf in a mask, are no anomalies as long as they are only passed on.

    >>> with tracer.autograd.detect_anomaly():
    ...     try:
    ...         tracer.log(tracer.tensor(-1.0))
    ...     except tracer.AnomalyError as error:
    ...         print(str(error).splitlines()[0])
    Log gave nan: float32[]
    """

    def __init__(self, check_nan: bool = True, check_inf: bool = True) -> None:
        self._arguments = check_nan, check_inf
        self._previous: list[Any] = []

    def _recreate_cm(self) -> detect_anomaly:
        return type(self)(
            *self._arguments
        )  # one for each call: a function may run in several threads

    def __call__(self, function: Any) -> Any:
        """The function with the mode on while it runs."""
        later = ("isgeneratorfunction", "iscoroutinefunction", "isasyncgenfunction", "isclass")
        if not callable(function) or any(getattr(inspect, test)(function) for test in later):
            raise located(
                ArgumentError(
                    f"detect_anomaly decorates functions that return when they are done, got {function!r:.60}; use "
                    "`with detect_anomaly():` inside"
                )
            )
        return super().__call__(function)

    def __enter__(self) -> None:
        checks = _checks(True, *self._arguments)
        own = MODES.__dict__  # of this thread
        self._previous.append(own.get("anomaly", _NOTHING))
        own["anomaly"] = checks

    def __exit__(self, *_: object) -> None:
        previous = self._previous.pop()
        if previous is _NOTHING:
            MODES.__dict__.pop("anomaly", None)
        else:
            MODES.__dict__["anomaly"] = previous


class set_detect_anomaly:  # noqa: N801 - PyTorch's name
    """Switch anomaly mode on or off, in all threads, from this call on or, as a context manager, until the block ends.

    >>> with tracer.autograd.set_detect_anomaly(True):
    ...     tracer.autograd.is_anomaly_enabled()
    True
    """

    def __init__(self, mode: bool, check_nan: bool = True, check_inf: bool = True) -> None:
        checks = _checks(mode, check_nan, check_inf)
        self._previous = type(MODES).anomaly
        type(MODES).anomaly = checks

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        type(MODES).anomaly = self._previous


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on in this thread.

    >>> tracer.autograd.is_anomaly_enabled()
    False
    """
    return MODES.anomaly is not None


_NOTHING = object()


# ---- eager ---------------------------------------------------------------------------------------


class _Place(threading.local):
    node: GradientNode | None = None  # whose gradient is being computed
    inside: bool = False  # of a rule, whose values matter as far as they get into its results


_PLACE = _Place()
_MEANT: dict[int, Any] = {}
"""Counts of changes, by identity, of memory that is not finite because of numbers in the code. All Tensors on it share them."""
_MOST_MEANT = 10_000


@contextlib.contextmanager
def _within(node: GradientNode | None) -> Iterator[None]:
    before = _PLACE.node, _PLACE.inside
    _PLACE.node, _PLACE.inside = node or _PLACE.node, True
    try:
        yield
    finally:
        _PLACE.node, _PLACE.inside = before


def _look_at(
    checks: Checks, name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> None:
    for y in outputs:
        if not is_floating(y.type.dtype):
            continue
        array = y._data()
        kind = _anomaly(array, checks)
        if kind is None:
            continue
        if not inputs:
            _mean(y)
            continue
        operands = [_Operand(x.type, x._data(), _is_number(x) or _was_meant(x)) for x in inputs]
        if _is_meant(kind, operands) and (kind == "inf" or _PLACE.inside):
            _mean(y)
            continue
        node = _PLACE.node
        where = "" if node is None else _gradient_of(node)
        raise AnomalyError(_letter(name, where, kind, array, y.type, operands))


def _look_at_gradients(
    checks: Checks, node: GradientNode, gradients: Sequence[Tensor | None]
) -> None:
    for number, g in enumerate(gradients):
        if g is not None and _anomaly(g._data(), checks) == "nan":
            text = f"The gradient of {_name(node)} with respect to operand {number}"
            where = _at_line(node.origin.source, node.origin.scope)
            raise AnomalyError(_letter(text, where, "nan", g._data(), g.type, ()))


def _gradient_of(node: GradientNode) -> str:
    return f" in the gradient of {_name(node)}{_at_line(node.origin.source, node.origin.scope)}"


def _name(node: GradientNode) -> str:
    return node.name().removesuffix("Backward")


def _at_line(source: str, scope: str) -> str:
    inside = f" in {scope}" if scope else ""
    return f" at {source or 'an unknown line'}{inside}"


def _mean(x: Tensor) -> None:
    changes = x.changes()
    _MEANT[id(changes)] = changes
    if len(_MEANT) > _MOST_MEANT:
        for number in list(_MEANT)[: _MOST_MEANT // 2]:
            del _MEANT[number]


def _was_meant(x: Tensor) -> bool:
    return x._changes is not None and id(x._changes) in _MEANT


def _is_number(x: Tensor) -> bool:
    """Whether a Tensor was made of a number in the code, as far as one sees."""
    return x.type.shape == () and not x.requires_grad


# ---- compiled programs ---------------------------------------------------------------------------


class GraphChecks:
    """Looks at every value of a graph, for given inputs, by a program that has them all for results.

    `forward`: what a graph of gradients belongs to.
    """

    def __init__(self, graph: Graph, forward: Graph | None = None) -> None:
        self.graph = graph = inline_calls(graph)
        self.forward = inline_calls(forward) if forward is not None else graph
        self.values = list(dict.fromkeys(v for node in graph.nodes for v in node.outputs))
        every = Graph(
            graph.inputs,
            graph.nodes,
            tuple(self.values),
            graph.input_names,
            f"{graph.name}.values",
        )
        self.executable = Executable(every, {}, range(len(self.values)), tested=False)

    def __call__(self, inputs: Sequence[Any]) -> None:
        """Raise `AnomalyError` for the first node, in the order of the program, that gives a value that is not finite."""
        checks = MODES.anomaly
        assert isinstance(checks, Checks)
        results = self.executable(inputs)
        known: dict[Value, Array] = {
            v: x._data() if isinstance(x, Tensor) else np.asarray(x)
            for v, x in zip(self.graph.inputs, inputs, strict=True)
        }
        known |= {v: y._data() for v, y in zip(self.values, results, strict=True)}
        # what is not finite because of numbers in the code, and which node gave it first; a nan counts if it gets out
        meant: dict[Value, Node] = {}
        numbers: set[Value] = set()
        for node in self.graph.nodes:
            if all(x in numbers for x in node.inputs):
                numbers.update(node.outputs)
            for v in node.outputs:
                kind = _anomaly(known[v], checks) if is_floating(v.type.dtype) else None
                if kind is None:
                    continue
                if not node.inputs:
                    if not v.type.shape or node.op.name != "Constant":  # others are data
                        meant[v] = node
                    continue
                operands = [_Operand(x.type, known[x], x in meant) for x in node.inputs]
                if _is_meant(kind, operands):
                    wrong = np.isnan if kind == "nan" else np.isinf
                    before = [
                        meant[x]
                        for x in node.inputs
                        if x in meant and x not in numbers and wrong(known[x]).any()
                    ]
                    meant[v] = before[0] if before else node
                    continue
                self._refuse(node, v, kind, known, meant)
        for v in self.graph.outputs:
            if v in meant and v not in numbers and _anomaly(known[v], checks) == "nan":
                node = meant[v]
                self._refuse(node, node.outputs[0], "nan", known, meant)

    def _refuse(
        self,
        node: Node,
        value: Value,
        kind: str,
        known: Mapping[Value, Array],
        meant: Container[Value],
    ) -> None:
        names = dict(zip(self.graph.inputs, self.graph.input_names, strict=True))
        operands = [
            _Operand(
                x.type,
                known[x],
                x in meant,
                None if x not in names else names[x] or "an operand of the program",
            )
            for x in node.inputs
        ]
        place = f"{self._where(node)}, in {self.graph.name or 'a program'}"
        raise AnomalyError(_letter(node.op.name, place, kind, known[value], value.type, operands))

    def _where(self, node: Node) -> str:
        origin = node.origin
        line = _at_line(origin.source, origin.scope)
        if not origin.gradient:
            return line
        forward = dict.fromkeys(
            n.op.name
            for n in self.forward.nodes
            if (n.source, n.scope) == (origin.source, origin.scope)
            and not n.origin.gradient
            and n.op.name not in _PLUMBING
        )
        return f" in the gradient of {', '.join(list(forward)[:MOST_OPERANDS]) or 'what is computed'}{line}"


# ---- what an error says --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand of the operator: its values, whether infinities in it are meant, its name if it came from outside."""

    type: Type
    array: Array
    meant: bool = False
    name: str | None = None


def _anomaly(array: Array, checks: Checks) -> str | None:
    """What is wrong with the values: "nan" or "inf", None if nothing is."""
    if np.isfinite(array).all():
        return None
    if checks.nan and np.isnan(array).any():
        return "nan"
    return "inf" if checks.inf and np.isinf(array).any() else None


def _is_meant(kind: str, operands: Sequence[_Operand]) -> bool:
    """Whether what is not finite is only passed on from numbers that the code names. A nan of infinities is a new one."""
    floating = [x for x in operands if is_floating(x.type.dtype)]
    carriers = [x for x in floating if not np.isfinite(x.array).all()]
    if kind == "nan" and not any(np.isnan(x.array).any() for x in carriers):
        return False
    return bool(carriers) and all(x.meant for x in carriers)


def _letter(
    operator: str,
    where: str,
    kind: str,
    array: Array,
    type_: Type,
    operands: Sequence[_Operand],
) -> str:
    wrong = np.isnan(array) if kind == "nan" else np.isinf(array)
    place = tuple(int(k) for k in np.argwhere(wrong)[0])
    lines = [f"{operator} gave {array[place]!s}{where}: {short(type_)}"]
    if place:
        lines[0] += f", {int(wrong.sum())} of {array.size} elements, the first at {list(place)}"
    for number, x in enumerate(operands[:MOST_OPERANDS]):
        lines.append(f"  operand {number}: {_described(x, place, array.shape)}")
    if len(operands) > MOST_OPERANDS:
        lines.append(f"  and {len(operands) - MOST_OPERANDS} more operands")
    if any(_is_bad(x) for x in operands):
        lines.append(
            "  the operand was not finite already: it is data, or was computed outside anomaly mode"
            + (
                ""
                if kind == "nan"
                else "; if infinities are meant: detect_anomaly(check_inf=False)"
            )
        )
    return "\n".join(lines)


def _is_bad(x: _Operand) -> bool:
    return is_floating(x.type.dtype) and not x.meant and not np.isfinite(x.array).all()


def _described(x: _Operand, place: tuple[int, ...], shape: tuple[int, ...]) -> str:
    parts = [short(x.type) + (f" {x.name}" if x.name else "")]
    value = _at(x.array, place, shape)
    if value is not None:
        parts.append(f"{value!s} there" if x.array.ndim else str(value))
    if x.array.ndim and x.array.size and x.type.dtype != "bool":
        finite = x.array[np.isfinite(x.array)] if is_floating(x.type.dtype) else x.array
        if finite.size:
            low, high = finite.min(), finite.max()
            parts.append(f"all {low!s}" if low == high else f"from {low!s} to {high!s}")
        if finite.size < x.array.size:
            parts.append(f"{x.array.size - finite.size} not finite")
    return ", ".join(parts)


def _at(array: Array, place: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """The operand's element that belongs to the result's element, if shapes tell; None if they do not."""
    try:
        return np.broadcast_to(array, shape)[place]
    except ValueError:
        return None
