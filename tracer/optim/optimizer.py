"""Optimisers: parameter groups, state made at construction, one step as operations on Tensors.

A step is the same code eager and traced. Options that are floats are read as values, so that a new
learning rate is no new program; parameters and state are written in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from ops.errors import ArgumentError, DTypeError
from ops.types import is_floating, short
from tracer.core.source_lines import located
from tracer.functions.creation import cast, zeros_like
from tracer.functions.public import public
from tracer.functions.state_values import Array, assign, fitted, write
from tracer.optim.options import Options, plain
from tracer.tensors.grad_mode import enable_grad, no_grad
from tracer.tensors.modes import outside_traces
from tracer.tensors.tensor import Tensor


class Optimizer:
    """Base class of optimisers.

    `params`: Tensors, or dicts with "params" and the options of a group of their own.

    `param_groups` is a list of dicts whose options may be changed at any time; a compiled step
    heeds them. `state` holds for each parameter a dict of Tensors; it is kept in float32 for
    parameters of half types, whose update is computed in float32 and rounded once.

    Subclasses name in `slots` the Tensors like the parameter that they keep, say in `_needed`
    which of them a group's options need, and define `_update`.

    >>> weight = tracer.nn.Parameter([1.0, 2.0])
    >>> optimizer = tracer.optim.SGD([{"params": [weight], "lr": 0.5}])
    >>> isinstance(optimizer, tracer.optim.Optimizer), optimizer.param_groups[0]["lr"]
    (True, 0.5)
    """

    slots: tuple[str, ...] = ()
    counts = False  # whether the state has "step", the number of the parameter's updates

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Mapping[str, Any]],
        defaults: Mapping[str, Any],
    ) -> None:
        outside_traces(f"{type(self).__name__} is made")
        self.defaults = dict(defaults)
        self.param_groups: list[Options] = []
        self.state: dict[Tensor, dict[str, Tensor]] = {}
        self._states: list[dict[str, Tensor]] = []  # the same in order, where access paths lead
        if isinstance(params, Tensor | Mapping) or not isinstance(params, Iterable):
            raise located(
                ArgumentError(
                    f"{type(self).__name__} takes an iterable of Tensors or of dicts, "
                    f"got {type(params).__name__}; put it into a list"
                )
            )
        given = list(params)
        if not given:
            raise located(ArgumentError(f"{type(self).__name__} was given no parameters"))
        whole = all(isinstance(g, Mapping) for g in given)
        for group in given if whole else [{"params": given}]:
            self.add_param_group(group)  # type: ignore[arg-type]

    # ---- groups
    def add_param_group(self, param_group: Mapping[str, Any]) -> None:
        """Add a group: a dict with "params" and options that differ from the defaults.

        Raises `ArgumentError` for unknown options, for what is no parameter, and for one that
        another group has.
        """
        outside_traces("a parameter group is added")
        name = type(self).__name__
        unknown = [k for k in param_group if k not in self.defaults and k != "params"]
        if unknown or "params" not in param_group:
            what = f"has no option {unknown[0]!r}" if unknown else 'needs "params" in a group'
            raise located(ArgumentError(f"{name} {what}; options: {', '.join(self.defaults)}"))
        params = param_group["params"]
        params = [params] if isinstance(params, Tensor) else list(params)
        seen: set[int] = set()
        for p in params:
            self._check_parameter(p)
            if p in self.state or id(p) in seen:
                raise located(ArgumentError(f"{name}: the parameter {short(p.type)} comes twice"))
            seen.add(id(p))
        group = Options({"params": params, **plain(self.defaults)})
        group.update({k: v for k, v in param_group.items() if k != "params"})
        self._check_options(group)
        self.param_groups.append(group)
        for p in params:
            self.state[p] = {name: self._zeros(p, name) for name in self._names(group)}
            self._states.append(self.state[p])

    def _check_parameter(self, p: Any) -> None:
        name = type(self).__name__
        if not isinstance(p, Tensor):
            hint = "; give it model.parameters()" if isinstance(p, tuple | str) else ""
            raise located(
                ArgumentError(f"{name}: parameters are Tensors, got {type(p).__name__}{hint}")
            )
        if not is_floating(p.type.dtype) or not p.is_leaf:
            what = short(p.type) + ("" if p.is_leaf else ", a result of other Tensors")
            raise located(ArgumentError(f"{name}: parameters are floating leaves, got {what}"))

    def _check_options(self, options: Mapping[str, Any]) -> None:
        """Raise `ArgumentError` for options out of range."""

    # ---- state
    def _needed(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """Which of `slots` a group's options need."""
        return self.slots

    def _names(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """What a parameter's state holds at least."""
        return (*(("step",) if self.counts else ()), *self._needed(options))

    def _zeros(self, p: Tensor, name: str) -> Tensor:
        """In memory, also while a function is traced: state that the trace then finds there."""
        step = name == "step" and self.counts
        shape, dtype = ((), "float32") if step else (p.type.shape, _state_dtype(p))
        return Tensor.of_array(np.zeros(shape, dtype))

    def _slot(self, p: Tensor, name: str) -> Tensor:
        """A Tensor of p's state; made now where an option that needs it has been set since."""
        state = self.state[p]
        if name not in state:
            state[name] = self._zeros(p, name)
        return state[name]

    # ---- one step
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear `.grad` of all parameters, or fill what is there with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if set_to_none:
                    p.grad = None
                elif p.grad is not None:
                    p.grad = zeros_like(p.grad)

    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:
        """Update every parameter that has a gradient.

        `closure`: evaluated first, with gradients enabled; its result is returned.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    grad = p.grad
                    if grad is None:
                        continue
                    self._check_state(p)
                    wide = _state_dtype(p)
                    new = self._update(p, cast(p, wide), cast(grad, wide), group)
                    assign(p, cast(new, p.type.dtype))
        return loss

    def _check_state(self, p: Tensor) -> None:
        for name, t in self.state[p].items():
            if name in self.slots and (t.type.shape, t.type.dtype) != (
                p.type.shape,
                _state_dtype(p),
            ):
                raise located(
                    DTypeError(
                        f"a parameter is {short(p.type)} now, but {type(self).__name__} keeps "
                        f"{name} as {short(t.type)}: make the optimiser after the model is converted"
                    )
                )

    def _update(self, p: Tensor, value: Tensor, grad: Tensor, group: Options) -> Tensor:
        """The parameter's new value from its present one and its gradient, both of the state's type.

        Assigns the new state.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no _update")

    # ---- saving
    def state_dict(self) -> dict[str, Any]:
        """Options of the groups, and state by the parameters' numbers; Tensors share memory."""
        params = [p for g in self.param_groups for p in g["params"]]
        number = {p: k for k, p in enumerate(params)}
        groups = [
            {**plain(g), "params": [number[p] for p in g["params"]]} for g in self.param_groups
        ]
        state = {k: {n: t.detach() for n, t in self.state[p].items()} for p, k in number.items()}
        return {"state": state, "param_groups": groups}

    @public
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Copy options and state from a `state_dict`, all or nothing.

        Raises `ArgumentError`, `ShapeError` or `DTypeError` when they do not fit.
        """
        outside_traces("an optimiser's state is loaded")
        self._match(state_dict)()

    def _match(self, state_dict: Mapping[str, Any], copy: bool = True) -> Callable[[], None]:
        """What loads a state that was found to fit; nothing has changed yet."""
        name = type(self).__name__
        try:
            saved_groups = [dict(g) for g in state_dict["param_groups"]]
            saved = {int(k): dict(v) for k, v in state_dict["state"].items()}
            sizes = [len(g["params"]) for g in saved_groups]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ArgumentError(f"{name}: this is no state_dict of an optimiser") from None
        own_sizes = [len(g["params"]) for g in self.param_groups]
        if sizes != own_sizes:
            raise ArgumentError(
                f"{name} has groups of {own_sizes} parameters, the state has groups of {sizes}"
            )
        options = [self._options(g) for g in saved_groups]
        params = [(p, k) for k, g in enumerate(self.param_groups) for p in g["params"]]
        if not set(saved) <= set(range(len(params))):
            raise ArgumentError(f"{name}: the state names more than {len(params)} parameters")
        pairs: list[tuple[Tensor, Array]] = []
        new: list[tuple[Tensor, str, Tensor]] = []
        for number, (p, k) in enumerate(params):
            given, own = saved.get(number, {}), self.state[p]
            what = f"{name}: {{}} of parameter {number}"
            for slot in self._names(options[k]):
                if slot not in given:
                    raise ArgumentError(f"{what.format(slot)} is not in the state")
            for slot, value in given.items():
                if slot not in self.slots and not (self.counts and slot == "step"):
                    raise ArgumentError(f"{what.format(slot)} is in the state, but unknown here")
                target = own.get(slot)
                if target is None:
                    target = self._zeros(p, slot)
                    new.append((p, slot, target))
                pairs.append((target, fitted(what.format(slot), value, target, copy)))
            unused = own.keys() - given.keys()  # of options that are off in the state
            pairs += [(own[slot], np.zeros(own[slot].shape, own[slot].dtype)) for slot in unused]

        def commit() -> None:
            for p, slot, target in new:
                self.state[p][slot] = target
            write(pairs)
            for group, saved_options in zip(self.param_groups, options, strict=True):
                group.update(saved_options)

        return commit

    def _options(self, saved: Mapping[str, Any]) -> Options:
        """Options of a saved group, checked."""
        given = {k: v for k, v in saved.items() if k != "params"}
        if set(given) != set(self.defaults):
            raise ArgumentError(
                f"{type(self).__name__} has the options {', '.join(self.defaults)}; "
                f"the state has {', '.join(map(str, given)) or 'none'}"
            )
        options = Options(plain(self.defaults))
        options.update(given)
        self._check_options(options)
        return options

    def __repr__(self) -> str:
        groups = [
            ", ".join(f"{k}={v}" for k, v in g.items() if k != "params") for g in self.param_groups
        ]
        name = type(self).__name__
        if len(groups) == 1:
            return f"{name}({groups[0]})"
        return "\n".join([f"{name}(", *(f"  {k}: {g}" for k, g in enumerate(groups)), ")"])


def _state_dtype(p: Tensor) -> str:
    """The element type of state and arithmetic for a parameter."""
    return "float32" if p.type.dtype in ("float16", "bfloat16") else p.type.dtype
