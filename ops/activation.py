"""Activations of neural networks. Most are built from other operators; each has its own oracle."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ops import onnx_forms, rules
from ops.compute import Composite, Scalar
from ops.errors import ArgumentError, DTypeError
from ops.families import NOT_FLOATING, SIGNED, Declare, scaled
from ops.onnx_forms import float64_apart
from ops.operator import Application, Derived, ErrorSample, Expanded, Rule, Sample, operator
from ops.reference import precise, rounded_once
from ops.samples import UNARY
from ops.transcendental import erfc_of, logistic
from ops.types import FLOATING, Type

Array = np.ndarray[Any, Any]
SELU_ALPHA, SELU_GAMMA = 1.67326319217681884765625, 1.05070102214813232421875  # ONNX's


def _built(rule: Rule) -> Composite:
    """A decomposition that computes in float32 for the half types and rounds once at its end."""

    def widened(g: Any, n: Application) -> Any:
        dtype = n.x.type.dtype
        if dtype not in ("float16", "bfloat16"):
            return rule(g, n)
        inputs = tuple(g.Cast(x, to="float32") for x in n.inputs)
        return g.Cast(rule(g, Application(inputs, (), n.attrs)), to=dtype)

    return Composite(widened)


def _slope(derivative: Rule) -> Rule:
    """A gradient rule from the derivative of a function of one value, computed like a decomposition."""

    def rule(g: Any, n: Application) -> Any:
        dtype = n.x.type.dtype
        wide = "float32" if dtype in ("float16", "bfloat16") else dtype
        x, dy = g.cast(n.x, wide), g.cast(n.dy, wide)
        slope = derivative(g, Application((x,), (), n.attrs))
        return (g.cast(g.chain(dy, slope), dtype),)

    return rule


def _activation(
    name: str,
    decomposition: Rule,
    *,
    onnx: Rule | Expanded,
    ulp: float,
    derivative: Rule | None = None,
    type_rule: Callable[..., Type] = rules.floating,
    samples: tuple[Sample, ...] = UNARY,
    errors: tuple[ErrorSample, ...] = NOT_FLOATING,
) -> Declare:
    return operator(
        name,
        type_rule=type_rule,
        compute=_built(decomposition),
        vjp=Derived() if derivative is None else _slope(derivative),
        onnx=onnx,
        samples=samples,
        errors=errors,
        dtypes=FLOATING,
        ulp=ulp,
    )


@operator(
    "Relu",
    type_rule=rules.limited(*SIGNED),
    compute=Scalar("select({0} <= {T}(0), {T}(0), {0})"),
    vjp=lambda g, n: (g.Where(g.Less(g.like(0, n.x), n.x), n.dy, g.like(0, n.dy)),),
    onnx=lambda g, n: (
        g.op("Relu", n.x) if n.x.type.dtype in FLOATING else g.Max(n.x, g.like(0, n.x))
    ),
    samples=UNARY,
    errors=(ErrorSample((Type("uint8", (2,)),), DTypeError, "must be int8"),),
    dtypes=SIGNED,
)
@rounded_once
def relu(x: Array) -> Array:
    """max(x, 0): 0 for negative values and zeros, NaN for NaN. The gradient at 0 is 0."""
    return np.where(x <= 0, np.zeros((), x.dtype), x)


def _below_zero(g: Any, x: Any, below: Any, above: Any) -> Any:
    return g.Where(g.Less(x, g.like(0, x)), below, above)


@_activation(
    "LeakyRelu",
    lambda g, n: _below_zero(g, n.x, scaled(g, n.x, n.attrs.alpha), n.x),
    onnx=float64_apart("LeakyRelu", onnx_forms.leaky_relu),
    ulp=1,
)
@precise
def leaky_relu(x: Array, *, alpha: float = 0.01) -> Array:
    """x where x >= 0, else alpha * x."""
    return np.where(x < 0, alpha * x, x)


def _elu(g: Any, x: Any, alpha: float) -> Any:
    curve = g.Expm1(
        g.Minimum(x, g.like(0, x))
    )  # limited, so that what is not taken does not overflow
    return _below_zero(g, x, scaled(g, curve, alpha), x)


@_activation(
    "Elu",
    lambda g, n: _elu(g, n.x, n.attrs.alpha),
    onnx=float64_apart("Elu", onnx_forms.elu),
    ulp=4,
)
@precise
def elu(x: Array, *, alpha: float = 1.0) -> Array:
    """x where x >= 0, else alpha * (exp(x) - 1)."""
    return np.where(x < 0, alpha * np.expm1(x), x)


@_activation(
    "Selu",
    lambda g, n: scaled(g, _elu(g, n.x, n.attrs.alpha), n.attrs.gamma),
    onnx=float64_apart("Selu", onnx_forms.selu),
    ulp=5,
)
@precise
def selu(x: Array, *, alpha: float = SELU_ALPHA, gamma: float = SELU_GAMMA) -> Array:
    """gamma * x where x >= 0, else gamma * alpha * (exp(x) - 1)."""
    return gamma * np.where(x < 0, alpha * np.expm1(x), x)


def _softsign_derivative(g: Any, n: Application) -> Any:
    part = g.Reciprocal(g.Add(g.like(1, n.x), g.Abs(n.x)))
    return g.Mul(part, part)


@_activation(
    "Softsign",
    lambda g, n: g.Div(n.x, g.Add(g.like(1, n.x), g.Abs(n.x))),
    derivative=_softsign_derivative,
    onnx=float64_apart("Softsign", onnx_forms.softsign),
    ulp=2,
)
@precise
def softsign(x: Array) -> Array:
    """x / (1 + |x|); NaN at the infinities."""
    return np.asarray(x / (1 + np.abs(x)))


def _hard_sigmoid(g: Any, x: Any, alpha: float, beta: float) -> Any:
    return g.Clip(g.Add(scaled(g, x, alpha), g.like(beta, x)), g.like(0, x), g.like(1, x))


@_activation(
    "HardSigmoid",
    lambda g, n: _hard_sigmoid(g, n.x, n.attrs.alpha, n.attrs.beta),
    onnx=float64_apart("HardSigmoid", onnx_forms.hard_sigmoid),
    ulp=4,
)
@precise
def hard_sigmoid(x: Array, *, alpha: float = 0.2, beta: float = 0.5) -> Array:
    """alpha * x + beta, limited to [0, 1].

    Where the two terms cancel, the error is a few units in the last place of beta.
    """
    return np.clip(alpha * x + beta, 0, 1)


def _sixth_above(g: Any, x: Any) -> Any:
    """x / 6 + 1/2, limited to [0, 1]: x + 3 is exact near -3, where x / 6 + 1/2 cancels."""
    above = g.Clip(g.Add(x, g.like(3, x)), g.like(0, x), g.like(6, x))
    return scaled(g, above, 1 / 6)


@_activation(
    "HardSwish",
    lambda g, n: g.Mul(n.x, _sixth_above(g, n.x)),
    onnx=float64_apart("HardSwish", onnx_forms.hard_swish),
    ulp=4,
)
@precise
def hard_swish(x: Array) -> Array:
    """x * (x / 6 + 1/2 limited to [0, 1]); NaN at -inf."""
    return np.asarray(x * (np.clip(x + 3, 0, 6) / 6))


def _sigmoid_derivative(g: Any, s: Any) -> Any:
    """The derivative of the sigmoid, from its value."""
    return g.Mul(s, g.Sub(g.like(1, s), s))


def _fading(g: Any, x: Any, slope: Any) -> Any:
    """x times a slope that has faded to 0 at the infinities."""
    return g.Gate(slope, g.Mul(x, slope))


def _silu_derivative(g: Any, n: Application) -> Any:
    s = g.Sigmoid(n.x)
    return g.Add(s, _fading(g, n.x, _sigmoid_derivative(g, s)))


@_activation(
    "Silu",
    lambda g, n: g.Mul(n.x, g.Sigmoid(n.x)),
    derivative=_silu_derivative,
    onnx=Expanded(),
    ulp=4,
)
@precise
def silu(x: Array) -> Array:
    """x * sigmoid(x), also called swish; NaN at -inf.

    Where sigmoid(x) is subnormal (below -87 in float32), its digits are fewer and the error is larger.
    """
    return x * logistic(x)


def _mish_derivative(g: Any, n: Application) -> Any:
    t = g.Tanh(g.Softplus(n.x))
    slope = g.Mul(g.Sub(g.like(1, t), g.Mul(t, t)), g.Sigmoid(n.x))
    return g.Add(t, _fading(g, n.x, slope))


@_activation(
    "Mish",
    lambda g, n: g.Mul(n.x, g.Tanh(g.Softplus(n.x))),
    derivative=_mish_derivative,
    onnx=float64_apart("Mish", onnx_forms.mish),
    ulp=6,
)
@precise
def mish(x: Array) -> Array:
    """x * tanh(log(1 + exp(x))); NaN at -inf. Below -87 (float32) its digits are fewer, as silu's."""
    return x * np.tanh(np.logaddexp(x, 0.0))


