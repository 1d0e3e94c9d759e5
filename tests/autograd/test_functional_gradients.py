"""Gradients of functions against closed forms and finite differences: nested, traced, on trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tracer
from tracer import grad, hessian, hvp, jacobian, jvp, trace, value_and_grad, vjp

# The graphs are looked at here, by their results. Compiled too: a function of each kind.
pytestmark = pytest.mark.kernels("python")

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(2)
X, W = RNG.standard_normal((4, 3)), RNG.standard_normal((3, 2))


def check(got: Any, wanted: Any, tolerance: float = 1e-10) -> None:
    assert isinstance(got, tracer.Tensor)
    assert got.shape == np.shape(wanted)
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=tolerance, atol=tolerance)


def energy(x: Any, w: Any) -> Any:
    return tracer.tanh(x @ w).sum()


def slope(x: Array, w: Array) -> tuple[Array, Array]:
    """energy's gradients in closed form."""
    s = 1 - np.tanh(x @ w) ** 2
    return s @ w.T, x.T @ s


FORMS: list[Callable[[Any], Any]] = [lambda f: f, trace]


@pytest.mark.parametrize("inner", FORMS, ids=["plain", "traced"])
@pytest.mark.parametrize("outer", FORMS, ids=["eager", "compiled"])
@pytest.mark.kernels("compiled")
def test_grad_and_value_of_plain_and_traced_functions(
    inner: Callable[[Any], Any], outer: Callable[[Any], Any]
) -> None:
    function = inner(energy)
    dx, dw = slope(X, W)
    check(outer(grad(function))(X, W), dx)
    check(outer(grad(function, argnums=1))(X, W), dw)
    both = outer(grad(function, argnums=(1, 0)))(X, W)
    check(both[0], dw)
    check(both[1], dx)
    value, gradient = outer(value_and_grad(function, argnums=-1))(X, W)
    check(value, np.tanh(X @ W).sum())
    check(gradient, dw)


@pytest.mark.parametrize("inner", FORMS, ids=["plain", "traced"])
@pytest.mark.parametrize("outer", FORMS, ids=["eager", "compiled"])
def test_gradients_of_gradients(inner: Any, outer: Any) -> None:
    cube = inner(lambda x: (x**3).sum())
    x = X[0]
    check(outer(grad(lambda x: grad(cube)(x).sum()))(x), 6 * x)
    check(outer(grad(lambda x: (grad(cube)(x) * x).sum()))(x), 9 * x * x)
    third = grad(lambda x: grad(lambda x: grad(cube)(x).sum())(x).sum())
    check(outer(third)(x), np.full(3, 6.0))


def test_every_kind_of_argument() -> None:
    def function(tree: Any, scale: Any, flag: str) -> Any:
        assert flag == "on"
        assert tree["none"] is None
        return (tree["a"][0] * tree["a"][1]).sum() * scale + tree["b"].sum()

    tree = {"a": [X, tracer.tensor(X)], "b": np.ones(3, np.float16), "none": None}
    for form in FORMS:
        gradients, slope_of_scale = form(grad(function, argnums=(0, 1)))(tree, 2.0, flag="on")
        check(gradients["a"][0], 2 * X)
        check(gradients["a"][1], 2 * X)
        assert gradients["b"].dtype == np.float16
        assert gradients["none"] is None
        check(slope_of_scale, (X * X).sum(), 1e-6)
        assert slope_of_scale.dtype == np.float32


def test_arguments_are_left_alone() -> None:
    x = tracer.tensor(X, requires_grad=True)
    x.grad = tracer.ones_like(x)
    w = tracer.tensor(W)
    gradient = grad(energy)(x, w)
    check(gradient, slope(X, W)[0])
    check(x.grad, np.ones_like(X))
    assert x.requires_grad
    assert not w.requires_grad
    assert w.grad is None
    assert not grad(energy)(X, W).requires_grad
    value, _ = value_and_grad(energy)(X, W)
    assert not value.requires_grad


