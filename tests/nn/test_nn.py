"""Modules: what is registered, walked, saved, copied and traced; layers against formulas."""

from __future__ import annotations

import copy
import math
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import tracer
import tracer.nn.functional as F
from tracer import nn, optim, trace
from tracer.nn import init

pytestmark = pytest.mark.cpu

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def seeded() -> None:
    tracer.manual_seed(0)


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Running(nn.Module):
    """A running mean in a buffer, and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)
        self.register_buffer("mean", tracer.zeros(4))
        self.register_buffer("count", tracer.zeros((), "int64"), persistent=False)

    def forward(self, x):
        y = self.layer(x)
        old = self.mean
        self.mean = old * 0.9 + y.mean(0) * 0.1
        self.count = self.count + 1
        return y - old, old, self.mean * 1.0


# ---- attributes ----------------------------------------------------------------------------------


def test_what_is_assigned_decides_where_it_is_registered() -> None:
    m = nn.Module()
    m.a = nn.Parameter([1.0])
    m.b = nn.ReLU()
    m.c = 3
    m.register_buffer("d", np.ones(2))
    assert list(m._parameters) == ["a"] and list(m._modules) == ["b"] and list(m._buffers) == ["d"]
    assert m.d.dtype == np.float64 and m.c == 3
    m.a = None  # stays registered
    assert m.a is None and list(m._parameters) == ["a"] and not list(m.parameters())
    m.a = nn.Parameter([2.0])
    m.a = nn.Tanh()  # a module in the parameter's place
    assert list(m._parameters) == [] and list(m._modules) == ["b", "a"]
    m.b = nn.Parameter([3.0])
    assert list(m._modules) == ["a"] and list(m._parameters) == ["b"]
    m.c = nn.Parameter([4.0])
    assert "c" not in m.__dict__ and float(m.c.detach()[0]) == 4
    m.d = nn.Parameter([5.0])
    assert list(m._buffers) == [] and list(m._parameters) == ["b", "c", "d"]
    del m.c, m.a
    m.c = 1
    assert list(m._parameters) == ["b", "d"] and m.c == 1 and not list(m.children())
    assert {"b", "d", "c"} <= set(dir(m)) and not hasattr(m, "a")
    with pytest.raises(AttributeError, match="Module has no attribute 'a'"):
        _ = m.a
    with pytest.raises(AttributeError):
        del m.a


def test_a_buffer_keeps_values_without_history() -> None:
    m = Running()
    x = tracer.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    m.mean = x * 2.0
    np.testing.assert_array_equal(m.mean, [2, 4, 6, 8])
    assert not m.mean.requires_grad and m.mean.is_leaf and list(m._buffers) == ["mean", "count"]
    m.mean = np.ones(2, np.float32)
    assert isinstance(m.mean, tracer.Tensor) and m.mean.shape == (2,)
    m.mean = None
    assert m.mean is None and [n for n, _ in m.named_buffers()] == ["count"]
    assert list(m.state_dict()) == ["layer.weight", "layer.bias"]


def parent() -> nn.Module:
    m = Running()
    m.note = "text"
    return m


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: setattr(m.layer, "weight", tracer.ones((4, 3))), "registered parameter: assign"),
        (lambda m: setattr(m, "layer", 3), "registered submodule: assign an nn.Module"),
        (lambda m: setattr(m, "mean", [1.0]), "registered buffer: assign a Tensor or None"),
        (lambda m: m.register_buffer("x", [1.0]), "must be a Tensor, an array or None, got list"),
        (lambda m: m.register_parameter("x", tracer.ones(2)), "must be an nn.Parameter or None"),
        (lambda m: m.add_module("x", print), "must be an nn.Module or None"),
        (lambda m: m.register_buffer("a.b", None), "a string without dots, got 'a.b'"),
        (lambda m: m.register_parameter("", None), "a string without dots, got ''"),
        (lambda m: m.add_module("note", None), "has an attribute note already"),
        (lambda m: m.register_buffer("layer", None), "has an attribute layer already"),
        (lambda m: m.add_module("forward", nn.ReLU()), "has an attribute forward already"),
        (lambda m: m.get_submodule("layer.x"), "no submodule 'layer.x': Linear has no 'x'"),
        (lambda m: m.to("int32"), "converted to a floating type, not to int32"),
        (lambda m: nn.Linear(2.5, 3), "in_features must be an integer from 0 on, got 2.5"),
        (lambda m: nn.Embedding(3, -1), "embedding_dim must be an integer from 0 on, got -1"),
        (lambda m: nn.Embedding(3, 2, padding_idx=3), "padding_idx 3 is out of range"),
        (lambda m: nn.LayerNorm("x"), "normalized_shape must be an integer"),
        (lambda m: nn.Dropout(1.5), "must be from 0 to 1, got 1.5"),
        (lambda m: nn.MSELoss("min"), "reduction must be one of 'mean', 'sum', 'none'"),
        (lambda m: nn.Sequential(nn.ReLU(), 3), "Sequential holds modules, got int"),
        (lambda m: nn.Flatten(2, 1)(array(2, 3, 4)), "start_dim 2 lies behind end_dim 1"),
        (lambda m: nn.Flatten(3)(array(2, 3)), "Flatten of float32.*start_dim 3 is out of range"),
        (lambda m: m.layer(array(2, 4)), "takes 3 features"),
        (lambda m: nn.LayerNorm((3, 2))(array(2, 3)), "last axes"),
    ],
)
def test_mistakes_are_refused_with_their_line(change, text: str) -> None:
    m = parent()
    before = {n: t.array.copy() for n, t in m.state_dict().items()}
    with pytest.raises(tracer.TracerError, match=text) as caught:
        change(m)
    assert "test_nn.py:" in str(caught.value)
    for name, t in m.state_dict().items():
        np.testing.assert_array_equal(t, before[name])


def test_a_module_needs_its_base_to_be_initialised() -> None:
    class Hasty(nn.Module):
        def __init__(self) -> None:
            self.size = 3  # a plain attribute may come first
            self.layer = nn.ReLU()

    with pytest.raises(AttributeError, match=r"call super\(\).__init__\(\) in Hasty"):
        Hasty()
    with pytest.raises(NotImplementedError, match="Module defines no forward"):
        nn.Module()(1)


# ---- walking -------------------------------------------------------------------------------------


def tied() -> nn.Module:
    """One module under two names, one parameter in two modules."""
    shared = nn.Linear(2, 2)
    m = nn.Sequential(shared, nn.Linear(2, 2, bias=False), shared)
    m[1].weight = shared.weight
    return m


def test_names_come_in_order_and_tied_ones_once() -> None:
    m = nn.Sequential(Running(), nn.Linear(4, 2))
    assert [n for n, _ in m.named_modules()] == ["", "0", "0.layer", "1"]
    assert [n for n, _ in m.named_parameters()] == [
        "0.layer.weight",
        "0.layer.bias",
        "1.weight",
        "1.bias",
    ]
    assert [n for n, _ in m.named_buffers("net")] == ["net.0.mean", "net.0.count"]
    assert [n for n, _ in m.named_children()] == ["0", "1"]
    assert not list(m.parameters(recurse=False)) and len(list(m[0].buffers(recurse=False))) == 2
    assert m.get_submodule("0.layer") is m[0].layer and m.get_submodule("") is m
    t = tied()
    assert [n for n, _ in t.named_parameters()] == ["0.weight", "0.bias"]
    every = [n for n, _ in t.named_parameters(remove_duplicate=False)]
    assert every == ["0.weight", "0.bias", "1.weight", "2.weight", "2.bias"] == list(t.state_dict())
    assert [n for n, _ in t.named_modules()] == ["", "0", "1"]
    assert [n for n, _ in t.named_modules(remove_duplicate=False)] == ["", "0", "1", "2"]


def test_modules_that_hold_one_another_and_deep_ones_are_walked() -> None:
    a, b = nn.Module(), nn.Module()
    a.b, b.a = b, a
    a.w = nn.Parameter([1.0])
    assert [n for n, _ in a.named_modules(remove_duplicate=False)] == ["", "b"]
    assert list(a.state_dict()) == ["w"]
    deep = nn.Linear(1, 1)
    for _ in range(3000):
        deep = nn.Sequential(deep)
    assert len(list(deep.modules())) == 3001 and len(deep.state_dict()) == 2
    seen: list[nn.Module] = []
    deep.eval().apply(seen.append)
    assert type(seen[0]) is nn.Linear and seen[-1] is deep and not seen[0].training


def test_modes_reach_everything_below_and_apply_visits_children_first() -> None:
    m = nn.Sequential(nn.Sequential(nn.Dropout()), nn.ReLU())
    assert m.training and m.eval() is m
    assert not any(x.training for x in m.modules())
    m[0].train()
    assert [x.training for x in m.modules()] == [False, True, True, False]
    order: list[str] = []
    m.apply(lambda x: order.append(type(x).__name__))
    assert order == ["Dropout", "Sequential", "ReLU", "Sequential"]
    frozen = tied().requires_grad_(False)
    assert not any(p.requires_grad for p in frozen.parameters())


def test_conversions_keep_identity_and_clear_gradients() -> None:
    m = tied()
    weight = m[0].weight
    m(array(1, 2)).sum().backward()
    assert weight.grad is not None
    for name, dtype in (("half", "float16"), ("double", "float64"), ("bfloat16", "bfloat16")):
        assert getattr(m, name)() is m and m[0].weight is weight is m[1].weight
        assert weight.type.dtype == dtype and weight.grad is None and weight.requires_grad
    m.float()
    assert m(array(1, 2)).dtype == np.float32
    running = Running().half()
    assert running.mean.type.dtype == "float16" and running.count.type.dtype == "int64"
    m(array(1, 2)).sum().backward()
    m.zero_grad()
    assert weight.grad is None
    with pytest.raises(tracer.TraceError, match="converted while a function is traced"):
        trace(lambda: m.half())()


# ---- state ---------------------------------------------------------------------------------------


def test_a_state_shares_memory_and_loads_without_changing_objects() -> None:
    m = nn.Sequential(Running(), nn.Linear(4, 2))
    state = m.state_dict()
    assert list(state) == ["0.mean", "0.layer.weight", "0.layer.bias", "1.weight", "1.bias"]
    assert not any(t.requires_grad for t in state.values())
    objects = [*m.parameters(), *m.buffers()]
    keys = m.load_state_dict({n: np.full(t.shape, 7.0) for n, t in state.items()})
    assert keys == ([], []) and objects == [*m.parameters(), *m.buffers()]
    assert all((t.array == 7).all() and t.dtype == np.float32 for t in state.values())
    other = nn.Sequential(Running(), nn.Linear(4, 2))
    other.load_state_dict(m.state_dict())
    m[1].weight.detach().array[...] = 0
    assert (other[1].weight.detach().array == 7).all()


def test_a_state_that_fits_in_part() -> None:
    m = nn.Linear(2, 1)
    before = m.bias.detach().array.copy()
    keys = m.load_state_dict({"weight": [[1, 2]], "other": 0}, strict=False)
    assert keys.missing_keys == ["bias"] and keys.unexpected_keys == ["other"]
    np.testing.assert_array_equal(m.weight.detach(), [[1, 2]])
    np.testing.assert_array_equal(m.bias.detach(), before)


def test_swapped_states_do_not_overwrite_each_other() -> None:
    m = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    a, b = (m[k].weight.detach().array.copy() for k in (0, 1))
    state = m.state_dict()
    m.load_state_dict({"0.weight": state["1.weight"], "1.weight": state["0.weight"]})
    np.testing.assert_array_equal(m[0].weight.detach(), b)
    np.testing.assert_array_equal(m[1].weight.detach(), a)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda s: s.pop("layer.bias"), tracer.ArgumentError, r"missing layer\.bias; unexpected n"),
        (lambda s: s.update(x=1), tracer.ArgumentError, "missing nothing; unexpected x"),
        (lambda s: s.update({k: 1 for k in "abcdefghij"}), tracer.ArgumentError, "h and 2 more"),
        (
            lambda s: s.update({"layer.bias": np.ones(5)}),
            tracer.ShapeError,
            r"Running\.layer\.bias has the type float32\[4\], the value to load float64\[5\]",
        ),
        (lambda s: s.update({"layer.bias": "text"}), tracer.DTypeError, "array of numbers"),
        (lambda s: s.update({"layer.bias": [1j] * 4}), tracer.DTypeError, "array of numbers"),
        (lambda s: s.update(n=2.5), tracer.DTypeError, "cannot be converted without loss"),
        (lambda s: s.update(n=300), tracer.DTypeError, "cannot be converted without loss"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change, error, text: str) -> None:
    m = Running()
    m.register_buffer("n", tracer.tensor(1, "int8"))
    before = {n: t.array.copy() for n, t in m.state_dict().items()}
    state: dict[str, Any] = {n: np.zeros(t.shape) for n, t in m.state_dict().items()} | {"n": 5}
    change(state)
    with pytest.raises(error, match=rf"{text}(?s:.*)test_nn\.py:\d+"):
        m.load_state_dict(state)
    for name, t in m.state_dict().items():
        np.testing.assert_array_equal(t, before[name])


def test_a_read_only_buffer_is_named_before_anything_is_written() -> None:
    m = nn.Linear(2, 1)
    fixed = np.ones(3)
    fixed.setflags(write=False)
    m.register_buffer("fixed", tracer.asarray(fixed))
    before = m.weight.detach().array.copy()
    with pytest.raises(tracer.ArgumentError, match=r"Linear\.fixed shares .* read-only"):
        m.load_state_dict({"weight": np.zeros((1, 2)), "bias": [0], "fixed": np.zeros(3)})
    np.testing.assert_array_equal(m.weight.detach(), before)


# ---- copies --------------------------------------------------------------------------------------


class Traced(nn.Module):
    """A module whose forward is a traced function."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter([2.0])

    @trace
    def forward(self, x):
        return x * self.weight.detach()


