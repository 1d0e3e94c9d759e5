"""What the calls in CUDA text do: a Python function for Numba's CUDA compiler for each primitive
and element.

The text is the meaning on a device; in Numba's simulator the primitives' own NumPy meaning stands
in. Knows no kernels; imports Numba only in the functions that build names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from codegen.errors import Unsupported
from codegen.text.scalar_text import Used, function_text
from codegen.vector.elements import DTYPE, bits, kind
from codegen.vector.functions import FUNCTIONS
from codegen.vector.primitives import PRIMITIVES, TABLES

_FLOAT_CALLS = {  # f32, f64
    "truediv": ("fdiv_rn", "ddiv_rn"),
    "fma": ("fmaf", "fma"),
    "sqrt": ("fsqrt_rn", "dsqrt_rn"),
    "trunc": ("truncf", "trunc"),
    "floor": ("floorf", "floor"),
    "ceil": ("ceilf", "ceil"),
    "rint": ("rintf", "rint"),
    "copysign": ("copysignf", "copysign"),
    "fmod": ("fmodf", "fmod"),
    "absolute": ("fabsf", "fabs"),
    "to_bits": ("float_as_int", "double_as_longlong"),
}
_FLOAT_DIVISION = """\
    if y == {e}(0):
        return {zero}
    rest = libdevice.{fmod}(x, y)
    whole = libdevice.{div}(x - rest, y)
    if rest != {e}(0):
        if (y < {e}(0)) != (rest < {e}(0)):
            rest = rest + y
            whole = whole - {e}(1)
    else:
        rest = libdevice.{sign}({e}(0), y)
"""


def device_text(name: str, element: str, used: Used) -> str:
    """The function `<name>_<element>` for a device."""
    if name in FUNCTIONS:
        return function_text(name, element, used)
    if name not in PRIMITIVES:
        raise Unsupported(f"{name}() has no CUDA text")
    if name in TABLES:
        return _table_text(name, element)
    arity = PRIMITIVES[name].arity
    parameters = ", ".join(["x", "y", "z"][:arity])
    body = _float_body(name, element, parameters) if kind(element) == "f" else None
    body = body or _body(name, element)
    return f"def {name}_{element}({parameters}):\n{body}"


def _table_text(name: str, element: str) -> str:
    """A look-up, written out; an index outside the table gives its last word."""
    *words, last = TABLES[name]
    cases = "".join(f"    if x == {i}:\n        return u64({w})\n" for i, w in enumerate(words))
    return f"def {name}_{element}(x):\n{cases}    return u64({last})\n"


def _float_body(name: str, e: str, parameters: str) -> str | None:
    double = e == "f64"
    if name in _FLOAT_CALLS:
        return f"    return libdevice.{_FLOAT_CALLS[name][double]}({parameters})\n"
    if name == "ldexp":
        return f"    return libdevice.{'ldexp' if double else 'ldexpf'}(x, i32(y))\n"
    if name == "round_f16":
        return "    return libdevice.half2float(libdevice.float2half_rn(x))\n"
    if name == "round_bf16":
        return (
            "    if x != x:\n        return x\n    pattern = u32(libdevice.float_as_int(x))\n"
            "    odd = (pattern >> u32(16)) & u32(1)\n"
            "    rounded = u32(pattern + u32(0x7FFF) + odd) & u32(0xFFFF0000)\n"
            "    return libdevice.int_as_float(i32(u32(rounded)))\n"
        )
    if name in ("floordiv", "mod"):
        fmod, div, sign = (_FLOAT_CALLS[n][double] for n in ("fmod", "truediv", "copysign"))
        zero = f"libdevice.{div}(x, y)" if name == "floordiv" else f"libdevice.{fmod}(x, y)"
        body = _FLOAT_DIVISION.format(e=e, zero=zero, fmod=fmod, div=div, sign=sign)
        if name == "mod":
            return f"{body}    return rest\n"
        floor = _FLOAT_CALLS["floor"][double]
        return (
            f"{body}    if whole == {e}(0):\n"
            f"        return libdevice.{sign}({e}(0), libdevice.{div}(x, y))\n"
            f"    floor = libdevice.{floor}(whole)\n"
            f"    return floor + {e}(1) if whole - floor > {e}(0.5) else floor\n"
        )
    if name.startswith("to_"):
        target = name[3:]
        limits = np.iinfo(DTYPE[target])
        above = float(2 ** (bits(target) - (kind(target) == "i")))
        return (
            f"    if not x > {e}({float(limits.min)!r}):\n"
            f"        return {target}({limits.min}) if x == x else {target}(0)\n"
            f"    return {target}({limits.max}) if x >= {e}({above!r}) else {target}(x)\n"
        )
    return None


def _body(name: str, e: str) -> str:
    size = bits(e)
    signed = kind(e) == "i"
    match name:
        case "maximum":
            return "    return y if y != y or y > x else x\n"
        case "minimum":
            return "    return y if y != y or y < x else x\n"
        case "absolute":
            return f"    return {e}(-x) if x < 0 else x\n" if signed else "    return x\n"
        case "from_bits":
            call = "int_as_float(i32(x))" if size == 32 else "longlong_as_double(i64(x))"
            return f"    return libdevice.{call}\n"
        case "popcount":
            mask = "" if size >= 32 else f" & {2**size - 1}"
            call = f"popcll(i64(x){mask})" if size == 64 else f"popc(i32(i32(x){mask}))"
            return f"    return {e}(libdevice.{call})\n"
        case "lshift":
            return f"    return {e}(x << y) if y >= 0 and y < {size} else {e}(0)\n"
        case "rshift":
            out = f"{e}(-1) if x < 0 else {e}(0)" if signed else f"{e}(0)"
            return f"    return {e}(x >> y) if y >= 0 and y < {size} else ({out})\n"
        case "floordiv" | "mod" | "fmod":
            body = f"    if y == 0:\n        return {e}(0)\n"
            if signed:  # the most negative by -1 would trap
                by_minus_one = f"{e}(0 - x)" if name == "floordiv" else f"{e}(0)"
                body += f"    if y == -1:\n        return {by_minus_one}\n"
            symbol = "//" if name == "floordiv" else "%"
            if name != "fmod" or not signed:
                return body + f"    return {e}(x {symbol} y)\n"
            body += f"    rest = {e}(x % y)\n    cut = rest != 0 and (rest < 0) != (x < 0)\n"
            return body + f"    return {e}(rest - y) if cut else rest\n"
    raise Unsupported(f"{name}() on {e} has no CUDA text")


def device_functions(used: Used) -> dict[str, str]:
    """Name -> text of all functions called, and of those that these call, callees first."""
    texts: dict[str, str] = {}
    pending: list[tuple[str, str]] = list(used)

    def visit(name: str, element: str) -> None:
        key = f"{name}_{element}"
        if key in texts:
            return
        inner: Used = {}
        text = device_text(name, element, inner)
        for callee in inner:
            visit(*callee)
        texts[key] = text

    for name, element in pending:
        visit(name, element)
    return texts


def simulated(name: str) -> Any:
    """`<primitive>_<element>` on NumPy scalars, for the simulator; None for a vector function,
    whose text runs there.
    """
    primitive, _, element = name.rpartition("_")
    if primitive in FUNCTIONS:
        return None
    meaning, dtype = PRIMITIVES[primitive].meaning, DTYPE[element]

    def call(*operands: Any) -> Any:
        with np.errstate(all="ignore"):
            values = (np.atleast_1d(np.asarray(x, dtype)) for x in operands)
            return np.atleast_1d(meaning(*values))[0]

    return call
