"""Sizes of axes: an int, or an expression in named symbols in canonical form.

Expressions are integer polynomials over atoms (symbols, floor divisions, maxima), so that two
expressions that are equal as polynomials are equal objects. An expression that is a constant is
always a plain int. Symbols stand for any size >= 0.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from numbers import Integral, Number
from typing import Any

from ops.errors import ParseError, ShapeError

_Monomial = tuple[Any, ...]
_HIGHEST_POWER = 8


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named size, not known before the program runs."""

    name: str

    def __str__(self) -> str:
        return self.name

    def substitute(self, values: Mapping[str, int | Dim]) -> int | Dim:
        """The size with symbols replaced."""
        return values.get(self.name, Dim.symbol(self.name))

    def symbols(self) -> set[str]:
        """Names of the symbols in it."""
        return {self.name}


@dataclass(frozen=True, slots=True)
class FloorDivide:
    """numerator / denominator, rounded down."""

    numerator: int | Dim
    denominator: int | Dim

    def __str__(self) -> str:
        return f"{_operand(self.numerator)}//{_operand(self.denominator)}"

    def substitute(self, values: Mapping[str, int | Dim]) -> int | Dim:
        """The size with symbols replaced."""
        return substitute(self.numerator, values) // substitute(self.denominator, values)

    def symbols(self) -> set[str]:
        """Names of the symbols in it."""
        return symbols(self.numerator) | symbols(self.denominator)


@dataclass(frozen=True, slots=True)
class Maximum:
    """The larger of two sizes."""

    left: int | Dim
    right: int | Dim

    def __str__(self) -> str:
        return f"max({self.left}, {self.right})"

    def substitute(self, values: Mapping[str, int | Dim]) -> int | Dim:
        """The size with symbols replaced."""
        return maximum(substitute(self.left, values), substitute(self.right, values))

    def symbols(self) -> set[str]:
        """Names of the symbols in it."""
        return symbols(self.left) | symbols(self.right)


def _operand(size: int | Dim) -> str:
    """A size as part of a product or quotient: in parentheses unless it is one name or number."""
    text = str(size)
    return text if text.isidentifier() or text.isdecimal() else f"({text})"


_Atom = Symbol | FloorDivide | Maximum


