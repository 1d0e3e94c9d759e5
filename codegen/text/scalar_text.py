"""Kernel text as it reads on one thread: expressions on scalars, typed as the lanes of a vector
are.

A statement's text is the same for every target. Here it is evaluated on `Scalar`s, which write down
what they meet: the operators of Python where those of Numba keep the element, a conversion around
integer arithmetic (Numba widens it), and a call such as `maximum_f32(x, y)` for all else.
`cuda_functions` says what the calls do. Knows no kernels and no Numba.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from codegen.errors import Unsupported
from codegen.vector import NAMES, Reading
from codegen.vector.elements import DTYPE, bits, kind
from codegen.vector.functions import FUNCTIONS, VectorFunction
from codegen.vector.names import LANE_FUNCTIONS, MEMORY_FUNCTIONS
from codegen.vector.primitives import PRIMITIVES, Primitive
from codegen.vector.readings import Body, element_of
from codegen.vector.written import literal

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "and_": "&",
    "or_": "|",
    "xor": "^",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
}
Used = dict[tuple[str, str], None]  # (name, element) of the functions called, in order


class Size:
    """A size or a position in text: an integer that takes the element of the value it meets."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _with(self, symbol: str, other: Any, swapped: bool = False) -> Any:
        if isinstance(other, Reading):
            return NotImplemented
        x, y = self.text, other.text if isinstance(other, Size) else repr(int(other))
        return Size(f"({y} {symbol} {x})" if swapped else f"({x} {symbol} {y})")

    def __add__(self, other: Any) -> Any:
        return self._with("+", other)

    def __radd__(self, other: Any) -> Any:
        return self._with("+", other, True)

    def __sub__(self, other: Any) -> Any:
        return self._with("-", other)

    def __rsub__(self, other: Any) -> Any:
        return self._with("-", other, True)

    def __mul__(self, other: Any) -> Any:
        return self._with("*", other)

    def __rmul__(self, other: Any) -> Any:
        return self._with("*", other, True)

    def __floordiv__(self, other: Any) -> Any:
        return self._with("//", other)

    def __mod__(self, other: Any) -> Any:
        return self._with("%", other)


class Scalar(Reading):
    """One value of a thread: its element and text. With `lines`, every step gets a name there
    instead of nesting.
    """

    __slots__ = ("element", "lines", "text", "used")

    def __init__(self, element: str, text: str, used: Used, lines: list[str] | None = None) -> None:
        self.element, self.text, self.used, self.lines = element, text, used, lines

    def apply(self, primitive: Primitive, element: str, operands: Sequence[Any]) -> Scalar:
        """Write the primitive down."""
        texts = []
        for k, x in enumerate(operands):
            target = primitive.operand_element(k, element)
            if isinstance(x, Scalar):
                texts.append(x.text)
            else:
                texts.append(f"{target}({x.text})" if isinstance(x, Size) else literal(target, x))
        result = primitive.result(element)
        return self.give(result, _render(primitive.name, element, result, texts, self.used))

    def rarely(
        self, body: Body, operands: Sequence[Any], otherwise: Sequence[Any]
    ) -> tuple[Any, ...]:
        """An `if` around the body: a thread is one lane."""
        lines = self.lines
        if lines is None:
            return super().rarely(body, operands, otherwise)
        results = [y.give(y.element, y.text) for y in otherwise]
        lines.append(f"if {bare(self.text)}:")
        first = len(lines)
        for result, x in zip(results, body(*operands), strict=True):
            lines.append(f"{result.text} = {bare(x.text)}")
        lines[first:] = [f"    {line}" for line in lines[first:]]
        return tuple(results)

    def give(self, element: str, text: str) -> Scalar:
        """A new value."""
        if self.lines is None:
            return Scalar(element, text, self.used)
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {bare(text)}")
        return Scalar(element, name, self.used, self.lines)


