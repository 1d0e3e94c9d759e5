"""The README's code runs as written, in order, and prints what the README says it prints."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")

# Code blocks, each with the text block that says what it prints, where the next block is one.
BLOCKS = re.findall(
    r"^```python\n(.*?)^```\n(?:[^`]*?^```text\n(.*?)^```\n)?", README, re.MULTILINE | re.DOTALL
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
MARK = "==== end of block ===="

# All blocks share their names, as in one session, but each is a file, so that lines can be named.
SESSION = f"""
import pathlib, sys
names = {{"__name__": "readme"}}
for number, block in enumerate(sys.argv[1:]):
    path = pathlib.Path("readme.py" if number == 0 else f"readme{{number}}.py")
    path.write_text(block)
    exec(compile(block, str(path.resolve()), "exec"), names)
    print({MARK!r})
"""


def test_the_blocks_are_found() -> None:
    assert len(BLOCKS) == README.count("```python") >= 2
    assert sum(bool(text) for _, text in BLOCKS) == README.count("```text") >= 2


@pytest.mark.slow
def test_the_code_runs_and_prints_what_is_shown(run_python, tmp_path: Path) -> None:
    done = run_python(SESSION, *(code for code, _ in BLOCKS))
    printed = done.stdout.split(f"{MARK}\n")[:-1]
    checker = doctest.OutputChecker()
    for (_, wanted), got in zip(BLOCKS, printed, strict=True):
        if wanted and not checker.check_output(wanted, got, FLAGS):
            pytest.fail(f"README.md shows\n\n{wanted}\nbut its code prints\n\n{got}", pytrace=False)

    import onnx

    for name in ("net.onnx", "train_step.onnx"):
        onnx.checker.check_model(tmp_path / name, full_check=True)


def test_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert targets, "the README links to the documentation"
    missing = [target for target in targets if "://" not in target and not (ROOT / target).exists()]
    assert missing == []
