"""Equalities that an operator obeys, as data: what simplification may use.

Each holds to the bit for every value of every element type, NaN, infinities and signed zeros included; a test evaluates both
sides. So x * 0 = 0 and x + 0 = x are none: they fail for infinities and for -0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Algebra:
    """What may be left out.

    `neutral`: operand number -> a value that there leaves the other of two operands as it is (x * 1 = x). `cheaper`: operand
    number -> (a value that there makes it a cheaper operator of the other operand, that operator's name, its second operand).
    `involution`: applied twice it changes nothing. `conversion`: it changes nothing where the result has the operand's type.
    """

    neutral: Mapping[int, int] = field(default_factory=dict)
    cheaper: Mapping[int, tuple[int, str, int]] = field(default_factory=dict)
    involution: bool = False
    conversion: bool = False


NONE = Algebra()
