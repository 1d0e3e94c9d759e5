"""Parts and elements replaced: against NumPy's assignment, their gradients, and whose memory programs write."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracer
from ops.dims import Dim
from ops.operator import lookup
from ops.slicing import END
from ops.table import TABLE
from ops.types import Type
from tests.support.evaluate import evaluate, gradients
from tracer.functions.getitem import get_item
from tracer.functions.setitem import updated
from tracer.ir.graph import Graph
from tracer.ir.interpreter import interpret
from tracer.tensors.tensor import Tensor
from tracer.tracing.recording.recorder import Recorder, recording

Array = np.ndarray[Any, Any]

# ---- slices against assignment -------------------------------------------------------------------

positions = st.one_of(st.integers(-6, 6), st.sampled_from([END, -END - 1]))
steps = st.integers(-3, 3).filter(bool)
sliced = st.tuples(positions, positions, steps)


@given(rows=st.integers(0, 4), one=sliced, other=st.none() | sliced)
def test_slice_scatter_is_assignment(rows: int, one: Any, other: Any) -> None:
    x = np.arange(rows * 5.0).reshape(rows, 5)
    parts = [(k - 2, p) for k, p in enumerate((one, other)) if p is not None]
    attrs = {
        "starts": tuple(p[0] for _, p in parts),
        "ends": tuple(p[1] for _, p in parts),
        "axes": tuple(a for a, _ in parts),
        "steps": tuple(p[2] for _, p in parts),
    }
    key = tuple(slice(None) if p is None else slice(*p) for p in (one, other))
    src = -1 - np.arange(float(x[key].size)).reshape(x[key].shape)
    expected = x.copy()
    expected[key] = src
    assert np.array_equal(evaluate(lookup("SliceScatter"), (x, src), attrs)[0], expected)
    dy = np.arange(1.0, x.size + 1).reshape(x.shape)
    dx, dsrc = gradients(lookup("SliceScatter"), (x, src), attrs, (dy,))
    outside = dy.copy()
    outside[key] = 0
    assert np.array_equal(dx, outside) and np.array_equal(dsrc, dy[key])  # type: ignore[arg-type]


def test_functions_replace_parts() -> None:
    x = np.arange(24.0).reshape(2, 3, 4)
    t = tracer.tensor(x)

    def check(found: Tensor, key: Any, value: Any) -> None:
        expected = x.copy()
        expected[key] = value
        np.testing.assert_array_equal(found.numpy(), expected)
        np.testing.assert_array_equal(t.numpy(), x)

    check(
        tracer.slice_scatter(t, -x[:, 1:], axis=1, start=1),
        (slice(None), slice(1, None)),
        -x[:, 1:],
    )
    check(tracer.slice_scatter(t, 7, axis=-1, step=-3), (..., slice(None, None, -3)), 7)
    check(tracer.select_scatter(t, -x[:, 2], 1, -1), (slice(None), -1), -x[:, 2])
    check(t.select_scatter(5, 0, 0), 0, 5)
    found = t.diagonal_scatter(np.zeros((4, 2)), 0, 0, 1).numpy()
    expected = x.copy()
    expected[[0, 1], [0, 1]] = 0
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(
        tracer.ShapeError, match=r"the part of float64\[2, 3, 4\] is float64\[2, 2, 4\]"
    ):
        tracer.slice_scatter(t, x, axis=1, start=1)
    with pytest.raises(tracer.BoundsError, match="index 3 is out of range for axis 1"):
        tracer.select_scatter(t, 0, 1, 3)
    with pytest.raises(tracer.DTypeError, match="cast them first"):
        tracer.slice_scatter(t, np.zeros((2, 3, 4), np.float32))


# ---- elements at indices -------------------------------------------------------------------------


def test_of_equal_indices_the_last_one_counts() -> None:
    x = np.zeros((3, 2))
    rows = np.arange(8.0).reshape(4, 2) + 1
    places = np.array([2, 0, -1, 0])
    (found,) = evaluate(lookup("IndexCopy"), (x, places, rows), {"axis": 0})
    assert found.tolist() == [[7, 8], [0, 0], [5, 6]]
    dx, _, drows = gradients(lookup("IndexCopy"), (x, places, rows), {"axis": 0}, (found + 1,))
    assert dx is not None and drows is not None
    assert dx.tolist() == [[0, 0], [1, 1], [0, 0]]
    assert drows.tolist() == [[0, 0], [0, 0], [6, 7], [8, 9]]
    columns = np.array([[1, 1, -2, 1]])
    (found,) = evaluate(
        lookup("ScatterElements"), (x, columns, rows.reshape(2, 4)[:1]), {"axis": 1}
    )
    assert found.tolist() == [[3, 4], [0, 0], [0, 0]]


def test_compiled_writes_come_in_order_on_any_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    x, src = rng.normal(size=(50, 600)), rng.normal(size=(4000, 600))
    places = rng.integers(-50, 50, 4000)
    expected = x.copy()
    for k, place in enumerate(places):
        expected[place] = src[k]
    copy = tracer.trace(lambda x, i, src: tracer.index_copy(x, i, src, 0))
    for threads in (1, 2):
        before = tracer.get_num_threads()
        tracer.set_num_threads(threads)
        try:
            assert copy(x, places, src).numpy().tobytes() == expected.tobytes()
        finally:
            tracer.set_num_threads(before)


def test_an_index_out_of_range_writes_nothing() -> None:
    state = tracer.zeros(4)

    @tracer.trace
    def fill(places: Any) -> None:
        state.copy_(tracer.index_copy(state, places, 1.0))

    fill(np.array([1, -1]))
    assert state.tolist() == [0, 1, 0, 1]
    for wrong in (4, -5):
        with pytest.raises(tracer.BoundsError, match="IndexCopy: an index is out of range"):
            fill(np.array([0, wrong]))
        assert state.tolist() == [0, 1, 0, 1]


def test_functions_write_elements() -> None:
    x = np.arange(6.0).reshape(2, 3)
    t = tracer.tensor(x, requires_grad=True)
    assert tracer.scatter(t, [[2], [0]], 9.0, axis=1).tolist() == [[0, 1, 9], [9, 4, 5]]
    assert t.scatter(1, [[2], [0]], value=9).tolist() == [[0, 1, 9], [9, 4, 5]]
    assert t.index_fill(1, [0, 2], 7).tolist() == [[7, 1, 7], [7, 4, 7]]
    found = t.index_copy(0, [1], t[:1] * 2)
    assert found.tolist() == [[0, 1, 2], [0, 2, 4]]
    found.sum().backward()
    assert t.grad is not None and t.grad.tolist() == [[3, 3, 3], [0, 0, 0]]
    with pytest.raises(tracer.ArgumentError, match="either src or value"):
        t.scatter(1, [[2], [0]])
    with pytest.raises(tracer.BoundsError, match="index 3 is out of range"):
        tracer.scatter(t, [[3], [0]], 0.0, axis=1)


# ---- x[key] = value as a function ----------------------------------------------------------------

SHAPES = ((4, 5), (3,), (2, 3, 4), (1, 4, 3), ())


def random_key(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """A subscript of an array of that shape: every kind that NumPy knows, mixed."""
    if shape and rng.random() < 0.15:
        ndim = int(rng.integers(1, len(shape) + 1))
        return rng.random(shape[:ndim]) < 0.5
    key: list[Any] = []
    together = tuple(int(n) for n in rng.choice([1, 2, 3], size=rng.integers(0, 3)))
    axis = 0
    while axis < len(shape) and rng.random() < 0.85:
        n = shape[axis]
        kind = rng.choice(["int", "slice", "slice", "indices", "none", "mask", "all"])
        if kind == "none":
            key.append(None)
            continue
        if kind == "int":
            key.append(int(rng.integers(-n, n)))
        elif kind == "slice":
            ends = [None if rng.random() < 0.3 else int(rng.integers(-n - 1, n + 2)) for _ in "ab"]
            key.append(slice(*ends, int(rng.choice([1, 1, 2, -1, -2]))))
        elif kind == "indices":
            which = together[int(rng.integers(0, len(together) + 1)) :]
            indices = rng.integers(-n, n, [1 if rng.random() < 0.2 else d for d in which])
            key.append(tracer.tensor(indices) if rng.random() < 0.3 else indices)
        elif kind == "mask" and not any(isinstance(k, np.ndarray | Tensor) for k in key):
            key.append(rng.random(n) < 0.5)
        else:
            key.append(slice(None))
        axis += 1
    if rng.random() < 0.3:
        key.insert(int(rng.integers(0, len(key) + 1)), ...)
    return key[0] if len(key) == 1 and rng.random() < 0.5 else tuple(key)


def plain(key: Any) -> Any:
    parts = key if isinstance(key, tuple) else (key,)
    return tuple(p.numpy() if isinstance(p, Tensor) else p for p in parts)


def random_value(rng: np.random.Generator, hole: tuple[int, ...]) -> Array:
    """A value that broadcasts to the shape of what it replaces."""
    shape = [1 if rng.random() < 0.2 else n for n in hole]
    shape = shape[int(rng.integers(0, len(shape) + 1)) :] if rng.random() < 0.3 else shape
    if hole and len(shape) == len(hole) and rng.random() < 0.1:
        shape = [1, *shape]
    return rng.integers(-99, 0, shape).astype(np.float64)


def drawn(seed: int) -> tuple[Array, Any, Array]:
    """x, a key that NumPy takes, a value."""
    rng = np.random.default_rng(seed)
    while True:
        shape = SHAPES[int(rng.integers(len(SHAPES)))]
        x = np.arange(float(np.prod(shape))).reshape(shape)
        key = random_key(rng, shape)
        try:
            value = random_value(rng, x[plain(key)].shape)
            x.copy()[plain(key)] = value
        except (IndexError, TypeError):  # TypeError: a mask of everything and a value of two axes
            continue
        return x, key, value


def shares(x: Array, key: Any, value: Array) -> tuple[Array, Array, Array]:
    """NumPy's result of an assignment, and for each of its elements where it came from."""
    expected = x.copy()
    expected[plain(key)] = value
    source = np.arange(x.size).reshape(x.shape)
    source[plain(key)] = -1 - np.arange(value.size).reshape(value.shape)
    return expected, source, value


def test_updated_is_numpys_assignment() -> None:
    for seed in range(400):
        x, key, value = drawn(seed)
        expected, source, _ = shares(x, key, value)
        t, v = tracer.tensor(x, requires_grad=True), tracer.tensor(value, requires_grad=True)
        found = updated(t, key, v)
        note = f"seed {seed}: x{list(x.shape)}[{key}] = {list(value.shape)}"
        np.testing.assert_array_equal(found.detach().numpy(), expected, err_msg=note)
        np.testing.assert_array_equal(t.detach().numpy(), x, err_msg=note)
        weights = np.arange(1.0, x.size + 1).reshape(x.shape)
        dx, dv = tracer.autograd.grad([found], [t, v], [tracer.tensor(weights)], allow_unused=True)
        kept = np.where(source >= 0, weights, 0)
        np.testing.assert_array_equal(dx.numpy(), kept, err_msg=note)
        taken = np.zeros(value.size)
        np.add.at(taken, -1 - source[source < 0], weights[source < 0])
        found_dv = np.zeros(value.shape) if dv is None else dv.numpy()
        np.testing.assert_array_equal(found_dv, taken.reshape(value.shape), err_msg=note)


def recorded(function: Any, arrays: list[Array]) -> Graph:
    """What a function of Tensors records."""
    recorder = Recorder("f")
    with recording(recorder):
        inputs = [Tensor.of_value(recorder.builder.input(Type.of(a)), recorder) for a in arrays]
        return recorder.builder.build([recorder.value_of(y) for y in function(*inputs)])


def with_inputs(key: Any, arrays: list[Array]) -> Any:
    """A key whose arrays are replaced by functions of the traced inputs that follow in `arrays`."""
    parts = []
    for part in key if isinstance(key, tuple) else (key,):
        if isinstance(part, np.ndarray | Tensor):
            arrays.append(np.asarray(part))
            parts.append(len(arrays) - 1)
        else:
            parts.append((part,))
    return parts


def test_updated_is_recorded_as_it_runs() -> None:
    for seed in range(1000, 1250):
        x, key, value = drawn(seed)
        expected, _, _ = shares(x, key, value)
        arrays = [x, value]
        parts = with_inputs(key, arrays)
        masks = [a for a in arrays[2:] if a.dtype == np.bool_]
        count = int(masks[0].sum()) if masks else None

        def assigned(
            x: Tensor,
            value: Tensor,
            *others: Tensor,
            parts: Any = parts,
            size: Any = count,
        ) -> list[Tensor]:
            given = (x, value, *others)
            key = tuple(p[0] if isinstance(p, tuple) else given[p] for p in parts)
            y = updated(x, key, value, size)
            return [y, get_item(y, key, size)]

        graph = recorded(assigned, arrays)
        for found, wanted in zip(
            interpret(graph, arrays), (expected, expected[plain(key)]), strict=True
        ):
            np.testing.assert_array_equal(found, wanted, err_msg=f"seed {seed}: {key}")


