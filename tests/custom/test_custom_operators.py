"""Operators made of functions of numbers: eager, compiled, fused, differentiated, in the IR, in ONNX and in CUDA text."""

from __future__ import annotations

import copy
import math
import pickle
import re
import runpy

import numpy as np
import pytest
from numba import njit

import tracer
from codegen.cpu import compile as kernels
from codegen.spec.kernel_spec import Fold, KernelSpec, Operand, ScalarFunction, Schedule, Stage
from codegen.user_functions.content import content
from ops.operator import find
from tests.support import kernel_specs as ks
from tracer import ir, trace
from tracer.runtime.executable import Executable

X = np.array([-2.0, -0.5, 0.0, 1.5], np.float32)
K = 3.0


@tracer.op
def third(x):
    """The cube root, by Newton."""
    if x == 0.0:
        return 0.0
    y = x
    for _ in range(60):
        y = y - (y * y * y - x) / (3.0 * y * y)
    return y


soft = tracer.op(
    lambda x: math.log1p(math.exp(x)), derivative=lambda x: 1 / (1 + math.exp(-x)), name="soft"
)


@njit
def _blend(x, y, t=0.25):
    return x * (1 - t) + y * y * t if x > y else x * y


def _blend_derivative(x, y):
    return (0.75, 0.5 * y) if x > y else (y, x)


blend = tracer.op(_blend, derivative=_blend_derivative, name="blend")


def near(got, wanted, rtol=1e-5):
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=rtol, atol=1e-6)


def blend_of(x, y):
    return np.where(x > y, x * 0.75 + y * y * 0.25, x * y)


# ---- values --------------------------------------------------------------------------------------


def test_it_works_eagerly_and_traced_with_the_same_bits() -> None:
    eager = third(X)
    assert eager.dtype == np.float32 and third.__doc__.startswith("The cube root")
    near(eager, np.cbrt(X))
    traced = trace(lambda x: third(x))
    np.testing.assert_array_equal(np.asarray(traced(X)), np.asarray(eager))
    graph = traced.ir(X)
    ir.verify(graph)
    near(tracer.interpret.interpret(graph, [X])[0], np.cbrt(X))


def test_operands_are_promoted_and_broadcast() -> None:
    y = np.linspace(-1, 1, 3, dtype=np.float32)[:, None]
    near(blend(X, y), blend_of(X, y))
    assert blend(X, 2).dtype == np.float32
    near(blend(X, 2), blend_of(X, np.float32(2)))
    near(blend(2.0, 0.5), 1.5625)
    assert blend(np.arange(3), True).dtype == np.float32
    double = blend(X.astype(np.float64), y)
    assert double.dtype == np.float64
    near(double, blend_of(X.astype(np.float64), y), rtol=1e-14)
    half = soft(tracer.tensor(X, dtype="float16"))
    assert half.dtype == np.float16
    near(half, np.log1p(np.exp(X)), rtol=1e-3)
    assert np.asarray(soft(np.zeros((0, 3), np.float32))).shape == (0, 3)
    near(soft(np.float32(0)), math.log(2))


def test_it_is_fused_with_its_neighbours() -> None:
    @trace
    def f(x, y):
        return (blend(x * 2, y) + soft(x)).sum(axis=1)

    x = np.linspace(-3, 3, 63, dtype=np.float32).reshape(3, 21)
    y = np.linspace(2, -2, 21, dtype=np.float32)
    near(f(x, y), (blend_of(x * 2, y) + np.log1p(np.exp(x))).sum(1))
    plan = f.plan(x, y)
    assert len(plan.parts) == 1
    (text,) = f.kernels(x, y)
    assert re.search(r"= blend_[0-9a-f]{20}\(n_r - r, v0, l\d\) +# blend .*test_custom", text)
    assert re.search(r"= soft_[0-9a-f]{20}\(left, l0\)", text)


def test_it_sees_the_elements_only() -> None:
    """Behind the end of a row there are lanes that hold nothing; a loop that waits for them would not end."""

    @tracer.op
    def steps(x):
        count = 0
        while x < 100:  # for ever, if x is 0
            x = x * 2
            count += 1
        return count

    x = np.full((2, 5), 3, np.float32)
    near(trace(lambda x: steps(x))(x), np.full((2, 5), 6))
    near(trace(lambda x: steps(x.sum(axis=1)) * x[:, 0])(x), np.full(2, 9))


