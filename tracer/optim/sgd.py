"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ops.errors import ArgumentError
from tracer.functions.creation import zeros_like
from tracer.functions.elementwise import add, multiply, negative, subtract
from tracer.optim.optimizer import Optimizer
from tracer.recording import assign, is_nonzero, scalar
from tracer.tensor import Tensor


class SGD(Optimizer):
    """p -= lr * d, with d the gradient plus weight_decay * p, smoothed by momentum: b = momentum * b + (1 - dampening) * d.

    `nesterov`: step along d + momentum * b. `maximize`: ascend. The momentum buffer starts at zero, so with dampening the
    first step is damped too (PyTorch starts it at the first gradient).

    Reference: Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Mapping[str, Any]],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        maximize: bool = False,
    ) -> None:
        for name, value in (("lr", lr), ("momentum", momentum), ("weight_decay", weight_decay)):
            if value < 0:
                raise ArgumentError(f"{name} must not be negative, got {value}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ArgumentError("nesterov needs momentum > 0 and no dampening")
        super().__init__(
            params,
            {
                "lr": float(lr),
                "momentum": float(momentum),
                "dampening": float(dampening),
                "weight_decay": float(weight_decay),
                "nesterov": nesterov,
                "maximize": maximize,
            },
        )

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        return {"momentum_buffer": zeros_like(p)} if group["momentum"] != 0 else {}

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        if is_nonzero(group, "maximize"):
            grad = negative(grad)
        if is_nonzero(group, "weight_decay"):
            grad = add(grad, multiply(p, scalar(group, "weight_decay")))
        if is_nonzero(group, "momentum"):
            momentum = scalar(group, "momentum")
            buffer = state["momentum_buffer"]
            part = grad
            if is_nonzero(group, "dampening"):
                part = multiply(grad, subtract(1.0, scalar(group, "dampening")))
            new = add(multiply(buffer, momentum), part)
            assign(buffer, new)
            grad = add(grad, multiply(new, momentum)) if is_nonzero(group, "nesterov") else new
        assign(p, subtract(p, multiply(grad, scalar(group, "lr"))))
