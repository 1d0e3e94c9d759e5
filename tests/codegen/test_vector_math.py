"""The vector mathematics: errors within the published bounds, one meaning un-jitted and compiled,
no library calls.
"""

from __future__ import annotations

import platform
import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from benchmarks.vector_math.accuracy import edges, errors, reference, samples
from codegen.vector import DTYPE, NAMES
from codegen.vector.bounds import BOUNDS, bound
from codegen.vector.elementary import ELEMENTARY
from codegen.vector.functions import FUNCTIONS
from codegen.vector.pi import TWO_OVER_PI

pytestmark = pytest.mark.cpu

MATHEMATICS = [n for n, f in FUNCTIONS.items() if n not in ELEMENTARY and "f32" in f.bodies]
CASES = [(n, e) for n in MATHEMATICS for e in FUNCTIONS[n].bodies]
LIBRARY = re.compile(
    r"\b(?:a?(?:sin|cos|tan)h?|atan2|exp[2m]?1?|log(?:2|10|1p)?|pow|erfc?|cbrt|hypot|f?ma|fmod|"
    r"floor|ceil|trunc|rint|nearbyint|roundeven|sqrt|ldexp|fm(?:ax|in))[fl]?$|^__\w+$"
)


@cache
def mapped(name: str, element: str) -> tuple[Any, Any]:
    """The kernel o = name(x, y ...), compiled and un-jitted."""
    from codegen.vector.trial import Kernel

    operands = "xyz"[: FUNCTIONS[name].arity]
    loads = ", ".join(f"load_part({x}, i, n - i, {element}(0))" for x in operands)
    text = (
        f"def kernel(lo, hi, {', '.join(operands)}, o, n):\n"
        "    for i in range(0, n, 16):\n"
        f"        store_part(o, i, n - i, {name}({loads}))\n"
    )
    names = dict(NAMES)
    exec(text, names)
    return Kernel(names["kernel"], f"{element}* " * (len(operands) + 1) + "i64"), names["kernel"]