def twins(m: Any) -> list[Any]:
    return [copy.deepcopy(m), pickle.loads(pickle.dumps(m))]


def test_copies_are_whole_and_their_own() -> None:
    m = tied()
    m[0].bias.requires_grad = False
    m.eval()
    m.note = {"list": [1, 2]}
    for twin in twins(m):
        assert twin[0] is twin[2] and twin[0].weight is twin[1].weight is not m[0].weight
        assert isinstance(twin[0].weight, nn.Parameter) and twin[0].weight.requires_grad
        assert not twin[0].bias.requires_grad and not twin.training and twin.note == m.note
        np.testing.assert_array_equal(twin(array(1, 2)).detach(), m(array(1, 2)).detach())
        with tracer.no_grad():
            twin[0].weight.fill_(0.0)
        assert np.any(m[0].weight.detach().array)


def test_copies_of_a_module_with_traced_methods_use_their_own_state() -> None:
    m = Traced()
    x = np.ones(1, np.float32)
    assert float(m(x)[0]) == 2
    for twin in twins(m):
        with tracer.no_grad():
            twin.weight.fill_(5.0)
        assert float(twin(x)[0]) == 5 and float(m(x)[0]) == 2


# ---- traced --------------------------------------------------------------------------------------


def test_an_assigned_buffer_is_written_back_when_the_program_has_run() -> None:
    eager, m = Running(), Running()
    m.load_state_dict(eager.state_dict())
    f = trace(lambda x: m(x))
    buffer = m.mean
    for k in range(4):
        x = array(5, 3, seed=k)
        for a, b in zip(f(x), eager(x), strict=True):
            np.testing.assert_allclose(a.detach(), b.detach(), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(m.mean, eager.mean, rtol=1e-6, atol=1e-6)
        assert int(m.count) == int(eager.count) == k + 1
    assert m.mean is buffer and f.timings().traces == 1
    m.mean = np.zeros(4, np.float32)  # another object: noticed
    np.testing.assert_array_equal(f(array(5, 3))[1], np.zeros(4))
    assert np.any(m.mean.array) and not np.any(buffer.array == 0)


def test_what_a_trace_cannot_do_to_a_module_is_refused_and_undone() -> None:
    m = Running()
    buffer, weight = m.mean, m.layer.weight

    def with_error(x):
        m(x)
        raise ValueError("mine")

    def other_type(x):
        m(x)
        m.mean = tracer.ones(5)

    def unset(x):
        m.mean = None

    def replace(x):
        m.layer = nn.Identity()

    def delete(x):
        del m.layer

    def make(x):
        return nn.Parameter(x)

    for function, error, text in (
        (with_error, ValueError, "mine"),
        (other_type, tracer.TraceError, r"Running\.mean is float32\[4\] and is assigned float32"),
        (unset, tracer.TraceError, r"Running\.mean is replaced while a function is traced"),
        (replace, tracer.TraceError, r"Running\.layer is replaced while"),
        (delete, tracer.TraceError, r"Running\.layer is deleted while"),
        (make, tracer.TraceError, "a Parameter is made while"),
        (lambda x: m.load_state_dict({}), tracer.TraceError, "a state is loaded while"),
    ):
        with pytest.raises(error, match=text):
            trace(function)(array(5, 3))
        assert m.mean is buffer and not buffer.array.any() and m.layer.weight is weight


def test_modules_made_in_a_trace_are_fine() -> None:
    f = trace(lambda x: nn.Sequential(nn.Tanh(), nn.Identity())(x))
    np.testing.assert_allclose(f(array(4)), np.tanh(array(4)), rtol=1e-6)


def test_replaced_modules_and_parameters_are_noticed_however_they_are_reached() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3)])

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return x

    x = array(2, 3)
    net = Net()
    by_cell = trace(lambda x: net(x))
    by_argument = trace(lambda model, x: model(x))
    by_member = trace(lambda model, x: x @ model.layers[0].weight)

    def check() -> None:
        for got in (by_cell(x), by_argument(net, x)):
            np.testing.assert_allclose(got.detach(), net(x).detach(), rtol=1e-5, atol=1e-6)
        expected = x @ net.layers[0].weight.detach().array
        np.testing.assert_allclose(by_member(net, x).detach(), expected, rtol=1e-5, atol=1e-6)

    check()
    net.layers[0] = nn.Linear(3, 3)
    check()
    net.layers[0].weight = nn.Parameter(array(3, 3, seed=5))
    check()
    net.layers.append(nn.Linear(3, 3))
    check()
    with tracer.no_grad():
        net.layers[0].weight.fill_(0.5)
    check()


