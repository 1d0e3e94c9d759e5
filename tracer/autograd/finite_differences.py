"""Checks of gradients against finite differences: `gradcheck`, and `gradgradcheck` for gradients of gradients.

Knows functions of Tensors and the engine. Must not know operators or how functions are traced.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ops.errors import ArgumentError, GradcheckError
from ops.types import is_floating, short
from tracer.autograd.argument_trees import flatten, unflatten
from tracer.autograd.engine import grad
from tracer.core.source_lines import name_of
from tracer.functions.public import public
from tracer.tensors.grad_mode import inference_mode
from tracer.tensors.tensor import Array, Tensor


@public
def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
) -> bool:
    """Whether func's gradients agree with differences of its values, `abs(a - n) <= atol + rtol * abs(n)` for each element.

    `inputs`: a Tensor, or a tuple of arguments; those Tensors that require gradients are checked, and should be float64.
    `func` gives a Tensor or several; a traced function is checked as it runs. `eps`: the step of the differences.
    `nondet_tol`: how far the gradients of two calls may be apart.

    Raises `GradcheckError`, or gives False with `raise_exception=False`. Raises `ArgumentError` if no input requires a
    gradient.

    >>> x = tracer.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
    >>> tracer.autograd.gradcheck(lambda x: (x * x).sum(), (x,))
    True
    """
    arguments = _Arguments.of(inputs, "gradcheck")
    tolerance = _Tolerance(eps, atol, rtol, nondet_tol)
    return _report(_Check(func, arguments, tolerance, name_of(func)).mistakes(), raise_exception)


@public
def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
) -> bool:
    """`gradcheck` of func's gradients, as functions of the inputs and of the cotangents of the outputs.

    `grad_outputs`: the cotangents, random unless given; `ArgumentError` is raised if their shapes are not those of the
    outputs. See `gradcheck` for the rest, and for `GradcheckError`.

    >>> x = tracer.tensor([1.0, 2.0], dtype="float64", requires_grad=True)
    >>> tracer.autograd.gradgradcheck(lambda x: (x * x * x).sum(), (x,))
    True
    """
    arguments = _Arguments.of(inputs, "gradgradcheck")
    outputs = _differentiable(func, arguments, arguments.fresh())
    if not outputs:
        raise ArgumentError(
            "gradgradcheck: no output of the function requires a gradient, so there is nothing to differentiate twice"
        )
    cotangents = _cotangents(outputs, grad_outputs)
    count = len(arguments.leaves)

    def gradients(*leaves: Any) -> tuple[Tensor, ...]:
        own, given = leaves[:count], leaves[count:]
        found = grad(
            _differentiable(func, arguments, own),
            [own[k] for k in arguments.checked],
            list(given),
            create_graph=True,
            allow_unused=True,
        )
        return tuple(g for g in found if g is not None)

    checked = (*arguments.checked, *(count + k for k in range(len(cotangents))))
    names = (*arguments.names, *(f"cotangent {k}" for k in range(len(cotangents))))
    whole = _Arguments((*arguments.leaves, *cotangents), None, checked, names)
    tolerance = _Tolerance(eps, atol, rtol, nondet_tol)
    check = _Check(gradients, whole, tolerance, name_of(func), "gradient")
    return _report(check.mistakes(), raise_exception)


def _report(mistakes: Iterator[str], raise_exception: bool) -> bool:
    for mistake in mistakes:
        if raise_exception:
            raise GradcheckError(mistake)
        return False
    return True


# ---- arguments -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Leaves of the arguments, which of them are checked, and what errors call them. Without a structure the leaves are the
    arguments."""

    leaves: tuple[Any, ...]
    structure: Any
    checked: tuple[int, ...]
    names: tuple[str, ...]

    @staticmethod
    def of(inputs: Any, who: str) -> _Arguments:
        arguments = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
        leaves, structure = flatten(arguments)
        checked = tuple(
            k for k, x in enumerate(leaves) if isinstance(x, Tensor) and x.requires_grad
        )
        if not checked:
            raise ArgumentError(
                f"{who} checks inputs that require gradients, and none does; make them with requires_grad=True"
            )
        for k in checked:
            if leaves[k].type.dtype != "float64":
                warnings.warn(
                    f"{who}: input {k} is {short(leaves[k].type)}; finite differences are exact enough in float64 only, "
                    "use x.double()",
                    stacklevel=4,
                )
        return _Arguments(
            tuple(leaves), structure, checked, tuple(f"input {k}" for k in range(len(leaves)))
        )

    def fresh(self, number: int | None = None, array: Array | None = None) -> list[Any]:
        """The leaves, those that are checked as new leaves in memory of their own; one of them with other elements."""
        leaves = list(self.leaves)
        for k in self.checked:
            data = array if k == number and array is not None else np.array(leaves[k]._data())
            leaves[k] = Tensor.of_array(data, leaves[k].type)
            leaves[k].requires_grad = True
        return leaves

    def call(self, func: Callable[..., Any], leaves: Sequence[Any]) -> list[Tensor]:
        """The floating Tensors that the function gives."""
        args = leaves if self.structure is None else unflatten(self.structure, leaves)
        with inference_mode(False):
            results, _ = flatten(func(*args))
        return [y for y in results if isinstance(y, Tensor) and is_floating(y.type.dtype)]


