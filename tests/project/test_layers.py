"""Who may import what: packages only downwards, other libraries only where they belong."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("ops", "codegen", "tracer")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# Every library that a package may import, anywhere in it. The narrower rules follow below.
ALLOWED = {
    "ops": {"ops", "numpy", "scipy", "ml_dtypes"},
    "codegen": {"ops", "codegen", "numpy", "ml_dtypes", "numba", "llvmlite"},
    "tracer": {
        "ops",
        "codegen",
        "tracer",
        "numpy",
        "scipy",
        "ml_dtypes",
        "optree",
        "onnx",
        "safetensors",
    },
}

# The one folder that may import a library, of those that the rest must not know.
ONLY_IN = {"numba": "codegen/", "llvmlite": "codegen/", "onnx": "tracer/onnx/"}

# Slow to import, and needed by some programs only.
LATE = ("numba", "onnx", "scipy.linalg", "matplotlib", "onnxruntime")


def source_files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and full name of every absolute import, wherever in the file it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.lineno, node.module or ""


def foreign_imports(package: str) -> list[tuple[str, int, str]]:
    """File, line and library of each import of something that is not in Python itself."""
    found = []
    for path in source_files(package):
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        for line, name in imports(tree):
            library = name.partition(".")[0]
            if library not in sys.stdlib_module_names:
                found.append((path.relative_to(ROOT).as_posix(), line, library))
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_imports_only_what_its_layer_may(package: str) -> None:
    wrong = [
        f"{file}:{line} imports {library}"
        for file, line, library in foreign_imports(package)
        if library not in ALLOWED[package]
    ]
    assert wrong == []


def test_some_libraries_are_known_to_one_folder_only() -> None:
    wrong = [
        f"{file}:{line} imports {library}, which only {ONLY_IN[library]} may"
        for package in PACKAGES
        for file, line, library in foreign_imports(package)
        if library in ONLY_IN and not file.startswith(ONLY_IN[library])
    ]
    assert wrong == []


def test_what_is_imported_is_declared_and_the_other_way_round() -> None:
    def names(requirements: list[str]) -> set[str]:
        return {re.match(r"[\w-]+", text)[0].lower().replace("-", "_") for text in requirements}

    core = names(PROJECT["dependencies"])
    used = {library for package in PACKAGES for _, _, library in foreign_imports(package)}
    assert used - set(PACKAGES) <= core
    page = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    unexplained = {name for name in core if f"`{name}`" not in page}
    assert unexplained == set(), "each dependency says in docs/dependencies.md what it is for"


def test_the_layers_contract_holds() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


def test_an_import_upwards_is_reported_with_file_and_line(tmp_path: Path) -> None:
    copy_packages(tmp_path)
    (tmp_path / "ops" / "upwards.py").write_text('"""A mistake."""\n\nimport tracer\n')
    done = lint_imports(tmp_path)
    assert done.returncode != 0
    assert "never upwards BROKEN" in done.stdout
    assert re.search(r"ops\.upwards -> tracer \(l\.3\)", done.stdout)


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the packages of a folder, not on those that are installed."""
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); sys.argv[0] = 'lint-imports'; "
    code += "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )


def copy_packages(to: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, to / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", to)


def test_importing_tracer_leaves_heavy_libraries_alone(run_python) -> None:
    code = f"import sys, tracer; print([name for name in {LATE!r} if name in sys.modules])"
    assert run_python(code).stdout.strip() == "[]"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_file_says_what_it_knows(package: str) -> None:
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in source_files(package)
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []
