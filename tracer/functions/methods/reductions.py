"""Methods of Tensor that reduce axes, and matrix products, under PyTorch's names.

`dim` and `axis`, `keepdim` and `keepdims` are two names of one argument each.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, overload

from ops.errors import ArgumentError, ShapeError
from ops.types import dtype_name, normalize_axis, short
from tracer.dispatch.apply import apply
from tracer.functions import activation, arithmetic, linear_algebra, reductions
from tracer.functions.creation import as_tensor, astype
from tracer.functions.gather_scatter import nonzero
from tracer.functions.joining import stack
from tracer.functions.public import public
from tracer.functions.reductions import Axis
from tracer.tensors.tensor import Tensor


class Extremum(NamedTuple):
    """Extreme elements along an axis and where they are."""

    values: Tensor
    indices: Tensor


def axis_of(dim: Any, axis: Any) -> Any:
    """The axis given as `dim` or as `axis`. Raises `ArgumentError` for both."""
    if axis is None:
        return dim
    if dim is not None:
        raise ArgumentError(f"dim={dim} and axis={axis} are two names of one argument; pass one")
    return axis


@public
def _reduced(
    function: Any, x: Any, dim: Any, axis: Any, keep: bool, dtype: Any = None, **keywords: Any
) -> Tensor:
    if dtype is not None:
        x = astype(x, dtype_name(dtype), copy=False)
    chosen = axis_of(dim, axis)
    result: Tensor = function(
        x, axis=tuple(chosen) if isinstance(chosen, list) else chosen, keepdims=keep, **keywords
    )
    return result


@public
def _extremum(name: str, x: Any, dim: Any, axis: Any, keep: bool) -> Any:
    """Largest or smallest.

    Of all, elementwise beside another Tensor, or values and indices along an axis.
    """
    if isinstance(dim, Tensor):
        return (arithmetic.maximum if name == "max" else arithmetic.minimum)(x, dim)
    chosen = axis_of(dim, axis)
    values, positions = (
        (reductions.max, reductions.argmax)
        if name == "max"
        else (reductions.min, reductions.argmin)
    )
    if chosen is None:
        return values(x, keepdims=keep)
    place = normalize_axis(chosen, x.ndim)
    indices = positions(x, axis=place, keepdims=True)
    found: Tensor = apply("GatherElements", x, indices, axis=place)
    if not keep:
        found, indices = (apply("Squeeze", t, axes=(place,)) for t in (found, indices))
    return Extremum(found, indices)


def _correction(unbiased: bool | None, correction: float) -> float:
    return correction if unbiased is None else float(unbiased)


class Reductions:
    """Reductions over axes."""

    __slots__ = ()

    def sum(
        self,
        dim: Axis = None,
        keepdim: bool = False,
        *,
        dtype: Any = None,
        axis: Axis = None,
        keepdims: bool = False,
    ) -> Tensor:
        """Sum over axes, all unless told otherwise; see `tracer.sum`."""
        return _reduced(reductions.sum, self, dim, axis, keepdim or keepdims, dtype)

    def prod(
        self,
        dim: Axis = None,
        keepdim: bool = False,
        *,
        dtype: Any = None,
        axis: Axis = None,
        keepdims: bool = False,
    ) -> Tensor:
        """Product over axes."""
        return _reduced(reductions.prod, self, dim, axis, keepdim or keepdims, dtype)

    def mean(
        self,
        dim: Axis = None,
        keepdim: bool = False,
        *,
        dtype: Any = None,
        axis: Axis = None,
        keepdims: bool = False,
    ) -> Tensor:
        """Mean over axes."""
        return _reduced(reductions.mean, self, dim, axis, keepdim or keepdims, dtype)

    def var(
        self,
        dim: Axis = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: float = 1,
        axis: Axis = None,
        keepdims: bool = False,
    ) -> Tensor:
        """Variance over axes, estimated from a sample.

        Divided by the count less `correction`, which `unbiased` sets to 1 or 0.
        """
        keep = keepdim or keepdims
        return _reduced(
            reductions.var, self, dim, axis, keep, correction=_correction(unbiased, correction)
        )

    def std(
        self,
        dim: Axis = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: float = 1,
        axis: Axis = None,
        keepdims: bool = False,
    ) -> Tensor:
        """Square root of the variance, see `var`."""
        keep = keepdim or keepdims
        return _reduced(
            reductions.std, self, dim, axis, keep, correction=_correction(unbiased, correction)
        )

    def amax(
        self, dim: Axis = None, keepdim: bool = False, *, axis: Axis = None, keepdims: bool = False
    ) -> Tensor:
        """Largest element over axes; equal ones share the gradient."""
        return _reduced(reductions.max, self, dim, axis, keepdim or keepdims)

    def amin(
        self, dim: Axis = None, keepdim: bool = False, *, axis: Axis = None, keepdims: bool = False
    ) -> Tensor:
        """Smallest element over axes; equal ones share the gradient."""
        return _reduced(reductions.min, self, dim, axis, keepdim or keepdims)

    @overload
    def max(self, dim: None = None, keepdim: bool = False) -> Tensor: ...
    @overload
    def max(self, dim: Tensor) -> Tensor: ...
    @overload
    def max(self, dim: int, keepdim: bool = False) -> Extremum: ...
    @overload
    def max(self, *, axis: int, keepdim: bool = False, keepdims: bool = False) -> Extremum: ...
    def max(
        self, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool = False
    ) -> Any:
        """Largest element; along an axis `values` and `indices`; elementwise with a Tensor."""
        return _extremum("max", self, dim, axis, keepdim or keepdims)

    @overload
    def min(self, dim: None = None, keepdim: bool = False) -> Tensor: ...
    @overload
    def min(self, dim: Tensor) -> Tensor: ...
    @overload
    def min(self, dim: int, keepdim: bool = False) -> Extremum: ...
    @overload
    def min(self, *, axis: int, keepdim: bool = False, keepdims: bool = False) -> Extremum: ...
    def min(
        self, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool = False
    ) -> Any:
        """Smallest element; along an axis `values` and `indices`; elementwise with a Tensor."""
        return _extremum("min", self, dim, axis, keepdim or keepdims)

    def argmax(
        self,
        dim: int | None = None,
        keepdim: bool = False,
        *,
        axis: int | None = None,
        keepdims: bool = False,
    ) -> Tensor:
        """Position of the largest element, in row-major order or along an axis."""
        return _reduced(reductions.argmax, self, dim, axis, keepdim or keepdims)

    def argmin(
        self,
        dim: int | None = None,
        keepdim: bool = False,
        *,
        axis: int | None = None,
        keepdims: bool = False,
    ) -> Tensor:
        """Position of the smallest element, in row-major order or along an axis."""
        return _reduced(reductions.argmin, self, dim, axis, keepdim or keepdims)

    def all(
        self, dim: Axis = None, keepdim: bool = False, *, axis: Axis = None, keepdims: bool = False
    ) -> Tensor:
        """Whether all elements over axes are not 0."""
        return _reduced(reductions.all, self, dim, axis, keepdim or keepdims)

    def any(
        self, dim: Axis = None, keepdim: bool = False, *, axis: Axis = None, keepdims: bool = False
    ) -> Tensor:
        """Whether any element over axes is not 0."""
        return _reduced(reductions.any, self, dim, axis, keepdim or keepdims)

    def count_nonzero(self, dim: Axis = None, *, axis: Axis = None) -> Tensor:
        """How many elements over axes are not 0."""
        return _reduced(reductions.count_nonzero, self, dim, axis, False)

    def cumsum(
        self, dim: int | None = None, *, dtype: Any = None, axis: int | None = None
    ) -> Tensor:
        """The sum of all elements up to each one along an axis."""
        return _cumulative(self, dim, axis, dtype)

    def logsumexp(
        self, dim: Axis = None, keepdim: bool = False, *, axis: Axis = None, keepdims: bool = False
    ) -> Tensor:
        """log(sum(exp(x))) over axes."""
        return _reduced(activation.logsumexp, self, dim, axis, keepdim or keepdims)

    def norm(
        self,
        p: Any = 2,
        dim: Axis = None,
        keepdim: bool = False,
        *,
        axis: Axis = None,
        keepdims: bool = False,
    ) -> Tensor:
        """(sum |x|**p)**(1/p) over axes; "fro" is 2."""
        order = (
            {"fro": 2.0, "inf": math.inf, "-inf": -math.inf}.get(p, p) if isinstance(p, str) else p
        )
        return _reduced(reductions.vector_norm, self, dim, axis, keepdim or keepdims, ord=order)

    def softmax(
        self, dim: int | None = None, *, axis: int | None = None, dtype: Any = None
    ) -> Tensor:
        """exp(x) over its sum along an axis, the last one unless told otherwise."""
        return _along(activation.softmax, self, dim, axis, dtype)

    def log_softmax(
        self, dim: int | None = None, *, axis: int | None = None, dtype: Any = None
    ) -> Tensor:
        """Logarithm of softmax along an axis, the last one unless told otherwise."""
        return _along(activation.log_softmax, self, dim, axis, dtype)

    def nonzero(self, as_tuple: bool = False) -> Any:
        """Where elements are not 0.

        A row of indices for each, or with `as_tuple` one Tensor for each axis.
        """
        places = nonzero(self)
        return places if as_tuple else stack(list(places), axis=1)


@public
def _cumulative(x: Any, dim: Any, axis: Any, dtype: Any) -> Tensor:
    return reductions.cumulative_sum(x, axis_of(dim, axis), dtype)


@public
def _along(function: Any, x: Any, dim: Any, axis: Any, dtype: Any) -> Tensor:
    chosen = axis_of(dim, axis)
    if dtype is not None:
        x = astype(x, dtype_name(dtype), copy=False)
    result: Tensor = function(x, axis=-1 if chosen is None else chosen)
    return result


class Products:
    """Products of matrices and vectors."""

    __slots__ = ()

    matmul = linear_algebra.matmul
    outer = linear_algebra.outer

    def dot(self, other: Any) -> Tensor:
        """Sum of products of two vectors."""
        return _product(self, other, (1, 1), "dot")

    def mm(self, mat2: Any) -> Tensor:
        """Product of two matrices."""
        return _product(self, mat2, (2, 2), "mm")

    def mv(self, vec: Any) -> Tensor:
        """Product of a matrix and a vector."""
        return _product(self, vec, (2, 1), "mv")

    def bmm(self, mat2: Any) -> Tensor:
        """Products of two batches of matrices."""
        return _product(self, mat2, (3, 3), "bmm")

    def addmm(self, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
        """Beta * self + alpha * mat1 @ mat2."""
        product = _product(mat1, mat2, (2, 2), "addmm")
        if not (isinstance(alpha, int | float) and alpha == 1):
            product = arithmetic.multiply(product, alpha)
        bias = (
            self if isinstance(beta, int | float) and beta == 1 else arithmetic.multiply(self, beta)
        )
        return arithmetic.add(product, bias)


@public
def _product(x: Any, y: Any, ranks: tuple[int, int], name: str) -> Tensor:
    x, y = as_tensor(x), as_tensor(y)
    if (x.ndim, y.ndim) != ranks:
        raise ShapeError(
            f"{name} takes operands of {ranks[0]} and {ranks[1]} axes, got {short(x.type)} and "
            f"{short(y.type)}; use matmul"
        )
    return linear_algebra.matmul(x, y)
