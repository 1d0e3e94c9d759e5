"""`tracer.op`: a function of the user's on numbers becomes an operator, element by element, that kernels call like any other.

Knows how an operator's record is made of a function and its derivative. What a function is made of and how it is compiled is
`codegen`'s.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import threading
from collections.abc import Callable, Sequence
from types import FunctionType, MappingProxyType
from typing import Any, overload

import numpy as np

from codegen.errors import FunctionError
from codegen.user_functions.content import (
    Content,
    content,
    described,
    functions,
    parameters,
    python_function,
)
from ops import rules
from ops.compute import Scalar, ScalarFunction
from ops.errors import ArgumentError
from ops.operator import Application, NoGradient, Operator, Rule, Unsupported, find, register
from ops.types import FLOATING, Type
from tracer.core.source_lines import located
from tracer.custom.onnx_symbolic import build_form
from tracer.dispatch.apply import apply_operator
from tracer.functions.promotion import prepare
from tracer.functions.public import public
from tracer.tensors.tensor import Tensor

_ULP = 16.0  # between compiled results and the function run by Python: each has rounding of its own


class CustomOperator:
    """An operator made of a function of numbers: call it with Tensors, arrays and numbers, which are broadcast.

    `name` is what it is called in the IR, `function` the Python function, `derivative` what was given for it.
    """

    def __init__(
        self,
        function: Any,
        derivative: Any = None,
        symbolic: Any = None,
        name: str | None = None,
        part: int | None = None,
    ) -> None:
        found = python_function(function)
        if found is None:
            raise ArgumentError(
                f"tracer.op takes a function of numbers, plain or compiled by Numba, got {type(function).__name__}"
            )
        functools.update_wrapper(self, found)
        self.function: FunctionType = found
        self.derivative, self.symbolic = derivative, symbolic
        self.operands = parameters(found)
        self.name = _checked_name(name or _word(found.__name__))
        self.part = part  # of the tuple that the function gives, if it is not a number
        self._parts = _derivatives(self, derivative)
        self._current: tuple[Content, Operator] | None = None
        self._lock = threading.Lock()

    @property
    def py_func(self) -> FunctionType:
        """The Python function, as Numba's dispatchers have it: other such functions may call this one."""
        return self.function

    def functions(self) -> list[FunctionType]:
        """All the Python functions that it is made of, those of its derivative included."""
        parts = [f for d in self._parts if d is not None for f in d.functions()]
        try:
            return [*functions(self.function), *parts]
        except FunctionError:  # told where it is used
            return [self.function, *parts]

    @property
    def operator(self) -> Operator:
        """The operator's record, of what the function and its derivative use now."""
        with self._lock:
            known = self._current
            parts = [None if d is None else d.operator for d in self._parts]
            if known is not None and known[0].is_current() and _parts_of(known[1]) == parts:
                return known[1]
            found = content(self.function)
            record = _record(self, found, parts)
            self._current = found, record
            return record

    @public
    def __call__(self, *operands: Any, **named: Any) -> Tensor:
        """The function of each element. Integers and bools become float32."""
        if named:
            operands = _in_order(self, operands, named)
        if len(operands) != len(self.operands):
            listed = ", ".join(self.operands)
            raise ArgumentError(f"{self.name} takes ({listed}), got {len(operands)} operands")
        try:
            record = self.operator
        except FunctionError as error:
            raise _refused(error) from None
        result: Tensor = apply_operator(record, tuple(prepare(*operands, floating=True)), {})
        return result

    def __repr__(self) -> str:
        return f"<operator {self.name} of {described(self.function)}>"

    def __reduce__(self) -> str:
        module = sys.modules.get(self.function.__module__)
        names = () if module is None else vars(module).items()
        return next((name for name, value in names if value is self), self.function.__qualname__)

    def __deepcopy__(self, memo: Any) -> CustomOperator:
        return self


def _refused(error: FunctionError) -> ArgumentError:
    return ArgumentError(str(error))


