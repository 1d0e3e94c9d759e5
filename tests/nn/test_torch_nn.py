"""Layers, losses, optimisers and schedules against PyTorch's, from the same weights and inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracer
from tracer import nn, optim, trace

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def torch() -> Any:
    module = pytest.importorskip("torch")
    module.set_num_threads(1)
    return module


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def same(ours: Any, theirs: Any, rtol: float = 1e-9) -> None:
    expected = theirs.detach().numpy()
    np.testing.assert_allclose(np.asarray(ours.detach()), expected, rtol=rtol, atol=1e-11)


def twin(torch: Any, layer: nn.Module, theirs: Any) -> Any:
    """PyTorch's layer with the weights of ours."""
    theirs = theirs.double()
    state = {n: torch.tensor(t.array) for n, t in layer.double().state_dict().items()}
    assert list(state) == list(theirs.state_dict())
    theirs.load_state_dict(state)
    return theirs


LAYERS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Linear", (6, 4), {}),
    ("Linear", (6, 4), {"bias": False}),
    ("LayerNorm", (6,), {}),
    ("LayerNorm", ((5, 6),), {"eps": 0.1, "bias": False}),
    ("LayerNorm", (6,), {"elementwise_affine": False}),
    ("RMSNorm", (6,), {"eps": 0.01}),
    ("RMSNorm", (6,), {}),
    ("ReLU", (), {}),
    ("ReLU6", (), {}),
    ("Sigmoid", (), {}),
    ("LogSigmoid", (), {}),
    ("Tanh", (), {}),
    ("SiLU", (), {}),
    ("Mish", (), {}),
    ("Softplus", (), {}),
    ("Softsign", (), {}),
    ("Hardsigmoid", (), {}),
    ("Hardswish", (), {}),
    ("GELU", (), {}),
    ("GELU", (), {"approximate": "tanh"}),
    ("ELU", (0.5,), {}),
    ("LeakyReLU", (0.1,), {}),
    ("Hardtanh", (-0.5, 0.7), {}),
    ("Softmax", (), {"dim": 1}),
    ("LogSoftmax", (), {"dim": -1}),
    ("Flatten", (), {}),
    ("Unflatten", (2, (3, 2)), {}),
    ("Dropout", (0.0,), {}),
    ("Identity", (), {}),
]


@pytest.mark.parametrize(("name", "args", "options"), LAYERS)
def test_layers_and_their_gradients(torch: Any, name: str, args: Any, options: Any) -> None:
    layer = getattr(nn, name)(*args, **options)
    theirs = twin(torch, layer, getattr(torch.nn, name)(*args, **options))
    data = 2 * array(3, 5, 6)
    x, tx = tracer.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
    y, ty = layer(x), theirs(tx)
    same(y, ty)
    weights = array(*y.shape, seed=1)
    y.backward(weights)
    ty.backward(torch.tensor(weights))
    # PyTorch takes the slope of Hardsigmoid, 1/6, in float32.
    same(x.grad, tx.grad, 1e-7 if name == "Hardsigmoid" else 1e-9)
    for p, q in zip(layer.parameters(), theirs.parameters(), strict=True):
        same(p.grad, q.grad)


def test_embedding_with_padding(torch: Any) -> None:
    layer = nn.Embedding(7, 3, padding_idx=2)
    theirs = twin(torch, layer, torch.nn.Embedding(7, 3, padding_idx=2))
    indices = np.array([[0, 2, 6], [2, 0, 1]])
    layer(indices).sum().backward()
    theirs(torch.tensor(indices)).sum().backward()
    same(layer(indices), theirs(torch.tensor(indices)))
    same(layer.weight.grad, theirs.weight.grad)


LOSSES: list[tuple[str, dict[str, Any]]] = [
    ("MSELoss", {}),
    ("L1Loss", {"reduction": "none"}),
    ("SmoothL1Loss", {"beta": 0.3, "reduction": "sum"}),
    ("HuberLoss", {"delta": 0.4}),
    ("KLDivLoss", {"reduction": "batchmean"}),
    ("BCELoss", {}),
    ("BCEWithLogitsLoss", {}),
    ("NLLLoss", {"ignore_index": 1}),
    ("CrossEntropyLoss", {"label_smoothing": 0.1}),
    ("CrossEntropyLoss", {"ignore_index": 2, "reduction": "sum"}),
]


