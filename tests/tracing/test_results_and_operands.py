"""What a traced function takes and gives: views, aliases, containers, arrays of the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import tracer
from tests.support.traced_values import agree, array, tensor
from tracer import ArgumentError, trace

# What is shown here lies above kernels. Compiled too: whatever is about memory, results, failures and threads.
pytestmark = pytest.mark.kernels("python")


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    tracer.manual_seed(0)
    yield


@pytest.mark.kernels("compiled")
def test_old_results_are_kept_across_calls() -> None:
    def program(decorate: Any) -> Any:
        function = decorate(lambda x: (x * 2 + 1, x.sum()))
        x, kept = tensor(3), []
        for _ in range(5):
            kept.append(function(x))
            x = x + 1
        kept[0][0].add_(100)  # one of them changes, the others do not
        return kept

    agree(program)


@pytest.mark.kernels("compiled")
def test_an_output_is_fed_back_as_input() -> None:
    def program(decorate: Any) -> Any:
        function = decorate(lambda x, s: (x * 0.5 + s, s + 1))
        pair, history = (tensor(3), tracer.zeros(3)), []
        for _ in range(5):
            pair = function(*pair)
            history.append(pair)
        return history

    agree(program)


def test_the_same_array_is_given_twice() -> None:
    def program(decorate: Any) -> Any:
        function = decorate(lambda a, b: (tracer.add(a, b), tracer.multiply(a, b)))
        x, y, a = tensor(3), tensor(3, seed=1), array(3)
        w = tensor(3, requires_grad=True)
        function(w, w)[1].sum().backward()
        results = [function(x, x), function(x, y), function(x, x), function(a, a), function(a, x)]

        def change(a: Any, b: Any) -> Any:
            a.add_(1)
            return a * b

        change = decorate(change)
        return [*results, w.grad, change(x, y), change(x, x), change(x, y), x, y]

    agree(program)


@pytest.mark.kernels("compiled")
def test_memory_that_two_arguments_share_is_not_changed_under_the_other_name() -> None:
    @trace
    def function(a: Any, b: Any) -> Any:
        a.add_(1)
        return a * b

    a = array(3)
    with pytest.raises(
        ArgumentError, match=r"shares memory with(.|\n)*test_results_and_operands\.py:\d+"
    ):
        function(tracer.asarray(a), a)
    np.testing.assert_array_equal(a, array(3))


def test_arguments_by_position_by_keyword_and_by_default() -> None:
    def program(decorate: Any) -> Any:
        def function(a: Any, b: Any = 2.0, *rest: Any, c: Any = None, **named: Any) -> Any:
            total = a * b if c is None else a * b + c
            for x in (*rest, *named.values()):
                total = total + x
            return total

        f, x = decorate(function), tensor(3)
        return [
            f(x),
            f(a=x),
            f(x, 3.0),
            f(x, b=3.0),
            f(b=3.0, a=x),
            f(x, c=x),
            f(c=1.0, a=x, b=x),
            f(x, x, x, x),
            f(x, d=x),
            f(x, d=x, e=2.0),
            f(x, e=2.0, d=x),
        ]

    agree(program)


class Pair(NamedTuple):
    first: Any
    second: Any


@pytest.mark.kernels("compiled")
def test_what_is_returned() -> None:
    """An input, a constant, nothing, the same value twice, what is made in the function; in any tree."""
    outside, plain = tracer.ones(2), np.ones(2, np.float32)

    def function(x: Any) -> Any:
        y = x * 2
        return {
            "input": x,
            "constants": (None, 5, "text", 2.5),
            "outside": outside,
            "twice": (y, [y]),
            "pair": Pair(y, x),
            "made": tracer.zeros(2),
            "array": np.arange(3),
            "copy": plain.copy(),
        }

    def program(decorate: Any) -> Any:
        traced, x, kept = decorate(function), tensor(3), []
        for _ in range(3):
            r = traced(x)
            same = r["input"] is x, r["outside"] is outside, r["twice"][0] is r["twice"][1][0]
            kept.append((r, same, r["pair"].second is x, r["pair"].first is r["twice"][0]))
        kept[0][0]["made"].add_(1)  # each call makes its own
        kept[0][0]["array"][0] = 7
        empty = [decorate(f)(x) for f in (lambda x: None, lambda x: 5, lambda x: (), lambda x: [])]
        return kept, empty, decorate(lambda: tracer.ones(2))()

    agree(program)


VIEWS: dict[str, Callable[[Any], Any]] = {
    "of an argument": lambda x: (x[1:], x.T, x * 2),
    "of parts": lambda x: tracer.split(x, 2),
    "detached": lambda x: (x.detach(), x.data[0]),
    "of a result": lambda x: (lambda y: (y[0], y, y.T[0][1:], y.detach()))(x * 2),
    "of what is not returned": lambda x: (lambda y: (y[:3], y[1:]))(x * 2),
    "of what is changed": lambda x: (lambda y: (y.mul_(2), y[0], x[2:])[1:])(x[1:]),
    "that is a copy": lambda x: x.T.reshape(12),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.kernels("compiled")
def test_results_that_are_views_share_memory_as_without_a_trace(name: str) -> None:
    def program(decorate: Any) -> Any:
        function, seen = decorate(VIEWS[name]), []
        for _ in range(2):
            x = tensor(4, 3)
            results = function(x)
            results = results if isinstance(results, tuple) else (results,)
            results[0].add_(1)
            seen.append((x, results))
        return seen

    agree(program)


@pytest.mark.kernels("compiled")
def test_views_of_parameters_and_of_what_requires_gradients() -> None:
    def program(decorate: Any) -> Any:
        w = tensor(4, 3, requires_grad=True)
        views = decorate(lambda: (w[1:], w.T))
        for _ in range(2):
            first, _ = views()
        with tracer.no_grad():
            w.mul_(2)
        function = decorate(lambda x: (lambda y: (y, y[0]))(x * 2))
        for _ in range(2):
            whole, part = function(w)
        part.mul_(3)  # the gradient of the whole knows it
        (whole.sum() + first.sum()).backward()
        return first, w, w.grad, whole

    agree(program)


@pytest.mark.kernels("compiled")
def test_results_that_have_a_gradient_or_are_leaves() -> None:
    def program(decorate: Any) -> Any:
        w = tensor(3, requires_grad=True)

        @decorate
        def retained(x: Any) -> Any:
            y = x * w
            y.retain_grad()
            (y * y).sum().backward()
            return y

        @decorate
        def leaves(x: Any) -> Any:
            y, z = x * 2, tracer.zeros(3)
            y.requires_grad_()
            z.requires_grad = True
            (z * x * w).sum().backward()
            return y, z, z * x + y

        seen = []
        for _ in range(3):
            w.grad = None
            y, z, total = leaves(tracer.ones(3))
            seen.append((y.is_leaf, z.is_leaf, y.grad, z.grad.clone(), w.grad))
            (total * total).sum().backward()
            seen.append((retained(tracer.ones(3)).grad, y.grad, z.grad))
        return seen

    agree(program)
