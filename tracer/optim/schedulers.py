"""Learning rates that follow a schedule: `step()` after each epoch (or each step) sets them.

A compiled training step heeds the new rate without another program. The schedules are closed
formulas, so that a state is two numbers and resuming is exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ops.errors import ArgumentError
from tracer.core.source_lines import located
from tracer.optim.optimizer import Optimizer
from tracer.tensors.modes import outside_traces


class LRScheduler:
    """Base class: `factor(epoch)` says what the first learning rate of each group is multiplied by.

    Subclasses that need more define `rate(base, epoch)`.

    >>> class Halving(tracer.optim.LRScheduler):
    ...     def factor(self, epoch):
    ...         return 0.5**epoch
    >>> optimizer = tracer.optim.SGD([tracer.nn.Parameter(1.0)], lr=8.0)
    >>> scheduler = Halving(optimizer)
    >>> scheduler.step()
    >>> optimizer.param_groups[0]["lr"]
    4.0
    """

    def __init__(self, optimizer: Optimizer, last_epoch: int = 0) -> None:
        if not isinstance(optimizer, Optimizer):
            raise located(
                ArgumentError(
                    f"{type(self).__name__} takes an optimiser, got {type(optimizer).__name__}"
                )
            )
        self.optimizer = optimizer
        self.base_lrs = [float(g["lr"]) for g in optimizer.param_groups]
        self.last_epoch = last_epoch
        self._apply()

    def factor(self, epoch: int) -> float:
        """What the first learning rate is multiplied by in an epoch, the first being 0."""
        raise NotImplementedError(f"{type(self).__name__} defines no factor")

    def rate(self, base: float, epoch: int) -> float:
        """The learning rate of a group in an epoch."""
        return base * self.factor(epoch)

    def get_last_lr(self) -> list[float]:
        """The learning rates of the groups now."""
        return [g["lr"] for g in self.optimizer.param_groups]

    def step(self) -> None:
        """Go on to the next epoch."""
        outside_traces("a schedule goes on")
        self.last_epoch += 1
        self._apply()

    def _apply(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.base_lrs):
            raise located(
                ArgumentError(
                    f"{type(self).__name__} was made for {len(self.base_lrs)} parameter groups, "
                    f"the optimiser has {len(groups)}: make the scheduler afterwards"
                )
            )
        for group, rate in zip(groups, self._rates(self.last_epoch), strict=True):
            group["lr"] = rate

    def _rates(self, epoch: int) -> list[float]:
        """The learning rates of all groups in an epoch."""
        return [self.rate(base, epoch) for base in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        """The epoch and the first learning rates; what JSON holds."""
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`. Raises `ArgumentError` where it does not fit."""
        try:
            epoch = int(state_dict["last_epoch"])
            rates = [float(r) for r in state_dict["base_lrs"]]
        except (KeyError, TypeError, ValueError):
            raise located(ArgumentError("this is no state_dict of a scheduler")) from None
        if len(rates) != len(self.base_lrs):
            raise located(
                ArgumentError(f"the state has {len(rates)} groups, expected {len(self.base_lrs)}")
            )
        self.last_epoch, self.base_lrs = epoch, rates
        self._apply()


class StepLR(LRScheduler):
    """The rate times gamma every `step_size` epochs.

    >>> optimizer = tracer.optim.SGD([tracer.nn.Parameter(1.0)], lr=8.0)
    >>> scheduler = tracer.optim.StepLR(optimizer, step_size=2, gamma=0.5)
    >>> for _ in range(3):
    ...     scheduler.step()
    ...     print(optimizer.param_groups[0]["lr"])
    8.0
    4.0
    4.0
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = 0
    ) -> None:
        if step_size < 1:
            raise located(ArgumentError(f"step_size must be at least 1, got {step_size}"))
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def factor(self, epoch: int) -> float:
        """gamma to the power of the whole periods that have passed."""
        return float(self.gamma ** (epoch // self.step_size))


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the first rate down to `eta_min` over `T_max` epochs, then up again.

    Reference: Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR
    2017.

    >>> optimizer = tracer.optim.SGD([tracer.nn.Parameter(1.0)], lr=8.0)
    >>> scheduler = tracer.optim.CosineAnnealingLR(optimizer, T_max=2)
    >>> for _ in range(2):
    ...     scheduler.step()
    ...     print(round(optimizer.param_groups[0]["lr"], 6))
    4.0
    0.0
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_max: int,  # noqa: N803 - PyTorch's name
        eta_min: float = 0.0,
        last_epoch: int = 0,
    ) -> None:
        if T_max < 1:
            raise located(ArgumentError(f"T_max must be at least 1, got {T_max}"))
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, epoch: int) -> float:
        """eta_min + (base - eta_min) * (1 + cos(pi * epoch / T_max)) / 2."""
        turn = (1 + math.cos(math.pi * epoch / self.T_max)) / 2
        return self.eta_min + (base - self.eta_min) * turn


class LambdaLR(LRScheduler):
    """The first rate times a function of the epoch; one for all groups, or a list of one each.

    >>> optimizer = tracer.optim.SGD([tracer.nn.Parameter(1.0)], lr=8.0)
    >>> scheduler = tracer.optim.LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))
    >>> scheduler.step()
    >>> optimizer.param_groups[0]["lr"]
    4.0
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | list[Callable[[int], float]],
        last_epoch: int = 0,
    ) -> None:
        count = len(optimizer.param_groups)
        self.lr_lambdas = lr_lambda if isinstance(lr_lambda, list) else [lr_lambda] * count
        if len(self.lr_lambdas) != count:
            raise located(
                ArgumentError(f"{len(self.lr_lambdas)} functions for {count} parameter groups")
            )
        super().__init__(optimizer, last_epoch)

    def _rates(self, epoch: int) -> list[float]:
        return [base * f(epoch) for base, f in zip(self.base_lrs, self.lr_lambdas, strict=True)]

    def factor(self, epoch: int) -> float:
        """Not used: each group has its own."""
        return 1.0
