"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ops.errors import ArgumentError
from tracer.dispatch import apply
from tracer.functions.creation import cast, zeros_like
from tracer.functions.elementwise import add, divide, elementwise, multiply, negative, subtract
from tracer.functions.promotion import number
from tracer.optim.optimizer import Optimizer
from tracer.recording import assign, is_nonzero, scalar
from tracer.tensor import Tensor


class Adam(Optimizer):
    """p -= lr * m_hat / (sqrt(v_hat) + eps), with running means m of the gradient and v of its square, corrected for their start.

    `weight_decay` is added to the gradient (L2). `amsgrad`: divide by the largest v_hat so far. `step` of a parameter's state is
    a 0-d float32 count of its updates. The powers of the betas are taken in float64.

    References: Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015; Reddi et al., "On the Convergence of Adam
    and Beyond", ICLR 2018.
    """

    decoupled = False

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Mapping[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if value < 0:
                raise ArgumentError(f"{name} must not be negative, got {value}")
        if not all(0 <= b < 1 for b in betas):
            raise ArgumentError(f"betas must be from 0 to below 1, got {betas}")
        super().__init__(
            params,
            {
                "lr": float(lr),
                "betas": [float(b) for b in betas],
                "eps": float(eps),
                "weight_decay": float(weight_decay),
                "amsgrad": amsgrad,
                "maximize": maximize,
            },
        )

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        group["betas"] = list(group["betas"])
        state = {
            "step": Tensor.of_array(np.zeros((), np.float32)),
            "exp_avg": zeros_like(p),
            "exp_avg_sq": zeros_like(p),
        }
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_like(p)
        return state

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        first, second = scalar(group["betas"], 0), scalar(group["betas"], 1)
        lr, eps = scalar(group, "lr"), scalar(group, "eps")
        if is_nonzero(group, "maximize"):
            grad = negative(grad)
        value: Tensor = p
        if is_nonzero(group, "weight_decay"):
            decay = scalar(group, "weight_decay")
            if self.decoupled:
                value = multiply(p, subtract(1.0, multiply(lr, decay)))
            else:
                grad = add(grad, multiply(p, decay))
        step = add(state["step"], 1.0)
        mean = add(multiply(state["exp_avg"], first), multiply(grad, subtract(1.0, first)))
        square = add(multiply(state["exp_avg_sq"], second), multiply(multiply(grad, grad), subtract(1.0, second)))
        assign(state["step"], step)
        assign(state["exp_avg"], mean)
        assign(state["exp_avg_sq"], square)
        count = cast(step, "float64")
        correction = _remaining(first, count)
        root = elementwise("Sqrt", _remaining(second, count))
        if is_nonzero(group, "amsgrad"):
            square = elementwise("Maximum", state["max_exp_avg_sq"], square)
            assign(state["max_exp_avg_sq"], square)
        dtype = p.type.dtype
        size = cast(divide(_double(lr), correction), dtype)
        denominator = add(divide(elementwise("Sqrt", square), cast(root, dtype)), eps)
        assign(p, subtract(value, multiply(size, divide(mean, denominator))))


class AdamW(Adam):
    """Adam with decoupled weight decay: p *= 1 - lr * weight_decay before the step.

    Reference: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
    """

    decoupled = True

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Mapping[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, maximize)


def _double(x: Any) -> Tensor:
    return cast(x, "float64") if isinstance(x, Tensor) else number(float(x), "float64")


def _remaining(beta: Any, count: Tensor) -> Tensor:
    """1 - beta**count in float64."""
    result: Tensor = apply("Sub", number(1.0, "float64"), apply("Pow", _double(beta), count))
    return result