def _differentiable(
    func: Callable[..., Any], arguments: _Arguments, leaves: Sequence[Any]
) -> list[Tensor]:
    return [y for y in arguments.call(func, leaves) if y.requires_grad]


def _cotangents(outputs: Sequence[Tensor], given: Any) -> list[Tensor]:
    if given is None:
        rng = np.random.default_rng(0)
        arrays: list[Any] = [rng.standard_normal(y.type.shape) for y in outputs]
    else:
        arrays = [
            g._data() if isinstance(g, Tensor) else g
            for g in (given if isinstance(given, tuple | list) else (given,))
        ]
    if len(arrays) != len(outputs) or any(
        np.shape(a) != y.type.shape for a, y in zip(arrays, outputs, strict=True)
    ):
        raise ArgumentError(
            f"grad_outputs must be {', '.join(short(y.type) for y in outputs)}, like the outputs; got "
            f"{', '.join(str(list(np.shape(a))) for a in arrays)}"
        )
    cotangents = [
        Tensor.of_array(np.array(a, y.type.numpy), y.type.strong())
        for a, y in zip(arrays, outputs, strict=True)
    ]
    for c in cotangents:
        c.requires_grad = True
    return cotangents


# ---- the comparison ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Tolerance:
    eps: float
    atol: float
    rtol: float
    nondet: float


Jacobians = list[list[Array]]
"""For each output and each input that is checked: output elements by input elements."""


