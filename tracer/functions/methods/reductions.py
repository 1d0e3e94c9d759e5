"""Methods of Tensor that reduce axes, and matrix products, under PyTorch's names.

`dim` and `axis`, `keepdim` and `keepdims` are two names of one argument each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Concatenate, NamedTuple, ParamSpec, overload

from ops.errors import ArgumentError, ShapeError
from ops.types import dtype_name, normalize_axis, short
from tracer.dispatch.apply import apply
from tracer.functions import activation, arithmetic, linear_algebra, reductions
from tracer.functions.creation import as_tensor, astype
from tracer.functions.gather_scatter import nonzero
from tracer.functions.joining import stack
from tracer.functions.methods.elementwise import times
from tracer.functions.public import public
from tracer.functions.reductions import Axis
from tracer.tensors.tensor import Tensor

P = ParamSpec("P")
Function = Callable[..., Tensor]


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


# ---- what methods of one family share ------------------------------------------------------------


def _method(
    family: Callable[Concatenate[Function, P], Tensor], function: Function
) -> Callable[P, Tensor]:
    """The method that calls a function, with the arguments of its family."""
    made = public(partial(family, function))
    summary = (function.__doc__ or "").partition("\n")[0]
    made.__module__ = __name__
    made.__doc__ = f"{summary} See `tracer.{function.__name__}`."
    return made


def _reduced(
    function: Function, x: Any, dim: Any, axis: Any, keepdims: bool, **options: Any
) -> Tensor:
    chosen = axis_of(dim, axis)
    axes = tuple(chosen) if isinstance(chosen, list) else chosen
    return function(x, axis=axes, keepdims=keepdims, **options)


def _cast(x: Any, dtype: Any) -> Any:
    return x if dtype is None else astype(x, dtype_name(dtype), copy=False)


def _over_axes(
    function: Function,
    x: Any,
    dim: Axis = None,
    keepdim: bool = False,
    *,
    axis: Axis = None,
    keepdims: bool = False,
) -> Tensor:
    return _reduced(function, x, dim, axis, keepdim or keepdims)


def _over_axes_in(
    function: Function,
    x: Any,
    dim: Axis = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
    axis: Axis = None,
    keepdims: bool = False,
) -> Tensor:
    return _reduced(function, _cast(x, dtype), dim, axis, keepdim or keepdims)


def _spread(
    function: Function,
    x: Any,
    dim: Axis = None,
    unbiased: bool | None = None,
    keepdim: bool = False,
    *,
    correction: float = 1,
    axis: Axis = None,
    keepdims: bool = False,
) -> Tensor:
    divisor = correction if unbiased is None else float(unbiased)
    return _reduced(function, x, dim, axis, keepdim or keepdims, correction=divisor)


def _position(
    function: Function,
    x: Any,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    axis: int | None = None,
    keepdims: bool = False,
) -> Tensor:
    return _reduced(function, x, dim, axis, keepdim or keepdims)


def _along_last(
    function: Function,
    x: Any,
    dim: int | None = None,
    *,
    axis: int | None = None,
    dtype: Any = None,
) -> Tensor:
    chosen = axis_of(dim, axis)
    return function(_cast(x, dtype), axis=-1 if chosen is None else chosen)


def _extremum(
    functions: tuple[Function, Function, Function], x: Any, dim: Any, axis: Any, keepdims: bool
) -> Any:
    """Of all elements, elementwise beside another Tensor, or values and indices along an axis."""
    of_two, values, positions = functions
    if isinstance(dim, Tensor):
        return of_two(x, dim)
    chosen = axis_of(dim, axis)
    if chosen is None:
        return values(x, keepdims=keepdims)
    place = normalize_axis(chosen, x.ndim)
    indices = positions(x, axis=place, keepdims=True)
    found = apply("GatherElements", x, indices, axis=place)
    if not keepdims:
        found, indices = (apply("Squeeze", t, axes=(place,)) for t in (found, indices))
    return Extremum(found, indices)


_LARGEST = arithmetic.maximum, reductions.max, reductions.argmax
_SMALLEST = arithmetic.minimum, reductions.min, reductions.argmin


class Reductions:
    """Reductions over axes."""

    __slots__ = ()

    sum = _method(_over_axes_in, reductions.sum)
    prod = _method(_over_axes_in, reductions.prod)
    mean = _method(_over_axes_in, reductions.mean)
    var = _method(_spread, reductions.var)
    std = _method(_spread, reductions.std)
    amax = _method(_over_axes, reductions.max)
    amin = _method(_over_axes, reductions.min)
    argmax = _method(_position, reductions.argmax)
    argmin = _method(_position, reductions.argmin)
    all = _method(_over_axes, reductions.all)
    any = _method(_over_axes, reductions.any)
    logsumexp = _method(_over_axes, activation.logsumexp)
    softmax = _method(_along_last, activation.softmax)
    log_softmax = _method(_along_last, activation.log_softmax)

    @overload
    def max(self, dim: None = None, keepdim: bool = False) -> Tensor: ...
    @overload
    def max(self, dim: Tensor) -> Tensor: ...
    @overload
    def max(self, dim: int, keepdim: bool = False) -> Extremum: ...
    @overload
    def max(self, *, axis: int, keepdim: bool = False, keepdims: bool = False) -> Extremum: ...
    @public
    def max(
        self, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool = False
    ) -> Any:
        """Largest element; along an axis `values` and `indices`; elementwise with a Tensor.

        The type stays, indices are int64. Raises `ShapeError` where there are no elements. See `tracer.max`,
        which gives values alone.

        >>> tracer.tensor([[1, 5], [7, 0]]).max(dim=1)
        Extremum(values=tensor([5, 7]), indices=tensor([1, 0]))
        """
        return _extremum(_LARGEST, self, dim, axis, keepdim or keepdims)

    @overload
    def min(self, dim: None = None, keepdim: bool = False) -> Tensor: ...
    @overload
    def min(self, dim: Tensor) -> Tensor: ...
    @overload
    def min(self, dim: int, keepdim: bool = False) -> Extremum: ...
    @overload
    def min(self, *, axis: int, keepdim: bool = False, keepdims: bool = False) -> Extremum: ...
    @public
    def min(
        self, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool = False
    ) -> Any:
        """Smallest element; along an axis `values` and `indices`; elementwise with a Tensor.

        The type stays, indices are int64. Raises `ShapeError` where there are no elements. See `tracer.min`,
        which gives values alone.

        >>> tracer.tensor([[1, 5], [7, 0]]).min(dim=1)
        Extremum(values=tensor([1, 0]), indices=tensor([0, 1]))
        """
        return _extremum(_SMALLEST, self, dim, axis, keepdim or keepdims)

    @public
    def count_nonzero(self, dim: Axis = None, *, axis: Axis = None) -> Tensor:
        """How many elements over axes are not 0. See `tracer.count_nonzero`."""
        return _reduced(reductions.count_nonzero, self, dim, axis, False)

    @public
    def cumsum(
        self, dim: int | None = None, *, dtype: Any = None, axis: int | None = None
    ) -> Tensor:
        """The sum of all elements up to each one along an axis. See `tracer.cumulative_sum`."""
        return reductions.cumulative_sum(self, axis_of(dim, axis), dtype)

    @public
    def norm(
        self,
        p: Any = 2,
        dim: Axis = None,
        keepdim: bool = False,
        *,
        axis: Axis = None,
        keepdims: bool = False,
    ) -> Tensor:
        """(sum |x|**p)**(1/p) over axes; "fro" is 2. See `tracer.vector_norm`.

        >>> tracer.tensor([3.0, 4.0]).norm()
        tensor(5.)
        """
        order = (
            {"fro": 2.0, "inf": math.inf, "-inf": -math.inf}.get(p, p) if isinstance(p, str) else p
        )
        return _reduced(reductions.vector_norm, self, dim, axis, keepdim or keepdims, ord=order)

    def nonzero(self, as_tuple: bool = False) -> Any:
        """Where elements are not 0, as int64. See `tracer.nonzero`.

        A row of indices for each, or with `as_tuple` one Tensor for each axis.

        >>> tracer.tensor([[0, 5], [7, 0]]).nonzero()
        tensor([[0, 1],
                [1, 0]])
        """
        places = nonzero(self)
        return places if as_tuple else stack(list(places), axis=1)


class Products:
    """Products of matrices and vectors."""

    __slots__ = ()

    matmul = linear_algebra.matmul
    outer = linear_algebra.outer

    def dot(self, other: Any) -> Tensor:
        """Sum of products of two vectors. Raises `ShapeError` for other shapes. See `tracer.dot`.

        >>> tracer.tensor([1, 2]).dot([3, 4])
        tensor(11)
        """
        return _product("dot", 1, 1, self, other)

    def mm(self, mat2: Any) -> Tensor:
        """Product of two matrices. Raises `ShapeError` for other shapes. See `tracer.matmul`."""
        return _product("mm", 2, 2, self, mat2)

    def mv(self, vec: Any) -> Tensor:
        """Product of a matrix and a vector. Raises `ShapeError` for other shapes. See `tracer.matmul`."""
        return _product("mv", 2, 1, self, vec)

    def bmm(self, mat2: Any) -> Tensor:
        """Products of two batches of matrices. Raises `ShapeError` for other shapes. See `tracer.matmul`."""
        return _product("bmm", 3, 3, self, mat2)

    def addmm(self, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
        """beta * self + alpha * mat1 @ mat2, of matrices; self is broadcast. See `tracer.matmul`.

        >>> tracer.tensor([10, 20]).addmm([[1, 2]], [[1, 0], [0, 1]])
        tensor([[11, 22]])
        """
        product = _product("addmm", 2, 2, mat1, mat2)
        return arithmetic.add(times(alpha, product), times(beta, self))


@public
def _product(name: str, rank1: int, rank2: int, x: Any, y: Any) -> Tensor:
    x, y = as_tensor(x), as_tensor(y)
    if (x.ndim, y.ndim) != (rank1, rank2):
        raise ShapeError(
            f"{name} takes operands of {rank1} and {rank2} axes, got {short(x.type)} and "
            f"{short(y.type)}; use matmul"
        )
    return linear_algebra.matmul(x, y)
