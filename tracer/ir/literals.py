"""Attribute values, arrays and types as text: what stands between the brackets.

Knows how each kind of attribute is written, down to the bits of a NaN. Reading it back is
`reader`'s work.
"""

from __future__ import annotations

import hashlib
import re
import struct
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import numpy as np

from ops.operator import ArrayData
from ops.types import Type, is_floating

# Arrays of at most this many elements are written out; larger ones by the hash of their content.
INLINE_LIMIT = 16

_NAN = struct.pack("<d", float("nan"))
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-/]*")
_SCOPE = re.compile(r"[A-Za-z0-9_.<>/\[\]:\-]+")

FormatArray = Callable[[ArrayData], str]


def quoted(text: str) -> str:
    """The text in quotes, in ASCII on one line, with JSON's escapes."""
    import json  # 2 ms of a first import

    return json.dumps(text)


def is_plain_name(name: str) -> bool:
    """Whether a value's name can follow the percent sign as it is."""
    return _NAME.fullmatch(name) is not None and not name.isdigit()


def scope_text(scope: str) -> str:
    """A module path, in quotes where it has characters that would end it."""
    return scope if _SCOPE.fullmatch(scope) else quoted(scope)


def comment_text(text: str) -> str:
    """What stands at the end of a line, a source or a name: in quotes if it could be misread."""
    plain = text.isprintable() and text == text.strip() and not text.startswith(('"', "gradient"))
    return text if plain and text else quoted(text)


def float_text(value: float) -> str:
    """The shortest text of a float64; NaNs other than the usual one with their bits."""
    if value == value or struct.pack("<d", value) == _NAN:
        return repr(value)
    return f"nan:0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016x}"


def digest(constant: ArrayData) -> str:
    """The hash of an array's type and content, in 32 hexadecimal digits.

    >>> len(tracer.ir.digest(np.arange(3)))
    32
    """
    result = hashlib.blake2b(f"{constant.dtype}{constant.shape}".encode(), digest_size=16)
    result.update(constant.data)
    return result.hexdigest()


def element_count(shape: tuple[int, ...]) -> int:
    """The number of elements of a shape without symbols."""
    count = 1
    for size in shape:
        count *= size
    return count


def is_small(constant: ArrayData) -> bool:
    """Whether an array is written out element by element."""
    return element_count(constant.shape) <= INLINE_LIMIT


def array_text(constant: ArrayData) -> str:
    """An array by its elements, Float(2)[1.0, 2.0]; many elements by hash, Float(99)@01ab..."""
    if not is_small(constant):
        return f"{Type(constant.dtype, constant.shape)}@{digest(constant)}"
    return inline_array_text(constant)


def inline_array_text(constant: ArrayData) -> str:
    """An array with all its content: its elements if there are few, else base64 of its bytes."""
    type_ = Type(constant.dtype, constant.shape)
    if not is_small(constant):
        return f'{type_}"{b64encode(constant.data).decode()}"'
    elements = constant.array.reshape(-1)
    return f"{type_}[{', '.join(_element_text(e, constant.dtype) for e in elements)}]"


def _element_text(element: Any, dtype: str) -> str:
    if not is_floating(dtype):
        return str(element)
    number = float(element)
    if number != number:
        bits, usual = bits_of(element), bits_of(element.dtype.type(float("nan")))
        return "nan" if bits == usual else f"nan:0x{bits:0{2 * element.dtype.itemsize}x}"
    short = str(element)
    short += ".0" if short.lstrip("-").isdigit() else ""  # bfloat16 writes 1.0 as 1
    # The shortest text of a narrow float is read through float64, which may round it twice.
    return short if bits_of(element.dtype.type(float(short))) == bits_of(element) else repr(number)


def bits_of(element: Any) -> int:
    """The bits of a NumPy scalar as an unsigned integer."""
    return int(np.asarray(element).view(f"u{element.dtype.itemsize}"))


def attribute_text(value: Any, array: FormatArray = array_text) -> str:
    """An attribute in normal form."""
    match value:
        case bool() | None:
            return str(value)
        case float():
            return float_text(value)
        case str():
            return quoted(value)
        case tuple():
            return "[" + ", ".join(attribute_text(v, array) for v in value) + "]"
        case ArrayData():
            return array(value)
    return str(value)
