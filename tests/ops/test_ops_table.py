"""Walks the table: what every operator says of itself holds, whoever declared it.

No operator is named but where its oracle is compared with mpmath.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
import pytest

from ops import samples
from ops.compute import Composite, Scalar
from ops.dims import Dim
from ops.errors import BoundsError, ShapeError, TracerError
from ops.operator import (
    Derived,
    Expanded,
    NoGradient,
    Operator,
    Sample,
    Unsupported,
    ZeroGradient,
    fits,
)
from ops.table import TABLE
from ops.types import DTYPES, FLOATING, Type, is_floating
from tests.support.accuracy import difference_in_ulp
from tests.support.evaluate import ArrayBuilder, TypeBuilder, Value, evaluate

pytestmark = pytest.mark.cpu

OPERATORS = tuple(o for o in TABLE.values() if not o.block_names)
each_operator = pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)


def outputs_of(result: Any) -> tuple[Value, ...]:
    return result if isinstance(result, tuple) else (result,)


# ---- declarations --------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", TABLE.values(), ids=lambda o: o.name)
def test_says_what_it_is(operator: Operator) -> None:
    assert fits(operator.doc), "the docstring opens with a one-line summary and a full stop"
    assert operator.name.isalnum() and operator.name[0].isupper()
    assert operator.dtypes and set(operator.dtypes) <= set(DTYPES)
    assert 0 <= operator.ulp < math.inf
    assert operator.samples or operator.block_names
    least = len(operator.inputs) - operator.optional - operator.variadic
    for sample in operator.samples:
        assert len(sample.inputs) >= least
        assert operator.variadic or len(sample.inputs) <= len(operator.inputs)
        operator.normalize(sample.attrs)
        assert samples.tested_types(operator, sample)
    composite = isinstance(operator.compute, Composite)
    assert composite or not isinstance(operator.vjp, Derived)
    assert composite or not isinstance(operator.onnx, Expanded)
    for field in (operator.vjp, operator.onnx):
        if isinstance(field, NoGradient | Unsupported):
            assert len(field.reason) > 10


def accepts_scalars(operator: Operator) -> bool:
    first = operator.samples[0]
    try:
        types = [Type(x.dtype or operator.dtypes[0]) for x in first.inputs]
        operator.infer(types, operator.normalize(first.attrs))
    except ShapeError:
        return False
    return True


@each_operator
def test_scalars_are_sampled_with_special_values(operator: Operator) -> None:
    if isinstance(operator.compute, Scalar) and operator.inputs and not operator.random:
        shapes = [x.shape for s in operator.samples for x in s.inputs]
        assert any(0 in shape for shape in shapes)
        assert () in shapes or not accepts_scalars(operator)
        assert any(x.special for s in operator.samples for x in s.inputs)


# ---- types ---------------------------------------------------------------------------------------


@each_operator
def test_type_rule_agrees_with_the_reference(operator: Operator) -> None:
    for sample, _, arrays in samples.cases(operator):
        evaluate(operator, arrays, sample.attrs)  # raises VerifyError where they differ


@each_operator
def test_decomposition_agrees_with_the_reference(operator: Operator) -> None:
    if not isinstance(operator.compute, Composite):
        return
    for sample, dtype, arrays in samples.cases(operator):
        expected = evaluate(operator, arrays, sample.attrs)
        found = evaluate(operator, arrays, sample.attrs, expanded=True)
        for f, e in zip(found, expected, strict=True):
            assert difference_in_ulp(f, e) <= operator.ulp, (sample, dtype)


SUBSTITUTED = (0, 1, 2, 6)


@each_operator
def test_type_rule_with_symbols_agrees_with_integers(operator: Operator) -> None:
    """A rule that accepts symbols gives what it gives for integers in their place, if they fit."""
    accepted = 0
    for sample in operator.samples:
        dtype = samples.tested_types(operator, sample)[0]
        attrs = operator.normalize(sample.attrs)
        sizes = sorted({d for x in sample.inputs for d in x.shape if d > 1})
        groups = [sizes, *([d] for d in sizes)] if sizes else []
        for group in groups:
            symbols = {d: Dim.symbol(f"n{d}") for d in group}
            types = [
                Type(x.dtype or dtype, tuple(symbols.get(d, d) for d in x.shape))
                for x in sample.inputs
            ]
            declared = operator.attributes
            variants = [attrs]
            in_sizes = {
                name: tuple(symbols.get(d, d) for d in value)
                for name, value in attrs.items()
                if "Dim" in str(declared[name].kind) and isinstance(value, tuple)
            }
            if in_sizes:
                variants.append(type(attrs)({**attrs, **in_sizes}))
            for variant in variants:
                try:
                    general = operator.infer(types, variant)
                except TracerError:
                    continue  # this rule must know the size
                accepted += 1
                for values in itertools.product(SUBSTITUTED, repeat=min(len(group), 2)):
                    chosen = {f"n{d}": values[k % len(values)] for k, d in enumerate(group)}
                    given = {
                        k: Type("bool", v).substitute(chosen).shape if k in in_sizes else v
                        for k, v in variant.items()
                    }
                    try:
                        exact = operator.infer([t.substitute(chosen) for t in types], given)
                    except (ShapeError, BoundsError):
                        continue  # these sizes are out of the operator's range
                    assert tuple(t.substitute(chosen) for t in general) == exact, (types, chosen)
    sized = any(d > 1 for s in operator.samples for x in s.inputs for d in x.shape)
    # a generator's state has one shape
    assert accepted or not sized or operator.random, "no sample can have a symbolic size"


@each_operator
def test_errors_say_what_is_wrong(operator: Operator) -> None:
    for wrong in operator.errors:
        with pytest.raises(wrong.error) as caught:
            operator.infer(wrong.types, operator.normalize(wrong.attrs))
        message = str(caught.value)
        assert wrong.match in message and message.startswith(operator.name)
        assert type(caught.value) is wrong.error


# ---- gradients -----------------------------------------------------------------------------------


def differentiable_samples(operator: Operator) -> list[Sample]:
    if operator.random or "float64" not in operator.dtypes:
        return []
    return [
        s
        for s in operator.samples
        if s.gradient
        and "float64" in (s.dtypes or DTYPES)
        and any(is_floating(x.dtype or "float64") and 0 not in x.shape for x in s.inputs)
    ]


class Loss:
    """A sample as one number: outputs times weights, of inputs moved along a direction."""

    def __init__(self, operator: Operator, sample: Sample) -> None:
        self.operator, self.sample = operator, sample
        self.arrays = samples.draw(sample, "float64")
        self.rng = np.random.default_rng(1)
        self.moving = [k for k, a in enumerate(self.arrays) if a.dtype == np.float64]
        self.directions = [self.rng.uniform(-1, 1, self.arrays[k].shape) for k in self.moving]
        outputs = evaluate(operator, self.arrays, sample.attrs)
        self.weights = [
            self.rng.uniform(-1, 1, y.shape) if y.dtype == np.float64 else None for y in outputs
        ]
        self.second = [self.rng.uniform(-1, 1, self.arrays[k].shape) for k in self.moving]

    def moved(self, step: float) -> list[np.ndarray[Any, Any]]:
        arrays = list(self.arrays)
        for k, direction in zip(self.moving, self.directions, strict=True):
            arrays[k] = arrays[k] + step * direction
        return arrays

    def value(self, step: float) -> float:
        outputs = evaluate(self.operator, self.moved(step), self.sample.attrs)
        pairs = zip(outputs, self.weights, strict=True)
        return float(sum(np.sum(y * w) for y, w in pairs if w is not None))

    def gradient(
        self, step: float, g: ArrayBuilder | None = None
    ) -> tuple[ArrayBuilder, list[Value], list[Any]]:
        g = g or ArrayBuilder()
        values = [g.value(a) for a in self.moved(step)]
        outputs = outputs_of(g.op(self.operator.name, *values, **self.sample.attrs))
        weights = [None if w is None else g.value(w) for w in self.weights]
        inputs = [values[k] for k in self.moving]
        return g, inputs, list(g.pullback(outputs, weights, inputs))

    def slope(self, step: float) -> float:
        """The gradient along the second direction."""
        _, _, found = self.gradient(step)
        pairs = zip(found, self.second, strict=True)
        return float(sum(np.sum(c.array * v) for c, v in pairs if c is not None))


def derivative(function: Any, step: float = 1e-4) -> float:
    """Central differences of fourth order."""
    near = function(step) - function(-step)
    far = function(2 * step) - function(-2 * step)
    return float((8 * near - far) / (12 * step))


def along(found: Sequence[Any], directions: Sequence[Any]) -> float:
    pairs = zip(found, directions, strict=True)
    return float(sum(np.sum(c.array * d) for c, d in pairs if c is not None))


@each_operator
def test_gradient_agrees_with_finite_differences(operator: Operator) -> None:
    for sample in differentiable_samples(operator):
        loss = Loss(operator, sample)
        if isinstance(operator.vjp, NoGradient):
            continue
        _, _, found = loss.gradient(0.0)
        expected = derivative(loss.value)
        assert along(found, loss.directions) == pytest.approx(expected, rel=1e-6, abs=1e-7), sample
        if isinstance(operator.vjp, ZeroGradient):
            assert all(c is None for c in found)


@each_operator
def test_second_gradient_agrees_with_finite_differences(operator: Operator) -> None:
    for sample in differentiable_samples(operator):
        if isinstance(operator.vjp, NoGradient | ZeroGradient):
            continue
        loss = Loss(operator, sample)
        g, inputs, first = loss.gradient(0.0)
        present = [
            (c, g.value(v)) for c, v in zip(first, loss.second, strict=True) if c is not None
        ]
        found = g.pullback([c for c, _ in present], [v for _, v in present], inputs)
        expected = derivative(loss.slope)
        assert along(found, loss.directions) == pytest.approx(expected, rel=1e-5, abs=1e-6), sample


@each_operator
def test_gradient_rule_keeps_types(operator: Operator) -> None:
    """Each cotangent has its input's type, in every floating type and with symbolic sizes."""
    if isinstance(operator.vjp, NoGradient | ZeroGradient):
        return
    for sample in operator.samples:
        for dtype in samples.tested_types(operator, sample):
            if dtype not in FLOATING:
                continue
            symbolic = [{3: Dim.symbol("n")}, {17: Dim.symbol("n")}] if dtype == "float32" else []
            for symbols in ({}, *symbolic):
                g = TypeBuilder()
                shapes = [tuple(symbols.get(d, d) for d in x.shape) for x in sample.inputs]
                values = [
                    Value(Type(x.dtype or dtype, shape))
                    for x, shape in zip(sample.inputs, shapes, strict=True)
                ]
                try:
                    outputs = outputs_of(g.op(operator.name, *values, **sample.attrs))
                except TracerError:
                    assert symbols, sample
                    continue
                g.pullback(outputs, [Value(y.type) for y in outputs], values)  # checks types
                for x in values if len(values) > 1 and not symbols else ():
                    g.pullback(outputs, [Value(y.type) for y in outputs], [x])


