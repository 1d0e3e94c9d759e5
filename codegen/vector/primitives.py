"""The primitives on lanes: each one's name, its meaning in NumPy, its operand and result elements.

One meaning in every reading: what NumPy says here is what the emitted IR (`emit.py`) and the scalar
text of other printers do, to the bit (sign and payload of a NaN excepted). Operands share one lane
element; a scalar beside a vector takes the vector's. Must not know LLVM or Numba.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from codegen.vector.elements import DTYPE, ELEMENT, ELEMENTS, FLOATS, INTEGERS, SAME_SIZE, f32
from codegen.vector.exact import exact_fma
from codegen.vector.pi import TWO_OVER_PI
from codegen.vector.readings import OPERATORS, Reading, element_of

Meaning = Callable[..., Any]
PRIMITIVES: dict[str, Primitive] = {}
NUMBERS = INTEGERS + FLOATS


def same(element: str) -> str:
    """The result has the operands' element."""
    return element


def truth(element: str) -> str:
    """The result is a mask."""
    return "bool"


class Primitive:
    """A function on lanes. Calling it asks the reading of its operands to apply it; Numba knows it
    by identity.
    """

    def __init__(
        self,
        name: str,
        arity: int,
        meaning: Meaning,
        elements: tuple[str, ...] = ELEMENTS,
        result: Callable[[str], str] = same,
    ) -> None:
        self.__name__ = self.name = name
        self.arity, self.meaning, self.elements, self.result = arity, meaning, elements, result

    def __repr__(self) -> str:
        return f"<primitive {self.name}>"

    def __call__(self, *operands: Any) -> Any:
        """The primitive in its operands' reading; numbers beside vectors take their element."""
        leader = next((x for x in operands if isinstance(x, Reading)), None)
        if leader is None:
            raise TypeError(
                f"{self.name}: expected a vector value; got {', '.join(map(repr, operands))}"
            )
        element = self.lead([(element_of(x), isinstance(x, Reading)) for x in operands])
        return leader.apply(self, element, operands)

    def operand_element(self, position: int, element: str) -> str:
        """The element of operand `position` when the primitive works on `element`."""
        return element

    def lead(self, operands: Sequence[tuple[str, bool]]) -> str:
        """The lane element that operands (element, is a vector) agree on; TypeError when they do
        not.
        """
        if len(operands) != self.arity:
            raise TypeError(f"{self.name} takes {self.arity} operands; got {len(operands)}")
        return self.check({e for e, vector in operands if vector})

    def check(self, found: set[str]) -> str:
        """The one element found, if the primitive works on it."""
        if len(found) != 1:
            came = ", ".join(sorted(found))
            raise TypeError(f"{self.name}: vector operands must share one element; got {came}")
        (element,) = found
        if element not in self.elements:
            raise TypeError(f"{self.name} works on {', '.join(self.elements)} lanes; got {element}")
        return element


class Select(Primitive):
    """select(mask, x, y): lanes of x where the mask is true, else of y. Of two scalars the first
    one's element counts.
    """

    def operand_element(self, position: int, element: str) -> str:
        """The mask has bool lanes."""
        return "bool" if position == 0 else element

    def lead(self, operands: Sequence[tuple[str, bool]]) -> str:
        """The element of the two values; of scalars, of the first."""
        if len(operands) != 3 or operands[0][0] != "bool":
            raise TypeError("select takes a mask (bool lanes) and two values")
        return self.check({e for e, vector in operands[1:] if vector} or {operands[1][0]})


def define(name: str, arity: int, meaning: Meaning, **more: Any) -> Primitive:
    """A named primitive of kernel text."""
    PRIMITIVES[name] = primitive = Primitive(name, arity, meaning, **more)
    return primitive


def define_operator(name: str, arity: int, meaning: Meaning, **more: Any) -> None:
    """A primitive behind one of Python's operators; `name` is that of the module `operator`."""
    PRIMITIVES[name] = OPERATORS[name] = Primitive(name, arity, meaning, **more)


define_operator("add", 2, np.add, elements=NUMBERS)
define_operator("sub", 2, np.subtract, elements=NUMBERS)
define_operator("mul", 2, np.multiply, elements=NUMBERS)
define_operator("truediv", 2, np.divide, elements=FLOATS)
define_operator("neg", 1, np.negative, elements=NUMBERS)
# Floor semantics, as Python's. Integers never trap: by 0 both give 0; the most negative by -1
# wraps, and leaves 0.
define_operator("floordiv", 2, np.floor_divide, elements=NUMBERS)
define_operator("mod", 2, np.remainder, elements=NUMBERS)
define_operator("lt", 2, np.less, result=truth)
define_operator("le", 2, np.less_equal, result=truth)
define_operator("gt", 2, np.greater, result=truth)
define_operator("ge", 2, np.greater_equal, result=truth)
define_operator("eq", 2, np.equal, result=truth)
define_operator("ne", 2, np.not_equal, result=truth)
define_operator("and_", 2, np.bitwise_and, elements=("bool", *INTEGERS))
define_operator("or_", 2, np.bitwise_or, elements=("bool", *INTEGERS))
define_operator("xor", 2, np.bitwise_xor, elements=("bool", *INTEGERS))
define_operator("invert", 1, np.invert, elements=("bool", *INTEGERS))
# A count outside 0 .. bits-1 shifts everything out: 0, or the sign of a signed value.
define_operator("lshift", 2, np.left_shift, elements=INTEGERS)
define_operator("rshift", 2, np.right_shift, elements=INTEGERS)