def test_what_lies_around_can_differentiate_again() -> None:
    """A Tensor that requires a gradient, as argument or from outside, sees through `grad`."""
    w = tracer.tensor(W, requires_grad=True)
    penalty = (grad(lambda x: energy(x, w))(X) ** 2).sum()
    penalty.backward()

    def square_of_slope(w: Array) -> float:
        return float((slope(X, w)[0] ** 2).sum())

    check(w.grad, finite_differences(square_of_slope, W), 1e-5)
    w.grad = None
    (grad(energy, argnums=1)(X, w) ** 2).sum().backward()
    check(w.grad, finite_differences(lambda w: float((slope(X, w)[1] ** 2).sum()), W), 1e-5)


def finite_differences(function: Callable[[Array], float], x: Array) -> Array:
    step = 1e-6
    result = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        up, down = x.copy(), x.copy()
        up[place] += step
        down[place] -= step
        result[place] = (function(up) - function(down)) / (2 * step)
    return result


def test_inside_no_grad() -> None:
    w = tracer.tensor(W, requires_grad=True)
    with tracer.no_grad():
        gradient = grad(energy)(X, w)
    check(gradient, slope(X, W)[0])
    assert not gradient.requires_grad


def test_auxiliary_results() -> None:
    def function(x: Any) -> Any:
        y = tracer.exp(x)
        return y.sum(), {"y": y, "name": "kept"}

    for form in (lambda f: f, trace):
        gradient, aux = form(grad(function, has_aux=True))(X)
        check(gradient, np.exp(X))
        check(aux["y"], np.exp(X))
        assert aux["name"] == "kept"
        assert not aux["y"].requires_grad
    (value, aux), gradient = value_and_grad(function, has_aux=True)(X)
    check(value, np.exp(X).sum())


def test_what_nothing_depends_on_gets_zeros() -> None:
    for form in FORMS:
        first, second = form(grad(lambda x, y: (x * 2).sum(), argnums=(0, 1)))(X, W)
        check(first, np.full_like(X, 2))
        check(second, np.zeros_like(W))
        check(form(grad(lambda x: tracer.tensor(1.0)))(X), np.zeros_like(X))
    check(grad(lambda x: 1.0)(X), np.zeros_like(X))
    w = tracer.tensor(W, requires_grad=True)
    check(grad(lambda x: (w * 2).sum())(X), np.zeros_like(X))
    check(grad(lambda x: x)(tracer.tensor(2.0)), 1.0)


def test_keyword_arguments_and_methods() -> None:
    class Model:
        def __init__(self) -> None:
            self.w = tracer.tensor(W)

        def loss(self, x: Any, *, scale: float = 1.0) -> Any:
            return energy(x, self.w) * scale

    model = Model()
    check(grad(model.loss)(X, scale=3.0), 3 * slope(X, W)[0])
    check(trace(grad(model.loss))(X, scale=3.0), 3 * slope(X, W)[0])


@pytest.mark.kernels("compiled")
def test_grad_follows_state() -> None:
    """A compiled gradient sees a captured Tensor that changes between calls."""
    w = tracer.tensor(W)
    compiled = trace(grad(lambda x: energy(x, w)))
    check(compiled(X), slope(X, W)[0])
    w.mul_(2)
    check(compiled(X), slope(X, 2 * W)[0])


def test_values_that_gradients_need_and_that_change_in_place() -> None:
    """In eager code the old value is gone; a trace still has it."""
    w = tracer.tensor(W, requires_grad=True)
    loss = (w * w).sum()
    with tracer.no_grad():
        w.mul_(3)
    with pytest.raises(tracer.GradError, match=r"float64\[3, 2\] of Mul at .*changed in place"):
        loss.backward()

    def step(v: Any) -> Any:
        loss = (v * v).sum()
        with tracer.no_grad():
            v.mul_(3)
        loss.backward()

    state = tracer.tensor(W, requires_grad=True)
    trace(lambda: step(state))()
    check(state, 3 * W)
    check(state.grad, 2 * W)