def test_assignment_is_recorded_for_every_key() -> None:
    for seed in range(2000, 2150):
        x, key, value = drawn(seed)
        expected, _, _ = shares(x, key, value)
        arrays = [x, value]
        parts = with_inputs(key, arrays)
        others = [a for a in arrays[2:] if a.dtype != np.bool_]
        if len(others) < len(arrays) - 2 and (
            others or any(isinstance(p[0], int) for p in parts if isinstance(p, tuple))
        ):
            continue  # a question, which only a whole trace answers

        def assigned(x: Tensor, value: Tensor, *others: Tensor, parts: Any = parts) -> list[Tensor]:
            y = x + 0
            given = (x, value, *others)
            y[tuple(p[0] if isinstance(p, tuple) else given[p] for p in parts)] = value
            return [y]

        (found,) = interpret(recorded(assigned, arrays), arrays)
        np.testing.assert_array_equal(found, expected, err_msg=f"seed {seed}: {key}")


def test_masks_in_traced_functions() -> None:
    def function(x: Any, rows: Any, v: Any) -> Any:
        y = x * 1
        y[y > 2] += v
        y[rows, 1] = y[y[:, 0] < 3][0, 1]
        return y

    traced = tracer.trace(function)
    x = np.arange(6.0).reshape(3, 2)
    rows = np.array([2, 0])
    for low in (0.0, 1.0, 0.0):
        found = traced(x - low, rows, 0.5)
        assert found.tolist() == function(tracer.tensor(x - low), rows, 0.5).tolist()
    places = tracer.trace(tracer.nonzero).ir(x > 3)
    found = [k.tolist() for k in interpret(places, [x > 3])]
    assert found[:2] == [[2, 2], [0, 1]]  # behind them is what was asked: their number


