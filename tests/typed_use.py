"""Never run: what type checkers make of programs that use the package. `make check` has mypy and pyright read it.

An error that is expected carries `type: ignore`, and one that is not there is an error too.
"""

from __future__ import annotations

from typing import Any, assert_type

import tracer
from tracer import Tensor
from tracer.functions.methods.reductions import Extremum
from tracer.ir.graph import Graph


@tracer.trace
def scaled(x: Tensor, factor: float = 2.0) -> Tensor:
    """A function whose types outlive the decorator."""
    return tracer.exp(x) * factor


def names(x: Tensor) -> None:
    """Names that are imported when they are first used have their types; misspelt ones are found."""
    assert_type(tracer.nn.Linear(3, 4), tracer.nn.Linear)
    assert_type(tracer.ir.parse(""), Graph)
    assert_type(tracer.autograd.gradcheck(scaled, (x,)), bool)
    tracer.save_file({"x": x}, 3)  # type: ignore[arg-type]
    tracer.sofmax(x)  # type: ignore[attr-defined]
    tracer.ir.prase("")  # type: ignore[attr-defined]
    tracer.autograd.gradchek(scaled, (x,))  # type: ignore[attr-defined]


def methods(x: Tensor) -> None:
    """Methods are attached when the package is imported; both names of an argument are known, and no others."""
    assert_type(x.sum(axis=0, keepdims=True), Tensor)
    assert_type(x.sum(dim=0).exp().clamp_(min=0), Tensor)
    assert_type(x.max(dim=1), Extremum)
    assert_type(x.max(), Tensor)
    assert_type(x.split(2), tuple[Tensor, ...])
    assert_type((1 - x @ x.T)[0] == 3, Tensor)
    assert_type(x.grad, Tensor | None)
    assert_type([row for row in x], list[Tensor])
    x.sunm()  # type: ignore[attr-defined]
    x.sum(ax=0)  # type: ignore[call-arg]
    x.add_()  # type: ignore[call-arg]
    x.gradient = x  # type: ignore[attr-defined]
    x.max(1).value  # type: ignore[attr-defined]  # noqa: B018 - never run


def calls(x: Tensor) -> None:
    """A traced function is called, and looked into, with its own arguments or with none."""
    assert_type(scaled(x), Tensor)
    assert_type(scaled.ir(x, factor=3.0), Graph)
    assert_type(scaled.ir(), Graph)
    scaled("x")  # type: ignore[arg-type]
    scaled.ir("x")  # type: ignore[call-overload]


class Net(tracer.nn.Module):
    """A module whose calls have the types of its forward, traced methods too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = tracer.nn.Linear(3, 4)

    def forward(self, x: Tensor, scale: float = 1.0) -> tuple[Tensor, float]:
        """One layer."""
        assert_type(self.layer(x), Tensor)
        return self.layer(x), scale

    @tracer.trace
    def step(self, x: Tensor, *, rate: float) -> Tensor:
        """A traced method."""
        return x * rate

    @tracer.trace(name="other", max_traces=3)
    def other_step(self, x: Tensor) -> Tensor:
        """One traced with options."""
        return x


def modules(x: Tensor) -> None:
    """What a call of a module takes and gives."""
    net = Net()
    assert_type(net(x, scale=2.0), tuple[Tensor, float])
    assert_type(tracer.trace(net)(x), tuple[Tensor, float])
    assert_type(net.step(x, rate=0.1), Tensor)
    assert_type(net.other_step(x), Tensor)
    assert_type(tracer.nn.MSELoss()(x, x), Tensor)
    net("x")  # type: ignore[arg-type]
    net(x, factor=2.0)  # type: ignore[call-arg]
    net.step(x)  # type: ignore[call-arg]


def loss(weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """A function to be differentiated."""
    return (weights["w"] * x).sum()


def loss_and_count(x: Tensor, k: int) -> tuple[Tensor, int]:
    """One with something beside the value."""
    return x.sum(), k


def gradients(weights: dict[str, Tensor], x: Tensor) -> None:
    """A gradient's function has the parameters of the function; of lambdas nothing is said."""
    tracer.grad(loss)(weights, x=x)["w"].sum()
    assert_type(tracer.value_and_grad(loss)(weights, x), tuple[Tensor, Any])
    assert_type(
        tracer.value_and_grad(loss_and_count, has_aux=True)(x, 2), tuple[tuple[Tensor, int], Any]
    )
    assert_type(tracer.grad(loss_and_count, has_aux=True)(x, 2), tuple[Any, int])
    assert_type(tracer.trace(tracer.value_and_grad(loss, 1))(weights, x), tuple[Tensor, Any])
    value, pull = tracer.vjp(loss, weights, x)
    assert_type(value, Tensor)
    assert_type(pull(1.0), tuple[Any, ...])
    assert_type(tracer.vjp(loss_and_count, x, 2, has_aux=True)[2], int)
    assert_type(tracer.jvp(loss, (weights, x), (weights, x)), tuple[Tensor, Tensor])
    tracer.hessian(loss, 1)(weights, x)
    tracer.grad(tracer.grad(lambda t: t**3))(2.0)
    tracer.grad(lambda w: loss(w, x))(weights)
    tracer.grad(loss)(x, weights)  # type: ignore[arg-type]
    tracer.grad(loss)(weights)  # type: ignore[call-arg]
    tracer.vjp(loss, weights)  # type: ignore[arg-type]
    tracer.hessian(loss)(weights, x, 3)  # type: ignore[call-arg]
    tracer.grad(3)  # type: ignore[call-overload]
