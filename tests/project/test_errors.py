"""Mistakes of users: the error's class, its text, the line it names, and that the process goes on."""

from __future__ import annotations

import copy
import pathlib
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ops
import tracer
import tracer.nn.functional as F
from tracer import trace
from tracer.interop.name_hints import NAMES

X = np.ones((2, 3), np.float32)
N = np.array([7, -7, 7, -7])
LOWEST = np.iinfo(np.int32).min

Case = tuple[str, Callable[[], Any], type[Exception], str]
CASES: list[Case] = [
    # shapes
    (
        "broadcast",
        lambda: tracer.tensor(X) + X.T,
        tracer.ShapeError,
        r"\(2, 3\) and \(3, 2\) do not broadcast",
    ),
    (
        "matmul",
        lambda: tracer.matmul(X, X),
        tracer.ShapeError,
        r"matmul of float32\[2, 3\] and float32\[2, 3\].*\(3\) must equal.*\(2\)",
    ),
    (
        "matmul_0d",
        lambda: tracer.tensor(X) @ 2.0,
        tracer.ShapeError,
        r"at least 1 axis.*use \* for scaling",
    ),
    (
        "reshape",
        lambda: tracer.reshape(X, (4, 2)),
        tracer.ShapeError,
        r"cannot reshape float32\[2, 3\] to \(4, 2\): 6 elements do not fill 8",
    ),
    (
        "reshape_unknown",
        lambda: tracer.reshape(X, (-1, -1)),
        tracer.ShapeError,
        "only one size can be -1",
    ),
    ("reshape_division", lambda: tracer.reshape(X, (-1, 4)), tracer.ShapeError, "cannot reshape"),
    ("reshape_zero", lambda: tracer.reshape(X[:0], (-1, 0)), tracer.ShapeError, "not determined"),
    ("concat", lambda: tracer.concat([X, X.T]), tracer.ShapeError, "equal but for axis 0"),
    ("concat_nothing", lambda: tracer.concat([]), tracer.ShapeError, "at least one operand"),
    (
        "stack",
        lambda: tracer.stack([X, X.T]),
        tracer.ShapeError,
        r"one shape, got float32\[2, 3\], float32\[3, 2\]",
    ),
    (
        "split",
        lambda: tracer.split(X, 2, axis=1),
        tracer.ShapeError,
        "does not split into 2 equal parts",
    ),
    (
        "einsum_sizes",
        lambda: tracer.einsum("ij,jk", X, X),
        tracer.ShapeError,
        "j has sizes 3 and 2",
    ),
    (
        "einsum_axes",
        lambda: tracer.einsum("i,ij", X, X),
        tracer.ShapeError,
        "term 'i' does not fit the 2 axes",
    ),
    (
        "einsum_count",
        lambda: tracer.einsum("ij,jk", X),
        tracer.ArgumentError,
        "names 2 operands, got 1",
    ),
    (
        "einsum_result",
        lambda: tracer.einsum("ij->k", X),
        tracer.ArgumentError,
        "only letters of the operands",
    ),
    (
        "tensordot",
        lambda: tracer.tensordot(X, X, 1),
        tracer.ShapeError,
        "sizes must be equal in pairs",
    ),
    (
        "squeeze",
        lambda: tracer.squeeze(X, axis=0),
        tracer.ShapeError,
        "axis 0 of float32.* has size 2, not 1",
    ),
    ("broadcast_to", lambda: tracer.broadcast_to(X, (2, 4)), tracer.ShapeError, "do not broadcast"),
    (
        "empty_max",
        lambda: tracer.max(X[:0]),
        tracer.ShapeError,
        r"axis 0 of float32\[0, 3\] has no elements, so none is the largest",
    ),
    ("empty_argmin", lambda: tracer.argmin(X[:0], axis=0), tracer.ShapeError, "no elements"),
    ("negative_size", lambda: tracer.zeros((2, -1)), tracer.ShapeError, "at least 0"),
    (
        "ragged",
        lambda: tracer.tensor([[1, 2], [3]]),
        tracer.ArgumentError,
        "nested sequences of unequal lengths",
    ),
    # axes
    (
        "axis",
        lambda: tracer.sum(X, axis=2),
        tracer.ShapeError,
        "axis 2 is out of range; possible: between -2 and 1",
    ),
    ("axis_twice", lambda: tracer.sum(X, axis=(0, -2)), tracer.ShapeError, "named twice"),
    (
        "axis_text",
        lambda: tracer.sum(X, axis="rows"),
        tracer.ArgumentError,
        "axis must be None, an integer or a tuple of integers, got 'rows'",
    ),
    (
        "axis_float",
        lambda: tracer.argmax(X, axis=1.0),
        tracer.ArgumentError,
        "axis must be None or an integer, got 1.0",
    ),
    ("permute", lambda: tracer.permute_dims(X, (0, 0)), tracer.ShapeError, "must order the axes"),
    (
        "moveaxis",
        lambda: tracer.moveaxis(X, 0, 5),
        tracer.ShapeError,
        "destination 5 is out of range",
    ),
    (
        "softmax_axis",
        lambda: tracer.softmax(X, axis=3),
        tracer.ShapeError,
        "axis 3 is out of range",
    ),
    (
        "shape_text",
        lambda: tracer.zeros("ab"),
        tracer.ArgumentError,
        "sequence of integers as shape, got 'ab'",
    ),
    ("shape_float", lambda: tracer.zeros(2.0), tracer.ArgumentError, "as shape, got 2.0"),
    # element types
    ("object", lambda: tracer.tensor([None]), tracer.DTypeError, "expected numbers, got list"),
    ("text", lambda: tracer.tensor("abc"), tracer.DTypeError, "expected numbers, got str"),
    (
        "complex",
        lambda: tracer.exp(np.ones(2, complex)),
        tracer.DTypeError,
        "unsupported element type complex128",
    ),
    (
        "dtype",
        lambda: tracer.zeros(2, dtype="float7"),
        tracer.DTypeError,
        "not an element type: 'float7'",
    ),
    (
        "subtract_bools",
        lambda: tracer.tensor(True) - True,
        tracer.DTypeError,
        "Sub: operands must be int8.*got bool",
    ),
    (
        "bits_of_floats",
        lambda: tracer.tensor(X) & 1,
        tracer.DTypeError,
        "BitwiseAnd: operands must be integers or bools, got float32",
    ),
    (
        "where",
        lambda: tracer.where(X, X, X),
        tracer.DTypeError,
        r"condition must be bool, got float32.*\(condition != 0\)",
    ),
    (
        "indices",
        lambda: tracer.take(X, X, axis=0),
        tracer.DTypeError,
        "indices must be integers, got float32.*cast",
    ),
    ("mask_as_indices", lambda: tracer.take(X, X > 0, axis=0), tracer.DTypeError, r"x\[mask\]"),
    (
        "too_large",
        lambda: tracer.tensor([1], dtype="int8") + 200,
        tracer.DTypeError,
        "200 does not fit int8",
    ),
    (
        "negative_power",
        lambda: tracer.tensor([2]) ** -1,
        tracer.DTypeError,
        "negative integer power",
    ),
    (
        "matmul_bools",
        lambda: tracer.tensor([True]) @ [True],
        tracer.DTypeError,
        "must be numbers, got bool",
    ),
    ("finfo", lambda: tracer.finfo("int8"), tracer.DTypeError, "use iinfo"),
    ("iinfo", lambda: tracer.iinfo("float32"), tracer.DTypeError, "use finfo"),
    ("kind", lambda: tracer.isdtype("int8", "whole"), tracer.ArgumentError, "unknown kind 'whole'"),
    (
        "scatter_type",
        lambda: tracer.index_add(X, [0], X[:1].astype("f8"), axis=0),
        tracer.DTypeError,
        "updates must be float32",
    ),
    # what is no operand at all
    (
        "text_operand",
        lambda: tracer.exp("abc"),
        tracer.ArgumentError,
        "expected a Tensor, an array or a number, got str: 'abc'",
    ),
    ("none", lambda: tracer.add(None, 1), tracer.ArgumentError, "got NoneType: None"),
    ("dictionary", lambda: tracer.sum({"a": 1}), tracer.ArgumentError, "got dict"),
    (
        "not_a_sequence",
        lambda: tracer.concat(3),
        tracer.ArgumentError,
        "takes a sequence of Tensors, got int",
    ),
    (
        "keyword",
        lambda: tracer.softmax(X, dim=1),
        tracer.ArgumentError,
        r"unexpected keyword argument 'dim'; it is called as softmax\(x, /, axis=-1\)",
    ),
    (
        "missing",
        lambda: F.relu(),  # type: ignore[call-arg]
        tracer.ArgumentError,
        r"missing 1 required positional argument: 'x'; it is called as relu\(x",
    ),
    (
        "shape_of_several",
        lambda: tracer.zeros(2, 3),
        tracer.DTypeError,
        r"not an element type: 3; .*; a shape is one argument, as in \(2, 3\)",
    ),
    (
        "numpy",
        lambda: tracer.tensor(X, requires_grad=True).numpy(),
        tracer.GradError,
        r"requires a gradient; use t.detach\(\).numpy\(\)",
    ),
    (
        "copy_of_a_result",
        lambda: copy.deepcopy(tracer.tensor(X, requires_grad=True) * 2),
        tracer.GradError,
        "only leaves can be deep-copied",
    ),
    ("step", lambda: tracer.arange(3, step=0), tracer.ArgumentError, "a step other than 0"),
    ("indexing", lambda: tracer.meshgrid([1], indexing="yx"), tracer.ArgumentError, '"xy" or "ij"'),
    ("pad_mode", lambda: tracer.pad(X, 1, "mirror"), tracer.ArgumentError, "got 'mirror'"),
    (
        "order",
        lambda: tracer.vector_norm(X, ord="fro"),
        tracer.ArgumentError,
        "ord must be a number",
    ),
    ("repeats", lambda: tracer.repeat(X, [1.5]), tracer.ArgumentError, "repeats must be a count"),
    ("copy", lambda: tracer.asarray([1.0], copy=False), tracer.ArgumentError, "a copy is needed"),
    # subscripts
    (
        "index",
        lambda: tracer.tensor(X)[2],
        tracer.BoundsError,
        r"index 2 is out of range for axis 0 of float32\[2, 3\]; possible: -2 to 1",
    ),
    (
        "index_array",
        lambda: tracer.tensor(X)[[0, 5]],
        tracer.BoundsError,
        "index 5 is out of range for axis 0 of size 2",
    ),
    (
        "index_pair",
        lambda: tracer.tensor(X)[[0], [3]],
        tracer.BoundsError,
        "index 3 is out of range for axis 1 of size 3",
    ),
    (
        "take_bounds",
        lambda: tracer.take(X, [2], axis=0),
        tracer.BoundsError,
        "index 2 is out of range",
    ),
    (
        "too_many",
        lambda: tracer.tensor(X)[0, 0, 0],
        tracer.BoundsError,
        "too many indices.* has 2 axes, the subscript takes 3",
    ),
    (
        "two_ellipses",
        lambda: tracer.tensor(X)[..., ...],
        tracer.BoundsError,
        "more than one ellipsis",
    ),
    (
        "mask_shape",
        lambda: tracer.tensor(X)[np.ones(3, bool)],
        tracer.BoundsError,
        r"the mask has shape \(3,\)",
    ),
    ("index_float", lambda: tracer.tensor(X)[1.0], tracer.ArgumentError, "got float: 1.0"),
    ("index_text", lambda: tracer.tensor(X)["a"], tracer.ArgumentError, "got str: 'a'"),
    (
        "index_bool",
        lambda: tracer.tensor(X)[True],
        tracer.ArgumentError,
        r"x\[True\] and x\[False\] are not offered",
    ),
    (
        "slice_float",
        lambda: tracer.tensor(X)[:1.5],
        tracer.ArgumentError,
        "slices are made of integers, got float",
    ),
    ("slice_step", lambda: tracer.tensor(X)[::0], tracer.ShapeError, "step is 0"),
    (
        "index_broadcast",
        lambda: tracer.tensor(X)[[0, 1], [0, 1, 2]],
        tracer.BoundsError,
        "must broadcast",
    ),
    (
        "assign_shape",
        lambda: tracer.tensor(X).__setitem__(0, [1.0, 2.0]),
        tracer.ShapeError,
        r"shape \(2,\) does not broadcast to the part of float32\[2, 3\], whose shape is \(3,\)",
    ),
    (
        "assign_index",
        lambda: tracer.tensor(X).__setitem__(7, 0),
        tracer.BoundsError,
        "out of bounds",
    ),
]


