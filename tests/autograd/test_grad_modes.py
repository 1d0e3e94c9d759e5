"""no_grad, enable_grad and set_grad_enabled, as contexts and decorators."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tracer
from tests.support.flags import array
from tracer import TraceError, trace


@pytest.fixture(autouse=True)
def seeded() -> None:
    tracer.manual_seed(0)


def recorded() -> bool:
    return (tracer.tensor([1.0], requires_grad=True) * 2).requires_grad


@pytest.mark.parametrize("mode", [tracer.no_grad, tracer.inference_mode])
def test_as_context_as_decorator_with_and_without_parentheses(mode: Any) -> None:
    with mode():
        assert not recorded() and not tracer.is_grad_enabled()
        with tracer.inference_mode(False):
            assert recorded() and tracer.is_grad_enabled()
    for decorate in (mode, mode()):

        @decorate
        def function(x: int, *, y: int = 1) -> tuple[int, bool]:
            """Text."""
            return x + y, recorded()

        assert function.__name__ == "function" and function.__doc__ == "Text."
        assert function(1, y=2) == (3, False)
        assert recorded()

    class Model:
        @mode()
        def method(self) -> tuple[Any, bool]:
            return self, recorded()

        @staticmethod
        @mode
        def static() -> bool:
            return recorded()

    m = Model()
    assert m.method() == (m, False) and not Model.static()
    with pytest.raises(tracer.ArgumentError, match="decorates functions"):
        mode()(Model)
    with pytest.raises(tracer.ArgumentError, match=r"decorates functions(.|\n)*test_grad_modes"):
        mode()(3)


def test_enable_grad_inside_no_grad_but_not_in_inference_mode() -> None:
    with tracer.no_grad():
        with tracer.enable_grad():
            assert recorded()

        @tracer.enable_grad
        def function() -> bool:
            return recorded()

        assert function() and not recorded()
    with tracer.inference_mode(), tracer.enable_grad(), tracer.set_grad_enabled(True):
        assert not recorded() and tracer.is_inference_mode_enabled()
        with tracer.no_grad():
            assert tracer.is_inference_mode_enabled()
    assert recorded() and not tracer.is_inference_mode_enabled()


def test_set_grad_enabled_acts_at_once_or_inside() -> None:
    tracer.set_grad_enabled(False)
    try:
        assert not recorded()
        with tracer.set_grad_enabled(True):
            assert recorded()
        assert not recorded()
    finally:
        tracer.set_grad_enabled(True)
    assert recorded()

    @tracer.set_grad_enabled(False)
    def function() -> bool:
        return recorded()

    assert recorded() and not function() and recorded()
    mode = tracer.set_grad_enabled(False)
    with mode:
        assert not recorded()
    assert recorded()
    with mode:
        assert not recorded()
    assert recorded()
    with pytest.raises(tracer.ArgumentError, match="True or False"):
        tracer.set_grad_enabled(recorded)  # type: ignore[arg-type]


def test_one_mode_is_entered_in_itself_left_by_exceptions_and_shared_by_threads() -> None:
    mode = tracer.no_grad()
    with mode:
        with mode, tracer.enable_grad(), mode:
            assert not recorded()
        with pytest.raises(ZeroDivisionError), tracer.enable_grad():
            raise ZeroDivisionError
        assert not recorded()
    assert recorded()
    barrier = threading.Barrier(2, timeout=60)
    found: list[bool] = []

    def work(first: bool) -> None:
        if first:
            barrier.wait()
        with mode:
            found.append(recorded())
            if not first:
                barrier.wait()
            barrier.wait()
        found.append(not recorded())

    threads = [threading.Thread(target=work, args=(first,)) for first in (True, False)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [False] * 4 and recorded() and not mode._previous


def test_a_generator_has_its_mode_while_it_runs() -> None:
    closed: list[bool] = []

    @tracer.no_grad()
    def numbers(first: int) -> Any:
        try:
            got = yield first, recorded()
            with tracer.enable_grad():
                try:
                    got = yield got, recorded()
                except KeyError:
                    got = yield "caught", recorded()
                got = yield got, recorded()  # the inner mode is still on
            yield got, recorded()
            return "end"
        finally:
            closed.append(recorded())

    g = numbers(1)
    assert recorded() and next(g) == (1, False)
    assert recorded() and g.send(2) == (2, True)
    assert recorded() and g.throw(KeyError) == ("caught", True)
    assert g.send(3) == (3, True)
    with tracer.no_grad():
        assert g.send(4) == (4, False) and not recorded()
    with pytest.raises(StopIteration, match="end"):
        next(g)
    assert closed == [False] and recorded()
    g = numbers(1)
    next(g)
    g.close()
    assert closed == [False] * 2 and recorded()


def test_coroutines_and_asynchronous_generators_have_their_mode_between_others() -> None:
    import asyncio

    @tracer.inference_mode()
    async def quiet(name: str) -> list[bool]:
        found = []
        for _ in range(3):
            found.append(recorded())
            await asyncio.sleep(0)
        return found

    async def loud() -> list[bool]:
        found = []
        for _ in range(3):
            found.append(recorded())
            await asyncio.sleep(0)
        return found

    @tracer.no_grad
    async def stream() -> Any:
        for k in range(2):
            await asyncio.sleep(0)
            try:
                yield k, recorded()
            except KeyError:
                yield "caught", recorded()

    async def main() -> Any:
        results = await asyncio.gather(quiet("a"), loud(), quiet("b"))
        items = [item async for item in stream()]
        s = stream()
        first = await s.__anext__()
        thrown = await s.athrow(KeyError())
        await s.aclose()
        return results, items, first, thrown, recorded()

    results, items, first, thrown, after = asyncio.run(main())
    assert results == [[False] * 3, [True] * 3, [False] * 3]
    assert items == [(0, False), (1, False)] and first == (0, False) and thrown == ("caught", False)
    assert after


def test_modes_in_around_and_below_a_trace() -> None:
    w = tracer.tensor(array(3), requires_grad=True)

    @trace
    def inside(x: Any) -> Any:
        with tracer.no_grad():
            quiet = x * w
        with tracer.inference_mode():
            inferred = x * w
        return quiet, inferred, x * w

    @tracer.no_grad()
    @trace
    def around(x: Any) -> Any:
        return x * w

    @trace
    @tracer.inference_mode
    def below(x: Any) -> Any:
        return x * w

    x = tracer.tensor(array(3))
    for _ in range(3):
        quiet, inferred, learned = inside(x)
        assert learned.requires_grad and not quiet.requires_grad and not quiet.is_inference()
        assert inferred.is_inference() and not inferred.requires_grad
        assert not around(x).requires_grad and not around(x).is_inference()
        assert below(x).is_inference() and recorded()
        with tracer.inference_mode():  # a program of its own
            assert all(y.is_inference() for y in inside(x))
    assert len(inside.signatures()) == 2
    inside(x)[2].sum().backward()
    np.testing.assert_array_equal(w.grad, array(3))


def test_a_trace_that_leaves_the_mode_changed_is_refused() -> None:
    @trace
    def careless(x: Any) -> Any:
        tracer.set_grad_enabled(False)
        return x * 2

    with pytest.raises(TraceError, match=r"gradient mode(.|\n)*test_grad_modes\.py:\d+"):
        careless(array(3))
    assert recorded()
