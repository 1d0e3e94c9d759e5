"""Optimisers against formulas written in NumPy; compiled against eager; options that change."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest

import tracer
from tracer import nn, optim, trace

pytestmark = pytest.mark.cpu

SHAPES = ((3, 4), (5,))


def arrays(seed: int, dtype: Any = np.float64) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(dtype) for shape in SHAPES]


# ---- formulas, one parameter at a time, in float64 -----------------------------------------------


def sgd(
    p: np.ndarray,
    grads: list[np.ndarray],
    lr: float = 1e-3,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
    maximize: bool = False,
) -> np.ndarray:
    b = np.zeros_like(p)
    for g in grads:
        d = (-g if maximize else g) + weight_decay * p
        b = momentum * b + (1 - dampening) * d
        p = p - lr * (d + momentum * b if nesterov else b if momentum else d)
    return p


def adam(
    p: np.ndarray,
    grads: list[np.ndarray],
    lr: float = 1e-3,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    amsgrad: bool = False,
    maximize: bool = False,
    decoupled: bool = False,
) -> np.ndarray:
    m, v, largest = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
    for t, g in enumerate(grads, 1):
        g = -g if maximize else g
        if decoupled:
            p = p * (1 - lr * weight_decay)
        else:
            g = g + weight_decay * p
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * g * g
        largest = np.maximum(largest, v)
        root = np.sqrt((largest if amsgrad else v) / (1 - betas[1] ** t))
        p = p - lr * (m / (1 - betas[0] ** t)) / (root + eps)
    return p


def adamw(p: np.ndarray, grads: list[np.ndarray], weight_decay: float = 1e-2, **options: Any):
    return adam(p, grads, weight_decay=weight_decay, decoupled=True, **options)


FORMULAS = {optim.SGD: sgd, optim.Adam: adam, optim.AdamW: adamw}
CASES: list[tuple[type[optim.Optimizer], dict[str, Any]]] = [
    (optim.SGD, {"lr": 0.1}),
    (optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    (optim.SGD, {"lr": 0.1, "momentum": 0.5, "dampening": 0.3, "maximize": True}),
    (optim.Adam, {"lr": 0.01}),
    (optim.Adam, {"lr": 0.01, "betas": (0.8, 0.99), "eps": 1e-3, "weight_decay": 0.1}),
    (optim.Adam, {"lr": 0.01, "betas": (0.5, 0.6), "amsgrad": True, "maximize": True}),
    (optim.AdamW, {"lr": 0.01}),
]
NAMES = [f"{kind.__name__}-{'-'.join(options)}" for kind, options in CASES]


def eager(kind: type[optim.Optimizer], dtype: Any = np.float64, **options: Any):
    parameters = [nn.Parameter(a) for a in arrays(0, dtype)]
    return parameters, kind(parameters, **options)


def update(optimizer: optim.Optimizer, parameters: list[nn.Parameter], grads: Any) -> None:
    """One step with given gradients, as eager code and as a traced function."""
    for p, g in zip(parameters, grads, strict=True):
        p.grad = tracer.asarray(g)
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize(("kind", "options"), CASES, ids=NAMES)
def test_steps_equal_the_formula(kind: type[optim.Optimizer], options: dict[str, Any]) -> None:
    parameters, optimizer = eager(kind, **options)
    starts = arrays(0)
    for count in range(1, 6):
        update(optimizer, parameters, arrays(count))
        for k, p in enumerate(parameters):
            grads = [arrays(seed)[k] for seed in range(1, count + 1)]
            expected = FORMULAS[kind](starts[k], grads, **options)
            np.testing.assert_allclose(p.detach(), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("kind", "options"), CASES, ids=NAMES)
def test_compiled_steps_equal_eager_ones(
    kind: type[optim.Optimizer], options: dict[str, Any]
) -> None:
    parameters, optimizer = eager(kind, np.float32, **options)
    others, other = eager(kind, np.float32, **options)
    step = trace(lambda grads: update(other, others, grads))
    for count in range(1, 6):
        grads = arrays(count, np.float32)
        update(optimizer, parameters, grads)
        step(grads)
        for p, q in zip(parameters, others, strict=True):
            np.testing.assert_array_max_ulp(p.detach().array, q.detach().array, 2)
            for name, t in optimizer.state[p].items():
                np.testing.assert_array_max_ulp(t.array, other.state[q][name].array, 1)
    assert step.timings().traces == 1, "the first step is the second step's program"


def test_a_parameter_takes_one_kernel_and_adam_a_copy_of_its_count() -> None:
    for kind, copies in ((optim.SGD, 0), (optim.AdamW, 1)):
        parameters, optimizer = eager(kind, np.float32)
        step = trace(lambda grads, o=optimizer, p=parameters: update(o, p, grads))
        parts = step.plan(arrays(1, np.float32)).parts
        assert len(parts) == len(SHAPES) * (1 + copies)
        assert all(part.kind == "kernel" for part in parts)
        assert sum(part.bytes_written == 4 for part in parts) == copies * len(SHAPES)


def test_a_count_is_one_more_after_a_step_however_large_the_parameter() -> None:
    # Every task of the kernel reads the count that one of them would overwrite.
    weight = nn.Parameter(np.ones((300, 500), np.float32))
    optimizer = optim.Adam([weight])
    threads = tracer.get_num_threads()

    @trace
    def step(g):
        weight.grad = g
        optimizer.step()
        optimizer.zero_grad()

    try:
        for count in (1, 2, 3):
            tracer.set_num_threads(count)
            step(np.ones((300, 500), np.float32))
            assert float(optimizer.state[weight]["step"]) == count
    finally:
        tracer.set_num_threads(threads)
    np.testing.assert_allclose(weight.detach(), 1 - 3e-3, rtol=1e-5)


# ---- options that change -------------------------------------------------------------------------


def test_new_values_take_effect_without_a_new_program() -> None:
    options = {"lr": 0.1, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.1}
    parameters, optimizer = eager(optim.AdamW, np.float32, **options)
    others, other = eager(optim.AdamW, np.float32, **options)
    step = trace(lambda grads: update(other, others, grads))
    changes: list[dict[str, Any]] = [
        {},
        {"lr": 0.02},
        {"lr": np.float64(0.03)},
        {"lr": 1},
        {"lr": np.array(0.5, np.float32)},
        {"betas": (0.5, 0.7)},
        {"betas": np.array([0.6, 0.8])},
        {"eps": 0.1, "weight_decay": 0.3},
        {"lr": 0.0},
    ]
    for count, change in enumerate(changes):
        for o in (optimizer, other):
            o.param_groups[0].update(change)
        before = others[0].detach().array.copy()
        update(optimizer, parameters, arrays(count, np.float32))
        step(arrays(count, np.float32))
        assert np.array_equal(before, others[0].detach().array) == (change == {"lr": 0.0})
        for p, q in zip(parameters, others, strict=True):
            np.testing.assert_allclose(p.detach(), q.detach(), rtol=1e-6, atol=1e-7)
    other.param_groups[0]["betas"][0] = 0.4
    step(arrays(0, np.float32))
    assert step.timings().traces == 1
    assert other.param_groups[0]["betas"] == [0.4, 0.8]


def test_an_option_that_becomes_zero_or_not_is_another_program() -> None:
    parameters, optimizer = eager(optim.SGD, np.float32, lr=0.1)
    others, other = eager(optim.SGD, np.float32, lr=0.1)
    step = trace(lambda grads: update(other, others, grads))
    for count, momentum in enumerate((0.0, 0.9, 0.8, 0.0, 0.7)):
        for o in (optimizer, other):
            o.param_groups[0]["momentum"] = momentum
        update(optimizer, parameters, arrays(count, np.float32))
        step(arrays(count, np.float32))
        for p, q in zip(parameters, others, strict=True):
            np.testing.assert_allclose(p.detach(), q.detach(), rtol=1e-6, atol=1e-7)
    assert step.timings().traces == 2
    assert "momentum_buffer" in other.state[others[0]]


def test_amsgrad_that_is_switched_on_later_starts_from_zero() -> None:
    parameters, optimizer = eager(optim.Adam)
    optimizer.param_groups[0]["amsgrad"] = 1
    update(optimizer, parameters, arrays(1))
    square = optimizer.state[parameters[0]]["exp_avg_sq"].array
    np.testing.assert_array_equal(optimizer.state[parameters[0]]["max_exp_avg_sq"], square)
    assert optimizer.param_groups[0]["amsgrad"] is True


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda g: g.update(lr="fast"), "lr is a number, got 'fast'"),
        (lambda g: g.update(lr=None), "lr is a number, got None"),
        (lambda g: g.update(lr=np.zeros(2)), "lr is a number"),
        (lambda g: g.update(betas=(0.9,)), "betas is 2 numbers"),
        (lambda g: g.update(betas=0.9), "betas is 2 numbers, got 0.9"),
        (lambda g: trace(lambda: g.update(lr=0.1))(), "while a function is traced"),
    ],
)
def test_values_that_are_no_option_are_refused(change, text: str) -> None:
    optimizer = eager(optim.Adam)[1]
    before = repr(optimizer)
    with pytest.raises(tracer.TracerError, match=text):
        change(optimizer.param_groups[0])
    assert repr(optimizer) == before


# ---- groups --------------------------------------------------------------------------------------


def test_groups_have_options_of_their_own() -> None:
    weights = [nn.Parameter(np.ones(3)) for _ in range(3)]
    optimizer = optim.SGD(
        [{"params": weights[0]}, {"params": [weights[1]], "lr": 0.5, "momentum": 0.9}], lr=0.1
    )
    optimizer.add_param_group({"params": weights[2:], "maximize": True})
    for w in weights:
        w.grad = tracer.ones(3, "float64")
    optimizer.step()
    np.testing.assert_allclose([w.detach().array[0] for w in weights], [0.9, 0.5, 1.1])
    assert [g["momentum"] for g in optimizer.param_groups] == [0, 0.9, 0]
    assert list(optimizer.state[weights[1]]) == ["momentum_buffer"]


def test_parameters_without_gradient_stay_as_they_are() -> None:
    parameters, optimizer = eager(optim.AdamW, np.float32)
    parameters[0].grad = tracer.asarray(arrays(1, np.float32)[0])
    optimizer.step()
    np.testing.assert_array_equal(parameters[1].detach(), arrays(0, np.float32)[1])
    assert [float(optimizer.state[p]["step"]) for p in parameters] == [1, 0]
    optimizer.zero_grad(set_to_none=False)
    np.testing.assert_array_equal(parameters[0].grad, np.zeros(SHAPES[0]))
    assert parameters[1].grad is None


def test_a_closure_is_evaluated_first_and_with_gradients() -> None:
    weight = nn.Parameter([2.0])
    optimizer = optim.SGD([weight], lr=0.25)

    def closure():
        optimizer.zero_grad()
        loss = (weight * weight).sum()
        loss.backward()
        return loss

    with tracer.no_grad():
        assert float(optimizer.step(closure)) == 4
    np.testing.assert_array_equal(weight.detach(), [1])


def test_half_types_are_updated_in_float32() -> None:
    for dtype in ("float16", "bfloat16"):
        weight = nn.Parameter(tracer.ones(4, dtype))
        optimizer = optim.Adam([weight], lr=0.1)
        assert optimizer.state[weight]["exp_avg"].dtype == np.float32
        weight.grad = tracer.full(4, 1e-5, dtype)  # its square and eps vanish in float16
        optimizer.step()
        assert weight.type.dtype == dtype
        np.testing.assert_allclose(weight.detach().array.astype(np.float32), 0.9, rtol=4e-3)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda p: optim.SGD([]), "no parameters"),
        (lambda p: optim.SGD(p), "takes an iterable of Tensors or of dicts, got Parameter"),
        (lambda p: optim.SGD([p, p]), "comes twice"),
        (lambda p: optim.SGD([{"params": [p]}, {"params": [p]}]), "comes twice"),
        (lambda p: optim.SGD([("w", p)]), r"got tuple; give it model\.parameters\(\)"),
        (lambda p: optim.SGD([np.ones(2)]), "parameters are Tensors, got ndarray"),
        (lambda p: optim.SGD([tracer.tensor([1, 2])]), r"floating leaves, got int64\[2\]"),
        (lambda p: optim.SGD([p * 2.0]), "floating leaves, got .* a result of other"),
        (lambda p: optim.SGD([{"params": [p], "rate": 1}]), "no option 'rate'; options: lr"),
        (lambda p: optim.SGD([{"lr": 0.1}]), 'needs "params"'),
        (lambda p: optim.SGD([p], lr=-1), "lr must be at least 0, got -1"),
        (lambda p: optim.SGD([p], momentum=float("nan")), "momentum must be at least 0"),
        (lambda p: optim.SGD([{"params": [p], "lr": -1}]), "lr must be at least 0"),
        (lambda p: optim.SGD([p], nesterov=True), "nesterov needs momentum"),
        (lambda p: optim.Adam([p], betas=(0.9, 1.0)), "betas must be from 0 to below 1"),
        (lambda p: optim.Adam([p], betas=0.9), "betas is two numbers"),
        (lambda p: optim.Adam([p], eps="x"), "eps is a number"),
        (lambda p: trace(lambda: optim.SGD([p]))(), "SGD is made while a function is traced"),
    ],
)
def test_wrong_arguments_are_refused_with_the_line(make, text: str) -> None:
    with pytest.raises(tracer.TracerError, match=rf"{text}(?s:.*)test_optim\.py:\d+"):
        make(nn.Parameter([1.0, 2.0]))


def test_a_model_converted_after_its_optimiser_is_noticed() -> None:
    layer = nn.Linear(2, 2)
    optimizer = optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    layer.double()
    layer(np.ones((1, 2))).sum().backward()
    with pytest.raises(tracer.DTypeError, match="make the optimiser after the model is converted"):
        optimizer.step()


# ---- saving --------------------------------------------------------------------------------------


def after(steps: int, kind: type[optim.Optimizer] = optim.Adam, **options: Any):
    parameters, optimizer = eager(kind, np.float32, **options)
    for seed in range(steps):
        update(optimizer, parameters, arrays(seed, np.float32))
    return parameters, optimizer


def test_a_loaded_state_goes_on_to_the_bit() -> None:
    parameters, optimizer = after(3, lr=0.05, weight_decay=0.1)
    saved = copy.deepcopy(optimizer.state_dict())
    others, other = after(1)
    for p, q in zip(parameters, others, strict=True):
        with tracer.no_grad():
            q.copy_(p)
    before = [dict(s) for s in other._states]
    other.load_state_dict(saved)
    assert [s[n] is t for s, old in zip(other._states, before, strict=True) for n, t in old.items()]
    for seed in (7, 8):
        update(optimizer, parameters, arrays(seed, np.float32))
        update(other, others, arrays(seed, np.float32))
    for p, q in zip(parameters, others, strict=True):
        assert p.detach().array.tobytes() == q.detach().array.tobytes()
    assert repr(optimizer) == repr(other)


def test_states_of_other_options_fit_where_they_can() -> None:
    plain = after(2, optim.SGD, lr=0.1)[1].state_dict()
    parameters, optimizer = after(2, optim.SGD, lr=0.1, momentum=0.9)
    optimizer.load_state_dict(plain)  # which had no momentum: neither has it now
    assert optimizer.param_groups[0]["momentum"] == 0
    np.testing.assert_array_equal(
        optimizer.state[parameters[0]]["momentum_buffer"], np.zeros((3, 4))
    )
    smooth = after(2, optim.SGD, lr=0.1, momentum=0.9)[1].state_dict()
    parameters, optimizer = after(1, optim.SGD, lr=0.1)
    optimizer.load_state_dict(smooth)
    np.testing.assert_array_equal(
        optimizer.state[parameters[1]]["momentum_buffer"], smooth["state"][1]["momentum_buffer"]
    )


def spoiled(change) -> dict[str, Any]:
    state = copy.deepcopy(after(2)[1].state_dict())
    change(state)
    return state


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: s.pop("state"), "no state_dict of an optimiser"),
        (lambda s: s["param_groups"].append({"params": []}), "the state has groups of"),
        (lambda s: s["param_groups"][0]["params"].pop(), r"groups of \[1\]"),
        (lambda s: s["param_groups"][0].pop("eps"), "the state has lr, betas"),
        (lambda s: s["param_groups"][0].update(lr=-1), "lr must be at least 0"),
        (lambda s: s["param_groups"][0].update(betas=[0.9, 2]), "betas must be from 0"),
        (lambda s: s["state"].pop(1), "step of parameter 1 is not in the state"),
        (lambda s: s["state"].update({9: {}}), "names more than 2 parameters"),
        (lambda s: s["state"][1].pop("exp_avg"), "exp_avg of parameter 1 is not in the state"),
        (lambda s: s["state"][1].update(x=1), "x of parameter 1 is in the state, but unknown"),
        (lambda s: s["state"][1].update(exp_avg=np.ones(4)), r"float32\[5\].*float64\[4\]"),
        (lambda s: s["state"][1].update(exp_avg="text"), "expected an array of numbers"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change, text: str) -> None:
    _, optimizer = after(1, lr=0.3)
    before = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(tracer.TracerError, match=rf"{text}(?s:.*)test_optim\.py:\d+"):
        optimizer.load_state_dict(spoiled(change))
    now = optimizer.state_dict()
    assert now["param_groups"] == before["param_groups"]
    for number, members in before["state"].items():
        for name, t in members.items():
            np.testing.assert_array_equal(now["state"][number][name], t)


def test_copies_and_pickles_keep_model_and_optimiser_together() -> None:
    pair = after(2, lr=0.05)
    for parameters, optimizer in (copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))):
        assert set(optimizer.state) == set(parameters) and parameters[0] is not pair[0][0]
        expected = copy.deepcopy(pair)
        update(optimizer, parameters, arrays(5, np.float32))
        update(expected[1], expected[0], arrays(5, np.float32))
        np.testing.assert_array_equal(parameters[0].detach(), expected[0][0].detach())
        optimizer.param_groups[0]["lr"] = 1
        assert type(optimizer.param_groups[0]["lr"]) is float
        assert pair[1].param_groups[0]["lr"] == 0.05


# ---- schedules -----------------------------------------------------------------------------------


def rates(scheduler: optim.LRScheduler, count: int) -> list[float]:
    result = []
    for _ in range(count):
        result.append(scheduler.get_last_lr()[0])
        scheduler.step()
    return result


def test_schedules_follow_their_formulas() -> None:
    def make() -> optim.Optimizer:
        return eager(optim.SGD, lr=0.8)[1]

    stepped = rates(optim.StepLR(make(), step_size=2, gamma=0.5), 6)
    np.testing.assert_allclose(stepped, [0.8, 0.8, 0.4, 0.4, 0.2, 0.2])
    cosine = rates(optim.CosineAnnealingLR(make(), T_max=4, eta_min=0.2), 6)
    expected = [0.2 + 0.3 * (1 + math.cos(math.pi * k / 4)) for k in range(6)]
    np.testing.assert_allclose(cosine, expected)
    warm = rates(optim.LambdaLR(make(), lambda k: min(1.0, (k + 1) / 4)), 6)
    np.testing.assert_allclose(warm, [0.2, 0.4, 0.6, 0.8, 0.8, 0.8])


def test_a_schedule_reaches_a_compiled_step_and_its_state_resumes() -> None:
    parameters, optimizer = eager(optim.SGD, np.float32, lr=0.5)
    step = trace(lambda grads: update(optimizer, parameters, grads))
    scheduler = optim.StepLR(optimizer, 1, 0.5)
    moved = []
    for _ in range(3):
        before = parameters[1].detach().array.copy()
        step([np.ones(s, np.float32) for s in SHAPES])
        moved.append(float((before - parameters[1].detach().array)[0]))
        scheduler.step()
    np.testing.assert_allclose(moved, [0.5, 0.25, 0.125], rtol=1e-5)
    assert step.timings().traces == 1
    again = optim.StepLR(eager(optim.SGD, lr=9.0)[1], 1, 0.5)
    again.load_state_dict(scheduler.state_dict())
    assert again.get_last_lr() == scheduler.get_last_lr() == [0.0625]


def test_wrong_schedules_are_refused() -> None:
    optimizer = eager(optim.SGD, lr=0.5)[1]
    for make, text in (
        (lambda: optim.StepLR(optimizer, 0), "at least 1"),
        (lambda: optim.CosineAnnealingLR(optimizer, 0), "at least 1"),
        (lambda: optim.StepLR(0.1, 2), "takes an optimiser, got float"),
        (lambda: optim.LambdaLR(optimizer, [min, max]), "2 functions for 1 parameter groups"),
        (lambda: optim.StepLR(optimizer, 2).load_state_dict({}), "no state_dict"),
        (lambda: trace(optim.StepLR(optimizer, 2).step)(), "while a function is traced"),
    ):
        with pytest.raises(tracer.TracerError, match=text):
            make()
    assert optimizer.param_groups[0]["lr"] == 0.5
