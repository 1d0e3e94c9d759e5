"""What all tests share: kernel cache, count of compiled kernels, golden texts, fresh processes.

Knows pytest and Hypothesis. Of the project it knows `codegen.kernels.statistics()`, and
`tracer.config.CONFIG.compile`.
"""

from __future__ import annotations

import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import hypothesis
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"

# The walk of the table shares kernels between samples. More than this many means that it no longer
# does, and that the suite's time grows with every sample.
KERNEL_LIMIT = 1500

NOTES = pytest.StashKey[list[str]]()  # lines that tests want printed
BY_FILE = pytest.StashKey[Counter[str]]()  # kernels compiled by the tests of each file

# Hypothesis: the same examples in every ordinary run, so that a red run is red again; `make fuzz`
# goes looking, for about a quarter of an hour on two cores unless EXAMPLES says otherwise.
hypothesis.settings.register_profile(
    "test", derandomize=True, deadline=None, max_examples=50, database=None
)
hypothesis.settings.register_profile(
    "fuzz", deadline=None, max_examples=int(os.environ.get("FUZZ_EXAMPLES", "2000"))
)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))
GOES_LOOKING = os.environ.get("HYPOTHESIS_PROFILE") == "fuzz"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fresh-kernels",
        action="store_true",
        help="start from an empty kernel cache, so that the count of kernels is of this run",
    )
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="rewrite the golden texts under tests/golden instead of comparing with them",
    )


# ---- one kernel cache for all processes of a run -------------------------------------------------


