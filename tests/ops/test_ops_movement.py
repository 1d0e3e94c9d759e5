"""Data movement: layouts of views, indices of gathers and scatters, slices as Python's, adjoints.

What holds for every operator is tested by the walk of the table; here is what is particular.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops import samples
from ops.compute import Composite, Gather, Index, Scatter, Strided, View
from ops.dims import Dim
from ops.errors import BoundsError
from ops.operator import Application, Derived, Operator, lookup
from ops.slicing import END, extent
from ops.table import TABLE
from ops.types import Type
from tests.support.evaluate import evaluate, gradients
from tracer.ir.graph import GraphBuilder
from tracer.ir.interpreter import interpret

Array = np.ndarray[Any, Any]
VIEWS = tuple(o for o in TABLE.values() if isinstance(o.compute, View))
INDEXED = tuple(o for o in TABLE.values() if isinstance(o.compute, Gather | Scatter))


# ---- views ---------------------------------------------------------------------------------------


def layouts(x: Array) -> list[tuple[Array, Strided]]:
    """x in buffers of its own: row-major behind an offset, transposed, and every other element."""
    found = []
    for order in (range(x.ndim), reversed(range(x.ndim))):
        axes = tuple(order)
        for gap in (1, 2):
            buffer = np.zeros(3 + gap * x.size, x.dtype)
            inner = np.lib.stride_tricks.as_strided(
                buffer[3:],
                tuple(x.shape[k] for k in axes),
                tuple(gap * s for s in np.empty([x.shape[k] for k in axes], x.dtype).strides),
            )
            inner[...] = np.transpose(x, axes)
            view = np.transpose(inner, np.argsort(axes))
            strides = tuple(s // x.itemsize for s in view.strides)
            found.append((buffer, Strided(x.shape, strides, 3)))
    return found


@pytest.mark.parametrize("operator", VIEWS, ids=lambda o: o.name)
def test_layout_holds_the_elements(operator: Operator) -> None:
    assert isinstance(operator.compute, View)
    for sample, dtype, (x,) in samples.cases(operator):
        if dtype not in ("float32", "bool"):
            continue
        attrs = operator.normalize(sample.attrs)
        (expected,) = evaluate(operator, (x,), attrs)
        for buffer, layout in layouts(x):
            found = operator.compute.rule(layout, expected.shape, attrs)
            if found is None:
                assert operator.name in ("Reshape", "Flatten")
                continue
            assert found.shape == expected.shape and found.offset >= 0
            if expected.size:
                ends = [(d - 1) * s for d, s in zip(found.shape, found.strides, strict=True)]
                assert found.offset + sum(min(e, 0) for e in ends) >= 3
                assert found.offset + sum(max(e, 0) for e in ends) < buffer.size
                view = np.lib.stride_tricks.as_strided(
                    buffer[found.offset :],
                    found.shape,
                    tuple(s * x.itemsize for s in found.strides),
                )
                assert np.array_equal(view, expected), (sample, layout)


def test_row_major_reshapes_need_no_copy() -> None:
    reshape = lookup("Reshape").compute
    assert isinstance(reshape, View)
    for old, new in (((2, 3, 4), (6, 4)), ((6, 4), (2, 3, 2, 2)), ((1, 5), (5, 1, 1)), ((), (1,))):
        layout = layouts(np.zeros(old, np.float32))[0][1]
        assert reshape.rule(layout, new, {}) is not None
    transposed = Strided((3, 2), (1, 3))
    assert reshape.rule(transposed, (6,), {}) is None


# ---- indices -------------------------------------------------------------------------------------


def places(
    indices: tuple[Index, ...], operands: Sequence[Array], shape: tuple[int, ...], x: Array
) -> tuple[list[Array], Array]:
    """Where each position of `shape` lies in x, axis by axis, and whether it lies there at all."""
    grid = np.indices(shape)
    found, inside = [], np.ones(shape, bool)
    for index, size in zip(indices, x.shape, strict=True):
        place = np.full(shape, index.offset)
        if index.axis is not None:
            place = place + grid[index.axis]
        if index.operand is not None:
            values = operands[index.operand].astype(np.int64)[
                tuple(grid[a] for a in index.operand_axes)
            ]
            place = place + np.where(values < 0, values + size, values)
        inside &= (place >= 0) & (place < size)
        found.append(place)
    return found, inside


@pytest.mark.parametrize("operator", INDEXED, ids=lambda o: o.name)
def test_indices_say_what_the_reference_does(operator: Operator) -> None:
    for sample, dtype, arrays in samples.cases(operator):
        if dtype not in ("float32", "int64"):
            continue
        attrs, x = operator.normalize(sample.attrs), arrays[0]
        (expected,) = evaluate(operator, arrays, attrs)
        types = [Type.of(a) for a in arrays]
        compute = operator.compute
        assert isinstance(compute, Gather | Scatter)
        indices = compute.rule(types, Type.of(expected), attrs)
        if isinstance(compute, Gather):
            where, inside = places(indices, arrays, expected.shape, x)
            assert inside.all() or compute.fill is not None
            found = np.full(expected.shape, attrs[compute.fill] if compute.fill else 0, x.dtype)
            found[inside] = x[tuple(w[inside] for w in where)]
        else:
            updates, found = arrays[2], x.copy()
            where, inside = places(indices, arrays, updates.shape, x)
            assert inside.all()
            with np.errstate(invalid="ignore", over="ignore"):
                for k in range(updates.size):
                    place = tuple(w.reshape(-1)[k] for w in where)
                    before = found[place] if compute.mode == "add" else 0
                    found[place] = before + updates.reshape(-1)[k]
        assert np.array_equal(found, expected, equal_nan=dtype == "float32"), sample


@pytest.mark.parametrize("name", ["Gather", "GatherElements"])
def test_an_index_out_of_range_is_named(name: str) -> None:
    x = np.zeros((2, 3), np.float32)
    for wrong in (3, -4, 100):
        indices = np.array([[0, 2, wrong]])
        with pytest.raises(
            BoundsError, match=f"index {wrong} is out of range for axis 1 of size 3"
        ):
            evaluate(lookup(name), (x, indices), {"axis": 1})
    with pytest.raises(IndexError):
        evaluate(lookup(name), (x, np.array([[2**64 - 1]], np.uint64)), {"axis": 1})
    with pytest.raises(BoundsError, match="the axis has no elements"):
        evaluate(lookup(name), (x[:, :0], np.array([[0]])), {"axis": 1})


@pytest.mark.parametrize("name", ["IndexAdd", "ScatterAdd", "IndexCopy", "ScatterElements"])
def test_changing_at_an_index_out_of_range_changes_nothing(name: str) -> None:
    x, updates = np.zeros(3, np.float32), np.ones(2, np.float32)
    with pytest.raises(BoundsError, match="index 3 is out of range"):
        evaluate(lookup(name), (x, np.array([0, 3]), updates), {"axis": 0})
    assert not x.any()


def test_equal_indices_add_up_in_order() -> None:
    """1 added to 2**24 in float32 is lost; two of them added before are not."""
    updates = np.array([1, 1, 2.0**24], np.float32)
    for order, total in (([0, 1, 2], 2**24 + 2), ([2, 0, 1], 2**24)):
        for name in ("IndexAdd", "ScatterAdd"):
            arrays = (np.zeros(2, np.float32), np.array([1, 1, 1]), updates[order])
            assert evaluate(lookup(name), arrays, {"axis": 0})[0].tolist() == [0, total]


def test_half_gradients_of_gathers_add_up_in_float32() -> None:
    x, indices = np.zeros(1, np.float16), np.zeros(5000, np.int64)
    for name in ("Gather", "GatherElements"):
        dx, _ = gradients(lookup(name), (x, indices), {"axis": 0}, (np.ones(5000, np.float16),))
        assert dx is not None and dx.tolist() == [5000]


# ---- slices --------------------------------------------------------------------------------------

positions = st.one_of(st.integers(-9, 9), st.sampled_from([END, -END - 1]))
steps = st.integers(-4, 4).filter(bool)


@given(size=st.integers(0, 7), start=positions, end=positions, step=steps)
def test_slices_are_clipped_as_in_python(size: int, start: int, end: int, step: int) -> None:
    expected = range(size)[slice(start, end, step)]
    first, count = extent(start, end, step, size)
    assert count == len(expected)
    assert not expected or first == expected[0]
    attrs = {"starts": (start,), "ends": (end,), "axes": (0,), "steps": (step,)}
    x = np.arange(float(size))
    assert evaluate(lookup("Slice"), (x,), attrs)[0].tolist() == list(expected)
    (dx,) = gradients(lookup("Slice"), (x,), attrs, (np.arange(1.0, count + 1),))
    assert dx is not None
    assert dx.tolist() == [expected.index(k) + 1 if k in expected else 0 for k in range(size)]


@given(start=st.integers(-9, 9), end=positions, step=steps, size=st.integers(0, 9))
def test_sizes_of_slices_with_symbols(start: int, end: int, step: int, size: int) -> None:
    attrs = {"starts": (start,), "ends": (end,), "axes": (0,), "steps": (step,)}
    (symbolic,) = lookup("Slice").infer((Type("int8", (Dim.symbol("n"),)),), attrs)
    (exact,) = lookup("Slice").infer((Type("int8", (size,)),), attrs)
    assert symbolic.substitute({"n": size}) == exact


# ---- adjoints ------------------------------------------------------------------------------------

LINEAR = [
    "Reshape",
    "Expand",
    "Transpose",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Slice",
    "Pad",
    "Concat",
    "Split",
    "Tile",
    "Repeat",
    "Roll",
    "PadBorder",
    "Trilu",
    "Diagonal",
    "Gather",
    "GatherElements",
    "IndexAdd",
    "ScatterAdd",
    "IndexCopy",
    "ScatterElements",
    "Select",
    "SelectScatter",
    "SliceScatter",
    "DiagonalScatter",
    "ReduceSum",
]


@pytest.mark.parametrize("name", LINEAR)
def test_gradient_is_the_adjoint(name: str, rng: np.random.Generator) -> None:
    """<f(x), w> = <x, f*(w)> for every linear operator, exactly, on small whole numbers."""
    operator, checked = lookup(name), 0
    for sample in operator.samples:
        if not sample.gradient or "float64" not in (sample.dtypes or operator.dtypes):
            continue
        if sample.attrs.get("value"):
            continue  # a pad that is not zero is not linear
        arrays = [
            np.round(8 * a) if a.dtype == np.float64 else a for a in samples.draw(sample, "float64")
        ]
        outputs = evaluate(operator, arrays, sample.attrs)
        weights = [rng.integers(-8, 8, y.shape).astype(np.float64) for y in outputs]
        found = gradients(operator, arrays, sample.attrs, weights)
        left = sum((y * w).sum() for y, w in zip(outputs, weights, strict=True))
        right = sum((a * c).sum() for a, c in zip(arrays, found, strict=True) if c is not None)
        assert left == right, sample
        checked += left != 0
    assert checked


# ---- symbolic sizes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("Roll", {"shifts": (3, -1), "axes": (0, 1)}),
        ("Roll", {"shifts": (1,), "axes": (1,)}),
        ("PadBorder", {"pads": (1, 2, 0, 2), "mode": "reflect"}),
        ("PadBorder", {"pads": (0, 4, 3, 0), "mode": "edge"}),
        ("PadBorder", {"pads": (2, 1, 1, 4), "mode": "wrap"}),
        ("Tile", {"repeats": (2, 3)}),
        ("Repeat", {"repeats": 2, "axis": 1}),
        ("Diagonal", {"offset": 1}),
        ("Select", {"axis": 1, "index": -2}),
        ("Slice", {"starts": (1, -1), "ends": (-1, -END - 1), "axes": (0, 1), "steps": (2, -3)}),
    ],
)
def test_rules_with_symbols_agree_with_integers(name: str, attrs: dict[str, Any]) -> None:
    """Built once for any size, run on several, values and gradients."""
    rows, columns = Dim.symbol("rows"), Dim.symbol("columns")
    operator = lookup(name)
    builder = GraphBuilder()
    x = builder.input(Type("float64", (rows, columns)))
    (type_,) = operator.infer((x.type,), operator.normalize(attrs))
    w = builder.input(type_)
    compute, attributes = operator.compute, operator.normalize(attrs)
    y = (
        compute.rule(builder, Application((x,), (), attributes))
        if isinstance(compute, Composite)
        else builder.op(name, x, **attrs)
    )
    outputs = [y]
    if not isinstance(operator.vjp, Derived):
        n = Application((x,), (y,), attributes, (w,), (True,))
        outputs += operator.vjp(builder, n)  # type: ignore[operator]
    graph = builder.build(outputs)
    for shape in ((3, 4), (5, 4), (4, 9)):
        array = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
        (expected,) = evaluate(operator, (array,), attrs)
        weight = np.arange(1.0, expected.size + 1).reshape(expected.shape)
        found = interpret(graph, [array, weight])
        assert np.array_equal(found[0], expected), shape
        if len(found) > 1:
            (dx,) = gradients(operator, (array,), attrs, (weight,))
            assert dx is not None and np.array_equal(found[1], dx), shape
