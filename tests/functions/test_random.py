"""Random numbers: known answers, distributions, ranges, and the same bits eager and compiled."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from scipy import stats

import tracer
from ops.random import draw_words
from tracer import random, trace

# The first block of Philox4x32-10 for key 0 and counter 0, from the authors' known answers.
FIRST_WORDS = (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)


@pytest.fixture(autouse=True)
def seeded() -> None:
    tracer.manual_seed(0)


# ---- known answers -------------------------------------------------------------------------------


def test_the_first_numbers_follow_from_the_known_block() -> None:
    def draw(function, **options):
        return float(function(generator=random.Generator(0), **options))

    low, high = FIRST_WORDS[:2]
    assert draw(random.uniform) == (low >> 8) * 2.0**-24
    assert draw(random.uniform, dtype="float64") == (high << 32 | low) // 2**11 * 2.0**-53
    assert draw(random.uniform, dtype="float16") == (low >> 21) * 2.0**-11
    assert draw(random.uniform, dtype="bfloat16") == (low >> 24) * 2.0**-8
    first = np.float32(low + 0.5) * np.float32(2.0**-32)
    turn = 2 * np.pi * (FIRST_WORDS[2] >> 8) * 2.0**-24
    expected = np.sqrt(-2 * np.log(np.float64(first))) * np.cos(turn)
    assert draw(random.normal) == pytest.approx(expected, rel=1e-6)
    assert draw(random.randint, low=1000) == (high << 32 | low) * 1000 >> 64


def test_a_draw_advances_the_state_by_its_elements() -> None:
    generator = random.Generator(5)
    whole = random.uniform((10,), generator=generator).array
    assert generator.get_state().tolist() == [5, 10]
    generator.manual_seed(5)
    parts = [random.uniform(shape, generator=generator).array for shape in ((), (2, 2), (0,), (5,))]
    np.testing.assert_array_equal(np.concatenate([p.reshape(-1) for p in parts]), whole)


@pytest.mark.parametrize("n", [1, 7, 2**32, 2**32 + 1, 2**33 + 5, 2**63 + 11, 2**64 - 1, 2**64])
def test_randint_is_the_upper_half_of_a_product(n: int) -> None:
    found = random.randint(0, n, (500,), "uint64", generator=random.Generator(3))
    words = draw_words(3, 0, 500)[:, :2].astype(object)
    expected = [int(low | high << 32) * n >> 64 for low, high in words]
    assert found.tolist() == expected


# ---- distributions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sample", "distribution"),
    [
        ("uniform", lambda: random.uniform((20_000,)), stats.uniform()),
        ("uniform float64", lambda: random.rand(20_000, dtype="float64"), stats.uniform()),
        ("shifted", lambda: random.uniform((20_000,), -2.0, 3.0), stats.uniform(-2, 5)),
        ("normal", lambda: random.randn(20_000), stats.norm()),
        ("normal float64", lambda: random.randn(20_000, dtype="float64"), stats.norm()),
        ("scaled", lambda: random.normal((20_000,), 1.5, 0.5), stats.norm(1.5, 0.5)),
    ],
)
def test_numbers_follow_their_distribution(name: str, sample, distribution) -> None:
    x = sample().array
    assert stats.kstest(x, distribution.cdf).pvalue > 1e-3
    assert abs(np.mean(x) - distribution.mean()) < 4 * distribution.std() / np.sqrt(x.size)
    assert abs(np.var(x) / distribution.var() - 1) < 0.05
    neighbours = np.corrcoef(x[:-1], x[1:])[0, 1]
    assert abs(neighbours) < 4 / np.sqrt(x.size)


def test_integers_and_truths_are_as_likely_as_they_should_be() -> None:
    counts = np.bincount(random.randint(10, shape=(20_000,)).array, minlength=10)
    assert stats.chisquare(counts).pvalue > 1e-3
    for p in (0.0, 0.1, 0.5, 1.0):
        share = random.bernoulli(p, (20_000,)).array.mean()
        assert abs(share - p) <= 4 * np.sqrt(p * (1 - p) / 20_000)
    chances = np.array([0.0, 0.25, 1.0])
    shares = np.mean([random.bernoulli(chances).array for _ in range(400)], axis=0)
    assert shares[0] == 0 and shares[2] == 1 and abs(shares[1] - 0.25) < 0.1


def test_a_permutation_holds_each_number_once_and_all_orders_come() -> None:
    assert sorted(random.permutation(1000).tolist()) == list(range(1000))
    seen = {tuple(random.permutation(3).tolist()) for _ in range(100)}
    assert len(seen) == 6
    np.testing.assert_array_equal(np.sort(np.arange(5.0)[random.permutation(5)]), np.arange(5.0))
    assert random.permutation(0).shape == (0,)


# ---- ranges --------------------------------------------------------------------------------------


def test_uniform_numbers_stay_below_the_upper_bound() -> None:
    # 2**-11 below 2 there is no float16 between 1 and 2 but multiples of 2**-10: sums are rounded.
    x = random.uniform((5000,), 1.0, 2.0, dtype="float16").array
    assert x.min() == 1 and x.max() == np.nextafter(np.float16(2), np.float16(1))
    coarse = random.uniform((2000,), -1.0, 1.0, dtype="bfloat16").array.astype(np.float32)
    assert coarse.min() >= -1 and coarse.max() < 1
    assert (random.uniform((100,), 3.0, 3.0).array == 3).all()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
def test_integers_fill_their_whole_range(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = random.randint(info.min, info.max + 1, (5000,), dtype).array
    assert x.dtype == dtype
    width = float(info.max) - float(info.min)
    assert x.min() < info.min + 0.01 * width and x.max() > info.max - 0.01 * width
    few = random.randint(-3 if info.min else 2, 4, (200,), dtype).array
    assert set(few.tolist()) == set(range(-3 if info.min else 2, 4))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: random.randint(3, 3), tracer.ArgumentError, "low < high, got 3 and 3"),
        (lambda: random.randint(0, 300, (2,), "uint8"), tracer.DTypeError, "uint8 holds 0 to 255"),
        (lambda: random.randint(0, 3, (2,), "float32"), tracer.DTypeError, "gives integers"),
        (lambda: random.randint(0.5), tracer.ArgumentError, "integers as bounds"),
        (lambda: random.uniform((2,), 1, 0), tracer.ArgumentError, "low <= high"),
        (lambda: random.uniform((2,), 0, np.inf), tracer.ArgumentError, "finite distance"),
        (lambda: random.uniform((2,), -3e38, 3e38), tracer.ArgumentError, "in float32"),
        (lambda: random.uniform((2,), dtype="int32"), tracer.DTypeError, "are floating"),
        (lambda: random.normal((2,), std=-1), tracer.ArgumentError, "at least 0, got -1"),
        (lambda: random.bernoulli(1.5), tracer.ArgumentError, "from 0 to 1, got 1.5"),
        (lambda: random.bernoulli(np.array([np.nan])), tracer.ArgumentError, "got nan"),
        (lambda: random.rand(2, -1), tracer.ShapeError, "at least 0"),
        (lambda: random.rand("a"), tracer.ArgumentError, "as shape, got 'a'"),
        (lambda: random.rand(2, generator=3), tracer.ArgumentError, "tracer.Generator, got int"),
        (lambda: random.Generator(-1), tracer.ArgumentError, "0 to 2"),
        (lambda: tracer.manual_seed("x"), tracer.ArgumentError, "got 'x'"),
        (lambda: random.set_state([1, 2]), tracer.ArgumentError, r"uint64\[2\], got int64\[2\]"),
    ],
)
def test_wrong_arguments_are_refused_with_the_line(call, error, text: str) -> None:
    before = random.get_state().tolist()
    with pytest.raises(error, match=rf"{text}(?s:.*)test_random\.py:\d+"):
        call()
    assert random.get_state().tolist() == before


# ---- generators ----------------------------------------------------------------------------------


def test_seeds_and_states_reproduce() -> None:
    first = random.rand(5).array
    state = random.get_state()
    second = random.rand(5).array
    random.set_state(state)
    np.testing.assert_array_equal(random.rand(5), second)
    tracer.manual_seed(0)
    np.testing.assert_array_equal(random.rand(5), first)
    tracer.manual_seed(np.int64(1))
    assert not np.array_equal(random.rand(5), first)
    generator = random.Generator(2**64 - 1)
    assert generator.get_state().tolist() == [2**64 - 1, 0]
    drawn = generator.seed()
    assert generator.get_state().tolist() == [drawn, 0]


def test_generators_are_copied_and_pickled_with_their_state() -> None:
    generator = random.Generator(4)
    random.rand(3, generator=generator)
    for other in (copy.deepcopy(generator), pickle.loads(pickle.dumps(generator))):
        assert other.state is not generator.state
        expected = copy.deepcopy(generator)
        np.testing.assert_array_equal(
            random.rand(4, generator=other), random.rand(4, generator=expected)
        )
    assert repr(generator) == "Generator(seed=4, drawn=3)"


# ---- traced --------------------------------------------------------------------------------------


def draw_all(generator=None):
    """Several kinds of numbers in program order."""
    return (
        random.uniform((3, 5), generator=generator),
        random.normal((40,), 1.0, 2.0, generator=generator),
        random.bernoulli(0.3, (9,), generator=generator),
        random.randint(-5, 6, (7,), generator=generator),
        random.uniform((2,), -1.0, 1.0, "float64", generator),
    )


def test_the_same_bits_eager_and_compiled_call_after_call() -> None:
    compiled = trace(draw_all)
    tracer.manual_seed(9)
    eager = [draw_all() for _ in range(3)]
    end = random.get_state().tolist()
    tracer.manual_seed(9)
    for expected in eager:
        for a, b in zip(compiled(), expected, strict=True):
            assert a.array.tobytes() == b.array.tobytes()
    assert random.get_state().tolist() == end
    assert not np.array_equal(eager[0][0], eager[1][0])
    assert compiled.timings().traces == 1


def test_large_draws_have_the_bits_of_small_ones_on_any_number_of_threads() -> None:
    size = 70_000  # more than NumPy draws when eager
    small = np.concatenate([random.rand(size // 10).array for _ in range(10)])
    threads = tracer.get_num_threads()
    compiled = trace(lambda: random.rand(size))
    try:
        for count in (1, 2, 3):
            tracer.set_num_threads(count)
            for draw in (lambda: random.rand(size), compiled):
                tracer.manual_seed(0)
                np.testing.assert_array_equal(draw(), small)
    finally:
        tracer.set_num_threads(threads)


def test_a_generator_is_an_argument_known_by_identity() -> None:
    compiled = trace(draw_all)
    mine, other = random.Generator(1), random.Generator(2)
    assert "%generator.state" in str(compiled.ir(mine))
    default = random.get_state().tolist()
    for generator in (mine, mine, other, mine):
        reference = copy.deepcopy(generator)
        for a, b in zip(compiled(generator), draw_all(reference), strict=True):
            assert a.array.tobytes() == b.array.tobytes()
        assert generator.get_state().tolist() == reference.get_state().tolist()
    assert random.get_state().tolist() == default
    assert compiled.timings().traces == 2


def test_a_seed_set_in_a_traced_function_is_set_at_each_call() -> None:
    @trace
    def f():
        tracer.manual_seed(7)
        return random.rand(4)

    first = f().array.copy()
    np.testing.assert_array_equal(f(), first)
    assert random.get_state().tolist() == [7, 4]
    tracer.manual_seed(7)
    np.testing.assert_array_equal(random.rand(4), first)


def test_a_failed_trace_draws_nothing() -> None:
    @trace
    def f():
        random.rand(4)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        f()
    assert random.get_state().tolist() == [0, 0]


def test_a_permutation_in_a_trace_is_refused_with_the_line() -> None:
    with pytest.raises(tracer.TraceError, match=r"not known while(?s:.*)test_random\.py:\d+"):
        trace(lambda: random.permutation(4))()
    assert random.get_state().tolist() == [0, 0]
