"""Places of temporaries: those that live at once lie apart."""

from __future__ import annotations

import random
import time

from ops.types import Type
from tracer.lowering.layout import Buffer
from tracer.lowering.memory_plan import _in_turn, _largest_first, plan_memory


def lifetimes(chance: random.Random, count: int) -> list[tuple[Buffer, int, int]]:
    result = []
    for k in range(count):
        size = chance.choice((0, 16, 64, 100, 1000, 4000, 8192))
        first, last = chance.choice(((k, k + chance.randrange(4)), (k, 2 * count - k), (k // 2, k)))
        result.append(
            (Buffer(Type("float32", (size,)), "work"), min(first, last), max(first, last))
        )
    return result


def test_temporaries_that_live_at_once_lie_apart() -> None:
    chance = random.Random(0)
    for count in (1, 5, 40, 150):
        for plan in (_largest_first, _in_turn):
            lives = lifetimes(chance, count)
            total = plan(lives)
            for k, (buffer, first, last) in enumerate(lives):
                assert (
                    buffer.place >= 0
                    and buffer.place + buffer.nbytes <= total
                    and buffer.place % 64 == 0
                )
                for other, since, until in lives[:k]:
                    if since <= last and first <= until:
                        assert (
                            buffer.place + buffer.nbytes <= other.place
                            or other.place + other.nbytes <= buffer.place
                        )


def test_temporaries_of_many_kernels_are_placed_in_little_time_and_memory() -> None:
    chance = random.Random(1)
    few = lifetimes(chance, 400)
    assert _in_turn(few) <= 1.25 * _largest_first(few)
    many = lifetimes(chance, 30_000)
    start = time.perf_counter()
    plan_memory(many)
    assert time.perf_counter() - start < 10  # each compared with each took minutes
