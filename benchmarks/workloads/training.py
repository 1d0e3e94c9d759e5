"""One training step of a multi-layer perceptron: forward, cross-entropy, backward, momentum SGD."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np

from .workload import Call, Workload

RATE = 0.01
MOMENTUM = 0.9

Sizes = tuple[int, ...]


def batch_arrays(sizes: Sizes, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (float32) and labels (int64)."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, sizes[0]), dtype=np.float32)
    return x, rng.integers(0, sizes[-1], batch)


def parameter_arrays(sizes: Sizes) -> list[np.ndarray]:
    """Weight (out, in) and bias of each layer."""
    rng = np.random.default_rng(1)
    arrays = []
    for fan_in, fan_out in pairwise(sizes):
        bound = fan_in**-0.5
        arrays.append(rng.uniform(-bound, bound, (fan_out, fan_in)).astype(np.float32))
        arrays.append(rng.uniform(-bound, bound, fan_out).astype(np.float32))
    return arrays


def tracer_step(sizes: Sizes, batch: int) -> Call:
    import tracer
    import tracer.nn.functional as F
    from tracer import nn, optim

    model = perceptron(nn, sizes)
    names = model.state_dict()
    model.load_state_dict(
        {name: tracer.tensor(a) for name, a in zip(names, parameter_arrays(sizes), strict=True)}
    )
    optimizer = optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    x, y = (tracer.tensor(array) for array in batch_arrays(sizes, batch))

    @tracer.trace
    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return lambda: step(x, y)


def torch_step(sizes: Sizes, batch: int, compiled: bool) -> Call:
    import torch
    import torch.nn.functional as F
    from torch import nn

    model = perceptron(nn, sizes)
    names = model.state_dict()
    model.load_state_dict(
        {name: torch.from_numpy(a) for name, a in zip(names, parameter_arrays(sizes), strict=True)}
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    x, y = (torch.from_numpy(array) for array in batch_arrays(sizes, batch))

    def loss_of(x, y):
        return F.cross_entropy(model(x), y)

    forward = torch.compile(loss_of) if compiled else loss_of

    def step():
        loss = forward(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def perceptron(nn, sizes: Sizes):
    """Linear layers with ReLU between them, from tracer's `nn` or torch's."""
    layers = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def jax_step(sizes: Sizes, batch: int) -> Call:
    import jax
    import jax.numpy as jnp

    def loss_of(parameters, x, y):
        layers = list(zip(parameters[::2], parameters[1::2], strict=True))
        for weight, bias in layers[:-1]:
            x = jax.nn.relu(x @ weight.T + bias)
        weight, bias = layers[-1]
        scores = jax.nn.log_softmax(x @ weight.T + bias)
        return -jnp.take_along_axis(scores, y[:, None], axis=1).mean()

    def step(parameters, velocity, x, y):
        loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y)
        velocity = [MOMENTUM * v + g for v, g in zip(velocity, gradients, strict=True)]
        parameters = [p - RATE * v for p, v in zip(parameters, velocity, strict=True)]
        return parameters, velocity, loss

    compiled = jax.jit(step, donate_argnums=(0, 1))  # updated in place, as the others do
    parameters = [jnp.array(array) for array in parameter_arrays(sizes)]
    state = [parameters, [jnp.zeros_like(p) for p in parameters]]
    x, y = (jnp.asarray(array) for array in batch_arrays(sizes, batch))

    def call():
        state[0], state[1], loss = jax.block_until_ready(compiled(*state, x, y))
        return loss

    return call


def peers(sizes: Sizes, batch: int) -> Mapping[str, Callable[[], Call]]:
    """The step of a perceptron with layers of these sizes, for every peer."""
    return {
        "tracer": lambda: tracer_step(sizes, batch),
        "jax": lambda: jax_step(sizes, batch),
        "torch": lambda: torch_step(sizes, batch, compiled=False),
        "torch.compile": lambda: torch_step(sizes, batch, compiled=True),
    }


def least_bytes(sizes: Sizes) -> int:
    """Parameters and momentum, read and written once."""
    return 4 * 4 * sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(sizes))


def least_flops(sizes: Sizes, batch: int) -> int:
    """A product forward and two backward for each layer, but none for the gradient of the input."""
    products = 3 * sum(fan_in * fan_out for fan_in, fan_out in pairwise(sizes))
    return 2 * batch * (products - sizes[0] * sizes[1])


SMALL, SMALL_BATCH = (64, 32, 10), 32
LARGE, LARGE_BATCH = (784, 1024, 1024, 10), 256
DIGITS, DIGITS_BATCH = (64, 128, 10), 32  # as in examples/digits.py

WORKLOADS = (
    Workload(
        name="mlp_small_step",
        about="training step of a 64-32-10 perceptron, batch 32",
        peers=peers(SMALL, SMALL_BATCH),
        bytes_moved=least_bytes(SMALL),
        flops=least_flops(SMALL, SMALL_BATCH),
        wanted_ratio=0.7,
        against=("jax",),
        wanted_seconds=40e-6,
    ),
    Workload(
        name="mlp_step",
        about="training step of a 784-1024-1024-10 perceptron, batch 256",
        peers=peers(LARGE, LARGE_BATCH),
        bytes_moved=least_bytes(LARGE),
        flops=least_flops(LARGE, LARGE_BATCH),
        wanted_ratio=1.0,
    ),
)
