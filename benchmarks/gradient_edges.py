"""Gradients at the edges, ours beside PyTorch's and JAX's: the table of docs/numerics.md.

    python -m benchmarks.gradient_edges

Each row is one function at one point, written once for all three; what is shown is the gradient.
float32, on the CPU. Nothing is timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import numpy as np

inf, nan = math.inf, math.nan
Function = Callable[[Any, Any], Any]

# What, the function of (a framework's functions, x), x.
ROWS: tuple[tuple[str, Function, list[float]], ...] = (
    ("`where(x > 0, sqrt(x), 0)` at 0", lambda m, x: m.where(x > 0, m.sqrt(x), 0.0), [0]),
    ("`where(x > 0, log(x), 0)` at 0", lambda m, x: m.where(x > 0, m.log(x), 0.0), [0]),
    ("`where(x > 0, 1 / x, 0)` at 0", lambda m, x: m.where(x > 0, 1 / x, 0.0), [0]),
    ("`where(x > 0, x**0.3, 0)` at 0", lambda m, x: m.where(x > 0, x**0.3, 0.0), [0]),
    ("`where(x < 9, exp(x), 0)` at 1000", lambda m, x: m.where(x < 9, m.exp(x), 0.0), [1000]),
    ("`where(isnan(x), 0, x * x)` at nan", lambda m, x: m.where(m.isnan(x), 0.0, x * x), [nan]),
    (
        "`where(x > 0, norm([x, x]), 0)` at 0",
        lambda m, x: m.where(x > 0, m.norm(m.stack([x, x])), 0.0),
        [0],
    ),
    ("`sqrt(relu(x))` at -1", lambda m, x: m.sqrt(m.relu(x)), [-1]),
    ("`0 * sqrt(x)` at 0", lambda m, x: 0.0 * m.sqrt(x), [0]),
    ("`sqrt(x * x)` at 0", lambda m, x: m.sqrt(x * x), [0]),
    (
        "`sqrt(sum((x - y)**2))` where x = y",
        lambda m, x: m.sqrt(((x - m.detached(x)) ** 2).sum()),
        [1, 2],
    ),
    ("`norm(x)` of zeros", lambda m, x: m.norm(x), [0, 0]),
    ("`norm(x, 1)` of zeros", lambda m, x: m.norm(x, 1), [0, 0]),
    ("`norm(x, 3)` of zeros", lambda m, x: m.norm(x, 3), [0, 0]),
    ("`norm(x, inf)` of zeros", lambda m, x: m.norm(x, inf), [0, 0]),
    ("`std(x)` of equal values", lambda m, x: m.std(x), [5, 5, 5]),
    ("`max(x)` of [1, 3, 3]", lambda m, x: m.max(x), [1, 3, 3]),
    ("`maximum(x, 1)` at 1", lambda m, x: m.maximum(x, m.asarray(1.0)), [1]),
    ("`maximum(x, 1)` at nan", lambda m, x: m.maximum(x, m.asarray(1.0)), [nan]),
    ("`maximum(1, x)` by 1, at nan", lambda m, x: m.maximum(x, m.asarray(nan)), [1]),
    ("`clip(x, -1, 1)` at 1", lambda m, x: m.clip(x, -1.0, 1.0), [1]),
    ("`prod(x)` of [2, 0, 3]", lambda m, x: m.prod(x), [2, 0, 3]),
    ("`prod(x)` of [2, 0, 0]", lambda m, x: m.prod(x), [2, 0, 0]),
    ("`x**0.0` at 0", lambda m, x: x**0.0, [0]),
    ("`x**y` at 0, y = 0, by y", lambda m, x: m.asarray(0.0) ** x, [0]),
    ("`abs(x)` at 0", lambda m, x: abs(x), [0]),
    ("`relu(x)` at 0", lambda m, x: m.relu(x), [0]),
    ("`hypot(x, 0)` at 0", lambda m, x: m.hypot(x, 0 * x), [0]),
    ("`atan2(x, 0)` at 0", lambda m, x: m.atan2(x, 0 * x), [0]),
    ("`atan2(1, x)` at inf", lambda m, x: m.atan2(m.asarray([1.0]), x), [inf]),
    ("`logsumexp` of all -inf", lambda m, x: m.logsumexp(x), [-inf, -inf]),
    ("`logsumexp` of [3e38, 3e38]", lambda m, x: m.logsumexp(x), [3e38, 3e38]),
    ("`logsumexp` of [inf, 0]", lambda m, x: m.logsumexp(x), [inf, 0]),
    ("`logaddexp(x, -inf)` at -inf", lambda m, x: m.logaddexp(x, m.asarray([-inf])), [-inf]),
    ("`gelu(x)` at inf", lambda m, x: m.gelu(x), [inf]),
    ("`silu(x)` at inf", lambda m, x: m.silu(x), [inf]),
    ("cross-entropy of [1e4, -1e4], class 1", lambda m, x: m.cross_entropy(x, 1), [1e4, -1e4]),
    ("cross-entropy of [3e38, -3e38], class 1", lambda m, x: m.cross_entropy(x, 1), [3e38, -3e38]),
    ("second order: `x**2.0` at 0", lambda m, x: m.slope(lambda x: x**2.0, x), [0]),
    (
        "second order: `where(x > 0, sqrt(x), 0)` at 0",
        lambda m, x: m.slope(lambda x: m.where(x > 0, m.sqrt(x), 0.0), x),
        [0],
    ),
    # where we are no better, or not right
    ("`sqrt(x)**2` at 0; the limit is 1", lambda m, x: m.sqrt(x) ** 2, [0]),
    ("`(x**3.0)**(1 / 3)` at 0; the limit is 1", lambda m, x: (x**3.0) ** (1 / 3), [0]),
    (
        "`where(x > 9, x @ [inf, 1], 0)` at [0, 0]",
        lambda m, x: m.where(x > 9, x @ m.asarray([inf, 1.0]), 0.0),
        [0, 0],
    ),
)


def ours() -> Callable[[Function, list[float]], Any]:
    """The gradient of a row's function at x, by this project."""
    import tracer
    import tracer.nn.functional as F

    def slope(f: Callable[[Any], Any], x: Any) -> Any:
        return tracer.grad(lambda x: f(x).sum())(x)

    m = SimpleNamespace(
        **{name: getattr(tracer, name) for name in NAMES},
        norm=lambda x, ord=2: tracer.vector_norm(x, ord=ord),
        detached=lambda x: x.detach(),
        cross_entropy=lambda x, label: F.cross_entropy(x[None], np.array([label])),
        slope=slope,
    )
    return lambda f, x: np.asarray(slope(lambda x: f(m, x), np.array(x, np.float32)))


