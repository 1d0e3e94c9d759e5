"""Calls that mean the same are one program, however their arguments are written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tracer
from tracer import trace
from tracer.tracing.arguments.binding import Binding

X = np.ones(3, np.float32)


def many(
    x: Any, y: Any, /, flag: bool = True, scale: float = 2.0, n: Any = None, *, mode: str = "a"
) -> Any:
    return x, y, flag, scale, n, mode


CALLS = [
    (((1, 2), {}), ((1, 2), {})),
    (((1, 2, True), {}), ((1, 2), {})),
    (((1, 2, 1), {}), ((1, 2, 1), {})),  # 1 is not True
    (((1, 2, False), {}), ((1, 2, False), {})),
    (((1, 2), {"flag": False}), ((1, 2, False), {})),
    (((1, 2), {"flag": True, "mode": "a"}), ((1, 2), {})),
    (((1, 2), {"scale": 2.0}), ((1, 2, True, 2.0), {})),  # a float is an input
    (((1, 2, True, 2.0, None), {}), ((1, 2, True, 2.0), {})),
    (((1, 2), {"n": 5}), ((1, 2), {"n": 5})),
    (((1, 2), {"n": None, "mode": "b"}), ((1, 2), {"n": None, "mode": "b"})),
    (((1,), {"y": 2}), ((1,), {"y": 2})),  # positional only: an error, as it is
    (((1, 2, 3, 4, 5, 6), {}), ((1, 2, 3, 4, 5, 6), {})),
]


@pytest.mark.parametrize(("given", "form"), CALLS)
def test_the_form_of_a_call(given: Any, form: Any) -> None:
    args, kwargs = given
    found = Binding(many).canonical(args, kwargs)
    assert found == form and [*map(type, found[0])] == [*map(type, form[0])]
    assert Binding(many).canonical(*found) == found
    try:
        expected = many(*args, **kwargs)
    except TypeError:
        return
    assert many(*found[0], **found[1]) == expected


def test_calls_that_mean_the_same_are_one_program_and_take_the_fast_way() -> None:
    @trace
    def f(x: Any, flag: bool = True, *, mode: str = "a") -> Any:
        return x * (2.0 if flag else 3.0) + (1.0 if mode == "a" else 0.0)

    for _ in range(2):
        calls = f(X), f(X, True), f(x=X), f(flag=True, x=X), f(X, mode="a"), f(X, True, mode="a")
        for found in calls:
            np.testing.assert_array_equal(found, [3, 3, 3])
    assert f.timings().traces == 1 and f.ir(x=X, flag=True) is f.ir(X)
    np.testing.assert_array_equal(f(X, flag=False), [4, 4, 4])
    np.testing.assert_array_equal(f(X, False), [4, 4, 4])
    np.testing.assert_array_equal(f(X, 1), [3, 3, 3])  # another value than True
    assert f.timings().traces == 3
    f._run = None  # type: ignore[assignment]  # the general way
    np.testing.assert_array_equal(f(flag=False, x=X, mode="a"), [4, 4, 4])
    np.testing.assert_array_equal(f(X, True), [3, 3, 3])


def test_defaults_that_are_replaced_are_noticed() -> None:
    @trace
    def f(x: Any, factor: int = 2) -> Any:
        return x * factor

    np.testing.assert_array_equal(f(X, 2), [2, 2, 2])
    f._function.__defaults__ = (5,)
    np.testing.assert_array_equal(f(X), [5, 5, 5])
    np.testing.assert_array_equal(f(X, 2), [2, 2, 2])
    np.testing.assert_array_equal(f(X, 5), [5, 5, 5])


def test_methods_and_functions_of_any_number_of_arguments() -> None:
    class Layer:
        @trace
        def apply(self, x: Any, twice: bool = False) -> Any:
            return x * 2.0 if twice else x * 1.0

        @trace
        def sum(self, *xs: Any, **named: Any) -> Any:
            return sum((*xs[1:], *named.values()), xs[0])

    layer = Layer()
    layer.apply(X), layer.apply(X, False), layer.apply(x=X)
    assert layer.apply.timings().traces == 1
    np.testing.assert_array_equal(layer.apply(twice=True, x=X), [2, 2, 2])
    np.testing.assert_array_equal(layer.sum(X, X, a=X), [3, 3, 3])


def test_nested_arguments_take_the_fast_way() -> None:
    y = np.full(3, 2, np.float32)

    @trace
    def f(batch: Any, pair: Any) -> Any:
        (a, b), [c] = pair
        return {"sum": batch["x"] * batch["y"] + a * b + c, "same": batch["inner"]["z"]}

    batch, pair = {"x": X, "y": y, "inner": {"z": X}}, ((X, y), [y])
    f(batch, pair)
    run, f._run = f._run, None  # type: ignore[assignment]
    for given in (batch, {"inner": {"z": X}, "y": y, "x": X}):
        found = f(given, pair)
        np.testing.assert_array_equal(found["sum"], [6, 6, 6])
        assert found["same"] is X
    f._run = run  # type: ignore[method-assign]
    for other in ({**batch, "more": X}, {**batch, "inner": {"z": X, "more": y}}):
        np.testing.assert_array_equal(f(other, pair)["sum"], [6, 6, 6])
    np.testing.assert_array_equal(f(batch, ([X, y], [y]))["sum"], [6, 6, 6])
    assert f.timings().traces == 4
    with pytest.raises(KeyError):
        f({**batch, "inner": {"other": X}}, pair)


def test_what_nested_arguments_decide_and_change() -> None:
    @trace
    def f(t: Any) -> Any:
        t["w"] -= t["g"][0] * 0.5
        return t["w"] * 2.0 if t["w"].sum() > 0 else t["w"] + 1.0

    w, g = tracer.tensor([1.0, 2.0]), tracer.tensor([1.0, 1.0])
    expected = np.array([1.0, 2.0])
    for _ in range(6):
        expected = expected - 0.5
        wanted = expected * 2 if expected.sum() > 0 else expected + 1
        np.testing.assert_array_equal(f({"w": w, "g": (g,)}), wanted)
        np.testing.assert_array_equal(w, expected)
    assert f.timings().traces == 2


def test_wrong_calls_say_what_is_wrong() -> None:
    f = trace(lambda x, y=1: x * y, name="product")
    for wrong, match in (
        (lambda: f(), "missing a required argument: 'x'"),
        (lambda: f(X, x=X), "multiple values for argument 'x'"),
        (lambda: f(X, 1, 2), "too many positional arguments"),
        (lambda: f(X, z=1), "unexpected keyword argument 'z'"),
    ):
        with pytest.raises(tracer.ArgumentError, match=f"product: .*{match}"):
            wrong()
