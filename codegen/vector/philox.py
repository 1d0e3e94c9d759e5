"""Philox4x32-10 on lanes: a counter and a key make four random words, alike on every machine.

The generator of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
(2011). Words are held in u64 lanes with their upper halves 0, so that a product of two is one
instruction. Must not know LLVM or Numba.
"""

from __future__ import annotations

from typing import Any

from codegen.vector.elements import u64
from codegen.vector.functions import define_function

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # added to the key after each round
WORD, HALF = u64(0xFFFFFFFF), u64(32)


def _words(counter: Any, high: Any, key: Any) -> tuple[Any, Any, Any, Any]:
    """The four words of the 128-bit counter (its lower and upper half) under the 64-bit key."""
    c0, c1, c2, c3 = counter & WORD, counter >> HALF, high & WORD, high >> HALF
    k0, k1 = key & WORD, key >> HALF
    for number in range(ROUNDS):
        if number:
            k0, k1 = (k0 + u64(WEYL[0])) & WORD, (k1 + u64(WEYL[1])) & WORD
        p0, p1 = c0 * u64(MULTIPLIERS[0]), c2 * u64(MULTIPLIERS[1])
        c0, c1, c2, c3 = (p1 >> HALF) ^ c1 ^ k0, p1 & WORD, (p0 >> HALF) ^ c3 ^ k1, p0 & WORD
    return c0, c1, c2, c3


def _low(counter: Any, high: Any, key: Any) -> Any:
    c0, c1, _, _ = _words(counter, high, key)
    return c0 | (c1 << HALF)


def _high(counter: Any, high: Any, key: Any) -> Any:
    _, _, c2, c3 = _words(counter, high, key)
    return c2 | (c3 << HALF)


philox_low = define_function(
    "philox_low", 3, u64=_low
)  # words 0 and 1, the first in the lower half
philox_high = define_function("philox_high", 3, u64=_high)  # words 2 and 3