def test_a_tied_parameter_is_one_input_and_updated_once() -> None:
    m = tied()
    optimizer = optim.SGD(m.parameters(), lr=0.1)
    other = copy.deepcopy(m)
    others = optim.SGD(other.parameters(), lr=0.1)

    def step_of(model, opt):
        def step(x):
            loss = (model(x) * model(x)).sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
            return loss

        return step

    step = trace(step_of(m, optimizer))
    for k in range(3):
        step(array(4, 2, seed=k))
        step_of(other, others)(array(4, 2, seed=k))
    np.testing.assert_allclose(m[0].weight.detach(), other[0].weight.detach(), rtol=1e-4)
    names = [n for n in step.ir(array(4, 2)).input_names if "weight" in n]
    assert names == ["model.0.weight"]


def test_nodes_carry_the_path_of_their_module() -> None:
    class AlexNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
            self.heads = nn.ModuleList([nn.Linear(4, 2)])

        def forward(self, x):
            return self.heads[0](self.features(x)) * 2.0

    net = AlexNet()
    graph = trace(lambda x: net(x)).ir(array(2, 3))
    scopes = [node.scope for node in graph.nodes if node.op.name in ("MatMul", "Relu", "Mul")]
    assert scopes == [
        "AlexNet/Sequential[features]/Linear[0]",
        "AlexNet/Sequential[features]/ReLU[1]",
        "AlexNet/Linear[heads.0]",
        "AlexNet",
    ]
    assert "scope: AlexNet/Sequential[features]/Linear[0]" in str(graph)