def bare(text: str) -> str:
    """A text without parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for c in text[:-1]:
        depth += (c == "(") - (c == ")")
        if depth == 0:
            return text
    return text[1:-1]


def _cast(element: str, text: str) -> str:
    """Integer arithmetic brought back to the element; 64 bits stay as they are."""
    return f"{element}({bare(text)})" if kind(element) in "iu" and bits(element) < 64 else text


def _render(name: str, element: str, result: str, texts: list[str], used: Used) -> str:
    if name in _INFIX:
        x, y = texts
        symbol = "!=" if name == "xor" and element == "bool" else _INFIX[name]
        text = f"({x} {symbol} {y})"
        return text if result == "bool" else _cast(element, text)
    if name == "select":
        return f"({texts[1]} if {bare(texts[0])} else {texts[2]})"
    if name == "invert":
        return f"(not {texts[0]})" if element == "bool" else _cast(element, f"(~{texts[0]})")
    if name == "neg":
        zero = f"{element}(0) - " if kind(element) in "iu" else "-"
        return _cast(element, f"({zero}{texts[0]})")
    if name == "to_bool":
        return f"({texts[0]} != {element}(0))" if element != "bool" else texts[0]
    if name.startswith("to_") and name != "to_bits":
        if result == element:
            return texts[0]
        if kind(element) != "f" or kind(result) == "f":
            return f"{result}({bare(texts[0])})"
        name = f"to_{result}"  # saturates
    used[name, element] = None
    return f"{name}_{element}({', '.join(map(bare, texts))})"


def expression(
    text: str,
    elements: Mapping[str, str],
    sizes: Collection[str],
    used: Used,
    functions: Mapping[str, VectorFunction] = MappingProxyType({}),
) -> Any:
    """The text of a statement read with names of values (name -> element), of sizes, and of the user's functions.

    A `Scalar`; or a `Size` or a number where no value is in it. TypeError says which elements do
    not fit together.
    """
    code = compile(text, "<statement>", "eval")
    names: dict[str, Any] = {}
    for name in code.co_names:
        if name in elements:
            names[name] = Scalar(elements[name], name, used)
        elif name in sizes:
            names[name] = Size(name)
        elif name in functions:
            names[name] = _caller(functions[name], converted=True)
        elif name not in _NAMES:
            raise NameError(f"no value, size or function {name!r}")
    _current.used = used
    return eval(code, _NAMES | names)


def typed(
    text: str,
    element: str,
    elements: Mapping[str, str],
    sizes: Collection[str],
    used: Used,
    functions: Mapping[str, VectorFunction] = MappingProxyType({}),
) -> str:
    """`expression` as text of the given element, whatever it is made of."""
    value = expression(text, elements, sizes, used, functions)
    if isinstance(value, Scalar):
        return bare(value.text)
    if isinstance(value, Size):
        return f"{element}({bare(value.text)})"
    return literal(element, value)


def function_text(name: str, element: str, used: Used) -> str:
    """A vector function's body for one thread, as the Python function `<name>_<element>`."""
    function, lines = FUNCTIONS[name], list[str]()
    parameters = ["x", "y", "z"][: function.arity]
    result = function.bodies[element](*(Scalar(element, p, used, lines) for p in parameters))
    body = "".join(f"    {line}\n" for line in lines)
    return f"def {name}_{element}({', '.join(parameters)}):\n{body}    return {result.text}\n"


_current = threading.local()  # .used: of the expression that is being read


def _caller(function: VectorFunction, converted: bool = False) -> Any:
    """A function's call written down; `converted`: what it gives is made an element of its own."""

    def call(*operands: Any) -> Scalar:
        if not any(isinstance(x, Reading) for x in operands):
            operands = tuple(map(_full, operands))
        element = function.lead([(_element(x), isinstance(x, Reading)) for x in operands])
        texts = [bare(x.text) if isinstance(x, Scalar) else _operand(element, x) for x in operands]
        _current.used[function.name, element] = None
        text = f"{function.name}_{element}({', '.join(texts)})"
        text = f"{element}({text})" if converted else text
        return Scalar(function.result(element), text, _current.used)

    return call


def _constructor(element: str) -> Any:
    def construct(x: Any) -> Any:
        if isinstance(x, Size):
            return Scalar(element, f"{element}({bare(x.text)})", _current.used)
        return DTYPE[element](x)

    return construct


def _full(x: Any) -> Scalar:
    if isinstance(x, Scalar):
        return x
    element = _element(x)
    return Scalar(element, _operand(element, x), _current.used)


def _primitive(primitive: Primitive) -> Any:
    """A primitive; of numbers alone, the first typed one makes the rest its like."""

    def call(*operands: Any) -> Any:
        if any(isinstance(x, Reading) for x in operands):
            return primitive(*operands)
        return primitive(*map(_full, operands))

    return call


def _element(x: Any) -> str:
    return "i64" if isinstance(x, Size) else element_of(x)


def _operand(element: str, x: Any) -> str:
    return f"{element}({bare(x.text)})" if isinstance(x, Size) else literal(element, x)


def _refuse(name: str) -> Any:
    def refuse(*operands: Any) -> Any:
        raise Unsupported(f"{name}() in a statement's text has no meaning for one thread of a GPU")

    return refuse


# What a statement's text may say, on Scalars.
_NAMES: dict[str, Any] = {
    **NAMES,
    **{name: _primitive(p) for name, p in PRIMITIVES.items() if name in NAMES},
    **{name: _caller(f) for name, f in FUNCTIONS.items()},
    **{e: _constructor(e) for e in DTYPE if e != "bool"},
    **{name: _refuse(name) for name in (*LANE_FUNCTIONS, *MEMORY_FUNCTIONS)},
    "full": _full,
}
