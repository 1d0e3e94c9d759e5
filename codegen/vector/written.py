"""`Written`, the reading that turns kernel text into scalar Python text, one call to a line.

For devices whose threads are single lanes (CUDA): the lines name every primitive as a function, so that the target decides
what each means (`scalar.py`). Must not know LLVM or Numba.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from codegen.vector.functions import FUNCTIONS
from codegen.vector.readings import Body, Reading, scalar

if TYPE_CHECKING:
    from codegen.vector.primitives import Primitive


class Lines(list[str]):
    """Lines of a text, indented as deep as the branches they are in."""

    depth = 0

    def add(self, name: str, text: str) -> None:
        """name = text."""
        self.append("    " * self.depth + f"{name} = {text}")


class Written(Reading):
    """While a vector function is written as scalar text: the lines so far, an element and a name."""

    __slots__ = ("element", "lines", "name")

    def __init__(self, lines: Lines, element: str, name: str) -> None:
        self.lines, self.element, self.name = lines, element, name

    def apply(self, primitive: Primitive, element: str, operands: Sequence[Any]) -> Written:
        texts = []
        for k, x in enumerate(operands):
            target = primitive.operand_element(k, element)
            texts.append(x.name if isinstance(x, Written) else literal(target, x))
        result, name = primitive.result(element), f"v{len(self.lines)}"
        call = f"{primitive.name}({', '.join(texts)})"
        # Python and Numba widen integers; the wrapping constructor brings them back.
        self.lines.add(name, f"{result}({call})" if result[0] in "iu" else call)
        return Written(self.lines, result, name)

    def rarely(self, body: Body, operands: Sequence[Any], otherwise: Sequence[Any]) -> tuple[Any, ...]:
        """An `if`: a thread is one lane."""
        lines, results = self.lines, []
        for y in otherwise:
            results.append(Written(lines, y.element, f"v{len(lines)}"))
            lines.add(results[-1].name, y.name)
        lines.append("    " * lines.depth + f"if {self.name}:")
        lines.depth += 1
        for result, x in zip(results, body(*operands), strict=True):
            lines.add(result.name, x.name)
        lines.depth -= 1
        return tuple(results)


def literal(element: str, x: Any) -> str:
    """A scalar as text: f32(0.5), i64(7), f32(nan)."""
    value = scalar(element, x).item()
    return repr(value) if element == "bool" else f"{element}({value!r})"


def scalar_text(name: str, element: str) -> str:
    """The vector function `name` on `element` lanes as a scalar Python function of that name."""
    function = FUNCTIONS[name]
    if element not in function.bodies:
        raise TypeError(f"{name} works on {', '.join(function.bodies)} lanes; got {element}")
    lines = Lines()
    parameters = ["x", "y", "z"][: function.arity]
    result = function.bodies[element](*(Written(lines, element, p) for p in parameters))
    body = "".join(f"    {line}\n" for line in lines)
    return f"def {name}({', '.join(parameters)}):\n{body}    return {result.name}\n"
