"""The functions of `tracer` against NumPy and SciPy in float64, and compiled against eager."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special as special

import tracer
from ops.dims import Dim
from ops.table import TABLE
from ops.types import DTYPES, Type, numpy_dtype
from tracer import Tensor
from tracer.functions.methods import attach
from tracer.ir.graph import Graph, Value
from tracer.ir.interpreter import interpret
from tracer.nn import functional
from tracer.tracing.recording.recorder import Recorder, recording

pytestmark = pytest.mark.cpu

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((3, 4)), RNG.standard_normal((3, 4))
POSITIVE = np.abs(A) + 0.1
UNIT = np.tanh(A)
N, J = RNG.integers(-9, 9, (3, 4)), RNG.integers(1, 5, (3, 4))
CUBE = RNG.standard_normal((2, 3, 4, 5))
ROOT = Path(__file__).resolve().parents[2]


def check(got: Any, wanted: Any, tolerance: float = 1e-12) -> None:
    """Equal shapes, and values within a relative tolerance; tuples member by member."""
    if isinstance(wanted, tuple | list):
        assert len(got) == len(wanted)
        for g, w in zip(got, wanted, strict=True):
            check(g, w, tolerance)
        return
    assert isinstance(got, tracer.Tensor)
    assert got.shape == np.shape(wanted)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=tolerance, atol=tolerance)


# ---- one function of elements, one case each -----------------------------------------------------

UNARY: list[tuple[str, Callable[..., Any], Array]] = [
    ("abs", np.abs, A),
    ("acos", np.arccos, UNIT),
    ("acosh", np.arccosh, POSITIVE + 1),
    ("asin", np.arcsin, UNIT),
    ("asinh", np.arcsinh, A),
    ("atan", np.arctan, A),
    ("atanh", np.arctanh, UNIT),
    ("ceil", np.ceil, A * 3),
    ("cos", np.cos, A),
    ("cosh", np.cosh, A),
    ("elu", lambda x: np.where(x < 0, np.expm1(x), x), A),
    ("erf", special.erf, A),
    ("erfc", special.erfc, A),
    ("exp", np.exp, A),
    ("exp2", np.exp2, A),
    ("expm1", np.expm1, A),
    ("floor", np.floor, A * 3),
    ("gelu", lambda x: x * special.ndtr(x), A),
    ("hard_sigmoid", lambda x: np.clip(x / 6 + 0.5, 0, 1), A * 4),
    ("hard_swish", lambda x: x * np.clip(x / 6 + 0.5, 0, 1), A * 4),
    ("isfinite", np.isfinite, np.array([0.0, np.inf, np.nan])),
    ("isinf", np.isinf, np.array([0.0, -np.inf, np.nan])),
    ("isnan", np.isnan, np.array([0.0, -np.inf, np.nan])),
    ("leaky_relu", lambda x: np.where(x < 0, 0.01 * x, x), A),
    ("log", np.log, POSITIVE),
    ("log10", np.log10, POSITIVE),
    ("log1p", np.log1p, POSITIVE),
    ("log2", np.log2, POSITIVE),
    ("logical_not", np.logical_not, np.array([0.0, 2.0, np.nan])),
    ("mish", lambda x: x * np.tanh(np.logaddexp(x, 0)), A),
    ("nan_to_num", np.nan_to_num, np.array([np.inf, -np.inf, np.nan, 1.5])),
    ("negative", np.negative, A),
    ("positive", np.positive, A),
    ("reciprocal", np.reciprocal, A),
    ("relu", lambda x: np.maximum(x, 0), A),
    ("round", np.round, A * 3),
    ("rsqrt", lambda x: 1 / np.sqrt(x), POSITIVE),
    (
        "selu",
        lambda x: 1.0507009873554805 * np.where(x < 0, 1.6732632423543772 * np.expm1(x), x),
        A,
    ),
    ("sigmoid", special.expit, A),
    ("sign", np.sign, A),
    ("signbit", np.signbit, np.array([0.0, -0.0, -1.0, 2.0])),
    ("silu", lambda x: x * special.expit(x), A),
    ("sin", np.sin, A),
    ("sinh", np.sinh, A),
    ("softplus", lambda x: np.logaddexp(x, 0), A),
    ("softsign", lambda x: x / (1 + np.abs(x)), A),
    ("sqrt", np.sqrt, POSITIVE),
    ("square", np.square, A),
    ("tan", np.tan, A),
    ("tanh", np.tanh, A),
    ("trunc", np.trunc, A * 3),
]


@pytest.mark.parametrize(("name", "reference", "x"), UNARY, ids=[case[0] for case in UNARY])
def test_functions_of_one_operand(name: str, reference: Callable[..., Any], x: Array) -> None:
    got = getattr(tracer, name)(x)
    wanted = reference(x)
    check(got, wanted, 1e-7 if name == "selu" else 1e-12)  # selu's constants are ONNX's, float32
    assert got.dtype == wanted.dtype


BINARY: list[tuple[str, Callable[..., Any], Array, Array]] = [
    ("add", np.add, A, B),
    ("atan2", np.arctan2, A, B),
    ("bitwise_and", np.bitwise_and, N, J),
    ("bitwise_left_shift", np.left_shift, N, J),
    ("bitwise_or", np.bitwise_or, N, J),
    ("bitwise_right_shift", np.right_shift, N, J),
    ("bitwise_xor", np.bitwise_xor, N, J),
    ("copysign", np.copysign, A, B),
    ("divide", np.divide, A, B),
    ("equal", np.equal, N, J),
    ("floor_divide", np.floor_divide, A, B),
    ("fmod", np.fmod, A, B),
    ("greater", np.greater, A, B),
    ("greater_equal", np.greater_equal, N, J),
    ("hypot", np.hypot, A, B),
    (
        "isclose",
        np.isclose,
        np.array([1.0, np.inf, np.nan, 0]),
        np.array([1 + 1e-6, np.inf, np.nan, 1]),
    ),
    ("less", np.less, A, B),
    ("less_equal", np.less_equal, N, J),
    ("logaddexp", np.logaddexp, A, B),
    ("xlogy", lambda x, y: x * np.log(y), A, np.abs(B)),
    ("logical_and", np.logical_and, N, J - 2),
    ("logical_or", np.logical_or, N, J - 2),
    ("logical_xor", np.logical_xor, N, J - 2),
    ("maximum", np.maximum, A, B),
    ("minimum", np.minimum, A, B),
    ("multiply", np.multiply, A, B),
    ("not_equal", np.not_equal, N, J),
    ("pow", np.power, POSITIVE, B),
    ("remainder", np.remainder, A, B),
    ("subtract", np.subtract, A, B),
]


@pytest.mark.parametrize(("name", "reference", "x", "y"), BINARY, ids=[case[0] for case in BINARY])
def test_functions_of_two_operands(
    name: str, reference: Callable[..., Any], x: Array, y: Array
) -> None:
    function = getattr(tracer, name)
    got = function(x, y)
    check(got, reference(x, y))
    assert got.dtype == reference(x, y).dtype
    check(function(x[..., None], y[0]), reference(x[..., None], y[0]))


@pytest.mark.parametrize("name", ["floor_divide", "remainder", "fmod", "pow", "maximum"])
def test_integers_stay_integers(name: str) -> None:
    reference = {"pow": np.power}.get(name) or getattr(np, name)
    got = getattr(tracer, name)(N, J)
    check(got, reference(N, J))
    assert got.dtype == np.int64


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, 0.5, 2.5, -2])
def test_powers_by_numbers(exponent: float) -> None:
    check(tracer.pow(POSITIVE, exponent), POSITIVE**exponent)
    check(tracer.pow(exponent + 3, A), np.power(exponent + 3.0, A))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 5, 30, 63, 64])
def test_integer_powers_by_numbers_wrap_around(exponent: int) -> None:
    with np.errstate(all="ignore"):
        check(tracer.pow(N, exponent), N**exponent)


def test_clip_and_lerp() -> None:
    check(tracer.clip(A, -0.5, 0.5), np.clip(A, -0.5, 0.5))
    check(tracer.clip(A, min=0.0), np.clip(A, 0, None))
    check(tracer.clip(A, max=B), np.minimum(A, B))
    check(tracer.clip(N, -2, 3), np.clip(N, -2, 3))
    check(tracer.clip(N, max=3), np.clip(N, None, 3))
    check(tracer.lerp(A, B, 0.25), A + 0.25 * (B - A))
    check(tracer.where(A > 0, A, 0.0), np.where(A > 0, A, 0))


def test_rounding_to_decimals() -> None:
    check(tracer.round(A, 2), np.round(A, 2))
    check(tracer.round(A * 100, decimals=-1), np.round(A * 100, -1))
    assert tracer.round(N).dtype == np.int64


def test_bools_have_logic() -> None:
    p, q = A > 0, B > 0
    check(tracer.bitwise_and(p, q), p & q)
    check(tracer.bitwise_invert(p), ~p)
    check(tracer.tensor(p) ^ q, p ^ q)
    check(tracer.add(p, q), p | q)
    check(tracer.multiply(p, q), p & q)
    check(tracer.relu(np.array([-1, 2], np.int32)), np.array([0, 2], np.int32))
    check(tracer.relu(np.array([1, 2], np.uint8)), np.array([1, 2], np.uint8))


# ---- reductions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, 1, -1, (0, 1), (1, 0)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(axis: Any, keepdims: bool) -> None:
    keywords = {"axis": axis, "keepdims": keepdims}
    for name in ("sum", "prod", "max", "min", "mean", "var", "std"):
        check(getattr(tracer, name)(A, **keywords), getattr(np, name)(A, **keywords))
    check(tracer.logsumexp(A, **keywords), special.logsumexp(A, **keywords))
    check(tracer.vector_norm(A, **keywords), np.sqrt(np.sum(A * A, **keywords)))
    check(tracer.any(A > 1, **keywords), np.any(A > 1, **keywords))
    check(tracer.all(A > -2, **keywords), np.all(A > -2, **keywords))
    check(tracer.count_nonzero(N, **keywords), np.count_nonzero(N, **keywords))
    check(tracer.var(A, correction=1, **keywords), np.var(A, ddof=1, **keywords))
    if not isinstance(axis, tuple):
        for name in ("argmax", "argmin"):
            check(getattr(tracer, name)(A, **keywords), getattr(np, name)(A, **keywords))


def test_types_of_sums() -> None:
    for dtype, wanted in [
        ("bool", "int64"),
        ("int8", "int64"),
        ("int32", "int64"),
        ("uint8", "uint64"),
    ]:
        assert tracer.sum(np.ones(300, dtype)).dtype == wanted
        assert int(tracer.sum(np.ones(300, dtype))) == 300
    assert tracer.sum(np.ones(3, np.float16)).dtype == np.float16
    assert tracer.sum(np.ones(3, np.float32), dtype=tracer.float64).dtype == np.float64
    assert tracer.mean(np.array([1, 2], np.int32)).dtype == np.float32
    large = np.full(3, 2**25 + 1)
    assert float(tracer.mean(large)) == np.float32(2**25 + 1)
    assert float(tracer.var(np.array([2**25, 2**25 + 2]))) == 1.0


@pytest.mark.parametrize("order", [0, 1, 2, 3, np.inf, -np.inf])
def test_norms(order: float) -> None:
    check(tracer.vector_norm(A, axis=1, ord=order), np.linalg.norm(A, order, axis=1))


def test_cumulative_sums() -> None:
    check(tracer.cumulative_sum(A, axis=1), np.cumsum(A, 1))
    check(tracer.cumulative_sum(A[0]), np.cumsum(A[0]))
    with_first = tracer.cumulative_sum(A, axis=0, include_initial=True)
    check(with_first, np.concatenate([np.zeros((1, 4)), np.cumsum(A, 0)]))


def test_softmax() -> None:
    check(tracer.softmax(A), special.softmax(A, -1))
    check(tracer.softmax(A, axis=0), special.softmax(A, 0))
    check(tracer.log_softmax(A, axis=1), special.log_softmax(A, 1))


def test_normalizations() -> None:
    scale, bias = B[0], B[1]
    centred = (A - A.mean(1, keepdims=True)) / np.sqrt(A.var(1, keepdims=True) + 1e-5)
    check(tracer.layer_norm(A), centred)
    check(tracer.layer_norm(A, scale, bias), centred * scale + bias)
    check(tracer.layer_norm(A, None, bias), centred + bias)
    check(
        tracer.rms_norm(A, scale, epsilon=0.1),
        A / np.sqrt((A * A).mean(1, keepdims=True) + 0.1) * scale,
    )


# ---- arrangement ---------------------------------------------------------------------------------


def test_shapes_and_axes() -> None:
    check(tracer.reshape(A, (2, -1)), A.reshape(2, -1))
    check(tracer.reshape(A, 12), A.reshape(12))
    check(tracer.permute_dims(CUBE, (3, 0, -2, 1)), np.transpose(CUBE, (3, 0, 2, 1)))
    check(tracer.matrix_transpose(CUBE), np.swapaxes(CUBE, -1, -2))
    check(tracer.moveaxis(CUBE, (0, 1), (-1, 0)), np.moveaxis(CUBE, (0, 1), (-1, 0)))
    check(tracer.swapaxes(CUBE, 0, -1), np.swapaxes(CUBE, 0, -1))
    check(tracer.expand_dims(A, axis=(0, -1)), np.expand_dims(A, (0, -1)))
    check(tracer.squeeze(A[None, :, None]), A)
    check(tracer.squeeze(A[None, :, None], axis=0), A[:, None])
    check(tracer.broadcast_to(A[:, :1], (2, 3, 4)), np.broadcast_to(A[:, :1], (2, 3, 4)))
    check(tracer.broadcast_arrays(A[:, :1], A[0]), np.broadcast_arrays(A[:, :1], A[0]))
    check(tracer.flatten(CUBE, 1, 2), CUBE.reshape(2, 12, 5))
    check(tracer.flatten(np.float64(3)), np.array([3.0]))


def test_rolls_flips_triangles() -> None:
    check(tracer.flip(A), np.flip(A))
    check(tracer.flip(A, axis=1), np.flip(A, 1))
    check(tracer.roll(A, 5), np.roll(A, 5))
    check(tracer.roll(A, (1, -2), axis=(0, 1)), np.roll(A, (1, -2), (0, 1)))
    check(tracer.roll(A, 1, axis=(0, 1)), np.roll(A, 1, (0, 1)))
    check(tracer.tril(CUBE, k=1), np.tril(CUBE, 1))
    check(tracer.triu(CUBE, k=-1), np.triu(CUBE, -1))
    check(tracer.diagonal(CUBE), np.diagonal(CUBE, 0, -2, -1))
    check(tracer.diagonal(A, offset=1), np.diagonal(A, 1))


def test_joining_and_splitting() -> None:
    check(tracer.concat([A, B, A[:1]]), np.concatenate([A, B, A[:1]]))
    check(tracer.concat((A, B), axis=-1), np.concatenate((A, B), -1))
    check(tracer.concat([A, N], axis=None), np.concatenate([A, N], None))
    check(tracer.stack([A, B], axis=1), np.stack([A, B], 1))
    check(tracer.unstack(A, axis=1), list(A.T))
    check(tracer.split(A, 2, axis=1), np.split(A, 2, 1))
    check(tracer.split(A, [1, 3, 9], axis=1), np.split(A, [1, 3, 9], 1))
    check(tracer.split(A, [2, -1], axis=1), np.split(A, [2, -1], 1))
    check(tracer.tile(A, (2, 1, 3)), np.tile(A, (2, 1, 3)))
    check(tracer.tile(A, 2), np.tile(A, 2))
    check(tracer.repeat(A, 2), np.repeat(A, 2))
    check(tracer.repeat(A, 3, axis=1), np.repeat(A, 3, 1))
    check(tracer.repeat(A, [1, 0, 2], axis=0), np.repeat(A, [1, 0, 2], 0))


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("width", [1, (1, 2), ((1, 2), (0, 3))])
def test_pads(mode: Any, width: Any) -> None:
    check(tracer.pad(A, width, mode), np.pad(A, width, mode))


def test_indices() -> None:
    order = np.argsort(A, 1)
    check(tracer.take(A, [0, 2, -1], axis=0), np.take(A, [0, 2, -1], 0))
    check(tracer.take(A, np.array([[0, 5]])), np.take(A, [[0, 5]]))
    check(tracer.take_along_axis(A, order), np.sort(A, 1))
    check(tracer.take_along_axis(A, order[:1], axis=1), np.take_along_axis(A, order[:1], 1))
    check(tracer.gather(A, order[:2, :1], axis=1), np.take_along_axis(A[:2], order[:2, :1], 1))
    wanted = np.zeros((3, 4))
    np.add.at(wanted, [0, 2, 0], B)
    check(tracer.index_add(np.zeros((3, 4)), [0, 2, 0], B, axis=0), wanted)
    check(tracer.index_add(A, [1, 1], 1.0, axis=1), A + np.array([0, 2, 0, 0]))
    wanted = A.copy()
    np.put_along_axis(wanted, order[:, :1], np.take_along_axis(A, order[:, :1], 1) + 2, 1)
    check(tracer.scatter_add(A, order[:, :1], 2.0, axis=1), wanted)
    check(tracer.one_hot([0, 2, 5], 3), np.array([[1, 0, 0], [0, 0, 1], [0, 0, 0]]))
    check(tracer.one_hot([0, 2], axis=0, dtype="int64"), np.eye(3, dtype=np.int64)[:, [0, 2]])
    check(tracer.nonzero(A > 0), np.nonzero(A > 0))


# ---- creation ------------------------------------------------------------------------------------


def test_creation() -> None:
    assert tracer.zeros(3).dtype == tracer.ones((2, 2)).dtype == np.float32
    check(tracer.full((2, 3), 1.5), np.full((2, 3), 1.5))
    assert tracer.full(2, 7).dtype == np.int64
    assert tracer.full(2, True).dtype == np.bool_
    check(tracer.eye(3, 4, k=1), np.eye(3, 4, 1))
    check(tracer.eye(2), np.eye(2))
    check(tracer.linspace(0, 1, 5, dtype="float64"), np.linspace(0, 1, 5))
    check(tracer.linspace(0, 10, 4, dtype=int), np.linspace(0, 10, 4, dtype=int))
    check(tracer.zeros_like(N), np.zeros_like(N))
    check(tracer.full_like(A, 2), np.full_like(A, 2))
    check(tracer.empty((2, 0)), np.empty((2, 0)))
    assert tracer.ones_like(A, dtype="int8").dtype == np.int8
    for indexing in ("xy", "ij"):
        check(
            tracer.meshgrid(A[0], B[:, 0], A[1], indexing=indexing),
            np.meshgrid(A[0], B[:, 0], A[1], indexing=indexing),
        )


@pytest.mark.parametrize(
    "bounds", [(5,), (2, 7), (1, 10, 3), (10, 1, -3), (0, 1, 0.1), (1, 1.3, 0.1), (5, 0), (2.5,)]
)
def test_ranges(bounds: tuple[float, ...]) -> None:
    got = tracer.arange(*bounds)
    assert got.dtype == (np.float32 if any(isinstance(b, float) for b in bounds) else np.int64)
    check(got, np.arange(*bounds), 1e-6)


def test_data_becomes_tensors() -> None:
    assert tracer.tensor([1.0, 2.0]).dtype == np.float32
    assert tracer.tensor([1, 2]).dtype == np.int64
    assert tracer.tensor([True]).dtype == np.bool_
    assert tracer.tensor([]).dtype == np.float32
    assert tracer.tensor(A).dtype == np.float64
    assert tracer.tensor(np.float64(1)).dtype == np.float64
    assert tracer.tensor(A.astype(">f8")).dtype == np.float64
    assert tracer.tensor([1.7, -1.7, np.nan], dtype="int8").tolist() == [1, -1, 0]
    check(tracer.tensor([tracer.tensor(A[0]), B[0]]), np.stack([A[0], B[0]]))


def test_which_results_share_memory() -> None:
    array = A.copy()
    assert np.shares_memory(np.asarray(tracer.asarray(array)), array)
    assert not np.shares_memory(np.asarray(tracer.tensor(array)), array)
    assert not np.shares_memory(np.asarray(tracer.asarray(array, copy=True)), array)
    t = tracer.asarray(array)
    assert tracer.asarray(t) is t
    assert tracer.astype(t, "float64", copy=False) is t
    for own in (
        tracer.zeros((2, 3)),
        tracer.full((2, 2), 1.0),
        t + 0,
        tracer.positive(t),
        t.clone(),
    ):
        assert np.asarray(own).flags.writeable
        assert not np.shares_memory(np.asarray(own), array)


# ---- products ------------------------------------------------------------------------------------


def test_products() -> None:
    check(tracer.matmul(A, B.T), A @ B.T)
    check(tracer.matmul(A[0], B.T), A[0] @ B.T)
    check(tracer.matmul(A, B[0]), A @ B[0])
    check(tracer.matmul(A[0], B[0]), A[0] @ B[0])
    check(tracer.matmul(CUBE, CUBE[0, 0].T), CUBE @ CUBE[0, 0].T)
    check(tracer.vecdot(A, B), (A * B).sum(-1))
    check(tracer.vecdot(A, B[:, :1] * np.ones((1, 4)), axis=0), (A * B[:, :1]).sum(0))
    check(tracer.outer(A[0], B), np.outer(A[0], B))
    check(
        tracer.tensordot(CUBE, CUBE, ([3, 2], [3, 2])), np.tensordot(CUBE, CUBE, ([3, 2], [3, 2]))
    )
    check(tracer.tensordot(A, B.T, 1), np.tensordot(A, B.T, 1))
    check(tracer.tensordot(A, B, 0), np.tensordot(A, B, 0))
    other = RNG.standard_normal((2, 5, 3))
    check(tracer.dot(CUBE, other), np.dot(CUBE, other))
    check(tracer.dot(A, 2.0), A * 2)


EINSUMS = [
    ("ij,ij->", (A, B)),
    ("ij->ji", (A,)),
    ("ij", (A,)),
    ("ji", (A,)),
    ("ij->", (A,)),
    ("ij,jk,kl->il", (A, B.T, A)),
    ("...ij,...jk->...ik", (CUBE, CUBE.swapaxes(-1, -2)[0])),
    ("ij,kl->ijkl", (A, B)),
    ("ij,i->j", (A, A[:, 0])),
    ("bij,bkj->bik", (CUBE[0], CUBE[1])),
    ("i,i,i->i", (A[0], B[0], A[1])),
    ("ij,j", (A, B[0])),
    ("...i,...i", (A, B[:1])),
    ("ii", (A[:, :3],)),
    ("iij->ij", (CUBE[:, :2, :, 0],)),
    ("ab,cd,bc->ad", (A, B, np.ones((4, 3)))),
    ("abcd,d->", (CUBE, A.reshape(-1)[:5])),
]


@pytest.mark.parametrize(("subscripts", "operands"), EINSUMS, ids=[case[0] for case in EINSUMS])
def test_einsum(subscripts: str, operands: tuple[Array, ...]) -> None:
    check(tracer.einsum(subscripts, *operands), np.einsum(subscripts, *operands))


# ---- every operator has a function ---------------------------------------------------------------

# What has no function of its own, and why.
INTERNAL = {
    "Call": "what a Function recorded",
    "Constant": "what tracer.tensor makes in a trace",
    "Dimension": "a symbolic size as a value",
    "Flatten": "tracer.flatten takes any axes together, which is a Reshape",
    "Gate": "products of gradient rules that share a factor",
    "If": "control flow",
    "Loop": "control flow",
    "PhiloxBits": "what random numbers are made of",
    "Scan": "control flow",
    "Xdivy": "the quotient of gradient rules",
}


def test_every_operator_of_the_table_is_behind_a_function() -> None:
    files = [*(ROOT / "tracer" / "functions").glob("*.py"), ROOT / "tracer" / "random.py"]
    files.append(ROOT / "tracer" / "nn" / "losses.py")
    named = {name for path in files for name in re.findall(r'"([A-Z]\w+)"', path.read_text())}
    assert set(TABLE) - named - set(INTERNAL) == set()


def test_public_names_are_documented() -> None:
    for name in dir(tracer):
        value = getattr(tracer, name)
        if (
            not name.startswith("_")
            and callable(value)
            and getattr(value, "__module__", "").startswith("tracer.func")
        ):
            summary = (value.__doc__ or "").strip().partition("\n")[0]
            assert summary.endswith((".", ":")), name


# ---- symbolic sizes ------------------------------------------------------------------------------

SYMBOLIC: list[Callable[[Any, Any], Any]] = [
    lambda x, k: x.mean() + x.std(0) / x.shape[0],
    lambda x, k: x.reshape(x.shape[0], -1, 2).flatten(1),
    lambda x, k: tracer.stack([x[0], x[-1], x[::-1][0]]),
    lambda x, k: x[1:, ::2],
    lambda x, k: x[tracer.arange(x.shape[0]), k],
    lambda x, k: tracer.concat([x, x])[:, None].squeeze(),
    lambda x, k: tracer.split(tracer.pad(x, ((0, 0), (1, 1))), 3, axis=1)[1],
    lambda x, k: tracer.einsum("ij,kj->ik", x, x) @ x,
    lambda x, k: tracer.take_along_axis(x, k[:, None], axis=1),
    lambda x, k: tracer.full(x.shape, 1.0) + tracer.zeros_like(x),
    lambda x, k: x[:, :1].expand(-1, 4) * tracer.one_hot(k, 4),
    lambda x, k: tracer.roll(tracer.tile(x, (2, 1)), 1, axis=0),
    lambda x, k: tracer.softmax(x, axis=0) + x.argmax() + x.max(dim=0).values,
    lambda x, k: functional.cross_entropy(x, k, label_smoothing=0.1),
    lambda x, k: tracer.grad(lambda x: functional.cross_entropy(x, k))(x),
    lambda x, k: functional.normalize(functional.layer_norm(x, 4)),
    lambda x, k: np.sum(x, axis=0) / np.shape(x)[0],
]


@pytest.mark.parametrize("number", range(len(SYMBOLIC)))
def test_symbolic_sizes(number: int) -> None:
    """Recorded with n rows, each function has the shape, and with n given the values, that it has eagerly."""
    function, n = SYMBOLIC[number], Dim.symbol("n")
    recorder = Recorder("symbolic")
    inputs = [Value(Type("float64", (n, 4))), Value(Type("int64", (n,)))]
    with recording(recorder):
        result = function(*(Tensor.of_value(v, recorder) for v in inputs))
        value = recorder.value_of(result)
    graph = Graph(tuple(inputs), tuple(recorder.builder.nodes), (value,))
    rows, classes = RNG.standard_normal((5, 4)), np.array([0, 3, 1, 2, 3])
    wanted = function(tracer.tensor(rows), tracer.tensor(classes))
    assert value.type.substitute({"n": 5}).shape == wanted.shape
    (got,) = interpret(graph, [rows, classes])
    np.testing.assert_allclose(got, np.asarray(wanted), rtol=1e-10, atol=1e-10)


# ---- docs/functions.md ---------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "functions.md").read_text(encoding="utf-8")
MATRIX = np.array([[3.0, -1.0, 2.0], [0.5, 4.0, -2.5]])
BOTH = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| `([^`]+)` \| .+ \| .+ \|$", PAGE, re.MULTILINE)
EITHER = re.findall(r"^\| `(tracer\.[^`]+)` \| `([^`]+)` \|$", PAGE, re.MULTILINE)

# Arguments for the shared names that the page does not list: function and method agree on them.
AGREEING: dict[str, tuple[Any, ...]] = {
    "add": (2,),
    "all": (0, True),
    "allclose": (MATRIX,),
    "any": (None,),
    "argmax": (1, True),
    "argmin": (0,),
    "broadcast_to": ((2, 2, 3),),
    "divide": (2.0,),
    "dot": (),
    "flatten": (0, -1),
    "log_softmax": (0,),
    "logsumexp": (1, True),
    "index_put": (([0, 1], [2, 0]), 9.0),
    "masked_scatter": (MATRIX > 2, MATRIX),
    "masked_select": (MATRIX > 0,),
    "mean": (0, True),
    "moveaxis": (0, 1),
    "reshape": ((3, 2),),
    "roll": (1, 0),
    "select_scatter": (9.0, 0, 1),
    "slice_scatter": (9.0, 1, 0, None, 2),
    "softmax": (0,),
    "subtract": (2,),
    "swapaxes": (0, 1),
    "tile": ((2, 1),),
    "tril": (1,),
    "triu": (-1,),
}

ORDER = {"where", "gather", "scatter"}


def shared_names() -> set[str]:
    """Names that are a function of `tracer` and another function as a method."""
    return {
        name
        for name, method in attach.names().items()
        if not name.startswith("_")
        and callable(method)
        and callable(function := getattr(tracer, name, None))
        and function is not method
    }


def outcome(code: str) -> Any:
    """What a cell of the page gives, as something to compare."""
    try:
        result = eval(code, {"tracer": tracer, "x": tracer.tensor(MATRIX)})
    except tracer.TracerError as error:
        return type(error)
    if isinstance(result, tuple):
        return type(result).__name__, [np.asarray(r).tolist() for r in result]
    return (
        (result.shape, np.asarray(result).tolist()) if isinstance(result, tracer.Tensor) else result
    )


@pytest.mark.parametrize(("name", "function", "method"), BOTH, ids=[row[0] for row in BOTH])
def test_names_on_the_page_mean_two_things(name: str, function: str, method: str) -> None:
    assert f"tracer.{name}(" in function
    assert f".{name}(" in method.replace("tracer.", "")
    if name in ORDER:  # the order of arguments is all that differs
        assert outcome(function) == outcome(method)
        function = method.replace("x.", "tracer.").replace("(", "(x, ", 1)
    assert outcome(function) != outcome(method)


@pytest.mark.parametrize(("function", "method"), EITHER, ids=[row[0] for row in EITHER])
def test_names_on_the_page_mean_one_thing(function: str, method: str) -> None:
    assert outcome(function) == outcome(method)


def test_all_other_shared_names_agree() -> None:
    assert shared_names() == {row[0] for row in BOTH} | set(AGREEING)
    x = tracer.tensor(MATRIX)
    for name, arguments in AGREEING.items():
        if name == "dot":
            check(tracer.dot(x[0], x[1]), np.asarray(x[0].dot(x[1])))
            continue
        ours, methods_own = getattr(tracer, name)(x, *arguments), getattr(x, name)(*arguments)
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(methods_own), err_msg=name)


# ---- compiled ------------------------------------------------------------------------------------


def test_a_traced_function_equals_the_eager_one() -> None:
    def everything(x: Any, y: Any, labels: Any, scale: float) -> dict[str, Any]:
        z = tracer.stack([x, y], axis=1)
        left, right = tracer.split(z, 2, axis=2)
        return {
            "elements": tracer.clip(x * scale + 2, -1, 1) ** 3 / (tracer.abs(y) + 1),
            "rows": tracer.softmax(x, axis=0) - tracer.mean(y, axis=1, keepdims=True),
            "part": (left - right)[..., ::-1, 1:][:, 0],
            "taken": tracer.take(x, labels, axis=1) + tracer.one_hot(labels, 4)[:3, :3],
            "places": tracer.argmax(y, axis=1) * 2 + tracer.sum(labels),
            "whole": tracer.einsum("ij,kj->ik", x, y) @ tracer.arange(3, dtype="float64"),
            "border": tracer.pad(tracer.roll(x, 1, axis=0), 1, "reflect").sum(axis=1)[1:4],
        }

    labels = np.array([3, 0, 2])
    eager = everything(A, B, labels, 0.5)
    compiled = tracer.trace(everything)(A, B, labels, 0.5)
    assert compiled.keys() == eager.keys()
    for name, wanted in eager.items():
        assert compiled[name].dtype == wanted.dtype, name
        check(compiled[name], np.asarray(wanted), 1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
def test_creation_in_every_type(dtype: str) -> None:
    for made in (
        tracer.ones(3, dtype=dtype),
        tracer.arange(1, 2, dtype=dtype),
        tracer.eye(2, dtype=dtype),
    ):
        assert made.dtype == numpy_dtype(dtype) == getattr(tracer, dtype)
        assert float(made.astype("float64").max()) == 1.0
