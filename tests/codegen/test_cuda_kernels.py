"""CUDA texts without a GPU: the CPU's bits in Numba's simulator, PTX for two architectures, device
functions in plain Python.

What this cannot show is a real GPU's arithmetic and speed; no test here needs one.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from codegen.cuda.device_functions import device_text
from codegen.cuda.printer import cuda_text
from codegen.errors import Unsupported
from codegen.spec.kernel_spec import KernelSpec, Operand, Schedule, Stage
from codegen.text.scalar_text import typed
from codegen.text.source import compile_function
from codegen.vector.elements import DTYPE, kind
from codegen.vector.primitives import PRIMITIVES
from tests.support import kernel_specs as ks
from tests.support.kernel_specs import let

RunPython = Callable[..., Any]
numba_cuda = pytest.mark.skipif(
    importlib.util.find_spec("numba_cuda") is None, reason="needs numba-cuda (extra 'cuda')"
)


def test_simulator_gives_the_bits_of_the_cpu(run_python: RunPython) -> None:
    done = run_python(
        "from tests.support import cuda_worker; cuda_worker.main()",
        environment={"NUMBA_ENABLE_CUDASIM": "1"},
    )
    assert done.stdout.count("equal bits") == 36, done.stdout


PTX = """
import json
from codegen.cuda.printer import cuda_text
from codegen.cuda.compile import ptx
from tests.support.finish import finish_spec
from codegen.spec.kernel_spec import Schedule
from tests.support import kernel_specs as ks
result = {}
for name, spec, mode, targets in (
    ("elementwise", ks.ELEMENTWISE, "flat", (80, 90)),
    ("primitives", ks.PRIMITIVES, "flat", (90,)),
    ("softmax", ks.SOFTMAX_GRAD, "rows", (80, 90)),
    ("layer_norm", ks.LAYER_NORM_GRAD, "columns", (80,)),
    ("argmax", ks.ARGMAX_ROWS, "rows", (90,)),
    ("finish", finish_spec(ks.ARGMAX, "columns", ["float32", "int64"]), "flat", (80,)),
    ("float16", ks.product_and_total("float16"), "rows", (90,)),
    ("bool", ks.product_and_total("bool"), "rows", (80,)),
):
    for target in targets:
        result[f"{name} sm_{target}"] = ptx(cuda_text(spec, Schedule(mode)), divmod(target, 10))
print(json.dumps(result))
"""


@numba_cuda
def test_ptx_for_two_architectures(run_python: RunPython) -> None:
    """All texts compile for sm_80 and sm_90, and no product can become part of an fma."""
    done = run_python(PTX)
    codes = json.loads(done.stdout.splitlines()[-1])
    assert len(codes) == 10
    for name, code in codes.items():
        assert f".target {name.split()[-1]}" in code
        assert not re.search(r"\bmul\.f(32|64)\b", code), name  # mul.rn is not contracted
    for name in ("layer_norm sm_80", "argmax sm_90", "float16 sm_90"):
        assert "fma." not in codes[name], name  # none is written, so none may appear
    assert "fma.rn.f32" in codes["elementwise sm_80"]  # tanh writes some


# ---- what the device functions mean --------------------------------------------------------------
def _libdevice() -> Any:
    """NumPy in the place of CUDA's library, for the functions that device texts call."""

    meanings = {
        **{
            n: getattr(np, n)
            for n in ("trunc", "floor", "ceil", "rint", "copysign", "fmod", "fabs")
        },
        **{
            f"{n}f": getattr(np, n)
            for n in ("trunc", "floor", "ceil", "rint", "copysign", "fmod", "fabs")
        },
        "fma": PRIMITIVES["fma"].meaning,
        "fmaf": PRIMITIVES["fma"].meaning,
        "fdiv_rn": np.divide,
        "ddiv_rn": np.divide,
        "fsqrt_rn": np.sqrt,
        "dsqrt_rn": np.sqrt,
        "ldexp": np.ldexp,
        "ldexpf": np.ldexp,
        "float_as_int": lambda x: x.view(np.int32),
        "double_as_longlong": lambda x: x.view(np.int64),
        "int_as_float": lambda x: x.view(np.float32),
        "longlong_as_double": lambda x: x.view(np.float64),
        "float2half_rn": np.float16,
        "half2float": np.float32,
        "popc": lambda x: (int(x) & 0xFFFFFFFF).bit_count(),
        "popcll": lambda x: (int(x) & 0xFFFFFFFFFFFFFFFF).bit_count(),
    }
    return SimpleNamespace(
        **{n: lambda *a, f=f: np.asarray(f(*a))[()] for n, f in meanings.items()}
    )


