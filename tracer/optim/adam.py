"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ops.errors import ArgumentError
from tracer.core.source_lines import located
from tracer.dispatch.apply import apply
from tracer.functions.arithmetic import maximum, sqrt
from tracer.functions.creation import cast
from tracer.functions.promotion import number
from tracer.functions.state_values import assign, is_nonzero, scalar
from tracer.optim.optimizer import Optimizer
from tracer.optim.options import Options, checked
from tracer.tensors.tensor import Tensor


class Adam(Optimizer):
    """p -= lr * m_hat / (sqrt(v_hat) + eps).

    m and v are running means of the gradient and of its square, m_hat and v_hat these divided by
    1 - beta**step, which corrects for their start at zero. `weight_decay` times p is added to the
    gradient. `amsgrad`: divide by the largest v so far. `maximize`: ascend. `step`, a parameter's
    count of updates, is a 0-d float32; the powers of the betas are taken in float64.

    References: Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015; Reddi et
    al., "On the Convergence of Adam and Beyond", ICLR 2018.

    >>> weight = tracer.nn.Parameter([1.0, 2.0])
    >>> optimizer = tracer.optim.Adam([weight], lr=0.1)
    >>> weight.sum().backward()
    >>> optimizer.step()
    >>> weight.detach()
    tensor([0.90000004, 1.9       ])
    """

    slots = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq")
    counts = True
    decoupled = False  # whether weight decay shrinks the parameter instead

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
        if not isinstance(betas, list | tuple) or len(betas) != 2:
            raise located(ArgumentError(f"betas is two numbers, got {betas!r:.60}"))
        defaults = {
            "lr": checked("lr", lr, 0),
            "betas": [checked("betas", beta, 0, 1) for beta in betas],
            "eps": checked("eps", eps, 0),
            "weight_decay": checked("weight_decay", weight_decay, 0),
            "amsgrad": bool(amsgrad),
            "maximize": bool(maximize),
        }
        super().__init__(params, defaults)

    def _check_options(self, options: Mapping[str, Any]) -> None:
        for name in ("lr", "eps", "weight_decay"):
            checked(name, options[name], 0)
        for beta in options["betas"]:
            checked("betas", beta, 0, 1)

    def _needed(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        return self.slots if options["amsgrad"] else self.slots[:2]

    def _update(self, p: Tensor, value: Tensor, grad: Tensor, group: Options) -> Tensor:
        first, second = scalar(group["betas"], 0), scalar(group["betas"], 1)
        lr = scalar(group, "lr")
        state = self.state[p]
        if is_nonzero(group, "maximize"):
            grad = -grad
        if is_nonzero(group, "weight_decay"):
            decay = scalar(group, "weight_decay")
            if self.decoupled:
                value = value * (1.0 - lr * decay)
            else:
                grad = grad + value * decay
        step = state["step"] + 1.0
        mean = state["exp_avg"] * first + grad * (1.0 - first)
        square = state["exp_avg_sq"] * second + grad * grad * (1.0 - second)
        assign(state["step"], step)
        assign(state["exp_avg"], mean)
        assign(state["exp_avg_sq"], square)
        if is_nonzero(group, "amsgrad"):
            largest = self._slot(p, "max_exp_avg_sq")
            square = maximum(largest, square)
            assign(largest, square)
        count, dtype = cast(step, "float64"), value.type.dtype
        root = sqrt(_remaining(second, count))
        rate = cast(_double(lr) * root / _remaining(first, count), dtype)
        small = cast(_double(scalar(group, "eps")) * root, dtype)
        # Numerator and denominator times the root: one division for each element instead of two.
        new: Tensor = value - rate * (mean / (sqrt(square) + small))
        return new


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter: p *= 1 - lr * weight_decay before the step.

    Reference: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.

    >>> weight = tracer.nn.Parameter([1.0, 2.0])
    >>> optimizer = tracer.optim.AdamW([weight], lr=0.5, weight_decay=0.5)
    >>> weight.grad = tracer.zeros(2)
    >>> optimizer.step()
    >>> weight.detach()
    tensor([0.75, 1.5 ])
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


def _double(x: float | Tensor) -> Tensor:
    return cast(x, "float64") if isinstance(x, Tensor) else number(x, "float64")


def _remaining(beta: float | Tensor, count: Tensor) -> Tensor:
    """1 - beta**count in float64."""
    power = apply("Pow", _double(beta), count)
    return apply("Sub", number(1.0, "float64"), power)