# ---- containers ----------------------------------------------------------------------------------


def test_sequential_is_a_list_that_is_called() -> None:
    a, b, c = nn.Linear(2, 2), nn.ReLU(), nn.Tanh()
    m = nn.Sequential(a, b)
    assert m.append(c) is m and len(m) == 3 and list(m) == [a, b, c] and m[-1] is c
    part = m[1:]
    assert type(part) is nn.Sequential and list(part) == [b, c] and part[0] is b
    assert [n for n, _ in part.named_children()] == ["1", "2"]  # names stay, and so do states
    np.testing.assert_array_equal(m(array(1, 2)).detach(), c(b(a(array(1, 2)))).detach())
    m[1] = nn.Sigmoid()
    del m[0]
    assert [(n, type(x).__name__) for n, x in m.named_children()] == [
        ("0", "Sigmoid"),
        ("1", "Tanh"),
    ]
    named = nn.Sequential({"first": a, "second": b})
    assert named.first is a and list(named.state_dict()) == ["first.weight", "first.bias"]
    named.extend([c])
    assert [n for n, _ in named.named_children()] == ["first", "second", "2"]
    assert len(nn.Sequential()) == 0 and nn.Sequential()(3) == 3
    for index in (3, -4, 1.5):
        with pytest.raises((IndexError, TypeError)):
            nn.Sequential(a, b, c)[index]


