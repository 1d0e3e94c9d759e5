"""Anomaly mode: the operator and the line where the first nan or infinity appeared, and nothing written; eager and compiled."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracer
import tracer.nn.functional as F
from tracer import autograd, nn, optim, trace
from tracer.autograd import detect_anomaly, set_detect_anomaly
from tracer.dispatch.apply import apply

# What is looked at lies above kernels. Compiled too: a step and both directions.
pytestmark = pytest.mark.kernels("python")

X = tracer.tensor([1.0, -2.0, 3.0], requires_grad=True)


def line_of(function: Callable[..., Any], number: int) -> str:
    """file:line of the line of a function's code, counted from its `def`."""
    return f"test_anomaly.py:{function.__code__.co_firstlineno + number}"


def forward(x: Any) -> Any:
    y = x * 2
    return tracer.log(y).sum()


def backward(x: Any) -> Any:
    y = x * 0
    z = tracer.sqrt(y)
    return z.sum()


def letter(function: Callable[[], Any], **options: bool) -> str:
    with detect_anomaly(**options), pytest.raises(tracer.AnomalyError) as caught:
        function()
    return str(caught.value)


# ---- what an error says --------------------------------------------------------------------------


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
@pytest.mark.kernels("compiled")
def test_in_the_forward(traced: bool) -> None:
    text = letter(lambda: (trace(forward) if traced else forward)(X))
    assert text.startswith("Log gave nan")
    assert line_of(forward, 2) in text
    assert "float32[3], 1 of 3 elements, the first at [1]" in text
    assert "-4.0 there, from -4.0 to 6.0" in text
    assert ("in forward" in text) is traced


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
@pytest.mark.kernels("compiled")
def test_in_the_backward(traced: bool) -> None:
    with detect_anomaly():
        result = (trace(backward) if traced else backward)(X)
    text = letter(lambda: result.backward())
    assert re.match(r"\w+ gave inf in the gradient of", text)
    assert line_of(backward, 2) in text
    assert "3 of 3 elements" in text and "0.0 there" in text
    assert "in the gradient of Sqrt at" in text
    assert X.grad is None


@pytest.mark.kernels("compiled")
def test_a_traced_step_that_goes_wrong_changes_nothing() -> None:
    w = tracer.tensor([1.0, 2.0, 3.0], requires_grad=True)
    opt = optim.SGD([w], lr=0.5, momentum=0.9)

    @trace
    def step(x: Any) -> Any:
        loss = tracer.sqrt(w * x).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss

    one, zero = np.ones(3, np.float32), np.zeros(3, np.float32)
    step(one)
    before = np.array(w.detach())
    text = letter(lambda: step(zero))
    assert re.match(r"\w+ gave inf in the gradient of Mul, Sqrt, ReduceSum at", text)
    assert "in test_a_traced_step_that_goes_wrong_changes_nothing.<locals>.step" in text
    assert line_of(step.__wrapped__, 2) in text  # type: ignore[attr-defined]
    np.testing.assert_array_equal(w.detach(), before)
    with detect_anomaly():
        step(one)  # the state is whole, and the mode lets right calls pass
    assert np.all(np.asarray(w.detach()) < before)
    step(zero)  # outside the mode nothing is looked at


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_inputs_that_are_not_finite_already_are_named(traced: bool) -> None:
    w = tracer.tensor([1.0, 2.0])

    def product(data: Any) -> Any:
        return data * w

    f = trace(product) if traced else product
    text = letter(lambda: f(tracer.tensor([1.0, np.nan])))
    assert text.startswith("Mul gave nan") and "the operand was not finite already" in text
    assert not traced or "operand 0: float32[2] data, nan there, all 1.0, 1 not finite" in text
    text = letter(lambda: f(tracer.tensor([1.0, np.inf])))
    assert "if infinities are meant: detect_anomaly(check_inf=False)" in text
    with detect_anomaly(check_inf=False):
        f(tracer.tensor([1.0, np.inf]))
    with detect_anomaly(check_nan=False):
        f(tracer.tensor([1.0, np.nan]))


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_what_a_mask_hides_is_found(traced: bool) -> None:
    def hidden(x: Any) -> Any:
        return tracer.where(x > 0, tracer.log(x), 0.0)

    assert letter(lambda: (trace(hidden) if traced else hidden)(X)).startswith("Log gave nan")


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_what_a_function_makes_itself_is_data_like_any_other(traced: bool) -> None:
    def constants() -> Any:
        return tracer.tensor([1.0, 2.0]).div_(tracer.tensor([0.0, 1.0]))

    assert letter(lambda: (trace(constants) if traced else constants)()).startswith("Div gave inf")


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_infinities_that_the_code_names_are_no_anomaly(traced: bool) -> None:
    hidden = tracer.tensor([True, False, False])

    def masked(x: Any) -> Any:
        scores = x.masked_fill(hidden, -np.inf) + tracer.full((3,), -np.inf) * 0.5
        return F.softmax(scores.masked_fill(~hidden, 1.0), -1).sum()

    def attention(x: Any) -> Any:
        return F.softmax(x.masked_fill(hidden, -np.inf) + 1, -1)

    with detect_anomaly():
        attention_of = trace(attention) if traced else attention
        np.testing.assert_allclose(np.asarray(attention_of(X).detach())[0], 0)
    text = letter(lambda: (trace(masked) if traced else masked)(X * 1e38 * 1e38))
    assert "gave" in text  # an overflow is one


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_a_nan_of_infinities_that_are_meant_is_one(traced: bool) -> None:
    def all_masked(x: Any) -> Any:
        scores = x.masked_fill(x < 10, -np.inf)
        return scores - scores.max()

    text = letter(lambda: (trace(all_masked) if traced else all_masked)(X))
    assert text.startswith("Sub gave nan") and line_of(all_masked, 2) in text


