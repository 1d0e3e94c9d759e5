"""Element types of results: NumPy 2's, but for integers beside floats; Python numbers are weak."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tracer
from ops.types import DTYPES, FLOATING, INTEGERS, numpy_dtype

NUMBERS = (True, 3, 2.5)


def wanted_pair(x: str, y: str) -> np.dtype[Any]:
    """The rule in the words of the documentation."""
    floats = [d for d in (x, y) if d in FLOATING]
    if len(floats) == 1:
        return numpy_dtype(floats[0])
    if set(floats) == {"float16", "bfloat16"}:
        return numpy_dtype("float32")
    if len(floats) == 2:
        return max(map(numpy_dtype, floats), key=lambda d: d.itemsize)
    return np.result_type(numpy_dtype(x), numpy_dtype(y))


def wanted_number(x: str, number: Any) -> np.dtype[Any]:
    if x in FLOATING or isinstance(number, bool) or (isinstance(number, int) and x != "bool"):
        return numpy_dtype(x)
    return np.dtype("float32" if isinstance(number, float) else "int64")


@pytest.mark.parametrize(("x", "y"), list(itertools.product(DTYPES, DTYPES)))
def test_pairs(x: str, y: str) -> None:
    wanted = wanted_pair(x, y)
    a, b = np.ones(2, numpy_dtype(x)), np.ones(2, numpy_dtype(y))
    assert tracer.add(a, b).dtype == wanted
    assert tracer.result_type(x, y) == tracer.result_type(a, tracer.tensor(b)) == wanted
    assert tracer.where(a > 0, a, b).dtype == wanted
    assert (tracer.tensor(a) == b).dtype == np.bool_
    assert tracer.divide(a, b).dtype == (wanted if wanted.name in FLOATING else np.float32)
    mixed = len({d in FLOATING for d in (x, y) if d != "bool"}) == 2
    if not mixed and "bfloat16" not in (x, y):
        assert wanted == np.result_type(a, b)


@pytest.mark.parametrize("x", DTYPES)
@pytest.mark.parametrize("number", NUMBERS)
def test_python_numbers_are_weak(x: str, number: Any) -> None:
    a = np.ones(2, numpy_dtype(x))
    wanted = wanted_number(x, number)
    for result in (tracer.add(a, number), tracer.multiply(number, a), tracer.maximum(a, number)):
        assert result.dtype == wanted
    assert tracer.result_type(x, number) == wanted
    if x != "bfloat16" and (not isinstance(number, float) or x in FLOATING):
        assert (tracer.tensor(a) + number).dtype == (a + number).dtype


def test_numbers_alone_have_their_defaults() -> None:
    assert tracer.add(1, 2).dtype == np.int64
    assert tracer.add(1, 2.0).dtype == np.float32
    assert tracer.logical_and(True, False).dtype == np.bool_
    assert tracer.exp(1).dtype == np.float32
    assert tracer.result_type(1.0) == np.float32
    assert tracer.result_type(2, True) == np.int64


def test_numpy_scalars_are_arrays() -> None:
    x = tracer.ones(2)
    assert (x * np.float64(2)).dtype == np.float64
    assert (np.float32(2) * x).dtype == np.float32
    assert (x * np.int64(2)).dtype == np.float32


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint64", "bool"])
def test_floating_functions_of_integers_give_float32(dtype: str) -> None:
    x = np.ones(2, dtype)
    for function in (tracer.exp, tracer.sqrt, tracer.softmax, tracer.mean, tracer.gelu, tracer.std):
        assert function(x).dtype == np.float32
    assert tracer.atan2(x, x).dtype == np.float32


@pytest.mark.parametrize("dtype", FLOATING)
def test_floats_keep_their_type(dtype: str) -> None:
    x = np.ones((2, 2), numpy_dtype(dtype))
    for function in (tracer.exp, tracer.sum, tracer.softmax, tracer.mean, tracer.gelu, tracer.var):
        assert function(x).dtype == numpy_dtype(dtype)
    assert (tracer.tensor(x) @ x).dtype == numpy_dtype(dtype)
    assert (tracer.tensor(x) ** 2.5 / 3 - 1).dtype == numpy_dtype(dtype)


@pytest.mark.parametrize("dtype", [*INTEGERS, "bool"])
def test_comparison_with_integers_out_of_range(dtype: str) -> None:
    given = np.array([0, 1], dtype)
    x = given.astype(np.int8) if dtype == "bool" else given  # NumPy has no answer for bools
    for number in (-(2**70), 2**70, -1, 300):
        for ours, theirs in [
            (tracer.less(given, number), np.less(x, number)),
            (tracer.greater_equal(number, given), np.greater_equal(number, x)),
            (tracer.equal(given, number), np.equal(x, number)),
            (tracer.not_equal(number, given), np.not_equal(number, x)),
            (tracer.greater(given, number), np.greater(x, number)),
            (tracer.less_equal(given, number), np.less_equal(x, number)),
        ]:
            np.testing.assert_array_equal(np.asarray(ours), theirs)


def test_python_integers_must_fit() -> None:
    with pytest.raises(tracer.DTypeError, match="300 does not fit uint8"):
        tracer.tensor([1], dtype="uint8") + 300


def test_int_subclasses_are_weak_too() -> None:
    import enum

    class Size(enum.IntEnum):
        TWO = 2

    assert (tracer.ones(2, dtype="float16") * Size.TWO).dtype == np.float16
    assert (tracer.tensor([1], dtype="int8") + Size.TWO).dtype == np.int8


def test_traced_results_have_the_eager_types() -> None:
    def function(x: Any, n: Any, rate: float) -> list[Any]:
        return [
            x * rate,
            n * rate,
            n / 2,
            n + 1,
            rate * 2.0,
            x + n,
            tracer.exp(rate),
            x**rate,
            rate > 1,
        ]

    for dtype in ("float16", "float32", "float64"):
        arguments = np.ones(2, dtype), np.ones(2, np.int32), 0.5
        eager = function(*map(tracer.asarray, arguments[:2]), 0.5)
        compiled = tracer.trace(function)(*arguments)
        for e, c in zip(eager, compiled, strict=True):
            assert tracer.asarray(e).dtype == c.dtype


def test_questions_about_types() -> None:
    assert tracer.isdtype(np.float32, "real floating")
    assert tracer.isdtype("uint8", ("bool", "unsigned integer"))
    assert tracer.isdtype(tracer.bfloat16, "numeric")
    assert not tracer.isdtype(tracer.bool, "integral")
    assert not tracer.isdtype(tracer.float64, "complex floating")
    assert tracer.isdtype(np.int8, tracer.int8)
    assert tracer.can_cast("int64", "float16")
    assert not tracer.can_cast("float32", "int64")
    assert float(tracer.finfo("float32").eps) == np.finfo(np.float32).eps
    assert float(tracer.finfo(tracer.bfloat16).eps) == 2.0**-7
    assert tracer.iinfo(tracer.tensor([1])).max == 2**63 - 1
    assert tracer.newaxis is None
    assert tracer.pi == np.pi
    assert tracer.nan != tracer.nan
