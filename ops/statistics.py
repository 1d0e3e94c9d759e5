"""Means, variances, norms and logarithms of sums over axes.

They are composites whose row values are taken in float64. The number of elements is a value of the
running program (`Dimension`), so kernels do not depend on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ops import dims, rules
from ops.compute import Composite
from ops.errors import DTypeError
from ops.operator import Application, Derived, ErrorSample, Expanded, Input, Ints, Sample, operator
from ops.reductions import EMPTY_SAMPLES, REDUCTION_ERRORS, REDUCTION_SAMPLES, SPECIAL_SAMPLES, keep
from ops.reference import fold, round_to
from ops.types import FLOATING, Type, normalize_axes, short

Array = np.ndarray[Any, Any]
WIDE = "float64"


def floating_reduction(x: Type, *, axes: Ints, keepdims: bool, **_: Any) -> Type:
    """A reduction of floating values."""
    if x.dtype not in FLOATING:
        raise DTypeError(f"the operand must be floating, got {short(x)}; cast it first")
    return rules.reduction(x, axes=axes, keepdims=keepdims)


def single_precision(dtype: str) -> str:
    """The element type in which elements are computed: half types are computed in float32."""
    return WIDE if dtype == WIDE else "float32"


def count(x: Type, axes: Ints) -> int | dims.Dim:
    """The number of elements that a reduction of x over axes takes together."""
    return dims.product(tuple(x.shape[a] for a in normalize_axes(axes, x.rank)))


def mean(g: Any, x: Any, axes: Ints) -> Any:
    """The mean of x over axes in float64, the axes kept with size 1."""
    total = g.ReduceSum(g.cast(x, WIDE), axes=axes, keepdims=True)
    return g.Div(total, g.size(count(x.type, axes), WIDE))


def centred(g: Any, x: Any, axes: Ints) -> tuple[Any, float]:
    """x less its mean over axes, in x's single or double precision, and the unit it is counted in.

    The mean is taken off in two parts, so that a large one costs no accuracy. (Taken off in float64
    it would need x as float64 again in a second pass, which a reduction of everything would store.)
    Single precision counts in units of 2, which costs no digit, so that no distance overflows.
    """
    average = mean(g, x, axes)
    if x.type.dtype == WIDE:
        return g.Sub(x, average), 1.0
    average = g.Mul(average, g.constant(0.5, WIDE))
    high = g.cast(average, x.type.dtype)
    distance = g.Sub(g.Mul(x, g.like(0.5, x)), high)
    return g.Sub(distance, g.cast(g.Sub(average, g.cast(high, WIDE)), x.type.dtype)), 2.0


def _result(g: Any, y: Any, n: Application) -> Any:
    """A float64 value with reduced axes kept, in the type and shape of the application's result."""
    shape = rules.reduced_shape(n.x.type, n.attrs.axes, n.attrs.keepdims)
    return g.cast(g.reshape(y, shape), n.x.type.dtype)


_ERRORS = (
    *REDUCTION_ERRORS,
    ErrorSample(
        (Type("int64", (2, 3)),), DTypeError, "must be floating", {"axes": (0,), "keepdims": False}
    ),
)


def _mean_vjp(g: Any, n: Application) -> Any:
    dy = g.cast(keep(g, n.dy, n), WIDE)
    share = g.Div(dy, g.size(count(n.x.type, n.attrs.axes), WIDE))
    return (g.expand(g.cast(share, n.x.type.dtype), n.x.type.shape),)


@operator(
    "ReduceMean",
    type_rule=floating_reduction,
    compute=Composite(lambda g, n: _result(g, mean(g, n.x, n.attrs.axes), n)),
    vjp=_mean_vjp,
    onnx=lambda g, n: g.reduction("ReduceMean", n),
    samples=(
        *REDUCTION_SAMPLES,
        *EMPTY_SAMPLES,
        Sample(
            (Input((4, 3), values=(1, np.nan, 2, np.inf, 1, 3, -np.inf, 2, np.inf, 1, 2, 6)),),
            {"axes": (1,), "keepdims": False},
            gradient=False,
        ),
    ),
    errors=_ERRORS,
    dtypes=FLOATING,
)
def reduce_mean(x: Array, *, axes: Ints, keepdims: bool) -> Array:
    """Mean over axes, taken in float64. Of nothing: NaN."""
    total = fold(x, axes, keepdims, np.add, 0)
    with np.errstate(all="ignore"):
        return round_to(total / np.float64(count(Type.of(x), axes)), x.dtype)


