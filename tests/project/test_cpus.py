"""Running as on a lesser CPU: that it is so, and that nothing is run where it cannot be."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import cpus

CODE = """
import numpy as np
from codegen.cpu_features import cpu, register_bytes
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
import tracer
x = np.linspace(-1, 1, 100, dtype="f4")
tracer.trace(tracer.exp)(x)
from codegen.cpu_features import kernels_have
print(register_bytes(), kernels_have("fma"), kernels_have("avx512f"))
print(*[name for name in __cpu_dispatch__ if __cpu_features__[name]])
"""


@pytest.mark.parametrize("cpu", ["avx2", "x86-64"])
def test_kernels_and_numpy_use_no_more_than_it_has(
    cpu: str, run_python: Callable[..., Any], tmp_path: Path
) -> None:
    if not cpus.is_at_least(cpu):
        pytest.skip("this machine is no such CPU's better")
    elsewhere = {**cpus.environment(cpu), "TRACER_CACHE_DIR": str(tmp_path / "cache")}  # compiles
    kernels, numpy = run_python(CODE, environment=elsewhere).stdout.splitlines()
    assert kernels == {"avx2": "32 True False", "x86-64": "16 False False"}[cpu]
    assert "AVX512" not in numpy and "X86_V4" not in numpy
    assert cpu == "avx2" or numpy == ""


def test_elsewhere_nothing_is_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert cpus.main("avx2", "no such command") == 0
    assert "avx2: nothing to do on" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="expected avx2 or x86-64, and a command; got mmx"):
        cpus.main("mmx", "no such command")
