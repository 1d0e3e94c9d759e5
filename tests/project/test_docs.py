"""The code of pages in docs/ runs and prints what they say.

A page's ```python blocks run one after the other in one namespace. A block with `>>>` prompts is a
session, whose output is compared (`...` stands for anything, exceptions as doctest has them); a block
without is plain code. Blocks marked ```text or ```pycon-no-run are not run.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gradient_edges

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [DOCS / name for name in ("numerics.md", "autograd.md", "tracing.md")]
ABOVE_KERNELS = {
    "autograd.md"
}  # many small programs whose gradients, not whose code, the page is about
BLOCK = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
NOT_RUN = {"text", "pycon-no-run"}


def blocks(page: str) -> list[tuple[int, str, str]]:
    """(first line, language, code) of each fenced block."""
    return [(page.count("\n", 0, m.start(2)), m[1], m[2]) for m in BLOCK.finditer(page)]


def run_page(text: str, name: str) -> int:
    """Run a page's blocks; how many there were. Raises what a block raises, or an `AssertionError`."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    count = 0
    for line, language, code in blocks(text):
        if language != "python":
            assert language in NOT_RUN, f"{name}:{line}: what is to be done with {language!r}?"
            continue
        count += 1
        if ">>> " in code:
            parsed = doctest.DocTestParser().get_doctest(code, namespace, name, name, line)
            said: list[str] = []
            runner.run(parsed, out=said.append, clear_globs=False)
            assert not said, "".join(said)
            namespace = parsed.globs
        else:
            exec(compile("\n" * line + code, name, "exec"), namespace)
    return count


CASES = [
    pytest.param(p, marks=pytest.mark.kernels("python") if p.name in ABOVE_KERNELS else [])
    for p in PAGES
]


@pytest.mark.parametrize("page", CASES, ids=[p.name for p in PAGES])
def test_the_code_on_the_page_runs(page: Path) -> None:
    assert run_page(page.read_text(encoding="utf-8"), page.name) > 3


def test_a_page_that_is_wrong_is_found() -> None:
    good = "```python\nx = 3\n```\nthen\n```python\n>>> x + 1\n4\n\n```\n```text\nx +\n```\n"
    assert run_page(good, "page") == 2
    for bad in (good.replace("4", "5"), good.replace("x = 3", "y = 3"), good.replace("text", "c")):
        with pytest.raises((AssertionError, NameError)):
            run_page(bad, "page")


def test_the_page_shows_the_gradients_that_we_compute() -> None:
    text = (DOCS / "numerics.md").read_text(encoding="utf-8")
    run = gradient_edges.ours()
    for what, function, x in gradient_edges.ROWS:
        assert f"| {what} | {gradient_edges.shown(run(function, x))} |" in text