def test_what_backward_leaves_may_be_changed_in_place() -> None:
    seed = tracer.tensor(np.ones(3))
    for form in FORMS:
        x, y = (tracer.tensor(np.ones(3), requires_grad=True) for _ in range(2))

        def clipped(g: Any, x: Any = x, y: Any = y) -> None:
            (x + y).backward(g)
            x.grad.mul_(0.5)
            y.grad.add_(1)

        form(clipped)(seed)
        check(x.grad, np.full(3, 0.5))
        check(y.grad, np.full(3, 2.0))
        check(seed, np.ones(3))

        def again(y: Any = y) -> None:
            y.grad.zero_()
            (y * 2).sum().backward()
            y.grad.mul_(3)

        form(again)()
        check(y.grad, np.full(3, 6.0))


def test_gradients_of_gradients_through_traced_functions_that_change_state() -> None:
    count = tracer.tensor(np.zeros(()))

    @trace
    def cube(x: Any) -> Any:
        count.add_(1)
        return (x**3).sum()

    check(grad(cube)(X), 3 * X**2)
    with pytest.raises(tracer.GradError, match=r"traced and changes state.*trace the whole"):
        grad(lambda x: grad(cube)(x).sum())(X)
    check(trace(grad(lambda x: grad(cube)(x).sum()))(X), 6 * X)


# ---- products with Jacobians ---------------------------------------------------------------------


def test_vjp() -> None:
    def function(x: Any, w: Any) -> Any:
        return {"product": x @ w, "count": tracer.argmax(x), "sum": x.sum(axis=0)}

    value, pull = vjp(function, X, W)
    check(value["product"], X @ W)
    assert not value["product"].requires_grad
    first, second = np.ones((4, 2)), np.arange(3.0)
    for scale in (1.0, 2.0):  # may be called again
        dx, dw = pull({"product": scale * first, "count": None, "sum": second})
        check(dx, scale * first @ W.T + second)
        check(dw, X.T @ (scale * first))
    with pytest.raises(tracer.GradError, match="structure of the value"):
        pull(first)
    with pytest.raises(tracer.GradError, match=r"cotangent \d must be float64\[4, 2\]"):
        pull({"product": first[:1], "count": None, "sum": second})

    def through(x: Any, w: Any, g: Any) -> Any:
        return vjp(lambda x, w: x @ w, x, w)[1](g)

    for form in FORMS:
        dx, dw = form(through)(X, W, first)
        check(dx, first @ W.T)
        check(dw, X.T @ first)
    product, pull, aux = vjp(lambda x: (x * 2, "aux"), X, has_aux=True)
    check(product, 2 * X)
    check(pull(X)[0], 2 * X)
    assert aux == "aux"
    _, pull = vjp(lambda x, k, name: tracer.take(x, k, axis=0) * len(name), X, np.array([1]), "ab")
    dx, *others = pull(np.ones((1, 3)))
    check(dx, np.array([[0, 0, 0], [2, 2, 2], [0, 0, 0], [0, 0, 0]]))
    assert others == [None, None]


@pytest.mark.kernels("compiled")
def test_jvp() -> None:
    direction = RNG.standard_normal(X.shape)
    for form in FORMS:
        value, tangent = form(lambda x, t: jvp(lambda x: tracer.tanh(x @ W), (x,), (t,)))(
            X, direction
        )
        check(value, np.tanh(X @ W))
        check(tangent, (1 - np.tanh(X @ W) ** 2) * (direction @ W))
    value, tangent = jvp(lambda x, y: (x * y, x.sum()), (X, X), (direction, 2 * direction))
    check(tangent[0], 3 * X * direction)
    check(tangent[1], direction.sum())


@pytest.mark.kernels("compiled")
def test_hvp() -> None:
    direction = RNG.standard_normal(3)
    x = X[0]
    for form in FORMS:
        gradients, products = form(lambda x, t: hvp(lambda x: (x**3).sum() * x[0], (x,), (t,)))(
            x, direction
        )
        cubes = (x**3).sum()
        wanted = 3 * x**2 * x[0]
        wanted[0] += cubes
        check(gradients[0], wanted)
        second = np.diag(6 * x * x[0])
        second[0] += 3 * x**2
        second[:, 0] += 3 * x**2
        check(products[0], second @ direction)


