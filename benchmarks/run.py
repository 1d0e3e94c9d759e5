"""Starts the processes: several rounds, peers side by side within a round and in turning order.

Knows how to start `process` and which folders caches lie in; computes nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from .rows import PEERS, Measurement, measurements

ROOT = Path(__file__).resolve().parent.parent
DISTRIBUTIONS = {"tracer": "tracer-jit", "torch.compile": "torch"}


@dataclass
class Found:
    """Everything that the processes of a run reported, by row and peer."""

    samples: dict[str, dict[str, list[list[float]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    failures: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    checks: dict[str, dict[str, list[float]]] = field(default_factory=lambda: defaultdict(dict))
    first: dict[str, dict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    limits: list[dict[str, float]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is asked for."""

    rounds: int
    threads: int
    seconds: float
    peers: Sequence[str]
    only: Sequence[str]


def versions(peers: Sequence[str]) -> dict[str, str | None]:
    """The version of each peer, None where it is not installed."""
    found: dict[str, str | None] = {}
    for peer in peers:
        try:
            found[peer] = metadata.version(DISTRIBUTIONS.get(peer, peer))
        except metadata.PackageNotFoundError:
            bare_checkout = peer == "tracer" and (ROOT / "tracer").is_dir()
            found[peer] = "checkout" if bare_checkout else None
    return found


def measure(settings: Settings, report: Callable[[str], None]) -> Found:
    """Run every measurement for every peer that is there, round by round."""
    installed = versions(PEERS)
    peers = [peer for peer in settings.peers if installed[peer]]
    wanted = [m for m in measurements() if not settings.only or names(m) & set(settings.only)]
    found = Found()
    with tempfile.TemporaryDirectory(prefix="tracer-bench-") as folder:
        kept = Path(folder) / "kept"
        for number in range(settings.rounds):
            limits, error = start(["limits"], settings, kept, timeout=120)
            if error:
                report(f"limits of the machine: {error}")
            else:
                found.limits.append(limits)
            turned = peers[number % len(peers) :] + peers[: number % len(peers)]
            for measurement in wanted:
                for peer in turned:
                    if peer in measurement.peers:
                        where = f"round {number + 1} of {settings.rounds}"
                        one(
                            measurement,
                            peer,
                            settings,
                            kept,
                            found,
                            lambda text, w=where: report(f"{w}: {text}"),
                        )
    return found


def names(measurement: Measurement) -> set[str]:
    """The rows that a measurement fills."""
    return {row for _, row in (*measurement.rows, *measurement.again)}


def one(
    measurement: Measurement,
    peer: str,
    settings: Settings,
    kept: Path,
    found: Found,
    report: Callable[[str], None],
) -> None:
    """Run one process (or two, see `Measurement.again`) and keep what it says."""
    arguments = [text.format(peer=peer) for text in measurement.arguments]
    with tempfile.TemporaryDirectory(prefix="empty-", dir=kept.parent) as empty:
        caches = kept if measurement.caches == "kept" else Path(empty)
        for keys in (measurement.rows, measurement.again):
            if not keys or peer in found.failures[keys[0][1]]:
                continue  # what failed once is not waited for again
            answer, error = start(arguments, settings, caches, measurement.timeout)
            for key, row in keys:
                if error:
                    found.failures[row][peer] = error
                    report(f"{row}, {peer}: {error}")
                    continue
                found.samples[row][peer].append(answer[key])
                if "check" in answer:
                    found.checks[row][peer] = answer["check"]
                    found.first[row][peer].append(answer["first"])
                middle = answer[key][len(answer[key]) // 2]
                report(f"{row}, {peer}: {middle * 1e3:.4g} ms")


def start(
    arguments: Sequence[str], settings: Settings, caches: Path, timeout: float
) -> tuple[dict[str, Any], str]:
    """The JSON that a process printed, or else why there is none."""
    command = [sys.executable, "-m", "benchmarks.process", *arguments]
    command += ["--threads", str(settings.threads), "--seconds", str(settings.seconds)]
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment(settings.threads, caches),
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return {}, f"no result within {timeout:.0f} s"
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        return {}, lines[-1]
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return answer, ""


def environment(threads: int, caches: Path) -> dict[str, str]:
    """The same number of threads for all, and each peer's cache on disk where we say."""
    inherited = dict(os.environ)
    # with it a checkout is compiled at every start, while installed peers have their bytecode
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    for pinned in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        inherited.pop(pinned, None)  # or a pinned kernel would be measured, not the machine
    counts = ("OMP", "OPENBLAS", "MKL", "NUMBA")
    return {
        **inherited,
        **{f"{name}_NUM_THREADS": str(threads) for name in counts},
        "TRACER_CACHE_DIR": str(caches / "tracer"),
        "TORCHINDUCTOR_CACHE_DIR": str(caches / "torch"),
        "JAX_COMPILATION_CACHE_DIR": str(caches / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_PLATFORMS": "cpu",
        "CUDA_VISIBLE_DEVICES": "",
    }
