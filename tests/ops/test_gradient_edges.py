"""Gradients at the edges, element by element, as `docs/numerics.md` promises them.

Rows and losses are in `test_gradient_rows.py`; that all operators keep the contract is walked in
`test_gradient_table.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracer
from tests.support.gradient_forms import FORMS, Array, Function, check_all, inf, nan, slope
from tracer import trace

# ---- element by element --------------------------------------------------------------------------

POINTS = np.array([-inf, -2, -1, -0.0, 0.0, 0.5, 1, 2, inf, nan])


def branch(
    name: str, where: Callable[[Any], Any], function: Function, derivative: Callable[[Array], Array]
) -> tuple[str, Function, Array]:
    """`where` with a branch that has no finite derivative, or no value, where it is not taken."""
    with np.errstate(all="ignore"):
        expected = np.where(where(POINTS), derivative(POINTS), 0.0)
    return name, lambda x: tracer.where(where(x), function(x), 0.0), expected


def positive(x: Any) -> Any:
    return x > 0


def inside(x: Any) -> Any:
    return abs(x) < 1


def finite(x: Any) -> Any:
    return abs(x) < inf


def ordinary(x: Any) -> Any:
    return (x > 0) & (x < 9)


BRANCHES = [
    branch("sqrt", positive, lambda x: tracer.sqrt(x), lambda x: 0.5 / np.sqrt(x)),
    branch("log", positive, lambda x: tracer.log(x), lambda x: 1 / x),
    branch("log2", positive, lambda x: tracer.log2(x) * math.log(2), lambda x: 1 / x),
    branch("log1p", positive, lambda x: tracer.log1p(x - 1), lambda x: 1 / x),
    branch("x log x", ordinary, lambda x: x * tracer.log(x), lambda x: np.log(x) + 1),
    branch("1 / x", positive, lambda x: 1 / x, lambda x: -1 / x**2),
    branch("a / x", ordinary, lambda x: (x * x + 1) / x, lambda x: 1 - 1 / x**2),
    branch("reciprocal", positive, lambda x: tracer.reciprocal(x), lambda x: -1 / x**2),
    branch("rsqrt", positive, lambda x: tracer.rsqrt(x), lambda x: -0.5 * x**-1.5),
    branch("x**0.3", positive, lambda x: x**0.3, lambda x: 0.3 * x**-0.7),
    branch("x**-2", positive, lambda x: x**-2, lambda x: -2 * x**-3.0),
    branch("2**x", ordinary, lambda x: 2.0**x, lambda x: math.log(2) * 2**x),
    branch("square", finite, lambda x: (x - 1) ** 2, lambda x: 2 * (x - 1)),
    branch("exp", inside, lambda x: tracer.exp(1e4 * x - 5e3), lambda x: (x == 0.5) * 1e4),
    branch(
        "sinh",
        inside,
        lambda x: tracer.sinh(1e4 * x - 5e3),
        lambda x: 1e4 * np.cosh(1e4 * x - 5e3),
    ),
    branch("asin", inside, lambda x: tracer.asin(x), lambda x: 1 / np.sqrt(1 - x * x)),
    branch("acos", inside, lambda x: tracer.acos(x), lambda x: -1 / np.sqrt(1 - x * x)),
    branch("atanh", inside, lambda x: tracer.atanh(x), lambda x: 1 / (1 - x * x)),
    branch("acosh", lambda x: x > 1, lambda x: tracer.acosh(x), lambda x: 1 / np.sqrt(x * x - 1)),
    branch("sin", finite, lambda x: tracer.sin(x), np.cos),
    branch("tan", finite, lambda x: tracer.tan(x / 4), lambda x: 0.25 / np.cos(x / 4) ** 2),
    branch("hypot", ordinary, lambda x: tracer.hypot(x, 2 * x), lambda x: 0 * x + math.sqrt(5)),
    branch("atan2", ordinary, lambda x: tracer.atan2(x, x), lambda x: 0 * x),
    branch(
        "remainder", ordinary, lambda x: tracer.remainder(5.0, 3 * x), lambda x: -3 * (5 // (3 * x))
    ),
    branch(
        "logaddexp",
        ordinary,
        lambda x: tracer.logaddexp(x, 2 * x),
        lambda x: 1 + 1 / (1 + np.exp(-x)),
    ),
    branch(
        "a chain",
        ordinary,
        lambda x: tracer.log(tracer.sqrt(x)) / x,
        lambda x: (0.5 - 0.5 * np.log(x)) / x**2,
    ),
    branch(
        "twice",
        positive,
        lambda x: tracer.sqrt(tracer.where(x > 0, x, 1.0)),
        lambda x: 0.5 / np.sqrt(x),
    ),
    branch("gelu", finite, lambda x: tracer.gelu(x) - tracer.gelu(-x), lambda x: 0 * x + 1),
    branch(
        "missing data", lambda x: x == x, lambda x: tracer.tanh(x), lambda x: np.cosh(x) ** -2.0
    ),
    # What selects without `where`, and what counts for nothing.
    branch(
        "relu inside",
        finite,
        lambda x: tracer.sqrt(tracer.relu(x)),
        lambda x: np.where(x > 0, 0.5 / np.sqrt(x), 0),
    ),
    branch("relu outside", positive, lambda x: tracer.relu(tracer.log(x)), lambda x: (x > 1) / x),
    branch(
        "clip",
        positive,
        lambda x: tracer.clip(tracer.log(x), 0.1, 9),
        lambda x: ordinary(tracer.log(x)) / x,
    ),
    branch(
        "maximum", positive, lambda x: tracer.maximum(tracer.log(x), 0.1), lambda x: (x > 1.2) / x
    ),
    branch("a weight of 0", finite, lambda x: 0.0 * tracer.sqrt(abs(x)), lambda x: 0 * x),
    branch(
        "a mask",
        finite,
        lambda x: tracer.astype(x > 0, x.dtype) * tracer.sqrt(abs(x)),
        lambda x: np.where(x > 0, 0.5 / np.sqrt(x), 0),
    ),
    # An infinite cotangent times a derivative of 0.
    branch("a length by hand", finite, lambda x: tracer.sqrt(x * x + 0.0), np.sign),
    branch(
        "a distance by hand",
        finite,
        lambda x: tracer.sqrt((x - 1) ** 2 + (1 - x) ** 2),
        lambda x: math.sqrt(2) * np.sign(x - 1),
    ),
    branch(
        "an angle by hand",
        finite,
        lambda x: tracer.acos(tracer.cos(x / 4)),
        lambda x: np.sign(x) / 4,
    ),
]

# Gradients at POINTS that are not finite, or a choice, or a limit.
DOCUMENTED: list[tuple[str, Function, list[float]]] = [
    ("abs", lambda x: abs(x), [-1, -1, -1, 0, 0, 1, 1, 1, 1, nan]),
    ("sign", lambda x: tracer.sign(x) + 0 * x, [0] * 10),
    ("relu", lambda x: tracer.relu(x), [0, 0, 0, 0, 0, 1, 1, 1, 1, 0]),
    (
        "sqrt",
        lambda x: tracer.sqrt(x),
        [nan, nan, nan, -inf, inf, 0.5**0.5, 0.5, 0.125**0.5, 0, nan],
    ),
    ("log", lambda x: tracer.log(x), [0, -0.5, -1, -inf, inf, 2, 1, 0.5, 0, nan]),
    ("x**0", lambda x: x**0, [0] * 10),
    ("x**zeros", lambda x: tracer.pow(x, tracer.zeros_like(x)), [0] * 10),
    ("x**1", lambda x: x**1, [1] * 10),
    ("x**2", lambda x: x**2, [-inf, -4, -2, 0, 0, 1, 2, 4, inf, nan]),
    (
        "acos",
        lambda x: tracer.acos(x),
        [nan, nan, -inf, -1, -1, -1 / 0.75**0.5, -inf, nan, nan, nan],
    ),
    ("asin", lambda x: tracer.asin(x), [nan, nan, inf, 1, 1, 1 / 0.75**0.5, inf, nan, nan, nan]),
    ("atan", lambda x: tracer.atan(x), [0, 0.2, 0.5, 1, 1, 0.8, 0.5, 0.2, 0, nan]),
    ("tanh", lambda x: tracer.tanh(1e4 * x), [0, 0, 0, 1e4, 1e4, 0, 0, 0, 0, nan]),
    ("sigmoid", lambda x: tracer.sigmoid(1e4 * x), [0, 0, 0, 2500, 2500, 0, 0, 0, 0, nan]),
    ("softplus", lambda x: tracer.softplus(1e4 * x), [0, 0, 0, 5e3, 5e3, 1e4, 1e4, 1e4, 1e4, nan]),
    (
        "erf",
        lambda x: tracer.erf(1e4 * x),
        [0, 0, 0, 11283.791670955126, 11283.791670955126, 0, 0, 0, 0, nan],
    ),
    ("gelu", lambda x: tracer.gelu(1e4 * x), [0, 0, 0, 5e3, 5e3, 1e4, 1e4, 1e4, 1e4, nan]),
    (
        "gelu, tanh",
        lambda x: tracer.gelu(1e4 * x, "tanh"),
        [0, 0, 0, 5e3, 5e3, 1e4, 1e4, 1e4, 1e4, nan],
    ),
    ("silu", lambda x: tracer.silu(1e4 * x), [0, 0, 0, 5e3, 5e3, 1e4, 1e4, 1e4, 1e4, nan]),
    ("clip", lambda x: tracer.clip(x, -1, 1), [0, 0, 1, 1, 1, 1, 1, 0, 0, 1]),
    ("maximum", lambda x: tracer.maximum(x, 1.0), [0, 0, 0, 0, 0, 0, 0.5, 1, 1, 1]),
    ("minimum", lambda x: tracer.minimum(x, 1.0), [1, 1, 1, 1, 1, 1, 0.5, 0, 0, 1]),
    ("maximum of itself", lambda x: tracer.maximum(x, x), [1] * 10),
    ("maximum of nan", lambda x: tracer.maximum(x, nan * x.detach()), [0] * 9 + [0.5]),
    ("length", lambda x: tracer.hypot(x, 0.0), [nan, -1, -1, 0, 0, 1, 1, 1, nan, nan]),
    ("angle", lambda x: tracer.atan2(x, 0.0), [0] * 9 + [nan]),
    (
        "angle, far",
        lambda x: tracer.atan2(1.0, x),
        [0, -0.2, -0.5, -1, -1, -0.8, -0.5, -0.2, 0, nan],
    ),
    ("logaddexp", lambda x: tracer.logaddexp(x, -inf), [0.5, 1, 1, 1, 1, 1, 1, 1, 1, nan]),
]


@FORMS
def test_the_branch_not_taken_leaves_no_trace(way: str, dtype: str) -> None:
    check_all(BRANCHES, POINTS, way, dtype)


@FORMS
def test_gradients_that_are_documented(way: str, dtype: str) -> None:
    check_all(DOCUMENTED, POINTS, way, dtype)


# ---- second order --------------------------------------------------------------------------------


def second(
    name: str, where: Callable[[Any], Any], function: Function, derivative: Callable[[Array], Array]
) -> tuple[str, Function, Array]:
    """The gradient of a function's gradient."""
    _, f, expected = branch(name, where, function, derivative)
    return name, lambda x: slope(f)(x), expected


