"""Modules: parameters, buffers and submodules under attribute names, and a forward function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, cast

import numpy as np

from ops.errors import ArgumentError, DTypeError, TraceError
from ops.types import dtype_name, is_floating, short
from tracer.core.source_lines import located
from tracer.functions import creation
from tracer.functions.public import public
from tracer.functions.state_values import Array, fitted, require_writable, write
from tracer.nn.hooks import HookedModule, call_with_hooks
from tracer.nn.tree import ModuleTree
from tracer.tensors.modes import MODES, outside_traces
from tracer.tensors.parameter import Parameter
from tracer.tensors.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
_Self = TypeVar("_Self", bound="Module")
_GROUPS = ("_parameters", "_buffers", "_modules")


class IncompatibleKeys(NamedTuple):
    """Names that `load_state_dict` did not find in the state, and names there that it has none of."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class _Forward(Protocol[P, R]):
    """What a call of a module takes and gives is what its `forward` takes and gives."""

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Defined by the module's class."""
        ...


class Module(ModuleTree, HookedModule):
    """Base class of models and layers.

    Assigning a `Parameter` or a `Module` to an attribute registers it under that name;
    `register_buffer` registers a Tensor that is state but not trained. Subclasses define `forward`.

    Assigning a Tensor to a registered buffer keeps its values, not their history. In a traced
    function the buffer has the new values when the program has run, and stays the same object.

    >>> class Scale(tracer.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = tracer.nn.Parameter(tracer.tensor(3.0))
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> model = Scale()
    >>> model(tracer.ones(2)), dict(model.named_parameters())
    (tensor([3., 3.], requires_grad=True), {'factor': Parameter containing:
    tensor(3., requires_grad=True)})
    """

    training: bool

    def __init__(self) -> None:
        for group in _GROUPS:
            self.__dict__[group] = {}
        self.__dict__["_transient"] = set()
        self.__dict__["training"] = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes; defined by subclasses."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    def __call__(self: _Forward[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `forward` between hooks; in a trace its nodes carry the module's path."""
        module: Any = self
        hooks = self.__dict__.get("_hooks")
        if not MODES.interpreter.module_begins(module):
            if hooks is None:
                return self.forward(*args, **kwargs)
            return cast(R, call_with_hooks(module, hooks, args, kwargs))
        before, parents = MODES.scope, MODES.modules
        name = module._name_below(parents[-1] if parents else None)
        kind = type(self).__name__
        MODES.scope = (*before, f"{kind}[{name}]" if name is not None else kind)
        MODES.modules = (*parents, module)
        try:
            if hooks is None:
                return self.forward(*args, **kwargs)
            return cast(R, call_with_hooks(module, hooks, args, kwargs))
        finally:
            MODES.scope, MODES.modules = before, parents

    def uncalled_children(self) -> list[Module]:
        """Modules below this one that nobody calls, as lists of modules."""
        return [c for c in self.children() if type(c).forward is Module.forward]

    def _name_below(self, parent: Module | None) -> str | None:
        """The path from a module to this one, None if there is none."""
        if parent is not None:
            for name, child in parent._modules.items():
                if child is self:
                    return name
            for path, child in parent.named_modules():
                if child is self:
                    return path
        return None

    # ---- attributes
    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        kind = _group_of(value)
        if "_modules" not in own:
            if kind is not None:
                raise AttributeError(
                    f"call super().__init__() in {type(self).__name__}.__init__ before setting "
                    f"{name}"
                )
            object.__setattr__(self, name, value)
            return
        held = next((g for g in _GROUPS if name in own[g]), None)
        if held == "_buffers" and isinstance(value, Tensor | np.ndarray) and kind is None:
            self._assign_buffer(name, value)
        elif kind is not None or (held is not None and value is None):
            self._register_member(kind or held or "", name, value)
        elif held is not None:
            raise located(
                ArgumentError(
                    f"{type(self).__name__}.{name} is a registered {_SINGULAR[held]}: assign "
                    f"{_EXPECTED[held]} or None, got {type(value).__name__}"
                )
            )
        else:
            MODES.interpreter.set_attribute_begins(own, name)
            object.__setattr__(self, name, value)

    def _register_member(self, kind: str, name: str, value: Any) -> None:
        """Put a member into its group, out of all others and out of the plain attributes."""
        own = self.__dict__
        for group in _GROUPS:
            old = own[group].get(name)
            if old is not None and old is not value:
                outside_traces(f"{type(self).__name__}.{name} is replaced")
        for group in _GROUPS:
            if group != kind:
                own[group].pop(name, None)
        own.pop(name, None)
        if kind != "_buffers":
            self._transient.discard(name)
        own[kind][name] = value

    def _assign_buffer(self, name: str, value: Tensor | Array) -> None:
        new = value.detach() if isinstance(value, Tensor) else creation.tensor(value)
        new._requires_grad = False  # what it was computed from does not make the module volatile
        old = self._buffers[name]
        if not MODES.interpreter.rebind(self._buffers, name, new):
            raise located(
                TraceError(
                    f"the buffer {type(self).__name__}.{name} is "
                    f"{'None' if old is None else short(old.type)} and is assigned "
                    f"{short(new.type)} while a function is traced; the type of state must stay "
                    "the same: register the buffer with this type, or cast the value"
                )
            )

    def __getattr__(self, name: str) -> Any:
        for group in _GROUPS:
            members = self.__dict__.get(group)
            if members is not None and name in members:
                return members[name]
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        for group in _GROUPS:
            if name in self.__dict__[group]:
                outside_traces(f"{type(self).__name__}.{name} is deleted")
                del self.__dict__[group][name]
                self._transient.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._parameters, *self._buffers, *self._modules]

    # ---- registering
    def register_buffer(
        self, name: str, tensor: Tensor | Array | None, persistent: bool = True
    ) -> None:
        """Register a Tensor that is state but not trained; arrays are copied.

        `persistent`: it is part of `state_dict`.
        """
        self._check_member(name, "_buffers", tensor)
        if isinstance(tensor, np.ndarray):
            tensor = creation.tensor(tensor)
        self._register_member("_buffers", name, tensor)
        if persistent:
            self._transient.discard(name)
        else:
            self._transient.add(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Register a parameter, or None in its place."""
        self._check_member(name, "_parameters", param)
        self._register_member("_parameters", name, param)

    def add_module(self, name: str, module: Module | None) -> None:
        """Register a submodule, or None in its place."""
        self._check_member(name, "_modules", module)
        self._register_member("_modules", name, module)

    register_module = add_module

    def _check_member(self, name: Any, group: str, value: Any) -> None:
        if "_modules" not in self.__dict__:
            raise AttributeError(
                f"call super().__init__() in {type(self).__name__}.__init__ before registering "
                f"{name}"
            )
        if not isinstance(name, str) or not name or "." in name:
            raise located(ArgumentError(f"a name is a string without dots, got {name!r}"))
        if name not in self.__dict__[group] and hasattr(self, name):
            raise located(
                ArgumentError(f"{type(self).__name__} has an attribute {name} already; rename one")
            )
        kinds, said = _ACCEPTED[group]
        if value is not None and not isinstance(value, kinds):
            raise located(
                ArgumentError(
                    f"the {_SINGULAR[group]} {name} must be {said} or None, "
                    f"got {type(value).__name__}"
                )
            )

    # ---- modes
    def train(self: _Self, mode: bool = True) -> _Self:
        """Set `training` here and below."""
        for module in self.modules():
            MODES.interpreter.set_attribute_begins(module.__dict__, "training")
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

    def apply(self: _Self, fn: Callable[[Module], None]) -> _Self:
        """Call a function on every module, children before their parents; returns self."""
        order: list[Module] = []
        seen: set[int] = set()
        stack: list[tuple[Module, bool]] = [(self, False)]
        while stack:
            module, done = stack.pop()
            if done:
                order.append(module)
            elif id(module) not in seen:
                seen.add(id(module))
                stack.append((module, True))
                stack += [(child, False) for child in reversed(list(module.children()))]
        for module in order:
            fn(module)
        return self

    def to(self: _Self, dtype: Any) -> _Self:
        """Convert floating parameters and buffers to another floating type, in place.

        Gradients are cleared. Optimisers hold state of the old type: make them afterwards.
        """
        outside_traces(f"{type(self).__name__} is converted")
        name = dtype_name(dtype)
        if not is_floating(name):
            raise located(DTypeError(f"a module is converted to a floating type, not to {name}"))
        for _, member, _ in self._named(("_parameters", "_buffers"), "", True, True):
            if is_floating(member.type.dtype) and member.type.dtype != name:
                member._start_again(creation.astype(member.detach(), name))
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

    def bfloat16(self: _Self) -> _Self:
        """Convert to bfloat16."""
        return self.to("bfloat16")

    # ---- state
    def _state(self) -> dict[str, Tensor]:
        """Parameters and persistent buffers under every path that leads to them."""
        found = self._named(("_parameters", "_buffers"), "", True, False)
        return {path: member for path, member, persistent in found if persistent}

    def state_dict(self) -> dict[str, Tensor]:
        """Parameters and persistent buffers by path; they share memory with the module."""
        return {path: member.detach() for path, member in self._state().items()}

    @public
    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True
    ) -> IncompatibleKeys:
        """Copy values into parameters and buffers, all or nothing; returns the names that differ.

        Raises `ArgumentError` for missing or unexpected names unless `strict` is False,
        `ShapeError` and `DTypeError` for values that do not fit.
        """
        outside_traces("a state is loaded")
        keys, pairs = self._match(state_dict, strict)
        write(pairs)
        return keys

    def _match(
        self, state: Mapping[str, Any], strict: bool = True, copy: bool = True
    ) -> tuple[IncompatibleKeys, list[tuple[Tensor, Array]]]:
        """The values to write, checked; nothing has changed yet."""
        if not isinstance(state, Mapping):
            raise ArgumentError(f"a state is a mapping of names, got {type(state).__name__}")
        own = self._state()
        keys = IncompatibleKeys(
            [n for n in own if n not in state], [str(n) for n in state if n not in own]
        )
        kind = type(self).__name__
        if strict and (keys.missing_keys or keys.unexpected_keys):
            raise ArgumentError(
                f"the state does not fit {kind}: missing {_listed(keys.missing_keys)}; "
                f"unexpected {_listed(keys.unexpected_keys)}"
            )
        pairs = []
        for name, member in own.items():
            if name in state:
                require_writable(f"{kind}.{name}", member)
                pairs.append((member, fitted(f"{kind}.{name}", state[name], member, copy)))
        return keys, pairs

    # ---- printing
    def extra_repr(self) -> str:
        """What `repr` shows of the module itself."""
        return ""

    def __repr__(self) -> str:
        lines = [self.extra_repr()] if self._modules and self.extra_repr() else []
        lines += [f"({name}): {child!r}" for name, child in self._modules.items()]
        kind = type(self).__name__
        if not lines:
            return f"{kind}({self.extra_repr()})"
        text = "\n".join(lines).replace("\n", "\n  ")
        return f"{kind}(\n  {text}\n)"


_SINGULAR = {"_parameters": "parameter", "_buffers": "buffer", "_modules": "submodule"}
_ACCEPTED: dict[str, tuple[Any, str]] = {
    "_parameters": (Parameter, "an nn.Parameter"),
    "_buffers": (Tensor | np.ndarray, "a Tensor, an array"),
    "_modules": (Module, "an nn.Module"),
}
_EXPECTED = {
    "_parameters": "an nn.Parameter (or write into it, under tracer.no_grad(), with copy_)",
    "_buffers": "a Tensor",
    "_modules": "an nn.Module",
}


def _group_of(value: Any) -> str | None:
    """The group that an object is registered in by assigning it."""
    if isinstance(value, Parameter):
        return "_parameters"
    return "_modules" if isinstance(value, Module) else None


def _listed(names: list[str]) -> str:
    """Names for an error message, a few of many."""
    shown = ", ".join(names[:8]) or "nothing"
    return f"{shown} and {len(names) - 8} more" if len(names) > 8 else shown