AWKWARD = [0.0, -0.0, 0.3, -0.7, 1.0, 7.5, -30.0, 1e-30, 3e4, 1e10, 3e38, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mathematics_has_the_bits_of_the_operators(dtype) -> None:
    x = np.array(AWKWARD, dtype)
    y = x[::-1].copy()

    @tracer.op
    def own(x, y):
        return math.tanh(x) * np.sin(y) + math.atan2(x, y) - np.log1p(x) / math.exp(y)

    @trace
    def ours(x, y):
        first = tracer.tanh(x) * tracer.sin(y) + tracer.atan2(x, y)
        return first - tracer.log1p(x) / tracer.exp(y)

    np.testing.assert_array_equal(np.asarray(own(x, y)), np.asarray(ours(x, y)))


def test_equal_functions_share_a_kernel_and_different_ones_do_not() -> None:
    def made(factor):
        return tracer.op(lambda x: x * factor, name="scaled")

    first, again, second = made(2.0), made(2.0), made(3.0)
    assert first.operator is again.operator is not second.operator
    near(first(X), 2 * X)
    near(second(X), 3 * X)
    names = [first.operator.name, second.operator.name]
    assert len(set(names)) == 2 and all(n.startswith("scaled") for n in names)
    f = trace(lambda x: first(x) + second(x))
    near(f(X), 5 * X)
    text = ir.to_text(f.ir(X))
    assert ir.equal(ir.parse(text), f.ir(X))
    assert all(f"= {n}(%x)" in text for n in names)
    assert len({*re.findall(r"scaled_[0-9a-f]{20}", f.kernels(X)[0])}) == 2
    near(made(-0.0)(X), np.zeros(4))
    assert np.signbit(np.asarray(made(-0.0)(np.ones(1)))).all()


def test_a_constant_that_changes_makes_another_operator() -> None:
    global K

    @njit
    def helper(x):
        return x + K

    rate = 10.0

    @tracer.op(derivative=lambda x: rate)
    def shifted(x):
        return helper(x) * rate

    f = trace(lambda x: shifted(x))
    before = K
    try:
        for K, rate in ((3.0, 10.0), (4.0, 20.0)):
            near(shifted(X), (X + K) * rate)
            near(f(X), (X + K) * rate)
            x = tracer.tensor(X, requires_grad=True)
            f(x).sum().backward()
            near(x.grad, np.full(4, rate))
        graph = f.ir(X)
        K = 7.0
        (late,) = Executable(graph, {})([tracer.tensor(X)])  # made of what it was made of then
        near(late, (X + 4) * 20)
        near(tracer.interpret.interpret(graph, [X])[0], (X + 4) * 20)
    finally:
        K = before


def test_operands_may_be_named_and_constants_keyword_only() -> None:
    def weighted(x, y, *, t=2.0):
        return x * t - y

    own = tracer.op(weighted, derivative=(lambda x, y, *, t=2.0: t, None))
    f = trace(lambda x, y: own(y=y, x=x))
    x = tracer.tensor(X, requires_grad=True)
    for t in (2.0, 3.0):
        weighted.__kwdefaults__["t"] = t
        near(own(X, y=X + 1), X * t - X - 1)
        near(f(x, X + 1), X * t - X - 1)
    f(x, X).sum().backward()
    near(x.grad, np.full(4, 2.0))
    for call, message in (
        (lambda: own(X, X, y=X), "got y, which it has got already"),
        (lambda: own(X, X, t=1.0), "got t, a parameter with a default, which is a constant"),
        (lambda: own(X, z=X), "got z, which the function does not have"),
        (lambda: own(y=X), "got 1 operands"),
    ):
        with pytest.raises(tracer.ArgumentError, match=message):
            call()


def test_another_operator_under_the_same_name_is_noticed() -> None:
    own = soft
    f = trace(lambda x: own(x))
    near(f(X), np.log1p(np.exp(X)))
    own = third
    near(f(X), np.cbrt(X))


def test_what_a_function_is_made_of_is_its_key() -> None:
    def keys(*functions):
        return {content(f).digest for f in functions}

    assert len(keys(lambda x: x + 1, lambda x: x + 1)) == 1
    different = (
        lambda x: x + 1,
        lambda x: x + 1.0,
        lambda x: x - 1,
        lambda x, k=1: x + k,
        lambda x, k=2: x + k,
        lambda x: math.sin(x),
        lambda x: math.cos(x),
        lambda x: np.sin(x),
        lambda x: abs(x),
        lambda x: x + K,
        lambda x: _blend(x, x),
        lambda x: min((x, 0.0)),
        lambda x: min((x, -0.0)),
    )
    assert len(keys(*different)) == len(different)


def test_functions_of_functions() -> None:
    def plain(x):
        return x * x

    @njit(error_model="python")
    def divide(x, y):
        return plain_jit(x) / y

    plain_jit = njit(plain)
    both = tracer.op(lambda x: divide(x, x) + soft(x) + plain(x), name="both")
    with np.errstate(all="ignore"):
        near(both(X), X * X / X + np.log1p(np.exp(X)) + X * X)


def test_divisions_by_zero_do_what_numpy_does() -> None:
    @tracer.op
    def reciprocal(x):
        return 1 / x

    @njit
    def _remainder(x):
        n = int(x)
        return 7 // n + 7 % n

    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.asarray(reciprocal(X)), 1 / X)
    near(tracer.op(_remainder)(np.array([2.0, 0.0, -2.0], np.float32)), [4, 0, -5])


