"""Reductions over axes, under the array API's names: `axis` is None (all), an int or a tuple."""

from __future__ import annotations

import math
from typing import Any

from ops.errors import ArgumentError, ShapeError
from ops.types import UNSIGNED, dtype_name, is_floating, normalize_axes, normalize_axis, short
from tracer.dispatch.apply import BUILDER, apply
from tracer.functions.creation import as_tensor, cast
from tracer.functions.elementwise import as_floating, elementwise, strong
from tracer.functions.logic import as_truth
from tracer.functions.public import public
from tracer.tensors.tensor import Tensor

Axis = int | tuple[int, ...] | None


def reduce(name: str, x: Tensor, axis: Axis, keepdims: bool, **attrs: Any) -> Tensor:
    """A reduction operator over axes."""
    return apply(name, strong(x), axes=as_axes(axis, x), keepdims=bool(keepdims), **attrs)


def as_axes(axis: Any, x: Tensor) -> tuple[int, ...]:
    """Axes given as None, an int or a sequence, counted from the front.

    Raises `ArgumentError` for anything else.
    """
    if axis is None:
        return tuple(range(x.ndim))
    try:
        given = (axis,) if hasattr(axis, "__index__") else tuple(axis)
        return normalize_axes(given, x.ndim)
    except TypeError:
        raise ArgumentError(
            f"axis must be None, an integer or a tuple of integers, got {axis!r}"
        ) from None


# ---- sums and products ---------------------------------------------------------------------------


def _summand(x: Any, dtype: Any) -> Tensor:
    """x in the type in which it is summed: small integers and bools as 64-bit integers."""
    x = as_tensor(x)
    if dtype is not None:
        return cast(x, dtype_name(dtype))
    if is_floating(x.type.dtype):
        return strong(x)
    return cast(x, "uint64" if x.type.dtype in UNSIGNED else "int64")


