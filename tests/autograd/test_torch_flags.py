"""Flags of gradients beside PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

import tracer


@pytest.fixture(autouse=True)
def seeded() -> None:
    tracer.manual_seed(0)


@pytest.mark.torch
def test_nested_modes_record_what_pytorch_records() -> None:
    """Random nestings of modes, as contexts, decorators and statements: what requires a gradient, and what is of inference."""
    import random

    import torch

    chosen = random.Random(0)

    def observe(package: Any, w: Any, x: Any) -> list[tuple[bool, bool]]:
        results = [w * 2, x * 2, package.ones(3), w + x, x[1:], w * x[1]]
        return [(y.requires_grad, y.is_inference()) for y in results]

    def run(package: Any, plan: list[tuple[str, str, bool]]) -> list[Any]:
        w, x = package.tensor([1.0, 2.0, 3.0], requires_grad=True), package.ones(3)
        seen = [observe(package, w, x)]

        def level(depth: int) -> None:
            if depth == len(plan):
                return
            name, form, flag = plan[depth]
            arguments = (flag,) if name in ("set_grad_enabled", "inference_mode") else ()
            make = getattr(package, name)

            def inside() -> None:
                seen.append(observe(package, w, x))
                level(depth + 1)
                seen.append(observe(package, w, x))

            if form == "decorator":
                make(*arguments)(inside)()
            else:
                with make(*arguments):
                    inside()
            seen.append(observe(package, w, x))

        level(0)
        return seen

    for _ in range(200):
        plan = [
            (
                chosen.choice(["no_grad", "enable_grad", "set_grad_enabled", "inference_mode"]),
                chosen.choice(["with", "decorator"]),
                chosen.random() < 0.5,
            )
            for _ in range(chosen.randint(1, 5))
        ]
        assert run(tracer, plan) == run(torch, plan), plan