# ---- numbers -------------------------------------------------------------------------------------


@each_operator
def test_half_types_are_computed_in_float32_and_rounded_once(operator: Operator) -> None:
    if not isinstance(operator.compute, Scalar) or not operator.inputs:
        return
    for sample, dtype, arrays in samples.cases(operator):
        if dtype not in ("float16", "bfloat16") or not any(x.dtype is None for x in sample.inputs):
            continue
        wide = [a.astype(np.float32) if Type.of(a).dtype == dtype else a for a in arrays]
        (found,) = evaluate(operator, arrays, sample.attrs)
        (expected,) = evaluate(operator, wide, sample.attrs)
        if expected.dtype == np.float32:
            with np.errstate(all="ignore"):
                expected = expected.astype(found.dtype)
        assert difference_in_ulp(found, expected) == 0, (sample, dtype)


@each_operator
def test_references_do_not_write_to_their_inputs(operator: Operator) -> None:
    for sample, dtype, arrays in samples.cases(operator):
        before = [a.copy() for a in arrays]
        for a in arrays:
            a.flags.writeable = False
        evaluate(operator, arrays, sample.attrs)
        for a, b in zip(arrays, before, strict=True):
            assert a.tobytes() == b.tobytes(), (sample, dtype)


def test_samples_are_the_same_every_time() -> None:
    for operator in itertools.islice(OPERATORS, 20):
        for sample, dtype, arrays in samples.cases(operator):
            for a, b in zip(arrays, samples.draw(sample, dtype), strict=True):
                assert a.tobytes() == b.tobytes() and a.strides == b.strides
        other = [replace(s) for s in operator.samples]
        assert other == list(operator.samples)