def test_lists_and_dicts_of_modules_register_them() -> None:
    a, b, c = nn.Linear(1, 1), nn.Linear(1, 1), nn.ReLU()
    m = nn.ModuleList([a])
    m.extend([b]).append(c)
    m.insert(1, nn.Tanh())
    assert [type(x).__name__ for x in m] == ["Linear", "Tanh", "Linear", "ReLU"]
    assert [n for n, _ in m.named_parameters()] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert type(m[::2]) is nn.ModuleList and list(m[::2]) == [a, b]
    del m[1:3]
    assert list(m) == [a, c] and [n for n, _ in m.named_children()] == ["0", "1"]
    with pytest.raises(NotImplementedError, match="ModuleList defines no forward"):
        m(1)
    d = nn.ModuleDict({"x": a})
    d["y"] = b
    d.update({"x": c})
    assert d["x"] is c and list(d) == ["x", "y"] == list(d.keys()) and "y" in d and len(d) == 2
    assert list(d.values()) == [c, b] and dict(d.items())["y"] is b
    del d["x"]
    assert list(d.state_dict()) == ["y.weight", "y.bias"]
    for wrong in (lambda: d["x"], lambda: d.__delitem__("x")):
        with pytest.raises(KeyError):
            wrong()
    for refused in (lambda: d.update({"keys": a}), lambda: d.update({"z": 3})):
        with pytest.raises(tracer.ArgumentError):
            refused()


def test_modules_print_as_their_tree() -> None:
    m = nn.Sequential(nn.Linear(3, 2), nn.Sequential(nn.Dropout(0.25)))
    assert repr(m) == (
        "Sequential(\n"
        "  (0): Linear(in_features=3, out_features=2, bias=True)\n"
        "  (1): Sequential(\n"
        "    (0): Dropout(p=0.25)\n"
        "  )\n"
        ")"
    )
    assert repr(nn.ReLU()) == "ReLU()"