@pytest.mark.parametrize(("name", "options"), LOSSES)
@pytest.mark.parametrize("weighted", [False, True])
def test_losses_and_their_gradients(torch: Any, name: str, options: Any, weighted: bool) -> None:
    classes = name in ("NLLLoss", "CrossEntropyLoss")
    if weighted and not classes and "BCE" not in name:
        pytest.skip("has no weight")
    data = 1 / (1 + np.exp(-array(6, 4)))
    target: Any = (
        np.array([0, 1, 2, 3, 1, 0]) if classes else 1 / (1 + np.exp(-array(6, 4, seed=1)))
    )
    ours, theirs = dict(options), dict(options)
    if weighted:
        weight = np.array([0.5, 1.0, 2.0, 0.1])
        ours["weight"], theirs["weight"] = tracer.tensor(weight), torch.tensor(weight)
    if weighted and name == "BCEWithLogitsLoss":
        ours["pos_weight"], theirs["pos_weight"] = tracer.tensor(weight), torch.tensor(weight)
    x, tx = tracer.tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
    loss = getattr(nn, name)(**ours)(x, target)
    expected = getattr(torch.nn, name)(**theirs)(tx, torch.tensor(target))
    same(loss, expected)
    loss.sum().backward()
    expected.sum().backward()
    same(x.grad, tx.grad)


OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.5, "maximize": True}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.1, "betas": (0.5, 0.8), "eps": 0.1, "weight_decay": 0.2, "maximize": True}),
    ("Adam", {"lr": 0.1, "betas": (0.5, 0.6), "amsgrad": True}),
    ("AdamW", {"lr": 0.1}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.3, "amsgrad": True}),
]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_optimisers_step_by_step(torch: Any, name: str, options: Any, dtype: str) -> None:
    start = array(4, 3).astype(dtype)
    p, q = nn.Parameter(start), torch.nn.Parameter(torch.tensor(start))
    ours = getattr(optim, name)([p], **options)
    theirs = getattr(torch.optim, name)([q], **options)

    @trace
    def step(g):
        p.grad = g
        ours.step()
        ours.zero_grad()

    rtol = 1e-11 if dtype == "float64" else 1e-4
    for count in range(8):
        g = array(4, 3, seed=count).astype(dtype)
        if count == 5:
            for optimizer in (ours, theirs):
                optimizer.param_groups[0]["lr"] = 0.05
        step(tracer.tensor(g))
        q.grad = torch.tensor(g)
        theirs.step()
        same(p, q, rtol)
        for slot, value in theirs.state[q].items():
            if value is not None:
                same(ours.state[p][slot], value, rtol)
    assert step.timings().traces == 1
    names = set(theirs.state_dict()["state"].get(0, {}))
    assert names == set(ours.state_dict()["state"][0]) or name == "SGD"


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("StepLR", {"step_size": 3, "gamma": 0.5}),
        ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.01}),
        ("LambdaLR", {"lr_lambda": lambda epoch: 1 / (1 + epoch)}),
    ],
)
def test_schedules(torch: Any, name: str, options: Any) -> None:
    ours = optim.SGD([nn.Parameter([1.0])], lr=0.4)
    theirs = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.4)
    a = getattr(optim, name)(ours, **options)
    b = getattr(torch.optim.lr_scheduler, name)(theirs, **options)
    for _ in range(9):
        assert a.get_last_lr() == pytest.approx(b.get_last_lr(), rel=1e-9)
        theirs.step()
        a.step()
        b.step()


def test_a_network_trains_alike(torch: Any) -> None:
    tracer.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))
    theirs = torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 3)
    )
    twin(torch, model, theirs)
    ours, other = (
        optim.AdamW(model.parameters(), lr=0.01),
        torch.optim.AdamW(theirs.parameters(), lr=0.01),
    )

    @trace
    def step(x, y):
        loss = nn.functional.cross_entropy(model(x), y)
        ours.zero_grad()
        loss.backward()
        ours.step()
        return loss

    for seed in range(20):
        x, y = array(10, 8, seed=seed), np.random.default_rng(seed).integers(0, 3, 10)
        other.zero_grad()
        expected = torch.nn.functional.cross_entropy(theirs(torch.tensor(x)), torch.tensor(y))
        expected.backward()
        other.step()
        assert float(step(x, y)) == pytest.approx(expected.item(), rel=1e-8)
    for p, q in zip(model.parameters(), theirs.parameters(), strict=True):
        same(p, q, 1e-6)


def test_weights_travel_both_ways_as_safetensors(torch: Any, tmp_path: Any) -> None:
    library = pytest.importorskip("safetensors.torch")
    path = tmp_path / "weights.safetensors"
    model, theirs = nn.Linear(3, 2), torch.nn.Linear(3, 2).bfloat16()
    library.save_file(theirs.state_dict(), path)
    model.load_state_dict(tracer.load_file(path))
    same(model.weight, theirs.float().weight)
    tracer.save_file(model.bfloat16().state_dict(), path)
    theirs.load_state_dict(library.load_file(path))
    same(model.float().bias, theirs.bias)
