"""The examples of "Autograd mechanics", as they are written there, on this package and networks of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracer
import tracer.nn.functional as F
from tracer import Variable, nn, optim, trace


class Block(nn.Module):
    """x + a layer of x."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        return x + F.relu(self.linear(self.norm(x)))


class Network(nn.Module):
    """Images of any size to scores, 512 features before `fc`."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(3, 512)
        self.blocks = nn.Sequential(Block(512), Block(512))
        self.fc = nn.Linear(512, 1000)

    def forward(self, images: Any) -> Any:
        return self.fc(self.blocks(self.stem(images.mean(dim=(2, 3)))))


def pretrained() -> Network:
    """One and the same network each time."""
    tracer.manual_seed(1)
    return Network()


@pytest.fixture(autouse=True)
def seeded() -> None:
    tracer.manual_seed(0)


def test_requires_grad_spreads_from_a_single_input() -> None:
    x = Variable(tracer.randn(5, 5))
    y = Variable(tracer.randn(5, 5))
    z = Variable(tracer.randn(5, 5), requires_grad=True)
    a = x + y
    assert a.requires_grad is False
    b = a + z
    assert b.requires_grad is True
    b.sum().backward()
    np.testing.assert_array_equal(z.grad, np.ones((5, 5)))
    assert x.grad is None and y.grad is None


def test_only_the_replaced_head_is_trained() -> None:
    model = pretrained()
    for param in model.parameters():
        param.requires_grad = False
    # Replace the last fully-connected layer
    # Parameters of newly constructed modules have requires_grad=True by default
    model.fc = nn.Linear(512, 100)
    # Optimize only the classifier
    optimizer = optim.SGD(model.fc.parameters(), lr=1e-2, momentum=0.9)

    before = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    images, labels = tracer.randn(4, 3, 5, 5), np.array([1, 2, 3, 99])

    def step(images: Any, labels: Any) -> Any:
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    losses = [float(step(images, labels)) for _ in range(2)]
    compiled = trace(step)
    losses += [float(compiled(images, labels)) for _ in range(2)]
    assert losses == sorted(losses, reverse=True)
    changed = [n for n, v in model.state_dict().items() if not np.array_equal(v, before[n])]
    assert changed == ["fc.weight", "fc.bias"]
    assert all(
        (p.grad is None) == (p not in set(model.fc.parameters())) for p in model.parameters()
    )


@pytest.mark.parametrize("decorate", [lambda f: f, trace], ids=["eager", "traced"])
def test_one_volatile_input_makes_the_output_volatile(decorate: Any) -> None:
    regular_input = Variable(tracer.randn(1, 3, 227, 227))
    volatile_input = Variable(tracer.randn(1, 3, 227, 227), volatile=True)
    network = pretrained()
    model = decorate(lambda images: network(images))
    assert model(regular_input).requires_grad is True
    assert model(volatile_input).requires_grad is False
    assert model(volatile_input).volatile is True
    assert model(volatile_input).grad_fn is None
    assert all(param.requires_grad and not param.volatile for param in network.parameters())


def test_what_is_run_is_what_is_differentiated() -> None:
    """The graph is recorded anew at every iteration, whatever Python's control flow does."""
    w = Variable(np.float32(1.5), requires_grad=True)
    found = []
    for turns in range(4):
        y = w * 1
        while turns:
            y = y * w if turns % 2 else y + w
            turns -= 1
        w.grad = None
        y.backward()
        found.append(float(w.grad))
    assert found == [1, 3, 6, 9.75]  # of w, w*w, (w + w)*w, (w*w + w)*w


def test_leaves_are_the_inputs_and_grad_fn_is_the_entry_to_the_graph() -> None:
    x = Variable(tracer.randn(3), requires_grad=True)
    y = (x.exp() * 2).sum()
    assert x.is_leaf and x.grad_fn is None and not y.is_leaf
    names = []
    node = y.grad_fn
    while node is not None:
        names.append(node.name())
        node = node.next_functions[0][0] if node.next_functions else None
    assert names == ["ReduceSumBackward", "MulBackward", "ExpBackward", "AccumulateGrad"]


def test_a_value_that_a_gradient_needs_was_overwritten() -> None:
    """What a node saves is kept with its version, and the two are compared when the gradient is computed."""
    x = Variable(tracer.randn(3), requires_grad=True)
    a = Variable(tracer.randn(3))
    y = (a * x).sum()
    a.add_(1)
    with pytest.raises(
        tracer.GradError, match=r"changed in place(.|\n)*test_autograd_page\.py:\d+"
    ):
        y.backward()