# ---- layers --------------------------------------------------------------------------------------

SIGMOID = special.expit
ACTIVATIONS: list[tuple[nn.Module, Any]] = [
    (nn.ReLU(), lambda x: np.maximum(x, 0)),
    (nn.ReLU6(), lambda x: np.clip(x, 0, 6)),
    (nn.Sigmoid(), SIGMOID),
    (nn.LogSigmoid(), lambda x: -np.logaddexp(0, -x)),
    (nn.Tanh(), np.tanh),
    (nn.SiLU(), lambda x: x * SIGMOID(x)),
    (nn.Mish(), lambda x: x * np.tanh(np.logaddexp(0, x))),
    (nn.Softplus(), lambda x: np.logaddexp(0, x)),
    (nn.Softsign(), lambda x: x / (1 + np.abs(x))),
    (
        nn.SELU(),
        lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    ),
    (nn.Hardsigmoid(), lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    (nn.Hardswish(), lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    (nn.GELU(), lambda x: x * special.ndtr(x)),
    (
        nn.GELU("tanh"),
        lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    ),
    (nn.ELU(0.5), lambda x: np.where(x > 0, x, 0.5 * np.expm1(x))),
    (nn.LeakyReLU(0.1), lambda x: np.where(x > 0, x, 0.1 * x)),
    (nn.Hardtanh(-0.5, 2.0), lambda x: np.clip(x, -0.5, 2)),
    (nn.Softmax(0), lambda x: special.softmax(x, 0)),
    (nn.LogSoftmax(), lambda x: special.log_softmax(x, -1)),
    (nn.Identity(3, key=4), lambda x: x),
]


@pytest.mark.parametrize(("layer", "formula"), ACTIVATIONS, ids=[repr(a) for a, _ in ACTIVATIONS])
def test_activations_compute_their_formula(layer: nn.Module, formula) -> None:
    x = np.linspace(-8, 8, 36).reshape(4, 9)
    rtol = 1e-7 if isinstance(layer, nn.SELU) else 1e-9  # its constants are float32's, like ONNX's
    np.testing.assert_allclose(layer(x), formula(x), rtol=rtol, atol=1e-12)
    assert repr(layer).startswith(type(layer).__name__ + "(")


def test_linear_and_normalisation_compute_their_formulas_and_gradients() -> None:
    x = tracer.tensor(array(2, 3, 6).astype(np.float64), requires_grad=True)
    layer = nn.Linear(6, 4, dtype="float64")
    w, b = layer.weight.detach().array, layer.bias.detach().array
    np.testing.assert_allclose(layer(x).detach(), x.detach().array @ w.T + b, rtol=1e-12)
    layer(x).sum().backward()
    rows = x.detach().array.reshape(-1, 6)
    np.testing.assert_allclose(layer.weight.grad, np.tile(rows.sum(0), (4, 1)), rtol=1e-12)
    np.testing.assert_array_equal(layer.bias.grad, np.full(4, 6))
    assert nn.Linear(6, 4, bias=False).bias is None and nn.Linear(0, 2)(array(3, 0)).shape == (3, 2)
    norm = nn.LayerNorm((3, 6), eps=1e-3, dtype="float64")
    with tracer.no_grad():
        norm.weight.copy_(array(3, 6, seed=1))
        norm.bias.copy_(array(3, 6, seed=2))
    y = x.detach().array
    mean, var = y.mean((1, 2), keepdims=True), y.var((1, 2), keepdims=True)
    expected = (y - mean) / np.sqrt(var + 1e-3) * norm.weight.detach() + norm.bias.detach()
    np.testing.assert_allclose(norm(x).detach(), np.asarray(expected), rtol=1e-10, atol=1e-12)
    assert nn.LayerNorm(3, bias=False).bias is None
    assert not list(nn.LayerNorm(3, elementwise_affine=False).parameters())
    rms = nn.RMSNorm(6, eps=1e-3, dtype="float64")
    expected = y / np.sqrt((y * y).mean(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(rms(x).detach(), expected, rtol=1e-10)


def test_shapes_are_made_one_and_several() -> None:
    x = array(2, 3, 4, 5)
    assert nn.Flatten()(x).shape == (2, 60)
    assert nn.Flatten(0, 1)(x).shape == (6, 4, 5) and nn.Flatten(-2)(x).shape == (2, 3, 20)
    assert nn.Flatten(0)(tracer.tensor(1.0)).shape == (1,)
    assert nn.Unflatten(1, (-1, 1))(x).shape == (2, 3, 1, 4, 5)
    np.testing.assert_array_equal(nn.Unflatten(1, (12, 5))(nn.Flatten()(x)), x.reshape(2, 12, 5))


def test_embedding_takes_rows_and_refuses_indices_out_of_range() -> None:
    table = nn.Embedding(5, 3, padding_idx=-1)
    weight = table.weight.detach().array
    assert not weight[4].any() and weight[:4].all() and table.padding_idx == 4
    indices = np.array([[0, 2, 2], [4, 1, 0]])
    np.testing.assert_array_equal(table(indices).detach(), weight[indices])
    table(indices).sum().backward()
    np.testing.assert_array_equal(table.weight.grad.array[:, 0], [2, 1, 2, 0, 0])
    table.zero_grad()
    optimizer = optim.SGD(table.parameters(), lr=0.5)

    @trace
    def step(indices):
        loss = table(indices).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    before = weight.copy()
    step(indices)
    expected = before - 0.5 * np.array([2, 1, 2, 0, 0], np.float32)[:, None]
    np.testing.assert_allclose(table.weight.detach(), expected, rtol=1e-6)
    before = table.weight.detach().array.copy()
    for wrong in (5, -6, 2**40):
        for call in (table, step):
            with pytest.raises(tracer.BoundsError, match=r"(?s:.*)test_nn\.py:\d+"):
                call(np.array([[0, 1, 2], [3, wrong, 0]]))
        np.testing.assert_array_equal(table.weight.detach(), before)


def test_dropout_draws_anew_at_each_call_with_the_same_bits_eager_and_compiled() -> None:
    layer = nn.Dropout(0.25)
    x = np.ones((64, 50), np.float32)
    f = trace(lambda x: layer(x))
    tracer.manual_seed(5)
    eager = [layer(x).array for _ in range(3)]
    state = tracer.random.get_state().tolist()
    tracer.manual_seed(5)
    for expected in eager:
        assert f(x).array.tobytes() == expected.tobytes()
    assert tracer.random.get_state().tolist() == state == [5, 3 * x.size]
    assert not np.array_equal(eager[0], eager[1])
    assert set(np.unique(eager[0])) == {0, np.float32(1 / 0.75)}
    assert abs((eager[0] == 0).mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / x.size)
    layer.eval()
    assert (np.asarray(f(x)) == 1).all() and tracer.random.get_state().tolist() == state
    layer.train()
    assert (f(x).array == 0).any() and f.timings().traces == 2
    assert not nn.Dropout(1.0)(x).array.any() and (nn.Dropout(0.0)(x).array == 1).all()
    t = tracer.tensor(x, requires_grad=True)
    y = layer(t)
    y.sum().backward()
    np.testing.assert_array_equal(t.grad, y.detach())


LOSSES: list[tuple[nn.Module, str, dict[str, Any]]] = [
    (nn.MSELoss(), "mse_loss", {}),
    (nn.L1Loss("sum"), "l1_loss", {"reduction": "sum"}),
    (nn.SmoothL1Loss(beta=0.5), "smooth_l1_loss", {"beta": 0.5}),
    (nn.HuberLoss("none", 0.7), "huber_loss", {"reduction": "none", "delta": 0.7}),
    (nn.KLDivLoss("batchmean"), "kl_div", {"reduction": "batchmean"}),
    (nn.BCELoss(), "binary_cross_entropy", {}),
    (
        nn.BCEWithLogitsLoss(pos_weight=tracer.tensor([2.0])),
        "binary_cross_entropy_with_logits",
        {"pos_weight": np.array([2.0], np.float32)},
    ),
    (
        nn.NLLLoss(tracer.tensor([1.0, 2.0, 0.5])),
        "nll_loss",
        {"weight": np.array([1, 2, 0.5], "f")},
    ),
    (nn.CrossEntropyLoss(label_smoothing=0.1), "cross_entropy", {"label_smoothing": 0.1}),
]


@pytest.mark.parametrize(("loss", "name", "options"), LOSSES, ids=[n for _, n, _ in LOSSES])
def test_losses_are_their_functions(loss: nn.Module, name: str, options: dict[str, Any]) -> None:
    x = special.softmax(array(4, 3).astype(np.float64), axis=1)
    target = np.array([0, 2, 1, 1]) if name in ("nll_loss", "cross_entropy") else x[::-1].copy()
    np.testing.assert_array_equal(loss(x, target), getattr(F, name)(x, target, **options))
    assert len(repr(loss)) > len(type(loss).__name__) + 2


# ---- initialisers --------------------------------------------------------------------------------


def distributed(x: tracer.Tensor, distribution: Any) -> None:
    values = x.detach().array.reshape(-1).astype(np.float64)
    assert stats.kstest(values, distribution.cdf).pvalue > 1e-3
    assert abs(values.mean() - distribution.mean()) < 4 * distribution.std() / math.sqrt(
        values.size
    )


def between(bound: float) -> Any:
    return stats.uniform(-bound, 2 * bound)


def test_initialisers_follow_their_definitions() -> None:
    w = nn.Parameter(np.zeros((80, 50, 3), np.float32))  # fan in 150, fan out 240
    leaky = math.sqrt(2 / (1 + 0.2**2))
    for fill, distribution in (
        (lambda: init.uniform_(w, -1.0, 3.0), stats.uniform(-1, 4)),
        (lambda: init.normal_(w, 2.0, 0.5), stats.norm(2, 0.5)),
        (lambda: init.trunc_normal_(w, 1.0, 2.0, 0.0, 2.5), stats.truncnorm(-0.5, 0.75, 1, 2)),
        (lambda: init.trunc_normal_(w, a=10.0, b=11.0), stats.truncnorm(10, 11)),
        (lambda: init.xavier_uniform_(w, 2.0), between(2 * math.sqrt(6 / 390))),
        (lambda: init.xavier_normal_(w), stats.norm(0, math.sqrt(2 / 390))),
        (lambda: init.kaiming_uniform_(w, 0.2), between(leaky * math.sqrt(3 / 150))),
        (
            lambda: init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu"),
            stats.norm(0, math.sqrt(2 / 240)),
        ),
    ):
        assert fill() is w and w.requires_grad and w.is_leaf
        distributed(w, distribution)
    assert init.trunc_normal_(w, a=-0.1, b=0.1).detach().array.max() <= 0.1
    assert (init.constant_(w, 3).detach().array == 3).all()
    assert (init.ones_(w).detach().array == 1).all() and not init.zeros_(w).detach().array.any()
    distributed(nn.Linear(100, 200).weight, between(0.1))
    distributed(nn.Linear(100, 5000).bias, between(0.1))
    distributed(nn.Embedding(100, 50).weight, stats.norm())


def test_matrices_that_initialisers_make() -> None:
    w = nn.Parameter(np.zeros((3, 5)))
    np.testing.assert_array_equal(init.eye_(w).detach(), np.eye(3, 5))
    for shape in ((6, 4), (4, 6), (5, 3, 2)):
        q = init.orthogonal_(nn.Parameter(np.zeros(shape)), gain=2.0).detach().array
        q = q.reshape(shape[0], -1)
        product = q @ q.T if q.shape[0] <= q.shape[1] else q.T @ q
        np.testing.assert_allclose(product, 4 * np.eye(min(q.shape)), atol=1e-12)
    first = [
        float(init.orthogonal_(nn.Parameter(np.zeros((2, 2)))).detach()[0, 0]) for _ in range(200)
    ]
    assert abs(np.mean(first)) < 0.2, (
        "signs of the factors are corrected: no direction is preferred"
    )
    for name, gain in (("linear", 1), ("tanh", 5 / 3), ("relu", math.sqrt(2)), ("selu", 0.75)):
        assert init.calculate_gain(name) == pytest.approx(gain)
    assert init.calculate_gain("leaky_relu", 1.0) == 1


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: init.xavier_uniform_(nn.Parameter([1.0])), "at least 2 axes"),
        (lambda: init.trunc_normal_(nn.Parameter([1.0]), a=3.0), "std > 0 and a < b"),
        (lambda: init.eye_(nn.Parameter([1.0])), "eye_ needs 2 axes"),
        (lambda: init.orthogonal_(nn.Parameter([1.0])), "at least 2 axes"),
        (lambda: init.kaiming_normal_(nn.Parameter([[1.0]]), mode="in"), "'fan_in' or 'fan_out'"),
        (lambda: init.calculate_gain("step"), "no gain is known for 'step'"),
        (lambda: init.uniform_(nn.Parameter([1.0]), 2, 1), "low <= high"),
    ],
)
def test_initialisers_refuse_what_they_cannot_fill(call, text: str) -> None:
    with pytest.raises(tracer.TracerError, match=rf"{text}(?s:.*)test_nn\.py:\d+"):
        call()


def test_the_page_on_networks_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "nn.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "nn.md", "exec"), names)
    assert len(blocks) == 4 and names["step"].timings().traces == 1
    assert names["optimizer"].param_groups[0]["lr"] == pytest.approx(0.0)
    assert int(names["model"].seen) == 320
    listed = re.findall(r"`(\w+)`", text.split("Layers:")[1].split("`nn.functional`")[0])
    assert {n for n in vars(nn) if isinstance(getattr(nn, n), type)} == {
        *listed,
        "Module",
        "Parameter",
    }
