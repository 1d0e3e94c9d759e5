"""Modules: parameters, buffers and submodules under attribute names, and a forward function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from ops.errors import ArgumentError, ShapeError
from ops.types import short
from tracer.modes import MODES
from tracer.nn.parameter import Parameter
from tracer.recording import assign
from tracer.tensor import Tensor

_Self = TypeVar("_Self", bound="Module")


class Module:
    """Base class of models and layers.

    Assigning a `Parameter`, a `Module` or (through `register_buffer`) a buffer to an attribute registers it under that name.
    Subclasses define `forward`.
    """

    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]

    def __init__(self) -> None:
        for group in ("_parameters", "_buffers", "_modules"):
            self.__dict__[group] = {}
        self.__dict__["_transient"] = set()
        self.__dict__["training"] = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; defined by subclasses."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward`; in a trace its nodes carry the module's path."""
        recorder = MODES.recorder
        if recorder is None:
            return self.forward(*args, **kwargs)
        recorder.modules[id(self)] = self
        before, parents = MODES.scope, MODES.modules
        name = self._name_below(parents[-1] if parents else None)
        kind = type(self).__name__
        MODES.scope = (*before, f"{kind}[{name}]" if name is not None else kind)
        MODES.modules = (*parents, self)
        try:
            return self.forward(*args, **kwargs)
        finally:
            MODES.scope, MODES.modules = before, parents

    def _name_below(self, parent: Module | None) -> str | None:
        if parent is not None:
            for name, child in parent._modules.items():
                if child is self:
                    return name
            for prefix, child in parent.named_modules():
                if child is self:
                    return prefix
        return None

    # ---- attributes
    def __setattr__(self, name: str, value: Any) -> None:
        groups = self.__dict__
        if "_parameters" not in groups:
            raise AttributeError(f"call super().__init__() in {type(self).__name__}.__init__ before setting {name}")
        for group in ("_parameters", "_buffers", "_modules"):
            if group != self._group_of(value) and name in groups[group] and not (value is None or group == "_buffers"):
                del groups[group][name]
        group = self._group_of(value)
        if group is not None:
            groups.pop(name, None)
            groups[group][name] = value
            return
        for group in ("_parameters", "_buffers", "_modules"):
            if name in groups[group]:
                if value is not None and not (group == "_buffers" and isinstance(value, Tensor)):
                    raise TypeError(f"{name} is registered; assign None or an object of its kind, got {type(value).__name__}")
                groups[group][name] = value
                return
        object.__setattr__(self, name, value)

    @staticmethod
    def _group_of(value: Any) -> str | None:
        return "_parameters" if isinstance(value, Parameter) else "_modules" if isinstance(value, Module) else None

    def __getattr__(self, name: str) -> Any:
        for group in ("_parameters", "_buffers", "_modules"):
            members = self.__dict__.get(group)
            if members is not None and name in members:
                return members[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        for group in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__[group]:
                del self.__dict__[group][name]
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._parameters, *self._buffers, *self._modules]

    def register_buffer(self, name: str, value: Tensor | None, persistent: bool = True) -> None:
        """Register a Tensor that is state but not trained. `persistent`: it is part of `state_dict`."""
        self._buffers[name] = value
        if not persistent:
            self.__dict__["_transient"].add(name)

    def register_parameter(self, name: str, value: Parameter | None) -> None:
        """Register a parameter, or None in its place."""
        self._parameters[name] = value

    def add_module(self, name: str, module: Module | None) -> None:
        """Register a submodule."""
        self._modules[name] = module

    register_module = add_module

    # ---- walking
    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """(path, module) of this and all modules below, each once."""
        seen: set[int] = set()
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            path, module = stack.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield path, module
            children = [
                (f"{path}.{name}" if path else name, child) for name, child in module._modules.items() if child is not None
            ]
            stack.extend(reversed(children))

    def modules(self) -> Iterator[Module]:
        """This and all modules below."""
        return (m for _, m in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of direct submodules."""
        return ((n, m) for n, m in self._modules.items() if m is not None)

    def children(self) -> Iterator[Module]:
        """Direct submodules."""
        return (m for _, m in self.named_children())

    def _named(self, group: str, once: bool) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        for path, module in self.named_modules():
            for name, member in getattr(module, group).items():
                if member is None or (once and id(member) in seen):
                    continue
                seen.add(id(member))
                yield (f"{path}.{name}" if path else name), member

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """(path, parameter), tied ones once."""
        return self._named("_parameters", True)

    def parameters(self) -> Iterator[Parameter]:
        """All parameters, tied ones once."""
        return (p for _, p in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """(path, buffer), shared ones once."""
        return self._named("_buffers", True)

    def buffers(self) -> Iterator[Tensor]:
        """All buffers."""
        return (b for _, b in self.named_buffers())

    # ---- modes
    def train(self: _Self, mode: bool = True) -> _Self:
        """Set `training` here and below."""
        for module in self.modules():
            module.__dict__["training"] = bool(mode)
        return self

    def eval(self: _Self) -> _Self:
        """The same as train(False)."""
        return self.train(False)

    def requires_grad_(self: _Self, requires_grad: bool = True) -> _Self:
        """Set `requires_grad` of all parameters: False freezes the module."""
        for p in self.parameters():
            p.requires_grad = requires_grad
        return self

    def zero_grad(self) -> None:
        """Clear `.grad` of all parameters."""
        for p in self.parameters():
            p.grad = None

    def apply(self: _Self, function: Callable[[Module], None]) -> _Self:
        """Call a function on every module, children first; returns self."""
        for module in reversed(list(self.modules())):
            function(module)
        return self

    def to(self: _Self, dtype: Any) -> _Self:
        """Convert floating parameters and buffers to another floating type."""
        from ops.types import dtype_name, is_floating
        from tracer.functions.creation import astype

        name = dtype_name(dtype)
        for module in self.modules():
            for group in (module._parameters, module._buffers):
                for member in group.values():
                    if member is not None and is_floating(member.type.dtype):
                        new = astype(member.detach(), name)
                        member._start_again(new)
        return self

    def float(self: _Self) -> _Self:
        """Convert to float32."""
        return self.to("float32")

    def double(self: _Self) -> _Self:
        """Convert to float64."""
        return self.to("float64")

    def half(self: _Self) -> _Self:
        """Convert to float16."""
        return self.to("float16")

    # ---- state
    def state_dict(self) -> dict[str, Tensor]:
        """Parameters and persistent buffers by path; they share memory with the module."""
        result: dict[str, Tensor] = {}
        for path, module in self.named_modules():
            for group in (module._parameters, module._buffers):
                for name, member in group.items():
                    if member is not None and name not in module.__dict__["_transient"]:
                        result[f"{path}.{name}" if path else name] = member.detach()
        return result

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True) -> None:
        """Copy values into parameters and buffers, all or nothing. Raises `ArgumentError` for missing or unexpected names,
        `ShapeError` for wrong shapes."""
        own: dict[str, Tensor] = {}
        for path, module in self.named_modules():
            for group in (module._parameters, module._buffers):
                for name, member in group.items():
                    if member is not None and name not in module.__dict__["_transient"]:
                        own[f"{path}.{name}" if path else name] = member
        missing = [n for n in own if n not in state]
        unexpected = [n for n in state if n not in own]
        if strict and (missing or unexpected):
            raise ArgumentError(
                f"the state does not fit {type(self).__name__}: missing {missing or 'nothing'}, unexpected {unexpected or 'nothing'}"
            )
        values: list[tuple[Tensor, Any]] = []
        for name, member in own.items():
            if name in state:
                value = np.asarray(state[name])
                if value.shape != member.shape:
                    raise ShapeError(f"{name} has {short(member.type)}, the state has shape {value.shape}")
                values.append((member, value))
        for member, value in values:
            assign(member, Tensor.of_array(value.astype(member.dtype)))

    def extra_repr(self) -> str:
        """What `repr` shows in the parentheses of a module without children."""
        return ""

    def __repr__(self) -> str:
        lines = []
        for name, child in self._modules.items():
            text = repr(child).replace("\n", "\n  ")
            lines.append(f"  ({name}): {text}")
        kind = type(self).__name__
        return f"{kind}(\n" + "\n".join(lines) + "\n)" if lines else f"{kind}({self.extra_repr()})"
