"""NumPy functions called on a Tensor: np.exp(t), np.sum(t, axis=0) record like ours.

Knows which function of ours stands for which of NumPy's and how arguments differ. What is not in
the tables raises a `TypeError` that says so; nothing is silently computed by NumPy, which would
lose gradients and the trace.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ops.errors import ArgumentError
from ops.types import dtype_name
from tracer.functions import arithmetic, linear_algebra, logic, reductions, transcendental
from tracer.functions.creation import cast
from tracer.functions.public import public
from tracer.interop.numpy_functions import FUNCTIONS
from tracer.interop.numpy_reductions import write_out
from tracer.tensors.tensor import Tensor

Function = Callable[..., Any]

# ---- universal functions -------------------------------------------------------------------------

UFUNCS: dict[str, Function] = {
    "absolute": arithmetic.abs,
    "add": arithmetic.add,
    "arccos": transcendental.acos,
    "arccosh": transcendental.acosh,
    "arcsin": transcendental.asin,
    "arcsinh": transcendental.asinh,
    "arctan": transcendental.atan,
    "arctan2": transcendental.atan2,
    "arctanh": transcendental.atanh,
    "bitwise_and": logic.bitwise_and,
    "bitwise_or": logic.bitwise_or,
    "bitwise_xor": logic.bitwise_xor,
    "ceil": arithmetic.ceil,
    "copysign": arithmetic.copysign,
    "conjugate": arithmetic.positive,
    "cos": transcendental.cos,
    "cosh": transcendental.cosh,
    "deg2rad": lambda x: arithmetic.multiply(x, math.pi / 180),
    "degrees": lambda x: arithmetic.multiply(x, 180 / math.pi),
    "divide": arithmetic.divide,
    "equal": logic.equal,
    "exp": transcendental.exp,
    "exp2": transcendental.exp2,
    "expm1": transcendental.expm1,
    "fabs": arithmetic.abs,
    "floor": arithmetic.floor,
    "floor_divide": arithmetic.floor_divide,
    "fmod": arithmetic.fmod,
    "greater": logic.greater,
    "greater_equal": logic.greater_equal,
    "hypot": arithmetic.hypot,
    "invert": logic.bitwise_invert,
    "isfinite": logic.isfinite,
    "isinf": logic.isinf,
    "isnan": logic.isnan,
    "left_shift": logic.bitwise_left_shift,
    "less": logic.less,
    "less_equal": logic.less_equal,
    "log": transcendental.log,
    "log10": transcendental.log10,
    "log1p": transcendental.log1p,
    "log2": transcendental.log2,
    "logaddexp": transcendental.logaddexp,
    "logical_and": logic.logical_and,
    "logical_not": logic.logical_not,
    "logical_or": logic.logical_or,
    "logical_xor": logic.logical_xor,
    "matmul": linear_algebra.matmul,
    "maximum": arithmetic.maximum,
    "minimum": arithmetic.minimum,
    "multiply": arithmetic.multiply,
    "negative": arithmetic.negative,
    "not_equal": logic.not_equal,
    "positive": arithmetic.positive,
    "power": arithmetic.pow,
    "float_power": arithmetic.pow,
    "rad2deg": lambda x: arithmetic.multiply(x, 180 / math.pi),
    "radians": lambda x: arithmetic.multiply(x, math.pi / 180),
    "reciprocal": arithmetic.reciprocal,
    "remainder": arithmetic.remainder,
    "right_shift": logic.bitwise_right_shift,
    "rint": arithmetic.round,
    "sign": arithmetic.sign,
    "signbit": logic.signbit,
    "sin": transcendental.sin,
    "sinh": transcendental.sinh,
    "sqrt": arithmetic.sqrt,
    "square": arithmetic.square,
    "subtract": arithmetic.subtract,
    "tan": transcendental.tan,
    "tanh": transcendental.tanh,
    "trunc": arithmetic.trunc,
    "vecdot": linear_algebra.vecdot,
}

REDUCING: dict[str, Function] = {
    "add": reductions.sum,
    "logical_and": reductions.all,
    "logical_or": reductions.any,
    "maximum": reductions.max,
    "minimum": reductions.min,
    "multiply": reductions.prod,
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
        function = (
            UFUNCS.get(ufunc.__name__) if ufunc is getattr(np, ufunc.__name__, None) else None
        )
        if ufunc.__name__ == "divmod":
            function = _divmod
    elif method == "reduce":
        function, name = REDUCING.get(ufunc.__name__), f"{name}.reduce"
        keywords["axis"] = keywords.get("axis", 0)
        keywords = {
            k: v for k, v in keywords.items() if not (k in ("initial",) and v is np._NoValue)
        }
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


def _divmod(x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    return arithmetic.floor_divide(x1, x2), arithmetic.remainder(x1, x2)


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


@public
def array_function(self: Tensor, func: Function, types: Any, args: Any, kwargs: Any) -> Any:
    """A NumPy function with a Tensor among its arguments; see NumPy's `__array_function__`."""
    function = FUNCTIONS.get(func)
    if function is not None:
        return function(*args, **kwargs)
    if func in LOOKING:
        keywords = {name: _array(value) for name, value in kwargs.items()}
        return func(*map(_array, args), **keywords)
    raise _refusal(f"{getattr(func, '__module__', 'numpy')}.{getattr(func, '__name__', func)}")


def _array(x: Any) -> Any:
    return x.array if isinstance(x, Tensor) else x


def attach() -> None:
    """Make NumPy ask Tensors."""
    Tensor.__array_ufunc__ = array_ufunc  # type: ignore[attr-defined]
    Tensor.__array_function__ = array_function  # type: ignore[attr-defined]
