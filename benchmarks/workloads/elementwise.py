"""Element by element: a tanh-GELU, its gradient, and the gradient of the Black-Scholes formula."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from .workload import Call, Workload

SIZE = 10_000_000
OPTIONS = 2_000_000
RATE = 0.03


# ---- gelu(a * b + c) -------------------------------------------------------------------------


def gelu_arrays() -> list[np.ndarray]:
    """a, b and c, float32."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal(SIZE, dtype=np.float32) for _ in range(3)]


def gelu_tracer() -> Call:
    import tracer
    import tracer.nn.functional as F

    arrays = [tracer.tensor(array) for array in gelu_arrays()]
    run = tracer.trace(lambda a, b, c: F.gelu(a * b + c, approximate="tanh"))
    return lambda: run(*arrays)


def gelu_grad_tracer() -> Call:
    import tracer
    import tracer.nn.functional as F

    def total(a, b, c):
        return F.gelu(a * b + c, approximate="tanh").sum()

    arrays = [tracer.tensor(array) for array in gelu_arrays()]
    run = tracer.trace(tracer.grad(total, argnums=(0, 1, 2)))
    return lambda: run(*arrays)


def gelu_jax() -> Call:
    import jax

    arrays = [jax.numpy.asarray(array) for array in gelu_arrays()]
    run = jax.jit(lambda a, b, c: jax.nn.gelu(a * b + c, approximate=True))
    return lambda: jax.block_until_ready(run(*arrays))


def gelu_grad_jax() -> Call:
    import jax

    def total(a, b, c):
        return jax.nn.gelu(a * b + c, approximate=True).sum()

    arrays = [jax.numpy.asarray(array) for array in gelu_arrays()]
    run = jax.jit(jax.grad(total, argnums=(0, 1, 2)))
    return lambda: jax.block_until_ready(run(*arrays))


def gelu_torch(compiled: bool) -> Call:
    import torch
    import torch.nn.functional as F

    def gelu(a, b, c):
        return F.gelu(a * b + c, approximate="tanh")

    arrays = [torch.from_numpy(array) for array in gelu_arrays()]
    run = torch.compile(gelu) if compiled else gelu
    return lambda: run(*arrays)


def gelu_grad_torch(compiled: bool) -> Call:
    import torch
    import torch.nn.functional as F

    def total(a, b, c):
        return F.gelu(a * b + c, approximate="tanh").sum()

    arrays = [torch.from_numpy(array).requires_grad_() for array in gelu_arrays()]
    run = torch.compile(total) if compiled else total
    return lambda: torch.autograd.grad(run(*arrays), arrays)


def gelu_numpy() -> Call:
    a, b, c = gelu_arrays()

    def run():
        x = a * b + c
        return 0.5 * x * (1 + np.tanh(np.float32((2 / np.pi) ** 0.5) * (x + 0.044715 * x * x * x)))

    return run


# ---- Black-Scholes ---------------------------------------------------------------------------


def option_arrays() -> list[np.ndarray]:
    """Spot and strike prices, years to go, volatilities; float64."""
    rng = np.random.default_rng(0)
    bounds = ((10, 200), (10, 200), (0.1, 2), (0.1, 0.6))
    return [rng.uniform(low, high, OPTIONS) for low, high in bounds]


def total_value(
    m: ModuleType | SimpleNamespace, spot: Any, strike: Any, years: Any, vol: Any
) -> Any:
    """The sum of the values of European calls, with the functions of a framework's module `m`."""

    def normal_cdf(z):
        return 0.5 * (1 + m.erf(z / 2**0.5))

    spread = vol * m.sqrt(years)
    upper = (m.log(spot / strike) + (RATE + 0.5 * vol * vol) * years) / spread
    discounted = strike * m.exp(-RATE * years)
    return (spot * normal_cdf(upper) - discounted * normal_cdf(upper - spread)).sum()


def options_tracer() -> Call:
    import tracer

    arrays = [tracer.tensor(array) for array in option_arrays()]
    gradient = tracer.grad(lambda *values: total_value(tracer, *values), argnums=(0, 2, 3))
    run = tracer.trace(gradient)
    return lambda: run(*arrays)


def options_jax() -> Call:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    functions = SimpleNamespace(erf=jax.lax.erf, sqrt=jnp.sqrt, log=jnp.log, exp=jnp.exp)
    arrays = [jnp.asarray(array) for array in option_arrays()]
    run = jax.jit(jax.grad(lambda *values: total_value(functions, *values), argnums=(0, 2, 3)))
    return lambda: jax.block_until_ready(run(*arrays))


def options_torch(compiled: bool) -> Call:
    import torch

    def total(spot, strike, years, vol):
        return total_value(torch, spot, strike, years, vol)

    arrays = [torch.from_numpy(array) for array in option_arrays()]
    wanted = [arrays[k].requires_grad_() for k in (0, 2, 3)]
    run = torch.compile(total) if compiled else total
    return lambda: torch.autograd.grad(run(*arrays), wanted)


WORKLOADS = (
    Workload(
        name="gelu_fwd",
        about="gelu(a * b + c), tanh form, 10M float32",
        peers={
            "tracer": gelu_tracer,
            "jax": gelu_jax,
            "torch": lambda: gelu_torch(compiled=False),
            "torch.compile": lambda: gelu_torch(compiled=True),
            "numpy": gelu_numpy,
        },
        bytes_moved=4 * SIZE * 4,
        wanted_ratio=0.6,
    ),
    Workload(
        name="gelu_grad",
        about="gradient of its sum by a, b and c",
        peers={
            "tracer": gelu_grad_tracer,
            "jax": gelu_grad_jax,
            "torch": lambda: gelu_grad_torch(compiled=False),
            "torch.compile": lambda: gelu_grad_torch(compiled=True),
        },
        bytes_moved=6 * SIZE * 4,
        wanted_ratio=0.6,
    ),
    Workload(
        name="blackscholes_grad_f64",
        about="gradient of 2M option values by spot, years and volatility, float64",
        peers={
            "tracer": options_tracer,
            "jax": options_jax,
            "torch": lambda: options_torch(compiled=False),
            "torch.compile": lambda: options_torch(compiled=True),
        },
        bytes_moved=7 * OPTIONS * 8,
        wanted_ratio=0.6,
    ),
)
