"""`gradcheck` and `gradgradcheck`: right gradients pass, wrong ones are named by output, input, element and values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracer
from tracer import trace
from tracer.autograd import gradcheck, gradgradcheck


def leaf(rng: np.random.Generator, *shape: int) -> tracer.Tensor:
    return tracer.tensor(rng.standard_normal(shape), requires_grad=True)


def several(x: Any, w: Any) -> Any:
    return tracer.tanh(x * w), (x @ w).sum(), x > 0


def nested(options: Any) -> Any:
    return {"y": options["a"] * options["b"][0] ** options["b"][1]}


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_right_gradients_pass(rng: np.random.Generator, traced: bool) -> None:
    x, w = leaf(rng, 2, 3), leaf(rng, 3)
    f = trace(several) if traced else several
    assert gradcheck(f, (x, w))
    assert gradgradcheck(f, (x, w))
    assert x.grad is None and w.grad is None


def test_arguments_of_every_kind(rng: np.random.Generator) -> None:
    x, w = leaf(rng, 2, 3), leaf(rng, 3)
    assert gradcheck(tracer.exp, x)
    assert gradcheck(nested, ({"a": x, "b": [w, 3]},))
    assert gradcheck(lambda a, n, b: a * n + b, (x, 2, tracer.ones(3, dtype="float64")))
    assert gradcheck(lambda a: a * a, leaf(rng, 0, 3))
    assert gradgradcheck(tracer.exp, x, grad_outputs=tracer.ones((2, 3), dtype="float64"))


def test_a_wrong_gradient_is_named(rng: np.random.Generator) -> None:
    w, x = leaf(rng, 2), tracer.tensor([[1.0, 2.0, 3.0]], dtype="float64", requires_grad=True)

    def wrong(w: Any, x: Any) -> Any:
        y = x * x
        y.register_hook(lambda g: g * tracer.tensor([[1.0, 1.0, 2.0]], dtype="float64"))
        return w, y

    with pytest.raises(tracer.GradcheckError) as caught:
        gradcheck(wrong, (w, x))
    text = str(caught.value)
    assert "the gradient of output 1 with respect to input 1, float64[1, 3], is wrong" in text
    assert "at 1 of 9 places" in text
    assert "of output element [0, 2] and input element [0, 2], is 12 by the rules" in text
    assert "6 by differences" in text and ".wrong\n" in text and "test_gradcheck.py:" in text
    assert gradcheck(wrong, (w, x), raise_exception=False) is False
    assert gradcheck(wrong, (w, x), atol=7.0)


def test_a_wrong_second_gradient_is_named(rng: np.random.Generator) -> None:
    x = leaf(rng, 3)

    def wrong(x: Any) -> Any:
        y = x * x * x
        y.register_hook(lambda g: g + (g * y.detach() - (g * y).detach()))
        return y

    assert gradcheck(wrong, x)
    with pytest.raises(tracer.GradcheckError, match=r"of gradient 0 with respect to cotangent 0"):
        gradgradcheck(wrong, x)


def test_other_mistakes(rng: np.random.Generator) -> None:
    x = leaf(rng, 3)
    calls = []

    def flips(x: Any) -> Any:
        calls.append(1)
        y, factor = x * 1, 1 + 1e-5 * (len(calls) > 4)
        y.register_hook(lambda g: g * factor)
        return y

    with pytest.raises(tracer.GradcheckError, match=r"output 0 of .* changes with input 0"):
        gradcheck(lambda x: x.detach() * 2, x)
    with pytest.raises(tracer.GradcheckError, match="draw random numbers"):
        gradcheck(lambda x: tracer.randn(3, dtype="float64") * x, x)
    with pytest.raises(
        tracer.GradcheckError, match=r"not the same when it is computed again: 1e-05"
    ):
        gradcheck(flips, x)
    calls.clear()
    assert gradcheck(flips, x, nondet_tol=1e-4)
    with pytest.raises(tracer.ArgumentError, match="none does; make them with requires_grad"):
        gradcheck(tracer.exp, tracer.ones(3))
    with pytest.raises(tracer.ArgumentError, match=r"grad_outputs must be float64\[3\]"):
        gradgradcheck(tracer.exp, x, grad_outputs=[tracer.ones(2)])
    with pytest.raises(tracer.ArgumentError, match="nothing to differentiate twice"):
        gradgradcheck(lambda x: x.detach(), x)
    with pytest.warns(UserWarning, match=r"input 0 is float32\[1\]; .* use x.double\(\)"):
        gradcheck(tracer.exp, tracer.ones(1).requires_grad_(), eps=1e-2, atol=1e-2)
