"""Wheel, editable install and bare checkout all work, and nothing foreign is taken for ours."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("ops", "codegen", "tracer")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is installed from, so that building leaves nothing behind in the checkout."""
    folder = tmp_path_factory.mktemp("source")
    for name in (*PACKAGES, "tests", "benchmarks", "examples"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--wheel-dir", str(folder), str(source))
    (path,) = folder.glob("*.whl")
    assert path.name.startswith("tracer_jit-") and path.name.endswith("-py3-none-any.whl")
    return zipfile.ZipFile(path)


def pip(*arguments: str) -> None:
    """Build or install our own distribution with the tools that are here; nothing is fetched."""
    command, *rest = arguments
    done = subprocess.run(
        [sys.executable, "-m", "pip", command, "--no-deps", "--no-build-isolation", "-q", *rest],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_wheel_holds_the_three_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    top = {name.partition("/")[0] for name in wheel.namelist()}
    (metadata,) = (name for name in top if name.endswith(".dist-info"))
    assert top - {metadata} == set(PACKAGES)


def test_the_wheel_holds_every_file_of_the_packages(wheel: zipfile.ZipFile) -> None:
    packed = set(wheel.namelist())
    files = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    hint = "a folder without __init__.py, or data that setuptools is not told of"
    assert files - packed == set(), hint
    assert {f"{package}/py.typed" for package in PACKAGES} <= packed


def test_the_wheel_carries_its_licence_and_requirements(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = wheel.read(name).decode()
    assert "License-Expression: MIT" in metadata
    assert "Requires-Python: >=3.11" in metadata
    assert any(name.endswith("/licenses/LICENSE") for name in wheel.namelist())
    needed = re.findall(r"^Requires-Dist: ([\w-]+)[^;\n]*$", metadata, re.MULTILINE)
    assert set(needed) == {
        "numpy",
        "scipy",
        "ml_dtypes",
        "optree",
        "onnx",
        "numba",
        "llvmlite",
        "safetensors",
    }


def test_an_editable_install_is_one_plain_path(source: Path, tmp_path: Path) -> None:
    """A plain path is what mypy, pyright and editors can follow; an import hook is not."""
    pip("install", "--editable", str(source), "--prefix", str(tmp_path))
    (path_file,) = tmp_path.rglob("*.pth")
    assert path_file.read_text().strip() == str(source)


def test_an_unpacked_wheel_runs(wheel: zipfile.ZipFile, tmp_path: Path, run_python) -> None:
    wheel.extractall(tmp_path / "site")
    assert imported_from(run_python, tmp_path / "site") == str(tmp_path / "site")


def test_a_bare_checkout_runs(source: Path, run_python) -> None:
    assert imported_from(run_python, source) == str(source)


def imported_from(run_python, path: Path) -> str:
    code = """
import pathlib, tracer, codegen, ops
(folder,) = {pathlib.Path(module.__file__).parent.parent for module in (tracer, codegen, ops)}
print(folder)
"""
    return run_python(code, path=path).stdout.strip()


@pytest.mark.parametrize("engine", ["ops", "codegen"])
def test_an_engine_of_another_project_is_refused(engine: str, tmp_path: Path, run_python) -> None:
    """Both names are common ones: a script's neighbour `ops.py` comes first on the path."""
    foreign = tmp_path / f"{engine}.py"
    foreign.write_text("answer = 42\n")
    done = run_python("import tracer", path=f"{tmp_path}:{ROOT}", check=False)
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: "), done.stderr
    assert str(foreign) in done.stderr and engine in last