# ---- variance ------------------------------------------------------------------------------------


def _freedom(g: Any, x: Type, axes: Ints, correction: float) -> Any:
    """The number of elements less the correction, at least 0, as a float64 value."""
    size = count(x, axes)
    if correction == int(correction):
        return g.size(dims.maximum(size - int(correction), 0), WIDE)
    left = g.Sub(g.size(size, WIDE), g.constant(correction, WIDE))
    zero = g.constant(0, WIDE)
    return g.Where(g.Less(left, zero), zero, left)


def _variance(g: Any, n: Application) -> tuple[Any, Any, Any, float]:
    """Distances from the mean, see `centred`; variance and degrees of freedom in float64; the unit."""
    axes = n.attrs.axes
    distance, unit = centred(g, g.cast(n.x, single_precision(n.x.type.dtype)), axes)
    wide = g.cast(distance, WIDE)
    squares = g.ReduceSum(g.Mul(wide, wide), axes=axes, keepdims=True)
    if unit != 1:
        squares = g.Mul(squares, g.constant(unit * unit, WIDE))
    freedom = _freedom(g, n.x.type, axes, n.attrs.correction)
    return distance, g.Div(squares, freedom), freedom, unit


def _scaled(g: Any, distance: Any, scale: Any, unit: float, n: Application) -> Any:
    """Distances times a float64 value of their row, in the type of the application's operand."""
    scale = g.Mul(scale, g.constant(unit, WIDE)) if unit != 1 else scale
    return g.cast(g.chain(g.cast(scale, distance.type.dtype), distance), n.x.type.dtype)


def _variance_vjp(g: Any, n: Application) -> Any:
    distance, _, freedom, unit = _variance(g, n)
    dy = g.cast(keep(g, n.dy, n), WIDE)
    scale = g.Xdivy(g.Mul(g.constant(2, WIDE), dy), freedom)
    return (_scaled(g, distance, scale, unit, n),)


