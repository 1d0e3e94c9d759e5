"""What packages show: names that users use, and nothing else."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import pytest

import tracer

# Modules that users reach by name; `from tracer import *` brings those that are imported with `tracer`.
MODULES = {
    "tracer": {
        "autograd",
        "checkpoint",
        "errors",
        "graph",
        "interpret",
        "ir",
        "nn",
        "onnx",
        "optim",
        "random",
    },
    "tracer.autograd": {"graph"},
    "tracer.ir": set(),
    "tracer.nn": {"functional", "init"},
    "tracer.onnx": set(),
    "tracer.optim": set(),
}
FILES = (
    "tracer.autograd.graph",
    "tracer.checkpoint",
    "tracer.interpret",
    "tracer.nn.functional",
    "tracer.nn.init",
    "tracer.random",
)
LEAKED = {"annotations", "Any", "Callable", "Sequence", "np", "math", "public"}


def star(name: str) -> set[str]:
    found: dict[str, Any] = {}
    exec(f"from {name} import *", found)
    return set(found) - {"__builtins__"}


@pytest.mark.parametrize("name", MODULES)
def test_dir_and_all_hold_what_users_use(name: str) -> None:
    package = importlib.import_module(name)
    shown = {n for n in dir(package) if not n.startswith("__")}
    assert shown == set(package.__all__) | MODULES[name]
    assert not shown & LEAKED
    for public in shown:
        value = getattr(package, public)
        assert isinstance(value, ModuleType) == (public in MODULES[name]), public


@pytest.mark.parametrize("name", [*MODULES, *FILES])
def test_a_star_imports_the_public_names(name: str) -> None:
    module = importlib.import_module(name)
    assert star(name) == set(module.__all__)
    assert len(set(module.__all__)) == len(module.__all__)
    assert not [n for n in module.__all__ if n.startswith("_")]
    assert not set(module.__all__) & LEAKED


def test_submodules_for_users_are_in_dir_though_imported_late() -> None:
    assert {"nn", "optim", "onnx"} <= set(dir(tracer)) - set(tracer.__all__)
    assert "dispatch" not in dir(tracer) and isinstance(tracer.dispatch, ModuleType)
