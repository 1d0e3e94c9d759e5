"""What a user's `symbolic(g, *inputs)` is called with: `g` and values, as torch.onnx has them; what it builds becomes a `Form`.

Knows the convention for names and attributes. Must not know ONNX's schemas, nor `onnx`: a form is checked when it is exported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ops.array_data import ArrayData
from ops.dims import Dim
from ops.errors import ArgumentError, ExportError, TracerError
from ops.forms import SUFFIXES, Form, FormNode, Operand, Reference
from ops.types import Type
from tracer.dispatch.eager import EAGER
from tracer.tensors.from_data import array_of
from tracer.tensors.modes import interpreted_by
from tracer.tensors.tensor import Tensor


class SymbolicValue:
    """A value of the ONNX form that is being built."""

    __slots__ = ("_number", "_type")

    def __init__(self, number: int, type_: Type | None) -> None:
        self._number, self._type = number, type_

    def type(self) -> Type:
        """Its type: `.sizes()` is the shape, `.dtype` the element type. Raises `ExportError` for what ONNX operators gave."""
        if self._type is None:
            raise ExportError(
                "the type of what g.op gave is not known, only those of symbolic's inputs are"
            )
        return self._type

    def __repr__(self) -> str:
        return f"<value {self._number}{f' : {self._type}' if self._type is not None else ''}>"

    def __bool__(self) -> bool:
        raise ExportError(
            "a value of the ONNX form has no truth; it has elements in the model only"
        )


class SymbolicGraph:
    """`g`: builds the ONNX form of one call."""

    def __init__(self) -> None:
        self._nodes: list[FormNode] = []
        self._count = 0

    def input(self, type_: Type) -> SymbolicValue:
        """A new input."""
        return self._new(type_)

    def _new(self, type_: Type | None) -> SymbolicValue:
        self._count += 1
        return SymbolicValue(self._count - 1, type_)

    def op(self, opname: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """An ONNX operator, `"Relu"` or `"domain::Name"`: its result, a tuple of them if `outputs` is more than 1.

        Inputs are values, None, Python numbers and arrays. Attributes end with what they are: `alpha_f=0.1`, `axes_i=[0, 1]`,
        `mode_s="linear"`, `value_t=array`; without an ending, their value says it.
        """
        if (
            not isinstance(opname, str)
            or not opname.replace("::", "").replace(".", "").isidentifier()
        ):
            raise ExportError(
                f'g.op takes the name of an operator, "Relu" or "domain::Name", got {opname!r:.60}'
            )
        if not isinstance(outputs, int) or outputs < 1:
            raise ExportError(f"outputs is how many results {opname} gives, got {outputs!r:.60}")
        operands = tuple(_operand(opname, x) for x in inputs)
        given = tuple(_attribute(opname, k, v) for k, v in attributes.items() if v is not None)
        self._nodes.append(FormNode(opname, operands, given, outputs))
        results = tuple(self._new(None) for _ in range(outputs))
        return results[0] if outputs == 1 else results

    def form(self, inputs: int, result: Any, wanted: int) -> Form:
        """What was built, with its results."""
        given = tuple(result) if isinstance(result, tuple | list) else (result,)
        if len(given) != wanted:
            raise ExportError(f"it gave {len(given)} values, forward gives {wanted} Tensors")
        for y in given:
            if y is not None and not isinstance(y, SymbolicValue):
                raise ExportError(
                    f"it gave {y!r:.60}; a result is what g.op gave, an input, or None where ONNX has none"
                )
        outputs = tuple(None if y is None else Reference(y._number) for y in given)
        return Form(inputs, tuple(self._nodes), outputs)


def _operand(opname: str, x: Any) -> Operand:
    if isinstance(x, SymbolicValue):
        return Reference(x._number)
    if x is None or isinstance(x, bool | int | float):
        return x
    if isinstance(x, np.ndarray | np.generic) or (isinstance(x, Tensor) and not x.is_symbolic):
        return _array(x)
    raise ExportError(
        f"{opname}: an input is a value of symbolic's, a number, an array or None, got {type(x).__name__}"
    )


def _array(x: Any) -> ArrayData:
    return ArrayData.of(x._data() if isinstance(x, Tensor) else np.asarray(x))


def _attribute(opname: str, key: str, value: Any) -> tuple[str, Any]:
    """An attribute under a name that says what it is."""
    suffix = key[-2:] if key.endswith(SUFFIXES) and len(key) > 2 else ""
    listed = isinstance(value, list | tuple)
    parts = tuple(value) if listed else (value,)
    if not suffix:
        suffix = _suffix_of(parts)
        key += suffix
    try:
        match suffix:
            case "_t":
                numbers = listed or isinstance(value, int | float)
                return key, _array(array_of(value) if numbers else value)
            case "_f":
                found: tuple[Any, ...] = tuple(float(_plain(v)) for v in parts)
            case "_i":
                found = tuple(v if isinstance(v, Dim) else _plain(v).__index__() for v in parts)
            case "_s" if all(isinstance(v, str) for v in parts):
                found = parts
            case _:
                raise TypeError
    except (TypeError, ValueError, AttributeError, TracerError):
        kind = {"_i": "integers", "_f": "floats", "_s": "strings", "_t": "a tensor"}.get(
            suffix, "a number, a string or an array"
        )
        hint = (
            "; a value of the graph is no attribute: a float argument of a traced function is such a value unless it is static"
            if any(isinstance(v, SymbolicValue) for v in parts)
            else ""
        )
        raise ExportError(
            f"{opname}: the attribute {key} is {kind}, got {value!r:.60}{hint}"
        ) from None
    return key, found if listed else found[0]


def _plain(value: Any) -> Any:
    if isinstance(value, str | SymbolicValue):
        raise TypeError
    return value


def _suffix_of(parts: tuple[Any, ...]) -> str:
    if parts and all(isinstance(v, str) for v in parts):
        return "_s"
    if all(isinstance(v, bool | int | np.integer | Dim) for v in parts):
        return "_i"
    if all(isinstance(v, bool | int | float | np.floating) for v in parts):
        return "_f"
    if len(parts) == 1 and isinstance(parts[0], np.ndarray | Tensor):
        return "_t"
    return ""


def build_form(symbolic: Callable[..., Any], name: str, inputs: Sequence[Any], wanted: int) -> Form:
    """The form that `symbolic` builds; where it fails, one that says why, for the day when it is exported.

    `inputs`: types for what is a Tensor, anything else as it is. What it computes with Tensors, such as a constant, is no part of
    a trace.
    """
    g = SymbolicGraph()
    values = [g.input(x) if isinstance(x, Type) else x for x in inputs]
    count = sum(isinstance(x, Type) for x in inputs)
    try:
        with interpreted_by(EAGER):
            return g.form(count, symbolic(g, *values), wanted)
    except Exception as error:
        kind = "" if isinstance(error, TracerError) else f"{type(error).__name__}: "
        return Form(count, problem=f"{name}.symbolic failed: {kind}{error}")


def form_of(function: Any, args: Sequence[Any], results: Sequence[Tensor]) -> Form | None:
    """The form of a Function's call, None if it has no `symbolic`."""
    symbolic = getattr(function, "symbolic", None)
    if symbolic is None:
        return None
    if not callable(symbolic):
        raise ArgumentError(f"{function.__name__}.symbolic must be a static method")
    types = [x.type.strong() if isinstance(x, Tensor) else x for x in args]
    return build_form(symbolic, function.__name__, types, len(results))
