"""What one fresh process does: prepare, then measure one workload for one peer, and print JSON.

    python -m benchmarks.process steady PEER WORKLOAD --threads N --seconds S
    python -m benchmarks.process import PEER
    python -m benchmarks.process first-call PEER --threads N
    python -m benchmarks.process chain PEER LENGTH --threads N
    python -m benchmarks.process limits --threads N

Started by `run`. At the top it imports the standard library only, since imports are measured.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
from collections.abc import Callable
from time import perf_counter
from typing import Any

MODULES = {"torch.compile": "torch"}  # where it isn't the peer's own name
WARM_UP = 3
LEAST_SAMPLE = 2e-3  # seconds; quicker calls are measured many at a time
MOST_SAMPLES = 200
LEAST_SAMPLES = 7
QUANTILES = 21


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["steady", "import", "first-call", "chain", "limits"])
    parser.add_argument("peer", nargs="?", default="")
    parser.add_argument("detail", nargs="?", default="")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    keep_to(options.threads)
    if options.what == "steady":
        found = steady(options.peer, options.detail, options.threads, options.seconds)
    elif options.what == "import":
        found = {"seconds": [import_peer(options.peer)]}
    elif options.what == "first-call":
        found = first_call(options.peer, options.threads)
    elif options.what == "chain":
        found = {"seconds": [chain(options.peer, int(options.detail), options.threads)]}
    else:
        from . import limits

        found = {"bandwidth": limits.bandwidth(options.threads), "arithmetic": limits.arithmetic()}
    print(json.dumps(found))


def keep_to(threads: int) -> None:
    """Stay on so many CPUs: some frameworks take their number of threads from that alone."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def import_peer(peer: str) -> float:
    """Seconds to import the peer, NumPy included."""
    start = perf_counter()
    importlib.import_module(MODULES.get(peer, peer))
    return perf_counter() - start


def set_threads(peer: str, threads: int) -> None:
    """Tell the peers that can be told; the others go by the CPUs and the environment."""
    module = importlib.import_module(MODULES.get(peer, peer))
    if hasattr(module, "set_num_threads"):
        module.set_num_threads(threads)


def steady(peer: str, workload: str, threads: int, seconds: float) -> dict[str, Any]:
    """Seconds per call once all is warm, as quantiles, so that every process counts alike."""
    from .workloads import WORKLOADS

    set_threads(peer, threads)
    (work,) = (work for work in WORKLOADS if work.name == workload)
    call = work.peers[peer]()
    start = perf_counter()
    result = call()
    first = perf_counter() - start
    check = summary(result)
    for _ in range(WARM_UP):
        result = call()
    return {"seconds": quantiles(sample(call, seconds)), "first": first, "check": check}


def sample(call: Callable[[], Any], seconds: float) -> list[float]:
    """Seconds per call, measured in groups of calls long enough for the clock."""
    start = perf_counter()
    result = call()
    size = max(1, math.ceil(LEAST_SAMPLE / (perf_counter() - start)))
    samples: list[float] = []
    end = perf_counter() + seconds
    while len(samples) < LEAST_SAMPLES or (len(samples) < MOST_SAMPLES and perf_counter() < end):
        start = perf_counter()
        for _ in range(size):
            result = call()  # the last result lives until this one is there, as in a user's loop
        samples.append((perf_counter() - start) / size)
    del result
    return samples


def quantiles(samples: list[float]) -> list[float]:
    """Evenly spaced quantiles, from the least to the most."""
    import numpy as np

    return [float(value) for value in np.quantile(samples, np.linspace(0, 1, QUANTILES))]


def summary(result: Any) -> list[float]:
    """The mean magnitude of each result: enough to see that all peers computed the same."""
    import numpy as np

    arrays = result if isinstance(result, tuple | list) else [result]
    detached = [array.detach() if hasattr(array, "detach") else array for array in arrays]
    return [float(np.abs(np.asarray(array, np.float64)).mean()) for array in detached]


def first_call(peer: str, threads: int) -> dict[str, Any]:
    """Seconds from the import to the first result of the digits step, and of that call alone."""
    start = perf_counter()
    importlib.import_module(MODULES.get(peer, peer))
    set_threads(peer, threads)
    from .workloads import training

    call = training.peers(training.DIGITS, training.DIGITS_BATCH)[peer]()
    called = perf_counter()
    call()
    end = perf_counter()
    return {"call": [end - called], "all": [end - start]}


def chain(peer: str, length: int, threads: int) -> float:
    """Seconds from an untraced function of so many operators to its first result."""
    set_threads(peer, threads)
    from .workloads import chains

    call = chains.PEERS[peer](length)
    start = perf_counter()
    call()
    return perf_counter() - start


if __name__ == "__main__":
    main()
