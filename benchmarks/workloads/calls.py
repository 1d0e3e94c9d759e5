"""What a call costs when there is next to nothing to compute."""

from __future__ import annotations

import numpy as np

from .workload import Call, Workload


def small_arrays() -> list[np.ndarray]:
    """Three arrays of 8, float32."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(8, dtype=np.float32) for _ in range(3)]


def multiply_add(a, b, c):
    """The work: two operators."""
    return a * b + c


def call_tracer() -> Call:
    import tracer

    a, b, c = (tracer.tensor(array) for array in small_arrays())
    run = tracer.trace(multiply_add)
    return lambda: run(a, b, c)


def call_jax() -> Call:
    import jax

    a, b, c = (jax.numpy.asarray(array) for array in small_arrays())
    run = jax.jit(multiply_add)
    return lambda: run(a, b, c).block_until_ready()


def call_torch(compiled: bool) -> Call:
    import torch

    a, b, c = (torch.from_numpy(array) for array in small_arrays())
    run = torch.compile(multiply_add) if compiled else multiply_add
    return lambda: run(a, b, c)


def call_numpy() -> Call:
    a, b, c = small_arrays()
    return lambda: multiply_add(a, b, c)


WORKLOADS = (
    Workload(
        name="call_overhead",
        about="a * b + c on arrays of 8, float32",
        peers={
            "tracer": call_tracer,
            "jax": call_jax,
            "torch": lambda: call_torch(compiled=False),
            "torch.compile": lambda: call_torch(compiled=True),
            "numpy": call_numpy,
        },
        against=("jax", "torch.compile"),
        wanted_seconds=3e-6,
    ),
)
