"""Copies and pickles of traced functions and of what they hold."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tracer
from tests.support.traced_values import agree, array, tensor
from tracer import nn, optim, trace

# What is shown here lies above kernels. Compiled too: whatever is about memory, results, failures and threads.
pytestmark = pytest.mark.kernels("python")


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    tracer.manual_seed(0)
    yield


class Doubling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)

    @trace
    def forward(self, x: Any) -> Any:
        return self.layer(x) * 2


@trace(name="module level")
def module_level(x: Any) -> Any:
    """Pickled by its name, as functions are."""
    return x * 2


@pytest.mark.kernels("compiled")
def test_modules_optimisers_and_traced_functions_are_copied_and_pickled() -> None:
    def program(decorate: Any) -> Any:
        def step_of(model: Any, optimizer: Any) -> Any:
            @decorate
            def step(x: Any) -> Any:
                loss = (model(x) ** 2).sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                return loss

            return step

        tracer.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = optim.Adam(model.parameters(), lr=0.1)
        x, seen = tensor(4, 3), []
        step = step_of(model, optimizer)
        seen += [step(x), step(x)]
        for twin in (
            copy.deepcopy((model, optimizer)),
            pickle.loads(pickle.dumps((model, optimizer))),
        ):
            other = step_of(*twin)
            seen += [other(x), other(x), step(x)]
        return seen

    agree(program)
    x, first = tensor(4, 3), Doubling()
    y = first(x)
    for twin in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        np.testing.assert_array_equal(twin(x).detach(), y.detach())
        twin.layer.weight.data = tracer.zeros((2, 3))
        assert not np.array_equal(twin(x).detach(), y.detach())
        np.testing.assert_array_equal(first(x).detach(), y.detach())
    assert pickle.loads(pickle.dumps(module_level)) is module_level
    assert copy.deepcopy(module_level) is module_level
    bound = pickle.loads(pickle.dumps(first.forward))
    np.testing.assert_array_equal(bound(x).detach(), y.detach())
    wrapped = trace(np.exp)
    np.testing.assert_allclose(
        pickle.loads(pickle.dumps(wrapped))(x), np.exp(array(4, 3)), rtol=1e-5
    )
