"""Reading one line: names, types, attribute values. The counterpart of `literals`.

Text is hostile until read: nothing is evaluated, every number is bounded, everything wrong is a
`ParseError` that names the line and column.
"""

from __future__ import annotations

import json
import re
import struct
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from ops import dims
from ops.dims import Dim
from ops.errors import ParseError
from ops.forms import Form
from ops.operator import ArrayData, Floats, Ints, Sizes
from ops.types import PRINTED, Type, is_floating, is_integer
from tracer.ir.forms import read_form
from tracer.ir.literals import bits_of, digest, element_count

Constants = Mapping[str, ArrayData]

_DTYPE = {printed: dtype for dtype, printed in PRINTED.items()}
_NUMBER = re.compile(r"-?\d{1,40}", re.ASCII)
_FLOAT = re.compile(
    r"-?(?:nan(?::0x[0-9a-f]{1,16})?|inf|\d[0-9.]{0,400}(?:e[+-]?\d{1,5})?)", re.ASCII
)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.:]*")
_VALUE_NAME = re.compile(r"%[A-Za-z0-9_][A-Za-z0-9_.\-/]*")
_TYPE = re.compile(r"([A-Z][A-Za-z0-9]*)(~?)\(")
_SCOPE = re.compile(r"[A-Za-z0-9_.<>/\[\]:\-]+")
_HASH = re.compile(r"[0-9a-f]{32}")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_STATIC_SHAPE = re.compile(r"(?:\d{1,18}(?:, \d{1,18})*)?\)", re.ASCII)
_MOST_AXES = 64
_STRINGS = json.JSONDecoder()