def _exp_of_square(factor: float, x: Array) -> Array:
    """exp(factor * x * x) for factor < 0; the square is split so that its high part is exact."""
    x = np.clip(x, -1e3, 1e3)
    high = x.astype(np.float32).astype(np.float64)
    return np.asarray(np.exp(factor * high * high) * np.exp(factor * (x - high) * (x + high)))


def _normal_distribution(x: Array) -> Array:
    """erfc(-x / sqrt(2)) / 2; far below 0 from the square of x, whose root would be rounded."""
    from scipy import special

    z = -math.sqrt(0.5) * x
    far = special.erfcx(np.maximum(z, 1)) * _exp_of_square(-0.5, x)
    return np.asarray(0.5 * np.where(z > 1, far, erfc_of(np.where(z > 1, 0, z))))


def _gelu_type(x: Type, *, approximate: str) -> Type:
    if approximate not in ("none", "tanh"):
        raise ArgumentError(f'approximate must be "none" or "tanh", got {approximate!r}')
    return rules.floating(x)


_GELU_SCALE, _GELU_CUBE = math.sqrt(8 / math.pi), 0.044715


def _gelu_sigmoid(g: Any, x: Any) -> Any:
    inner = g.Add(g.like(1, x), scaled(g, g.Mul(x, x), _GELU_CUBE))
    return g.Sigmoid(g.Mul(scaled(g, x, _GELU_SCALE), inner))