# ---- the mode ------------------------------------------------------------------------------------


def test_the_mode_ends_where_it_should() -> None:
    @detect_anomaly()
    def decorated() -> Any:
        assert autograd.is_anomaly_enabled()
        return forward(X)

    with pytest.raises(tracer.AnomalyError):
        decorated()
    assert not autograd.is_anomaly_enabled()
    assert np.isnan(float(forward(X)))
    with detect_anomaly():
        with detect_anomaly(check_nan=False):
            forward(X)
        assert autograd.is_anomaly_enabled()
    seen = []

    def elsewhere() -> None:
        seen.append(autograd.is_anomaly_enabled())

    def in_a_thread() -> None:
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()

    with detect_anomaly():
        in_a_thread()
    with set_detect_anomaly(True):
        assert autograd.is_anomaly_enabled()
        in_a_thread()
    set_detect_anomaly(True)
    try:
        with set_detect_anomaly(False):
            forward(X)
        assert autograd.is_anomaly_enabled()
    finally:
        set_detect_anomaly(False)
    assert seen == [False, True] and not autograd.is_anomaly_enabled()


def test_mistakes() -> None:
    @trace
    def inside(x: Any) -> Any:
        with detect_anomaly():
            return x * 2

    with pytest.raises(tracer.TraceError, match=r"around the call of the traced function"):
        inside(X)
    with pytest.raises(tracer.ArgumentError, match="takes True or False, got 1"):
        set_detect_anomaly(1)  # type: ignore[arg-type]

    def generator() -> Any:
        yield 1

    with pytest.raises(tracer.ArgumentError, match="decorates functions that return"):
        detect_anomaly()(generator)
    error = tracer.AnomalyError("")
    assert isinstance(error, FloatingPointError) and isinstance(error, tracer.TracerError)


# ---- more programs -------------------------------------------------------------------------------


def test_a_path_that_is_not_taken_is_not_looked_at() -> None:
    @trace
    def choose(x: Any) -> Any:
        if x.sum() > 0:
            y = tracer.log(x)
            if y.sum() > 0:
                return y * 2
            return y * 3
        return x * 4

    good, bad = tracer.tensor([2.0, 3.0]), tracer.tensor([-2.0, 1.0])
    with detect_anomaly():
        choose(good)
        np.testing.assert_allclose(np.asarray(choose(bad)), [-8.0, 4.0])
        np.testing.assert_allclose(np.asarray(choose(good)), 2 * np.log([2.0, 3.0]), 1e-6)
    assert letter(lambda: choose(tracer.tensor([-2.0, 3.0]))).startswith("Log gave nan")


def test_modules_and_gradients_of_gradients() -> None:
    class Ratio(nn.Module):
        def forward(self, x: Any) -> Any:
            return 1 / x

    model = nn.Sequential(Ratio(), nn.Tanh())
    loss = trace(lambda x: model(x).sum())
    text = letter(lambda: loss(tracer.zeros(2)))
    assert text.startswith("Div gave inf") and "in Sequential/Ratio[0], in" in text

    x = tracer.tensor([0.0, 1.0], requires_grad=True)
    (g,) = autograd.grad((x.abs() ** 1.5).sum(), x, create_graph=True)
    text = letter(lambda: autograd.grad(g.sum(), x))
    assert "in the gradient of" in text and "test_anomaly.py" in text


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_what_rules_leave_out_is_no_anomaly(traced: bool) -> None:
    """Rules have a nan for what is undefined, such as a label that is no class; it counts where it gets out."""
    scores = tracer.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)

    def loss(labels: Any) -> Any:
        scores.grad = None
        result = apply("SoftmaxCrossEntropy", scores, labels).sum()
        result.backward()
        return result

    f = trace(loss) if traced else loss
    with detect_anomaly():
        f(tracer.tensor([1, -100]))  # ignored
        assert np.isfinite(np.asarray(scores.grad)).all()
    scores.grad = None
    text = letter(lambda: f(tracer.tensor([1, 7])))
    assert "gave nan" in text and line_of(loss, 2) in text
    assert scores.grad is None