@dataclass(frozen=True, slots=True)
class _Check:
    func: Callable[..., Any]
    arguments: _Arguments
    tolerance: _Tolerance
    name: str
    of: str = "output"

    def mistakes(self) -> Iterator[str]:
        """What is wrong, the first thing first."""
        outputs, analytical = self._analytical()
        shapes: list[Any] = [y.type.shape for y in outputs]
        for row, (y, z) in enumerate(zip(outputs, self._outputs(), strict=True)):
            if not np.array_equal(y._data(), z._data(), equal_nan=True):
                yield (
                    f"{self.of} {row} of {self.name} is another one when it is computed again from the same inputs, so no "
                    "differences can be taken; does it draw random numbers? Seed them inside it"
                )
        numerical = self._numerical([int(np.prod(shape)) for shape in shapes])
        for row, (y, shape) in enumerate(zip(outputs, shapes, strict=True)):
            if not y.requires_grad:
                for column, n in enumerate(numerical[row]):
                    if (np.abs(n) > self.tolerance.atol).any():
                        yield (
                            f"{self.of} {row} of {self.name} does not require a gradient, but it changes with "
                            f"{self._input(column)} by up to {np.abs(n).max():.3g} for a step of 1; is something detached?"
                        )
            for column, (a, n) in enumerate(zip(analytical[row], numerical[row], strict=True)):
                yield from self._compare(row, shape, column, a, n)
        _, again = self._analytical()
        for row, (first, second) in enumerate(zip(analytical, again, strict=True)):
            for column, (a, b) in enumerate(zip(first, second, strict=True)):
                apart = float(np.abs(a - b).max(initial=0.0))
                if not apart <= self.tolerance.nondet:
                    yield (
                        f"the gradient of {self.of} {row} with respect to {self._input(column)} is not the same when it is "
                        f"computed again: {apart:.3g} apart, allowed {self.tolerance.nondet:.3g} (nondet_tol); does the "
                        "function draw random numbers?"
                    )

    def _compare(
        self, row: int, shape: tuple[int, ...], column: int, a: Array, n: Array
    ) -> Iterator[str]:
        allowed = self.tolerance.atol + self.tolerance.rtol * np.abs(n)
        with np.errstate(invalid="ignore"):
            distance = np.abs(a - n)
        wrong = ~(distance <= allowed)
        if not wrong.any():
            return
        excess = np.where(wrong, np.nan_to_num(distance, nan=np.inf), -1.0)
        worst = np.unravel_index(int(np.argmax(excess)), a.shape)
        element = [int(k) for k in np.unravel_index(int(worst[0]), shape)]
        place = [int(k) for k in np.unravel_index(int(worst[1]), self._leaf(column).type.shape)]
        yield (
            f"the gradient of {self.of} {row} with respect to {self._input(column)} is wrong at {int(wrong.sum())} of "
            f"{wrong.size} places; the worst, of {self.of} element {element} and input element {place}, is "
            f"{a[worst]:.8g} by the rules (analytical) and {n[worst]:.8g} by differences (numerical), where "
            f"{allowed[worst]:.2g} apart is allowed; checked: {self.name}"
        )

    def _leaf(self, column: int) -> Tensor:
        leaf: Tensor = self.arguments.leaves[self.arguments.checked[column]]
        return leaf

    def _input(self, column: int) -> str:
        number = self.arguments.checked[column]
        return f"{self.arguments.names[number]}, {short(self._leaf(column).type)},"

    def _outputs(self) -> list[Tensor]:
        return self.arguments.call(self.func, self.arguments.fresh())

    def _analytical(self) -> tuple[list[Tensor], Jacobians]:
        """The outputs, and the Jacobians by backward, a row for each element of an output."""
        leaves = self.arguments.fresh()
        outputs = self.arguments.call(self.func, leaves)
        variables = [leaves[k] for k in self.arguments.checked]
        result: Jacobians = []
        for y in outputs:
            size = int(y.type.size)
            jacobians = [np.zeros((size, int(x.type.size))) for x in variables]
            for k in range(size) if y.requires_grad else ():
                hot = np.zeros(size, y.type.numpy)
                hot[k] = 1
                found = grad(
                    y, variables, hot.reshape(y.type.shape), retain_graph=True, allow_unused=True
                )
                for jacobian, g in zip(jacobians, found, strict=True):
                    if g is not None:
                        jacobian[k] = g._data().ravel()
            result.append(jacobians)
        return outputs, result

    def _numerical(self, sizes: list[int]) -> Jacobians:
        """The Jacobians by central differences, a column for each element of an input."""
        eps = self.tolerance.eps
        result: Jacobians = [[] for _ in sizes]
        for number in self.arguments.checked:
            data = np.array(self.arguments.leaves[number]._data())
            jacobians = [np.zeros((size, data.size)) for size in sizes]
            for column, place in enumerate(np.ndindex(data.shape)):
                values = []
                for step in (eps, -eps):
                    moved = data.copy()
                    moved[place] += step
                    outputs = self.arguments.call(self.func, self.arguments.fresh(number, moved))
                    values.append([np.array(y._data(), np.float64).ravel() for y in outputs])
                for jacobian, plus, minus in zip(jacobians, *values, strict=True):
                    jacobian[:, column] = (plus - minus) / (2 * eps)
            for row, jacobian in zip(result, jacobians, strict=True):
                row.append(jacobian)
        return result