class Dim:
    """A size that is no constant: a polynomial with integer coefficients. Immutable and hashable.

    Build with `Dim.symbol("n")` and `+ - * //` and `maximum`, `minimum`. `==` is equality as
    polynomials; there is no order, so code that compares sizes must say what it does for symbols.

        >>> from tracer.ir import Dim
        >>> n = Dim.symbol("n")
        >>> (n + 1) * 2 == 2 * n + 2
        True
    """

    __slots__ = ("_hash", "terms")
    terms: tuple[tuple[_Monomial, int], ...]

    def __init__(self, terms: tuple[tuple[_Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)

    @staticmethod
    def symbol(name: str) -> Dim:
        """The symbol `name`, an identifier."""
        if not name.isidentifier() or name == "max":
            raise ShapeError(f"a symbolic size is named by an identifier, got {name!r}")
        return Dim((((Symbol(name),), 1),))

    @staticmethod
    def _of_atom(atom: _Atom) -> Dim:
        return Dim((((atom,), 1),))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: int | Dim) -> int | Dim:
        return (
            _collect((*self.terms, *_terms(other)))
            if _is_size(other)
            else self._refused("+", other)
        )

    __radd__ = __add__

    def __neg__(self) -> int | Dim:
        return self * -1

    def __sub__(self, other: int | Dim) -> int | Dim:
        return self + other * -1 if _is_size(other) else self._refused("-", other)

    def __rsub__(self, other: int | Dim) -> int | Dim:
        return self * -1 + other if _is_size(other) else self._refused("-", other)

    def __mul__(self, other: int | Dim) -> int | Dim:
        if not _is_size(other):
            refused: int | Dim = self._refused("*", other)
            return refused
        return _collect(
            tuple(
                (tuple(sorted((*m, *n), key=str)), c * d)
                for m, c in self.terms
                for n, d in _terms(other)
            )
        )

    __rmul__ = __mul__

    def __floordiv__(self, other: int | Dim) -> int | Dim:
        return _floor_divide(self, _plain(other)) if _is_size(other) else self._refused("//", other)

    def __rfloordiv__(self, other: int | Dim) -> int | Dim:
        return _floor_divide(_plain(other), self) if _is_size(other) else self._refused("//", other)

    def __mod__(self, other: int | Dim) -> int | Dim:
        return self - (self // other) * other if _is_size(other) else self._refused("%", other)

    def __truediv__(self, other: Any) -> Any:
        return self._refused("/", other)

    __rtruediv__ = __truediv__

    def __pow__(self, other: int) -> Any:
        if isinstance(other, int) and 0 <= other <= _HIGHEST_POWER:
            return prod([self] * other)
        return self._refused("**", other)

    def __rpow__(self, other: Any) -> Any:
        return self._refused("**", other)

    def _refused(self, sign: str, other: Any) -> Any:
        """What an operation with something that is no size gives: what the other one makes of it, and no number."""
        if not isinstance(other, Number):
            return NotImplemented
        raise ShapeError(
            f"the size {self} is symbolic: what {sign} gives with {other} is no size. Compute with a Tensor instead: "
            "tracer.asarray(x.shape[0])"
        )

    def _not_ordered(self, other: Any) -> Any:
        """Raise `ShapeError`: nobody knows which one is larger."""
        if not isinstance(other, Dim | Number):
            return NotImplemented
        raise ShapeError(
            f"whether the size {self} is larger or smaller than {other} is not known: it is symbolic. Keep it fixed where "
            "code depends on it"
        )

    __lt__ = __le__ = __gt__ = __ge__ = _not_ordered

    def __str__(self) -> str:
        parts = []
        for monomial, coefficient in self.terms:
            # 2*(n//2) is not 2*n//2: a quotient is put in parentheses unless it stands alone
            alone = len(monomial) == 1 and coefficient == 1
            factors = [
                f"({a})" if isinstance(a, FloorDivide) and not alone else str(a) for a in monomial
            ]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            parts.append("-" * (coefficient < 0) + "*".join(factors))
        return " + ".join(parts).replace("+ -", "- ")

    def __repr__(self) -> str:
        return str(self)  # as in the shapes of messages

    def __format__(self, spec: str) -> str:
        return format(str(self), spec.removesuffix("d"))

    def __reduce__(self) -> tuple[Any, ...]:
        return Dim, (self.terms,)  # the hash is another one in another process

    def __bool__(self) -> bool:
        raise ShapeError(f"whether the size {self} is zero is not known: it is symbolic")

    def __index__(self) -> int:
        raise ShapeError(
            f"the size {self} is symbolic, it has no integer value. Keep it fixed where code depends on it"
        )

    def __float__(self) -> float:
        raise ShapeError(
            f"the size {self} is symbolic, it has no value as a number. Compute with a Tensor instead: "
            "tracer.asarray(x.shape[0])"
        )


def _is_size(x: Any) -> bool:
    return isinstance(x, (Dim, int, Integral))  # NumPy's integers are Integral


def _plain(size: int | Dim) -> int | Dim:
    return size if isinstance(size, Dim) else int(size)


def _terms(size: int | Dim) -> tuple[tuple[_Monomial, int], ...]:
    return size.terms if isinstance(size, Dim) else (((), int(size)),)


def _collect(terms: tuple[tuple[_Monomial, int], ...]) -> int | Dim:
    total: dict[_Monomial, int] = {}
    for monomial, coefficient in terms:
        total[monomial] = total.get(monomial, 0) + coefficient
    kept = tuple(
        sorted(
            ((m, c) for m, c in total.items() if c),
            key=lambda t: (-len(t[0]), [str(a) for a in t[0]]),
        )
    )
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    return Dim(kept)


def _floor_divide(numerator: int | Dim, denominator: int | Dim) -> int | Dim:
    if isinstance(denominator, int):
        if denominator == 0:
            raise ShapeError("a size is divided by zero")
        if isinstance(numerator, int):
            return numerator // denominator
        # whole multiples leave the floor: (4*n + 6)//4 = n + 6//4
        whole = tuple((m, c // denominator) for m, c in numerator.terms if c % denominator == 0)
        rest = tuple((m, c) for m, c in numerator.terms if c % denominator)
        if whole:
            remaining = _collect(rest)
            return _collect((*whole, *_terms(remaining // denominator)))
        return Dim._of_atom(FloorDivide(numerator, denominator))
    if numerator == denominator:
        return 1
    quotient = _exact_quotient(numerator, denominator)
    if quotient is not None:
        return quotient
    return Dim._of_atom(FloorDivide(numerator, denominator))


def _exact_quotient(numerator: int | Dim, denominator: Dim) -> int | Dim | None:
    """numerator / denominator when the latter is one monomial that divides every term."""
    if len(denominator.terms) != 1:
        return None
    divisor, scale = denominator.terms[0]
    terms = []
    for monomial, coefficient in _terms(numerator):
        rest = list(monomial)
        for atom in divisor:
            if atom not in rest:
                return None
            rest.remove(atom)
        if coefficient % scale:
            return None
        terms.append((tuple(rest), coefficient // scale))
    return _collect(tuple(terms))


def maximum(left: int | Dim, right: int | Dim) -> int | Dim:
    """The larger of two sizes, as an expression where it is not known."""
    if left == right:
        return left
    difference = left - right
    if isinstance(difference, int):
        return left if difference > 0 else right
    if never_negative(difference):
        return left
    if never_negative(-difference):
        return right
    # What both have in common is added outside, so that two maxima of one difference are one atom:
    # max(n - 1, 0) = max(n, 1) - 1, and max(-n, -1) = max(n, 1) - n - 1.
    shift = _common(left, right)
    first, second = sorted((left - shift, right - shift), key=str)
    return Dim._of_atom(Maximum(first, second)) + shift


def _common(left: int | Dim, right: int | Dim) -> int | Dim:
    """The part of two sizes without which neither has a negative term, nor both the same."""
    first, second = dict(_terms(left)), dict(_terms(right))
    monomials = dict.fromkeys((*first, *second))
    return _collect(tuple((m, min(first.get(m, 0), second.get(m, 0))) for m in monomials))


def minimum(left: int | Dim, right: int | Dim) -> int | Dim:
    """The smaller of two sizes."""
    return -maximum(-left, -right)


def never_negative(size: int | Dim, depth: int = 4) -> bool:
    """Whether a size is seen to be at least 0 whatever its symbols are; False says nothing."""
    terms = _terms(size)
    if all(c >= 0 and all(map(_atom_never_negative, m)) for m, c in terms):
        return True
    found = next(((m, c) for m, c in terms if len(m) == 1 and isinstance(m[0], Maximum)), None)
    if found is None or not depth:
        return False
    # A maximum is one of its sides: enough if one is large enough, or, where it is subtracted, both are small enough.
    ((atom,), coefficient) = found
    rest = size - Dim._of_atom(atom) * coefficient
    enough = any if coefficient > 0 else all
    return enough(
        never_negative(rest + side * coefficient, depth - 1) for side in (atom.left, atom.right)
    )


def _atom_never_negative(atom: _Atom) -> bool:
    match atom:
        case FloorDivide(numerator, denominator):
            return never_negative(numerator) and never_negative(denominator)
        case Maximum(left, right):
            return never_negative(left) or never_negative(right)
    return True


def product(sizes: tuple[int | Dim, ...]) -> int | Dim:
    """The number of elements of a shape."""
    return prod(sizes)  # type: ignore[arg-type, return-value, unused-ignore]


def substitute(size: int | Dim, values: Mapping[str, int | Dim]) -> int | Dim:
    """The size with symbols replaced."""
    if not isinstance(size, Dim):
        return size
    total: int | Dim = 0
    for monomial, coefficient in size.terms:
        term: int | Dim = coefficient
        for atom in monomial:
            term = term * atom.substitute(values)
        total = total + term
    return total


def symbols(size: int | Dim) -> set[str]:
    """Names of the symbols in a size."""
    if not isinstance(size, Dim):
        return set()
    return set().union(*(atom.symbols() for monomial, _ in size.terms for atom in monomial))


# Bounds on what is read, so that hostile text cannot take long.
_LONGEST_TEXT, _MOST_TERMS = 10_000, 1_000
_WRITTEN = re.compile(r"[\w +\-*/(),]+")
_GLUED = re.compile(
    r"\b\d+[^\W\d]"
)  # 3n, 0x10, 1_000: no size is written so, and Python warns of some


@lru_cache(maxsize=1000)
def parse(text: str) -> int | Dim:
    """The size written as Python arithmetic: names, integers, + - * // and max(a, b).

    Raises `ParseError`.
    """
    try:
        if len(text) > _LONGEST_TEXT or not _WRITTEN.fullmatch(text) or _GLUED.search(text):
            raise ValueError("too long, or signs that no size has")
        return _parse(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ParseError(f"not a size: {text[:80]!r}") from None


def _parse(node: ast.expr) -> int | Dim:
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return Dim.symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_parse(operand)
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            return _parse_sum(node)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            first, second = _parse(left), _parse(right)
            if len(_terms(first)) * len(_terms(second)) > _MOST_TERMS:
                raise ValueError("too many terms")
            return first * second
        case ast.BinOp(left=left, op=ast.FloorDiv(), right=right):
            return _parse(left) // _parse(right)
        case ast.Call(func=ast.Name(id="max"), args=[left, right], keywords=[]):
            return maximum(_parse(left), _parse(right))
    raise ValueError("not a size")


def _parse_sum(node: ast.expr) -> int | Dim:
    """a + b - c ..., whose tree leans to the left: read without recursion, added up at once."""
    terms: list[tuple[_Monomial, int]] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        right = _parse(node.right)
        terms += _terms(right if isinstance(node.op, ast.Add) else -right)
        node = node.left
    return _collect((*terms, *_terms(_parse(node))))
