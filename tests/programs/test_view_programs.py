"""Random programs of views and changes in place: eager and traced against a NumPy model, finite differences and PyTorch."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import numpy as np
import pytest

import tracer
from tests.support.view_programs import LEAVES, Program, Step, draw, leaves, loss, run
from tracer import trace
from tracer.ir.interpreter import interpret

Array = np.ndarray[Any, Any]
VARIABLES = 2  # leaves that require a gradient come first
PER_TEST = 100


def model(program: Program, arrays: list[Array]) -> list[Array]:
    """The program on NumPy."""
    return run(program, [a.copy() for a in arrays], contextlib.nullcontext)


def differences(program: Program) -> list[Array]:
    """The gradient of the loss by the leaves, from central differences."""
    arrays = leaves(program.seed)
    gradients = []
    for array in arrays[:VARIABLES]:
        gradient = np.zeros_like(array)
        for place in np.ndindex(array.shape):
            ends = []
            for step in (1e-6, -1e-6):
                before = array[place]
                array[place] = before + step
                ends.append(loss(model(program, arrays), VARIABLES))
                array[place] = before
            gradient[place] = (ends[0] - ends[1]) / 2e-6
        gradients.append(gradient)
    return gradients


def made_leaves(program: Program) -> list[tracer.Tensor]:
    return [
        tracer.tensor(a, requires_grad=k < VARIABLES) for k, a in enumerate(leaves(program.seed))
    ]


def eager(program: Program) -> tuple[list[Array], list[Any] | str]:
    """Values of all variables, and gradients or why there are none."""
    xs = made_leaves(program)
    variables = run(program, list(xs), tracer.no_grad)
    values = [np.array(v.detach()) for v in variables]
    try:
        loss(variables, VARIABLES).backward()
    except tracer.GradError as error:
        return values, str(error)
    return values, [None if x.grad is None else np.asarray(x.grad) for x in xs[:VARIABLES]]


def traced(program: Program) -> tuple[list[Array], list[Any]]:
    """The same from the graph of the traced program, interpreted: nothing is compiled."""
    xs = made_leaves(program)
    counts: list[int] = []

    def whole(*given: Any) -> Any:
        variables = run(program, list(given), tracer.no_grad)
        loss(variables, VARIABLES).backward()
        counts.append(len(variables))
        # copies: a leaf that is returned as it is would be no output of the graph
        return [v.detach() + 0.0 for v in variables], [x.grad for x in given[:VARIABLES]]

    graph = trace(whole).ir(*xs)
    count = counts[-1]
    results = interpret(graph, [x.detach().numpy() for x in xs])
    gradients: list[Any] = list(results[count : count + VARIABLES])
    return results[:count], gradients


def agree(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return bool(np.allclose(one, other, rtol=1e-7, atol=1e-9))


@pytest.mark.parametrize("first", range(0, 50, 10))
def test_programs_equal_the_model(first: int) -> None:
    """Values against NumPy. Gradients against finite differences; eager, an operand that was changed may be refused instead."""
    refused = 0
    for seed in range(first, first + 10):
        program = draw(seed, 50, smooth=True)
        program = Program(seed, tuple(s for s in program.steps if not changes_leaf(program, s)))
        wanted, slopes = model(program, leaves(seed)), differences(program)
        for how in (eager, traced):
            values, gradients = how(program)
            assert all(map(agree, wanted, values)), f"{how.__name__}: {program}"
            if isinstance(gradients, str):
                assert "changed in place" in gradients
                assert "test_view_programs" in gradients or "view_programs" in gradients
                refused += 1
                continue
            for slope, gradient in zip(slopes, gradients, strict=True):
                found = np.zeros_like(slope) if gradient is None else gradient
                np.testing.assert_allclose(found, slope, rtol=1e-4, atol=1e-4, err_msg=str(program))
    assert refused < 10


def changes_leaf(program: Program, step: Step) -> bool:
    """Whether a step changes a leaf that requires a gradient, or a view of one."""
    views = set(range(VARIABLES))
    number = len(LEAVES)
    for other in program.steps:
        if other.kind == "view" and other.operands[0] in views:
            views.add(number)
        number += other.kind != "change"
    return step.kind == "change" and step.operands[0] in views


def test_leaves_and_their_views_are_refused() -> None:
    refused: Counter[str] = Counter()
    for seed in range(30):
        program = draw(seed, 30)
        xs = made_leaves(program)

        def note(step: Step, error: Exception) -> None:
            assert isinstance(error, tracer.GradError | tracer.ArgumentError)
            refused["leaf" if "leaf" in str(error) else str(error)[:40]] += 1

        run(program, list(xs), tracer.no_grad, note)
        for x, array in zip(xs, leaves(seed), strict=True):
            if x.requires_grad and not any(s.quiet for s in program.steps) and x.is_leaf:
                detached = any(s.name == "detach" for s in program.steps)
                assert detached or np.array_equal(x.detach(), array)
    assert refused["leaf"] > 0


@pytest.mark.torch
@pytest.mark.parametrize("first", range(0, 1000, PER_TEST))
def test_programs_equal_torch(first: int) -> None:
    """Values, gradients or errors, step by step. Where PyTorch refuses what can be done (overlapping operands, parts of a split),
    the step is left out of both."""
    counts: Counter[str] = Counter()
    for seed in range(first, first + PER_TEST):
        compare_with_torch(seed, counts)
    print(dict(counts))
    assert counts["gradients equal"] >= PER_TEST // 5
    assert counts["both refuse the gradient"] >= 1
    assert counts["both refuse the step"] >= 1
    assert counts["only tracer refuses the gradient"] <= PER_TEST // 20


def compare_with_torch(seed: int, counts: Counter[str]) -> None:
    import torch

    program = draw(seed)
    refused: list[tuple[Step, str]] = []

    def torch_leaves() -> list[Any]:
        return [torch.tensor(a, requires_grad=k < VARIABLES) for k, a in enumerate(leaves(seed))]

    run(program, torch_leaves(), torch.no_grad, lambda s, e: refused.append((s, str(e))))
    known = [s for s, _ in refused]
    ours: list[Step] = []
    run(program, list(made_leaves(program)), tracer.no_grad, lambda s, e: ours.append(s))
    for step, message in refused:
        must = "leaf Variable" in message or "single memory location" in message
        if must and "some elements" not in message and step in ours:
            counts["both refuse the step"] += 1
        else:
            counts[f"only PyTorch refuses the step: {message[:50]}"] += 1
    for step in ours:
        assert step in known, f"only tracer refuses {step} of {program}"
    program = Program(seed, tuple(s for s in program.steps if s not in known))
    xs = torch_leaves()
    try:
        variables = run(program, list(xs), torch.no_grad)
    except RuntimeError:
        counts["PyTorch refuses more once steps are left out"] += 1
        return
    wanted = model(program, leaves(seed))
    if not all(agree(w, v.detach().numpy()) for w, v in zip(wanted, variables, strict=True)):
        counts["PyTorch reads what it has overwritten"] += (
            1  # operands that overlap what they change
        )
        wanted_gradients: Any = None
    else:
        try:
            loss(variables, VARIABLES).backward()
            wanted_gradients = [None if x.grad is None else x.grad.numpy() for x in xs[:VARIABLES]]
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            wanted_gradients = str(error)
    for how in (eager, traced):
        values, gradients = how(program)
        assert all(map(agree, wanted, values)), f"{how.__name__}: {program}"
        if isinstance(wanted_gradients, list) and isinstance(gradients, str):
            # a rule of ours keeps the result where PyTorch's keeps an operand (division), or PyTorch's `contiguous` copied
            counts["only tracer refuses the gradient"] += 1
        elif isinstance(wanted_gradients, list):
            assert all(map(agree, wanted_gradients, gradients)), f"{how.__name__}: {program}"
            counts["gradients equal"] += 1
        elif isinstance(wanted_gradients, str) and isinstance(gradients, str):
            counts["both refuse the gradient"] += 1
        elif isinstance(gradients, list):
            counts["a gradient where PyTorch refuses one"] += 1
