"""The readings of a vector value that Python itself runs: `Lanes` (NumPy) and the base of the
others.

A reading carries Python's operators and one method, `apply`, which says what happens when a
primitive meets it:

    Lanes     un-jitted: 16 NumPy scalars, for the debugger and the tests
    Emitted   while a vector function is written as LLVM IR (`emit.py`)

Numba's reading is a type and lives in `jit.py`; a device whose threads are single lanes writes text
in a reading of its own (`codegen.text.scalar_text`). Must not know LLVM or Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from codegen.vector.elements import DTYPE, ELEMENT, kind

if TYPE_CHECKING:
    from codegen.vector.primitives import Primitive

Body = Callable[..., Sequence[Any]]
OPERATORS: dict[str, Primitive] = {}  # filled by primitives.py: "add", "mul", "lt", "invert" ...


def _binary(name: str) -> Callable[[Any, Any], Any]:
    return lambda x, y: OPERATORS[name](x, y)


def _reflected(name: str) -> Callable[[Any, Any], Any]:
    return lambda x, y: OPERATORS[name](y, x)


class Reading:
    """What the readings share: Python's operators."""

    __slots__ = ()
    element: str

    def apply(self, primitive: Primitive, element: str, operands: Sequence[Any]) -> Any:
        """The primitive on operands of one lane element, or scalars to be made so."""
        raise NotImplementedError

    def rarely(
        self, body: Body, operands: Sequence[Any], otherwise: Sequence[Any]
    ) -> tuple[Any, ...]:
        """The values of body(*operands) where this mask is true, else `otherwise`; see `rarely`.

        A reading that can jump over the body says how; here it is always computed.
        """
        from codegen.vector.primitives import select

        pairs = zip(body(*operands), otherwise, strict=True)
        return tuple(select(self, x, y) for x, y in pairs)

    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("sub"), _reflected("sub")
    __mul__, __rmul__ = _binary("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _binary("truediv"), _reflected("truediv")
    __floordiv__, __rfloordiv__ = _binary("floordiv"), _reflected("floordiv")
    __mod__, __rmod__ = _binary("mod"), _reflected("mod")
    __and__, __rand__ = _binary("and_"), _reflected("and_")
    __or__, __ror__ = _binary("or_"), _reflected("or_")
    __xor__, __rxor__ = _binary("xor"), _reflected("xor")
    __lshift__, __rlshift__ = _binary("lshift"), _reflected("lshift")
    __rshift__, __rrshift__ = _binary("rshift"), _reflected("rshift")
    __lt__, __le__ = _binary("lt"), _binary("le")
    __gt__, __ge__ = _binary("gt"), _binary("ge")
    __eq__, __ne__ = _binary("eq"), _binary("ne")
    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> Any:
        return OPERATORS["neg"](self)

    def __invert__(self) -> Any:
        return OPERATORS["invert"](self)

    def __bool__(self) -> bool:
        raise TypeError(
            "a vector value has 16 truth values; use select(mask, x, y), lane_any or lane_all"
        )


class Lanes(Reading):
    """Un-jitted: 16 NumPy scalars."""

    __slots__ = ("array",)

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    @property
    def element(self) -> str:  # type: ignore[override]
        """The lane element."""
        return ELEMENT[self.array.dtype]

    def __repr__(self) -> str:
        return f"Lanes({self.array!r})"

    def apply(self, primitive: Primitive, element: str, operands: Sequence[Any]) -> Lanes:
        """The primitive's meaning in NumPy."""
        values = [
            x.array if isinstance(x, Lanes) else scalar(primitive.operand_element(k, element), x)
            for k, x in enumerate(operands)
        ]
        with np.errstate(all="ignore"):
            result = primitive.meaning(*values)
        return Lanes(np.broadcast_to(np.asarray(result), (16,)))

    def rarely(
        self, body: Body, operands: Sequence[Any], otherwise: Sequence[Any]
    ) -> tuple[Any, ...]:
        """All lanes at once, if any needs it."""
        if not self.array.any():
            return tuple(otherwise)
        pairs = zip(body(*operands), otherwise, strict=True)
        return tuple(Lanes(np.where(self.array, x.array, y.array)) for x, y in pairs)


class Constructor:
    """f32, i64 ... in kernel text: a number as a scalar of that element."""

    def __init__(self, element: str) -> None:
        self.__name__ = self.element = element

    def __repr__(self) -> str:
        return f"<constructor {self.element}>"

    def __call__(self, x: Any) -> Any:
        """Un-jitted, a NumPy scalar."""
        return scalar(self.element, x)


def scalar(element: str, x: Any) -> Any:
    """`x` as a NumPy scalar of a lane element; integers wrap and floats are cut, as a compiled cast
    does.
    """
    if kind(element) in "iu" and isinstance(x, int | np.integer):
        return np.array(int(x) & 0xFFFFFFFFFFFFFFFF, np.uint64).astype(DTYPE[element])[()]
    return DTYPE[element](x)


def rarely(
    mask: Reading, body: Body, operands: Sequence[Any], otherwise: Sequence[Any]
) -> tuple[Any, ...]:
    """select(mask, value of body(*operands), otherwise), lane by lane, for a mask that is mostly
    false everywhere.

    The body computes lanes one by one, from its operands and literals only; it is jumped over when
    no lane needs it, and its operands must be harmless in the lanes that do not.
    """
    return mask.rarely(body, operands, otherwise)


def element_of(x: Any) -> str:
    """The lane element of a vector value, a NumPy scalar or a Python number."""
    if isinstance(x, Reading):
        return x.element
    if isinstance(x, np.generic):
        return ELEMENT[x.dtype]
    return "bool" if isinstance(x, bool) else "i64" if isinstance(x, int) else "f64"
