"""Stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ops.errors import ArgumentError
from tracer.core.source_lines import located
from tracer.functions.state_values import assign, is_nonzero, scalar
from tracer.optim.optimizer import Optimizer
from tracer.optim.options import Options, checked
from tracer.tensors.tensor import Tensor


class SGD(Optimizer):
    """p -= lr * d, with d the gradient plus weight_decay * p, smoothed by momentum.

    The buffer is b = momentum * b + (1 - dampening) * d, and the step goes along b; with
    `nesterov` along d + momentum * b. `maximize`: ascend. The buffer starts at zero, so that with
    dampening the first step is damped like the others (PyTorch starts it at the first gradient,
    which is the same where dampening is 0).

    Reference: Sutskever et al., "On the importance of initialization and momentum in deep
    learning", ICML 2013.

    >>> weight = tracer.nn.Parameter([1.0, 2.0])
    >>> optimizer = tracer.optim.SGD([weight], lr=0.5)
    >>> weight.sum().backward()
    >>> optimizer.step()
    >>> weight.detach()
    tensor([0.5, 1.5])
    """

    slots = ("momentum_buffer",)

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
        defaults = {
            "lr": checked("lr", lr, 0),
            "momentum": checked("momentum", momentum, 0),
            "dampening": checked("dampening", dampening, -float("inf")),
            "weight_decay": checked("weight_decay", weight_decay, 0),
            "nesterov": bool(nesterov),
            "maximize": bool(maximize),
        }
        super().__init__(params, defaults)

    def _check_options(self, options: Mapping[str, Any]) -> None:
        for name in ("lr", "momentum", "weight_decay"):
            checked(name, options[name], 0)
        if options["nesterov"] and (options["momentum"] == 0 or options["dampening"] != 0):
            raise located(ArgumentError("nesterov needs momentum above 0, and no dampening"))

    def _needed(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return self.slots if options["momentum"] else ()

    def _update(self, p: Tensor, value: Tensor, grad: Tensor, group: Options) -> Tensor:
        if is_nonzero(group, "maximize"):
            grad = -grad
        if is_nonzero(group, "weight_decay"):
            grad = grad + value * scalar(group, "weight_decay")
        if is_nonzero(group, "momentum"):
            momentum = scalar(group, "momentum")
            buffer = self._slot(p, "momentum_buffer")
            part = grad
            if is_nonzero(group, "dampening"):
                part = grad * (1.0 - scalar(group, "dampening"))
            new = buffer * momentum + part
            assign(buffer, new)
            grad = grad + new * momentum if is_nonzero(group, "nesterov") else new
        stepped: Tensor = value - grad * scalar(group, "lr")
        return stepped