# The oracles themselves, against arithmetic with 40 digits.
MPMATH: dict[str, Any] = {
    "Exp": mpmath.exp,
    "Exp2": lambda x: mpmath.mpf(2) ** x,
    "Expm1": mpmath.expm1,
    "Log": mpmath.log,
    "Log2": lambda x: mpmath.log(x, 2),
    "Log10": mpmath.log10,
    "Log1p": mpmath.log1p,
    "LogAddExp": lambda x, y: mpmath.log(mpmath.exp(x) + mpmath.exp(y)),
    "Sin": mpmath.sin,
    "Cos": mpmath.cos,
    "Tan": mpmath.tan,
    "Asin": mpmath.asin,
    "Acos": mpmath.acos,
    "Atan": mpmath.atan,
    "Atan2": mpmath.atan2,
    "Sinh": mpmath.sinh,
    "Cosh": mpmath.cosh,
    "Tanh": mpmath.tanh,
    "Asinh": mpmath.asinh,
    "Acosh": mpmath.acosh,
    "Atanh": mpmath.atanh,
    "Erf": mpmath.erf,
    "Erfc": mpmath.erfc,
    "Sqrt": mpmath.sqrt,
    "Rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "Pow": mpmath.power,
    "Hypot": mpmath.hypot,
    "Sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "Softplus": lambda x: mpmath.log1p(mpmath.exp(x)),
    "Silu": lambda x: x / (1 + mpmath.exp(-x)),
    "Mish": lambda x: x * mpmath.tanh(mpmath.log1p(mpmath.exp(x))),
    "Elu": lambda x: x if x >= 0 else mpmath.expm1(x),
    "Softsign": lambda x: x / (1 + abs(x)),
    "Gelu": lambda x: x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
}
WIDE = {"Exp", "Expm1", "Sinh", "Cosh", "Sigmoid", "Softplus", "Silu", "Gelu", "Erfc", "LogAddExp"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", MPMATH)
def test_oracles_agree_with_mpmath(name: str, dtype: str) -> None:
    operator = TABLE[name]
    inputs = operator.samples[0].inputs
    if len(inputs) == 1:
        assert_exact(operator, [np.linspace(inputs[0].low, inputs[0].high, 400).astype(dtype)])
    elif name not in WIDE:
        assert_exact(operator, list(samples.draw(operator.samples[0], dtype)))
    if name in WIDE:
        assert_exact(
            operator,
            [np.linspace(-20 - k, 20, 51).astype(dtype) for k in range(len(inputs))],
        )


def assert_exact(operator: Operator, arrays: list[np.ndarray[Any, Any]]) -> None:
    """A float32 oracle is the exact result rounded, but for a rare double rounding."""
    (found,) = evaluate(operator, arrays)
    with mpmath.workdps(40):
        pairs = zip(*(a.ravel().tolist() for a in arrays), strict=True)
        exact = [MPMATH[operator.name](*(mpmath.mpf(v) for v in p)) for p in pairs]
        nearest = np.array([float(v) for v in exact]).astype(found.dtype).reshape(found.shape)
    # Gelu: the rounding of x / sqrt(2) counts about three times; and far below 0 two exponentials are
    # multiplied, each of which may be one unit off more or less on another CPU, whose library has its own.
    most = 8 if operator.name == "Gelu" else 4
    assert difference_in_ulp(found, nearest) <= (1 if found.dtype == np.float32 else most)


@pytest.mark.parametrize("name", ["Sigmoid", "Silu", "Erfc", "Gelu", "Exp", "Softplus"])
def test_oracles_fade_as_exact_results_do(name: str) -> None:
    """Down to the smallest numbers, nothing is 0 that need not be."""
    far = {"Erfc": 26.5, "Gelu": -37.5}.get(name, -744.0)
    (found,) = evaluate(TABLE[name], [np.linspace(far, 0.9 * far, 50)])
    with mpmath.workdps(60):
        exact = [MPMATH[name](mpmath.mpf(v)) for v in np.linspace(far, 0.9 * far, 50)]
        wanted = np.array([float(v) for v in exact])
    assert np.all(found != 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-10, atol=2**-1063)
