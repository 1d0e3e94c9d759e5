"""Drawing inputs from an operator's samples, and comparing results within its declared error."""

from __future__ import annotations

from typing import Any

import numpy as np

from ops.operator import Operator, Sample
from ops.reference import as_dtype
from ops.types import DTYPES, dtype_name, is_floating, numpy_dtype

Array = np.ndarray[Any, Any]
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 3e38, -3e38, 1e4, -1e4, 0.5)


def dtypes_of(op: Operator, sample: Sample) -> tuple[str, ...]:
    """The element types that a sample is drawn in."""
    wanted = sample.dtypes or op.dtypes
    if not any(i.dtype is None for i in sample.inputs):
        return wanted[:1] if sample.inputs else DTYPES[:1]
    return wanted


def draw(sample: Sample, dtype: str, rng: np.random.Generator) -> list[Array]:
    """Arrays for each input of a sample."""
    arrays = []
    for i in sample.inputs:
        name = i.dtype or dtype
        if i.values is not None:
            array = as_dtype(np.asarray(i.values, np.float64).reshape(i.shape), name) if name != "bool" else np.asarray(i.values).reshape(i.shape) != 0
        elif name == "bool":
            array = rng.random(i.shape) < 0.5
        elif is_floating(name):
            array = rng.uniform(i.low, i.high, i.shape)
            if i.special and array.size:
                flat = array.reshape(-1)
                places = rng.permutation(flat.size)[: len(SPECIAL)]
                flat[places] = np.array(SPECIAL)[: len(places)]
            with np.errstate(all="ignore"):
                array = as_dtype(array, name)
        else:
            info = np.iinfo(name)
            low = max(info.min, int(np.floor(i.low * 4)))
            high = min(info.max, int(np.ceil(i.high * 4)) + 1)
            array = rng.integers(low, max(high, low + 1), i.shape).astype(numpy_dtype(name))
            if i.special and array.size > 3:
                array.reshape(-1)[:3] = (info.min, info.max, 0)
        array = np.asarray(array)
        if i.layout == "strided" and array.ndim:
            wide = np.repeat(array, 2, axis=-1)
            array = wide[..., ::2]
        arrays.append(array)
    return arrays


def same_within(got: Array, wanted: Array, ulp: float) -> bool:
    """Equal bits (any NaN equals any NaN) for ulp 0, else within so many units in the last place of the result's type."""
    name = dtype_name(wanted.dtype)
    if not is_floating(name):
        return bool(np.array_equal(got, wanted))
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    both_nan = np.isnan(a) & np.isnan(b)
    if ulp == 0:
        return bool(np.all(both_nan | (a == b)))
    with np.errstate(all="ignore"):
        digits = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}[name]
        lowest = {"float16": -14, "bfloat16": -126, "float32": -126, "float64": -1022}[name]
        exponent = np.maximum(np.frexp(np.where(np.isfinite(b), b, 1))[1] - 1, lowest)
        unit = np.exp2(exponent.astype(np.float64) - digits)
        close = np.abs(a - b) <= ulp * unit
    return bool(np.all(both_nan | (a == b) | close))
