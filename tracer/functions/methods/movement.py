"""Methods of Tensor that arrange, join and index elements, under PyTorch's names.

`dim` and `axis` are two names of one argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ops.dims import Dim
from ops.errors import ArgumentError, ShapeError
from ops.types import normalize_axis, short
from tracer.functions import gather_scatter, joining, movement, setitem, slice_scatter
from tracer.functions.creation import Size, as_sizes, as_tensor
from tracer.functions.getitem import get_item
from tracer.functions.methods.elementwise import times
from tracer.functions.methods.reductions import axis_of
from tracer.functions.movement import Axes
from tracer.functions.public import public
from tracer.tensors.tensor import Tensor

Sizes = int | Dim | Sequence[int | Dim]

MOST_PARTS = 1 << 16  # of a split, but for one part an element


class Movement:
    """Shapes, axes, parts."""

    __slots__ = ()

    def reshape(self, *shape: Sizes) -> Tensor:
        """Self with another shape of as many elements; one size may be -1. See `tracer.reshape`.

        Sizes one by one or as one sequence.

        >>> tracer.tensor([1, 2, 3, 4]).reshape(2, -1)
        tensor([[1, 2],
                [3, 4]])
        """
        return movement.reshape(self, one(shape))

    view = reshape  # memory is shared where it can be

    def reshape_as(self, other: Any) -> Tensor:
        """Self with the shape of another Tensor. See `tracer.reshape`."""
        return movement.reshape(self, as_tensor(other).shape)

    view_as = reshape_as

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """The axes from start_dim to end_dim made one. See `tracer.flatten`."""
        return movement.flatten(self, start_dim, end_dim)

    def ravel(self) -> Tensor:
        """All axes made one. See `tracer.flatten`."""
        return movement.flatten(self)

    @public
    def unflatten(self: Any, dim: int, sizes: Sequence[Size]) -> Tensor:
        """An axis made several; one size may be -1. Raises `ShapeError` where sizes do not fit.

        >>> tracer.zeros((2, 6)).unflatten(1, (2, -1)).shape
        (2, 2, 3)
        """
        place = normalize_axis(dim, self.ndim, "dim")
        shape = self.type.shape
        axis = movement.resolved(shape[place], as_sizes(sizes))
        return movement.reshape(self, (*shape[:place], *axis, *shape[place + 1 :]))

    def permute(self, *dims: Axes) -> Tensor:
        """Axes in another order, named one by one or as one sequence. See `tracer.permute_dims`.

        >>> tracer.zeros((2, 3, 4)).permute(2, 0, 1).shape
        (4, 2, 3)
        """
        return movement.permute_dims(self, one(dims))

    def transpose(self, dim0: int, dim1: int) -> Tensor:
        """Two axes swapped. See `tracer.swapaxes`."""
        return movement.swapaxes(self, dim0, dim1)

    swapaxes = swapdims = transpose

    def moveaxis(self, source: Axes, destination: Axes) -> Tensor:
        """Axes moved to other positions, the others left in order. See `tracer.moveaxis`."""
        return movement.moveaxis(self, source, destination)

    movedim = moveaxis

    @public
    def t(self: Any) -> Tensor:
        """A matrix transposed; fewer axes are left alone. Raises `ShapeError` for more.

        >>> tracer.tensor([[1, 2]]).t()
        tensor([[1],
                [2]])
        """
        if self.ndim > 2:
            raise ShapeError(f"t() takes at most 2 axes, got {short(self.type)}; use mT or permute")
        return movement.permute_dims(self, tuple(range(self.ndim))[::-1])

    @property
    def T(self: Any) -> Tensor:  # noqa: N802 - NumPy's name
        """All axes in reverse order."""
        return movement.permute_dims(self, tuple(range(self.ndim))[::-1])

    @property
    def mT(self) -> Tensor:  # noqa: N802 - the array API's name
        """The last two axes swapped."""
        return movement.matrix_transpose(self)

    @public
    def unsqueeze(self, dim: int | None = None, *, axis: int | None = None) -> Tensor:
        """A new axis of size 1 at this position of the result. See `tracer.expand_dims`.

        Raises `ArgumentError` if none is given.

        >>> tracer.tensor([1, 2]).unsqueeze(1)
        tensor([[1],
                [2]])
        """
        chosen = axis_of(dim, axis)
        if chosen is None:
            raise ArgumentError("an axis is needed; pass dim")
        return movement.expand_dims(self, chosen)

    @public
    def squeeze(self: Any, dim: Axes | None = None, *, axis: Axes | None = None) -> Tensor:
        """Self without axes of size 1: all of them, or those named that are 1. See `tracer.squeeze`.

        >>> tracer.zeros((1, 2, 1)).squeeze().shape, tracer.zeros((1, 2)).squeeze(1).shape
        ((2,), (1, 2))
        """
        chosen = axis_of(dim, axis)
        if chosen is None:
            return movement.squeeze(self)
        axes = {normalize_axis(a, self.ndim, "dim") for a in movement.ints(chosen, "dim")}
        shape = self.type.shape
        ones = (k for k in sorted(axes) if isinstance(shape[k], int) and shape[k] == 1)
        return movement.squeeze(self, tuple(ones))

    @public
    def expand(self: Any, *sizes: Sizes) -> Tensor:
        """Self broadcast to sizes; -1 keeps one. See `tracer.broadcast_to`.

        Raises `ShapeError` for fewer sizes than axes.

        >>> tracer.tensor([[1], [2]]).expand(-1, 3)
        tensor([[1, 1, 1],
                [2, 2, 2]])
        """
        wanted = as_sizes(one(sizes))
        lead = len(wanted) - self.ndim
        if lead < 0:
            raise ShapeError(f"expand: {short(self.type)} has more axes than {wanted}")
        shape = tuple(
            self.type.shape[k - lead] if k >= lead and isinstance(d, int) and d == -1 else d
            for k, d in enumerate(wanted)
        )
        return movement.broadcast_to(self, shape)

    def expand_as(self, other: Any) -> Tensor:
        """Self broadcast to the shape of another Tensor. See `tracer.broadcast_to`."""
        return movement.broadcast_to(self, as_tensor(other).shape)

    def broadcast_to(self, shape: Sizes) -> Tensor:
        """Self broadcast to a shape. See `tracer.broadcast_to`."""
        return movement.broadcast_to(self, shape)

    def repeat(self, *sizes: Sizes) -> Tensor:
        """Self as a whole, repeated along each axis. See `tracer.tile`.

        Elements are repeated by `repeat_interleave`.

        >>> tracer.tensor([1, 2]).repeat(2, 2)
        tensor([[1, 2, 1, 2],
                [1, 2, 1, 2]])
        """
        return joining.tile(self, one(sizes))

    tile = repeat

    @public
    def repeat_interleave(
        self, repeats: Any, dim: int | None = None, *, axis: int | None = None
    ) -> Tensor:
        """Every element, or slice along an axis, repeated in place. See `tracer.repeat`.

        >>> tracer.tensor([1, 2]).repeat_interleave(2)
        tensor([1, 1, 2, 2])
        """
        return joining.repeat(self, repeats, axis_of(dim, axis))

    @public
    def flip(self, *dims: Axes, axis: Axes | None = None) -> Tensor:
        """Elements in reverse order along axes, along all when none is named. See `tracer.flip`."""
        return movement.flip(self, axis_of(one(dims) if dims else None, axis))

    @public
    def roll(self, shifts: Axes, dims: Axes | None = None, *, axis: Axes | None = None) -> Tensor:
        """Elements moved towards the end along axes; what falls off enters in front. See `tracer.roll`."""
        return movement.roll(self, shifts, axis_of(dims, axis))

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
        """The elements where position along dim2 is that along dim1 plus offset, as a last axis. See `tracer.diagonal`."""
        return movement.diagonal(self, offset, dim1, dim2)

    def tril(self, diagonal: int = 0) -> Tensor:
        """The lower triangle of matrices in the last two axes. See `tracer.tril`."""
        return movement.tril(self, diagonal)

    def triu(self, diagonal: int = 0) -> Tensor:
        """The upper triangle of matrices in the last two axes. See `tracer.triu`."""
        return movement.triu(self, diagonal)

    @public
    def size(self: Any, dim: int | None = None) -> Any:
        """The shape, or the size of one axis. The number of elements is `numel()`.

        >>> tracer.zeros((2, 3)).size(), tracer.zeros((2, 3)).size(-1)
        ((2, 3), 3)
        """
        shape = self.type.shape
        return shape if dim is None else shape[normalize_axis(dim, self.ndim, "dim")]

    # ---- parts
    @public
    def split(
        self: Any, split_size_or_sections: Any, dim: int | None = None, *, axis: int | None = None
    ) -> tuple[Tensor, ...]:
        """Parts of this size along an axis, the last one smaller where need be.

        Or parts of the sizes in a list. Views. Raises `ShapeError` where the sizes do not fit. `tracer.split`
        takes a number of parts.

        >>> tracer.arange(5).split(2)
        (tensor([0, 1]), tensor([2, 3]), tensor([4]))
        """
        chosen = first_axis(dim, axis)
        if isinstance(split_size_or_sections, int):
            return _parts_of(self, split_size_or_sections, *_known_size(self, chosen, "split"))
        sizes = movement.ints(split_size_or_sections, "split_size_or_sections")
        return joining.split_sizes(self, sizes, normalize_axis(chosen, self.ndim, "dim"))

    @public
    def tensor_split(
        self: Any, indices_or_sections: Any, dim: int | None = None, *, axis: int | None = None
    ) -> tuple[Tensor, ...]:
        """As many parts of nearly equal size along an axis, or parts cut at positions. Views.

        Raises `ShapeError` for fewer than one part. `tracer.split` wants parts of equal size.

        >>> tracer.arange(5).tensor_split(2)
        (tensor([0, 1, 2]), tensor([3, 4]))
        """
        chosen, count = first_axis(dim, axis), indices_or_sections
        if not isinstance(count, int):
            return joining.split(self, count, chosen)
        place, size = _known_size(self, chosen, "tensor_split")
        if count < 1:
            raise ShapeError(f"tensor_split needs at least 1 part, got {count}")
        if count > max(size, MOST_PARTS):  # parts of no elements
            raise ShapeError(
                f"tensor_split of {size} elements into {count} parts: more than {MOST_PARTS}"
            )
        least, longer = divmod(size, count)
        return joining.split_sizes(self, [least + (k < longer) for k in range(count)], place)

    @public
    def chunk(
        self: Any, chunks: int, dim: int | None = None, *, axis: int | None = None
    ) -> tuple[Tensor, ...]:
        """At most so many parts of equal size along an axis, the last one smaller if need be. Views.

        Raises `ShapeError` for fewer than one part.

        >>> tracer.arange(5).chunk(2)
        (tensor([0, 1, 2]), tensor([3, 4]))
        """
        place, size = _known_size(self, first_axis(dim, axis), "chunk")
        (count,) = movement.ints((chunks,), "chunks")
        if count < 1:
            raise ShapeError(f"chunk needs at least 1 part, got {count}")
        return _parts_of(self, max(-(-size // count), 1), place, size)

    @public
    def unbind(self, dim: int | None = None, *, axis: int | None = None) -> tuple[Tensor, ...]:
        """The slices along an axis, without that axis. See `tracer.unstack`."""
        return joining.unstack(self, first_axis(dim, axis))

    @public
    def narrow(self: Any, dim: int, start: int, length: int) -> Tensor:
        """`length` elements from `start` on along an axis: a view. Raises `ShapeError` for others than there are.

        >>> tracer.arange(5).narrow(0, 1, 3)
        tensor([1, 2, 3])
        """
        place = normalize_axis(dim, self.ndim, "dim")
        size = self.type.shape[place]
        if isinstance(size, int):
            start = start + size if start < 0 else start
            if not 0 <= start <= start + length <= size:
                raise ShapeError(
                    f"narrow: elements {start} to {start + length} are not all in axis {place} of "
                    f"{short(self.type)}"
                )
        return joining.part(self, place, start, start + length)

    @public
    def select(self: Any, dim: int, index: int) -> Tensor:
        """One slice along an axis, without that axis: a view.

        >>> tracer.tensor([[1, 2], [3, 4]]).select(1, 0)
        tensor([1, 3])
        """
        place = normalize_axis(dim, self.ndim, "dim")
        return get_item(self, (*(slice(None),) * place, index))


class Indexing:
    """Elements at computed indices."""

    __slots__ = ()

    def index_select(self, dim: int, index: Any) -> Tensor:
        """The slices at indices along an axis. See `tracer.take`.

        >>> tracer.tensor([[1, 2, 3]]).index_select(1, [2, 0])
        tensor([[3, 1]])
        """
        return gather_scatter.take(self, index, dim)

    def take(self, index: Any) -> Tensor:
        """The elements at indices into all elements in row-major order. See `tracer.take`."""
        return gather_scatter.take(self, index)

    def gather(self, dim: int, index: Any) -> Tensor:
        """The elements at indices along an axis. See `tracer.gather`.

        Result[i][j] = self[i][index[i][j]] for the last of two axes.

        >>> tracer.tensor([[1, 2], [3, 4]]).gather(1, [[1], [0]])
        tensor([[2],
                [3]])
        """
        return gather_scatter.gather(self, index, dim)

    @public
    def take_along_dim(
        self, indices: Any, dim: int | None = None, *, axis: int | None = None
    ) -> Tensor:
        """The elements at indices along an axis, the other axes broadcast. See `tracer.take_along_axis`."""
        chosen = axis_of(dim, axis)
        if chosen is None:
            return gather_scatter.take_along_axis(
                movement.flatten(self), movement.flatten(indices), 0
            )
        return gather_scatter.take_along_axis(self, indices, chosen)

    def scatter_add(self, dim: int, index: Any, src: Any) -> Tensor:
        """Self with each element of src added at its index along an axis. See `tracer.scatter_add`."""
        return gather_scatter.scatter_add(self, index, src, dim)

    @public
    def scatter(self, dim: int, index: Any, src: Any = None, *, value: Any = None) -> Tensor:
        """Self with each element of src, or one value, in the place of that at its index. See `tracer.scatter`.

        Raises `ArgumentError` for both src and value, or neither.

        >>> tracer.zeros(3).scatter(0, [2], value=5.0)
        tensor([0., 0., 5.])
        """
        if (src is None) == (value is None):
            raise ArgumentError("scatter takes either src or value")
        return gather_scatter.scatter(self, index, value if src is None else src, dim)

    def index_copy(self, dim: int, index: Any, source: Any) -> Tensor:
        """Self with the slices of source in the place of its own at indices along an axis. See `tracer.index_copy`."""
        return gather_scatter.index_copy(self, index, source, dim)

    def index_fill(self, dim: int, index: Any, value: Any) -> Tensor:
        """Self with its slices at indices along an axis filled with one value. See `tracer.index_copy`.

        >>> tracer.zeros((2, 2)).index_fill(0, [1], 5.0)
        tensor([[0., 0.],
                [5., 5.]])
        """
        return gather_scatter.index_copy(self, index, value, dim)

    def index_put(self, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Tensor:
        """Self with values in the place of self[indices], or added there. See `tracer.index_put`."""
        return setitem.index_put(self, indices, values, accumulate)

    def masked_select(self, mask: Any, *, size: Size | None = None) -> Tensor:
        """The elements where a mask holds; a trace needs to be told their number. See `tracer.masked_select`."""
        return gather_scatter.masked_select(self, mask, size)

    def masked_scatter(self, mask: Any, source: Any) -> Tensor:
        """Self with the elements of source, in order, where a mask holds. See `tracer.masked_scatter`."""
        return setitem.masked_scatter(self, mask, source)

    def slice_scatter(
        self, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
    ) -> Tensor:
        """Self with src in the place of the slice start:end:step along an axis. See `tracer.slice_scatter`."""
        return slice_scatter.slice_scatter(self, src, dim, start, end, step)

    def select_scatter(self, src: Any, dim: int, index: int) -> Tensor:
        """Self with src in the place of one slice along an axis. See `tracer.select_scatter`."""
        return slice_scatter.select_scatter(self, src, dim, index)

    def diagonal_scatter(self, src: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
        """Self with src in the place of a diagonal. See `tracer.diagonal_scatter`."""
        return slice_scatter.diagonal_scatter(self, src, offset, dim1, dim2)

    def index_add(self, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Tensor:
        """Self with the slices of source, times alpha, added at indices along an axis. See `tracer.index_add`.

        >>> tracer.zeros(3).index_add(0, [0, 0], [1.0, 2.0], alpha=10)
        tensor([30.,  0.,  0.])
        """
        return gather_scatter.index_add(self, index, times(alpha, source), dim)


# ---- arguments -----------------------------------------------------------------------------------


def one(sizes: tuple[Any, ...]) -> Any:
    """Sizes or axes given one by one or as one sequence."""
    return sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int | Dim) else sizes


def first_axis(dim: Any, axis: Any) -> Any:
    """The axis given as `dim` or `axis`, 0 for neither."""
    chosen = axis_of(dim, axis)
    return 0 if chosen is None else chosen


def _known_size(x: Tensor, axis: int, what: str) -> tuple[int, int]:
    place = normalize_axis(axis, x.ndim, "dim")
    size = x.type.shape[place]
    if isinstance(size, Dim):
        raise ShapeError(
            f"{what} needs to know the size of axis {place}, which is the symbol {size}"
        )
    return place, size


def _parts_of(x: Tensor, length: int, place: int, size: int) -> tuple[Tensor, ...]:
    if length < 1:
        raise ShapeError(f"split: parts must have at least 1 element, got {length}")
    starts = range(0, max(size, 1), length)
    return joining.split_sizes(x, [min(length, size - start) for start in starts], place)