# ---- gradients -----------------------------------------------------------------------------------


def test_gradients_through_the_derivative() -> None:
    x = tracer.tensor(X, requires_grad=True)
    y = tracer.tensor(np.array([[0.5], [-1.0]], np.float32), requires_grad=True)

    def loss(x, y):
        return (blend(x, y) * soft(x)).sum()

    def wanted():
        above = y.detach().numpy() < X
        value, s = blend_of(X, y.detach().numpy()), np.log1p(np.exp(X))
        dx = np.where(above, 0.75, y.detach().numpy()) * s + value / (1 + np.exp(-X))
        dy = np.where(above, 0.5 * y.detach().numpy(), X) * s
        return dx.sum(0), dy.sum(1, keepdims=True)

    loss(x, y).backward()
    near(x.grad, wanted()[0])
    near(y.grad, wanted()[1])
    traced = trace(tracer.grad(loss, argnums=(0, 1)))
    for got, right in zip(traced(X, y.detach()), wanted(), strict=True):
        near(got, right)
    x.grad = y.grad = None
    trace(loss)(x, y).backward()
    near(x.grad, wanted()[0])


@pytest.mark.kernels("python")
def test_second_gradients_need_a_derivative_of_the_derivative() -> None:
    with pytest.raises(
        tracer.GradError, match=r"soft.derivative has no gradient: it was made without"
    ):
        tracer.grad(lambda x: tracer.grad(soft)(x))(np.float32(1))
    near(tracer.grad(soft)(np.float32(1)), 1 / (1 + math.exp(-1)))

    slope = tracer.op(lambda x: 3 * x * x, derivative=lambda x: 6 * x, name="slope")
    cube = tracer.op(lambda x: x * x * x, derivative=slope, name="cube")
    for transform in (lambda f: f, trace):
        second = transform(tracer.grad(tracer.grad(cube)))
        near(second(np.float32(2)), 12)
    product = tracer.op(
        lambda x, y: x * y,
        derivative=(
            tracer.op(lambda x, y: y, derivative=(None, lambda x, y: 1.0), name="product_x"),
            tracer.op(lambda x, y: x, derivative=(lambda x, y: 1, None), name="product_y"),
        ),
        name="product",
    )
    near(tracer.hessian(lambda v: product(v[0], v[1]))(np.array([2.0, 5.0])), [[0, 1], [1, 0]])


def test_without_a_derivative_there_is_no_gradient() -> None:
    x = tracer.tensor(X, requires_grad=True)
    y = third(x)
    with pytest.raises(
        tracer.GradError, match=r"pass tracer.op\(third, derivative=(?s:.*)test_custom"
    ):
        y.sum().backward()
    constant = tracer.op(lambda x, y: x * y, derivative=(lambda x, y: y, None), name="half")
    constant(x, x).sum().backward()
    near(x.grad, X)


# ---- what goes wrong -----------------------------------------------------------------------------


def raising(x):
    if x > 1e30:
        raise ValueError("too large")
    return x


def calls_itself(x):
    return calls_itself(x - 1) if x > 0 else x


