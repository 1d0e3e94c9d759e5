"""When two plain values are one, and what a function refers to."""

from __future__ import annotations

import enum
import math
import struct
from collections import namedtuple
from types import FunctionType
from typing import Any

import numpy as np
import pytest

from ops.python_values import (
    MISSING,
    PlainValue,
    closure_references,
    default_references,
    global_names,
    global_references,
    references_of,
    same_value,
)


class Mode(enum.IntEnum):
    ON = 1


class Name(str):
    pass


class Degrees(float):
    def __repr__(self) -> str:
        return "degrees"


Point = namedtuple("Point", "x y")
OTHER_NAN = struct.unpack("d", struct.pack("Q", 0x7FF8_0000_0000_0001))[0]

DIFFERENT: list[Any] = [
    1,
    True,
    1.0,
    1 + 0j,
    "1",
    b"1",
    0,
    False,
    0.0,
    -0.0,
    complex(0.0, -0.0),
    complex(-0.0, 0.0),
    0j,
    math.nan,
    OTHER_NAN,
    math.inf,
    None,
    ...,
    "",
    b"",
    (),
    (1,),
    (True,),
    (1.0,),
    (0.0,),
    (-0.0,),
    (1, (2,)),
    (1, (2.0,)),
    Point(1, 2),
    (1, 2),
    Mode.ON,
    Name("1"),
    Degrees(1.0),
    Degrees(2.0),
    np.float64(1.0),
    np.float32(1.0),
    np.float64(-0.0),
    np.float64(0.0),
    np.int64(1),
    np.bool_(True),
    np.longdouble(1),
    np.str_("1"),
    np.datetime64(1, "D"),
    np.datetime64(1, "s"),
]


@pytest.mark.parametrize("k", range(len(DIFFERENT)))
def test_different_values_are_not_the_same(k: int) -> None:
    for m, other in enumerate(DIFFERENT):
        assert same_value(DIFFERENT[k], other) is (k == m), m
        assert (PlainValue(DIFFERENT[k]) == PlainValue(other)) is (k == m), m


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (10**30, int("1" + "0" * 30)),
        (0.5, float("0.5")),
        (math.nan, float("nan")),
        (complex(math.nan, -0.0), complex(float("nan"), -0.0)),
        ("word", "".join("word")),
        (b"word", bytes([*b"word"])),
        ((1, ("a", 2.5, None)), (1, ("".join("a"), float("2.5"), None))),
        (Point(1, 2.5), Point(1, float("2.5"))),
        (Name("x"), Name("x")),
        (Degrees(1.0), Degrees(1.0)),
        (Degrees("nan"), Degrees("nan")),
        (np.float32(0.1), np.float32(0.1)),
        (np.float64("nan"), np.float64("nan")),
        (np.longdouble("0.1"), np.longdouble("0.1")),
        (np.datetime64("nat", "s"), np.datetime64("nat", "s")),
    ],
)
def test_equal_values_are_the_same_and_one_key(a: Any, b: Any) -> None:
    assert a is not b
    assert same_value(a, b)
    assert PlainValue(a) == PlainValue(b)
    assert hash(PlainValue(a)) == hash(PlainValue(b))
    assert repr(PlainValue(a)) == repr(a)


def test_integers_with_too_many_digits_for_text() -> None:
    a, b = 10**5000, pow(10, 5000)
    assert same_value(a, b)
    assert not same_value(a, b + 1)
    assert {PlainValue(a), PlainValue(b)} == {PlainValue(a)}


def test_what_is_not_plain_is_the_same_as_itself_only() -> None:
    items: list[int] = []
    assert same_value(items, items)
    assert not same_value(items, [])
    assert not same_value((items,), ([],))
    assert same_value((items, 1), (items, 1))


# ---- references ----------------------------------------------------------------------------------

level = 3


def using(x: Any, y: Any = 2.5, *, scale: Any = (1, 2)) -> Any:
    def inner() -> Any:
        return undefined_name + level  # type: ignore[name-defined]  # noqa: F821

    return inner, len(x.level_of), y, scale


def closure() -> tuple[FunctionType, Any, Any]:
    later: Any
    first = 1

    def function() -> Any:
        return first + later

    def set_later(value: Any) -> None:
        nonlocal later
        later = value

    def set_first(value: Any) -> None:
        nonlocal first
        first = value

    if False:
        later = 0
    return function, set_first, set_later  # type: ignore[return-value]


def test_globals_builtins_and_defaults_are_found_also_in_inner_functions() -> None:
    found = {(r.kind, r.name): r.value for r in references_of(using)}  # type: ignore[arg-type]
    assert found == {
        ("builtin", "len"): len,
        ("global", "undefined_name"): MISSING,
        ("global", "level"): 3,
        ("default", "y"): 2.5,
        ("default", "scale"): (1, 2),
    }
    assert global_names(using.__code__) == ("len", "undefined_name", "level")  # no attributes


def test_cells_are_found_in_their_order_with_or_without_a_value() -> None:
    function, set_first, set_later = closure()
    first, later = closure_references(function)
    assert (first.name, first.value, first.now()) == ("first", 1, 1)
    assert (later.name, later.value, later.now()) == ("later", MISSING, MISSING)
    set_later(5)
    set_first(7)
    assert (first.value, first.now()) == (1, 7)
    assert (later.value, later.now()) == (MISSING, 5)


def test_the_place_of_a_reference_reads_it() -> None:
    function, _, set_later = closure()
    set_later(2)
    for fn in (using, function):
        for found in references_of(fn):  # type: ignore[arg-type]
            if found.value is not MISSING:
                assert eval(f"fn{found.place}", {"fn": fn}) is found.value


def test_a_reference_says_what_its_value_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    def changing(x: Any, y: Any = 1, *, z: Any = 2) -> Any:
        return x + y + z + level + abs(x)

    references = {r.name: r for r in references_of(changing)}  # type: ignore[arg-type]
    monkeypatch.setitem(globals(), "level", 4)
    monkeypatch.setitem(globals(), "abs", max)  # hides the builtin
    changing.__defaults__ = (5,)
    changing.__kwdefaults__["z"] = 6
    assert {n: r.now() for n, r in references.items()} == {"y": 5, "z": 6, "level": 4, "abs": max}
    changing.__defaults__ = None
    changing.__kwdefaults__ = None  # type: ignore[assignment]
    monkeypatch.delitem(globals(), "level")
    assert [references[n].now() for n in ("y", "z", "level")] == [MISSING] * 3


def test_a_function_without_references_has_none() -> None:
    function: Any = lambda x: x.real  # noqa: E731
    assert list(references_of(function)) == []
    assert list(global_references(function)) == list(default_references(function)) == []
