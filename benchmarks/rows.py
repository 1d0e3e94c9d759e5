"""The rows of the table: what is measured, for which peers, and how a process is asked for it.

Knows the command line of `process`, no framework and no statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .workloads import WORKLOADS, chains, training

PEERS = ("tracer", "jax", "torch", "torch.compile", "numpy")

# Which caches on disk a process finds: those that earlier rounds filled, or empty ones.
Caches = Literal["kept", "empty"]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One kind of process. Each value that it reports under a key belongs to one row.

    A second run finds the caches that the first one filled; `rows` and `again` map keys to rows.
    """

    arguments: tuple[str, ...]  # of `process`, with {peer} where the peer's name goes
    peers: tuple[str, ...]
    rows: tuple[tuple[str, str], ...]
    caches: Caches = "kept"
    again: tuple[tuple[str, str], ...] = ()
    timeout: float = 120


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table, and what tracer is held to there (see `Workload`)."""

    name: str
    about: str
    bytes_moved: int = 0
    flops: int = 0
    wanted_ratio: float | None = None
    against: tuple[str, ...] = ()
    wanted_seconds: float | None = None


def rows() -> list[Row]:
    """All rows, in the order in which they are measured."""
    steady = [
        Row(
            work.name,
            work.about,
            work.bytes_moved,
            work.flops,
            work.wanted_ratio,
            work.against,
            work.wanted_seconds,
        )
        for work in WORKLOADS
    ]
    step = "-".join(map(str, training.DIGITS))
    chained = [
        Row(
            f"chain_{length}",
            f"chain of {length:,} operators: trace, compile and run once, empty caches",
            wanted_seconds=10 if length == max(chains.LENGTHS) else None,
        )
        for length in chains.LENGTHS
    ]
    return [
        *steady,
        Row("import", "import in a fresh process, NumPy included", wanted_seconds=0.2),
        Row(
            "digits_cold",
            f"first call of a {step} training step, empty caches, import not included",
            wanted_seconds=3,
        ),
        Row(
            "digits_second_process",
            "the same in a second process, import included",
            wanted_seconds=0.5,
        ),
        *chained,
    ]


def measurements() -> list[Measurement]:
    """All kinds of processes, in the order in which a round starts them."""
    steady = [
        Measurement(
            arguments=("steady", "{peer}", work.name),
            peers=tuple(work.peers),
            rows=(("seconds", work.name),),
        )
        for work in WORKLOADS
    ]
    chained = [
        Measurement(
            arguments=("chain", "{peer}", str(length)),
            peers=tuple(chains.PEERS),
            rows=(("seconds", f"chain_{length}"),),
            caches="empty",
            timeout=60,
        )
        for length in chains.LENGTHS
    ]
    return [
        *steady,
        Measurement(
            arguments=("import", "{peer}"),
            peers=("tracer", "jax", "torch"),
            rows=(("seconds", "import"),),
        ),
        Measurement(
            arguments=("first-call", "{peer}"),
            peers=("tracer", "jax", "torch", "torch.compile"),
            rows=(("call", "digits_cold"),),
            again=(("all", "digits_second_process"),),
            caches="empty",
        ),
        *chained,
    ]