TABLE = np.ones(4)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            raising,
            r"raising \(.*test_custom_operators.py:\d+\) cannot be part of a kernel: it can raise",
        ),
        (calls_itself, r"calls_itself \(.*\) calls itself"),
        (lambda x: TABLE[0] * x, r"uses TABLE, of class ndarray: .* cannot hold"),
        (lambda x: ks.WIDTH * x, r"uses ks, the module tests\.support\.kernel_specs, which"),
        (lambda x: undefined_name + x, r"uses the name undefined_name, which is not defined"),  # noqa: F821
        (lambda x: x.shape[0], r"cannot be compiled for float32: .*(?s:.*)shape"),
        (lambda x: None, r"gives none for float32; it must give a number on every path"),
        (lambda x: (x, x), r"gives UniTuple\(float32 x 2\) for float32; it must give a number"),
        (lambda x: str(x), r"must give a number|cannot be"),
        (lambda x: (yield x), r"is a generator"),
    ],
    ids=lambda x: x.__name__ if callable(x) else "",
)
def test_functions_that_no_kernel_can_call_are_told_where_they_are_used(function, message) -> None:
    bad = tracer.op(function, name="bad")
    with pytest.raises(tracer.ArgumentError, match=message) as error:
        bad(X)
    assert len(re.findall(r"test_custom_operators\.py:\d+", str(error.value))) >= 2
    with pytest.raises(tracer.ArgumentError, match=message):
        trace(lambda x: bad(x))(X)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tracer.op(3), r"takes a function of numbers, plain or compiled by Numba, got int"),
        (lambda: tracer.op(math.sin), r"got builtin_function_or_method"),
        (lambda: tracer.op(lambda *xs: xs[0]), r"takes \*xs, but an operator has a fixed number"),
        (lambda: tracer.op(lambda: 1.0), r"has no operand"),
        (lambda: tracer.op(lambda x: x, name="Add"), r"Add is the name of an operator of tracer"),
        (lambda: tracer.op(lambda x: x, name="no good"), r"the name of an operator has letters"),
        (lambda: tracer.op(lambda x: x, derivative=3), r"the derivative of lambda is a function"),
        (lambda: tracer.op(lambda x: x, derivative=lambda x, y: x), r"takes its operands \(x\)"),
        (lambda: tracer.op(lambda x, y: x, derivative=(lambda x, y: 1,)), r"is 2 functions, got 1"),
        (lambda: tracer.op(lambda x, y: x, derivative=blend), r"pass one for each operand"),
        (lambda: soft(X, X), r"soft takes \(x\), got 2 operands"),
        (lambda: blend(X, np.ones(3)), r"do not broadcast"),
        (lambda: soft("text"), r"got 'text'|str|text"),
    ],
)
def test_wrong_uses_are_told(make, message: str) -> None:
    with pytest.raises(tracer.TracerError, match=message) as error:
        make()
    assert "test_custom_operators.py" in str(error.value)


def test_a_derivative_of_several_operands_must_give_as_many() -> None:
    x = tracer.tensor(X, requires_grad=True)
    bad = tracer.op(lambda x, y: x * y, derivative=lambda x, y: y, name="bad")
    with pytest.raises(tracer.ArgumentError, match=r"it must give a tuple of 2 numbers"):
        bad(x, x).sum().backward()


def test_it_can_be_copied_and_pickled_by_its_name() -> None:
    assert pickle.loads(pickle.dumps(blend)) is blend and pickle.loads(pickle.dumps(soft)) is soft
    assert copy.deepcopy(third) is third
    assert pickle.loads(pickle.dumps(third)) is third


# ---- the IR --------------------------------------------------------------------------------------


def test_a_text_with_it_needs_the_operator() -> None:
    once = tracer.op(lambda x: x * 17, name="once")
    graph = trace(lambda x: once(x)).ir(X)
    text = ir.to_text(graph)
    assert "%1 : Float(4) = once(%x)" in text
    assert ir.equal(ir.parse(text), graph)
    assert find("once") is graph.nodes[0].op
    assert ir.equal(pickle.loads(pickle.dumps(graph)), graph)
    with pytest.raises(tracer.ParseError, match=r"there is no operator 'twice'; one of your own"):
        ir.parse(text.replace("once(", "twice("))


def test_a_second_process_needs_no_compiler(run_python, tmp_path, capsys) -> None:
    (tmp_path / "own.py").write_text(
        "import math, sys, numpy as np, tracer\n"
        "@tracer.op(derivative=lambda x: math.cos(x))\n"
        "def sine(x):\n    return math.sin(x)\n"
        "y = tracer.trace(lambda x: sine(x) * 2)(np.ones(4, np.float32))\n"
        "print(float(y[0]), 'numba' in sys.modules)\n"
    )
    code = "import runpy; runpy.run_path(sys.argv[1])"
    runpy.run_path(str(tmp_path / "own.py"))
    first = capsys.readouterr().out.split()
    second = run_python(f"import sys; {code}", str(tmp_path / "own.py")).stdout.split()
    assert first[0] == second[0]
    near(float(first[0]), 2 * math.sin(1))
    assert second[1] == "False"


# ---- ONNX ----------------------------------------------------------------------------------------


