"""Random programs of operations, changes in place, hooks and walks back, for two libraries with the same names.

Knows no library: a program is told which one it runs in.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

STEPS = (
    *("add", "sub", "mul", "tanh", "parts", "turned", "detached", "in place"),
    *("hook", "hook", "retain", "prehook", "posthook", "after", "remove"),
)


class Program:
    """A program of one seed. `run(library)`: the log of its hooks, then all gradients."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def run(self, lib: Any) -> list[Any]:
        draw = random.Random(self.seed)
        log: list[str] = []
        leaves = [
            lib.tensor([draw.uniform(-1, 1) for _ in range(4)], requires_grad=True)
            for _ in range(3)
        ]
        tensors, handles = list(leaves), []
        for number in range(draw.randint(3, 14)):
            self._step(draw, lib, f"{number}", tensors, leaves, handles, log)
        out = tensors[-1]
        for t in draw.sample(tensors, 2):
            out = out + t * t
        walk = draw.choice(["backward", "twice", "grad", "inputs"])
        found: list[Any] = []
        loss = out.sum()
        if walk == "grad":
            found = list(lib.autograd.grad(loss, leaves[:2], allow_unused=True))
        elif walk == "inputs":
            loss.backward(inputs=[leaves[0], leaves[2]])
        else:
            if walk == "twice":
                loss.backward(retain_graph=True)
            loss.backward()
        kept = [t.grad if t.retains_grad else None for t in tensors if not t.is_leaf]
        return [log, *found, *(t.grad for t in leaves), *kept]

    @staticmethod
    def _step(
        draw: random.Random,
        lib: Any,
        name: str,
        tensors: list[Any],
        leaves: list[Any],
        handles: list[Any],
        log: list[str],
    ) -> None:
        kind = draw.choice(STEPS)
        a, b = draw.choice(tensors), draw.choice(tensors)
        factor = draw.choice([None, 2.0, 0.5, -1.0])
        results = [t for t in tensors if not t.is_leaf]
        made: dict[str, Callable[[], Any]] = {
            "add": lambda: a + b,
            "sub": lambda: a - b * 0.5,
            "mul": lambda: a * b,
            "tanh": a.tanh,
            "parts": lambda: lib.concat([a[:2] * 2, b[2:]]),
            "turned": lambda: a.reshape(2, 2).transpose(0, 1).reshape(4),
            "detached": lambda: a.detach() * b,
        }

        def scaled(gradients: tuple[Any, ...]) -> Any:
            log.append(name)
            if factor is None:
                return None
            return tuple(None if g is None else g * factor for g in gradients)

        def alone(gradient: Any) -> Any:
            result = scaled((gradient,))
            return result if result is None else result[0]

        if kind in made:
            tensors.append(made[kind]())
        elif kind == "hook":
            handles.append(a.register_hook(alone))
        elif kind == "retain":
            a.retain_grad()
        elif kind == "after":
            leaves[0].register_post_accumulate_grad_hook(lambda leaf: log.append(name))
        elif kind == "remove" and handles:
            handles.pop(draw.randrange(len(handles))).remove()
        elif results and kind == "in place":
            draw.choice(results).add_(b) if factor is None else draw.choice(results).mul_(factor)
        elif results and kind == "prehook":
            draw.choice(results).grad_fn.register_prehook(scaled)
        elif results and kind == "posthook":
            draw.choice(results).grad_fn.register_hook(lambda inputs, outputs: scaled(inputs))