def test_jacobian_and_hessian() -> None:
    x = X[0]
    for form in FORMS:
        check(form(jacobian(lambda x: tracer.sin(x) * 2))(x), np.diag(2 * np.cos(x)))
        check(form(jacobian(lambda s, x: x[:2] * s.sum(), argnums=1))(X, x), X.sum() * np.eye(2, 3))
        check(form(hessian(lambda x: (x**3).sum()))(x), np.diag(6 * x))
    check(jacobian(lambda x: x.reshape(3, 1)[:0])(x), np.zeros((0, 1, 3)))
    assert jacobian(lambda x: x @ x)(x).shape == (3,)


def test_jacobians_and_hessians_of_trees_and_several_arguments() -> None:
    """In the structure of the value stands that of the argument, or of all arguments that argnums names."""
    x, w = X[0], W[0]

    def outer(p: Any, y: Any) -> Any:
        return {"product": p["x"][:, None] * p["w"][0] * y, "none": None, "square": [y * y]}

    def energy(p: Any, y: Any) -> Any:
        return (p["x"] ** 2).sum() * (p["w"][0] ** 3).sum() * y

    tree, y = {"x": x, "w": (w,)}, np.float64(0.5)
    for form in FORMS:
        found = form(jacobian(outer, argnums=(0, 1)))(tree, y)
        assert found["none"] is None
        by_tree, by_y = found["product"]
        check(by_tree["x"], np.einsum("ij,k->ikj", np.eye(3), w * y))
        check(by_tree["w"][0], np.einsum("i,jk->ijk", x * y, np.eye(2)))
        check(by_y, np.outer(x, w))
        by_tree, by_y = found["square"][0]
        check(by_tree["x"], np.zeros(3))
        check(by_y, 2 * y)
        alone = form(jacobian(outer, argnums=[1]))(tree, y)
        check(alone["product"][0], np.outer(x, w))

        second = form(hessian(energy, argnums=(0, 1)))(tree, y)
        squares, cubes = (x**2).sum(), (w**3).sum()
        check(second[0]["x"][0]["x"], 2 * np.eye(3) * cubes * y)
        check(second[0]["x"][0]["w"][0], np.outer(2 * x, 3 * w**2) * y)
        check(second[0]["w"][0][0]["w"][0], np.diag(6 * w) * squares * y)
        check(second[1][0]["x"], 2 * x * cubes)
        check(second[1][1], 0)
        # gradients go through a Jacobian, to its own argument and to what lies around
        through = grad(lambda x, w: jacobian(lambda x: x**3 * w.sum())(x).sum(), argnums=(0, 1))
        by_x, by_w = form(through)(x, w)
        check(by_x, 6 * x * w.sum())
        check(by_w, np.full(2, (3 * x**2).sum()))
    with pytest.raises(tracer.GradError, match=r"result 1 of .* is int64\[\]; leave it out"):
        jacobian(lambda x: (x, tracer.argmax(x)))(x)
    with pytest.raises(tracer.GradError, match=r"result 0 of .* is a str"):
        jacobian(lambda x: "x")(x)
    with pytest.raises(tracer.ArgumentError, match="names argument 2"):
        jacobian(lambda x, w: x, argnums=(0, 2))(x, w)


# ---- wrong uses ----------------------------------------------------------------------------------