def computed(name: str, element: str, *operands: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    out = np.empty_like(operands[0])
    mapped(name, element)[0](0, 0, *operands, out, len(out))
    return out


def no_instructions() -> set[str]:
    """Functions that have no instruction on the x86 that kernels are compiled for: the library's, which round
    once as instructions do, are called then. The others are ours on every CPU.
    """
    from codegen.cpu_features import kernels_have

    if platform.machine().lower() not in ("x86_64", "amd64"):
        return set()
    found = set() if kernels_have("fma") else {"fma"}
    found |= set() if kernels_have("sse4.1") else {"floor", "ceil", "trunc", "rint", "roundeven"}
    return found | {f"{name}f" for name in found}


def least(name: str, operands: Any) -> Any:
    """logaddexp is as right as its operands' last place allows: near 0 its result cancels."""
    if name != "logaddexp":
        return 0
    with np.errstate(all="ignore"):
        sizes = np.maximum(*(abs(x) for x in operands))
    return np.where(np.isfinite(sizes), sizes, 0)


@pytest.mark.parametrize(("name", "element"), CASES)
def test_errors_are_within_the_bound(name: str, element: str, rng: np.random.Generator) -> None:
    """200,000 operands: special values, all exponents, the usual ranges; signs of zeros too."""
    slow = name in ("erf", "erfc") and element == "f64"  # the reference is mpmath
    operands = samples(DTYPE[element], 6000 if slow else 200_000, FUNCTIONS[name].arity, rng)
    got, wanted = computed(name, element, *operands), reference(name, *operands)
    found = errors(got, wanted, least(name, operands))
    worst = int(found.argmax())
    at = [x[worst] for x in operands]
    assert found[worst] <= bound(name, element), (at, got[worst], wanted[worst], found[worst])


@pytest.mark.parametrize(("name", "element"), CASES)
def test_unjitted_and_compiled_are_equal(name: str, element: str, rng: np.random.Generator) -> None:
    """The same bits from the same text, and no call of a library in the assembly."""
    from codegen.vector.trial import same_bits

    arity = FUNCTIONS[name].arity
    operands = samples(DTYPE[element], 480, arity, rng)
    picked = rng.permutation(len(operands[0]))[:640]
    operands = [x[picked] for x in operands]
    compiled, plain = mapped(name, element)
    a, b = np.empty_like(operands[0]), np.empty_like(operands[0])
    compiled(0, 0, *operands, a, len(a))
    plain(0, 0, *operands, b, len(b))
    wrong = [k for k in range(len(a)) if not same_bits(a[k : k + 1], b[k : k + 1])]
    assert not wrong, [(x[wrong[0]]) for x in operands]
    symbols = re.findall(r"(?:call\w*|jmp|\$)\s*([A-Za-z_]\w*)", compiled.assembly)
    lacking = no_instructions()
    assert not [s for s in symbols if LIBRARY.match(s) and s not in lacking]


def test_every_function_has_a_bound() -> None:
    assert set(BOUNDS) == set(MATHEMATICS)


def test_exact_results() -> None:
    """Where the result is a number of the format: powers of two, roots, whole powers."""
    for element in ("f32", "f64"):
        dtype = DTYPE[element]
        whole = np.arange(-120, 121).astype(dtype)
        assert (computed("exp2", element, whole) == 2.0**whole).all()
        assert (computed("log2", element, (2.0**whole).astype(dtype)) == whole).all()
        tens = (10.0 ** np.arange(0, 11)).astype(dtype)
        assert (computed("log10", element, tens) == np.arange(0, 11)).all()
        small = np.arange(-40, 41).astype(dtype)
        assert (computed("cbrt", element, small**3) == small).all()
        assert (computed("pow", element, small, np.full_like(small, 2)) == small**2).all()
        assert (computed("pow", element, small, np.full_like(small, 3)) == small**3).all()
        three, four = np.array([3, 5, 8], dtype), np.array([4, 12, 15], dtype)
        assert computed("hypot", element, three, four).tolist() == [5, 13, 17]


def test_powers_at_special_values() -> None:
    """Every pair of special values gives what C's pow, and so NumPy's, gives."""
    special = np.array([0, 1, 2, 3, 0.5, 1.5, 2.0**53, 2.0**53 - 1, np.inf, np.nan, 1e-300, 1e300])
    special = np.concatenate([special, -special])
    x, y = np.repeat(special, len(special)), np.tile(special, len(special))
    with np.errstate(all="ignore"):
        wanted = np.power(x, y)
    got = computed("pow", "f64", x, y)
    with np.errstate(all="ignore"):
        close = abs(got - wanted) <= np.spacing(abs(wanted))
    exact = (got == wanted) & (np.signbit(got) == np.signbit(wanted))
    fine = (
        exact | (np.isnan(got) & np.isnan(wanted)) | (np.isfinite(wanted) & (wanted != 0) & close)
    )
    assert fine.all(), [*zip(x[~fine], y[~fine], got[~fine], wanted[~fine], strict=True)]


def test_angles_of_any_size(rng: np.random.Generator) -> None:
    """Numbers whose multiples of pi/2 cancel most, and the largest, against 1200-bit arithmetic."""
    import mpmath

    hard = [6381956970095103.0 * 2.0**797, 5.319372648326541e255, 1.7976931348623157e308, 1e22]
    hard += [float(np.ldexp(rng.random() + 0.5, int(e))) for e in rng.integers(28, 1024, 60)]
    hard += [float(n * np.pi / 2) for n in (1, 2, 3, 1e5, 1e8, 2.0**29, 1e12, 1e17)]
    x = np.array(hard)
    with mpmath.workprec(1300):
        for name in ("sin", "cos", "tan"):
            exact = [getattr(mpmath, name)(mpmath.mpf(v)) for v in hard]
            wanted = np.array(
                [np.longdouble(float(v)) + np.longdouble(float(v - float(v))) for v in exact]
            )
            assert errors(computed(name, "f64", x), wanted).max() <= bound(name, "f64")
            single = x[abs(x) < 3e38].astype(np.float32)
            exact = [getattr(mpmath, name)(mpmath.mpf(float(v))) for v in single]
            wanted = np.array([float(v) for v in exact])
            assert errors(computed(name, "f32", single), wanted).max() <= bound(name, "f32")
        bits = int(mpmath.floor(mpmath.ldexp(2 / mpmath.pi, 64 * 19)))
    words = [(bits >> (64 * k)) & (2**64 - 1) for k in range(19)]
    assert (0, *reversed(words)) == TWO_OVER_PI


def test_monotone_where_it_is_seen() -> None:
    """Probabilities and losses do not wobble: sigmoid and erf stay within [0, 1] and rise."""
    for element in ("f32", "f64"):
        x = np.linspace(-12, 12, 200_001).astype(DTYPE[element])
        y = computed("sigmoid", element, x)
        assert ((y >= 0) & (y <= 1)).all()
        z = computed("erf", element, x)
        assert (abs(z) <= 1).all()
        coarse = np.spacing(np.ones(1, DTYPE[element])) * 2
        assert (np.diff(y) >= -coarse).all()
        assert (np.diff(z) >= -coarse).all()


def test_coefficients_are_those_of_the_recipes() -> None:
    """Two tables fitted again give the numbers of tables.py, to the bit."""
    from benchmarks.vector_math.coefficients import coefficients
    from benchmarks.vector_math.recipes import RECIPES
    from codegen.vector import tables

    for name in ("EXP_F32", "LOG_SERIES_F32"):
        assert coefficients(RECIPES[name])[0] == getattr(tables, name)
    assert {n for n in vars(tables) if n.isupper()} == set(RECIPES)


def test_edges_are_looked_at() -> None:
    """The samples hold what they should: both zeros, infinities, NaN, denormals."""
    found = edges(np.float32)
    assert {0.0, np.inf, -np.inf} <= set(found.tolist())
    assert np.isnan(found).any()
    assert (np.signbit(found) & (found == 0)).any()
    assert ((found != 0) & (abs(found) < np.finfo(np.float32).tiny)).any()
