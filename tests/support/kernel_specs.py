"""Kernel specifications written by hand, and how to run them: shared by the tests of the CPU and
the CUDA printer.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from codegen.cpu.compile import (
    argument_block,
    buffer_of,
    compile_cpu,
    count,
    partial_size,
    unjitted,
)
from codegen.spec.kernel_spec import (
    Axis,
    Combine,
    Fold,
    Folding,
    Index,
    KernelSpec,
    Let,
    Load,
    Operand,
    Schedule,
    Stage,
    Store,
)
from codegen.vector import LANE_ELEMENT

Arrays = dict[str, np.ndarray[Any, Any]]
P, Q, R, K = Axis("p", "row"), Axis("q", "row"), Axis("r", "inner"), Axis("k", "reduced")


# ---- foldings ------------------------------------------------------------------------------------
def sum_of(state: str = "f64", result: str = "f32") -> Folding:
    step, finish = f"sum + to_{state}({{0}})", f"to_{result}(sum)"
    return Folding(
        "sum", (("sum", state),), ("0",), (step,), ("sum + other_sum",), (finish,), state[0] != "f"
    )


SUM = sum_of()
PRODUCT = Folding(
    "product",
    (("product", "f64"),),
    ("1",),
    ("product * to_f64({0})",),
    ("product * other_product",),
    ("product",),
)
MAX = Folding(
    "max",
    (("best", "f32"),),
    ("-inf",),
    ("maximum(best, {0})",),
    ("maximum(best, other_best)",),
    ("best",),
    True,
)
ANY = Folding(
    "any", (("any", "bool"),), ("False",), ("any | {0}",), ("any | other_any",), ("any",), True
)
_NONE = 2**63 - 1
_TAKE = f"({{0}} > best) | (({{0}} != {{0}}) & (best == best)) | (at == {_NONE})"
_WINS = (
    "(other_best > best) | ((other_best != other_best) & (best == best))"
    " | (((other_best == best) | ((other_best != other_best) & (best != best))) & (other_at < at))"
)
ARGMAX = Folding(  # the first of equal values; the first nan wins
    "argmax",
    (("best", "f32"), ("at", "i64")),
    ("-inf", str(_NONE)),
    (f"select({_TAKE}, {{0}}, best)", f"select({_TAKE}, {{1}}, at)"),
    (f"select({_WINS}, other_best, best)", f"select({_WINS}, other_at, at)"),
    ("best", "at"),
    True,
)


def row_major(name: str, role: Any = "in", dtype: str = "float32") -> Operand:
    return Operand(name, dtype, (None, 1), role)


def load(dst: str, operand: str, *index: str) -> Load:
    return Load(dst, operand, index)


def let(dst: str, text: str, dtype: str = "float32") -> Let:
    return Let(dst, dtype, text)


def add(dst: str, value: str, over: str = "r") -> Fold:
    return Fold((dst,), SUM, (value,), over)


def store(operand: str, value: str, *index: str) -> Store:
    return Store(operand, index, value)


# ---- specifications ------------------------------------------------------------------------------
SOFTMAX_GRAD = KernelSpec(
    "softmax_grad",
    (P, R),
    (row_major("x"), row_major("w"), row_major("dx", "inout")),
    (
        Stage(("r",), (load("a", "x", "p", "r"), Fold(("m",), MAX, ("a",), "r"))),
        Stage(
            ("r",),
            (
                load("a", "x", "p", "r"),
                load("b", "w", "p", "r"),
                let("c", "exp(a - m)"),
                store("dx", "c", "p", "r"),
                let("d", "b*c"),
                add("z", "c"),
                add("s", "d"),
            ),
        ),
        Stage((), (let("inv", "f32(1)/z"), let("t", "s*inv"))),
        Stage(
            ("r",),
            (
                load("e", "dx", "p", "r"),
                load("b", "w", "p", "r"),
                let("g", "e*inv*(b - t)"),
                store("dx", "g", "p", "r"),
            ),
        ),
    ),
)

LAYER_NORM_GRAD = KernelSpec(
    "layer_norm_grad",
    (P, R),
    (
        row_major("x"),
        row_major("gy"),
        Operand("w", "float32", (1,)),
        row_major("dx", "out"),
        Operand("dw", "float64", (1,), "partial"),
        Operand("db", "float64", (1,), "partial"),
    ),
    (
        Stage(("r",), (load("a", "x", "p", "r"), add("s", "a"))),
        Stage((), (let("mean", "s/f32(n_r)"),)),
        Stage(
            ("r",),
            (load("a", "x", "p", "r"), let("c", "a - mean"), let("c2", "c*c"), add("v", "c2")),
        ),
        Stage((), (let("rs", "f32(1)/sqrt(v/f32(n_r) + f32(1e-5))"),)),
        Stage(
            ("r",),
            (
                load("a", "x", "p", "r"),
                load("g", "gy", "p", "r"),
                load("u", "w", "r"),
                let("h", "(a - mean)*rs"),
                let("gu", "g*u"),
                let("gh", "gu*h"),
                let("gw", "g*h"),
                add("c1", "gu"),
                add("c3", "gh"),
                add("dw", "gw", "rows"),
                add("db", "g", "rows"),
            ),
        ),
        Stage((), (let("m1", "c1/f32(n_r)"), let("m2", "c3/f32(n_r)"))),
        Stage(
            ("r",),
            (
                load("a", "x", "p", "r"),
                load("g", "gy", "p", "r"),
                load("u", "w", "r"),
                let("h", "(a - mean)*rs"),
                let("d", "rs*(g*u - m1 - h*m2)"),
                store("dx", "d", "p", "r"),
            ),
        ),
    ),
)

ARGMAX_ROWS = KernelSpec(
    "argmax_rows",
    (P, R),
    (row_major("x"), Operand("best", "float32", (1,), "out"), Operand("at", "int64", (1,), "out")),
    (
        Stage(
            ("r",),
            (load("a", "x", "p", "r"), Index("i", "r"), Fold(("y", "j"), ARGMAX, ("a", "i"), "r")),
        ),
        Stage((), (store("best", "y", "p"), store("at", "j", "p"))),
    ),
)

GATHER = KernelSpec(
    "gather_square",
    (P, R),
    (row_major("table"), Operand("idx", "int64", (1,)), row_major("o", "out")),
    (
        Stage((), (load("j", "idx", "p"),)),
        Stage(("r",), (load("a", "table", "j", "r"), let("b", "a*a"), store("o", "b", "p", "r"))),
    ),
)


def scatter_rows(mode: Literal["add", "set"]) -> KernelSpec:
    """Rows added or written in order where indices say."""
    return KernelSpec(
        f"scatter_{mode}_rows",
        (P, R),
        (row_major("g"), Operand("idx", "int32", (1,)), row_major("o", "inout")),
        (
            Stage((), (load("j", "idx", "p"),)),
            Stage(("r",), (load("a", "g", "p", "r"), Store("o", ("j", "r"), "a", mode))),
        ),
    )


SCATTER_ADD = scatter_rows("add")

TRANSPOSED = KernelSpec(
    "transposed_add",
    (P, R),
    (Operand("x", "float32", (1, None)), row_major("y"), row_major("o", "out")),
    (
        Stage(
            ("r",),
            (
                load("a", "x", "p", "r"),
                load("b", "y", "p", "r"),
                let("c", "a + b"),
                store("o", "c", "p", "r"),
            ),
        ),
    ),
)

ELEMENTWISE = KernelSpec(
    "scaled_tanh",
    (R,),
    (
        Operand("x", "float32", (1,)),
        Operand("scale", "float32", ()),
        Operand("o", "float32", (1,), "out"),
    ),
    (
        Stage((), (load("s", "scale"),)),
        Stage(("r",), (load("a", "x", "r"), let("b", "tanh(a*s)"), store("o", "b", "r"))),
    ),
)


def sum_all(dtype: str = "float32", result: str = "f32") -> KernelSpec:
    """One sum over one inner axis, as a row value."""
    return KernelSpec(
        "sum_all",
        (R,),
        (Operand("x", dtype, (1,)), Operand("o", dtype, (), "out")),
        (
            Stage(("r",), (load("a", "x", "r"), Fold(("s",), sum_of(result=result), ("a",), "r"))),
            Stage((), (store("o", "s"),)),
        ),
    )


SUM_SPLIT = KernelSpec(
    "sum_split",
    (P, R),
    (row_major("x"), Operand("partial", "float64", (1,), "partial")),
    (Stage(("r",), (load("a", "x", "p", "r"), add("partial", "a"))),),
)
ARGMAX_SPLIT = KernelSpec(
    "argmax_split",
    (P, R),
    (
        row_major("x"),
        Operand("best", "float32", (1,), "partial"),
        Operand("at", "int64", (1,), "partial"),
    ),
    (
        Stage(
            ("r",),
            (
                load("a", "x", "p", "r"),
                Index("i", "r"),
                Fold(("best", "at"), ARGMAX, ("a", "i"), "r"),
            ),
        ),
    ),
)
SUM_COLUMNS = KernelSpec(
    "sum_columns",
    (P, R),
    (row_major("x"), Operand("partial", "float64", (1,), "partial")),
    (Stage(("r",), (load("a", "x", "p", "r"), add("partial", "a", "rows"))),),
)


ABC = Axis("r", "inner", ("a", "b", "c"))
PARTS = KernelSpec(  # an inner axis of three logical ones: a transposed operand, two broadcast ones
    "three_parts",
    (ABC,),
    (
        Operand("x", "float32", (None, None, None)),
        Operand("y", "float32", (None, 0, 1)),
        Operand("z", "float32", (1,)),
        Operand("o", "float32", (1,), "out"),
        Operand("i", "int64", (1,), "out"),
    ),
    (
        Stage(
            ("r",),
            (
                load("u", "x", "a", "b", "c"),
                load("v", "y", "a", "b", "c"),
                load("w", "z", "b"),
                Index("at_b", "b"),
                Index("at", "*"),
                let("t", "u + v*w"),
                let("k", "at + at_b", "int64"),
                store("o", "t", "r"),
                store("i", "k", "r"),
            ),
        ),
    ),
)

T = Axis("t", "row")
THREE_ROWS = KernelSpec(  # positions along several row axes
    "three_rows",
    (P, Q, T, R),
    (
        Operand("x", "float32", (None, None, None, None)),
        Operand("o", "float32", (None, None, None, 1), "out"),
        Operand("i", "int64", (None, None, None, 1), "out"),
    ),
    (
        Stage((), (Index("at_p", "p"), Index("at_t", "t"), Index("row_number", "*"))),
        Stage(
            ("r",),
            (
                load("u", "x", "p", "q", "t", "r"),
                Index("at", "*"),
                Index("at_r", "r"),
                let("v", "u + to_f32(at_p) - to_f32(at_t) + to_f32(at_r)"),
                store("o", "v", "p", "q", "t", "r"),
                let("k", "at + row_number", "int64"),
                store("i", "k", "p", "q", "t", "r"),
            ),
        ),
    ),
)

PAD = KernelSpec(  # one row before and after, two columns before, three after
    "pad",
    (P, R),
    (row_major("x"), row_major("o", "out")),
    (
        Stage(
            (),
            (
                Index("at_p", "p"),
                let("i", "at_p - i64(1)", "int64"),
                let("row_there", "(i >= i64(0)) & (i < i64(n_p - 2))", "bool"),
            ),
        ),
        Stage(
            ("r",),
            (
                Index("at_r", "r"),
                let("j", "at_r - i64(2)", "int64"),
                let("there", "row_there & (j >= i64(0)) & (j < i64(n_r - 5))", "bool"),
                Load("a", "x", ("i", "j"), "there", "1.5"),
                store("o", "a", "p", "r"),
            ),
        ),
    ),
)

LITERALS = KernelSpec(  # texts without a value, a literal folded, an index that a loop gives
    "literals",
    (P, R),
    (row_major("x"), row_major("o", "out"), Operand("total", "float32", (1,), "out")),
    (
        Stage(
            ("r",),
            (
                let("zero", "i64(0)", "int64"),
                load("a", "x", "zero", "r"),
                let("b", "f32(n_r)"),
                let("c", "exp(f32(1))"),
                let("yes", "True", "bool"),
                let("d", "select(yes, c, f32(7)) + maximum(f32(0.5), f32(-1))"),
                let("e", "a*b + d"),
                Fold(("s",), SUM, ("f32(2)",), "r"),
                store("o", "e", "p", "r"),
            ),
        ),
        Stage((), (store("total", "s", "p"),)),
    ),
)

ZERO_D = KernelSpec(
    "zero_d",
    (),
    (Operand("x", "float32", ()), Operand("o", "float32", (), "out")),
    (
        Stage(
            (),
            (
                load("a", "x"),
                let("b", "exp(a) + f32(1)"),
                let("c", "f32(2.5)"),
                let("d", "b*c"),
                store("o", "d"),
            ),
        ),
    ),
)

SCATTER_SCALARS = KernelSpec(  # rows only
    "scatter_scalars",
    (P,),
    (
        Operand("x", "float64", (None,)),
        Operand("idx", "int64", (1,)),
        Operand("o", "float64", (1,), "inout"),
    ),
    (Stage((), (load("j", "idx", "p"), load("a", "x", "p"), Store("o", ("j",), "a", "add"))),),
)


def scatter_lanes(dtype: str = "float32") -> KernelSpec:
    """Indices that may meet inside one vector."""
    return KernelSpec(
        "scatter_lanes",
        (P, R),
        (
            row_major("x", dtype=dtype),
            row_major("idx", dtype="int32"),
            row_major("o", "inout", dtype),
            row_major("last", "inout", dtype),
        ),
        (
            Stage(
                ("r",),
                (
                    load("a", "x", "p", "r"),
                    load("j", "idx", "p", "r"),
                    Store("o", ("p", "j"), "a", "add"),
                    Store("last", ("p", "j"), "a"),
                ),
            ),
        ),
    )


SUM_OF_ROWS = KernelSpec(  # a fold over rows without an inner axis
    "sum_of_rows",
    (P, Q),
    (Operand("x", "float32", (None, None)), Operand("partial", "float64", (1,), "partial")),
    (Stage((), (load("a", "x", "p", "q"), add("partial", "a", "rows"))),),
)


def split_fold(folding: Folding, *partials: str) -> KernelSpec:
    """A fold of whole rows in mode "split", a partial operand of each dtype for each state."""
    operands = tuple(Operand(f"s{i}", d, (1,), "partial") for i, d in enumerate(partials))
    fold = Fold(tuple(o.name for o in operands), folding, ("a",), "r")
    stage = Stage(("r",), (load("a", "x", "p", "r"), fold))
    return KernelSpec("split_fold", (P, R), (row_major("x"), *operands), (stage,))


def product_rows(folding: Folding) -> KernelSpec:
    """Products of rows."""
    return KernelSpec(
        "product_rows",
        (P, R),
        (row_major("x"), Operand("o", "float64", (1,), "out")),
        (
            Stage(("r",), (load("a", "x", "p", "r"), Fold(("s",), folding, ("a",), "r"))),
            Stage((), (store("o", "s", "p"),)),
        ),
    )


USE_SPLIT = KernelSpec(  # the results of a split fold, used in the next kernel
    "divide_by_sum",
    (P, R, K),
    (row_major("x"), Operand("partial", "float64", (1,), "partial"), row_major("o", "out")),
    (
        Stage((), (Combine(("s",), ("float32",), SUM, ("partial",), "split", "k"),)),
        Stage(("r",), (load("a", "x", "p", "r"), let("b", "a/s"), store("o", "b", "p", "r"))),
    ),
)

ARGMAX_COLUMNS = KernelSpec(  # two states, two row axes
    "argmax_columns",
    (P, Q, R),
    (
        Operand("x", "float32", (None, None, 1)),
        Operand("best", "float32", (1,), "partial"),
        Operand("at", "int64", (1,), "partial"),
    ),
    (
        Stage((), (Index("i", "*"),)),
        Stage(
            ("r",),
            (load("a", "x", "p", "q", "r"), Fold(("best", "at"), ARGMAX, ("a", "i"), "rows")),
        ),
    ),
)

DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
]


def product_and_total(dtype: str) -> KernelSpec:
    """o = x*y (bool: and) and its sum (bool: any) in any dtype; y and o strided."""
    lane = LANE_ELEMENT[dtype]
    wide = {"f": "f64", "i": "i64", "u": "u64", "b": "bool"}[lane[0]]
    folding = ANY if dtype == "bool" else sum_of(wide, lane)
    text = "a & b" if dtype == "bool" else "a * b"
    return KernelSpec(
        f"product_and_total_{dtype}",
        (R,),
        (
            Operand("x", dtype, (1,)),
            Operand("y", dtype, (None,)),
            Operand("o", dtype, (None,), "out"),
            Operand("total", dtype, (), "out"),
        ),
        (
            Stage(
                ("r",),
                (
                    load("a", "x", "r"),
                    load("b", "y", "r"),
                    let("t", text, dtype),
                    store("o", "t", "r"),
                    Fold(("s",), folding, ("t",), "r"),
                ),
            ),
            Stage((), (store("total", "s"),)),
        ),
    )


PRIMITIVES = KernelSpec(  # operators whose meaning on scalars is easily missed
    "primitives",
    (R,),
    (
        *(
            Operand(n, d, (1,))
            for n, d in (("x", "float32"), ("y", "float32"), ("i", "int8"), ("j", "int8"))
        ),
        *(
            Operand(n, d, (1,))
            for n, d in (("s", "uint16"), ("d", "float64"), ("k", "int64"), ("l", "int64"))
        ),
        *(Operand(f"f{n}", "float32", (1,), "out") for n in range(4)),
        *(Operand(f"i{n}", "int8", (1,), "out") for n in range(4)),
        *(Operand(f"l{n}", "int64", (1,), "out") for n in range(3)),
        *(Operand(f"d{n}", "float64", (1,), "out") for n in range(2)),
        Operand("s0", "uint16", (1,), "out"),
    ),
    (
        Stage(
            ("r",),
            (
                *(load(f"v{n}", n, "r") for n in "xyijsdkl"),
                let("a0", "fma(vx, vy, f32(1)) / (vx - vy) + round_f16(vx)*n_r"),
                let("a1", "select(vx < vy, vx // vy, vx % vy)"),
                let("a2", "maximum(vx, vy) - minimum(vy, vx) + round_bf16(vy)"),
                let(
                    "a3",
                    "copysign(sqrt(absolute(vx)), -vy) + rint(vx) + floor(vy) - trunc(vy)",
                ),
                let("b0", "(vi + vj) >> i8(1)", "int8"),
                let("b1", "vi // vj - (vi % vj)*fmod(vi, vj)", "int8"),
                let("b2", "(vi << (vj & i8(7))) ^ ~vi | popcount(vj)", "int8"),
                let("b3", "to_i8(vx) + to_i8(vx != vx) - vi*vj", "int8"),
                let("c0", "to_i64(vd) + vk*vl + to_i64(to_u16(vx))", "int64"),
                let("c1", "vk // vl + vk % vl + (vk >> i64(70))", "int64"),
                let("c2", "to_i64(to_bits(vx)) ^ to_bits(vd)", "int64"),
                let("e0", "vd*vd + to_f64(vk) - to_f64(vs)", "float64"),
                let(
                    "e1",
                    "select((vd != vd) | ~(vd > f64(0)), vd, nextafter(vd, f64(9)))",
                    "float64",
                ),
                let("g0", "(vs*vs >> u16(3)) + absolute(vs) + to_u16(vd)", "uint16"),
                *(store(f"f{n}", f"a{n}", "r") for n in range(4)),
                *(store(f"i{n}", f"b{n}", "r") for n in range(4)),
                *(store(f"l{n}", f"c{n}", "r") for n in range(3)),
                *(store(f"d{n}", f"e{n}", "r") for n in range(2)),
                store("s0", "g0", "r"),
            ),
        ),
    ),
)


def primitive_arrays() -> Arrays:
    """Ordinary values and awkward ones."""
    random = np.random.default_rng(5)
    x, y, d = (random.standard_normal(64) * 50 for _ in range(3))
    x[:10] = np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3e38, -3e38, 127.0, -128.5
    y[:6], y[6:12] = (1, -1, np.nan, 0, 2, np.inf), (-0.0, 0.5, 1, 2, 0, np.nan)
    d[:8] = np.nan, np.inf, -np.inf, 0.0, -0.0, 1e19, -1e19, 5e-324
    i, j = random.integers(-128, 128, 64), random.integers(-8, 9, 64)
    i[:4], j[:4] = -128, (-1, 0, 1, 7)
    k, divisors = random.integers(-(2**62), 2**62, 64), random.integers(-9, 10, 64)
    k[:2], divisors[:2] = -(2**63), (-1, 0)
    arrays = {
        "x": x.astype("f4"),
        "y": y.astype("f4"),
        "d": d,
        "i": i.astype("i1"),
        "j": j.astype("i1"),
    }
    arrays |= {"k": k, "l": divisors, "s": random.integers(0, 2**16, 64).astype("u2")}
    outs = [o for o in PRIMITIVES.operands if o.role == "out"]
    return arrays | {o.name: np.zeros(64, o.dtype) for o in outs}


# ---- running -------------------------------------------------------------------------------------
def steps(array: np.ndarray[Any, Any]) -> tuple[int, ...]:
    """Strides in elements."""
    return tuple(s // array.itemsize for s in array.strides)


def is_input(spec: KernelSpec, name: str) -> bool:
    """Whether an operand is only read (partial results of an earlier kernel too)."""
    return spec.operand(name).role in ("in", "partial")


def block_of(
    spec: KernelSpec, arrays: Mapping[str, Any], sizes: Mapping[str, int], pointer: Any
) -> list[Any]:
    strides = {o.name: steps(arrays[o.name]) for o in spec.operands if o.role != "partial"}
    return argument_block(spec, {n: pointer(a) for n, a in arrays.items()}, sizes, strides)


def run(
    spec: KernelSpec,
    schedule: Schedule,
    arrays: Arrays,
    sizes: Mapping[str, int],
    *,
    jitted: bool = True,
    cuts: Sequence[int] = (),
) -> Arrays:
    """Run all of a spec on arrays with one dimension for each index position, in pieces ending at
    `cuts`.

    Outputs are written in place; the partial operands are made here and returned.
    """
    partials: Arrays = {
        o.name: np.full(partial_size(spec, schedule, sizes), 77, o.dtype)
        for o in spec.operands
        if o.role == "partial" and o.name not in arrays
    }
    everything = arrays | partials
    end = count(spec, schedule, sizes)
    places = [0, *sorted(c for c in cuts if c < end), end]
    for lo, hi in itertools.pairwise(places):
        call(spec, schedule, everything, sizes, lo, hi, jitted)
    return partials


def call(
    spec: KernelSpec,
    schedule: Schedule,
    arrays: Arrays,
    sizes: Mapping[str, int],
    lo: int,
    hi: int,
    jitted: bool,
) -> None:
    """The kernel on [lo, hi)."""
    if not jitted:
        unjitted(spec, schedule)(lo, hi, block_of(spec, arrays, sizes, buffer_of))
        return
    block = np.array(block_of(spec, arrays, sizes, lambda a: a.ctypes.data), np.int64)
    address = compile_cpu(spec, schedule).address
    ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(address)(lo, hi, block.ctypes.data)


def same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Equal shapes and bits; a NaN equals any NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    pattern = f"i{a.itemsize}"
    equal = np.ascontiguousarray(a).view(pattern) == np.ascontiguousarray(b).view(pattern)
    with np.errstate(all="ignore"):
        return bool(np.all(equal | ((a != a) & (b != b))))


def ordered_sum(x: np.ndarray[Any, Any]) -> float:
    """The contract's order of a sum, in plain NumPy: lanes k % 16, chunks k // 4096, halves, pairs
    of neighbours.
    """
    totals = []
    for start in range(0, len(x), 4096):
        terms = x[start : start + 4096].astype(np.float64)
        lanes = np.zeros(16)
        for k in range(0, len(terms), 16):
            lanes[: len(terms[k : k + 16])] += terms[k : k + 16]
        while len(lanes) > 1:
            lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
        totals.append(lanes[0])
    while len(totals) > 1:
        totals = [sum(totals[k : k + 2]) for k in range(0, len(totals), 2)]
    return float(totals[0]) if totals else 0.0
