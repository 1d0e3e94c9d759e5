"""Tells Numba what a user's function is in kernel text: a loop over lanes, around the function
compiled for one. Imports Numba.

The function is compiled anew from its Python code, whatever its decorator said: divisions by zero
give what IEEE and NumPy say, no rounding rule is loosened, and what may raise is refused, since no
Python runs where kernels do.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from numba import njit
from numba.core import cgutils as _cgutils
from numba.core import errors as _errors

from codegen.errors import FunctionError
from codegen.text.source import compile_function
from codegen.toolchain.object_code import CompileError, compile_kernel
from codegen.user_functions.content import described, entry
from codegen.user_functions.lane_function import LaneFunction
from codegen.vector.elements import WIDTH
from codegen.vector.intrinsics import JIT_NAMES
from codegen.vector.jit import lead
from codegen.vector.llvm import INT64, vector
from codegen.vector.numba_types import SCALAR, VEC, VecType, register, signature, types
from codegen.vector.scalars_jit import instead
from ops.compute import ScalarFunction

# Numba annotates little of this.
cgutils: Any = _cgutils
numba_errors: Any = _errors
_REASON_LINES = 12


@cache
def prepare(scalar: ScalarFunction, element: str) -> LaneFunction:
    """Make sure that the function compiles for numbers of an element; its name in kernel text.

    Raises `FunctionError` with the function's place and Numba's reason.
    """
    from codegen.user_functions.lane_function import lane_function

    named = lane_function(scalar)
    _compiled(scalar, element)
    _registered(named)
    return named


@cache
def _registered(function: LaneFunction) -> None:
    register(function, _typing(function), _lowering(function))


@cache
def _compiled(scalar: ScalarFunction, element: str) -> Any:
    """Numba's result for numbers of an element."""
    function: Any = scalar.function
    where = described(function)
    sig = (SCALAR[element],) * scalar.arity
    try:
        dispatcher = entry(function, njit(error_model="numpy"), instead())
        dispatcher.compile(sig)
    except numba_errors.NumbaError as error:
        raise FunctionError(
            f"{where} cannot be compiled for {SCALAR[element]}: {_reason(error)}"
        ) from None
    result = dispatcher.overloads[sig]
    returned = _part_type(scalar, result.signature.return_type)
    if not isinstance(returned, types.Integer | types.Float | types.Boolean):
        wanted = (
            "a number"
            if scalar.part is None
            else f"a tuple of {scalar.arity} numbers, one for each operand"
        )
        raise FunctionError(
            f"{where} gives {result.signature.return_type} for {SCALAR[element]}; it must give {wanted} on every path"
        )
    return result


def _part_type(scalar: ScalarFunction, returned: Any) -> Any:
    if scalar.part is None:
        return returned
    if not isinstance(returned, types.BaseTuple) or len(returned) != scalar.arity:
        return None
    return returned.types[scalar.part]


def _reason(error: Exception) -> str:
    """Numba's message without its frame, and not all of it."""
    lines = [line for line in str(error).split("\n") if line.strip()]
    lines = [x for x in lines if "nopython frontend" not in x and "overload" not in x.lower()[:12]]
    more = "\n  ..." if len(lines) > _REASON_LINES else ""
    return "\n  ".join(lines[:_REASON_LINES]) + more


def _typing(function: LaneFunction) -> Any:
    def typing(*args: Any) -> Any:
        if not args or not isinstance(args[0], types.Integer):
            return None
        element = lead(function, args[1:])
        if element is None:
            return None
        wanted = (t if isinstance(t, VecType) else SCALAR[element] for t in args[1:])
        return signature(VEC[element], types.int64, *wanted)

    return typing


def _lowering(function: LaneFunction) -> Any:
    scalar = function.scalar

    def lower(context: Any, b: Any, sig: Any, args: Any) -> Any:
        element = sig.return_type.element
        found = _compiled(scalar, element)
        context.active_code_library.add_linking_library(found.library)
        callee = context.declare_function(b.module, found.fndesc)
        # Through memory: a loop over 16 numbers, which LLVM turns into vectors where it can.
        count = b.select(b.icmp_signed("<", args[0], INT64(WIDTH)), args[0], INT64(WIDTH))
        operands = zip(sig.args[1:], args[1:], strict=True)
        places = [_place(b, element, x) if isinstance(t, VecType) else None for t, x in operands]
        made = _place(b, element)
        returned = found.signature.return_type
        with cgutils.for_range(b, count) as loop:
            numbers = [
                x if p is None else b.load(b.gep(p, [loop.index]))
                for p, x in zip(places, args[1:], strict=True)
            ]
            status, value = context.call_conv.call_function(
                b, callee, returned, found.signature.args, numbers, attrs=("alwaysinline",)
            )
            with cgutils.if_unlikely(b, status.is_error):
                context.call_conv.return_status_propagate(b, status)
            if scalar.part is not None:
                value = b.extract_value(value, scalar.part)
            number = context.cast(b, value, _part_type(scalar, returned), SCALAR[element])
            b.store(number, b.gep(made, [loop.index]))
        first = b.load(made)
        with cgutils.for_range_slice(b, count, INT64(WIDTH), INT64(1)) as (lane, _):
            b.store(first, b.gep(made, [lane]))
        return b.load(b.bitcast(made, vector(element).as_pointer()))

    return lower


def _place(b: Any, element: str, x: Any = None) -> Any:
    """Memory for 16 lanes, holding x."""
    lanes = vector(element)
    place = cgutils.alloca_once(b, lanes)
    if x is not None:
        b.store(x, place)
    return b.bitcast(place, lanes.element.as_pointer())


def refuse_raising(scalar: ScalarFunction, element: str) -> None:
    """Raise `FunctionError` if the function alone, compiled as a kernel, can raise a Python exception."""
    name = "alone"
    operands = ", ".join(f"load_one(pointer_{element}(args, 0), {k})" for k in range(scalar.arity))
    text = (
        f"def {name}(lo, hi, args):\n"
        f"    store_one(pointer_{element}(args, 0), lo, {scalar.name}(1, {operands}))\n"
    )
    names = {**JIT_NAMES, scalar.name: prepare(scalar, element)}
    try:
        compile_kernel(compile_function(text, name, names))
    except CompileError as error:
        raise FunctionError(
            f"{described(scalar.function)} cannot be part of a kernel: "  # type: ignore[arg-type]
            f"{str(error).removeprefix(f'{name}: ')}"
        ) from None
