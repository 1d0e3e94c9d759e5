"""Running and differentiating operators without a graph: on plain NumPy arrays, or on types alone.

`tracer` records, transforms and compiles; this is the same meaning in the shortest form, for tests
and documentation: a builder runs each operator's reference at once, remembers what it ran, and
walks back over it. Must not know graphs or kernels.

    >>> import numpy as np
    >>> from ops import table
    >>> g = ArrayBuilder()
    >>> x = g.value(np.array([1.0, 2.0]))
    >>> y = g.Mul(x, g.Exp(x))
    >>> (dx,) = g.pullback([y], [g.value(np.ones(2))], [x])
    >>> np.allclose(dx.array, (1 + x.array) * np.exp(x.array))
    True
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ops.compute import Composite
from ops.errors import GradError, VerifyError
from ops.operator import (
    Application,
    Attributes,
    Derived,
    NoGradient,
    Operator,
    RuleBuilder,
    ZeroGradient,
    lookup,
)
from ops.types import Type, is_floating, short

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """What rules handle here: a type, and the array when there is one."""

    type: Type
    data: Array | None = None

    @property
    def array(self) -> Array:
        """The array. Raises `VerifyError` on a value that is a type only."""
        if self.data is None:
            raise VerifyError(f"a {short(self.type)} built on types alone has no array")
        return self.data


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One application, as it was run."""

    operator: Operator
    inputs: tuple[Value | None, ...]
    attrs: Attributes
    outputs: tuple[Value, ...]


class TypeBuilder(RuleBuilder):
    """Builds on types alone, symbolic sizes too. With `expanded`, composites are taken apart."""

    def __init__(self, expanded: bool = False) -> None:
        self.expanded = expanded
        self.steps: list[Step] = []

    def op(self, name: str, *inputs: Any, **attrs: Any) -> Any:
        """Apply an operator; one value, or a tuple when it has several outputs."""
        operator = lookup(name)
        normal = operator.normalize(attrs)
        types = operator.infer([None if x is None else x.type for x in inputs], normal)  # type: ignore[misc]
        if self.expanded and isinstance(operator.compute, Composite):
            outputs = self.decompose(operator, inputs, normal)
        else:
            outputs = self.run(operator, inputs, normal, types)
            self.steps.append(Step(operator, inputs, normal, outputs))
        for found, expected in zip(outputs, types, strict=True):
            if found.type.strong() != expected.strong():
                raise VerifyError(
                    f"{name}: the type rule says {short(expected)}, but it gave {short(found.type)}"
                )
        return outputs if len(outputs) > 1 else outputs[0]

    def run(
        self,
        operator: Operator,
        inputs: Sequence[Value | None],
        attrs: Attributes,
        types: Sequence[Type],
    ) -> tuple[Value, ...]:
        """The outputs of one operator."""
        return tuple(Value(t) for t in types)

    def decompose(
        self, operator: Operator, inputs: Sequence[Value | None], attrs: Attributes
    ) -> tuple[Value, ...]:
        """The outputs of a composite, built from other operators."""
        assert isinstance(operator.compute, Composite)
        result = operator.compute.rule(self, Application(tuple(inputs), (), attrs))
        return result if isinstance(result, tuple) else (result,)

    def pullback(
        self,
        outputs: Sequence[Value],
        cotangents: Sequence[Value | None],
        inputs: Sequence[Value],
    ) -> tuple[Value | None, ...]:
        """Cotangents of the inputs, given those of the outputs; None where there is no gradient.

        What it builds is recorded too, so a second pullback differentiates the first.
        """
        return self._reverse(tuple(self.steps), outputs, cotangents, inputs)

    def _reverse(
        self,
        steps: Sequence[Step],
        outputs: Sequence[Value],
        cotangents: Sequence[Value | None],
        inputs: Sequence[Value | None],
    ) -> tuple[Value | None, ...]:
        active = {id(x) for x in inputs if x is not None}
        for step in steps:
            if any(id(x) in active for x in step.inputs):
                active.update(id(y) for y in step.outputs if is_floating(y.type.dtype))
        totals: dict[int, Value] = {}
        self._collect(totals, outputs, cotangents)
        for step in reversed(steps):
            arrived = tuple(totals.get(id(y)) for y in step.outputs)
            needs = tuple(id(x) in active for x in step.inputs)
            if any(needs) and any(c is not None for c in arrived):
                found = self._gradients(step, arrived, needs)
                self._collect(totals, step.inputs, found, needs)
        return tuple(totals.get(id(x)) for x in inputs)

    def _collect(
        self,
        totals: dict[int, Value],
        values: Sequence[Value | None],
        cotangents: Sequence[Value | None],
        needs: Sequence[bool] | None = None,
    ) -> None:
        """Add each cotangent to its value's total, summed over the axes that broadcasting added."""
        for k, (x, cotangent) in enumerate(zip(values, cotangents, strict=True)):
            if x is None or cotangent is None or not (needs is None or needs[k]):
                continue
            cotangent = self.sum_to(cotangent, x.type.shape)
            if cotangent.type.strong() != x.type.strong():
                raise VerifyError(
                    f"the cotangent of a {short(x.type)} is a {short(cotangent.type)}"
                )
            known = totals.get(id(x))
            totals[id(x)] = cotangent if known is None else self.op("Add", known, cotangent)

    def _gradients(
        self, step: Step, cotangents: tuple[Value | None, ...], needs: tuple[bool, ...]
    ) -> tuple[Value | None, ...]:
        rule = step.operator.vjp
        if isinstance(rule, ZeroGradient):
            return (None,) * len(step.inputs)
        if isinstance(rule, NoGradient):
            raise GradError(f"{step.operator.name} has no gradient: {rule.reason}")
        if not isinstance(rule, Derived):
            n = Application(step.inputs, step.outputs, step.attrs, cotangents, needs)
            return tuple(rule(self, n))
        start = len(self.steps)
        outputs = self.decompose(step.operator, step.inputs, step.attrs)
        found = self._reverse(self.steps[start:], outputs, cotangents, step.inputs)
        # An operand given twice has one total, which is not to be counted twice.
        first = {id(x): k for k, x in reversed(list(enumerate(step.inputs)))}
        return tuple(
            c if first[id(x)] == k else None
            for k, (x, c) in enumerate(zip(step.inputs, found, strict=True))
        )