def test_errors() -> None:
    with pytest.raises(
        tracer.GradError, match=r"one floating 0-d value.*gave float64\[4, 3\]; reduce it"
    ):
        grad(lambda x: x * 2)(X)
    with pytest.raises(tracer.GradError, match="gave int64"):
        grad(lambda x: tracer.argmax(x))(X)
    with pytest.raises(tracer.GradError, match="gave tuple"):
        grad(lambda x: (x.sum(), x))(X)
    with pytest.raises(tracer.GradError, match=r"argument 0 is int64\[2\].*floating"):
        grad(lambda x: x.sum())(np.array([1, 2]))
    with pytest.raises(tracer.GradError, match="argument 0 is int64"):
        grad(lambda x: x * 2.0)(3)
    with pytest.raises(tracer.GradError, match=r"leaf 1 of argument 0 is int64\[1\]"):
        grad(lambda x: x[0].sum())([X, np.array([1])])
    with pytest.raises(tracer.GradError, match="argument 0 is of class str"):
        grad(lambda x: 1.0)("text")
    with pytest.raises(tracer.ArgumentError, match=r"argnums=2 names argument 2.*2 positional"):
        grad(energy, argnums=2)(X, W)
    with pytest.raises(tracer.ArgumentError, match="names an argument twice"):
        grad(energy, argnums=(0, -2))(X, W)
    with pytest.raises(tracer.ArgumentError, match=r"takes a function, got Tensor.*backward"):
        grad(tracer.tensor(X))
    with pytest.raises(tracer.GradError, match=r"has_aux.*pair"):
        grad(lambda x: x.sum(), has_aux=True)(X)
    with pytest.raises(tracer.GradError, match="gave float64") as caught:
        grad(lambda x: x)(X)
    assert "test_functional_gradients.py" in str(caught.value)


def test_the_users_own_errors_pass() -> None:
    def broken(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        grad(broken)(X)


# ---- gradients of functions that have rules of their own here ------------------------------------

CASES: list[tuple[str, Callable[[Any], Any]]] = [
    ("getitem", lambda x: x[::2, [0, 2, 0]]),
    ("einsum", lambda x: tracer.einsum("ij,kj,k->i", x, x, x[:, 0])),
    ("tensordot", lambda x: tracer.tensordot(x, x, ([0], [0]))),
    ("outer", lambda x: tracer.outer(x[0], x[1])),
    ("vecdot", lambda x: tracer.vecdot(x, x[::-1])),
    ("where", lambda x: tracer.where(x > 0, x * x, -x)),
    ("pow", lambda x: (x * x + 1) ** 2.5 + x**3),
    ("clip", lambda x: tracer.clip(x, -0.5, 0.5) * x),
    ("stack", lambda x: tracer.stack([x, x * 2], axis=1)),
    ("split", lambda x: tracer.split(x, 2)[0] * tracer.split(x, 2)[1]),
    ("pad", lambda x: tracer.pad(x, ((1, 2), (0, 1)), "edge") ** 2),
    ("repeat", lambda x: tracer.repeat(x, [2, 0, 1, 1], axis=0) ** 2),
    ("roll", lambda x: tracer.roll(x, 1) * x),
    (
        "take_along_axis",
        lambda x: tracer.take_along_axis(x, np.array([[0, 1, 1, 2]]).T, axis=1) ** 2,
    ),
    (
        "scatter_add",
        lambda x: tracer.scatter_add(x, np.array([[0, 0], [1, 2]]), x[:2, :2] ** 2, axis=1),
    ),
    ("std", lambda x: tracer.std(x, axis=0, correction=1)),
    ("norm", lambda x: tracer.vector_norm(x, axis=1, ord=3)),
    ("logsumexp", lambda x: tracer.logsumexp(x, axis=0)),
    ("softmax", lambda x: tracer.softmax(x, axis=0) * x),
    ("max", lambda x: x.max(dim=1).values * x.amin(0).sum()),
    ("cumulative_sum", lambda x: tracer.cumulative_sum(x, axis=0) ** 2),
    ("layer_norm", lambda x: tracer.layer_norm(x, x[0], x[1]) ** 2),
    ("full", lambda x: tracer.full((2, 2), x.sum()) ** 2),
]


@pytest.mark.parametrize(("name", "function"), CASES, ids=[c[0] for c in CASES])
def test_gradients_of_functions(name: str, function: Callable[[Any], Any]) -> None:
    def scalar(x: Any) -> Any:
        y = function(x)
        return (y * np.cos(np.arange(y.numel())).reshape(y.shape)).sum()

    wanted = finite_differences(lambda x: float(scalar(tracer.tensor(x))), X)
    check(grad(scalar)(X), wanted, 1e-5)
