"""Small kernels on float32 buffers, for tests of the runtime. Numba comes when one is built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from codegen.toolchain.kernel_store import Kernel, kernel

SOURCES = {
    # Adds, so that a chunk that ran twice or never shows.
    "increase": """
def increase(lo, hi, args):
    a, out = pointer(args, 0), pointer(args, 1)
    for i in range(lo, hi):
        out[i] += a[i]
""",
    # Rounds, and differs where the chunks differ.
    "total": """
def total(lo, hi, args):
    a, out = pointer(args, 0), pointer(args, 1)
    s = np.float32(0)
    for i in range(lo, hi):
        s += math.sin(a[i])
        out[i] = s
""",
    # Block: value (a float64 by address), out.
    "fill": """
def fill(lo, hi, args):
    value, out = number(args, 0), pointer(args, 1)
    for i in range(lo, hi):
        out[i] = value
""",
    # Block: where to count. Two chunks that wait for each other.
    "meet": """
def meet(lo, hi, args):
    arrive(args)
""",
    # Block: indices, length, out, where errors go.
    "gather": """
def gather(lo, hi, args):
    a, n, out = pointer(args, 0), word(args, 1), pointer(args, 2)
    for i in range(lo, hi):
        if a[i] < 0 or a[i] >= n:
            set_word(args, 3, 7)
        else:
            out[i] = a[i]
""",
}


def builder(source: str) -> Callable[[], Callable[..., Any]]:
    """`build` for the first function of a text."""

    def build() -> Callable[..., Any]:
        import math

        import numpy as np
        from llvmlite import ir
        from numba import types
        from numba.extending import intrinsic

        i64 = ir.IntType(64)

        def at(b: Any, args: Any, i: Any) -> Any:
            return b.load(b.gep(b.inttoptr(args, i64.as_pointer()), [i]))

        @intrinsic
        def pointer(typing, args, i):
            def codegen(context, b, signature, values):
                return b.inttoptr(at(b, *values), ir.FloatType().as_pointer())

            return types.CPointer(types.float32)(types.int64, types.intp), codegen

        @intrinsic
        def number(typing, args, i):
            def codegen(context, b, signature, values):
                return b.load(b.inttoptr(at(b, *values), ir.DoubleType().as_pointer()))

            return types.float64(types.int64, types.intp), codegen

        @intrinsic
        def word(typing, args, i):
            return types.int64(types.int64, types.intp), lambda c, b, s, values: at(b, *values)

        @intrinsic
        def set_word(typing, args, i, value):
            def codegen(context, b, signature, values):
                b.store(values[2], b.inttoptr(at(b, *values[:2]), i64.as_pointer()))
                return context.get_dummy_value()

            return types.void(types.int64, types.intp, types.int64), codegen

        @intrinsic
        def arrive(typing, args):
            def codegen(context, b, signature, values):
                place = b.inttoptr(at(b, values[0], i64(0)), i64.as_pointer())
                b.atomic_rmw("add", place, i64(1), "seq_cst")
                loop, after = b.append_basic_block(), b.append_basic_block()
                b.branch(loop)
                b.position_at_end(loop)
                waiting = b.icmp_signed("<", b.load_atomic(place, "seq_cst", 8), i64(2))
                b.cbranch(waiting, loop, after)
                b.position_at_end(after)
                return context.get_dummy_value()

            return types.void(types.int64), codegen

        names: dict[str, Any] = {
            "arrive": arrive,
            "math": math,
            "np": np,
            "pointer": pointer,
            "number": number,
            "word": word,
            "set_word": set_word,
        }
        before = set(names)
        exec(source, names)
        return next(value for name, value in names.items() if name not in {*before, "__builtins__"})

    return build


def load(name: str) -> Kernel:
    """A kernel of SOURCES."""
    return kernel(f"test/{SOURCES[name]}", name, builder(SOURCES[name]))