class ArrayBuilder(TypeBuilder):
    """Builds on arrays: every operator's reference runs at once."""

    def value(self, array: Any) -> Value:
        """An array as a value."""
        array = np.asarray(array)
        return Value(Type.of(array), array)

    def run(
        self,
        operator: Operator,
        inputs: Sequence[Value | None],
        attrs: Attributes,
        types: Sequence[Type],
    ) -> tuple[Value, ...]:
        """The outputs of one operator, by its reference."""
        result = operator.reference(*(None if x is None else x.array for x in inputs), **attrs)
        return tuple(self.value(a) for a in (result if isinstance(result, tuple) else (result,)))


def evaluate(
    operator: Operator,
    arrays: Sequence[Array],
    attrs: Mapping[str, Any] | None = None,
    expanded: bool = False,
) -> tuple[Array, ...]:
    """The outputs of an operator on arrays; with `expanded`, by its decomposition."""
    g = ArrayBuilder(expanded)
    result = g.op(operator.name, *(g.value(a) for a in arrays), **(attrs or {}))
    return tuple(y.array for y in (result if isinstance(result, tuple) else (result,)))


def gradients(
    operator: Operator,
    arrays: Sequence[Array],
    attrs: Mapping[str, Any] | None,
    cotangents: Sequence[Array],
) -> tuple[Array | None, ...]:
    """Cotangents of the inputs, given those of the outputs; None where there is no gradient."""
    g = ArrayBuilder()
    inputs = tuple(g.value(a) for a in arrays)
    result = g.op(operator.name, *inputs, **(attrs or {}))
    outputs = result if isinstance(result, tuple) else (result,)
    found = g.pullback(outputs, [g.value(c) for c in cotangents], inputs)
    return tuple(None if c is None else c.array for c in found)
