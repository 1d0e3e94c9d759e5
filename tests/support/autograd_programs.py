"""Programs that a user might write, to be run in every way: what is built once, a function that is called again and again,
and what is watched afterwards. `tests/autograd/test_autograd_programs.py` runs them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tracer
import tracer.nn.functional as F
from tracer import nn, optim

A = np.arange(12.0, dtype=np.float32).reshape(3, 4) / 8 + 0.5
B = np.linspace(-1, 1, 4, dtype=np.float32)


def leaf(array: Any) -> tracer.Tensor:
    """A Tensor that requires a gradient."""
    return tracer.tensor(array, requires_grad=True)


@dataclass
class Built:
    """A function to call with the arguments of each call in turn, and the Tensors that are looked at after each."""

    function: Callable[..., Any]
    calls: list[tuple[Any, ...]] = field(default_factory=lambda: [(), ()])
    watched: dict[str, tracer.Tensor] = field(default_factory=dict)


Program = Callable[[], Built]
PROGRAMS: list[Program] = []


def program(build: Program) -> Program:
    """Add to the programs that are run in every way."""
    PROGRAMS.append(build)
    return build


# ---- flags and history ---------------------------------------------------------------------------


@program
def accumulation() -> Built:
    a, b = leaf(A), leaf(B)

    def step() -> Any:
        loss = (a * b).tanh().sum()
        loss.backward()
        return loss.detach()

    return Built(step, watched={"a": a, "b": b})


@program
def frozen_base() -> Built:
    tracer.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    for p in model[0].parameters():
        p.requires_grad = False
    optimizer = optim.SGD(model[2].parameters(), lr=0.1, momentum=0.9)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Built(step, [(A,), (A + 1,), (A,)], dict(model.named_parameters()))


@program
def volatile_input() -> Built:
    a = leaf(A)
    x = tracer.Variable(tracer.tensor(A), volatile=True)

    def step() -> Any:
        y = a * x
        assert y.volatile
        assert not y.requires_grad
        return y

    return Built(step, watched={"a": a})


@program
def retained_and_gradient_of_gradient() -> Built:
    a = leaf(A)

    def step() -> Any:
        y = a * a
        y.retain_grad()
        z = (y * a).sum()
        (first,) = tracer.autograd.grad(z, a, create_graph=True)
        (first * first).sum().backward()
        return first.detach(), y.grad

    return Built(step, watched={"a": a})


@program
def no_grad_and_detach() -> Built:
    a, b = leaf(A), leaf(B)

    def step() -> Any:
        with tracer.no_grad():
            scale = a.sum()
        y = (a * scale + b.detach() * b).sum()
        y.backward()
        return y.detach()

    return Built(step, watched={"a": a, "b": b})


@program
def backward_outside_of_the_function() -> Built:
    a, b = leaf(A), leaf(B)

    def value(x: Any) -> Any:
        return (a * x).sin() * b

    return Built(value, [(A,), (A * 2,)], {"a": a, "b": b})


@program
def hooks_scale_gradients() -> Built:
    a = leaf(A)
    a.register_hook(lambda g: g * 2)

    def step() -> Any:
        y = a * 3
        y.register_hook(lambda g: g + 1)
        y.sum().backward()
        return y.detach()

    return Built(step, watched={"a": a})


# ---- in place ------------------------------------------------------------------------------------


@program
def views_and_changes() -> Built:
    a, b = leaf(A), leaf(B)

    def step() -> Any:
        y = a * 1
        row, column = y[1], y.T[2]
        row.mul_(b)
        column += 1
        y.reshape(-1)[::5] = b[0]
        loss = (y * y).sum() + row.sum() * column.sum()
        loss.backward()
        return y.detach()

    return Built(step, watched={"a": a, "b": b})


@program
def buffer_filled_row_by_row() -> Built:
    a, h = leaf(A), leaf(B)

    def step() -> Any:
        out = tracer.zeros((3, 4))
        state = h
        for t in range(3):
            state = (state * a[t]).tanh()
            out[t] = state
        out.sum().backward()
        return out.detach()

    return Built(step, watched={"a": a, "h": h})


@program
def argument_changed() -> Built:
    a = leaf(A)
    first, second = tracer.tensor(A), tracer.tensor(A * 2)

    def step(x: Any) -> Any:
        x.mul_(2)
        x[0] += 1
        (a * x.detach()).sum().backward()

    return Built(step, [(first,), (second,), (first,)], {"first": first, "second": second, "a": a})


@program
def state_of_the_outside() -> Built:
    counter, average = tracer.zeros(()), tracer.zeros(4)

    def step(x: Any) -> Any:
        counter.add_(1)
        average.lerp_(tracer.asarray(x).mean(axis=0), 0.25)
        return average * counter

    return Built(step, [(A,), (A + 1,), (A,)], {"counter": counter, "average": average})


@program
def masks_and_indices() -> Built:
    a, b = leaf(A), leaf(B)

    def step() -> Any:
        y = a * 1
        y[y > 1.5] = 0.25
        y[[2, 0]] = y[[0, 1]] * 2
        y[:, [1, 3]] += b[:2]
        (y * y).sum().backward()
        return y.detach()

    return Built(step, watched={"a": a, "b": b})


# ---- control flow --------------------------------------------------------------------------------


@program
def branches_on_values() -> Built:
    a = leaf(A)

    def step(x: Any) -> Any:
        y = a * x
        loss = (y * y).sum() if y.sum() > 0 else y.sin().sum()
        if loss > 100:
            loss = loss * 0.5
        loss.backward()
        return loss.detach()

    return Built(step, [(A,), (-A,), (A * 9,), (-A,), (A,)], {"a": a})


@program
def loop_until_small() -> Built:
    a = leaf(B)

    def step(x: Any) -> Any:
        y = a * x
        turns = 0
        while y.square().sum() > 0.1:
            y = y * 0.5
            turns += 1
        y.sum().backward()
        return y.detach(), turns

    return Built(step, [(B,), (B * 8,), (B,)], {"a": a})


def _power(x: Any, n: Any) -> Any:
    if n <= 0:
        return x * 0 + 1
    return x * _power(x, n - 1)


@program
def recursion_on_a_value() -> Built:
    a = leaf(B)

    def step(n: Any) -> Any:
        y = _power(a, n)
        y.sum().backward()
        return y.detach()

    return Built(step, [(tracer.tensor(2),), (tracer.tensor(4),), (tracer.tensor(2),)], {"a": a})


@program
def a_value_as_a_shape() -> Built:
    a = leaf(A)

    def step(n: Any) -> Any:
        part = a[: int(n)]
        (part * part).sum().backward()
        return part.detach() * 1

    return Built(step, [(tracer.tensor(1),), (tracer.tensor(3),), (tracer.tensor(1),)], {"a": a})


# ---- modules, random numbers, custom functions -----------------------------------------------------


@program
def training_with_dropout_and_statistics() -> Built:
    tracer.manual_seed(1)
    model = nn.Sequential(
        nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3)
    )
    running = tracer.zeros(3)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    labels = np.array([0, 2, 1])

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        logits = model(x)
        with tracer.no_grad():
            running.mul_(0.9).add_(logits.mean(axis=0), alpha=0.1)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    watched = {**dict(model.named_parameters()), "running": running}
    return Built(step, [(A,), (A * 2,), (A,), (A * 2,)], watched)


class _Doubled(tracer.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradient * x * 4  # twice the derivative, to see that it is this one


@program
def a_function_with_its_own_gradient() -> Built:
    a = leaf(A)

    def step() -> Any:
        y = _Doubled.apply(a * 1.5)
        y.sum().backward()
        return y.detach()

    return Built(step, watched={"a": a})


@program
def functional_gradients_inside() -> Built:
    a = leaf(B)

    def step(x: Any) -> Any:
        inner = tracer.grad(lambda w: ((w * x).sin() * a).sum())(tracer.tensor(B))
        (inner * inner).sum().backward()
        return inner.detach()

    return Built(step, [(B,), (B + 1,)], {"a": a})


class _Clipped(tracer.autograd.Function):
    """Changes its first argument in place; its gradient is that of a clip, and several results depend on it."""

    @staticmethod
    def forward(ctx: Any, x: Any, limit: float) -> Any:
        inside = abs(x) <= limit
        x.clamp_(-limit, limit)
        ctx.mark_dirty(x)
        ctx.mark_non_differentiable(inside)
        ctx.save_for_backward(inside, x)
        return x, inside, x * 2

    @staticmethod
    def backward(ctx: Any, dx: Any, _: Any, d_twice: Any) -> Any:
        inside, x = ctx.saved_tensors
        return (dx + 2 * d_twice) * inside + x * 0, None


@program
def a_function_that_changes_its_argument() -> Built:
    a = leaf(A)

    def step(limit: float) -> Any:
        y = a * 1.5
        part, inside, twice = _Clipped.apply(y[1:], limit)
        (gradient,) = tracer.autograd.grad((part * twice).sum(), a, create_graph=True)
        (gradient.sum() + (y * y).sum()).backward()
        return y.detach(), inside, gradient.detach()

    return Built(step, [(1.2,), (2.0,), (1.2,)], {"a": a})


_scale = 0.5
_bent = tracer.op(
    lambda x, y: x * y if x > y else math.tanh(x) + _scale * y,
    derivative=lambda x, y: (y, x) if x > y else (1 - math.tanh(x) ** 2, _scale),
    name="bent",
)


@program
def an_operator_made_of_a_function() -> Built:
    a, b = leaf(A), leaf(B)
    optimizer = optim.SGD([a, b], lr=0.05)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (_bent(a * x, b) * _bent(b, a.mean(axis=0))).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Built(step, [(A,), (-A,), (A,)], {"a": a, "b": b})