def _popcount(x: Any) -> Any:
    return np.bitwise_count(x.view(f"u{x.itemsize}")).astype(x.dtype)


def _ldexp(x: Any, n: Any) -> Any:
    return np.ldexp(x, n.astype(np.int32))


fma = define("fma", 3, exact_fma, elements=FLOATS)
sqrt = define("sqrt", 1, np.sqrt, elements=FLOATS)
absolute = define("absolute", 1, np.abs, elements=NUMBERS)
trunc = define("trunc", 1, np.trunc, elements=FLOATS)
floor = define("floor", 1, np.floor, elements=FLOATS)
ceil = define("ceil", 1, np.ceil, elements=FLOATS)
rint = define("rint", 1, np.rint, elements=FLOATS)  # to the nearest integer, ties to even
# x * 2**n for whole numbers n of at most twice the format's bias. Where x * 2**(n // 2) is denormal,
# CPUs may differ in the last place.
ldexp = define("ldexp", 2, _ldexp, elements=FLOATS)
copysign = define("copysign", 2, np.copysign, elements=FLOATS)
fmod = define("fmod", 2, np.fmod, elements=NUMBERS)  # the remainder of a quotient cut towards 0
popcount = define("popcount", 1, _popcount, elements=INTEGERS)
select = PRIMITIVES["select"] = Select("select", 3, np.where)


def _maximum(x: Any, y: Any) -> Any:
    return np.where(y != y, y, np.where(y > x, y, x))


def _minimum(x: Any, y: Any) -> Any:
    return np.where(y != y, y, np.where(y < x, y, x))


# NaN wins on either side; of equal values (-0 and 0 too) the first. One compare-free max
# instruction and one blend.
maximum = define("maximum", 2, _maximum)
minimum = define("minimum", 2, _minimum)


def _conversion(target: str) -> Primitive:
    dtype = np.dtype(DTYPE[target])

    def meaning(x: Any) -> Any:
        if x.dtype.kind == "f" and dtype.kind in "iu":
            # Saturates; NaN gives 0. NumPy leaves both undefined.
            limits = np.iinfo(dtype)
            inside = (x >= x.dtype.type(limits.min)) & (
                x < x.dtype.type(2.0 ** (dtype.itemsize * 8 - (dtype.kind == "i")))
            )
            result = np.where(inside, x, 0).astype(dtype)
            result = np.where(~inside & (x > 0), limits.max, result)
            return np.where(~inside & (x < 0), limits.min, result).astype(dtype)
        return x.astype(dtype)

    return define(f"to_{target}", 1, meaning, result=lambda _: target)


to_bool, to_i8, to_i16, to_i32, to_i64, to_u8, to_u16, to_u32, to_u64, to_f32, to_f64 = (
    _conversion(e) for e in ELEMENTS
)


def _same_size(x: Any) -> Any:
    return x.view(DTYPE[SAME_SIZE[ELEMENT[x.dtype]]])


to_bits = define("to_bits", 1, _same_size, elements=FLOATS, result=SAME_SIZE.__getitem__)
from_bits = define(
    "from_bits", 1, _same_size, elements=("i32", "i64", "u32", "u64"), result=SAME_SIZE.__getitem__
)


def bfloat16_bits(x: Any) -> Any:
    """The bfloat16 nearest to each float32, ties to even, as uint16; NaN stays NaN."""
    pattern = x.view(np.uint32)
    high = pattern >> np.uint32(16)
    rounded = (pattern + (np.uint32(0x7FFF) + (high & np.uint32(1)))) >> np.uint32(16)
    return np.where(x != x, high | np.uint32(0x40), rounded).astype(np.uint16)


# float16 and bfloat16 are computed on as f32 lanes and rounded after every operator.
round_f16 = define("round_f16", 1, lambda x: x.astype(np.float16).astype(f32), elements=("f32",))
round_bf16 = define(
    "round_bf16",
    1,
    lambda x: (bfloat16_bits(x).astype(np.uint32) << np.uint32(16)).view(f32),
    elements=("f32",),
)


# ---- constant tables -----------------------------------------------------------------------------
TABLES: dict[str, tuple[int, ...]] = {}


def define_table(name: str, words: tuple[int, ...]) -> Primitive:
    """A primitive that maps i64 lanes to u64 words of a constant table; an index outside it, to the
    last word.
    """
    TABLES[name] = words
    array = np.array(words, np.uint64)

    def meaning(index: Any) -> Any:
        return array[np.minimum(index.view(np.uint64), np.uint64(len(words) - 1))]

    return define(name, 1, meaning, elements=("i64",), result=lambda _: "u64")


# 2/pi in binary: 64 zeros, then 1216 bits after the point, for angles beyond the reach of
# multiplication.
two_over_pi = define_table("two_over_pi", TWO_OVER_PI)
