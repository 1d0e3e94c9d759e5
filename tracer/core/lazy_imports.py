"""Names of a package that are imported when they are first used, so that `import tracer` stays quick (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazily(
    package: str, names: Mapping[str, str], hint: Callable[[str], str] = lambda name: ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package: name -> the module that has it, or is it.

    `hint`: what to say of a name that is not there. To be called last, and hidden from type checkers, which would take any name
    for one of the package. `__all__` is what the package has by then, and what is no module of `names`. A submodule's own name
    must not be that of something in it: importing the submodule binds it.
    """
    present = [name for name in vars(sys.modules[package]) if not name.startswith("_")]

    def found(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint(name)}")
        module = importlib.import_module(names[name])
        value = module if _is_module(name) else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        return sorted({*vars(sys.modules[package]), *names})

    def _is_module(name: str) -> bool:
        return names[name] == f"{package}.{name}"

    return found, listed, sorted({*present, *(name for name in names if not _is_module(name))})