def awkward(element: str) -> np.ndarray[Any, Any]:
    """Ordinary values and the limits of an element."""
    random, dtype = np.random.default_rng(0), DTYPE[element]
    if kind(element) == "b":
        return np.array([False, True])
    if kind(element) == "f":
        special = [
            np.nan,
            np.inf,
            -np.inf,
            0.0,
            -0.0,
            0.5,
            -0.5,
            1.5,
            2.5,
            127.0,
            -128.5,
            3e9,
            1e19,
            -1e19,
            1e-40,
        ]
        return np.concatenate([special, random.standard_normal(9) * 60]).astype(dtype)
    limits = np.iinfo(dtype)
    special = [limits.min, limits.max, 0, 1, 2, 7, 3, limits.max // 3]
    return np.array(special + ([-1, -2, -7] if kind(element) == "i" else []), dtype)


CALLED = [
    (name, element)
    for name, primitive in PRIMITIVES.items()
    for element in primitive.elements
    if not (name in ("neg", "invert", "select") or (name.startswith("to_") and name != "to_bits"))
    and name not in ("add", "sub", "mul", "and_", "or_", "xor", "lt", "le", "gt", "ge", "eq", "ne")
] + [(f"to_{t}", e) for e in ("f32", "f64") for t in DTYPE if kind(t) in "iu"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("name", "element"), CALLED)
def test_device_functions_mean_what_the_primitives_do(name: str, element: str) -> None:
    primitive = PRIMITIVES[name]
    text = device_text(name, element, {})
    device = compile_function(text, f"{name}_{element}", {**DTYPE, "libdevice": _libdevice()})
    values = awkward(element)
    second = np.arange(-250, 251, 25).astype(DTYPE[element]) if name == "ldexp" else values
    operands = np.meshgrid(*[values, second, values][: primitive.arity])
    expected = np.atleast_1d(primitive.meaning(*(o.reshape(-1) for o in operands)))
    result = [
        DTYPE[primitive.result(element)](device(*x))
        for x in zip(*(o.flat for o in operands), strict=True)
    ]
    got = np.array(result, expected.dtype)
    if kind(primitive.result(element)) == "f":
        same = (got == expected) & (np.signbit(got) == np.signbit(expected)) | np.isnan(
            got
        ) & np.isnan(expected)
    else:
        same = got == expected
    wrong = np.flatnonzero(~same)
    assert not len(wrong), [([o.flat[i] for o in operands], got[i], expected[i]) for i in wrong[:5]]


# ---- texts ---------------------------------------------------------------------------------------
def test_golden_texts(golden: Callable[[str, str], None]) -> None:
    notes = {0: "train.py:12", 4: "train.py:13"}
    golden("kernels/softmax_grad_cuda.txt", cuda_text(ks.SOFTMAX_GRAD, None, notes).text)
    golden("kernels/pad_cuda.txt", cuda_text(ks.PAD).text)


@pytest.mark.parametrize(
    ("text", "element", "expected"),
    [
        ("(a - b)*c", "f32", "(a - b) * c"),
        ("i + i", "i8", "i8(i + i)"),
        ("i*i >> i8(1)", "i8", "rshift_i8(i8(i * i), i8(1))"),
        ("select(a < b, a, f32(2))", "f32", "a if a < b else f32(2.0)"),
        ("to_i8(a) + i", "i8", "i8(to_i8_f32(a) + i)"),
        ("to_f64(i) / f64(n_r - 1)", "f64", "truediv_f64(f64(i), f64(n_r - 1))"),
        ("a*n_r", "f32", "a * f32(n_r)"),
        ("f32(0.5)", "f32", "f32(0.5)"),
        ("full(f32(2))", "f32", "f32(2.0)"),
        ("~(a == a) & True", "bool", "(not (a == a)) & True"),
        ("exp(f32(1)) + a", "f32", "exp_f32(f32(1.0)) + a"),
        ("maximum(f32(1), f32(2))", "f32", "maximum_f32(f32(1.0), f32(2.0))"),
    ],
)
def test_text_for_one_thread(text: str, element: str, expected: str) -> None:
    elements = {"a": "f32", "b": "f32", "c": "f32", "i": "i8"}
    assert typed(text, element, elements, ("n_r",), {}) == expected


def test_what_has_no_cuda_text_says_so() -> None:
    with pytest.raises(Unsupported, match="differ along the inner axis needs their order"):
        cuda_text(ks.scatter_lanes())
    with pytest.raises(Unsupported, match="operand x is bfloat16"):
        cuda_text(ks.product_and_total("bfloat16"))
    operands = (Operand("o", "float32", (1,), "out"),)
    spec = KernelSpec(
        "rotated", (ks.R,), operands, (Stage(("r",), (let("a", "rotate(full(f32(1)), 2)"),)),)
    )
    with pytest.raises(Unsupported, match=r"rotate\(\) in a statement's text has no meaning"):
        cuda_text(spec, Schedule("flat"))
