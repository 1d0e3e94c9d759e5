"""Vector values: every primitive and access means the same un-jitted and compiled, to the bit."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from codegen.vector import DTYPE, ELEMENTS, MEMORY_ELEMENT, NAMES, OF_MEMORY, Lanes
from codegen.vector.elementary import ELEMENTARY
from codegen.vector.elements import FLOATS, INTEGERS, MEMORY_ELEMENTS
from codegen.vector.functions import FUNCTIONS
from codegen.vector.primitives import PRIMITIVES, Primitive
from codegen.vector.readings import OPERATORS, Reading
from tests.support.cpus import AVX2, has

pytestmark = pytest.mark.cpu

MEMORY_DTYPE = {e: np.dtype(name) for name, e in MEMORY_ELEMENT.items() if name != "bfloat16"}
MEMORY_DTYPE["bf16"] = np.dtype(ml_dtypes.bfloat16)
SYMBOLS = {
    **{"add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "truediv": "{} / {}", "neg": "-{}"},
    **{"floordiv": "{} // {}", "mod": "{} % {}", "and_": "{} & {}", "or_": "{} | {}"},
    **{"xor": "{} ^ {}", "invert": "~{}", "lshift": "{} << {}", "rshift": "{} >> {}"},
    **{"lt": "{} < {}", "le": "{} <= {}", "gt": "{} > {}", "ge": "{} >= {}"},
    **{"eq": "{} == {}", "ne": "{} != {}"},
}


def kernel_of(text: str, operands: str, name: str = "kernel") -> tuple[Any, Any]:
    """The text compiled and un-jitted."""
    from codegen.vector.trial import Kernel

    names = dict(NAMES)
    exec(compile(text, f"<{name}>", "exec"), names)
    return Kernel(names[name], operands), names[name]


def same(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    from codegen.vector.trial import same_bits

    return same_bits(a, b)


def values(element: str, count: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Ordinary and special values of a lane element: edges, all exponents, small ones."""
    dtype = np.dtype(DTYPE[element])
    if element == "bool":
        return rng.integers(0, 2, count).astype(dtype)
    if element in INTEGERS:
        limits = np.iinfo(dtype)
        edges = [0, 1, 2, 3, 7, limits.max, limits.max - 1, limits.min, limits.min + 1]
        edges += [limits.max // 2, dtype.itemsize * 8, dtype.itemsize * 8 - 1]
        edges += [-1, -2, -7] if limits.min < 0 else []
        anything = rng.integers(limits.min, limits.max, count, dtype=dtype, endpoint=True)
        small = rng.integers(max(limits.min, -70), 70, count).astype(dtype)
    else:
        limits = np.finfo(dtype)
        edges = [0, 0.5, 1, 1.5, 2.5, 3, limits.max, limits.tiny, limits.smallest_subnormal, np.inf]
        edges += [2.0**31, 2.0**31 - 1, 2.0**63, 2.0**32, 127.5, 255, 256, 65504, 65519, 65520]
        edges += [
            2.0**-24,
            2.0**-25,
            1.5 * 2.0**-25,
            2.0**-14,
            0.1,
            2049,
            2051,
            8388609,
            4503599627370497,
        ]
        edges = [np.nan, *edges, *(-e for e in edges)]
        pattern = f"i{dtype.itemsize}"
        whole = np.iinfo(pattern)
        anything = rng.integers(whole.min, whole.max, count, dtype=pattern).view(dtype)
        small = (rng.standard_normal(count) * 5).astype(dtype)
    picked = np.where(rng.integers(0, 2, count) == 0, anything, small)
    with np.errstate(all="ignore"):
        some = np.array(edges).astype(dtype) if element in FLOATS else np.array(edges, dtype=dtype)
    chosen = rng.choice(some, count)
    return np.where(rng.integers(0, 3, count) == 0, chosen, picked)


def call_text(name: str, arity: int) -> str:
    if name == "ldexp":  # n is an integer, of at most twice the format's bias
        return "ldexp(x, rint(select(absolute(y) < 250, y, -150)))"
    form = SYMBOLS.get(name, f"{name}({', '.join(['{}'] * arity)})")
    return form.format(*"xyz")


def table(element: str) -> list[tuple[str, Any]]:
    """Primitives and elementary functions on an element, by name."""
    found: list[tuple[str, Any]] = [(n, p) for n, p in PRIMITIVES.items() if element in p.elements]
    found += [(n, FUNCTIONS[n]) for n in ELEMENTARY if element in FUNCTIONS[n].bodies]
    return [(n, p) for n, p in found if n != "select"]


@pytest.mark.parametrize("element", ELEMENTS)
def test_every_primitive(element: str, rng: np.random.Generator) -> None:
    """One text with all primitives of an element: un-jitted and compiled give the same bits."""
    names = table(element)
    outputs = [f"o{k}" for k in range(len(names) + 1)]
    lines = [
        f"def kernel(lo, hi, x_, y_, z_, m_, {', '.join(outputs)}, n):",
        "    for i in range(0, n, 16):",
        "        x, y, z, m = load(x_, i), load(y_, i), load(z_, i), load(m_, i)",
    ]
    results = []
    for (name, primitive), output in zip(names, outputs, strict=False):
        lines.append(f"        store({output}, i, {call_text(name, primitive.arity)})")
        results.append(primitive.result(element))
    lines.append(f"        store({outputs[-1]}, i, select(m, x, y))")
    results.append(element)
    pointers = " ".join(f"{e}*" for e in (element, element, element, "bool", *results))
    compiled, plain = kernel_of("\n".join(lines), f"{pointers} i64")
    count = 1600 if element in FLOATS else 960
    x, y, z = (values(element, count, rng) for _ in "xyz")
    mask = values("bool", count, rng)
    made = [[np.zeros(count, DTYPE[e]) for e in results] for _ in range(2)]
    compiled(0, 0, x, y, z, mask, *made[0], count)
    plain(0, 0, x, y, z, mask, *made[1], count)
    for (name, _), a, b in zip([*names, ("select", None)], *made, strict=True):
        wrong = [k for k in range(count) if not same(a[k : k + 1], b[k : k + 1])][:5]
        assert not wrong, (name, x[wrong], y[wrong], z[wrong], a[wrong], b[wrong])


def check_powers_of_two() -> None:
    """Compiled ldexp has NumPy's bits where x * 2**(n // 2) is no denormal."""
    lines = ["def kernel(lo, hi, x, n, y, size):", "    for i in range(0, size, 16):"]
    lines.append("        store(y, i, ldexp(load(x, i), load(n, i)))")
    for element, bias in (("f32", 127), ("f64", 1023)):
        rng = np.random.default_rng(0)
        n = np.repeat(np.arange(2 - 2 * bias, 2 * bias + 1), 64).astype(DTYPE[element])
        x = values(element, n.size, rng)
        compiled, _ = kernel_of("\n".join(lines), f"{element}* {element}* {element}* i64")
        y = np.zeros_like(x)
        compiled(0, 0, x, n, y, n.size)
        with np.errstate(all="ignore"):
            wanted = np.ldexp(x, n.astype(np.int32))
            half = np.abs(np.ldexp(x, n.astype(np.int32) // 2))
        fit = (half >= np.finfo(x.dtype).tiny) | (x == 0) | (x != x)
        denormal = fit & (np.abs(wanted) < np.finfo(x.dtype).tiny) & (wanted != 0)
        assert denormal.sum() > 100
        assert same(y[fit], wanted[fit]), np.flatnonzero(fit & (y != wanted))[:5]


def test_powers_of_two(run_python: Callable[..., Any]) -> None:
    check_powers_of_two()
    if has("avx2"):  # two products instead of one instruction
        run_python(
            "from tests.codegen.test_vector import *\ncheck_powers_of_two()", environment=AVX2
        )


@pytest.mark.parametrize(
    "environment",
    [
        {"NUMBA_CPU_NAME": "generic"},
        {"NUMBA_CPU_NAME": "ivybridge"},
        {"NUMBA_ENABLE_AVX": "0"},
        {"NUMBA_CPU_FEATURES": "+fma,+f16c,+avx512f,-avx512f"},
    ],
    ids=lambda e: " ".join("=".join(x) for x in e.items()),
)
def test_no_instruction_that_numba_does_not_compile_for(
    environment: dict[str, str], run_python: Callable[..., Any], tmp_path: Path
) -> None:
    """LLVM would end the process. A kernel that needs more than such a CPU has is an error."""
    code = """
import numpy as np, tracer
x = np.linspace(-3, 3, 40, dtype="f4")
try:
    found = tracer.trace(lambda x: tracer.exp(x) + tracer.exp(tracer.astype(x, "float64")))(x)
except Exception as error:
    assert "fma" in str(error), error
else:
    np.testing.assert_allclose(found, 2 * np.exp(x), rtol=1e-6)
"""
    run_python(code, environment={"TRACER_CACHE_DIR": str(tmp_path / "cache"), **environment})


def test_meanings_are_numpys(rng: np.random.Generator) -> None:
    """The un-jitted meaning of shared names is NumPy's function of the same name."""
    x, y = values("f64", 1600, rng), values("f64", 1600, rng)
    ours: dict[str, Any] = {"sign": np.sign, "signbit": np.signbit, "nextafter": np.nextafter}
    ours |= {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}
    for name, function in ours.items():
        arity = FUNCTIONS[name].arity
        for i in range(0, 1600, 16):
            operands = [a[i : i + 16] for a in (x, y)[:arity]]
            with np.errstate(all="ignore"):
                wanted = function(*operands)
            assert same(FUNCTIONS[name](*map(Lanes, operands)).array, wanted), (name, operands)
    a, b = (rng.integers(0, 2**32, 16, dtype=np.uint32) for _ in "ab")
    high = [(int(p) * int(q)) >> 32 for p, q in zip(a, b, strict=True)]
    assert FUNCTIONS["mul_high"](Lanes(a), Lanes(b)).array.tolist() == high
    a, b = (rng.integers(0, 2**64, 16, dtype=np.uint64) for _ in "ab")
    high = [(int(p) * int(q)) >> 64 for p, q in zip(a, b, strict=True)]
    assert FUNCTIONS["mul_high"](Lanes(a), Lanes(b)).array.tolist() == high


@pytest.mark.parametrize("element", ["i8", "i32", "i64", "u8", "u64"])
def test_integer_division_never_traps(element: str) -> None:
    """By zero both are 0; the most negative by -1 wraps; else Python's floor and remainder."""
    limits = np.iinfo(DTYPE[element])
    edges = [0, 1, 2, 3, 7, limits.max, limits.min, *([-1, -2, -7] if limits.min else [5, 9, 11])]
    pairs = [(a, b) for a in edges for b in edges]
    pairs += [(1, 1)] * (-len(pairs) % 16)
    x, y = (np.array(side, DTYPE[element]) for side in zip(*pairs, strict=True))
    text = (
        "def kernel(lo, hi, x, y, q, r, c, n):\n"
        "    for i in range(0, n, 16):\n"
        "        a, b = load(x, i), load(y, i)\n"
        "        store(q, i, a // b)\n"
        "        store(r, i, a % b)\n"
        "        store(c, i, fmod(a, b))\n"
    )
    compiled, _ = kernel_of(text, f"{element}* " * 5 + "i64")
    q, r, c = (np.empty_like(x) for _ in "qrc")
    compiled(0, 0, x, y, q, r, c, len(x))
    for (a, b), *got in zip(pairs, q.tolist(), r.tolist(), c.tolist(), strict=True):
        if b == 0:
            wanted = [0, 0, 0]
        elif (a, b) == (limits.min, -1):
            wanted = [limits.min, 0, 0]
        else:
            cut = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            wanted = [a // b, a % b, a - cut * b]
        assert got == wanted, (a, b)


@pytest.mark.parametrize("element", MEMORY_ELEMENTS)
def test_every_access(element: str, rng: np.random.Generator) -> None:
    """Loads, stores, gathers and scatters of a memory element, whole, partial and masked."""
    lane = OF_MEMORY[element]
    zero, fill = ("False", "True") if lane == "bool" else (f"{lane}(0)", f"{lane}(3)")
    text = f"""
def kernel(lo, hi, p, at, m_, o, n):
    for i in range(0, n, 16):
        left = n - i
        mask, index = load_part(m_, i, left, False), load_part(at, i, left, i64(0))
        store_part(o, i, left, load_part(p, i, left, {fill}))
        store_part(o, n + i, left, gather_part(p, index, left, {zero}))
        store_part(o, 2*n + i, left, gather_masked(p, index, mask & below(left), {fill}))
        store_masked(o, 3*n + i, mask & below(left), load_masked(p, i, mask & below(left), {fill}))
        scatter_part(o, index + i64(4*n), left, load_part(p, i, left, {zero}))
        scatter_masked(o, index + i64(5*n), mask, load_part(p, i, left, {zero}))
        store_one(o, 6*n + i, load_one(p, i))
        o[6*n + i + 1] = p[n - 1]
    store(o, 7*n, load(p, 0))
    scatter(o, lane_index(0)*3 + i64(7*n + 16), gather(p, load(at, 0)))
"""
    compiled, plain = kernel_of(text, f"{element}* i64* bool* {element}* i64")
    for n in (16, 17, 31, 50):
        lanes = values(lane, n, rng)
        with np.errstate(all="ignore"):
            p = lanes.astype(MEMORY_DTYPE[element])
        at, mask = rng.integers(0, n, n), values("bool", n, rng)
        made = [np.zeros(7 * n + 64, p.dtype) for _ in range(2)]
        compiled(0, 0, p, at, mask, made[0], n)
        plain(0, 0, p, at, mask, made[1], n)
        assert same(*made), (n, np.flatnonzero(made[0] != made[1]))
        assert same(made[0][:n], p)


@pytest.mark.parametrize("element", ["f16", "bf16"])
def test_small_floats_round_to_nearest_even(element: str, rng: np.random.Generator) -> None:
    """Stores of f32 lanes are NumPy's casts; rounding is a store and a load; every code loads."""
    text = (
        "def kernel(lo, hi, x, o, r, n):\n"
        "    for i in range(0, n, 16):\n"
        f"        store(o, i, load(x, i))\n"
        f"        store(r, i, round_{element}(load(x, i)))\n"
    )
    compiled, _ = kernel_of(text, f"f32* {element}* f32* i64")
    dtype = MEMORY_DTYPE[element]
    codes = np.arange(2**16, dtype=np.uint16).view(dtype).astype(np.float32)
    with np.errstate(all="ignore"):
        between = np.nextafter(codes, np.float32(np.inf)), np.nextafter(codes, np.float32(-np.inf))
        middle = (codes.astype(np.float64) + np.roll(codes, 1)) / 2
        x = np.concatenate([codes, *between, middle.astype(np.float32), values("f32", 65536, rng)])
        wanted = x.astype(dtype)
    o, r = np.empty(len(x), dtype), np.empty(len(x), np.float32)
    compiled(0, 0, x, o, r, len(x))
    assert same(o, wanted)
    assert same(r, wanted.astype(np.float32))
    assert np.isnan(o[np.isnan(x)].astype(np.float32)).all()


@pytest.mark.parametrize("element", ["f32", "f64", "i32", "u8", "i64"])
def test_lanes_combine_in_halves(element: str, rng: np.random.Generator) -> None:
    """Sums, products, extrema, rotations and first lanes, against the stated order."""
    text = f"""
def kernel(lo, hi, x, s, o, n):
    for i in range(0, n, 16):
        v = load(x, i)
        k = i // 16 * 5
        s[k] = lane_sum(v)
        s[k + 1] = lane_product(v)
        s[k + 2] = lane_max(v)
        s[k + 3] = lane_min(v)
        s[k + 4] = first(v)
        mask = v > full({element}(1))
        store(o, i, rotate(v, 3) + full(lane_max(v)))
        if lane_any(mask):
            if lane_all(mask):
                store(o, i, v)
"""
    compiled, plain = kernel_of(text, f"{element}* {element}* {element}* i64")
    x = values(element, 1600, rng)
    x[:16] = 5
    made = [(np.zeros(500, x.dtype), np.zeros(1600, x.dtype)) for _ in range(2)]
    compiled(0, 0, x, *made[0], 1600)
    plain(0, 0, x, *made[1], 1600)
    assert same(made[0][0], made[1][0])
    assert same(made[0][1], made[1][1])
    row = x[16:32]
    with np.errstate(all="ignore"):
        for half in (8, 4, 2, 1):
            row = row[:half] + row[half:]
    assert same(made[0][0][5:6], row)


@pytest.mark.skipif(sys.platform != "linux", reason="mprotect is called as on Linux")
@pytest.mark.parametrize("element", ["f32", "bool", "f16", "f64"])
def test_tails_at_the_end_of_a_page(element: str) -> None:
    """Partial accesses to a buffer that ends at a page without access: one past it would kill."""
    page, dtype = mmap.PAGESIZE, MEMORY_DTYPE[element]
    libc = ctypes.CDLL(None)
    libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    blocks, keep = [], []
    for _ in range(2):
        block = mmap.mmap(-1, 5 * page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(block))
        assert libc.mprotect(start + 4 * page, page, 0) == 0
        keep.append(block)
        blocks.append(np.frombuffer(block, dtype, 4 * page // dtype.itemsize))
    lane = OF_MEMORY[element]
    zero = "False" if lane == "bool" else f"{lane}(0)"
    text = (
        "def kernel(lo, hi, x, o, n):\n"
        "    for i in range(0, n, 16):\n"
        "        left = n - i\n"
        f"        v = load_part(x, i, left, {zero})\n"
        f"        w = gather_part(x, lane_index(i), left, {zero})\n"
        "        store_part(o, i, left, select(v == w, v, w))\n"
        "        scatter_part(o, lane_index(i), left, w)\n"
    )
    compiled, _ = kernel_of(text, f"{element}* {element}* i64")
    for n in (1, 2, 15, 16, 17, 33):
        x, o = (b[-n:] for b in blocks)
        x[:] = np.arange(n) % 7
        o[:] = 0
        before = blocks[1][-n - 16 : -n].copy()
        compiled(0, 0, x, o, n)
        assert (o == x).all()
        assert (blocks[1][-n - 16 : -n] == before).all()


def test_scalars_take_the_vectors_element() -> None:
    """A number beside a vector is of its element, in both readings; wrong mixtures are refused."""
    v = Lanes(np.arange(16, dtype=np.float32))
    assert (v + 1).element == (2.5 * v).element == "f32"
    assert NAMES["select"](v > 3, 1.0, v).element == "f32"
    assert NAMES["select"](v > 3, NAMES["f64"](1), NAMES["f64"](0)).element == "f64"
    for wrong in (
        lambda: v + Lanes(np.arange(16)),
        lambda: v & v,
        lambda: NAMES["select"](v, v, v),
        lambda: NAMES["fma"](v, v),
        lambda: Lanes(np.arange(16)) / 2,
        lambda: bool(v),
    ):
        with pytest.raises(TypeError):
            wrong()
    compiled, plain = kernel_of(
        "def kernel(lo, hi, x, o, n):\n"
        "    store(o, 0, select(load(x, 0) > 3, 7, -load(x, 0)) * 2)\n",
        "i32* i32* i64",
    )
    x = np.arange(16, dtype=np.int32)
    a, b = np.empty_like(x), np.empty_like(x)
    compiled(0, 0, x, a, 16)
    plain(0, 0, x, b, 16)
    assert a.tolist() == b.tolist() == [14 if k > 3 else -2 * k for k in range(16)]


def test_unjitted_accesses_are_checked() -> None:
    """A stray index raises instead of reading elsewhere."""
    p = np.zeros(20, np.float32)
    for wrong in (lambda: NAMES["load"](p, 5), lambda: NAMES["load"](p, -1)):
        with pytest.raises(IndexError):
            wrong()
    with pytest.raises(IndexError):
        NAMES["gather"](p, Lanes(np.arange(16) + 10))
    with pytest.raises(TypeError, match="takes f32 lanes; got f64"):
        NAMES["store"](p, 0, Lanes(np.zeros(16)))


def test_import_needs_numpy_only(run_python: Any) -> None:
    """Cached kernels load in a process that never imports Numba or llvmlite."""
    run_python(
        "import sys, codegen.vector\n"
        "loaded = {'numba', 'llvmlite', 'scipy', 'ml_dtypes'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )


SMALL_CONTEXTS = """
import sys
from codegen.vector import NAMES
from codegen.toolchain.numba_compiler import compile_object

globals().update(NAMES)

def kernel(lo, hi, args):
    total = full(f64(0))
    for i in range(max(lo, 0), min(hi, args // 3 % 7 - 1), 16):
        if i >> 4 & 1 == 0 or not i < 5:
            total = total + to_f64(lane_index(i)) / f64(hi)
    if lane_any(total > first(total)) and lo != hi:
        total = exp(total)

assert len(compile_object(kernel, "kernel")) > 500
assert not {"scipy.linalg", "numba.np.arraymath"} & set(sys.modules)

import numba

double = numba.njit(lambda x: 2 * x)

def calling(lo, hi, args):
    for i in range(double(lo), hi):
        pass

assert len(compile_object(calling, "kernel")) > 300
"""


def test_kernels_compile_without_all_of_numba(run_python: Any, tmp_path: Any) -> None:
    """Kernel text compiles in the small contexts, which load little; what says more, in Numba's."""
    script = tmp_path / "compiles.py"
    script.write_text(SMALL_CONTEXTS)
    run_python("import runpy, sys; runpy.run_path(sys.argv[1])", str(script))


def test_operators_of_python_cover_the_table() -> None:
    """Each operator primitive is reached by Python's operator on a reading."""
    assert set(SYMBOLS) == set(OPERATORS)
    assert isinstance(OPERATORS["add"], Primitive)
    for name in OPERATORS:
        method = f"__{name.rstrip('_')}__"
        assert method in Reading.__dict__, method
