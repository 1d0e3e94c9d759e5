"""Hooks on Tensors, nodes and modules: when they run, what they may return, and that compiled programs heed them."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

import tracer
from tracer import autograd, nn, optim, trace

# What is recorded is looked at here, by its results. Compiled too: hooks of parameters, of modules, and inside.
pytestmark = pytest.mark.kernels("python")


def leaf(*values: float) -> tracer.Tensor:
    return tracer.tensor(list(map(float, values)), requires_grad=True)


def equal(got: Any, *wanted: float) -> None:
    assert isinstance(got, tracer.Tensor)
    np.testing.assert_allclose(np.asarray(got.detach()).ravel(), wanted, 1e-6)


# ---- Tensors and nodes ---------------------------------------------------------------------------


def test_the_order_in_which_hooks_run() -> None:
    log: list[Any] = []
    x, w = leaf(1, 1), leaf(1, 1)
    a = x * 2
    b = a * w
    for name, t in {"x": x, "w": w, "a": a, "b": b}.items():
        t.register_hook(lambda g, name=name: log.append(name))
    x.register_post_accumulate_grad_hook(lambda t: log.append("x.grad"))
    a.grad_fn.register_prehook(lambda go: log.append("before a"))  # type: ignore[union-attr]
    a.grad_fn.register_hook(lambda gi, go: log.append(("after a", gi[1])))  # type: ignore[union-attr]
    b.sum().backward()
    assert log == ["b", "w", "a", "before a", ("after a", None), "x", "x.grad"]


def test_what_a_hook_returns_stands_in_and_retain_grad_comes_last() -> None:
    x = leaf(1, 2)
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.retain_grad()
    y.register_hook(lambda g: g + 1)
    x.register_hook(lambda g: g * 100)
    y.sum().backward()
    equal(y.grad, 11, 11)
    equal(x.grad, 2200, 2200)


def test_a_hook_sees_the_whole_gradient_once() -> None:
    seen: list[Any] = []
    x = leaf(1, 2)
    y = x[:2] * 1
    y.register_hook(seen.append)
    x.register_hook(seen.append)
    (y * 3 + y * y + x).sum().backward()
    assert len(seen) == 2
    equal(seen[0], 5, 7)
    equal(seen[1], 6, 8)


def test_handles_take_hooks_away() -> None:
    x = leaf(1)
    handle = x.register_hook(lambda g: g * 10)
    with x.register_hook(lambda g: g * 3):
        x.sum().backward()
        equal(x.grad, 30)
    x.sum().backward()
    equal(x.grad, 40)
    handle.remove()
    handle.remove()
    x.sum().backward()
    equal(x.grad, 41)


def test_a_hook_may_remove_itself() -> None:
    x = leaf(1)
    handles: list[Any] = []

    def once(gradient: tracer.Tensor) -> tracer.Tensor:
        handles.pop().remove()
        return gradient * 5

    handles.append(x.register_hook(once))
    x.register_hook(lambda g: g + 1)
    x.sum().backward()
    x.sum().backward()
    equal(x.grad, 8)


def test_an_update_in_the_backward_sees_complete_gradients_only() -> None:
    x, w = leaf(1, 2), leaf(3, 4)
    b = x + w  # one gradient for both: the update of the one must not change the other's
    seen = []

    def update(p: tracer.Tensor) -> None:
        assert p.grad is not None
        seen.append(p is w)
        with tracer.no_grad():
            p.grad.mul_(100)
            p.sub_(p.grad)
        p.grad = None

    w.register_post_accumulate_grad_hook(update)
    (b * w.detach() + b).sum().backward()
    equal(w, 3 - 400, 4 - 500)
    equal(x.grad, 4, 5)
    assert seen == [True] and w.grad is None


def test_hooks_may_use_history_under_create_graph() -> None:
    x = leaf(1, 2)
    y = x * x
    y.register_hook(lambda g: g * x)
    (g,) = autograd.grad(y.sum(), x, create_graph=True)
    equal(g, 2, 8)
    (h,) = autograd.grad(g.sum(), x)
    equal(h, 4, 8)


def test_an_error_in_a_hook_leaves_everything_as_it_was() -> None:
    w = leaf(1, 2)
    opt = optim.SGD([w], lr=1.0)

    @trace
    def step(x: tracer.Tensor) -> None:
        opt.zero_grad()
        (w * x).sum().backward()
        opt.step()

    x = tracer.tensor([1.0, 1.0])
    with w.register_hook(lambda g: g / 0 // "no"), pytest.raises(TypeError):  # type: ignore[operator]
        step(x)
    equal(w, 1, 2)
    assert w.grad is None
    step(x)
    equal(w, 0, 1)


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (lambda g: 3, r"<lambda> must return None or a Tensor float32\[2\] .*, got int"),
        (lambda g: g.sum(), r"must return float32\[2\] .*, got float32"),
        (lambda g: g.double(), r"must return float32\[2\] .*, got float64\[2\]"),
    ],
)
def test_a_result_that_does_not_fit_is_refused(hook: Any, words: str) -> None:
    x = leaf(1, 2)
    x.register_hook(hook)
    with pytest.raises(tracer.GradError, match=words) as caught:
        x.sum().backward()
    assert "test_hooks.py" in str(caught.value)
    assert x.grad is None


def test_hooks_where_no_gradient_will_come() -> None:
    x, k = leaf(1, 2), tracer.tensor([1.0])
    with pytest.raises(tracer.GradError, match="none will arrive at a hook"):
        k.register_hook(print)
    with pytest.raises(tracer.GradError, match="is no leaf"):
        (x * 2).register_post_accumulate_grad_hook(print)
    with pytest.raises(tracer.GradError, match="set requires_grad first"):
        k.register_post_accumulate_grad_hook(print)
    with pytest.raises(tracer.ArgumentError, match="a hook is a function, got Tensor"):
        x.register_hook(x)  # type: ignore[arg-type]
    y = x * 2
    assert y.grad_fn is not None
    y.grad_fn.register_hook(lambda gi, go: (gi[0],))
    with pytest.raises(tracer.GradError, match="2 of them; got 1"):
        y.sum().backward()


# ---- compiled programs ---------------------------------------------------------------------------


@pytest.mark.kernels("compiled")
def test_a_traced_step_heeds_hooks_of_parameters_and_their_removal() -> None:
    w = leaf(1, 2)
    opt = optim.SGD([w], lr=1.0)

    @trace
    def step(x: tracer.Tensor) -> None:
        opt.zero_grad()
        (w * x).sum().backward()
        opt.step()

    x = tracer.tensor([1.0, 1.0])
    step(x)
    equal(w, 0, 1)
    handle = w.register_hook(lambda g: g * 10)
    step(x)
    equal(w, -10, -9)
    leaf(1).register_hook(print)  # somebody else's: no new trace
    step(x)
    equal(w, -20, -19)
    assert step.timings().traces == 2
    handle.remove()
    step(x)
    equal(w, -21, -20)
    assert step.timings().traces == 2  # the first program fits again


def test_the_same_hook_again_is_no_new_trace() -> None:
    w, x = leaf(1, 2), leaf(1, 1)
    model = Scaled()

    @trace
    def step(x: tracer.Tensor) -> None:
        (model(w) * x).sum().backward()

    def quintuple(gradient: tracer.Tensor) -> tracer.Tensor:
        return gradient * 5

    step(x)
    for _ in range(3):
        w.grad = x.grad = None
        with (
            w.register_hook(quintuple),
            x.register_hook(lambda g: g * 7),  # another function of the same code
            model.register_forward_hook(lambda m, args, out: out * 2),
        ):
            step(x)
        equal(w.grad, 10, 10)
        equal(x.grad, 14, 28)
        w.grad = x.grad = None
        step(x)
        equal(w.grad, 1, 1)
        equal(x.grad, 1, 2)
    assert step.timings().traces == 2
    factors = []
    for factor in (1.0, 3.0):
        w.grad = x.grad = None
        with w.register_hook(lambda g, by=factor: g * by):  # not the same one
            step(x)
        assert w.grad is not None
        factors.append(float(w.grad[0].detach()))
    assert factors == [1, 3]


FACTOR = 10.0


def test_what_a_hook_reads_is_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    w, x = leaf(1, 2), leaf(1, 1)
    box = {"shift": tracer.tensor([1.0, 2.0])}
    w.register_hook(lambda g: g * FACTOR + box["shift"])
    x.register_hook(lambda g: g * FACTOR)

    @trace
    def step(x: tracer.Tensor) -> None:
        (w * x).sum().backward()

    for wanted in ((11, 12, 10, 20), (21, 22, 20, 40), (21, 21, 20, 40)):
        w.grad = x.grad = None
        step(x)
        equal(w.grad, *wanted[:2])
        equal(x.grad, *wanted[2:])
        if wanted[0] == 21:
            box["shift"] = tracer.tensor([1.0, 1.0])
        monkeypatch.setattr(f"{__name__}.FACTOR", 20.0)


def test_arguments_bring_their_own_hooks() -> None:
    @trace
    def step(x: tracer.Tensor) -> None:
        (x * 2).sum().backward()

    x, y, z = leaf(1), leaf(1), leaf(1)
    handle = x.register_hook(lambda g: g * 7)
    y.register_hook(lambda g: g * 8)
    for t, wanted in ((x, 14), (y, 16), (z, 2)):
        step(t)
        equal(t.grad, wanted)
    handle.remove()
    x.grad = None
    step(x)
    equal(x.grad, 2)
    assert step.timings().traces == 3


@pytest.mark.kernels("compiled")
def test_hooks_inside_a_trace_are_part_of_the_program() -> None:
    w = leaf(3, 4)

    @trace
    def loss(x: tracer.Tensor) -> tracer.Tensor:
        y = x * w
        y.register_hook(lambda g: g * 10)
        y.grad_fn.register_hook(lambda gi, go: (gi[0] + 1, gi[1]))  # type: ignore[union-attr]
        return y.sum()

    x = leaf(1, 2)
    handle = x.register_hook(lambda g: g * 100)  # runs outside, where its gradient arrives
    result = loss(x)
    result.register_hook(lambda g: g * 2)
    result.backward()
    equal(x.grad, 6100, 8100)
    equal(w.grad, 20, 40)
    handle.remove()
    loss(x * 1).backward()
    assert loss.timings().traces == 2  # an argument with a history is another kind of argument


def test_a_hook_left_on_what_is_outside_is_an_error() -> None:
    w = leaf(1, 2)
    model = nn.Tanh()

    @trace
    def left(x: tracer.Tensor) -> tracer.Tensor:
        w.register_hook(lambda g: g)
        return (w * x).sum()

    @trace
    def left_on_a_module(x: tracer.Tensor) -> tracer.Tensor:
        model.register_forward_hook(lambda m, a, r: r)
        return model(x)

    @trace
    def removed(x: tracer.Tensor) -> tracer.Tensor:
        with w.register_hook(lambda g: g * 5):
            (w * x).sum().backward()
        return x * 2

    x = tracer.tensor([1.0, 1.0])
    for wrong in (left, left_on_a_module):
        with pytest.raises(tracer.TraceError, match=r"registers a hook, at .*test_hooks.py:\d+"):
            wrong(x)
    assert not autograd.hooks.functions_of(w) and not autograd.hooks.functions_of(model)
    removed(x)
    removed(x)
    equal(w.grad, 10, 10)
    handle = w.register_hook(lambda g: g)

    @trace
    def removes(x: tracer.Tensor) -> tracer.Tensor:
        handle.remove()
        return x * 2

    with pytest.raises(tracer.TraceError, match="removed while a function is traced"):
        removes(x)
    assert len(autograd.hooks.functions_of(w)) == 1


# ---- what is kept for gradients ------------------------------------------------------------------


class Square(autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 2 * x


@pytest.mark.parametrize(
    "function", [lambda x: x * x, Square.apply, trace(lambda x: x * x)], ids=["op", "own", "traced"]
)
def test_what_is_kept_goes_through_hooks(function: Any) -> None:
    log: list[str] = []

    def pack(t: tracer.Tensor) -> Any:
        log.append("pack")
        assert not t.requires_grad
        return t.half()

    def unpack(kept: Any) -> Any:
        log.append("unpack")
        return kept.float()

    x = leaf(1, 1 / 3)
    with autograd.graph.saved_tensors_hooks(pack, unpack):
        y = function(x)
    assert log and set(log) == {"pack"}
    y.sum().backward()
    assert x.grad is not None and log.count("unpack") == log.count("pack")
    third = np.float32(np.float16(1 / 3))
    np.testing.assert_array_equal(x.grad.detach(), np.float32([2, 2 * third]))


def test_hooks_of_what_is_kept_inside_a_trace_are_part_of_the_program() -> None:
    @trace
    def square(x: tracer.Tensor) -> tracer.Tensor:
        with autograd.graph.saved_tensors_hooks(lambda t: t.half(), lambda kept: kept.float()):
            return x * x

    x = leaf(1, 1 / 3)
    y = square(x)
    assert {t.dtype for t in y.grad_fn.residuals} == {np.dtype("float16")}  # type: ignore[union-attr]
    y.sum().backward()
    np.testing.assert_array_equal(
        x.grad.detach(),  # type: ignore[union-attr]
        np.float32([2, 2 * np.float32(np.float16(1 / 3))]),
    )


def test_hooks_of_what_is_kept_give_it_back() -> None:
    x = leaf(1, 2)
    with autograd.graph.saved_tensors_hooks(lambda t: t.sum(), lambda kept: kept):
        y = (x * x).sum()
    with pytest.raises(tracer.GradError, match=r"must give back the Tensor float32\[2\] that was"):
        y.backward()
    with pytest.raises(tracer.ArgumentError, match="a hook is a function, got int"):
        autograd.graph.saved_tensors_hooks(1, 2)  # type: ignore[arg-type]


# ---- modules -------------------------------------------------------------------------------------


class Scaled(nn.Module):
    def forward(self, x: Any, scale: float = 1.0) -> Any:
        if scale < 0:
            raise ValueError("negative")
        return x * scale


def test_forward_hooks() -> None:
    module, log = Scaled(), []
    module.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    module.register_forward_pre_hook(lambda m, args: args[0] + 1, prepend=True)
    module.register_forward_hook(lambda m, args, out: out * 10)
    module.register_forward_hook(lambda m, args, out: log.append((m is module, args, out)))
    equal(module(tracer.tensor([1.0])), 40)
    ((itself, args, out),) = log
    assert itself
    equal(args[0], 4)
    equal(out, 40)


def test_forward_hooks_with_keyword_arguments() -> None:
    module = Scaled()
    module.register_forward_pre_hook(
        lambda m, args, kwargs: (args, {"scale": kwargs["scale"] + 1}), with_kwargs=True
    )
    module.register_forward_hook(
        lambda m, args, kwargs, out: out + kwargs["scale"], with_kwargs=True
    )
    equal(module(tracer.tensor([1.0]), scale=2.0), 6)
    module.register_forward_pre_hook(lambda m, args, kwargs: args, with_kwargs=True)
    with pytest.raises(tracer.ArgumentError, match=r"must return None or a tuple \(args, kwargs\)"):
        module(tracer.tensor([1.0]), scale=2.0)


def test_hooks_that_run_in_any_case() -> None:
    module, log = Scaled(), []
    module.register_forward_hook(lambda m, args, out: log.append("ordinary"))
    module.register_forward_hook(lambda m, args, out: log.append(out), always_call=True)
    with pytest.raises(ValueError, match="negative"):
        module(1.0, -1.0)
    assert log == [None]
    module.register_forward_hook(lambda m, args, out: 1 // 0, always_call=True)
    with (
        pytest.warns(RuntimeWarning, match="raised ZeroDivisionError while another error"),
        pytest.raises(ValueError, match="negative"),
    ):
        module(1.0, -1.0)


def test_backward_hooks() -> None:
    module, log = Scaled(), []
    module.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
    module.register_full_backward_hook(lambda m, gi, go: log.append((gi, go)))
    module.register_full_backward_hook(lambda m, gi, go: (gi[0] * 10, None))
    x = leaf(1, 2)
    module(x, 3.0).sum().backward()
    (((inner, nothing), (outer,)),) = log
    assert nothing is None
    equal(outer, 2, 2)
    equal(inner, 6, 6)
    equal(x.grad, 60, 60)


def test_backward_hooks_of_a_module_whose_inputs_need_nothing() -> None:
    log: list[Any] = []
    model = nn.Linear(2, 1, bias=False)
    model.register_full_backward_hook(lambda m, gi, go: log.append((gi, go)))
    model(tracer.ones((1, 2))).sum().backward()
    assert len(log) == 1 and log[0][0] == (None,)
    equal(log[0][1][0], 1)
    with tracer.no_grad():
        model(tracer.ones((1, 2)))
    model.register_full_backward_hook(lambda m, gi, go: (go[0],))
    with pytest.raises(tracer.GradError, match="none of which requires one; return None"):
        model(tracer.ones((1, 2))).sum().backward()


def test_an_argument_changed_in_place_is_refused_under_backward_hooks() -> None:
    class Changes(nn.Module):
        def forward(self, x: Any) -> Any:
            with tracer.no_grad():
                x.detach().mul_(2)
            return x * 1

    module = Changes()
    module.register_full_backward_hook(lambda m, gi, go: None)
    with pytest.raises(
        tracer.GradError, match=r"Changes changes its argument float32\[1\] in place"
    ):
        module(leaf(1) * 1)


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
def test_backward_hooks_of_a_module_that_gives_back_its_argument(traced: bool) -> None:
    module = nn.Identity()
    module.register_full_backward_hook(lambda m, gi, go: (gi[0] * 2,))
    module.register_forward_hook(lambda m, args, out: (out, out[:1]))
    f = trace(lambda x: module(x)) if traced else module
    x = leaf(1, 2)
    whole, part = f(x)
    (whole.sum() + 3 * part.sum()).backward()
    equal(x.grad, 8, 2)


def test_hooks_keep_nothing_alive() -> None:
    module = Scaled()
    module.register_full_backward_hook(lambda m, gi, go: None)
    x = leaf(1, 2)
    gc.disable()
    try:
        inner = x * 2
        inner.register_hook(lambda g: g * 1)
        out = module(inner)
        out.retain_grad()
        seen = [weakref.ref(t) for t in (inner, out)]
        del inner, out
        assert [reference() for reference in seen] == [None, None]
    finally:
        gc.enable()


@pytest.mark.kernels("compiled")
def test_a_traced_step_heeds_hooks_of_modules() -> None:
    model = nn.Sequential(Scaled(), nn.Tanh())
    x = leaf(0, 0)

    @trace
    def loss(x: tracer.Tensor) -> tracer.Tensor:
        return model(x).sum()

    def gradient() -> Any:
        x.grad = None
        loss(x).backward()
        return x.grad

    equal(gradient(), 1, 1)
    handles = [
        model[0].register_forward_hook(lambda m, args, out: out * 3),
        model[1].register_full_backward_hook(lambda m, gi, go: (gi[0] * 10,)),
        model.register_full_backward_pre_hook(lambda m, go: (go[0] * 100,)),
    ]
    equal(gradient(), 3000, 3000)
    for handle in handles:
        handle.remove()
    equal(gradient(), 1, 1)
    assert loss.timings().traces == 2


def test_copies_of_modules_keep_hooks_and_tensors_do_not() -> None:
    module = Scaled()
    handle = module.register_forward_hook(_double)
    other = copy.deepcopy(module)
    third = pickle.loads(pickle.dumps(module))
    handle.remove()
    one = tracer.tensor([1.0])
    equal(module(one), 1)
    equal(other(one), 2)
    equal(third(one), 2)
    x = leaf(1)
    x.register_hook(lambda g: g * 10)
    y = copy.deepcopy(x)
    y.sum().backward()
    equal(y.grad, 1)


def _double(module: Any, args: Any, result: Any) -> Any:
    return result * 2
