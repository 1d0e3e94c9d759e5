"""Exceptions in traces leave everything as it was; Tensors of a trace that are kept are errors."""

from __future__ import annotations

import copy
import functools
import pickle
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tracer
from tests.support.traced_values import agree, array, assert_same, observed, tensor
from tracer import TraceError, nn, optim, trace

# What is shown here lies above kernels. Compiled too: whatever is about memory, results, failures and threads.
pytestmark = pytest.mark.kernels("python")


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    tracer.manual_seed(0)
    yield


class Stateful(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("count", tracer.zeros(()))

    def forward(self, x: Any) -> Any:
        self.count = self.count + 1
        return self.layer(x)


@pytest.mark.parametrize("when", ["in the trace", "in the program"])
@pytest.mark.kernels("compiled")
def test_a_call_that_fails_has_changed_nothing_and_the_next_one_is_right(when: str) -> None:
    model = Stateful()
    optimizer = optim.Adam(model.parameters(), lr=0.1)
    rows, fail = tracer.zeros(4), {"now": True}

    @trace
    def step(x: Any, k: Any) -> Any:
        loss = (model(x) ** 2).sum() + tracer.take(x, k, 0).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rows.add_(1)
        noise = tracer.randn(2)
        if fail["now"] and when == "in the trace":
            raise ZeroDivisionError
        return loss, noise

    def state() -> list[Any]:
        tensors = [*model.parameters(), model.count, rows, tracer.random.get_state()]
        tensors += [t for slots in optimizer.state.values() for t in slots.values()]
        return [observed(t) for t in tensors] + [observed(p.grad) for p in model.parameters()]

    x, good, bad = array(4, 3), np.array([1]), np.array([9])
    expected: type[Exception] = ZeroDivisionError
    if when == "in the program":
        fail["now"], expected = False, tracer.BoundsError
        step(x, good)
    before = state()
    for _ in range(2):
        with pytest.raises(expected):
            step(x, good if when == "in the trace" else bad)
        assert_same(state(), before)
    fail["now"] = False
    twin, twin_optimizer = copy.deepcopy((model, optimizer))
    loss, _ = step(x, good)
    eager = (twin(x) ** 2).sum() + x[1].sum()
    twin_optimizer.zero_grad()
    eager.backward()
    twin_optimizer.step()
    np.testing.assert_allclose(loss, eager.detach(), rtol=1e-5)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        np.testing.assert_allclose(p.detach(), q.detach(), rtol=1e-4, atol=1e-6)
    assert float(rows[0]) == (2 if when == "in the program" else 1)


def test_tensors_that_leak_out_of_a_trace() -> None:
    kept = types.SimpleNamespace()

    @functools.lru_cache
    def cached(n: int) -> Any:
        return tracer.ones(3) * n

    @trace
    def function(x: Any) -> Any:
        setattr(kept, "x", x * 2)  # noqa: B010, a way that is not followed
        return x + cached(2)

    x = tensor(3)
    np.testing.assert_array_equal(function(x), function(x))
    uses = (np.asarray, float, bool, repr, lambda t: t + 1, lambda t: t.add_(1), lambda t: x + t)
    more = (lambda t: t.sum().backward(), pickle.dumps, copy.deepcopy, trace(lambda t: t + 1))
    for leaked in (kept.x, cached(2)):
        for use in (*uses, *more):
            if use is not repr:
                with pytest.raises(TraceError, match="trace that is over"):
                    use(leaked)
        assert "traced" in repr(leaked)

    @dataclass
    class Box:
        content: Any

    with pytest.raises(TraceError, match=r"Box whose attribute content is a Tensor"):
        trace(lambda x: Box(x * 2))(x)


def test_results_that_hold_tensors_where_nobody_looks_are_refused() -> None:
    @dataclass(slots=True)
    class Slots:
        value: Any

    class Holder:
        def __init__(self, value: Any) -> None:
            self.table = {"values": [value]}

    def closure(y: Any) -> Any:
        return lambda: y + 1

    refused: list[tuple[Callable[[Any], Any], str]] = [
        (lambda x: {x * 2}, "returns or assigns a set that holds a Tensor"),
        (lambda x: Slots(x * 2), "a Slots whose attribute value is a Tensor"),
        (lambda x: Holder(x * 2), "a Holder whose attribute table holds a Tensor"),
        (lambda x: types.SimpleNamespace(y=x * 2), "SimpleNamespace whose attribute y is"),
        (lambda x: {"y": x * 2}.values(), "a dict_values that holds"),
        (lambda x: zip([x * 2], [1], strict=True), "a zip that holds"),
        (lambda x: iter(x * 2), "a tuple_iterator that holds"),
        (lambda x: closure(x * 2), "a function that holds"),
        (lambda x: functools.partial(tracer.add, x * 2), "a partial that holds"),
        (lambda x: tracer.vjp(tracer.exp, x), "a function that holds"),
        (lambda x: (x * 2).sum, "a method that holds"),
    ]
    for function, message in refused:
        with pytest.raises(TraceError, match=message):
            trace(function)(tensor(3))
    holder = Holder(None)
    before = holder.table

    def assigned(x: Any, make: Callable[[Any], Any]) -> Any:
        holder.table = make(x)
        return x

    for function, _ in refused:
        with pytest.raises(TraceError, match=r"assigns (to holder.table )?a \w+ (that|whose)"):
            trace(assigned)(tensor(3), function)
        assert holder.table is before
    layer, y = nn.Linear(3, 3), tracer.ones(3)

    def kept(x: Any) -> Any:
        holder.table = x * 2
        return holder, layer, Slots(y), closure(y), {1, 2}, (lambda: layer(y))

    assert trace(kept)(tensor(3))[0] is holder and holder.table.shape == (3,)


def test_containers_of_the_caller_that_a_function_changes() -> None:
    def append(x: Any, found: list[Any]) -> Any:
        found.append(x * 2)

    def replace(x: Any, state: dict[str, Any]) -> Any:
        state["sum"] = state["sum"] + x

    def remove(x: Any, state: dict[str, Any]) -> Any:
        del state["sum"]

    x = tensor(3)
    with pytest.raises(
        TraceError, match=r"changes a list that it is given(.|\n)*test_exceptions_and_leaks"
    ):
        trace(append)(x, [])
    for function in (replace, remove):
        state = {"sum": tracer.zeros(3)}
        with pytest.raises(TraceError, match="changes a dict that it is given"):
            trace(function)(x, state)
        assert list(state) == ["sum"] and float(state["sum"][0]) == 0

    def program(decorate: Any) -> Any:
        def in_place(x: Any, state: dict[str, Any], **options: Any) -> Any:
            state["sum"].add_(x)
            options["own"] = 1.0  # the function's own dict
            return state["sum"] * options.pop("factor", 1.0) * options["own"]

        function, state = decorate(in_place), {"sum": tracer.zeros(3)}
        return [function(x, state), function(x, state, factor=2.0), state]

    agree(program)
