"""Print the table of docs/vector_math.md: errors, times and compile times of every function.

    python -m benchmarks.vector_math [NAME ...] [--count N]

Errors are the largest of N operands (all bit patterns, the usual ranges, special values). Times are
of one thread on 20,000 elements in cache, the least of many calls; compile times of a small kernel
with one call, beyond a kernel that only copies, both for the second time in the process.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks.vector_math.accuracy import errors, reference, samples
from codegen.vector import DTYPE, NAMES
from codegen.vector.bounds import BOUNDS, bound
from codegen.vector.functions import FUNCTIONS
from codegen.vector.trial import Kernel

RANGES = {  # of the operands that are timed, where -4 to 4 is not the function's usual home
    **dict.fromkeys(("log", "log2", "log10", "rsqrt", "pow"), (0.01, 10.0)),
    **dict.fromkeys(("asin", "acos", "atanh"), (-1.0, 1.0)),
    "acosh": (1.0, 20.0),
}
TIMED = 20_000


def kernel(name: str, element: str, arity: int) -> Kernel:
    """o = name(x, y); a copy when the name is empty."""
    operands = "xy"[:arity]
    loads = ", ".join(f"load_part({x}, i, n - i, {element}(0))" for x in operands)
    text = (
        f"def kernel(lo, hi, {', '.join(operands)}, o, n):\n"
        "    for i in range(0, n, 16):\n"
        f"        store_part(o, i, n - i, {name}({loads}))\n"
    )
    names = dict(NAMES)
    exec(text, names)
    return Kernel(names["kernel"], f"{element}* " * (arity + 1) + "i64")


def nanoseconds(compiled: Kernel, operands: list[Any]) -> float:
    """Least time per element of many calls."""
    out = np.empty_like(operands[0])
    places = [a.ctypes.data for a in (*operands, out)]
    least = float("inf")
    for _ in range(2000):
        start = time.perf_counter()
        compiled(0, 0, *places, len(out))
        least = min(least, time.perf_counter() - start)
    return least / len(out) * 1e9


def row(name: str, element: str, count: int, rng: np.random.Generator) -> str:
    """One line of the table."""
    arity, dtype = FUNCTIONS[name].arity, DTYPE[element]
    kernel(name, element, arity)
    compiled, empty = kernel(name, element, arity), kernel("", element, 1)
    if name in ("erf", "erfc") and element == "f64":
        count = min(count, 40_000)  # their reference is mpmath
    worst, at, seen = 0.0, "", 0
    while seen < count:
        operands = samples(dtype, min(count, 1_000_000), arity, rng)
        got = np.empty_like(operands[0])
        compiled(0, 0, *operands, got, len(got))
        least: Any = 0
        if name == "logaddexp":
            with np.errstate(all="ignore"):
                least = np.maximum(*(abs(x) for x in operands))
            least = np.where(np.isfinite(least), least, 0)
        found = errors(got, reference(name, *operands), least)
        k = int(found.argmax())
        seen += len(found)
        if found[k] > worst:
            worst, at = float(found[k]), ", ".join(f"{float(x[k]):.9g}" for x in operands)
    low, high = RANGES.get(name, (-4.0, 4.0))
    timed = [rng.uniform(low, high, TIMED).astype(dtype) for _ in range(arity)]
    speed = nanoseconds(compiled, timed)
    extra = max(0.0, compiled.seconds - empty.seconds) * 1e3
    return (
        f"| {name} | {element} | {worst:.2f} | {bound(name, element):.2f} | {at} | {seen:,} "
        f"| {speed:.2f} | {extra:.0f} |"
    )


def main() -> None:
    """Read the command line, print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.vector_math", description=__doc__)
    parser.add_argument("names", nargs="*", help="functions; all when none is named")
    parser.add_argument("--count", type=int, default=4_000_000, help="operands of each function")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    print("| function | lanes | error, ulp | bound | at | operands | ns | compile, ms |")
    print("|---|---|---|---|---|---|---|---|")
    for name in options.names or BOUNDS:
        for element in FUNCTIONS[name].bodies:
            print(row(name, element, options.count, rng), flush=True)


if __name__ == "__main__":
    main()
