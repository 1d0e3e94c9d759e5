"""Sums of products in index notation.

Lowered to diagonals, sums, transposes and matrix products, two operands at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ops import dims
from ops.dims import Dim
from ops.errors import ArgumentError, ShapeError
from ops.types import short
from tracer.dispatch.apply import apply
from tracer.functions.creation import cast
from tracer.functions.elementwise import strong
from tracer.functions.movement import reshape
from tracer.functions.promotion import prepare
from tracer.functions.public import public
from tracer.tensors.tensor import Tensor

Labels = tuple[str, ...]


@public
def einsum(subscripts: str, /, *operands: Any) -> Tensor:
    """Sum of products by Einstein's convention: einsum("bij,bjk->bik", x, y).

    One letter for each axis, `...` for broadcast ones; letters that the result lacks are summed
    over. Without "->" the result has the letters that occur once, in alphabetical order. More
    than two operands are multiplied in the order that numpy.einsum_path finds cheapest, in the type
    that all promote to. Raises `ArgumentError` for subscripts that say nothing, `ShapeError` where
    they do not fit the operands.

    >>> tracer.einsum("ij,j->i", [[1, 2], [3, 4]], [10, 1])
    tensor([12, 34])
    """
    if not isinstance(subscripts, str):
        raise ArgumentError(
            f'einsum takes subscripts such as "ij,jk->ik" first, got {type(subscripts).__name__}'
        )
    if not operands:
        raise ArgumentError(f"einsum({subscripts!r}) needs an operand for each term")
    tensors = [strong(x) for x in prepare(*operands)]
    inputs, output = _parse(subscripts, tensors)
    sizes = _sizes(subscripts, inputs, tensors)
    terms = [
        _single(x, labels, output, inputs, k)
        for k, (x, labels) in enumerate(zip(tensors, inputs, strict=True))
    ]
    for pair in _order(inputs, output, tensors, sizes):
        chosen = [terms[k] for k in pair]
        terms = [t for k, t in enumerate(terms) if k not in pair]
        while len(chosen) > 1:
            first, second = chosen.pop(0), chosen.pop(0)
            left = {label for _, labels in (*terms, *chosen) for label in labels} | set(output)
            chosen.insert(0, _product(first, second, left))
        terms += chosen
    return _finish(*terms[0], output, sizes)


# ---- notation ------------------------------------------------------------------------------------


def _parse(subscripts: str, operands: Sequence[Tensor]) -> tuple[list[Labels], Labels]:
    """Labels of each operand's axes and of the result's.

    Axes under an ellipsis are labelled ...0, ...1 from the last one.
    """
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise ArgumentError(
            f"einsum({subscripts!r}) names {len(terms)} operands, got {len(operands)}"
        )
    hidden = 0
    inputs = []
    for term, x in zip(terms, operands, strict=True):
        letters = _letters(term, subscripts)
        count = x.ndim - (len(letters) - ("..." in letters))
        if count < 0 or (count and "..." not in letters):
            raise ShapeError(
                f"einsum({subscripts!r}): the term {term!r} does not fit the {x.ndim} axes of "
                f"{short(x.type)}"
            )
        hidden = max(hidden, count)
        inputs.append(_spread(letters, count))
    if arrow:
        output = _spread(_letters(right, subscripts), hidden)
    else:
        once = [s for labels in inputs for s in labels if len(s) == 1]
        output = (*_ellipsis(hidden), *sorted(s for s in set(once) if once.count(s) == 1))
    known = {label for labels in inputs for label in labels}
    if len(set(output)) < len(output) or not set(output) <= known:
        raise ArgumentError(
            f"einsum({subscripts!r}): the result must name each of its letters once, and only "
            "letters of the operands"
        )
    return inputs, output


def _letters(term: str, subscripts: str) -> list[str]:
    head, dots, tail = term.partition("...")
    letters = [*head, *([dots] if dots else []), *tail]
    if any(len(s) == 1 and not (s.isascii() and s.isalpha()) for s in letters):
        raise ArgumentError(
            f"einsum({subscripts!r}): a term is made of letters and at most one ellipsis, got "
            f"{term!r}"
        )
    return letters


def _ellipsis(count: int) -> Labels:
    return tuple(f"...{k}" for k in range(count - 1, -1, -1))


def _spread(letters: list[str], count: int) -> Labels:
    return tuple(
        s for letter in letters for s in (_ellipsis(count) if letter == "..." else (letter,))
    )


def _sizes(subscripts: str, inputs: Sequence[Labels], operands: Sequence[Tensor]) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    for labels, x in zip(inputs, operands, strict=True):
        for label, size in zip(labels, x.type.shape, strict=True):
            known = sizes.setdefault(label, size)
            if known == 1:
                sizes[label] = size
            elif size not in (known, 1):
                name = label if len(label) == 1 else "an axis under ..."
                raise ShapeError(f"einsum({subscripts!r}): {name} has sizes {known} and {size}")
    return sizes


def _order(
    inputs: Sequence[Labels], output: Labels, operands: Sequence[Tensor], sizes: dict[str, Any]
) -> list[tuple[int, ...]]:
    """Which terms are multiplied next, by their positions in the list of those that are left.

    Results are appended.
    """
    if len(inputs) < 3 or any(isinstance(d, Dim) for d in sizes.values()):
        return [(0, 1)] * (len(inputs) - 1)
    code = {label: k for k, label in enumerate(sizes)}
    interleaved: list[Any] = []
    for labels, x in zip(inputs, operands, strict=True):
        interleaved += [
            np.broadcast_to(np.float32(0), tuple(map(int, x.type.shape))),
            [code[s] for s in labels],
        ]
    path, _ = np.einsum_path(*interleaved, [code[s] for s in output], optimize="greedy")
    return [tuple(step) for step in path[1:]]


# ---- arithmetic ----------------------------------------------------------------------------------

Term = tuple[Tensor, Labels]


def _single(
    x: Tensor, labels: Labels, output: Labels, inputs: Sequence[Labels], position: int
) -> Term:
    """One operand without repeated letters, summed over letters that nothing else has."""
    while len(set(labels)) < len(labels):
        label = next(s for s in labels if labels.count(s) > 1)
        first = labels.index(label)
        second = labels.index(label, first + 1)
        rows, columns = x.type.shape[first], x.type.shape[second]
        if rows != columns:  # one of them is 1, and stands for every element
            side = rows if columns == 1 else columns
            shape = tuple(side if k in (first, second) else d for k, d in enumerate(x.type.shape))
            x = apply("Expand", x, shape=shape)
        x = apply("Diagonal", x, offset=0, axis1=first, axis2=second)
        labels = (*(s for k, s in enumerate(labels) if k not in (first, second)), label)
    elsewhere = set(output).union(*(s for k, s in enumerate(inputs) if k != position))
    return _summed(x, labels, elsewhere)


def _summed(x: Tensor, labels: Labels, keep: set[str]) -> Term:
    axes = tuple(k for k, s in enumerate(labels) if s not in keep)
    if axes:
        if x.type.dtype == "bool":
            x = cast(x, "int64")
        x = apply("ReduceSum", x, axes=axes, keepdims=False)
    return x, tuple(s for s in labels if s in keep)


def _without_ones(term: Term, other: Term) -> Term:
    """A term without axes of size 1 that the other one has with another size."""
    (x, labels), (y, others) = term, other
    size = dict(zip(others, y.type.shape, strict=True))
    axes = tuple(
        k
        for k, (s, d) in enumerate(zip(labels, x.type.shape, strict=True))
        if d == 1 and size.get(s, 1) != 1
    )
    if axes:
        x = apply("Squeeze", x, axes=axes)
    return x, tuple(s for k, s in enumerate(labels) if k not in axes)


def _arranged(x: Tensor, labels: Labels, order: Labels) -> Tensor:
    perm = tuple(labels.index(s) for s in order)
    return x if perm == tuple(range(len(perm))) else apply("Transpose", x, perm=perm)


def _product(first: Term, second: Term, keep: set[str]) -> Term:
    """The product of two terms, summed over what nothing else has.

    A matrix product, or elementwise where nothing is summed.
    """
    first, second = _without_ones(first, second), _without_ones(second, first)
    first = _summed(*first, keep | set(second[1]))
    second = _summed(*second, keep | set(first[1]))
    (x, a), (y, b) = first, second
    shared = tuple(s for s in a if s in b)
    batch, inner = tuple(s for s in shared if s in keep), tuple(s for s in shared if s not in keep)
    rows, columns = tuple(s for s in a if s not in b), tuple(s for s in b if s not in a)
    size = dict(zip((*a, *b), (*x.type.shape, *y.type.shape), strict=True))

    def shape(labels: Labels) -> tuple[Any, ...]:
        return tuple(size[s] for s in labels)

    result_labels = (*batch, *rows, *columns)
    x, y = _arranged(x, a, (*batch, *rows, *inner)), _arranged(y, b, (*batch, *inner, *columns))
    if not inner:
        x = reshape(x, (*shape(batch), *shape(rows), *(1 for _ in columns)))
        y = reshape(y, (*shape(batch), *(1 for _ in rows), *shape(columns)))
        return apply("Mul", x, y), result_labels
    count = dims.product(shape(inner))
    x = reshape(x, (*shape(batch), dims.product(shape(rows)), count))
    y = reshape(y, (*shape(batch), count, dims.product(shape(columns))))
    return reshape(apply("MatMul", x, y), shape(result_labels)), result_labels


def _finish(x: Tensor, labels: Labels, output: Labels, sizes: dict[str, Any]) -> Tensor:
    """The last term in the result's order.

    Axes that were left out because they were 1 everywhere are put back.
    """
    x, labels = _summed(x, labels, set(output))
    result = _arranged(x, labels, tuple(s for s in output if s in labels))
    shape = tuple(sizes[s] for s in output)
    return result if result.type.shape == shape else reshape(result, shape)


__all__ = ["einsum"]