class Reader:
    """A line and a position in it."""

    def __init__(
        self, text: str, number: int, position: int, constants: Constants, types: dict[str, Type]
    ) -> None:
        self.text = text
        self.number = number
        self.position = position
        self.constants = constants
        self.types = types

    def fail(self, message: str) -> NoReturn:
        """Raise `ParseError` with the line, what is wrong, and what stands there."""
        rest = self.text[self.position : self.position + 40]
        at = f"at {rest!r}" if rest else "at the end of the line"
        raise ParseError(f"line {self.number}, column {self.position + 1}: {message}, {at}")

    def at_end(self) -> bool:
        """Whether the line is used up."""
        return self.position >= len(self.text)

    def looking_at(self, what: str) -> bool:
        """Whether the text goes on with `what`."""
        return self.text.startswith(what, self.position)

    def accept(self, what: str) -> bool:
        """Step over `what` if it comes next."""
        if self.text.startswith(what, self.position):
            self.position += len(what)
            return True
        return False

    def expect(self, what: str) -> None:
        """Step over `what`, which must come next."""
        if not self.accept(what):
            self.fail(f"expected {what!r}")

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        """The text that fits a pattern and must come next."""
        found = pattern.match(self.text, self.position)
        if found is None:
            self.fail(f"expected {what}")
        self.position = found.end()
        return found.group()

    def word(self, what: str) -> str:
        """An identifier."""
        return self.match(_WORD, what)

    def value_name(self) -> str:
        """A value's name, without the percent sign."""
        return self.match(_VALUE_NAME, "a value such as %3")[1:]

    def string(self) -> str:
        """A text in quotes."""
        if not self.looking_at('"'):
            self.fail("expected a text in quotes")
        try:
            value, self.position = _STRINGS.raw_decode(self.text, self.position)
        except ValueError:
            self.fail("the text in quotes does not end, or has an escape that is none")
        return str(value)

    def scope(self) -> str:
        """A module path, in quotes or not."""
        return self.string() if self.looking_at('"') else self.match(_SCOPE, "a module path")

    def comment(self) -> str:
        """What stands after the sign of a comment, up to the end of the line."""
        if self.looking_at('"'):
            value = self.string()
            if not self.at_end():
                self.fail("expected the end of the line")
            return value
        start, self.position = self.position, len(self.text)
        return self.text[start:]

    # ---- sizes and types -------------------------------------------------------------------------

    def size(self) -> int | Dim:
        """A size: a number or an expression, up to a comma or bracket outside parentheses."""
        start, depth, text = self.position, 0, self.text
        while self.position < len(text):
            sign = text[self.position]
            if depth == 0 and sign in ",)]":
                break
            depth += (sign == "(") - (sign == ")")
            self.position += 1
        written = text[start : self.position]
        if _NUMBER.fullmatch(written):
            return int(written)
        try:
            return dims.parse(written)
        except ParseError as error:
            self.position = start
            self.fail(str(error))

    def sizes(self, closing: str) -> tuple[int | Dim, ...]:
        """Sizes separated by commas, up to the closing bracket, which is stepped over."""
        result: list[int | Dim] = []
        while not self.accept(closing):
            if result:
                self.expect(", ")
            result.append(self.size())
            if len(result) > _MOST_AXES:
                self.fail(f"more than {_MOST_AXES} sizes")
        return tuple(result)

    def type(self) -> Type:
        """A type such as Float(3, n) or Float~()."""
        start = self.position
        found = _TYPE.match(self.text, start)
        if found is None or found[1] not in _DTYPE:
            self.fail(f"expected a type, one of {', '.join(_DTYPE)}, with its sizes in parentheses")
        self.position = found.end()
        # The same few types come again and again: read by their text.
        static = _STATIC_SHAPE.match(self.text, self.position)
        if static is not None and (known := self.types.get(self.text[start : static.end()])):
            self.position = static.end()
            return known
        shape = self.sizes(")")
        if any(isinstance(d, int) and d < 0 for d in shape):
            self.position = start
            self.fail("a size is negative")
        result = Type(_DTYPE[found[1]], shape, bool(found[2]))
        if static is not None:
            self.types[self.text[start : self.position]] = result
        return result

    # ---- attributes ------------------------------------------------------------------------------

    def attribute(self, kind: Any) -> Any:
        """The value of an attribute of a declared kind."""
        if self.accept("None"):
            return None
        if kind is bool:
            return self.boolean()
        if kind is int:
            return self.integer()
        if kind is float:
            return self.float()
        if kind is str:
            return self.string()
        if kind is ArrayData:
            return self.array()
        if kind == (Form | None):
            return read_form(self)
        if kind == int | Dim:
            return self.size()
        self.expect("[")
        if kind == Sizes:
            return self.sizes("]")
        if kind == Ints:
            return self.list(self.integer)
        if kind == Floats:
            return self.list(self.float)
        self.fail(f"attributes of the kind {kind} have no text")

    def list(self, element: Any) -> tuple[Any, ...]:
        """Elements separated by commas, up to the closing bracket, which is stepped over."""
        result: list[Any] = []
        while not self.accept("]"):
            if result:
                self.expect(", ")
            result.append(element())
        return tuple(result)

    def boolean(self) -> bool:
        """True or False."""
        if self.accept("True"):
            return True
        if self.accept("False"):
            return False
        self.fail("expected True or False")

    def integer(self) -> int:
        """An integer."""
        return int(self.match(_NUMBER, "an integer"))

    def float(self) -> float:
        """A float64, NaNs with their bits."""
        text = self._float_text()
        if ":" in text:
            return float(struct.unpack("<d", struct.pack("<Q", _nan_bits(text)))[0])
        return float(text)

    def _float_text(self) -> str:
        start = self.position
        text = self.match(_FLOAT, "a number")
        try:
            if ":" not in text:
                float(text)
        except ValueError:
            self.position = start
            self.fail("expected a number")
        return text

    def number_or_array(self) -> Any:
        """An int, a float, or an array."""
        if _TYPE.match(self.text, self.position):
            return self.array()
        start = self.position
        text = self._float_text()
        if _NUMBER.fullmatch(text):
            return int(text)
        self.position = start
        return self.float()

    # ---- arrays ----------------------------------------------------------------------------------

    def array(self) -> ArrayData:
        """An array: its type, then its elements, its bytes in base64, or its hash."""
        start = self.position
        type_ = self.type()
        shape = tuple(d for d in type_.shape if isinstance(d, int))
        if type_.weak or len(shape) != type_.rank:
            self.position = start
            self.fail("an array's type has no tilde and no symbols")
        if self.accept("@"):
            return self._array_by_hash(type_.dtype, shape)
        count = element_count(shape)
        if self.accept('"'):
            data = self._base64()
        else:
            self.expect("[")
            elements = self.list(lambda: self._element(type_.dtype))
            data = b"".join(e.tobytes() for e in elements)
        if len(data) != count * type_.itemsize:
            self.position = start
            self.fail(f"{type_} has {count} elements, but {len(data) // type_.itemsize} are given")
        return ArrayData(type_.dtype, shape, data)

    def _array_by_hash(self, dtype: str, shape: tuple[int, ...]) -> ArrayData:
        key = self.match(_HASH, "a hash of 32 hexadecimal digits")
        found = self.constants.get(key)
        if found is None:
            self.fail(
                f"the array {key} is not among the {len(self.constants)} given constants; pass "
                f"those that tracer.ir.constants(graph) gave"
            )
        if (found.dtype, found.shape) != (dtype, shape) or digest(found) != key:
            self.fail(f"the constant given for {key} has another type or other content")
        return found

    def _base64(self) -> bytes:
        text = self.match(_BASE64, "base64")
        self.expect('"')
        try:
            little = b64decode(text, validate=True)
        except ValueError:
            self.fail("what stands before is no base64")
        return little

    def _element(self, dtype: str) -> Any:
        if dtype == "bool":
            return np.bool_(self.boolean())
        numpy = Type(dtype).numpy
        if is_integer(dtype):
            value = self.integer()
            limits = np.iinfo(numpy)
            if not limits.min <= value <= limits.max:
                self.fail(f"{value} does not fit in {dtype}")
            return numpy.type(value)
        assert is_floating(dtype)
        text = self._float_text()
        if ":" not in text:
            with np.errstate(over="ignore"):
                return numpy.type(float(text))
        bits = _nan_bits(text)
        if bits >= 1 << 8 * numpy.itemsize:
            self.fail(f"{text} has more bits than {dtype}")
        element = np.array(bits, dtype=f"u{numpy.itemsize}").view(numpy)[()]
        if bits_of(element) != bits or element == element:
            self.fail(f"{text} are not the bits of a NaN of {dtype}")
        return element


def _nan_bits(text: str) -> int:
    return int(text[text.index("x") + 1 :], 16)
