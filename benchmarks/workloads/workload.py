"""A workload as data. Knows no framework: each peer's code imports its own when asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# One call of the work. It returns its results when they are there, newly allocated at every call.
# What a training step changes in place (parameters, momentum) is no result.
Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Workload:
    """Work that every peer does alike.

    `peers` maps a peer's name to a function that imports the peer, makes the inputs (the same for
    all) and returns the call to measure. `bytes_moved` and `flops` are what no implementation can
    do without: inputs read once, results written once, products and sums of the contractions.

    What tracer is held to: at most `wanted_ratio` times the time of the best peer (of those in
    `against`, where it names some), and at most `wanted_seconds`.
    """

    name: str
    about: str
    peers: Mapping[str, Callable[[], Call]]
    bytes_moved: int = 0
    flops: int = 0
    wanted_ratio: float | None = None
    against: tuple[str, ...] = ()
    wanted_seconds: float | None = None