@pytest.mark.parametrize(("name", "wrong", "error", "text"), CASES, ids=[c[0] for c in CASES])
def test_errors_outside_and_inside_of_traces(
    name: str, wrong: Callable[[], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text) as caught:
        wrong()
    assert isinstance(caught.value, tracer.TracerError)
    assert str(caught.value).count("\n  at ") == 1
    assert str(caught.value).rpartition("\n  at ")[2].startswith("tests/project/test_errors.py:")
    deferred = {"take_bounds", "index_array", "index_pair"}  # seen when the program runs
    if name in deferred:
        with pytest.raises(tracer.BoundsError):
            trace(wrong)()
        return
    with pytest.raises(error) as traced:
        trace(wrong)()
    if name != "assign_index":
        assert str(traced.value) == str(caught.value)


# ---- integer division ----------------------------------------------------------------------------

DIVISIONS = [tracer.floor_divide, tracer.remainder, tracer.fmod]


@pytest.mark.parametrize("divide", DIVISIONS, ids=["floor_divide", "remainder", "fmod"])
def test_integers_by_zero(divide: Callable[[Any, Any], Any]) -> None:
    by = np.array([2, 0, -1, 3])
    for x, y in [(N, by), (N, 0), (3, by), (tracer.tensor(N), [1, 0, 1, 1])]:
        with pytest.raises(tracer.DivisionError, match=r"the divisor int64.* holds a 0") as caught:
            divide(x, y)
        assert isinstance(caught.value, ZeroDivisionError)
    with pytest.raises(tracer.DivisionError, match="holds a 0"):
        trace(lambda x: divide(x, 0))(N)
    compiled = np.asarray(trace(divide)(N, by))
    assert compiled[1] == 0
    keep = by != 0
    np.testing.assert_array_equal(compiled[keep], np.asarray(divide(N[keep], by[keep])))
    assert divide(np.zeros((0,), int), 0).shape == (0,)
    assert np.isnan(np.asarray(tracer.remainder(np.ones(2), 0))).all()


def test_the_most_negative_integer_by_minus_one() -> None:
    x, y = np.array([LOWEST, 5], np.int32), np.array([-1, -1], np.int32)
    with pytest.raises(
        tracer.IntegerOverflowError, match=f"{LOWEST} // -1 does not fit int32"
    ) as caught:
        tracer.floor_divide(x, y)
    assert isinstance(caught.value, OverflowError)
    with pytest.raises(tracer.IntegerOverflowError):
        tracer.tensor(x) // -1
    assert np.asarray(trace(lambda a, b: a // b)(x, y)).tolist() == [LOWEST, -5]
    assert np.asarray(trace(lambda a, b: a % b)(x, y)).tolist() == [0, 0]
    assert np.asarray(tracer.remainder(x, y)).tolist() == [0, 0]


def test_division_of_integers_gives_floats() -> None:
    result = tracer.tensor([1, 0, -1]) / 0
    assert result.dtype == np.float32
    assert str(np.asarray(result).tolist()) == "[inf, nan, -inf]"


# ---- odd arguments -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda x: tracer.sum(x, axis=True), "axis must be None, an integer or a tuple"),
        (lambda x: tracer.stack([x, x], axis=True), "axis must be an integer, got True"),
        (lambda x: tracer.clip(x > 0, None, np.True_), "Clip: operands must be int8"),
        (lambda x: tracer.stack([x, x], axis=None), "axis must be an integer, got None"),
        (lambda x: tracer.unstack(x, axis=(0, 1)), r"axis must be an integer, got \(0, 1\)"),
        (lambda x: tracer.split(x, 2, axis="0"), "axis must be an integer, got '0'"),
        (lambda x: tracer.swapaxes(x, 0, 1.0), "must be an integer, got 1.0"),
        (lambda x: tracer.flip(x, axis=int), "must be an integer"),
        (lambda x: tracer.argmax(x, axis=np.array([0, 1])), "must be an integer"),
        (lambda x: tracer.astype(x, "ij,jk->ik"), "not an element type"),
        (lambda x: tracer.astype(x, ",float32"), "not an element type: ',float32'"),
        (lambda x: tracer.asarray(10**30), "a Python integer of 100 bits fits no integer type"),
        (lambda x: tracer.tensor([10**400, 1.0]), "a Python integer of 1329 bits"),
        (lambda x: tracer.index_put(x, 1, 0), "indices must be a tuple"),
        (lambda x: tracer.take(x, [1, [2]]), "nested sequences of unequal lengths"),
        (lambda x: x[[1, [2]]], "nested sequences of unequal lengths"),
        (lambda x: tracer.nonzero(x.sum()), "needs an axis"),
        (lambda x: x.chunk((0, 1)), "chunks must be an integer"),
        (lambda x: x.long() // np.array([], int), "do not broadcast"),
    ],
)
def test_arguments_of_other_kinds(use: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(tracer.TracerError, match=text):
        use(tracer.tensor(X))


def test_large_python_integers_are_numbers_of_floating_types() -> None:
    for dtype in ("float32", "float64", "bfloat16"):
        x = tracer.ones(2, dtype=dtype)
        expected = np.full(2, 1e30).astype(x.numpy().dtype).tolist()
        assert (x * 10**30).numpy().tolist() == expected
        assert tracer.where(x > 10**30, x, 10**30).numpy().tolist() == expected
        assert tracer.full(2, 10**30, dtype=dtype).numpy().tolist() == expected
    assert (tracer.ones(1, dtype="float16") * 10**30).numpy().tolist() == [np.inf]


# ---- traces --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda x: np.asarray(x), "elements of a traced Tensor"),
        (lambda x: tracer.one_hot(x.argmax(1)), "needs num_classes in a traced function"),
        (lambda x: tracer.repeat(x, x.argmax(1), axis=0), "size that is not known"),
    ],
)
def test_what_a_trace_does_not_know(use: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(tracer.TraceError, match=text) as caught:
        trace(use)(X)
    assert "tests/project/test_errors.py:" in str(caught.value)


def test_a_trace_that_fails_leaves_state_alone() -> None:
    state = tracer.tensor([1.0, 2.0])

    @trace
    def broken(x: Any) -> Any:
        state.add_(1)
        return state @ x.T

    with pytest.raises(tracer.ShapeError):
        broken(X)
    assert state.tolist() == [1, 2]
    assert (state + 1).tolist() == [2, 3]


# ---- how errors look -----------------------------------------------------------------------------


def test_internal_frames_stay_out_of_the_way() -> None:
    own = {str(pathlib.Path(package.__file__).parent) for package in (tracer, ops)}
    for wrong in (
        lambda: F.cross_entropy(X, X[:, 0].astype(int)[:1]),
        lambda: tracer.einsum("ij,jk", X, X),
        lambda: tracer.tensor(X) @ X,
        lambda: tracer.tensor(X).mean(axis=7),
    ):
        with pytest.raises(tracer.TracerError) as caught:
            wrong()
        frames = traceback.extract_tb(caught.value.__traceback__)
        internal = [f for f in frames if any(f.filename.startswith(folder) for folder in own)]
        assert len(internal) <= 2
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


def test_each_error_is_the_builtin_that_fits() -> None:
    fits = {
        tracer.ShapeError: ValueError,
        tracer.DTypeError: TypeError,
        tracer.ArgumentError: TypeError,
        tracer.BoundsError: IndexError,
        tracer.TraceError: RuntimeError,
        tracer.GradError: RuntimeError,
        tracer.DivisionError: ZeroDivisionError,
        tracer.IntegerOverflowError: OverflowError,
        tracer.ExportError: ValueError,
    }
    for error, builtin in fits.items():
        assert issubclass(error, tracer.TracerError)
        assert issubclass(error, builtin)


def test_names_of_other_libraries_are_told_by_their_names_here() -> None:
    for name, ours in NAMES.items():
        assert not hasattr(tracer, name) and hasattr(tracer, ours), name
    with pytest.raises(AttributeError, match=r"has no attribute 'cat'; here it is tracer.concat"):
        _ = tracer.cat
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        _ = tracer.nothing
    with pytest.raises(TypeError, match=r"^Tensor.sum\(\) got an unexpected keyword argument 'ax'"):
        tracer.ones(3).sum(ax=1)


def test_a_type_error_of_the_users_own_code_is_left_alone() -> None:
    def wrong(x: Any) -> Any:
        return x + object()

    with pytest.raises(TypeError, match="unsupported operand") as caught:
        tracer.vjp(wrong, X)
    assert type(caught.value) is TypeError and caught.traceback[-1].name == "wrong"


HUGE = 10**30


@pytest.mark.parametrize(
    "use",
    [
        lambda x: tracer.ones(HUGE),
        lambda x: tracer.zeros((10**10, 10**10)),
        lambda x: tracer.ones(10**14),
        lambda x: tracer.eye(10**20),
        lambda x: tracer.arange(HUGE),
        lambda x: tracer.linspace(0, 1, HUGE),
        lambda x: tracer.broadcast_to(x, (HUGE, 8)),
        lambda x: tracer.reshape(x, (HUGE,)),
        lambda x: tracer.repeat(x, 10**20),
        lambda x: tracer.tile(x, (10**20,)),
        lambda x: tracer.roll(x, HUGE),
        lambda x: tracer.pad(x, [(10**20, 0)]),
        lambda x: tracer.tril(tracer.ones((3, 3)), k=HUGE),
        lambda x: tracer.one_hot(tracer.tensor([1]), 10**20),
        lambda x: x.tensor_split(2**64),
        lambda x: x[HUGE],
        lambda x: tracer.sum(x, axis=HUGE),
    ],
)
def test_what_no_memory_holds_is_an_error_of_ours(use: Callable[[Any], Any]) -> None:
    """At once, eagerly and in a trace, with the user's line."""
    x = tracer.ones(8)
    for call in (use, trace(use)):
        with pytest.raises(tracer.errors.TracerError, match=r"\n  at .*test_errors\.py:\d+"):
            call(x)
