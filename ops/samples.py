"""What tests feed to operators: families of samples, and how a sample becomes arrays.

A sample says what matters of its inputs (shape, range, layout, special values); `draw` fills in the
rest, the same way every time. Must not know any operator.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np

from ops.operator import Input, Operator, Sample
from ops.types import FLOATING, UNSIGNED, numpy_dtype

Array = np.ndarray[Any, Any]
SPECIAL_COUNT = 20  # how many special values an element type has at most
DEFAULT_RANGE = (Input().low, Input().high)


def unary(low: float = -2.0, high: float = 2.0) -> tuple[Sample, ...]:
    """Samples of one input: ordinary, 0-d, empty, strided, and special values of any range."""
    return (
        Sample((Input((3, 17), low=low, high=high),)),
        Sample((Input((), low=low, high=high),)),
        Sample((Input((0, 3), low=low, high=high),)),
        Sample((Input((5, 6), layout="strided", low=low, high=high),)),
        Sample((Input((64,), special=True),), gradient=False),
    )


def binary(x: Input | None = None, y: Input | None = None) -> tuple[Sample, ...]:
    """Samples of two inputs: equal shapes, broadcast, 0-d, empty, strided, and each special value
    beside each. `x` and `y` give the ranges."""
    x, y = x or Input(), y or Input()
    shapes = (((3, 17), (3, 17)), ((4, 1, 5), (3, 1)), ((), (7,)), ((0, 3), (1, 3)))
    return (
        *(Sample((replace(x, shape=a), replace(y, shape=b))) for a, b in shapes),
        Sample(tuple(replace(i, shape=(5, 6), layout="strided") for i in (x, y))),
        each_beside_each(2),
    )


def each_beside_each(count: int, *before: Input) -> Sample:
    """Some inputs of one shape, in which each special value lies beside each."""
    size = SPECIAL_COUNT**count
    inputs = [Input((size,), special=True)] * count
    return Sample((*(replace(i, shape=(size,)) for i in before), *inputs), gradient=False)


def without_gradient(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """The samples, for an operator that has no gradient."""
    return tuple(replace(s, gradient=False) for s in samples)


UNARY, BINARY = unary(), binary()


def special_values(dtype: str) -> Array:
    """Zeros, ones, halves, infinities, NaN and extremes of an element type."""
    target = numpy_dtype(dtype)
    if dtype == "bool":
        return np.array([False, True])
    if dtype not in FLOATING:
        limits = np.iinfo(target)
        small = [0, 1, 2, 3, 5, 7, limits.bits - 1, limits.bits, limits.max, limits.max - 1]
        signed = [-1, -2, -3, -5, -limits.bits, limits.min, limits.min + 1]
        return np.array(small + (signed if limits.min else []), target)
    finfo: Any = ml_dtypes.finfo if dtype == "bfloat16" else np.finfo
    info = finfo(target)
    largest, tiny, eps = float(info.max), float(info.tiny), float(info.eps)
    subnormal = float(info.smallest_subnormal)
    values = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -3, 1 - eps, 1 + eps, 10, -40, math.nan]
    values += [math.inf, -math.inf, largest, -largest, tiny, -subnormal]
    return np.array(values).astype(target)


def draw(sample: Sample, dtype: str, seed: int = 0) -> tuple[Array, ...]:
    """Arrays for a sample, `dtype` being the element type under test. The same every time."""
    generator = np.random.default_rng(zlib.crc32(repr((sample.inputs, dtype, seed)).encode()))
    arrays = tuple(_draw(x, x.dtype or dtype, generator) for x in sample.inputs)
    special = [a for a, x in zip(arrays, sample.inputs, strict=True) if x.special]
    if len(special) > 1 and len({a.shape for a in special}) == 1:
        for k, a in enumerate(special):
            _fill_crosswise(a, k, dtype)
    return arrays


def _fill_crosswise(array: Array, position: int, dtype: str) -> None:
    """Special values only, so that those of several arrays meet in every combination."""
    chosen = special_values(dtype)
    turn = np.arange(array.size) // chosen.size**position % chosen.size
    array[...] = chosen[turn].reshape(array.shape)


def _draw(x: Input, dtype: str, generator: np.random.Generator) -> Array:
    if x.values is not None:
        values = np.maximum(x.values, 0) if dtype in UNSIGNED else np.array(x.values)
        return values.astype(numpy_dtype(dtype)).reshape(x.shape)
    values = _ordinary(x, dtype, generator).astype(numpy_dtype(dtype))
    if x.special and values.size:
        chosen = special_values(dtype)[: values.size]
        values.reshape(-1)[: chosen.size] = chosen
        values = generator.permutation(values.reshape(-1)).reshape(values.shape)
    if x.layout == "strided" and values.ndim:
        wide = np.zeros((*values.shape[:-1], 2 * values.shape[-1] + 1), values.dtype)
        wide[..., 1::2] = values
        values = wide[..., 1::2]
    return values


def _ordinary(x: Input, dtype: str, generator: np.random.Generator) -> Array:
    if dtype == "bool":
        return generator.integers(0, 2, x.shape)
    if dtype not in FLOATING:
        low, high = (-20.0, 20.0) if (x.low, x.high) == DEFAULT_RANGE else (x.low, x.high)
        if dtype in UNSIGNED:
            low, high = max(low, 0.0), max(high, 0.0)
        return generator.integers(math.ceil(low), math.floor(high), x.shape, endpoint=True)
    values = np.asarray(generator.uniform(x.low, x.high, x.shape))
    # Kinks lie at multiples of a half (0 of abs, a clip's bounds): finite differences avoid them.
    nearest = np.round(values * 2) / 2
    inward = np.where(values < (x.low + x.high) / 2, 0.04, -0.04)
    return np.where(abs(values - nearest) < 0.02, values + inward, values)


def tested_types(operator: Operator, sample: Sample) -> tuple[str, ...]:
    """The element types that a sample is drawn in: one where no input depends on it."""
    dtypes = operator.dtypes if sample.dtypes is None else sample.dtypes
    depends = any(x.dtype is None for x in sample.inputs)
    return dtypes if depends else dtypes[:1]


def cases(operator: Operator) -> Iterator[tuple[Sample, str, tuple[Array, ...]]]:
    """Every sample of an operator in every element type, with its arrays."""
    for sample in operator.samples:
        for dtype in tested_types(operator, sample):
            yield sample, dtype, draw(sample, dtype)
