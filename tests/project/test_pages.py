"""What pages and docstrings name is there: files, modules, and in pages for users nothing but `tracer`."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
# Pages for people who work on the project: they may name what users do not import.
OF_THE_HOUSE = {
    "architecture.md",
    "CONTRIBUTING.md",
    "dependencies.md",
    "vector_math.md",
    "performance.md",
}
PACKAGES = ("tracer", "codegen", "ops")
FOLDERS = (*PACKAGES, "tests", "docs", "benchmarks", "examples", ".ci")
FILES = [
    p.relative_to(ROOT).as_posix() for f in FOLDERS for p in (ROOT / f, *(ROOT / f).rglob("*"))
]
SOURCES = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
# `folder/file.py`, `file.py` after others of its folder, `folder/`; `math_*.py` stands for several
NAMED = re.compile(r"(?<![\w/.`-])`?((?:[\w.*]+/)*[\w*]+\.py|(?:[\w.]+/)+)(?![\w/])")
MODULE = re.compile(r"`((?:tracer|codegen|ops)(?:\.\w+)+)(?:\([^`]*\))?`")
OF_OTHERS = {"tracer.cat"}  # a name of PyTorch's, for which there is a hint
IMPORT = re.compile(r"^\s*(?:>>> )?(?:from\s+([\w.]+)\s+import|import\s+([\w.]+))", re.MULTILINE)


def is_there(name: str) -> bool:
    """Whether a name is that of a file or folder of ours; one without a folder may lie anywhere."""
    pattern = re.escape(name.rstrip("/")).replace(r"\*", r"[^/]*")
    return any(re.fullmatch(rf"(?:.*/)?{pattern}", file) for file in FILES)


def without_code(page: str) -> str:
    """A page with its code blanked: what stands there is the user's."""
    fenced = re.compile(r"^```.*?^```|^ {4}.*?$", re.MULTILINE | re.DOTALL)
    return fenced.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), page)


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = without_code(page.read_text(encoding="utf-8"))
    first = {name.partition("/")[0] for name in FILES}
    missing = []
    for match in NAMED.finditer(text):
        name = match[1]
        whole = "/" in name.rstrip("/") or name.endswith("/")
        if whole and name.partition("/")[0] not in first | {"functions", "state", "nn"}:
            continue  # a folder of the user's, or of another project
        if name != "net.py" and not is_there(name):  # that one is a user's
            missing.append(f"{page.name}:{text.count(chr(10), 0, match.start()) + 1} {name}")
    assert missing == []


def test_a_file_that_is_not_there_is_found() -> None:
    assert is_there("tracer/random.py") and is_there("recorder.py") and is_there("codegen/vector/")
    assert is_there("codegen/vector/math_*.py")
    assert not is_there("tracer/recording.py") and not is_there("tracer/ran.py")
    named = [
        m[1]
        for m in NAMED.finditer("see `tracer/random.py`, `hooks.py` (`codegen/gemm/`) and x.py")
    ]
    assert named == ["tracer/random.py", "hooks.py", "codegen/gemm/", "x.py"]


def resolves(name: str) -> bool:
    """Whether a dotted name is a module of ours, or something in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        try:
            for part in parts[count:]:
                found = getattr(found, part)
        except AttributeError:
            return False
        return True
    return False


def docstrings() -> Iterator[tuple[str, str]]:
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                yield path.relative_to(ROOT).as_posix(), text


def test_every_module_that_a_docstring_names_exists() -> None:
    missing = {
        f"{file}: {name}"
        for file, text in docstrings()
        for name in MODULE.findall(text)
        if not resolves(name)
    }
    assert sorted(missing) == []


@pytest.mark.parametrize("page", PAGES, ids=[p.name for p in PAGES])
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    names = set(MODULE.findall(page.read_text(encoding="utf-8")))
    assert sorted(n for n in names - OF_OTHERS if not resolves(n)) == []


USERS = [p for p in PAGES if p.name not in OF_THE_HOUSE] + sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("page", USERS, ids=[p.name for p in USERS])
def test_pages_for_users_import_tracer_alone(page: Path) -> None:
    names = [a or b for a, b in IMPORT.findall(page.read_text(encoding="utf-8"))]
    inside = [name for name in names if name.split(".")[0] in ("ops", "codegen")]
    assert inside == []


def test_the_picture_of_the_rooms_shows_the_contracts() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]["contracts"]
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    picture = page.partition("```text\n")[2].partition("```")[0]
    for package in ("tracer", "codegen"):
        (layers,) = (c["layers"] for c in contracts if c.get("containers") == [package])
        rooms = [
            [room for room in layer.split(" | ") if (ROOT / package / room).is_dir()]
            for layer in layers
        ]
        shown = picture.partition(f"{package}  ")[2].partition("\n\n")[2].partition("\n\n")[0]
        lines = [line.split() for line in shown.splitlines()]
        assert [
            line[: len(room)] for line, room in zip(lines, filter(None, rooms), strict=True)
        ] == [r for r in rooms if r]
    (inside,) = (c["layers"] for c in contracts if c.get("containers") == ["tracer.tracing"])
    assert f"tracing:  {' > '.join(inside)}" in picture


def documentation(path: Path) -> str:
    """A file's docstring on one line."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return " ".join((ast.get_docstring(tree) or "").split())


@pytest.mark.parametrize("package", PACKAGES)
def test_every_room_says_what_it_must_not_know(package: str) -> None:
    silent = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / package).rglob("__init__.py")
        if path.parent.name not in ("tracer", "modules", "methods")
        and "ust not know" not in documentation(path)
    ]
    assert silent == []
