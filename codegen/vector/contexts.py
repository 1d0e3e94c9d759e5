"""Numba's two contexts, cut down to what kernel text says: loaded in 10 ms instead of 300.

Numba's own contexts load every NumPy function, string, list and set that it can compile, and all of
scipy.linalg, before they compile the first line. Kernel text has integers, floats, `range`, `min`
and `max` beside the names that `jit.py` registers. What needs more (a user's compiled function)
compiles in Numba's own contexts, which know the same names.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from numba.core import cpu as _cpu
from numba.core.typing import context as _context
from numba.core.typing import templates as _templates

from codegen.vector import jit as _jit  # noqa: F401  what the contexts are to know
from codegen.vector.numba_types import OPERATOR_TYPES

# Numba annotates little of this.
_Typing: Any = _context.Context
_Target: Any = _cpu.CPUContext
_Loader: Any = _templates.RegistryLoader


class KernelTyping(_Typing):  # type: ignore[misc]
    """Types of functions and operators, none of attributes and methods."""

    def load_additional_registries(self) -> None:
        """None beside Numba's builtins."""

    def install_registry(self, registry: Any) -> None:
        """What is new in a registry, without the rules that would load all of Numba's library."""
        if registry not in self._registries:
            self._registries[registry] = _Loader(registry)
        loader = self._registries[registry]
        for function in loader.new_registrations("functions"):
            self.insert_function(function(self))
        for value, type_ in loader.new_registrations("globals"):
            known = self._lookup_global(value)
            if known is not None:
                self._remove_global(value)
                type_ = known.augment(type_)
            self._insert_global(value, type_)


class KernelTarget(_Target):  # type: ignore[misc]
    """The IR of the same."""

    def load_additional_registries(self) -> None:
        """Numbers, ranges and tuples of arguments."""
        from numba.cpython import builtins, numbers, rangeobj  # noqa: F401

    def post_lowering(self, module: Any, library: Any) -> None:
        """No reference-counted memory, so Numba's runtime is not linked."""


@cache
def contexts() -> tuple[Any, Any]:
    """(typing context, target context), made when the first kernel is compiled."""
    typing = KernelTyping()
    target = KernelTarget(typing, "cpu")
    target.refresh()
    for key, type_ in OPERATOR_TYPES.items():
        known = typing._lookup_global(key)
        typing._remove_global(key)
        typing._insert_global(key, type_(known))
    return typing, target
