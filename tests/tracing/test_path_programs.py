"""Random functions whose Python depends on values: results, gradients, state, random numbers and errors as without a trace."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

import tracer
from tests.support.path_programs import draw
from tracer import random, trace

CALLS = 12
EXAMPLES = settings.default.max_examples  # 50 in the ordinary run
FIRST = int(os.environ["FUZZ_SEED"])  # another one in every run that goes looking
ORDINARY = EXAMPLES <= 50
# In the ordinary run paths are what is looked at: one of the functions is compiled.
PYTHON = pytest.mark.kernels("python")
SEEDS = (
    [3, *(pytest.param(seed, marks=PYTHON) for seed in range(4, 7))]
    if ORDINARY
    else range(FIRST, FIRST + EXAMPLES // 8)
)


class World:
    """What a function reads and changes outside."""

    def __init__(self) -> None:
        self.w = tracer.tensor(np.array([1.0, -1.0, 2.0, 0.0]), requires_grad=True)
        self.buffer = tracer.tensor(np.array([1.0, 2.0, -3.0, 0.0]))
        self.count = tracer.tensor(0)

    def state(self) -> list[Any]:
        tensors = [self.w.detach(), self.buffer, self.count, random.get_state(), self.w.grad]
        return [None if t is None else t.array.copy() for t in tensors]

    def restore(self, state: list[Any]) -> None:
        for tensor, array in zip((self.w.detach(), self.buffer, self.count), state, strict=False):
            tensor.copy_(array)
        random.set_state(state[3])
        self.w.grad = None if state[4] is None else tracer.tensor(state[4])


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return [np.array(x) for x in function(*args)]
    except (ValueError, tracer.BoundsError, tracer.GradError) as error:
        return error


def same(one: Any, two: Any) -> None:
    if isinstance(one, list):
        assert isinstance(two, list), two
        for a, b in zip(one, two, strict=True):
            same(a, b)
    elif isinstance(one, np.ndarray):
        np.testing.assert_array_equal(two, one)
    elif isinstance(one, tracer.BoundsError):
        # in a trace an index is looked at when the program runs, so another error may come first
        assert isinstance(two, Exception), two
    else:
        assert type(two) is type(one)


@pytest.mark.fuzz
@pytest.mark.filterwarnings("ignore:.*(paths for one signature|different answers)")
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_function(seed: int, tmp_path: Path) -> None:
    text, world = draw(seed), World()
    names = {"tracer": tracer, "random": random, **vars(world)}
    file = tmp_path / "program.py"
    file.write_text(text)
    exec(compile(text, str(file), "exec"), names)
    eager: Any = names["f"]
    compiled = trace(eager, max_paths=6)
    random.manual_seed(seed)
    numbers = np.random.default_rng(seed)
    arguments = [np.round(numbers.standard_normal(4) * 3).clip(-8, 8) for _ in range(5)]
    for number in range(CALLS):
        x = arguments[numbers.integers(len(arguments))]
        before = world.state()
        wanted = outcome(eager, tracer.tensor(x))
        # a traced call is all or nothing
        after = before if isinstance(wanted, Exception) else world.state()
        world.restore(before)
        given = x.copy() if number % 3 == 2 else tracer.tensor(x)
        if isinstance(wanted, tracer.GradError):  # an old value is gone, which a trace still has
            outcome(compiled, given)
            continue
        try:
            same(wanted, outcome(compiled, given))
            same(after, world.state())
        except AssertionError as error:
            raise AssertionError(f"call {number} of seed {seed}:\n{text}\n{error}") from None
