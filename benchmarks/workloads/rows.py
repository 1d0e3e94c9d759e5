"""Row by row: gradients through a softmax and through a layer norm, float32."""

from __future__ import annotations

import numpy as np

from .workload import Call, Workload

SOFTMAX_SHAPE = (4096, 1000)
NORM_SHAPE = (8192, 768)
EPSILON = 1e-5


# ---- sum(softmax(x) * w) by x ----------------------------------------------------------------


def softmax_arrays() -> list[np.ndarray]:
    """x and the weights of the sum."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(SOFTMAX_SHAPE, dtype=np.float32) for _ in range(2)]


def softmax_tracer() -> Call:
    import tracer

    x, w = (tracer.tensor(array) for array in softmax_arrays())
    run = tracer.trace(tracer.grad(lambda x, w: (tracer.softmax(x, axis=-1) * w).sum()))
    return lambda: run(x, w)


def softmax_jax() -> Call:
    import jax

    x, w = (jax.numpy.asarray(array) for array in softmax_arrays())
    run = jax.jit(jax.grad(lambda x, w: (jax.nn.softmax(x, axis=-1) * w).sum()))
    return lambda: jax.block_until_ready(run(x, w))


def softmax_torch(compiled: bool) -> Call:
    import torch

    def total(x, w):
        return (torch.softmax(x, dim=-1) * w).sum()

    x, w = (torch.from_numpy(array) for array in softmax_arrays())
    x.requires_grad_()
    run = torch.compile(total) if compiled else total
    return lambda: torch.autograd.grad(run(x, w), x)


# ---- sum(layer_norm(x, scale, shift) * w) by x, scale and shift ------------------------------


def norm_arrays() -> list[np.ndarray]:
    """x, scale, shift and the weights of the sum."""
    rng = np.random.default_rng(0)
    shapes = (NORM_SHAPE, NORM_SHAPE[1:], NORM_SHAPE[1:], NORM_SHAPE)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def norm_tracer() -> Call:
    import tracer
    import tracer.nn.functional as F

    def total(x, scale, shift, w):
        return (F.layer_norm(x, NORM_SHAPE[1:], scale, shift, EPSILON) * w).sum()

    arrays = [tracer.tensor(array) for array in norm_arrays()]
    run = tracer.trace(tracer.grad(total, argnums=(0, 1, 2)))
    return lambda: run(*arrays)


def norm_jax() -> Call:
    import jax

    def total(x, scale, shift, w):
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        return ((centred * jax.lax.rsqrt(variance + EPSILON) * scale + shift) * w).sum()

    arrays = [jax.numpy.asarray(array) for array in norm_arrays()]
    run = jax.jit(jax.grad(total, argnums=(0, 1, 2)))
    return lambda: jax.block_until_ready(run(*arrays))


def norm_torch(compiled: bool) -> Call:
    import torch
    import torch.nn.functional as F

    def total(x, scale, shift, w):
        return (F.layer_norm(x, NORM_SHAPE[1:], scale, shift, EPSILON) * w).sum()

    arrays = [torch.from_numpy(array) for array in norm_arrays()]
    wanted = [array.requires_grad_() for array in arrays[:3]]
    run = torch.compile(total) if compiled else total
    return lambda: torch.autograd.grad(run(*arrays), wanted)


WORKLOADS = (
    Workload(
        name="softmax_grad",
        about="gradient of sum(softmax(x) * w) by x, 4096 rows of 1000",
        peers={
            "tracer": softmax_tracer,
            "jax": softmax_jax,
            "torch": lambda: softmax_torch(compiled=False),
            "torch.compile": lambda: softmax_torch(compiled=True),
        },
        bytes_moved=3 * 4096 * 1000 * 4,
        wanted_ratio=0.6,
    ),
    Workload(
        name="layernorm_grad",
        about="gradient of sum(layer_norm(x) * w) by x, scale and shift, 8192 rows of 768",
        peers={
            "tracer": norm_tracer,
            "jax": norm_jax,
            "torch": lambda: norm_torch(compiled=False),
            "torch.compile": lambda: norm_torch(compiled=True),
        },
        bytes_moved=3 * 8192 * 768 * 4,
        wanted_ratio=1.0,
    ),
)
