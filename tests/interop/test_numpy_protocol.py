"""NumPy functions called on a Tensor are recorded; what is not offered says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tracer
from tracer import Tensor, grad, trace
from tracer.interop.numpy_functions import FUNCTIONS
from tracer.interop.numpy_protocol import UFUNCS

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(4)
A, B = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4))
N, J = RNG.integers(-9, 9, (3, 4)), RNG.integers(1, 5, (3, 4))
LIMITED = {"arccos", "arcsin", "arctanh"}
POSITIVE = {"log", "log10", "log1p", "log2", "sqrt", "arccosh", "power", "float_power"}
OF_INTEGERS = {"bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift"}


def check(got: Any, wanted: Any, tolerance: float = 1e-12) -> None:
    if isinstance(wanted, tuple | list):
        assert len(got) == len(wanted)
        for g, w in zip(got, wanted, strict=True):
            check(g, w, tolerance)
        return
    assert isinstance(got, Tensor)
    assert got.shape == np.shape(wanted)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", sorted(ufunc.__name__ for ufunc in UFUNCS))
def test_universal_functions(name: str) -> None:
    ufunc = getattr(np, name)
    if name in OF_INTEGERS:
        operands = [N, J][: ufunc.nin]
    elif name == "matmul":
        operands = [A, B.T]
    else:
        x = np.tanh(A) if name in LIMITED else np.abs(A) + 1 if name in POSITIVE else A
        operands = [x, B][: ufunc.nin]
    wanted = ufunc(*operands)
    check(ufunc(*map(tracer.tensor, operands)), wanted)
    if len(operands) == 2:
        check(ufunc(operands[0], tracer.tensor(operands[1])), wanted)
        check(ufunc(tracer.tensor(operands[0]), operands[1]), wanted)


FUNCTION_CASES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "all": (lambda x: np.all(x > 0, axis=1), A),
    "amax": (lambda x: np.amax(x, 0), A),
    "amin": (lambda x: np.amin(x, axis=(0, 1), keepdims=True), A),
    "any": (lambda x: np.any(x > 1), A),
    "argmax": (lambda x: np.argmax(x, axis=1), A),
    "argmin": (lambda x: np.argmin(x, keepdims=True), A),
    "around": (lambda x: np.around(x, 2), A),
    "argwhere": (lambda x: np.argwhere(x > 0), A),
    "atleast_1d": (lambda x: (np.atleast_1d(x[0, 0]), *np.atleast_1d(x * 1, x[0])), A),
    "atleast_2d": (lambda x: (np.atleast_2d(x[0]), np.atleast_2d(x[0, 0])), A),
    "average": (lambda x: np.average(x, axis=0), A),
    "broadcast_arrays": (lambda x: np.broadcast_arrays(x[:, :1], x[0]), A),
    "broadcast_to": (lambda x: np.broadcast_to(x, (2, 3, 4)), A),
    "clip": (lambda x: np.clip(x, -0.5, 0.5), A),
    "column_stack": (lambda x: np.column_stack([x, x[:, 0]]), A),
    "concatenate": (lambda x: np.concatenate([x, B], axis=1), A),
    "copy": (lambda x: np.copy(x), A),
    "count_nonzero": (lambda x: np.count_nonzero(x > 0, axis=0), A),
    "cumsum": (lambda x: (np.cumsum(x), np.cumsum(x, axis=1)), A),
    "diagonal": (lambda x: np.diagonal(x, 1), A),
    "diff": (lambda x: (np.diff(x), np.diff(x, 2, axis=0), np.diff(x > 0)), A),
    "dot": (lambda x: np.dot(x, B.T), A),
    "einsum": (lambda x: np.einsum("ij,kj->ik", x, B), A),
    "empty_like": (lambda x: np.empty_like(x) * 0, A),
    "expand_dims": (lambda x: np.expand_dims(x, (0, 2)), A),
    "flatnonzero": (lambda x: np.flatnonzero(x > 0), A),
    "fliplr": (lambda x: np.fliplr(x), A),
    "flipud": (lambda x: np.flipud(x), A),
    "flip": (lambda x: np.flip(x, 1), A),
    "full_like": (lambda x: np.full_like(x, 3), A),
    "hstack": (lambda x: (np.hstack([x, B]), np.hstack([x[0], B[1]])), A),
    "inner": (lambda x: np.inner(x, B), A),
    "isclose": (lambda x: np.isclose(x, A + 1e-9), A),
    "max": (lambda x: np.max(x, axis=1), A),
    "mean": (lambda x: np.mean(x, axis=0, keepdims=True), A),
    "meshgrid": (lambda x: np.meshgrid(x[0], x[:, 0]), A),
    "min": (lambda x: np.min(x), A),
    "moveaxis": (lambda x: np.moveaxis(x, 0, 1), A),
    "nan_to_num": (lambda x: np.nan_to_num(x), np.array([np.nan, np.inf, 1.0])),
    "nonzero": (lambda x: np.nonzero(x > 0), A),
    "norm": (lambda x: (np.linalg.norm(x), np.linalg.norm(x, 3, axis=1)), A),
    "ones_like": (lambda x: np.ones_like(x), A),
    "outer": (lambda x: np.outer(x, B[0]), A),
    "pad": (lambda x: np.pad(x, ((1, 2), (0, 1)), mode="edge"), A),
    "prod": (lambda x: np.prod(x, axis=1), A),
    "ptp": (lambda x: np.ptp(x, axis=1), A),
    "ravel": (lambda x: np.ravel(x), A),
    "repeat": (lambda x: np.repeat(x, 2, axis=0), A),
    "reshape": (lambda x: np.reshape(x, (2, -1)), A),
    "roll": (lambda x: np.roll(x, 2, axis=1), A),
    "round": (lambda x: np.round(x), A),
    "split": (lambda x: np.split(x, [1, 3], axis=1), A),
    "squeeze": (lambda x: np.squeeze(x[None]), A),
    "stack": (lambda x: np.stack([x, B], axis=-1), A),
    "std": (lambda x: np.std(x, axis=0, ddof=1), A),
    "sum": (lambda x: (np.sum(x), np.sum(x, 0), np.sum(x, axis=1, keepdims=True)), A),
    "swapaxes": (lambda x: np.swapaxes(x, 0, 1), A),
    "take": (lambda x: np.take(x, [0, 2], axis=0), A),
    "take_along_axis": (lambda x: np.take_along_axis(x, np.argsort(A, 1), 1), A),
    "tensordot": (lambda x: np.tensordot(x, B.T, 1), A),
    "tile": (lambda x: np.tile(x, (2, 1)), A),
    "trace": (lambda x: np.trace(x, 1), A),
    "transpose": (lambda x: (np.transpose(x), np.transpose(x[None], (1, 0, 2))), A),
    "tril": (lambda x: np.tril(x, 1), A),
    "triu": (lambda x: np.triu(x), A),
    "var": (lambda x: (np.var(x, axis=1), np.var(x, correction=1)), A),
    "vstack": (lambda x: (np.vstack([x, B]), np.vstack([x[0], B[0]])), A),
    "where": (lambda x: np.where(x > 0, x, 0.0), A),
    "zeros_like": (lambda x: np.zeros_like(x, dtype=np.float32), A),
}
NOT_TENSORS = {"allclose", "array_equal", "ndim", "shape", "size"}
# Which operators NumPy's functions are is looked at here; all of these have been compiled elsewhere. Compiled here too:
COMPILED = {"concatenate", "diff", "mean", "pad", "reshape", "stack", "sum", "take", "transpose"}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in COMPILED else pytest.mark.kernels("python"))
        for name in sorted(FUNCTION_CASES)
    ],
)
def test_functions(name: str) -> None:
    function, x = FUNCTION_CASES[name]
    wanted = function(x)
    check(function(tracer.tensor(x)), wanted)
    if "nonzero" not in name and name != "argwhere":  # their sizes depend on elements
        check(trace(function)(x), wanted)


def test_every_function_of_the_table_has_a_case() -> None:
    assert {f.__name__ for f in FUNCTIONS} == set(FUNCTION_CASES) | NOT_TENSORS


def test_functions_that_give_python_values() -> None:
    t = tracer.tensor(A)
    assert np.shape(t) == (3, 4)
    assert np.ndim(t) == 2
    assert np.size(t) == 12
    assert np.size(t, 1) == 4
    assert np.allclose(t, A + 1e-12) is True
    assert np.array_equal(t, A) is True
    assert np.array_equal(t, A[:1]) is False
    assert np.array_equal(tracer.tensor([np.nan]), np.array([np.nan]), equal_nan=True)


def test_arrays_come_out() -> None:
    t = tracer.tensor(A)
    array = np.asarray(t)
    assert type(array) is np.ndarray
    assert np.shares_memory(array, np.asarray(t))
    assert not np.shares_memory(np.array(t), array)
    assert np.asarray(t, np.float32).dtype == np.float32
    np.testing.assert_array_equal(A, t)
    assert float(np.float64(t.sum())) == A.sum()
    assert [int(x) for x in np.asarray(tracer.tensor([1, 2]))] == [1, 2]
    assert repr(np.array([1.0])[0] * t[0, 0]).startswith("tensor(")


def test_array_operators_are_recorded_too() -> None:
    x = tracer.tensor(A, requires_grad=True)
    y = (B * x + np.float64(2)) / (1 + B**2)
    assert isinstance(y, Tensor)
    y.sum().backward()
    check(x.grad, B / (1 + B**2))
    check(np.arange(4.0) @ tracer.tensor(B.T), np.arange(4.0) @ B.T)
    check(B < tracer.tensor(A), B < A)  # noqa: SIM300 - the array is asked first


def test_what_only_looks_at_arrays(tmp_path: Path) -> None:
    t = tracer.tensor(A, requires_grad=True)
    np.save(tmp_path / "a.npy", t)
    np.savez(tmp_path / "b.npz", t=t)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), A)
    np.testing.assert_array_equal(np.load(tmp_path / "b.npz")["t"], A)
    assert np.shares_memory(t, np.asarray(t))
    assert np.array2string(tracer.tensor([1, 2])) == "[1 2]"
    assert np.result_type(tracer.ones(2), np.float64) == np.float64
    with pytest.raises(tracer.TraceError, match="elements of a traced Tensor"):
        trace(lambda x: np.save(tmp_path / "c.npy", x))(A)
    assert not (tmp_path / "c.npy").exists()


def test_gradients_through_numpy_functions() -> None:
    def function(x: Any) -> Any:
        return np.sum(np.where(x > 0, np.exp(x), np.tanh(x)) * np.mean(x, axis=0))

    check(
        grad(function)(A),
        grad(lambda x: (tracer.where(x > 0, tracer.exp(x), tracer.tanh(x)) * x.mean(0)).sum())(A),
    )
    check(trace(grad(function))(A), np.asarray(grad(function)(A)))


def test_out() -> None:
    t, target, array = tracer.tensor(A), tracer.zeros((3, 4), dtype="float64"), np.zeros((3, 4))
    assert np.add(t, B, out=target) is target
    check(target, A + B)
    assert np.multiply(t, B, out=array) is array
    np.testing.assert_allclose(array, A * B)
    array += t
    np.testing.assert_allclose(array, A * B + A)
    check(np.sum(t, axis=0, out=target[0]), A.sum(0))
    with pytest.raises(tracer.GradError, match="into a NumPy array, which keeps none"):
        np.add(array, tracer.tensor(A, requires_grad=True), out=array)

    def writes(x: Any) -> Any:
        return np.add(x, 1, out=np.zeros((3, 4)))

    with pytest.raises(tracer.TraceError, match="writes into a NumPy array"):
        trace(writes)(A)


def test_operands_options_and_defaults_are_numpys() -> None:
    t, cube = tracer.tensor(A), np.arange(24.0).reshape(2, 3, 4)
    check(np.diagonal(tracer.tensor(cube)), np.diagonal(cube))  # ours is of the last two axes
    check(np.sum(t, 0, np.float32, None, True), A.sum(0, keepdims=True), 1e-6)
    check(np.mean(a=t, axis=0, dtype=np.float32), A.mean(0), 1e-6)
    assert np.mean(t, dtype=np.float32).dtype == np.float32
    check(np.concatenate((t, B), 1, dtype=np.float32), np.concatenate((A, B), 1), 1e-6)
    check(np.take(t, np.array([0, 2]), 1, mode="ra" + "ise"), A[:, [0, 2]])
    check(np.copy(t, order="C"), A)
    check(np.argmax(t, 1, tracer.zeros(3, dtype="int64")), A.argmax(1))
    check(np.full_like(t, 3, shape=(2,)), np.full(2, 3.0))
    check(np.clip(t, a_min=0, a_max=None), np.clip(A, 0, None))
    check(np.clip(t, min=-1, max=1), np.clip(A, -1, 1))


def test_reductions_of_universal_functions() -> None:
    t = tracer.tensor(A)
    check(np.add.reduce(t), np.add.reduce(A))
    check(np.maximum.reduce(t, axis=1), A.max(1))
    check(np.logical_and.reduce(t > -5, axis=None), np.True_)
    check(np.add(t, 1, dtype=np.float32), (A + 1).astype(np.float32), 1e-6)
    check(np.add(t, 1, where=True), A + 1)
    check(np.divmod(t, B), np.divmod(A, B))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda t: np.sort(t), "numpy.sort"),
        (lambda t: np.linalg.inv(t), "numpy.linalg.inv"),
        (lambda t: np.fft.fft(t), "numpy.fft.fft"),
        (lambda t: np.median(t), "numpy.median"),
        (lambda t: np.gcd(t, t), "numpy.gcd"),
        (lambda t: np.add.accumulate(t), "numpy.add.accumulate"),
        (lambda t: np.add.outer(t, t), "numpy.add.outer"),
        (lambda t: np.unique(t), "numpy.unique"),
    ],
)
def test_what_is_not_offered_says_so(call: Callable[[Any], Any], name: str) -> None:
    with pytest.raises(
        TypeError, match=rf"{name} is not recorded on Tensors; use .*np\.asarray"
    ) as caught:
        call(tracer.tensor(A))
    assert isinstance(caught.value, tracer.ArgumentError)
    assert "test_numpy_protocol.py" in str(caught.value)


def test_arguments_that_are_not_offered_say_so() -> None:
    t = tracer.tensor(A)
    with pytest.raises(
        tracer.ArgumentError, match=r"numpy\.sum on a Tensor takes no argument 'where'"
    ):
        np.sum(t, where=A > 0)
    with pytest.raises(
        tracer.ArgumentError, match=r"numpy\.add on a Tensor takes no argument 'where'"
    ):
        np.add(t, 1, where=A > 0)
    with pytest.raises(tracer.ArgumentError, match=r"numpy\.einsum .* takes no argument 'dtype'"):
        np.einsum("ij->i", t, dtype=np.float32)
    with pytest.raises(tracer.ArgumentError, match=r"numpy\.take .* takes no argument 'mode'"):
        np.take(t, [0], mode="wrap")
    with pytest.raises(tracer.ArgumentError, match=r"numpy\.clip .* takes no argument 'casting_'"):
        np.clip(t, 0, 1, casting_="safe")
    with pytest.raises(tracer.ArgumentError, match=r"numpy\.meshgrid .* no argument 'sparse'"):
        np.meshgrid(t[0], t[0], sparse=True)
    with pytest.raises(tracer.ArgumentError, match='order="C" only'):
        np.reshape(t, (4, 3), order="F")


def test_other_libraries_take_the_memory_by_dlpack() -> None:
    x = tracer.tensor([[1.0, 2.0], [3.0, 4.0]])
    array = np.from_dlpack(x.T)
    assert array.dtype == np.float32 and array.tolist() == [[1, 3], [2, 4]]
    assert np.shares_memory(array, np.asarray(x))
    with pytest.raises(tracer.GradError, match=r"use t.detach\(\).numpy\(\)"):
        np.from_dlpack(x.requires_grad_())
    with pytest.raises(tracer.TraceError, match="elements of a traced Tensor"):
        tracer.trace(np.from_dlpack)(tracer.ones(3))
