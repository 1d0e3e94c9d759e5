"""State that a traced function reads and leaves: gradients, numbers, attributes, what helpers read."""

from __future__ import annotations

import functools
import threading
import time
import types

import numpy as np
import pytest

import tracer
from tracer import nn, trace

# ---- state of traced functions -------------------------------------------------------------------


def test_gradients_of_arguments_that_backward_gives_them_in_a_trace() -> None:
    @trace
    def accumulate(x):
        tracer.sum(x * x).backward()

    first, second = (
        tracer.tensor([1.0, 2.0], requires_grad=True),
        tracer.tensor([3.0, 4.0], requires_grad=True),
    )
    for k in range(1, 4):
        accumulate(first)
        np.testing.assert_array_equal(first.grad, [2 * k, 4 * k])
    accumulate(second)
    np.testing.assert_array_equal(second.grad, [6, 8])
    assert accumulate.timings().traces == 2  # with and without a gradient that is there

    @trace
    def renew(x):
        x.grad = None
        tracer.sum(x * x).backward()
        return x.grad

    for _ in range(3):
        np.testing.assert_array_equal(renew(first), [2, 4])
        np.testing.assert_array_equal(first.grad, [2, 4])
    assert renew.timings().traces == 1


def test_a_gradient_is_cleared_that_was_not_there_when_the_function_was_traced() -> None:
    weight = tracer.tensor([1.0, 2.0], requires_grad=True)

    @trace
    def clear(x):
        weight.grad = None
        return x * 2.0

    clear(np.ones(2, np.float32))
    for _ in range(2):
        tracer.sum(weight).backward()
        clear(np.ones(2, np.float32))
        assert weight.grad is None


def test_a_number_of_a_trace_that_is_over() -> None:
    kept = types.SimpleNamespace()

    @trace
    def leak(x, s):
        setattr(kept, "s", s)  # noqa: B010, a way that is not followed
        return x * s

    leak(np.ones(2, np.float32), 0.5)
    for use in (float, bool):
        with pytest.raises(tracer.TraceError):
            use(kept.s)


def test_a_float_argument_that_is_changed_in_place_is_another_number() -> None:
    @trace
    def halve(x, s):
        s *= 0.5
        return x * s, s

    for s in (3.0, 5.0):
        for _ in range(2):
            scaled, half = halve(np.ones(2, np.float32), s)
            np.testing.assert_array_equal(scaled, [s / 2, s / 2])
            assert float(half) == s / 2
    assert halve.timings().traces == 1


def test_errors_of_a_call_carry_the_line_of_the_call() -> None:
    take = trace(lambda x, k: tracer.take(x, k, axis=0))
    x = np.arange(3, dtype=np.float32)
    take(x, np.array([1]))
    for _ in range(2):
        with pytest.raises(
            tracer.BoundsError, match=r"an index is out of range.*(?s:.*)test_traced_state\.py:\d+"
        ) as caught:
            take(x, np.array([7]))
        assert str(caught.value).count("test_traced_state.py") == 1


def test_two_threads_trace_a_function_once() -> None:
    inside = threading.Barrier(2, timeout=60)

    @trace
    def slow(x):
        time.sleep(0.05)
        return x * 3.0

    def call() -> None:
        inside.wait()
        results.append(slow(np.ones(4, np.float32)))

    results: list[tracer.Tensor] = []
    threads = [threading.Thread(target=call) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 2 and all((r.array == 3).all() for r in results)
    assert slow.timings().traces == 1


# ---- what decided a trace is noticed when it changes ---------------------------------------------


SCALE = 2.0


settings = types.ModuleType("settings")
settings.depth = 2


def scaled(x, power=1.0):
    return x * SCALE * power


class Plain:
    rate = 2.0

    def __init__(self) -> None:
        self.gain, self.options, self.calls = 3.0, {"mode": "double", "shift": [0.0, 1.0]}, 0

    @property
    def total(self):
        return self.gain * self.rate

    def helper(self, x):
        return x * self.total

    def __call__(self, x):
        y = self.helper(x) + self.options["shift"][1]
        return y * 2.0 if self.options["mode"] == "double" else y

    @trace
    def run(self, x):
        return self(x)


class Scaling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 2))
        self.plain = Plain()

    def forward(self, x):
        return self.inner(x) * 0.0 + self.plain.gain * SCALE