NAMES = (
    "asarray", "atan2", "clip", "exp", "gelu", "hypot", "isnan", "log", "logaddexp", "logsumexp", "max",
    "maximum", "prod", "relu", "silu", "sqrt", "stack", "std", "where",
)  # fmt: skip


def torchs() -> Callable[[Function, list[float]], Any]:
    """The same by PyTorch."""
    import torch
    import torch.nn.functional as F

    def slope(f: Callable[[Any], Any], x: Any) -> Any:
        y = f(x).sum()
        return torch.autograd.grad(y, x, create_graph=True)[0]

    special = ("gelu", "silu", "relu", "logsumexp", "std")
    m = SimpleNamespace(
        **{name: getattr(torch, name) for name in NAMES if name not in special},
        gelu=F.gelu,
        silu=F.silu,
        relu=torch.relu,
        logsumexp=lambda x: torch.logsumexp(x, 0),
        std=lambda x: torch.std(x, correction=0),
        norm=lambda x, ord=2: torch.linalg.vector_norm(x, ord),
        detached=lambda x: x.detach(),
        cross_entropy=lambda x, label: F.cross_entropy(x[None], torch.tensor([label])),
        slope=slope,
    )

    def run(f: Function, x: list[float]) -> Any:
        return (
            slope(lambda x: f(m, x), torch.tensor(x, dtype=torch.float32, requires_grad=True))
            .detach()
            .numpy()
        )

    return run


def jaxs() -> Callable[[Function, list[float]], Any]:
    """The same by JAX."""
    import jax
    import jax.numpy as jnp

    def slope(f: Callable[[Any], Any], x: Any) -> Any:
        return jax.grad(lambda x: f(x).sum())(x)

    special = ("atan2", "gelu", "silu", "relu", "logsumexp")
    m = SimpleNamespace(
        **{name: getattr(jnp, name) for name in NAMES if name not in special},
        atan2=jnp.arctan2,
        gelu=lambda x: jax.nn.gelu(x, approximate=False),
        silu=jax.nn.silu,
        relu=jax.nn.relu,
        logsumexp=jax.nn.logsumexp,
        norm=lambda x, ord=2: jnp.linalg.vector_norm(x, ord=ord),
        detached=jax.lax.stop_gradient,
        cross_entropy=lambda x, label: -jax.nn.log_softmax(x)[label],
        slope=slope,
    )
    return lambda f, x: np.asarray(slope(lambda x: f(m, x), jnp.asarray(x, jnp.float32)))


def shown(gradient: Any) -> str:
    """A gradient in the fewest digits that tell it apart."""
    numbers = [f"{v + 0.0:.4g}" for v in np.asarray(gradient, np.float64).ravel()]
    return numbers[0] if len(numbers) == 1 else f"[{', '.join(numbers)}]"


def main() -> None:
    """Print the table."""
    frameworks = {"ours": ours, "PyTorch": torchs, "JAX": jaxs}
    runs = {name: make() for name, make in frameworks.items()}
    versions = {"ours": "", "PyTorch": metadata.version("torch"), "JAX": metadata.version("jax")}
    print("| gradient of |", " | ".join(f"{n} {versions[n]}".strip() for n in runs), "|")
    print("|---|---|---|---|")
    for what, function, x in ROWS:
        found = [shown(run(function, x)) for run in runs.values()]
        print(f"| {what} | {' | '.join(found)} |")


if __name__ == "__main__":
    main()
