"""Philox: the published answers, the words' use, and the distributions of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

from codegen.vector import NAMES, WIDTH, Lanes
from ops.operator import lookup
from ops.random import BITS, philox4x32
from ops.types import FLOATING, numpy_dtype
from tests.support.evaluate import evaluate

Array = np.ndarray[Any, Any]

# Counter, key and words as the generator's authors publish them (Random123, kat_vectors).
PUBLISHED = [
    tuple(line.split(", "))
    for line in """\
00000000 00000000 00000000 00000000, 00000000 00000000, 6627e8d5 e169c58d bc57ac4c 9b00dbd8
ffffffff ffffffff ffffffff ffffffff, ffffffff ffffffff, 408f276d 41c83b0e a20bc7c6 6d5451fd
243f6a88 85a308d3 13198a2e 03707344, a4093822 299f31d0, d16cfe09 94fdcceb 5001e420 24126ea1
""".splitlines()
]


def words(text: str) -> list[int]:
    return [int(w, 16) for w in text.split()]


@pytest.mark.parametrize(("counter", "key", "answer"), PUBLISHED)
def test_published_answers(counter: str, key: str, answer: str) -> None:
    first, second = words(key)
    found = philox4x32(np.array([words(counter)], np.uint32), (first, second))
    assert found.tolist() == [words(answer)]


@pytest.mark.parametrize(("counter", "key", "answer"), PUBLISHED)
def test_published_answers_of_the_kernel_function(counter: str, key: str, answer: str) -> None:
    def joined(low: int, high: int) -> Lanes:
        return Lanes(np.full(WIDTH, low | high << 32, np.uint64))

    c, k = words(counter), words(key)
    operands = joined(c[0], c[1]), joined(c[2], c[3]), joined(k[0], k[1])
    found = []
    for name in ("philox_low", "philox_high"):
        pair = int(NAMES[name](*operands).array[3])
        found += [pair & 0xFFFFFFFF, pair >> 32]
    assert found == words(answer)


# ---- draws ---------------------------------------------------------------------------------------


def state(key: int, offset: int = 0) -> Array:
    return np.array([np.uint64(key), np.uint64(offset)])


def draw(name: str, state: Array, count: int, dtype: str = "float32") -> Array:
    attrs = {"shape": (count,), "dtype": dtype}
    return evaluate(lookup(name), (state,), attrs, expanded=True)[0]


def bits(key: int, offset: int, count: int, word: int, number: int) -> Array:
    arrays = np.array(key, np.uint64), np.array(offset, np.uint64)
    attrs = {"shape": (count,), "word": word, "bits": number}
    return evaluate(lookup("PhiloxBits"), arrays, attrs)[0]


def test_words_and_bits() -> None:
    first = words(PUBLISHED[0][2])
    for word in range(4):
        assert bits(0, 0, 1, word, 32).tolist() == [first[word]]
        assert bits(0, 0, 1, word, 5).tolist() == [first[word] >> 27]
    assert bits(0, 0, 1, 0, 64).tolist() == [first[0] | first[1] << 32]
    assert bits(0, 0, 1, 2, 53).tolist() == [(first[2] | first[3] << 32) >> 11]


@pytest.mark.parametrize("name", ["PhiloxUniform", "PhiloxNormal"])
@pytest.mark.parametrize("dtype", FLOATING)
def test_a_draw_in_parts_is_the_draw(name: str, dtype: str) -> None:
    """Also where the offset's lower word, and where all of it, runs over."""
    for start in (0, 2**32 - 50, 2**64 - 50):
        generator = state(99, start)
        whole = draw(name, generator, 100, dtype)
        parts = []
        for count in (1, 30, 69):
            parts.append(draw(name, generator, count, dtype))
            (generator,) = evaluate(lookup("PhiloxAdvance"), (generator,), {"count": count})
        assert np.array_equal(np.concatenate(parts), whole)
        assert generator.tolist() == [99, (start + 100) % 2**64]


def test_keys_and_offsets_give_other_numbers() -> None:
    draws = [
        draw("PhiloxUniform", state(*s), 50).tobytes()
        for s in ((1, 0), (2, 0), (2**40, 0), (1, 50))
    ]
    assert len(set(draws)) == len(draws)


@pytest.mark.parametrize("dtype", FLOATING)
def test_uniform_numbers_are_evenly_spaced_from_0_to_below_1(dtype: str) -> None:
    x = draw("PhiloxUniform", state(7), 200_000, dtype)
    assert x.dtype == numpy_dtype(dtype)
    wide = x.astype(np.float64)
    assert wide.min() >= 0 and wide.max() < 1
    scaled = wide * 2.0 ** BITS[dtype]
    assert (scaled == np.floor(scaled)).all()
    if BITS[dtype] <= 11:  # every multiple comes up
        assert len(np.unique(wide)) == 2 ** BITS[dtype]
        wide = wide + 0.5 ** BITS[dtype] / 2
    assert scipy.stats.kstest(wide, "uniform").pvalue > 1e-3 or BITS[dtype] == 8
    counts = np.histogram(wide, 256, (0, 1))[0]
    assert scipy.stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("dtype", FLOATING)
def test_normal_numbers_are_normal(dtype: str) -> None:
    x = draw("PhiloxNormal", state(7), 200_000, dtype).astype(np.float64)
    assert abs(x.mean()) < 0.01 and abs(x.std() - 1) < 0.01
    assert abs(scipy.stats.skew(x)) < 0.03 and abs(scipy.stats.kurtosis(x)) < 0.05
    assert 4 < x.max() < 6 and -6 < x.min() < -4
    edges = scipy.stats.norm.ppf(np.linspace(0, 1, 101))
    if dtype != "bfloat16":  # too coarse for a hundred classes
        counts = np.histogram(x, edges)[0]
        assert scipy.stats.chisquare(counts).pvalue > 1e-3


def test_normal_numbers_are_finite_for_all_words() -> None:
    """The logarithm never sees 0, the cosine never a whole turn: the extreme words of float32."""
    smallest, largest = np.float32(0), np.float32(2**32 - 1)
    for word, limit in ((smallest, 6.8), (largest, 0.0)):
        u = (word + np.float32(0.5)) * np.float32(2.0**-32)
        assert 0 < u <= 1
        assert np.sqrt(-2 * np.log(np.float64(u))) == pytest.approx(limit, abs=0.05)


def test_neighbouring_draws_are_not_related() -> None:
    x = draw("PhiloxUniform", state(3), 100_001, "float64")
    y = draw("PhiloxUniform", state(4), 100_001, "float64")
    z = draw("PhiloxNormal", state(3), 100_001, "float64")
    for a, b in ((x[:-1], x[1:]), (x, y), (z[:-1], z[1:]), (y, z)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 0.02
