"""The measure that products are held to: another order of adding is within it, another product is not."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.support.products import product_by_rule, within_rounding

pytestmark = pytest.mark.cpu

Array = np.ndarray[Any, Any]
DTYPES = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.__name__)


def factors(rng: np.random.Generator, dtype: Any, k: int = 300) -> tuple[Array, Array]:
    """Some of whose products cancel: (7, k) and (k, 5)."""
    x, y = rng.standard_normal((7, k)), rng.standard_normal((k, 5))
    x[0, k // 2 :], y[k // 2 :] = -x[0, : k - k // 2], y[: k - k // 2]
    return x.astype(dtype), y.astype(dtype)


def summed(x: Array, y: Array, order: Array) -> Array:
    """The product with its terms rounded and added one after the other."""
    wide = np.float64 if x.dtype == np.float64 else np.float32
    total = np.zeros((x.shape[0], y.shape[1]), wide)
    for k in order:
        total += x[:, k, None].astype(wide) * y[k].astype(wide)
    return total.astype(x.dtype)


@each_dtype
def test_any_order_of_adding_is_within_rounding(dtype: Any, rng: np.random.Generator) -> None:
    x, y = factors(rng, dtype)
    wanted = product_by_rule(x, y)
    assert wanted.dtype == x.dtype
    by_size = np.argsort(-np.abs(x[0].astype(np.float64)))
    for order in (range(300), range(299, -1, -1), by_size, *(rng.permutation(300) for _ in "abc")):
        assert within_rounding(summed(x, y, np.asarray(order)), wanted, x, y)
    assert within_rounding(
        (x.astype(np.float64) @ y.astype(np.float64)).astype(dtype), wanted, x, y
    )


def test_where_terms_cancel_no_count_of_units_would_do(rng: np.random.Generator) -> None:
    x, y = factors(rng, np.float32)
    one, other = (summed(x, y, np.arange(300)[::step])[0] for step in (1, -1))
    assert np.abs((one - other) / one).max() > 1000 * np.finfo(np.float32).eps
    assert within_rounding(one, other, x[:1], y)


@each_dtype
def test_another_product_is_not(dtype: Any, rng: np.random.Generator) -> None:
    x, y = factors(rng, dtype, 20)
    wanted = product_by_rule(x, y)
    assert not within_rounding(wanted + np.asarray(1, dtype), wanted, x, y)
    assert not within_rounding(product_by_rule(x[:, 1:], y[1:]), wanted, x, y)
    assert not within_rounding(wanted.astype(np.float32).astype(np.int32), wanted, x, y)
    assert not within_rounding(wanted[:, :4], wanted, x, y)


def test_integers_have_one_product() -> None:
    x = np.array([[100, 100]], np.int8)
    wanted = product_by_rule(x, x.T)
    assert wanted.tolist() == [[32]]  # 20,000 wraps around
    assert within_rounding(wanted, wanted, x, x.T)
    assert not within_rounding(wanted + np.int8(1), wanted, x, x.T)