def _in_order(
    custom: CustomOperator, operands: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, ...]:
    """Operands with those that were passed by name in their places."""
    left = custom.operands[len(operands) :]
    wrong = next((name for name in named if name not in left), None)
    if wrong is not None:
        if wrong in custom.operands:
            why = "which it has got already"
        elif wrong in inspect.signature(custom.function).parameters:
            why = (
                "a parameter with a default, which is a constant of the operator; make another operator for another constant, "
                "or give the parameter no default"
            )
        else:
            why = "which the function does not have"
        raise ArgumentError(
            f"{custom.name} takes ({', '.join(custom.operands)}), got {wrong}, {why}"
        )
    return (*operands, *(named[name] for name in left if name in named))


# ---- names ---------------------------------------------------------------------------------------


def _word(name: str) -> str:
    word = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_")
    return word if word and not word[0].isdigit() else f"f_{word}"


def _checked_name(name: Any) -> str:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", name):
        raise ArgumentError(
            f"the name of an operator has letters, digits and underscores, got {name!r:.60}"
        )
    known = find(name)
    if known is not None and not known.calls_user:
        raise ArgumentError(
            f"{name} is the name of an operator of tracer; pass another one: tracer.op(f, name=...)"
        )
    return name


_numbered: dict[str, dict[Any, int]] = {}
_naming = threading.Lock()


def _unique(name: str, identity: Any) -> str:
    """The name, with a number behind it where another function has it: the same for the same function as long as this process
    lives, so that a name never means two things.
    """
    with _naming:
        others = _numbered.setdefault(name, {})
        number = others.setdefault(identity, len(others))
    return f"{name}.{number + 1}" if number else name


# ---- derivatives ---------------------------------------------------------------------------------


def _derivatives(custom: CustomOperator, given: Any) -> tuple[CustomOperator | None, ...]:
    """An operator for each operand, None for those without a gradient; () if there is no derivative at all."""
    count, name = len(custom.operands), custom.name
    if given is None:
        return ()
    if isinstance(given, tuple | list):
        if len(given) != count:
            raise ArgumentError(
                f"{name} has {count} operands, so its derivative is {count} functions, got {len(given)}"
            )
        return tuple(
            None if d is None else _derivative(custom, d, f"{name}.derivative{k}", None)
            for k, d in enumerate(given)
        )
    if count == 1:
        return (_derivative(custom, given, f"{name}.derivative", None),)
    return tuple(_derivative(custom, given, f"{name}.derivative{k}", k) for k in range(count))


def _derivative(custom: CustomOperator, given: Any, name: str, part: int | None) -> CustomOperator:
    if isinstance(given, CustomOperator) and part is not None:
        raise ArgumentError(
            f"{custom.name} has {len(custom.operands)} operands; a derivative that is an operator gives one number, so pass one "
            "for each operand: derivative=(dx, dy)"
        )
    if not isinstance(given, CustomOperator) and python_function(given) is None:
        raise ArgumentError(
            f"the derivative of {custom.name} is a function of its operands, or one for each of them, got {type(given).__name__}"
        )
    made = (
        given if isinstance(given, CustomOperator) else CustomOperator(given, name=name, part=part)
    )
    if len(made.operands) != len(custom.operands):
        raise ArgumentError(
            f"the derivative of {custom.name} takes its operands ({', '.join(custom.operands)}), got "
            f"{described(made.function)}, which takes ({', '.join(made.operands)})"
        )
    return made


# ---- the record ----------------------------------------------------------------------------------


def _record(custom: CustomOperator, found: Content, parts: list[Operator | None]) -> Operator:
    part, count = custom.part, len(custom.operands)
    marker = "" if part is None else f"_{part}"
    name = f"{_word(custom.name)}_{found.digest}{marker}"
    scalar = ScalarFunction(name, count, part, found.function)
    # A form is compared by what made it: its function is not looked into.
    identity = (found.digest, part, *(d and d.name for d in parts), custom.symbolic)
    unique = _unique(custom.name, identity)
    known = find(unique)
    if known is not None:
        return known
    arguments = ", ".join(f"{{{k}}}" for k in range(count))
    record = Operator(
        name=unique,
        doc=custom.function.__doc__ or f"{described(custom.function)}, element by element.",
        inputs=custom.operands,
        variadic=False,
        optional=0,
        attributes=MappingProxyType({}),
        type_rule=rules.floating,
        reference=functools.partial(_reference, scalar),
        compute=Scalar(f"{name}({arguments})", effort="high", functions=(scalar,)),
        vjp=_Gradient(parts)
        if parts
        else NoGradient(
            f"it was made without a derivative; pass tracer.op({custom.name}, derivative=...)"
        ),
        onnx=Unsupported(
            f"{custom.name} is a function of your own; say what it is in ONNX with tracer.op(..., symbolic=...)"
        )
        if custom.symbolic is None
        else _onnx(custom),
        samples=(),
        errors=(),
        dtypes=FLOATING,
        ulp=_ULP,
    )
    register(record)
    return record