def follows(function, x, *changes) -> int:
    """Whether a traced function gives what the plain one gives after each change; how often it was traced."""
    traced = function if hasattr(function, "timings") else trace(function)
    plain = traced._function
    for change in (lambda: None, *changes):
        change()
        for _ in range(2):
            np.testing.assert_allclose(np.asarray(traced(x)), np.asarray(plain(x)), rtol=1e-6)
    return traced.timings().traces


def test_values_that_helpers_read(monkeypatch) -> None:
    x = np.ones(2, np.float32)
    change = lambda name, value: lambda: monkeypatch.setitem(globals(), name, value)  # noqa: E731
    assert follows(lambda x: scaled(x), x, change("SCALE", 5.0)) == 2
    assert follows(lambda x: sum(scaled(v) for v in (x, x)), x, change("SCALE", 6.0)) == 2
    assert (
        follows(lambda x: scaled(x), x, lambda: monkeypatch.setattr(scaled, "__defaults__", (4.0,)))
        == 2
    )
    assert follows(functools.partial(scaled), x, change("SCALE", 7.0)) == 2
    assert follows(lambda x: scaled(x), x, change("scaled", lambda x: x - 1.0)) == 2


def test_values_in_modules_containers_and_objects(monkeypatch) -> None:
    x = np.ones(2, np.float32)
    plain = Plain()
    assert (
        follows(lambda x: x * settings.depth, x, lambda: monkeypatch.setattr(settings, "depth", 3))
        == 2
    )
    table = {"k": 2.0, "rest": (1.0, 2.0)}
    renew = (lambda: table.update(k=3.0), lambda: table.update(rest=(5.0, 7.0)))
    assert follows(lambda x: x * table["k"] + table["rest"][-1], x, *renew) == 3
    for run in (lambda x: plain(x), plain, plain.run, plain.helper):
        assert (
            follows(
                run,
                x,
                lambda: setattr(plain, "gain", plain.gain + 1.0),
                lambda: setattr(Plain, "rate", Plain.rate + 1.0),
            )
            == 3
        )
    assert (
        follows(
            plain.run,
            x,
            lambda: plain.options.update(mode="once"),
            lambda: plain.options.update(shift=[0.0, 9.0]),
        )
        >= 3
    )


def test_values_that_a_layer_reads(monkeypatch) -> None:
    model = Scaling()
    x = np.ones((1, 2), np.float32)
    with tracer.no_grad():
        change = (
            lambda: monkeypatch.setitem(globals(), "SCALE", 9.0),
            lambda: setattr(model.plain, "gain", 8.0),
            lambda: setattr(model, "plain", Plain()),
        )
        assert follows(lambda x: model(x), x, *change) == 3  # the last time as the second


def test_an_object_that_is_an_argument() -> None:
    @trace
    def f(x, options):
        return x * options.gain

    options = Plain()
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(f(x, options), [3, 3])
    options.gain = 4.0
    np.testing.assert_array_equal(f(x, options), [4, 4])


def test_what_code_does_not_read_is_no_reason_to_trace_again() -> None:
    plain = Plain()
    x = np.ones(2, np.float32)

    def count() -> None:
        plain.calls += 1
        plain.options["other"] = plain.calls

    assert follows(plain.run, x, count, count) == 1


def test_calls_of_several_kinds_in_turn_all_take_the_fast_way(monkeypatch) -> None:
    double = trace(lambda x: x * 2.0)
    batches = [np.ones(n, np.float32) for n in (3, 4, 5)]
    for x in batches:
        double(x)
    monkeypatch.setattr(double, "_find", None)
    for x in batches * 2:
        np.testing.assert_array_equal(double(x), 2 * x)
