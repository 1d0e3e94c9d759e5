"""What instructions do, said of every version of Python that is there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tracing import bytecode_facts
from tests.tracing.bytecode_facts import BEGINNINGS, ONCE, PARTS, code_of, wrong
from tracer.tracing.state import bytecode

VERSIONS = ("3.11", "3.12", "3.13", "3.14")


def interpreter(version: str) -> str | None:
    """An interpreter of another version: on the path, or among those that pyenv has."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    name = f"python{version}"
    places = [*sorted(root.glob(f"versions/{version}.*/bin/{name}")), shutil.which(name)]
    for place in filter(None, places):
        done = subprocess.run([place, "--version"], capture_output=True, text=True, check=False)
        if done.returncode == 0:  # a shim without a version behind it is none
            return str(place)
    return None


def test_this_version() -> None:
    assert list(wrong(bytecode)) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_other_versions(version: str) -> None:
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        pytest.skip("the tests themselves run on it")
    found = interpreter(version)
    if found is None:
        pytest.skip(f"there is no Python {version} on this machine")
    command = [found, "-I", bytecode_facts.__file__, bytecode.__file__]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


class Broken:
    """A reading that takes no subscript for one, and finds no locals."""

    @staticmethod
    def operations(code: Any) -> Any:
        return tuple(x for x in bytecode.operations(code) if x[0] != "subscript")

    @staticmethod
    def assigned_once(code: Any) -> frozenset[str]:
        return frozenset()


def test_the_facts_notice_a_wrong_reading() -> None:
    found = list(wrong(Broken))
    assert 8 < len(found) < len(BEGINNINGS) + len(PARTS) + len(ONCE)


def test_code_is_read_once() -> None:
    code = code_of("def f(): return G")
    assert bytecode.operations(code) is bytecode.operations(code)
