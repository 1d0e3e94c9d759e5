"""Optimisers: parameter groups, state made at construction, one step as operations on Tensors.

A step is the same code eager and traced. Hyperparameters that are floats are read as values, so that a new learning rate is no
new compile; state is written in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ops.errors import ArgumentError
from tracer.modes import no_grad
from tracer.recording import assign
from tracer.tensor import Tensor


class Optimizer:
    """Base class. `params`: Tensors, or dicts with "params" and options of a group of their own.

    Attributes: `param_groups`, a list of dicts whose options may be changed at any time, and `state`: for each parameter a
    dict of Tensors. Subclasses define `_start(p, group)`, which makes a parameter's state, and `_update(p, grad, state, group)`.
    """

    def __init__(self, params: Iterable[Tensor] | Iterable[Mapping[str, Any]], defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.param_groups: list[dict[str, Any]] = []
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        self._states: list[dict[str, Tensor]] = []  # the same in order, where access paths lead
        given = list(params)
        if not given:
            raise ArgumentError(f"{type(self).__name__} was given no parameters")
        groups = given if all(isinstance(g, Mapping) for g in given) else [{"params": given}]
        for group in groups:
            self.add_param_group(dict(group))  # type: ignore[arg-type]

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Add a group: a dict with "params" and options that differ from the defaults."""
        unknown = set(group) - set(self.defaults) - {"params"}
        if unknown:
            raise ArgumentError(f"{type(self).__name__} has no option {sorted(unknown)[0]!r}; it has {', '.join(self.defaults)}")
        params = group["params"]
        group["params"] = [params] if isinstance(params, Tensor) else list(params)
        for p in group["params"]:
            if not isinstance(p, Tensor):
                raise ArgumentError(f"parameters must be Tensors, got {type(p).__name__}")
            if p in self.state:
                raise ArgumentError("a parameter is given twice")
        group = {**self.defaults, **group}
        self.param_groups.append(group)
        with no_grad():
            for p in group["params"]:
                self.state[p] = self._start(p, group)
                self._states.append(self.state[p])

    def zero_grad(self) -> None:
        """Clear `.grad` of all parameters."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Update every parameter that has a gradient. `closure`: evaluated first, its result is returned."""
        from tracer.modes import enable_grad

        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                self._prepare(group)
                for p in group["params"]:
                    if p.grad is not None:
                        self._update(p, p.grad, self.state[p], group)
        return loss

    def _prepare(self, group: dict[str, Any]) -> None:
        """Called once for each group before its parameters."""

    def _start(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        raise NotImplementedError

    def _update(self, p: Tensor, grad: Tensor, state: dict[str, Tensor], group: dict[str, Any]) -> None:
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Options of the groups and state by the parameters' numbers; Tensors share memory."""
        number = {p: k for k, p in enumerate(q for g in self.param_groups for q in g["params"])}
        groups = [
            {k: ([number[p] for p in v] if k == "params" else v) for k, v in g.items()} for g in self.param_groups
        ]
        state = {number[p]: {k: t.detach() for k, t in s.items()} for p, s in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy options and state from `state_dict`, all or nothing. Raises `ArgumentError` when they do not fit."""
        groups = state["param_groups"]
        sizes = [len(g["params"]) for g in self.param_groups]
        if [len(g["params"]) for g in groups] != sizes:
            raise ArgumentError(
                f"the state has groups of {[len(g['params']) for g in groups]} parameters, this optimiser of {sizes}"
            )
        params = [p for g in self.param_groups for p in g["params"]]
        pairs: list[tuple[Tensor, Any]] = []
        for k, p in enumerate(params):
            saved = state["state"].get(k, state["state"].get(str(k), {}))
            for name, own in self.state[p].items():
                if name not in saved:
                    raise ArgumentError(f"the state of parameter {k} has no {name!r}")
                value = np.asarray(saved[name])
                if value.shape != own.shape:
                    raise ArgumentError(f"{name} of parameter {k} has shape {own.shape}, the state {value.shape}")
                pairs.append((own, value))
        for own, value in pairs:
            assign(own, Tensor.of_array(value.astype(own.dtype)))
        for mine, theirs in zip(self.param_groups, groups, strict=True):
            mine.update({k: v for k, v in theirs.items() if k != "params"})

    def __repr__(self) -> str:
        options = ", ".join(f"{k}={v}" for k, v in self.param_groups[0].items() if k != "params")
        return f"{type(self).__name__}({options})"
