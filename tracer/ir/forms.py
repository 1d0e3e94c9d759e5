"""ONNX forms as text, and read back: {(%0, %1); %2 = my::Gelu[alpha_f=0.5](%0, %1); return (%2)}.

Values are numbered as the form numbers them. Knows the form's records and how other attributes are written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ops.array_data import ArrayData
from ops.forms import SUFFIXES, Form, FormNode, Operand, Reference
from tracer.ir.literals import FormatArray, attribute_text, quoted

if TYPE_CHECKING:
    from tracer.ir.reader import Reader

_MOST_OUTPUTS = 1000


def form_text(form: Form, array: FormatArray) -> str:
    """The form on one line."""
    if form.problem:
        return f"{{{form.inputs} inputs, no form: {quoted(form.problem)}}}"
    parts = [_listed(tuple(map(Reference, range(form.inputs))), array)]
    for node, first in zip(form.nodes, form.defined(), strict=False):
        results = ", ".join(f"%{first + k}" for k in range(node.outputs))
        attrs = ", ".join(f"{k}={attribute_text(v, array)}" for k, v in node.attributes)
        head = f"{results} = {node.operator}{f'[{attrs}]' if attrs else ''}"
        parts.append(head + _listed(node.operands, array))
    parts.append(f"return {_listed(form.outputs, array)}")
    return f"{{{'; '.join(parts)}}}"


def _listed(operands: tuple[Operand, ...], array: FormatArray) -> str:
    return f"({', '.join(_operand_text(x, array) for x in operands)})"


def _operand_text(x: Operand, array: FormatArray) -> str:
    return f"%{x.number}" if isinstance(x, Reference) else attribute_text(x, array)


def read_form(reader: Reader) -> Form:
    """The form that stands next."""
    reader.expect("{")
    if not reader.looking_at("("):
        inputs = reader.integer()
        reader.expect(" inputs, no form: ")
        problem = reader.string()
        reader.expect("}")
        return Form(inputs, problem=problem or "it is not known why")
    given = _operands(reader, _MOST_OUTPUTS)
    if given != tuple(map(Reference, range(len(given)))):
        reader.fail("expected the inputs %0, %1 ... in order")
    inputs = count = len(given)
    nodes: list[FormNode] = []
    reader.expect("; ")
    while not reader.accept("return "):
        nodes.append(_node(reader, count))
        count += nodes[-1].outputs
        reader.expect("; ")
    outputs = _operands(reader, count)
    reader.expect("}")
    return Form(inputs, tuple(nodes), outputs)


def _node(reader: Reader, count: int) -> FormNode:
    outputs = 0
    while not outputs or reader.accept(", "):
        reader.expect(f"%{count + outputs}")
        outputs += 1
    reader.expect(" = ")
    operator = reader.word("the name of an ONNX operator")
    attributes: list[tuple[str, Any]] = []
    if reader.accept("["):
        while not attributes or reader.accept(", "):
            name = reader.word("the name of an attribute")
            if not name.endswith(SUFFIXES):
                reader.fail(f"expected a name that ends with one of {', '.join(SUFFIXES)}")
            reader.expect("=")
            attributes.append((name, _attribute(reader, name[-2:])))
        reader.expect("]")
    return FormNode(operator, _operands(reader, count), tuple(attributes), outputs)


def _attribute(reader: Reader, suffix: str) -> Any:
    if suffix == "_t":
        return reader.array()
    single: Callable[[], Any] = {"_i": reader.size, "_f": reader.float, "_s": reader.string}[suffix]
    return reader.list(single) if reader.accept("[") else single()


def _operands(reader: Reader, count: int) -> tuple[Operand, ...]:
    reader.expect("(")
    result: list[Operand] = []
    while not reader.accept(")"):
        if result:
            reader.expect(", ")
        result.append(_operand(reader, count))
    return tuple(result)


def _operand(reader: Reader, count: int) -> Operand:
    if reader.accept("None"):
        return None
    if reader.looking_at("True") or reader.looking_at("False"):
        return reader.boolean()
    if reader.accept("%"):
        number = reader.integer()
        if not 0 <= number < count:
            reader.fail(f"%{number} is not defined before this place")
        return Reference(number)
    found: Operand = reader.number_or_array()
    return found


def arrays(form: Form) -> list[ArrayData]:
    """The arrays in a form."""
    found = [x for node in form.nodes for x in (*node.operands, *(v for _, v in node.attributes))]
    return [x for x in (*found, *form.outputs) if isinstance(x, ArrayData)]