def anywhere(x: Any) -> Any:
    return x == x


SECOND = [
    second("sqrt", positive, lambda x: tracer.sqrt(x), lambda x: -0.25 * x**-1.5),
    second("log", positive, lambda x: tracer.log(x), lambda x: -1 / x**2),
    second("1 / x", positive, lambda x: 1 / x, lambda x: 2 / x**3),
    second("x log x", ordinary, lambda x: x * tracer.log(x), lambda x: 1 / x),
    second("x**0.3", positive, lambda x: x**0.3, lambda x: -0.21 * x**-1.7),
    second("exp", inside, lambda x: tracer.exp(20 * x), lambda x: 400 * np.exp(20 * x)),
    second("asin", inside, lambda x: tracer.asin(x), lambda x: x * (1 - x * x) ** -1.5),
    second("x**0", anywhere, lambda x: x**0, lambda x: 0 * x),
    second("x**0.0", finite, lambda x: tracer.pow(x, tracer.zeros_like(x)), lambda x: 0 * x),
    second("x**1", anywhere, lambda x: x**1, lambda x: 0 * x),
    second("x**2", finite, lambda x: x**2, lambda x: 0 * x + 2),
    second("x**3", finite, lambda x: x**3, lambda x: 6 * x),
    second("x**4.0", finite, lambda x: x**4.0, lambda x: 12 * x * x),
    second("abs", finite, lambda x: abs(x), lambda x: 0 * x),
    second("relu", finite, lambda x: tracer.relu(x) ** 2, lambda x: 2.0 * (x > 0)),
    second("clip", finite, lambda x: tracer.clip(x, -1, 1) ** 2, lambda x: 2.0 * (abs(x) <= 1)),
    second(
        "maximum",
        finite,
        lambda x: tracer.maximum(x, 1) ** 2,
        lambda x: (x > 1) * 2 + (x == 1) * 0.5,
    ),
    second("tanh", anywhere, lambda x: tracer.tanh(x), lambda x: -2 * np.tanh(x) / np.cosh(x) ** 2),
    second(
        "softplus", anywhere, lambda x: tracer.softplus(x), lambda x: 0.25 / np.cosh(x / 2) ** 2
    ),
    second("length by hand", finite, lambda x: tracer.sqrt(x * x) * x, lambda x: 2 * np.sign(x)),
]
SECOND = [(n, f, np.where(np.isnan(POINTS), 0.0, np.nan_to_num(e, nan=0.0))) for n, f, e in SECOND]


