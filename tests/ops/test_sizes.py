"""Symbolic sizes: equal expressions are equal objects, whatever they were made of, and their text reads back."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest

from ops import dims
from ops.dims import Dim
from ops.errors import ShapeError

N, M = Dim.symbol("n"), Dim.symbol("m")
Size = int | Dim
OPERATIONS: dict[str, Any] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "max": dims.maximum,
    "min": dims.minimum,
}
NUMBERS = {**OPERATIONS, "max": max, "min": min}
VALUES = [{"n": n, "m": m} for n, m in product(range(6), repeat=2)]


def drawn(chance: random.Random, depth: int) -> tuple[Size, list[int]]:
    """A random expression, and what it is for each of the values."""
    if not depth or chance.random() < 0.2:
        if chance.random() < 0.4:
            number = chance.randint(-4, 4)
            return number, [number] * len(VALUES)
        name = chance.choice("nm")
        return Dim.symbol(name), [v[name] for v in VALUES]
    name = chance.choice(list(OPERATIONS))
    left, lefts = drawn(chance, depth - 1)
    right, rights = drawn(chance, 0 if name == "//" else depth - 1)
    if name == "//":
        right = chance.choice((2, 3, -2))
        rights = [right] * len(VALUES)
    numbers = [NUMBERS[name](a, b) for a, b in zip(lefts, rights, strict=True)]
    return OPERATIONS[name](left, right), numbers


def test_random_expressions() -> None:
    chance = random.Random(0)
    certain = 0
    for _ in range(600):
        size, numbers = drawn(chance, 4)
        assert [dims.substitute(size, v) for v in VALUES] == numbers, size
        assert dims.parse(str(size)) == size
        if dims.never_negative(size):
            certain += 1
            assert min(numbers) >= 0, size
    assert certain > 200  # it is seen where it holds, mostly


def test_one_size_has_one_form() -> None:
    first, rest = dims.minimum(N, 1), dims.maximum(N - 1, 0)  # of x[:1] and x[1:]
    assert first + rest == N
    assert N - rest == first == dims.maximum(first, 0) == -dims.maximum(-N, -1)
    assert dims.maximum(N + M, M) == N + M
    assert dims.maximum(2 * N - M, N) == dims.maximum(N, M) + N - M
    assert str(rest) == "max(1, n) - 1"
    assert str(N - dims.maximum(M, N) * M) == "-m*max(m, n) + n"
    assert str(-N) == "-n" and str(-(N // 2)) == "-(n//2)"


@pytest.mark.parametrize("other", [0.5, 1j])
def test_numbers_that_are_no_sizes(other: Any) -> None:
    for use in (
        lambda: N * other,
        lambda: other + N,
        lambda: N - other,
        lambda: N / other,
        lambda: N**other,
        lambda: other > N,
        lambda: N < 3,
        lambda: float(N),
        lambda: int(N),
        lambda: bool(N),
    ):
        with pytest.raises(ShapeError, match="symbolic"):
            use()
