"""From what the processes found to the table and the JSON: medians, quartiles, ratios, verdicts.

Knows numbers and text only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from .rows import Row
from .run import Found


@dataclass(frozen=True, slots=True)
class Time:
    """Median and quartiles over all samples; every process gives the same number of them."""

    median: float
    lower: float
    upper: float
    processes: int


@dataclass(frozen=True, slots=True)
class Line:
    """One row, judged. `loss`: slower than the best peer, or over a bound, or without a result."""

    row: Row
    times: Mapping[str, Time]
    failures: Mapping[str, str]
    best_peer: str | None
    ratio: float | None
    floor: float | None
    floor_kind: str
    loss: bool
    badness: float


def limits_of(found: Found) -> dict[str, float]:
    """Bytes and operations per second that the machine reached in the best of the rounds."""
    return {
        key: max(limits[key] for limits in found.limits)
        for key in ("bandwidth", "arithmetic")
        if found.limits
    }


def judge(rows: Sequence[Row], found: Found) -> list[Line]:
    """One line for each row that was measured, losses first and the worst of them at the top."""
    limits = limits_of(found)
    measured = (row for row in rows if row.name in found.samples or row.name in found.failures)
    lines = [line(row, found, limits) for row in measured]
    return sorted(lines, key=lambda one: (not one.loss, -one.badness))


def line(row: Row, found: Found, limits: Mapping[str, float]) -> Line:
    """Compare tracer with its best peer, and with what it is held to."""
    times = {peer: time_of(samples) for peer, samples in found.samples[row.name].items()}
    ours = times.get("tracer")
    others = {peer: time.median for peer, time in times.items() if peer != "tracer"}
    if row.against:
        others = {peer: median for peer, median in others.items() if peer in row.against}
    best = min(others, key=lambda peer: others[peer], default=None)
    ratio = ours.median / others[best] if ours and best else None
    seconds = {
        "memory": row.bytes_moved / limits["bandwidth"] if limits else 0.0,
        "arithmetic": row.flops / limits["arithmetic"] if limits else 0.0,
    }
    kind = max(seconds, key=lambda name: seconds[name])
    # How many times what is allowed: where nothing is, the best peer's time.
    excess = []
    if ratio is not None and not (row.wanted_ratio is None and row.wanted_seconds is not None):
        excess.append(ratio / (row.wanted_ratio or 1.0))
    if ours and row.wanted_seconds is not None:
        excess.append(ours.median / row.wanted_seconds)
    badness = max(excess, default=0.0) if ours else float("inf")
    return Line(
        row=row,
        times=times,
        failures=found.failures[row.name],
        best_peer=best,
        ratio=ratio,
        floor=seconds[kind] or None,
        floor_kind=kind if seconds[kind] else "",
        loss=badness > 1 or (ratio is not None and ratio > 1),
        badness=badness,
    )


def time_of(samples: Sequence[Sequence[float]]) -> Time:
    """Median and quartiles of the samples of several processes, taken together."""
    lower, median, upper = np.quantile(np.concatenate(samples), [0.25, 0.5, 0.75])
    return Time(float(median), float(lower), float(upper), len(samples))


def disagreements(found: Found) -> list[str]:
    """Peers that computed something else: a comparison of their times would mean nothing."""
    texts = []
    for row, checks in found.checks.items():
        middle = np.median(list(checks.values()), axis=0)
        texts += [
            f"{row}: {peer} got mean magnitudes {check}, the median of all is {middle.tolist()}"
            for peer, check in checks.items()
            if not np.allclose(check, middle, rtol=1e-3, atol=0)
        ]
    return texts


# ---- as text ---------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    """Three digits and a unit."""
    units = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
    unit, size = next((pair for pair in units if seconds >= pair[1]), units[-1])
    return f"{seconds / size:.3g} {unit}"


def wanted(row: Row) -> str:
    """What tracer is held to."""
    parts = []
    if row.wanted_ratio is not None:
        parts.append(f"{row.wanted_ratio:g} x {' or '.join(row.against) or 'best'}")
    if row.wanted_seconds is not None:
        parts.append(duration(row.wanted_seconds))
    return ", ".join(parts)


def cells(one: Line, peers: Sequence[str]) -> list[str]:
    """The columns of a line."""
    ours = one.times.get("tracer")
    spread = (
        f"{duration(ours.median)} [{duration(ours.lower)}, {duration(ours.upper)}]"
        if ours
        else "no result"
    )
    others = [
        duration(one.times[peer].median)
        if peer in one.times
        else ("failed" if peer in one.failures else "")
        for peer in peers
        if peer != "tracer"
    ]
    return [
        "LOSS" if one.loss else "",
        one.row.name,
        spread,
        f"{one.ratio:.2f} x {one.best_peer}" if one.ratio is not None else "",
        wanted(one.row),
        f"{duration(one.floor)} {one.floor_kind}" if one.floor else "",
        *others,
    ]


def table(lines: Sequence[Line], peers: Sequence[str]) -> str:
    """Aligned columns."""
    others = [peer for peer in peers if peer != "tracer"]
    head = ["", "workload", "tracer, median [quartiles]", "ratio", "at most", "limit", *others]
    grid = [head, *(cells(one, peers) for one in lines)]
    widths = [max(len(row[k]) for row in grid) for k in range(len(head))]
    texts = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in grid
    ]
    return "\n".join([texts[0], "-" * sum(w + 2 for w in widths), *texts[1:]])


def growth(lines: Sequence[Line]) -> str:
    """How the time of a chain grows with its length, as text; empty without both figures."""
    medians = {one.row.name: one.times["tracer"].median for one in lines if "tracer" in one.times}
    if not {"chain_1000", "chain_10000"} <= set(medians):
        return ""
    factor = medians["chain_10000"] / medians["chain_1000"]
    return f"A chain of 10,000 operators takes {factor:.1f} times what one of 1,000 takes."


def as_data(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Lines as JSON takes them."""
    data = [asdict(one) for one in lines]
    for one in data:
        one["badness"] = one["badness"] if np.isfinite(one["badness"]) else None
    return data