def _corrected(samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
    return tuple(
        Sample(s.inputs, {**s.attrs, "correction": float(k % 2)}, s.dtypes, s.gradient)
        for k, s in enumerate(samples)
    )


_SPREAD = tuple(s for s in REDUCTION_SAMPLES if s.inputs[0].shape and s.attrs["axes"])
_VARIANCE_SAMPLES = (
    *_corrected(_SPREAD + EMPTY_SAMPLES + SPECIAL_SAMPLES),
    Sample((Input((4, 9)),), {"axes": (1,), "keepdims": False, "correction": 0.5}),
    Sample(
        (Input((2, 40), low=999.5, high=1000.5),),
        {"axes": (1,), "keepdims": False, "correction": 1.0},
        dtypes=("float32", "float64"),
    ),
    Sample(  # one element and a correction of 1: 0 / 0
        (Input((3, 1)),), {"axes": (1,), "keepdims": False, "correction": 1.0}, gradient=False
    ),
)


def _reference_variance(x: Array, axes: Ints, keepdims: bool, correction: float) -> Array:
    axes = normalize_axes(axes, x.ndim)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        size = count(Type.of(x), axes)
        distance = wide - wide.sum(axis=axes, keepdims=True) / np.float64(size)
        squares = np.square(distance).sum(axis=axes, keepdims=keepdims)
        return np.asarray(squares / np.maximum(np.float64(size) - correction, 0))


@operator(
    "Variance",
    type_rule=floating_reduction,
    compute=Composite(lambda g, n: _result(g, _variance(g, n)[1], n)),
    vjp=_variance_vjp,
    onnx=Expanded(),
    samples=_VARIANCE_SAMPLES,
    errors=_ERRORS,
    dtypes=FLOATING,
    ulp=8,
)
def variance(x: Array, *, axes: Ints, keepdims: bool, correction: float = 0.0) -> Array:
    """Mean of the squared distances from the mean, in two passes in float64.

    The sum is divided by the number of elements less `correction` (0: of the whole; 1: estimated
    from a sample); where that is not above 0, the result is NaN or infinite.
    """
    return round_to(_reference_variance(x, axes, keepdims, correction), x.dtype)


def _deviation_vjp(g: Any, n: Application) -> Any:
    """dy * (x - mean) / (freedom * deviation); of equal values 0, as their distances are."""
    distance, _, freedom, unit = _variance(g, n)
    deviation = g.cast(keep(g, n.y, n), WIDE)
    one = g.constant(1, WIDE)
    divisor = g.Where(g.Equal(deviation, g.constant(0, WIDE)), one, deviation)
    scale = g.Xdivy(g.cast(keep(g, n.dy, n), WIDE), g.Mul(divisor, freedom))
    return (_scaled(g, distance, scale, unit, n),)


@operator(
    "StandardDeviation",
    type_rule=floating_reduction,
    compute=Composite(lambda g, n: _result(g, g.Sqrt(_variance(g, n)[1]), n)),
    vjp=_deviation_vjp,
    onnx=Expanded(),
    samples=_VARIANCE_SAMPLES,
    errors=_ERRORS,
    dtypes=FLOATING,
    ulp=8,
)
def standard_deviation(x: Array, *, axes: Ints, keepdims: bool, correction: float = 0.0) -> Array:
    """Square root of the variance. The gradient for equal values is 0."""
    return round_to(np.sqrt(_reference_variance(x, axes, keepdims, correction)), x.dtype)


# ---- norms ---------------------------------------------------------------------------------------


def _norm_rule(g: Any, n: Application) -> Any:
    x = g.cast(n.x, WIDE)
    squares = g.ReduceSum(g.Mul(x, x), axes=n.attrs.axes, keepdims=True)
    return _result(g, g.Sqrt(squares), n)


def _norm_vjp(g: Any, n: Application) -> Any:
    """dy * x / norm; 0 where the norm is 0."""
    wide = single_precision(n.x.type.dtype)
    norm = g.cast(keep(g, n.y, n), wide)
    divisor = g.Where(g.Equal(norm, g.like(0, norm)), g.like(1, norm), norm)
    scale = g.Xdivy(g.cast(keep(g, n.dy, n), wide), divisor)
    return (g.cast(g.chain(scale, g.cast(n.x, wide)), n.x.type.dtype),)


@operator(
    "ReduceL2",
    type_rule=floating_reduction,
    compute=Composite(_norm_rule),
    vjp=_norm_vjp,
    onnx=lambda g, n: g.reduction("ReduceL2", n),
    samples=REDUCTION_SAMPLES + EMPTY_SAMPLES + SPECIAL_SAMPLES,
    errors=_ERRORS,
    dtypes=FLOATING,
    ulp=2,
)
def reduce_l2(x: Array, *, axes: Ints, keepdims: bool) -> Array:
    """Euclidean norm over axes, taken in float64. Of nothing: 0. The gradient at 0 is 0."""
    with np.errstate(all="ignore"):
        squares = np.square(x.astype(np.float64))
        return round_to(
            np.sqrt(squares.sum(axis=normalize_axes(axes, x.ndim), keepdims=keepdims)), x.dtype
        )


@operator(
    "ReduceL1",
    type_rule=floating_reduction,
    compute=Composite(
        lambda g, n: g.ReduceSum(g.Abs(n.x), axes=n.attrs.axes, keepdims=n.attrs.keepdims)
    ),
    vjp=Derived(),
    onnx=lambda g, n: g.reduction("ReduceL1", n),
    samples=REDUCTION_SAMPLES + EMPTY_SAMPLES + SPECIAL_SAMPLES,
    errors=_ERRORS,
    dtypes=FLOATING,
)
def reduce_l1(x: Array, *, axes: Ints, keepdims: bool) -> Array:
    """Sum of absolute values over axes, taken in float64. Of nothing: 0."""
    return round_to(fold(np.abs(x), axes, keepdims, np.add, 0), x.dtype)


# ---- logarithm of a sum of exponentials ----------------------------------------------------------


def shifted(g: Any, x: Any, axes: Ints) -> tuple[Any, Any]:
    """x less its largest element over axes, and that element; 0 for an infinite one."""
    largest = g.ReduceMax(x, axes=axes, keepdims=True)
    zero = g.like(0, x)
    shift = g.Where(g.Equal(g.Sub(largest, largest), zero), largest, zero)
    return g.Sub(x, shift), shift


def log_of_sum(g: Any, x: Any, axes: Ints) -> Any:
    """The logarithm of the sum of exp(x) over axes, in float64, the axes kept with size 1."""
    total = g.ReduceSum(g.cast(g.Exp(x), WIDE), axes=axes, keepdims=True)
    return g.Log(total)


def _exponentials(g: Any, n: Application) -> tuple[Any, Any, Any]:
    """exp(x) over that of the largest x, which counts 1 though it be infinite; their sum; the largest."""
    x = g.cast(n.x, single_precision(n.x.type.dtype))
    largest = g.ReduceMax(x, axes=n.attrs.axes, keepdims=True)
    e = g.Exp(g.Where(g.Equal(x, largest), g.like(0, x), g.Sub(x, largest)))
    return e, g.ReduceSum(g.cast(e, WIDE), axes=n.attrs.axes, keepdims=True), largest


def _logsumexp_rule(g: Any, n: Application) -> Any:
    _, total, largest = _exponentials(g, n)
    return _result(g, g.Add(g.Log(total), g.cast(largest, WIDE)), n)


def _logsumexp_vjp(g: Any, n: Application) -> Any:
    """dy times the softmax, whose mass is 1 (exp(x - y) would lack y's last digits); -inf has none of it."""
    e, total, _ = _exponentials(g, n)
    share = g.Div(e, g.cast(total, e.type.dtype))
    share = g.Where(g.Equal(n.x, g.like(-np.inf, n.x)), g.like(0, e), share)
    dy = g.cast(keep(g, n.dy, n), e.type.dtype)
    return (g.cast(g.chain(dy, share), n.x.type.dtype),)


@operator(
    "ReduceLogSumExp",
    type_rule=floating_reduction,
    compute=Composite(_logsumexp_rule),
    vjp=_logsumexp_vjp,
    onnx=Expanded(),
    samples=(
        *REDUCTION_SAMPLES,
        *(Sample(s.inputs, s.attrs, gradient=False) for s in EMPTY_SAMPLES + SPECIAL_SAMPLES),
        Sample(
            (
                Input(
                    (5, 3),
                    values=(
                        *(1e4, -1e4, 9999.0),
                        *(-np.inf, -np.inf, -np.inf),
                        *(np.inf, 0, -np.inf),
                        *(-np.inf, 2, 1),
                        *(-5e4, -5e4, -5e4),
                    ),
                ),
            ),
            {"axes": (1,), "keepdims": True},
            gradient=False,
        ),
    ),
    errors=_ERRORS,
    dtypes=FLOATING,
    ulp=8,
)
def reduce_log_sum_exp(x: Array, *, axes: Ints, keepdims: bool) -> Array:
    """log(sum(exp(x))) over axes without overflow.

    Of nothing, or of -inf only: -inf; with a +inf: +inf.

    Where the result is close to 0, the error is relative to the largest x. The gradient is finite
    also where all are -inf.
    """
    from scipy.special import logsumexp

    axes = normalize_axes(axes, x.ndim)
    if not x.size:  # SciPy fails on an empty array with several axes
        shape = rules.reduced_shape(Type.of(x), axes, keepdims)
        return np.full(shape, -np.inf).astype(x.dtype)
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        result = logsumexp(wide, axis=axes, keepdims=keepdims) if axes else wide
        return round_to(np.asarray(result), x.dtype)