@public
def sum(x: Any, /, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Sum over axes.

    Floats accumulate in float64 and keep their type; bools and integers give int64 or uint64. Of
    nothing: 0. The order of the additions depends on the shape and axes only.

    >>> tracer.sum([[1, 2], [3, 4]], axis=0)
    tensor([4, 6])
    >>> tracer.sum([[1, 2], [3, 4]], axis=0, keepdims=True)
    tensor([[4, 6]])
    """
    return reduce("ReduceSum", _summand(x, dtype), axis, keepdims)


@public
def prod(x: Any, /, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Product over axes, types as for `sum`. Of nothing: 1.

    >>> tracer.prod([[1, 2], [3, 4]], axis=1)
    tensor([ 2, 12])
    """
    return reduce("ReduceProd", _summand(x, dtype), axis, keepdims)


@public
def cumulative_sum(
    x: Any, /, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Tensor:
    """The sum of all elements up to each one along an axis, types as for `sum`.

    An axis is needed unless there is only one: else `ShapeError` is raised.

    `include_initial`: with a 0 in front, so that the axis grows by 1.

    >>> tracer.cumulative_sum([1, 2, 3], include_initial=True)
    tensor([0, 1, 3, 6])
    """
    x = _summand(x, dtype)
    if axis is None:
        if x.ndim != 1:
            raise ShapeError(f"cumulative_sum of {short(x.type)} needs an axis")
        axis = 0
    place = normalize_axis(axis, x.ndim)
    if include_initial:
        x = apply("Pad", x, pads=tuple(int(k == place) for k in range(x.ndim)) + (0,) * x.ndim)
    return apply("CumSum", x, axis=place)


@public
def count_nonzero(x: Any, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """How many elements over axes are not 0, as int64.

    Of shape () or without the axes; with `keepdims` these have size 1.

    >>> tracer.count_nonzero([[0, 1], [2, 3]], axis=1)
    tensor([1, 2])
    """
    return reduce("ReduceSum", cast(as_truth(x), "int64"), axis, keepdims)


# ---- extremes and where they are -----------------------------------------------------------------


def _extremum(name: str, x: Any, axis: Axis, keepdims: bool) -> Tensor:
    x = as_tensor(x)
    for k in as_axes(axis, x):
        size = x.type.shape[k]
        if isinstance(size, int) and size == 0:
            what = "largest" if name == "ReduceMax" else "smallest"
            raise ShapeError(f"axis {k} of {short(x.type)} has no elements, so none is the {what}")
    return reduce(name, x, axis, keepdims)


@public
def max(x: Any, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Largest element over axes; NaN wins. Equal ones share the gradient.

    Raises `ShapeError` where there are no elements.

    The type stays.

    >>> tracer.max([[1, 5], [7, 0]], axis=1)
    tensor([5, 7])
    """
    return _extremum("ReduceMax", x, axis, keepdims)


@public
def min(x: Any, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Smallest element over axes; NaN wins. Equal ones share the gradient.

    Raises `ShapeError` where there are no elements.

    The type stays.

    >>> tracer.min([[1, 5], [7, 0]], axis=1)
    tensor([1, 0])
    """
    return _extremum("ReduceMin", x, axis, keepdims)


def _position(name: str, x: Any, axis: int | None, keepdims: bool) -> Tensor:
    x = strong(as_tensor(x))
    rank = x.ndim
    if axis is None:
        x = apply("Reshape", x, shape=(x.type.size,))
        found = apply(name, x, axes=(0,), keepdims=False)
        return apply("Reshape", found, shape=(1,) * rank) if keepdims else found
    if not hasattr(axis, "__index__"):
        raise ArgumentError(f"axis must be None or an integer, got {axis!r}")
    return apply(name, x, axes=(normalize_axis(axis, rank),), keepdims=bool(keepdims))


@public
def argmax(x: Any, /, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Position of the largest element along an axis, or in row-major order.

    The first of equal ones; the first NaN before all. Gives int64. Raises `ShapeError` where there
    are no elements, `ArgumentError` for several axes.

    >>> tracer.argmax([[1, 5, 2], [7, 0, 7]], axis=1)
    tensor([1, 0])
    """
    return _position("ArgMax", x, axis, keepdims)


@public
def argmin(x: Any, /, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Position of the smallest element along an axis, or in row-major order.

    The first of equal ones; the first NaN before all. Gives int64. Raises `ShapeError` where there
    are no elements, `ArgumentError` for several axes.

    >>> tracer.argmin([[1, 5, 2], [7, 0, 7]], axis=1)
    tensor([0, 1])
    """
    return _position("ArgMin", x, axis, keepdims)


# ---- logic ---------------------------------------------------------------------------------------


@public
def all(x: Any, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether all elements over axes hold (are not 0). Of nothing: True.

    Gives bools, of shape () or without the axes.

    >>> tracer.all([[True, False], [True, True]], axis=1)
    tensor([False,  True])
    """
    return reduce("ReduceAll", as_truth(x), axis, keepdims)


@public
def any(x: Any, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether any element over axes holds (is not 0). Of nothing: False.

    Gives bools, of shape () or without the axes.

    >>> tracer.any([[0, 0], [0, 3]], axis=0)
    tensor([False,  True])
    """
    return reduce("ReduceAny", as_truth(x), axis, keepdims)


# ---- statistics ----------------------------------------------------------------------------------


def _statistic(name: str, x: Any, axis: Axis, keepdims: bool, **attrs: Any) -> Tensor:
    """A floating statistic.

    Of integers it is taken in float64 and given as float32, so that large ones cost no
    accuracy.
    """
    x = as_tensor(x)
    if is_floating(x.type.dtype):
        return reduce(name, x, axis, keepdims, **attrs)
    return cast(reduce(name, cast(x, "float64"), axis, keepdims, **attrs), "float32")


@public
def mean(x: Any, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Mean over axes, taken in float64; integers give float32. Of nothing: NaN.

    >>> tracer.mean([[1, 2], [3, 5]], axis=0)
    tensor([2. , 3.5])
    """
    return _statistic("ReduceMean", x, axis, keepdims)


@public
def var(x: Any, /, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Variance over axes, in two passes in float64; integers give float32.

    The sum of squares is divided by the number of elements less `correction`: 0 for a whole
    population, 1 for a sample.

    >>> tracer.var([1.0, 2.0, 3.0], correction=1)
    tensor(1.)
    """
    return _statistic("Variance", x, axis, keepdims, correction=correction)


@public
def std(x: Any, /, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Square root of the variance over axes, see `var`; float32 of integers.

    >>> tracer.std([[1.0, 3.0], [2.0, 8.0]], axis=1)
    tensor([1., 3.])
    """
    return _statistic("StandardDeviation", x, axis, keepdims, correction=correction)


# ---- norms ---------------------------------------------------------------------------------------


@public
def vector_norm(x: Any, /, axis: Axis = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """Norm of the elements over axes: (sum |x|**ord)**(1/ord).

    Orders inf and -inf: the largest and smallest |x|; 0: how many are not 0.

    Taken in float64; of order 0 it is exact. The gradient at 0 is 0. Integers become float32. Raises
    `ArgumentError` for an order that is no number, `ShapeError` where there is no largest element.

    >>> tracer.vector_norm([[3.0, 4.0], [6.0, 8.0]], axis=1)
    tensor([ 5., 10.])
    """
    x = as_floating(x)
    if not isinstance(ord, int | float):
        raise ArgumentError(f"ord must be a number, got {ord!r}")
    if ord == 2:
        return reduce("ReduceL2", x, axis, keepdims)
    if ord == 1:
        return reduce("ReduceL1", x, axis, keepdims)
    size = apply("Abs", x)
    if ord == math.inf:
        return _extremum("ReduceMax", size, axis, keepdims)
    if ord == -math.inf:
        return _extremum("ReduceMin", size, axis, keepdims)
    if ord == 0:
        number = apply("Where", apply("IsNaN", x), BUILDER.like(1, x), size)
        return reduce("ReduceSum", apply("Sign", number), axis, keepdims)
    powers = elementwise("Pow", cast(size, "float64"), float(ord))
    total = elementwise("Pow", reduce("ReduceSum", powers, axis, keepdims), 1 / float(ord))
    return cast(total, x.type.dtype)


__all__ = [
    "all",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "cumulative_sum",
    "max",
    "mean",
    "min",
    "prod",
    "std",
    "sum",
    "var",
    "vector_norm",
]