@pytest.mark.parametrize("way, dtype", [("eager", "float64"), ("fused", "float32")])
def test_second_gradients(way: str, dtype: str) -> None:
    check_all(SECOND, POINTS, way, dtype)


# ---- what is constant almost everywhere ----------------------------------------------------------


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "round", "sign"])
def test_steps_have_a_gradient_of_zeros(name: str) -> None:
    """Their results require a gradient like all others, which is zeros."""
    for function in (getattr(tracer, name), trace(getattr(tracer, name))):
        x = tracer.tensor([-1.5, 0.0, 2.0], requires_grad=True)
        y = function(x)
        assert y.requires_grad and y.grad_fn is not None
        (y * y).sum().backward()
        assert x.grad is not None and x.grad.tolist() == [0, 0, 0]
    found = tracer.vector_norm(x, ord=0)
    assert found.requires_grad and found.item() == 2
    assert tracer.vector_norm(np.array([nan, 0, -0.0, inf]), ord=0).item() == 2


@tracer.op(derivative=lambda x: 0.5 / np.sqrt(x))
def own_root(x: float) -> float:
    """A user's operator."""
    return np.sqrt(x)  # type: ignore[no-any-return]


def test_a_users_operator_keeps_the_contract() -> None:
    function = slope(lambda x: tracer.where(x > 0, own_root(x), 0.0))
    for form in (function, trace(function)):
        assert np.asarray(form(np.array([-1, 0, 4, nan], np.float32))).tolist() == [0, 0, 0.25, 0]


