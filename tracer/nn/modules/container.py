"""Modules that hold modules."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ops.errors import ArgumentError
from tracer.core.source_lines import located
from tracer.nn.module import Module


class _Numbered(Module):
    """Modules in order, each under a name, "0", "1" ... unless names were given."""

    def _add(self, name: str, module: Any) -> None:
        if not isinstance(module, Module):
            raise located(
                ArgumentError(f"{type(self).__name__} holds modules, got {type(module).__name__}")
            )
        self.add_module(name, module)

    def _name(self, index: Any) -> str:
        """The name at a position, counted from the end where it is negative."""
        number, names = operator.index(index), list(self._modules)
        if not -len(names) <= number < len(names):
            raise IndexError(
                f"{type(self).__name__} holds {len(names)} modules, there is none at {number}"
            )
        return names[number]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            names = list(self._modules)[index]
            return self._part([(n, self._modules[n]) for n in names])
        return self._modules[self._name(index)]

    def _part(self, members: list[tuple[str, Any]]) -> Any:
        """A module of the same kind that shares some of the modules."""
        raise NotImplementedError

    def __setitem__(self, index: int, module: Module) -> None:
        self._add(self._name(index), module)

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._modules)[index] if isinstance(index, slice) else [self._name(index)]
        for name in names:
            delattr(self, name)
        self._renumber()

    def _renumber(self) -> None:
        """Numbers without gaps, where all names are numbers."""
        if all(name.isdigit() for name in self._modules):
            modules = list(self._modules.values())
            self._modules.clear()
            self._modules.update({str(k): m for k, m in enumerate(modules)})

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def append(self, module: Module) -> Any:
        """Add a module at the end; returns self."""
        number = len(self)
        while str(number) in self._modules:
            number += 1
        self._add(str(number), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end; returns self."""
        for module in list(modules):
            self.append(module)
        return self


class Sequential(_Numbered):
    """Modules applied one after the other. Takes modules, or one dict of names and modules.

    Raises `ArgumentError` for what is no module.

    >>> model = tracer.nn.Sequential(tracer.nn.Linear(3, 4), tracer.nn.Tanh(), tracer.nn.Linear(4, 1))
    >>> model(tracer.zeros((2, 3))).shape, len(model)
    ((2, 1), 3)
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            members = list(args[0].items())
        else:
            members = [(str(k), m) for k, m in enumerate(args)]
        for name, module in members:
            self._add(name, module)

    def forward(self, x: Any) -> Any:
        """Apply the modules in order."""
        for module in self:
            x = module(x)
        return x

    def _part(self, members: list[tuple[str, Any]]) -> Any:
        return Sequential(dict(members))


class ModuleList(_Numbered):
    """A list of modules, which are registered. It has no forward: call the modules in it.

    Raises `ArgumentError` for what is no module.

    >>> layers = tracer.nn.ModuleList([tracer.nn.Linear(2, 2), tracer.nn.ReLU()])
    >>> len(layers), len(list(layers.parameters()))
    (2, 2)
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self.extend(modules)

    def _part(self, members: list[tuple[str, Any]]) -> Any:
        return ModuleList([m for _, m in members])

    def insert(self, index: int, module: Module) -> None:
        """Add a module before a position."""
        modules = list(self)
        modules.insert(index, module)
        self.append(module)
        self._modules.update({str(k): m for k, m in enumerate(modules)})


class ModuleDict(Module):
    """A dict of modules, which are registered. It has no forward: call the modules in it.

    Raises `ArgumentError` for what is no module.

    >>> layers = tracer.nn.ModuleDict({"first": tracer.nn.ReLU()})
    >>> layers["first"](tracer.tensor(-1.0))
    tensor(0.)
    """

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        self.update(modules or {})

    def update(self, modules: Mapping[str, Module]) -> None:
        """Add modules, or replace those of the same names."""
        for name, module in modules.items():
            self[name] = module

    def __getitem__(self, name: str) -> Any:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        if not isinstance(module, Module):
            raise located(ArgumentError(f"a ModuleDict holds modules, got {type(module).__name__}"))
        self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        if name not in self._modules:
            raise KeyError(name)
        delattr(self, name)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[Any]:
        """The modules."""
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        """(name, module) of each."""
        return self._modules.items()