def pytest_configure(config: pytest.Config) -> None:
    """Choose the cache folder before any worker starts: workers and their children inherit it."""
    if is_worker(config):
        return
    os.environ.setdefault("FUZZ_SEED", str(random.randrange(1_000_000)))
    if config.getoption("--fresh-kernels"):
        folder = tempfile.mkdtemp(prefix="tracer-kernels-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["TRACER_CACHE_DIR"] = folder
    elif "TRACER_CACHE_DIR" not in os.environ:
        # Not the user's own cache: a test run neither fills it nor is helped by it.
        os.environ["TRACER_CACHE_DIR"] = str(ROOT / ".pytest_cache" / "kernels")
    config.pluginmanager.register(KernelCount(), "kernel-count")


def is_worker(config: pytest.Config) -> bool:
    """Whether this process was started by pytest-xdist to run a share of the tests."""
    return hasattr(config, "workerinput")


# ---- how many kernels were compiled --------------------------------------------------------------


def kernels_compiled() -> int:
    """Kernels that this process compiled, 0 where no test has loaded the compiler."""
    kernels = sys.modules.get("codegen.toolchain.kernel_store")
    return kernels.statistics().compiled if kernels else 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Count the kernels that each file's tests compile."""
    before = kernels_compiled()
    result = yield
    item.config.stash.setdefault(BY_FILE, Counter())[item.path.name] += kernels_compiled() - before
    return result


class KernelCount:
    """Sums the kernels that a run's processes compiled, prints it, fails the run over the limit.

    Prints the notes of all processes too.
    """

    def __init__(self) -> None:
        self.compiled = 0
        self.by_file: Counter[str] = Counter()
        self.notes: list[str] = []

    @pytest.hookimpl(optionalhook=True)  # pytest-xdist's
    def pytest_testnodedown(self, node: object) -> None:
        # Filled by pytest_sessionfinish below. A worker that died left none; its tests have failed.
        output = getattr(node, "workeroutput", {})
        self.compiled += output.get("kernels_compiled", 0)
        self.by_file.update(output.get("by_file", {}))
        self.notes += output.get("notes", [])

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.compiled += kernels_compiled()
        self.by_file.update(session.config.stash.get(BY_FILE, {}))
        over = self.compiled > KERNEL_LIMIT and not GOES_LOOKING
        if over and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for note in [*self.notes, *terminalreporter.config.stash.get(NOTES, [])]:
            terminalreporter.write_line(note)
        fresh = terminalreporter.config.getoption("--fresh-kernels")
        start = "from an empty cache" if fresh else "the others were cached"
        limit = "" if GOES_LOOKING else f"; at most {KERNEL_LIMIT}"
        line = f"kernels compiled: {self.compiled} ({start}{limit})"
        if self.compiled > KERNEL_LIMIT and not GOES_LOOKING:
            terminalreporter.write_line(f"FAILED {line}", red=True)
        else:
            terminalreporter.write_line(line)
        most = [f"{name} {count}" for name, count in self.by_file.most_common(10) if count]
        if fresh and len(most) > 1:
            terminalreporter.write_line(f"most by {', '.join(most)}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if is_worker(session.config):
        session.config.workeroutput["kernels_compiled"] = kernels_compiled()
        session.config.workeroutput["by_file"] = dict(session.config.stash.get(BY_FILE, {}))
        session.config.workeroutput["notes"] = session.config.stash.get(NOTES, [])


# The files that take longest, in that order. Two processes each begin with half of them; near the end there
# are only short ones left, so both are done at the same time.
SLOWEST = (
    "test_random_programs.py",
    "test_same_bits.py",
    "test_compiled_table.py",
    "test_chains.py",
    "test_paths.py",
    "test_custom_operators.py",
    "test_onnx_table.py",
    "test_vector.py",
)


def slowest_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests, each half beginning with slow files: `--dist worksteal` gives each of two processes a half.

    Files stay together, whose tests share kernels.
    """
    slow: tuple[list[pytest.Item], list[pytest.Item]] = ([], [])
    for number, name in enumerate(SLOWEST):
        slow[number % 2].extend(item for item in items if item.path.name == name)
    others = [item for item in items if item.path.name not in SLOWEST]
    cut = min(len(others), max(0, len(items) // 2 - len(slow[0])))
    return [*slow[0], *others[:cut], *slow[1], *others[cut:]]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Slowest first. With --update-golden, only the tests that compare with a golden text."""
    items[:] = slowest_first(items)
    if config.getoption("--update-golden"):
        uses = [item for item in items if "golden" in getattr(item, "fixturenames", ())]
        others = set(items).difference(uses)
        config.hook.pytest_deselected(items=list(others))
        items[:] = uses


# ---- fixtures ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def kernels_as_marked(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests marked `kernels("python")` compile nothing: the kernels of their programs run as Python.

    For tests whose subject is not generated code: recording, guards, paths, history, mutation,
    messages. In a file that is marked, `kernels("compiled")` says which of its tests show that what
    it is about holds for machine code too. All else is the same, so marks may come and go:
    specifications and texts of kernels, programs, argument blocks, the fast way in, and the bits.
    With TEST_KERNELS=compiled the marks count for nothing and all is compiled: `make fuzz` does so.
    """
    marker = request.node.get_closest_marker("kernels")
    everything = os.environ.get("TEST_KERNELS") == "compiled"
    if marker is None or marker.args == ("compiled",) or everything:
        yield
        return
    if marker.args != ("python",):
        pytest.fail(f"the mark says kernels{marker.args}: expected 'python' or 'compiled'")
    from tracer.core.config import CONFIG

    before = kernels_compiled()
    with pytest.MonkeyPatch.context() as patch:  # the test's own may be undone before its end
        patch.setattr(CONFIG, "compile", False)
        yield
    if kernels_compiled() != before:
        pytest.fail("the test is marked kernels('python'), and compiles kernels", pytrace=False)


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """`note(text)`: a line that is printed when the run is over, whether tests passed or not."""
    return request.config.stash.setdefault(NOTES, []).append


@pytest.fixture
def rng() -> np.random.Generator:
    """The same random numbers in every run."""
    return np.random.default_rng(0)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("step.ir", text)` compares a text with the copy under review in tests/golden."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no tests/golden/{name}: run `make golden` and review what it writes")
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            lines = difflib.unified_diff(
                expected.splitlines(), text.splitlines(), f"tests/golden/{name}", "now", lineterm=""
            )
            pytest.fail(
                "\n".join(lines) + "\nIf this is what you meant, run `make golden`.", pytrace=False
            )

    return compare


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`run_python(code)` runs code in a fresh process, the checkout first on its path.

    It runs in an empty folder with warnings as errors, and fails the test unless it ends well;
    with `check=False` a failure is returned like success.
    """

    def run(
        code: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        path: str | Path = ROOT,
        folder: Path = tmp_path,
        check: bool = True,
        timeout: float = 300,
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, *arguments],
            env={**os.environ, "PYTHONPATH": str(path), **(environment or {})},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        if check and done.returncode != 0:
            report = f"the process ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
            pytest.fail(report, pytrace=False)
        return done

    return run