def test_x_log_y() -> None:
    x = np.array([0, -0.0, 0, 2, 1, 0], np.float32)
    y = np.array([0, -1, inf, 3, 0, 5], np.float32)
    for form in (lambda f: f, trace):
        value = np.asarray(form(tracer.xlogy)(x, y))
        np.testing.assert_allclose(value, [0, 0, 0, 2 * math.log(3), -inf, 0], rtol=1e-6)
    by_x, by_y = tracer.grad(lambda x, y: tracer.xlogy(x, y).sum(), argnums=(0, 1))(x, y)
    np.testing.assert_allclose(by_x, [-inf, nan, inf, math.log(3), -inf, math.log(5)], rtol=1e-6)
    np.testing.assert_allclose(by_y, [0, 0, 0, 2 / 3, inf, 0], rtol=1e-6)


def test_the_backward_of_a_traced_function() -> None:
    """The forward compiled, its backward another program."""
    names = {"sqrt", "x log x", "exp", "a distance by hand"}
    for name, function, expected in BRANCHES:
        if name in names:
            x = tracer.tensor(POINTS.astype(np.float32), requires_grad=True)
            trace(function)(x).sum().backward()
            np.testing.assert_allclose(np.asarray(x.grad), expected, rtol=2e-6, err_msg=name)
