"""A long chain of operators: what it costs to trace, compile and run it once."""

from __future__ import annotations

import numpy as np

from .workload import Call

LENGTHS = (1_000, 10_000)


def chain(x, y, length: int, tanh):
    """So many operators, one after the other."""
    for _ in range(length // 4):
        x = tanh(x * y + 0.5) - y
    return x


def chain_arrays() -> list[np.ndarray]:
    """x and y, 1024 float32."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(1024, dtype=np.float32) for _ in range(2)]


def chain_tracer(length: int) -> Call:
    import tracer

    x, y = (tracer.tensor(array) for array in chain_arrays())
    run = tracer.trace(lambda x, y: chain(x, y, length, tracer.tanh))
    return lambda: run(x, y)


def chain_jax(length: int) -> Call:
    import jax

    x, y = (jax.numpy.asarray(array) for array in chain_arrays())
    run = jax.jit(lambda x, y: chain(x, y, length, jax.numpy.tanh))
    return lambda: jax.block_until_ready(run(x, y))


def chain_torch(length: int) -> Call:
    import torch

    x, y = (torch.from_numpy(array) for array in chain_arrays())
    run = torch.compile(lambda x, y: chain(x, y, length, torch.tanh))
    return lambda: run(x, y)


PEERS = {"tracer": chain_tracer, "jax": chain_jax, "torch.compile": chain_torch}
