"""Powers of whole numbers on lanes. Must not know LLVM or Numba."""

from __future__ import annotations

from typing import Any

from codegen.vector.elements import DTYPE, INTEGERS, SIGNED, bits
from codegen.vector.functions import define_function
from codegen.vector.primitives import select
from codegen.vector.readings import rarely

USUAL_BITS = 6  # of exponents below 64


def _multiplied(result: Any, square: Any, y: Any, chosen: range) -> tuple[Any, Any]:
    """Square and multiply over some bits of y; the next square too."""
    dtype = DTYPE[y.element]
    for bit in chosen:
        skipped = (y & dtype(1 << bit)) == dtype(0)
        if result is None:
            result = select(skipped, dtype(1), square)
        else:
            result = select(skipped, result, result * square)
        square = square * square
    return result, square


def _integer_power(x: Any, y: Any) -> Any:
    """x**y, wrapped around. For y < 0: 0, unless x is 1 or -1."""
    dtype, signed = DTYPE[x.element], x.element in SIGNED
    zero, one = dtype(0), dtype(1)
    count = bits(x.element) - signed
    usual = count if count <= 8 else USUAL_BITS
    result, square = _multiplied(None, x, y, range(usual))
    if usual < count:
        (result,) = rarely(
            y >= dtype(1 << usual),
            lambda r, s, e: _multiplied(r, s, e, range(usual, count))[:1],
            (result, square, y),
            (result,),
        )
    if signed:
        sign = select((y & one) == zero, one, x)
        unit = select((x == one) | (x == -one), sign, zero)
        result = select(y < zero, unit, result)
    return result


integer_power = define_function("integer_power", 2, bodies=dict.fromkeys(INTEGERS, _integer_power))
