"""Walks the table: a scalar operator's kernel text, read as NumPy on 16 lanes, is its reference.

Nothing is compiled here; that compiled texts do the same is tested where programs are.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from codegen.vector import LANE_ELEMENT, NAMES, WIDTH, Lanes
from ops import samples
from ops.compute import Scalar
from ops.operator import Operator
from ops.table import TABLE
from ops.types import Type, dtype_name, numpy_dtype
from tests.support.accuracy import difference_in_ulp
from tests.support.evaluate import evaluate

pytestmark = pytest.mark.cpu

Array = np.ndarray[Any, Any]
SCALARS = tuple(o for o in TABLE.values() if isinstance(o.compute, Scalar))


def lanes_of(array: Array) -> Array:
    """The elements as a kernel computes on them: half types are float32."""
    element = LANE_ELEMENT[dtype_name(array.dtype)]
    return array.astype(np.bool_ if element == "bool" else np.dtype(NAMES[element](0).dtype))


def read(text: str, operands: list[Array], shape: tuple[int, ...]) -> Array:
    """The text on operands that are broadcast to the shape, 16 elements at a time."""
    count = int(np.prod(shape))
    padded = -(-max(count, 1) // WIDTH) * WIDTH
    rows = []
    for a in operands:
        flat = np.broadcast_to(a, shape).reshape(-1)
        rows.append(np.concatenate([flat, np.ones(padded - count, a.dtype)]))
    code = compile(text, "<kernel text>", "eval")
    parts = []
    for start in range(0, padded, WIDTH):
        vectors = {f"x{k}": Lanes(r[start : start + WIDTH]) for k, r in enumerate(rows)}
        parts.append(eval(code, NAMES, vectors).array)
    return np.concatenate(parts)[:count].reshape(shape)


@pytest.mark.parametrize("operator", SCALARS, ids=lambda o: o.name)
def test_text_agrees_with_the_reference(operator: Operator) -> None:
    assert isinstance(operator.compute, Scalar)
    for sample, dtype, arrays in samples.cases(operator):
        attrs = operator.normalize(sample.attrs)
        (expected,) = evaluate(operator, arrays, attrs)
        types, result = [Type.of(a) for a in arrays], Type.of(expected)
        text = operator.compute.text
        if not isinstance(text, str):
            text = text(types, result, attrs)
        positions = {
            f"axis{k}": p.astype(np.int64) for k, p in enumerate(np.indices(expected.shape))
        }
        positions["index"] = np.arange(expected.size).reshape(expected.shape)
        used = {name: p for name, p in positions.items() if f"{{{name}}}" in text}
        operands = [*(lanes_of(a) for a in arrays), *used.values()]
        found = read(
            text.format(
                *(f"x{k}" for k in range(len(arrays))),
                T=LANE_ELEMENT[(types[0] if types else result).dtype],
                R=LANE_ELEMENT[result.dtype],
                **{name: f"x{len(arrays) + k}" for k, name in enumerate(used)},
            ),
            operands,
            expected.shape,
        )
        assert found.dtype == lanes_of(expected).dtype
        with np.errstate(all="ignore"):
            found = found.astype(numpy_dtype(result.dtype))
        assert difference_in_ulp(found, expected) <= operator.ulp, (sample, dtype, text)


def test_texts_name_only_what_kernels_have() -> None:
    for operator in SCALARS:
        assert isinstance(operator.compute, Scalar)
        for sample, dtype, arrays in samples.cases(operator):
            text = operator.compute.text
            if not isinstance(text, str):
                types = [Type.of(a) for a in arrays]
                (result,) = evaluate(operator, arrays, sample.attrs)
                text = text(types, Type.of(result), operator.normalize(sample.attrs))
            plain = text.replace("{T}", "f32").replace("{R}", "f32")
            missing = set(re.findall(r"(?<![{\w])[a-z_]\w*(?=\()", plain)) - NAMES.keys()
            assert not missing, (operator.name, dtype)