CHANGES = {
    "row": lambda y: y.__setitem__(-1, 4),
    "row in place": lambda y: y[-1].add_(4),
    "column": lambda y: y.__setitem__((slice(None), 0), y[:, 0] + 5),
    "column of columns": lambda y: y[:, 1:3][:, 0].sub_(5),
    "rows": lambda y: y[1:].mul_(2),
    "transposed": lambda y: y.T[0].add_(4),
    "every other": lambda y: y.reshape(-1)[::2].add_(4),
    "diagonal": lambda y: y.diagonal().add_(4),
    "element": lambda y: y[1, -2].fill_(9),
    "new axis": lambda y: y[None, 0, ::-1].neg_(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_views_with_symbolic_sizes(name: str) -> None:
    recorder = Recorder("f")
    with recording(recorder):
        x = recorder.builder.input(Type("float64", (Dim.symbol("n"), 5)))
        y = Tensor.of_value(x, recorder) * 1
        CHANGES[name](y)
        graph = recorder.builder.build([recorder.value_of(y)])
    for rows in (3, 4):
        array = np.arange(5.0 * rows).reshape(rows, 5)
        expected = tracer.tensor(array)
        CHANGES[name](expected)
        assert not np.array_equal(expected.numpy(), array)
        np.testing.assert_array_equal(interpret(graph, [array])[0], expected.numpy())


def test_counts_of_masks_are_checked_before_anything_is_written() -> None:
    state = tracer.zeros(4)

    @tracer.trace
    def step(mask: Any, values: Any) -> Any:
        state.add_(1)
        state.copy_(updated(state, mask, values))
        return tracer.masked_select(state, mask, size=2)

    assert step(np.array([True, False, False, True]), np.array([5.0, 6.0])).tolist() == [5, 6]
    assert state.tolist() == [5, 1, 1, 6]
    for wrong in ([True, False, False, False], [True, True, True, False]):
        with pytest.raises(
            tracer.ShapeError, match=r"does not hold 2 True elements(.|\n)*test_scatter"
        ):
            step(np.array(wrong), np.array([5.0, 6.0]))
        assert state.tolist() == [5, 1, 1, 6]


def test_masked_functions() -> None:
    x = np.arange(6.0).reshape(2, 3)
    mask = np.array([[True, False, True], [False, True, False]])
    t = tracer.tensor(x, requires_grad=True)
    assert tracer.masked_select(t, mask).tolist() == [0, 2, 4]
    assert t.masked_select(mask[1], size=2).tolist() == [1, 4]
    assert tracer.flatnonzero(mask, size=3).tolist() == [0, 2, 4]
    assert [k.tolist() for k in tracer.nonzero(mask, size=3)] == [[0, 0, 1], [0, 2, 1]]
    source = tracer.tensor(-np.arange(1.0, 6), requires_grad=True)
    found = t.masked_scatter(mask, source)
    assert found.tolist() == [[-1, 1, -2], [3, -3, 5]]
    (found * x).sum().backward()
    assert t.grad is not None and t.grad.tolist() == [[0, 1, 0], [3, 0, 5]]
    assert source.grad is not None and source.grad.tolist() == [0, 2, 4, 0, 0]
    assert t.index_put(([0, 0, 1], [1, 1, 2]), 2.0, accumulate=True).tolist() == [
        [0, 5, 2],
        [3, 4, 7],
    ]
    assert t.index_put((mask,), 9.0).tolist() == [[9, 1, 9], [3, 9, 5]]
    for size in (2, 4):
        with pytest.raises(tracer.ShapeError, match="the mask holds 3 True elements"):
            tracer.masked_select(t, mask, size=size)
    with pytest.raises(tracer.ShapeError, match="source has only 2"):
        tracer.masked_scatter(t, mask, source[:2])
    compiled = tracer.trace(lambda t, mask, source: t.masked_scatter(mask, source))
    assert compiled(x, mask, source.detach()).tolist() == [[-1, 1, -2], [3, -3, 5]]
    with pytest.raises(tracer.BoundsError):
        compiled(x, mask, np.ones(2))


def test_values_keep_their_precision() -> None:
    x = tracer.zeros(3, dtype="float64")
    assert updated(x, 0, 0.1).tolist() == [0.1, 0, 0]
    assert updated(x, slice(1, None), [0.1, 0.2]).tolist() == [0, 0.1, 0.2]
    assert updated(tracer.zeros(2, dtype="int64"), 0, 2.7).tolist() == [2, 0]
    with pytest.raises(tracer.ShapeError, match=r"a value of shape \(3,\) does not broadcast"):
        updated(x, slice(2), np.zeros(3))
    with pytest.raises(tracer.ShapeError, match="True elements"):
        updated(x, np.array([True, False, True]), np.zeros(3))
    with pytest.raises(tracer.BoundsError, match="index 3 is out of range"):
        updated(x, np.array([0, 3]), 1)
    with pytest.raises(tracer.BoundsError, match="the mask has shape"):
        updated(x, np.array([True, False]), 1)


# ---- what is a view ------------------------------------------------------------------------------

VIEWS = {
    "permute_dims": lambda t: tracer.permute_dims(t, (2, 0, 1)),
    "reshape": lambda t: t.mT.reshape(2, 2, 2, 3),
    "flatten": lambda t: t.flatten(1),
    "ravel": lambda t: t.ravel(),
    "unflatten": lambda t: t.unflatten(2, (2, 2)),
    "squeeze": lambda t: t[:1].squeeze(0),
    "expand_dims": lambda t: tracer.expand_dims(t, (0, -1)),
    "broadcast_to": lambda t: tracer.broadcast_to(t, (3, 2, 3, 4)),
    "slices": lambda t: t[:, ::-2, 1:],
    "integers": lambda t: t[1, :, 0],
    "one element": lambda t: t[1, 2, -3],
    "new axes": lambda t: t[None, ...],
    "everything": lambda t: t[...],
    "split": lambda t: tracer.split(t, 2, axis=2)[1],
    "chunk": lambda t: t.chunk(2, 2)[1],
    "tensor_split": lambda t: t.tensor_split(3, 2)[2],
    "unbind": lambda t: t.unbind(1)[0],
    "narrow": lambda t: t.narrow(1, 1, 2),
    "select": lambda t: t.select(2, -1),
    "flip": lambda t: tracer.flip(t, 1),
    "t": lambda t: t[0].t(),
    "T": lambda t: t.T,
    "mT": lambda t: t.mT,
    "swapaxes": lambda t: t.swapaxes(0, 2),
    "moveaxis": lambda t: t.moveaxis(0, 2),
    "diagonal": lambda t: t.diagonal(1, 1, 2),
    "detach": lambda t: t.detach(),
}
COPIES = {
    "reshape": lambda t: t.mT.reshape(24),
    "roll": lambda t: t.roll(0, 0),
    "tile": lambda t: tracer.tile(t, (1, 1, 1)),
    "take": lambda t: tracer.take(t, [0, 1], axis=0),
    "indices": lambda t: t[[0, 1]],
    "mask": lambda t: t[t > -1],
    "concat": lambda t: tracer.concat([t]),
    "pad": lambda t: tracer.pad(t, 0),
    "astype": lambda t: tracer.astype(t, "float64"),
    "slice_scatter": lambda t: tracer.slice_scatter(t, t),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory(name: str) -> None:
    array = np.arange(24.0).reshape(2, 3, 4)
    view = VIEWS[name](tracer.Tensor.of_array(array))
    assert np.shares_memory(view.numpy(), array)
    assert view.numpy().flags.writeable == (name != "broadcast_to")


@pytest.mark.parametrize("name", COPIES)
def test_copies_do_not(name: str) -> None:
    array = np.arange(24.0).reshape(2, 3, 4)
    assert not np.shares_memory(COPIES[name](tracer.Tensor.of_array(array)).numpy(), array)


def test_which_operators_are_views() -> None:
    assert {op.name for op in TABLE.values() if op.is_view} == {
        "Diagonal", "Expand", "Flatten", "Reshape", "Select", "Slice", "Split", "Squeeze", "Transpose",
        "Unsqueeze",
    }  # fmt: skip
