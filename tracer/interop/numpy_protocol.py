"""NumPy functions called on a Tensor: np.exp(t), np.sum(t, axis=0) record like ours.

Knows how NumPy's calls become calls of ours. What is not in the tables, and arguments without counterpart, raise a `TypeError`
that says so; nothing is silently computed by NumPy, which would lose gradients and the trace.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ops.errors import ArgumentError
from ops.types import dtype_name
from tracer.functions import arithmetic, linear_algebra, logic, reductions, transcendental
from tracer.functions.creation import as_tensor, cast
from tracer.functions.public import public
from tracer.interop.numpy_functions import FUNCTIONS
from tracer.interop.numpy_reductions import write_out
from tracer.tensors.tensor import Tensor

Function = Callable[..., Any]

# ---- universal functions -------------------------------------------------------------------------

# NumPy has the array API's names beside its own (`acos` is `arccos`), and what has one of ours means the same.
UFUNCS: dict[np.ufunc, Function] = {
    ufunc: getattr(module, name)
    for module in (arithmetic, linear_algebra, logic, transcendental)
    for name in module.__all__
    if isinstance(ufunc := getattr(np, name, None), np.ufunc)
} | {
    np.conjugate: arithmetic.positive,
    np.deg2rad: lambda x: arithmetic.multiply(x, math.pi / 180),
    np.degrees: lambda x: arithmetic.multiply(x, 180 / math.pi),
    np.divmod: lambda x1, x2: (arithmetic.floor_divide(x1, x2), arithmetic.remainder(x1, x2)),
    np.fabs: arithmetic.abs,
    np.float_power: arithmetic.pow,
    np.rad2deg: lambda x: arithmetic.multiply(x, 180 / math.pi),
    np.radians: lambda x: arithmetic.multiply(x, math.pi / 180),
    np.rint: arithmetic.round,
}

REDUCING: dict[np.ufunc, Function] = {
    np.add: reductions.sum,
    np.logical_and: reductions.all,
    np.logical_or: reductions.any,
    np.maximum: reductions.max,
    np.minimum: reductions.min,
    np.multiply: reductions.prod,
}


def _refusal(name: str) -> ArgumentError:
    return ArgumentError(
        f"{name} is not recorded on Tensors; use a function of tracer or a method of the Tensor, "
        "or outside of traces NumPy's on "
        "the array: np.asarray(t.detach())"
    )


@public
def array_ufunc(self: Tensor, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
    """A universal function with a Tensor among its operands; see NumPy's `__array_ufunc__`."""
    name = f"numpy.{ufunc.__name__}"
    out = keywords.pop("out", None)
    dtype = keywords.pop("dtype", None)
    if keywords.get("where") is True:
        del keywords["where"]
    if method == "__call__":
        function = UFUNCS.get(ufunc)
    elif method == "reduce":
        function, name = REDUCING.get(ufunc), f"{name}.reduce"
        keywords["axis"] = keywords.get("axis", 0)
        if keywords.get("initial") is np._NoValue:
            del keywords["initial"]
        if dtype is not None and function in (reductions.sum, reductions.prod):
            keywords["dtype"], dtype = dtype, None
    else:
        function, name = None, f"{name}.{method}"
    if function is None:
        raise _refusal(name)
    if method == "__call__" and keywords and set(keywords) != {"axis"}:
        raise ArgumentError(
            f"{name} on a Tensor takes no argument {sorted(keywords)[0]!r}; use tracer.where, or "
            "astype"
        )
    result = function(*inputs, **keywords)
    if dtype is not None:
        result = cast(result, dtype_name(dtype))
    if out is None:
        return result
    return write_out(out[0] if isinstance(out, tuple) else out, result, name)


# ---- other functions -----------------------------------------------------------------------------