def _gelu(g: Any, n: Application) -> Any:
    """Forms that do not cancel: 1 + erf(z) is erfc(-z), (1 + tanh(z)) / 2 is sigmoid(2*z)."""
    x = n.x
    if n.attrs.approximate == "none":
        return g.Mul(scaled(g, x, 0.5), g.Erfc(scaled(g, x, -math.sqrt(0.5))))
    return g.Mul(x, _gelu_sigmoid(g, x))


def _gelu_derivative(g: Any, n: Application) -> Any:
    """The distribution function plus x times the density, where that is not 0."""
    x = n.x
    square = g.Mul(x, x)
    if n.attrs.approximate == "none":
        below = scaled(g, g.Erfc(scaled(g, x, -math.sqrt(0.5))), 0.5)
        density = scaled(g, g.Exp(scaled(g, square, -0.5)), math.sqrt(0.5 / math.pi))
        return g.Add(below, _fading(g, x, density))
    s = _gelu_sigmoid(g, x)
    inner = g.Add(g.like(_GELU_SCALE, x), scaled(g, square, 3 * _GELU_CUBE * _GELU_SCALE))
    return g.Add(s, _fading(g, g.Mul(x, inner), _sigmoid_derivative(g, s)))


@_activation(
    "Gelu",
    _gelu,
    derivative=_gelu_derivative,
    onnx=float64_apart("Gelu", onnx_forms.gelu),
    ulp=16,
    type_rule=_gelu_type,
    samples=UNARY
    + tuple(Sample(s.inputs, {"approximate": "tanh"}, None, s.gradient) for s in UNARY),
    errors=(
        *NOT_FLOATING,
        ErrorSample((Type("float32"),), ArgumentError, '"none" or "tanh"', {"approximate": "erf"}),
    ),
)
@precise
def gelu(x: Array, *, approximate: str = "none") -> Array:
    """x times the normal distribution function, or its approximation by tanh; NaN at -inf.

    Far below 0, where the result fades like exp(-x*x/2), its relative error grows like x*x.
    """
    if approximate == "none":
        return x * _normal_distribution(x)
    return x * logistic(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))
