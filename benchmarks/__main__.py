"""Measure tracer and its peers side by side; print a table, write JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path

from . import report
from .rows import PEERS, rows
from .run import Settings, measure, versions

ALLOCATION = (
    "Every call of every peer allocates its results anew and returns when they are there;\n"
    "training steps update parameters and momentum in place (JAX: by donation)."
)


def main() -> None:
    """Read the command line, measure, report."""
    names = [row.name for row in rows()]
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes for each figure")
    parser.add_argument("--threads", type=int, default=2, help="CPUs that each peer may use")
    parser.add_argument("--seconds", type=float, default=1.0, help="steady time in each process")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS, metavar="PEER")
    parser.add_argument("--only", nargs="+", choices=names, default=[], metavar="WORKLOAD")
    parser.add_argument("--out", type=Path, default=Path("out/bench.json"))
    options = parser.parse_args()
    settings = Settings(
        options.rounds, options.threads, options.seconds, options.peers, options.only
    )

    found_versions = versions(settings.peers)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    found = measure(settings, lambda text: print(text, file=sys.stderr, flush=True))
    lines = report.judge(rows(), found)
    limits = report.limits_of(found)

    print(f"\n{report.table(lines, settings.peers)}\n")
    for one in lines:
        print(f"{one.row.name}: {one.row.about}")
    print()
    for peer, version in found_versions.items():
        print(f"{peer} {version}" if version else f"{peer}: not installed, so it is missing above")
    if limits:
        print(
            f"Limits measured in the same run: {limits['bandwidth'] / 1e9:.1f} GB/s (triad) and "
            f"{limits['arithmetic'] / 1e9:.0f} GFLOP/s (sgemm).\n"
            "A workload's limit is what it has to move or to multiply at the least, at that speed."
        )
    print(
        f"Each peer has {settings.threads} CPUs, each figure {settings.rounds} processes; "
        f"the load average was {load:.1f} at the start.\n{ALLOCATION}"
    )
    if load > 0.5:
        print("Others were using this machine. That slows the peers unequally (OpenMP's the most).")
    for text in (report.growth(lines), *report.disagreements(found)):
        if text:
            print(text)
    for one in lines:
        for peer, why in one.failures.items():
            print(f"{one.row.name}: {peer} failed: {why}")

    options.out.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "settings": asdict(settings),
        "python": platform.python_version(),
        "machine": {"processor": processor(), "cpus": os.cpu_count(), "load": load, **limits},
        "versions": found_versions,
        "allocation": ALLOCATION.replace("\n", " "),
        "lines": report.as_data(lines),
        "first_calls": found.first,
        "disagreements": report.disagreements(found),
    }
    options.out.write_text(json.dumps(data, indent=1), encoding="utf-8")
    print(f"\nAll figures: {options.out}")


def processor() -> str:
    """The processor's name as Linux tells it, else what Python knows."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in text.splitlines() if "model name" in line)
    return next(names, platform.processor())


if __name__ == "__main__":
    main()
