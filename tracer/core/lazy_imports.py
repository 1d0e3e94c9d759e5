"""What a package shows: its public names, and those that are imported when they are first used (PEP 562).

So `import tracer` stays quick, and `dir` lists nothing that is not for users.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any


def lazily(
    package: str,
    names: Mapping[str, str],
    hint: Callable[[str], str] = lambda name: "",
    modules: Sequence[str] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package. `names`: the module that each late name is in, or is.

    `hint`: what to say of a name that is not there. `modules`: which of the modules that are imported by now are for users.
    To be called last, and hidden from type checkers, which would take any name for one of the package. `__all__` is what the
    package has by then, and what is no module of `names`. A submodule's own name must not be that of something in it: importing
    the submodule binds it.
    """
    present = {
        name
        for name, value in vars(sys.modules[package]).items()
        if name in modules
        or not (name.startswith("_") or name == "annotations" or isinstance(value, ModuleType))
    }

    def found(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint(name)}")
        module = importlib.import_module(names[name])
        value = module if _is_module(name) else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    def listed() -> list[str]:
        special = (name for name in vars(sys.modules[package]) if name.startswith("__"))
        return sorted({*present, *names, *special})

    def _is_module(name: str) -> bool:
        return names[name] == f"{package}.{name}"

    return found, listed, sorted({*present, *(name for name in names if not _is_module(name))})