def _parts_of(record: Operator) -> list[Operator | None]:
    """The operators of a record's derivatives."""
    return list(record.vjp.parts) if isinstance(record.vjp, _Gradient) else []


class _Gradient:
    """The gradient rule: each cotangent is that of the result times a derivative. It keeps the derivatives' records alive."""

    def __init__(self, parts: Sequence[Operator | None]) -> None:
        self.parts = tuple(parts)

    def __call__(self, g: Any, n: Application) -> tuple[Any, ...]:
        """The cotangents of the operands that need one."""
        return tuple(
            g.chain(n.dy, g.op(d.name, *n.inputs)) if needed and d is not None else None
            for d, needed in zip(self.parts, n.needs, strict=True)
        )


def _onnx(custom: CustomOperator) -> Rule:
    def rule(g: Any, n: Application) -> Any:
        types = [Type(x.type.dtype, x.type.shape) for x in n.inputs]
        return build_form(custom.symbolic, custom.name, types, 1).build(g, n.inputs)

    return rule


def _reference(scalar: ScalarFunction, *arrays: Any) -> Any:
    """The function run by Python on NumPy's scalars, half types as float32."""
    dtype = arrays[0].dtype
    lanes = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    spread = np.broadcast_arrays(*(a.astype(lanes) for a in arrays))
    result = np.empty(spread[0].shape, lanes)
    flat = result.reshape(-1)
    for k, numbers in enumerate(zip(*(a.reshape(-1) for a in spread), strict=True)):
        flat[k] = scalar(*numbers)
    return result.astype(dtype)


# ---- what a user calls ---------------------------------------------------------------------------


@overload
def op(
    function: Callable[..., Any],
    *,
    derivative: Any = None,
    symbolic: Callable[..., Any] | None = None,
    name: str | None = None,
) -> CustomOperator: ...
@overload
def op(
    function: None = None,
    *,
    derivative: Any = None,
    symbolic: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Callable[[Callable[..., Any]], CustomOperator]: ...
def op(
    function: Any = None,
    *,
    derivative: Any = None,
    symbolic: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """Make an operator of a function of numbers, plain Python or under Numba's `@njit`.

    It works element by element on Tensors of floats, which are broadcast, and is part of the kernels around it. `derivative`: a
    function of the same operands that gives the derivative, a tuple of them if there are several operands; or a tuple of
    functions, one for each operand, None for one without a gradient. A derivative that is itself made by `tracer.op` with a
    derivative gives second gradients. `symbolic(g, *inputs)` says what the operator is in ONNX.

    The function is compiled by Numba. It may use numbers, tuples of numbers, `math`, NumPy's functions of numbers, and other such
    functions; parameters with defaults are constants. Where one of these changes, it is another operator from then on. A division
    by zero gives infinities and NaN, 0 for integers. Use as `tracer.op(f, ...)`, `@tracer.op` or `@tracer.op(...)`.

    Raises `ArgumentError` for what is no such function, and, where it is used first, for what Numba cannot compile or what may
    raise an exception.

    >>> @tracer.op
    ... def clipped(x, limit=1.0):
    ...     return min(max(x, -limit), limit)
    >>> clipped([-3.0, 0.5])
    tensor([-1. ,  0.5])
    """
    if function is None:
        return lambda f: op(f, derivative=derivative, symbolic=symbolic, name=name)
    try:
        return CustomOperator(function, derivative, symbolic, name)
    except FunctionError as error:
        raise located(_refused(error)) from None
    except ArgumentError as error:
        raise located(error) from None


__all__ = ["CustomOperator", "op"]
