"""Floating formats of the vector mathematics: the constants of float32 and float64, and the steps
that functions share.

A body is written once over a `Format` and read for each. `SHORT` is float64 lanes with the short
polynomials: float32 functions that need not be the fastest are computed in it and rounded. Must not
know LLVM or Numba.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from codegen.vector import tables
from codegen.vector.elements import f32, f64, u32, u64
from codegen.vector.functions import polynomial
from codegen.vector.primitives import (
    fma,
    from_bits,
    select,
    to_bits,
    to_f32,
    to_f64,
    to_u32,
    to_u64,
)


@dataclass(frozen=True, slots=True)
class Format:
    """Constants of a format. Integer work is on unsigned lanes: shifts bring zeros, sums wrap."""

    name: str  # of its tables
    real: Callable[[Any], Any]  # a literal of the format
    size: int  # bits
    mantissa: int
    bias: int
    unsigned: Any  # integer lanes as unsigned ones
    literal: Any  # an unsigned literal
    ln2: float  # ln2 and ln2_low together have twice the format's precision
    ln2_low: float
    ln2_round: float  # ln2 with trailing zeros, so that its product with an exponent is exact
    ln2_rest: float  # ln2 - ln2_round
    least_exp: float  # below it exp is 0
    most_exp: float  # above it exp is infinite

    @property
    def magic(self) -> float:
        """1.5 * 2**mantissa: adding it rounds to an integer, which then stands in the low bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def magic_bits(self) -> int:
        """The bit pattern of `magic`."""
        return ((self.bias + self.mantissa) << self.mantissa) | (1 << (self.mantissa - 1))

    @property
    def tiny(self) -> Any:
        """The least normal number."""
        return self.real(2.0 ** (1 - self.bias))

    @property
    def sign_bit(self) -> Any:
        """The bit of the sign alone."""
        return self.whole(1 << (self.size - 1))

    def whole(self, k: int) -> Any:
        """An integer literal; negative ones wrap."""
        return self.literal(k % 2**self.size)

    def bits(self, x: Any) -> Any:
        """The bit pattern of a float as unsigned lanes."""
        return self.unsigned(to_bits(x))

    def polynomial(self, name: str, x: Any) -> Any:
        """The table of a function, evaluated at x."""
        return polynomial(x, getattr(tables, f"{name}_{self.name}"))

    def nearest(self, x: Any, factor: float = 1.0) -> tuple[Any, Any]:
        """The integer n nearest to x*factor: the sum whose low bits it is, and the number."""
        magic = self.real(self.magic)
        shifted = x + magic if factor == 1.0 else fma(x, self.real(factor), magic)
        return shifted, shifted - magic

    def scale(self, shifted: Any, extra: int = 0) -> Any:
        """2**(n + extra) for the n of `nearest`, where that is a normal number."""
        shift = self.whole(self.mantissa)
        return from_bits(
            (self.bits(shifted) << shift) + self.whole((self.bias + extra) << self.mantissa)
        )

    def number(self, k: Any) -> Any:
        """Small integers (below 0 too, wrapped) as floats, without a conversion instruction."""
        return from_bits(k + self.whole(self.magic_bits)) - self.real(self.magic)


F32 = Format(
    name="F32",
    real=f32,
    size=32,
    mantissa=23,
    bias=127,
    unsigned=to_u32,
    literal=u32,
    ln2=0.6931471824645996,
    ln2_low=-1.904654299957768e-09,
    ln2_round=0.693145751953125,
    ln2_rest=1.4286068203094173e-06,
    least_exp=-104.0,
    most_exp=89.0,
)
_DOUBLE: dict[str, Any] = {
    "real": f64,
    "size": 64,
    "mantissa": 52,
    "bias": 1023,
    "unsigned": to_u64,
    "literal": u64,
    "ln2": 0.6931471805599453,
    "ln2_low": 2.3190468138462996e-17,
    "ln2_round": 0.6931471805598903,
    "ln2_rest": 5.497923018708371e-14,
    "least_exp": -746.0,
    "most_exp": 710.0,
}
F64 = Format(name="F64", **_DOUBLE)
SHORT = Format(name="SHORT", **_DOUBLE)
LOG2_E = 1.4426950408889634

Body = Callable[..., Any]


def bodies(body: Body, direct: bool = False) -> dict[str, Body]:
    """The bodies for f32 and f64 lanes of one over a format. Unless `direct`, f32 is computed in
    float64 lanes.
    """

    def double(*x: Any) -> Any:
        return body(F64, *x)

    def single(*x: Any) -> Any:
        return body(F32, *x)

    def through_double(*x: Any) -> Any:
        return to_f32(body(SHORT, *map(to_f64, x)))

    return {"f32": single if direct else through_double, "f64": double}


def bounded(x: Any, low: Any, high: Any) -> Any:
    """x between two numbers; NaN stays. Each step is one instruction: the second looks at what the
    first gives.
    """
    above = select(x < low, low, x)
    return select(above > high, high, above)


def quick_sum(large: Any, small: Any) -> tuple[Any, Any]:
    """The sum and its error, exactly, where |large| >= |small| (or large is 0)."""
    total = large + small
    return total, small - (total - large)


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """The sum and its error, exactly."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """The product and its error, exactly (short of underflow)."""
    product = a * b
    return product, fma(a, b, -product)