# These look at arrays, or write them to files, and compute nothing that a gradient or a trace could miss.
LOOKING = {
    np.array2string,
    np.array_repr,
    np.array_str,
    np.can_cast,
    np.iscomplexobj,
    np.isrealobj,
    np.may_share_memory,
    np.result_type,
    np.save,
    np.savetxt,
    np.savez,
    np.savez_compressed,
    np.shares_memory,
}


# What these ask for concerns memory, or is what happens anyway.
IGNORED = {"casting", "copy", "device", "optimize", "order", "subok"}

# Functions in C tell their parameters since NumPy 2.4 only.
IN_C: dict[Function, Function] = {
    np.concatenate: lambda arrays, axis=0, out=None, dtype=None, casting="same_kind": None,
    np.dot: lambda a, b, out=None: None,
    np.empty_like: lambda prototype, dtype=None, order="K", subok=True, shape=None: None,
    np.inner: lambda a, b: None,
    np.where: lambda condition, x=None, y=None: None,
}


@public
def array_function(self: Tensor, func: Function, types: Any, args: Any, kwargs: Any) -> Any:
    """A NumPy function with a Tensor among its arguments; see NumPy's `__array_function__`."""
    function = FUNCTIONS.get(func)
    if function is not None:
        return _call(function, func, args, kwargs)
    if func in LOOKING:
        keywords = {name: _array(value) for name, value in kwargs.items()}
        return func(*map(_array, args), **keywords)
    raise _refusal(f"{getattr(func, '__module__', 'numpy')}.{getattr(func, '__name__', func)}")


@functools.cache
def _parameters(function: Function) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The names of a function's parameters without a default, in order, and the defaults of the others."""
    parameters = inspect.signature(IN_C.get(function, function)).parameters.values()
    fixed = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    needed = tuple(p.name for p in fixed if p.default is p.empty)
    return needed, {p.name: p.default for p in fixed if p.default is not p.empty}


@functools.cache
def _binding(
    ours: Function, theirs: Function
) -> tuple[tuple[str, ...], dict[str, Any], dict[str, Any], dict[str, Any]]:
    """NumPy's operands, its options with their defaults, those of them that ours takes, and all that ours takes."""
    needed, defaults = _parameters(theirs)
    taken = _parameters(ours)[1]
    usual = {k: v for k, v in defaults.items() if k in taken and v is not np._NoValue}
    return needed, defaults, usual, taken


def _call(function: Function, theirs: Function, args: Any, kwargs: Any) -> Any:
    """A function of ours with the arguments of NumPy's: operands by position, options by name.

    NumPy has seen that they fit. `out` is written to, and a `dtype` that ours does not take is that of the first operand.
    """
    name = f"numpy.{theirs.__name__}"
    needed, defaults, usual, taken = _binding(function, theirs)
    operands, given, options, out = list(args), kwargs, dict(usual), None
    if needed:  # else any number of operands
        given = dict(zip((*needed, *defaults), args, strict=False)) | kwargs
        operands = [given.pop(operand) for operand in needed]
    for option, value in given.items():
        if option == "out":
            out = value
        elif option in taken:
            if value is not np._NoValue:
                options[option] = bool(value) if option == "keepdims" else value
        elif option not in IGNORED and not _is_default(value, defaults.get(option)):
            if option != "dtype" or option not in defaults:
                raise ArgumentError(f"{name} on a Tensor takes no argument {option!r}")
            operands[0] = cast(as_tensor(operands[0]), dtype_name(value))
    result = function(*operands, **options)
    return result if out is None else write_out(out, result, name)


def _is_default(value: Any, default: Any) -> bool:
    return value is None or value is default or (isinstance(value, str) and value == default)


def _array(x: Any) -> Any:
    return x.array if isinstance(x, Tensor) else x


def attach() -> None:
    """Make NumPy ask Tensors."""
    Tensor.__array_ufunc__ = array_ufunc  # type: ignore[attr-defined]
    Tensor.__array_function__ = array_function  # type: ignore[attr-defined]