def test_export_needs_symbolic() -> None:
    import onnx
    import onnxruntime

    with pytest.raises(
        tracer.ExportError, match=r"soft is a function of your own; .*symbolic=(?s:.*)test_"
    ):
        tracer.onnx.export(trace(lambda x: soft(x)), (X,))

    @tracer.op(
        derivative=tracer.op(
            lambda x: 1 / (1 + math.exp(-x)), name="sigm", symbolic=lambda g, x: g.op("Sigmoid", x)
        ),
        symbolic=lambda g, x: g.op("Softplus", x),
    )
    def exported(x):
        return math.log1p(math.exp(x))

    model = tracer.onnx.export(trace(tracer.value_and_grad(lambda x: exported(x).sum())), (X,))
    onnx.checker.check_model(model, full_check=True)
    assert {"Softplus", "Sigmoid"} <= {n.op_type for n in model.graph.node}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    value, grad = session.run(None, {session.get_inputs()[0].name: X})
    near(value, np.log1p(np.exp(X)).sum())
    near(grad, 1 / (1 + np.exp(-X)))
    bad = tracer.op(lambda x: x, symbolic=lambda g, x: g.op("NoSuch", x), name="bad")
    with pytest.raises(tracer.ExportError, match="ONNX has no operator NoSuch"):
        tracer.onnx.export(trace(lambda x: bad(x)), (X,))


# ---- kernels -------------------------------------------------------------------------------------


def scaled(x, y):
    return (x * 2 + y * K, y) if x > -99 else (y, x)


def users_spec() -> KernelSpec:
    """o = scaled(x, y)[0] + scaled(y, 2)[1], and the same of the row's first element."""
    digest = content(scaled).digest
    first, second = (ScalarFunction(f"scaled_{digest}_{k}", 2, k, scaled) for k in range(2))
    text = f"{first.name}(x, y) + {second.name}(y, f32(2))"
    return KernelSpec(
        "users",
        (ks.P, ks.R),
        (
            ks.row_major("a"),
            ks.row_major("b"),
            ks.row_major("o", "out"),
            Operand("h", "float32", (1,), "out"),
        ),
        (
            Stage(
                ("r",),
                (
                    ks.load("x", "a", "p", "r"),
                    ks.load("y", "b", "p", "r"),
                    ks.let("z", text),
                    ks.store("o", "z", "p", "r"),
                    Fold(("m",), ks.MAX, ("z",), "r"),
                ),
            ),
            Stage((), (ks.let("t", f"{second.name}(f32(0.5), m)"), ks.store("h", "t", "p"))),
        ),
        (first, second),
    )


def users_arrays() -> ks.Arrays:
    x = (np.arange(-37, 37, dtype=np.float32) / 8).reshape(2, 37)
    return {
        "a": x,
        "b": x[::-1] * 2,
        "o": np.zeros((2, 37), np.float32),
        "h": np.zeros(2, np.float32),
    }


@pytest.mark.parametrize("tail", ["peeled", "masked"])
def test_kernels_compiled_and_unjitted(tail) -> None:
    spec, schedule = users_spec(), Schedule(tail=tail)
    for jitted in (True, False):
        arrays = users_arrays()
        ks.run(spec, schedule, arrays, {"p": 2, "r": 37}, jitted=jitted)
        wanted = arrays["a"] * 2 + arrays["b"] * 3 + 2
        near(arrays["o"], wanted)
        near(arrays["h"], wanted.max(1))
    assert kernels.text(spec, schedule).count("(1, ") == 1


CUDA = """
import os, sys
if sys.argv[1] == "simulator":
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
import warnings
warnings.simplefilter("ignore")
from codegen.cuda.printer import cuda_text
from codegen.cuda.compile import ptx
from codegen.spec.kernel_spec import Schedule
from tests.custom import test_custom_operators as own
if sys.argv[1] == "simulator":
    from tests.support import cuda_worker
    cuda_worker.compare(own.users_spec(), Schedule(), own.users_arrays(), {"p": 2, "r": 37})
else:
    text = cuda_text(own.users_spec(), Schedule())
    print(text.text)
    assert ".target sm_90" in ptx(text, (9, 0))
"""


@pytest.mark.parametrize("target", ["simulator", "ptx"])
def test_cuda_calls_a_device_function(run_python, target: str) -> None:
    pytest.importorskip("numba_cuda")
    done = run_python(CUDA, target)
    if target == "ptx":
        assert re.search(
            r"z = f32\(scaled_[0-9a-f]{20}_0_f32\(x, y\)\) \+ f32\(scaled", done.stdout
        )
    else:
        assert "equal bits: users" in done.stdout
