"""Modules that hold modules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from tracer.nn.module import Module


class Sequential(Module):
    """Modules applied one after the other. Takes modules, or one OrderedDict of names and modules."""

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], OrderedDict | dict):
            named = list(modules[0].items())
        else:
            named = [(str(k), m) for k, m in enumerate(modules)]
        for name, module in named:
            if not isinstance(module, Module):
                raise TypeError(f"Sequential takes modules, got {type(module).__name__}")
            self.add_module(name, module)

    def forward(self, x: Any) -> Any:
        """Apply the modules in order."""
        for module in self._modules.values():
            x = module(x)  # type: ignore[misc]
        return x

    def __getitem__(self, index: int | slice) -> Any:
        names = list(self._modules)
        if isinstance(index, slice):
            return Sequential(OrderedDict((n, self._modules[n]) for n in names[index]))
        return self._modules[names[index]]

    def __setitem__(self, index: int, module: Module) -> None:
        self._modules[list(self._modules)[index]] = module

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def append(self, module: Module) -> Sequential:
        """Add a module at the end; returns self."""
        self.add_module(str(len(self)), module)
        return self


class ModuleList(Module):
    """A list of modules."""

    def __init__(self, modules: Any = ()) -> None:
        super().__init__()
        for k, module in enumerate(modules):
            self.add_module(str(k), module)

    def __getitem__(self, index: int) -> Any:
        return list(self._modules.values())[index]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def append(self, module: Module) -> ModuleList:
        """Add a module at the end; returns self."""
        self.add_module(str(len(self)), module)
        return self
