"""Names of a package that are imported when they are first used are names like others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tracer

LATE = {
    "tracer": ("load_checkpoint", "load_file", "save_checkpoint", "save_file"),
    "tracer.autograd": ("gradcheck", "gradgradcheck"),
    "tracer.ir": ("parse",),
}
PACKAGES = ("checkpoint", "interpret", "ir", "nn", "onnx", "optim")


@pytest.mark.parametrize("package", LATE)
def test_late_names_are_imported_by_a_star(package: str) -> None:
    found: dict[str, Any] = {}
    exec(f"from {package} import *", found)
    for name in LATE[package]:
        assert callable(found[name])
        assert name in dir(__import__(package, fromlist=["x"]))


def test_nothing_late_is_imported_at_once(run_python: Callable[..., Any]) -> None:
    """And packages are attributes without an import of their own."""
    code = """
import sys
import tracer
late = ("json", "numpy.random", "onnx", "numba", "tracer.ir.parser", "tracer.nn", "tracer.optim", "tracer.checkpoint")
assert not [name for name in late if name in sys.modules], sys.modules.keys() & set(late)
for name in sys.argv[1:]:
    assert getattr(tracer, name).__name__ == f"tracer.{name}" and name in dir(tracer)
"""
    run_python(code, *PACKAGES)


def test_a_name_that_is_not_there() -> None:
    for package in (tracer, tracer.ir, tracer.autograd):
        with pytest.raises(
            AttributeError, match=f"module '{package.__name__}' has no attribute 'prase'"
        ):
            _ = package.prase  # type: ignore[attr-defined]


def test_parameter_has_pytorchs_place_too() -> None:
    from tracer.nn.parameter import Parameter

    assert Parameter is tracer.nn.Parameter
