"""Sums, means, variances and norms of ten million float32 are those of float64, rounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracer
import tracer.nn.functional as F
from tests.support.accuracy import difference_in_ulp
from tracer import trace

pytestmark = pytest.mark.cpu

Array = np.ndarray[Any, Any]

MANY = 10_000_000


def statistics(axis: int | None) -> Callable[[Any], tuple[Any, ...]]:
    return lambda x: (
        tracer.sum(x, axis=axis),
        tracer.mean(x, axis=axis),
        tracer.var(x, axis=axis),
        tracer.std(x, axis=axis, correction=1),
        tracer.vector_norm(x, axis=axis),
    )


def exact_statistics(x: Array, axis: int | None) -> tuple[Array, ...]:
    wide = x.astype(np.float64)
    return (
        wide.sum(axis),
        wide.mean(axis),
        wide.var(axis),
        wide.std(axis, ddof=1),
        np.sqrt((wide * wide).sum(axis)),
    )


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize(
    "shape, axis", [((MANY,), None), ((4, MANY // 4), 1), ((MANY // 4, 4), 0)], ids=str
)
def test_statistics_of_ten_million(shape: tuple[int, ...], axis: int | None, offset: float) -> None:
    x = np.random.default_rng(0).standard_normal(shape, np.float32) + np.float32(offset)
    x += np.float32(0.25)
    exact = exact_statistics(x, axis)
    found = trace(statistics(axis))(x)
    for got, wanted in zip(found, exact, strict=True):
        assert difference_in_ulp(np.asarray(got), wanted.astype(np.float32)) <= 1
    if axis is None and offset:
        for got, same in zip(statistics(axis)(tracer.tensor(x)), found, strict=True):
            assert difference_in_ulp(np.asarray(got), np.asarray(same)) <= 1


def test_the_statistics_of_a_layer_norm_of_many() -> None:
    """Near 1e6, where float32 sums would lose everything; and where distances exceed the largest float."""
    x = np.random.default_rng(1).standard_normal((2, MANY // 8), np.float32) + np.float32(1e6)
    wide = x.astype(np.float64)
    exact = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    run = trace(lambda x: F.layer_norm(x, x.shape[1:]))
    found = np.asarray(run(x))
    large = np.abs(exact) > 0.1
    assert difference_in_ulp(found[large], exact[large].astype(np.float32)) <= 4
    np.testing.assert_allclose(found, exact, rtol=3e-7, atol=1e-7)
    far = np.array([[3e38, 3e38, -3e38], [1, 2, 3]], np.float32)
    for form in (lambda f: f, trace):
        found = np.asarray(form(lambda x: F.layer_norm(x, (3,)))(far))
        np.testing.assert_allclose(found[0], [0.5**0.5, 0.5**0.5, -(2**0.5)], rtol=1e-6)
        assert np.asarray(form(lambda x: tracer.std(x, axis=1))(far))[0] == pytest.approx(
            8**0.5 * 1e38
        )
