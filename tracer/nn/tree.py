"""The tree of modules below one, with parameters and buffers by path.

Knows the three dicts in which a module registers its members, and nothing of what it computes. No
walk recurses, so that depth costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from ops.errors import ArgumentError
from tracer.core.source_lines import located
from tracer.tensors.parameter import Parameter
from tracer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from tracer.nn.module import Module


class ModuleTree:
    """The part of `Module` that finds what is below it."""

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _transient: set[str]  # names of buffers that are no part of the state

    def _itself(self) -> Module:
        return cast("Module", self)

    def named_modules(
        self, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """(path, module) of this and all modules below, parents first.

        A module that several names lead to is given once, or with `remove_duplicate=False` under
        each of them.
        """
        seen: set[int] = set()  # with duplicates: the modules on the way to the present one
        stack: list[tuple[str, Module | None, int]] = [(prefix, self._itself(), 0)]
        while stack:
            path, module, key = stack.pop()
            if module is None:
                seen.discard(key)
                continue
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield path, module
            if not remove_duplicate:
                stack.append(("", None, id(module)))
            stack += [
                (_join(path, name), child, 0)
                for name, child in reversed(module._modules.items())
                if child is not None
            ]

    def modules(self) -> Iterator[Module]:
        """This and all modules below, each once."""
        return (m for _, m in self.named_modules())

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of direct submodules."""
        return ((n, m) for n, m in self._modules.items() if m is not None)

    def children(self) -> Iterator[Module]:
        """Direct submodules."""
        return (m for _, m in self.named_children())

    def _named(
        self, groups: tuple[str, ...], prefix: str, recurse: bool, once: bool
    ) -> Iterator[tuple[str, Any, bool]]:
        """(path, member, whether it is persistent)."""
        seen: set[int] = set()
        walk = self.named_modules(prefix, once) if recurse else iter([(prefix, self._itself())])
        for path, module in walk:
            for group in groups:
                for name, member in module.__dict__[group].items():
                    if member is None or (once and id(member) in seen):
                        continue
                    seen.add(id(member))
                    yield _join(path, name), member, name not in module._transient

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(path, parameter), tied ones once unless told otherwise."""
        found = self._named(("_parameters",), prefix, recurse, remove_duplicate)
        return ((path, p) for path, p, _ in found)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, tied ones once."""
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(path, buffer), shared ones once unless told otherwise."""
        found = self._named(("_buffers",), prefix, recurse, remove_duplicate)
        return ((path, b) for path, b, _ in found)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """All buffers, shared ones once."""
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_submodule(self, path: str) -> Module:
        """The module at a path such as "features.0". Raises `ArgumentError` if there is none."""
        module = self._itself()
        for name in path.split(".") if path else ():
            child = module._modules.get(name)
            if child is None:
                known = ", ".join(module._modules) or "none"
                raise located(
                    ArgumentError(
                        f"no submodule {path!r}: {type(module).__name__} has no {name!r}, "
                        f"its submodules are {known}"
                    )
                )
            module = child
        return module


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
