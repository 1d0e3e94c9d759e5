"""Text of Python and the functions that it becomes."""

from __future__ import annotations

import gc
import itertools
import linecache
import math
import traceback
from typing import Any

import pytest

from codegen.text.source import FunctionSource, Source, compile_function, identifiers


def test_blocks_are_indented_and_notes_aligned() -> None:
    inner = Source()
    inner.open("if x:")
    inner.line("return x", "a note")
    inner.close()
    out = Source()
    out.open("def f(x):")
    out.add(["y = 1", "z = 2"])
    out.extend(inner)
    out.line("return None", "another")
    assert str(out) == (
        "def f(x):\n"
        "    y = 1\n"
        "    z = 2\n"
        "    if x:\n"
        "        return x  # a note\n"
        "    return None   # another\n"
    )
    assert out.identifiers == {"def", "f", "x", "y", "z", "if", "return", "None"}
    assert identifiers("a.b1 + 2 * _c") == {"a", "b1", "_c"}


def test_a_function_names_objects_and_returns_early() -> None:
    first, second = object(), object()
    out = FunctionSource("classify", "x, default=None", {"len": len})
    assert out.constant(first) == out.constant(first) != out.constant(second)
    assert [out.constant(x) for x in (None, True, False)] == ["None", "True", "False"]
    out.return_if(f"x is {out.constant(first)}", "'first'")
    out.open("if default is None:")
    out.line(f"return {out.constant(second)}")
    out.close()
    out.line("return default")
    classify = out.function("test text")
    assert classify.__name__ == "classify"
    assert classify(first) == "first"
    assert classify(1) is second
    assert classify(1, default=3) == 3


def test_objects_of_a_function_never_hide_each_other() -> None:
    """The text keeps its objects alive, so that a number of an object is never another one's."""
    out = FunctionSource("f", "")
    names = [out.constant([k]) for k in range(100)]
    out.line(f"return [{', '.join(names)}]")
    assert out.function("test text")() == [[k] for k in range(100)]


VALUES: list[Any] = [None, True, 1, 1.0, -0.0, 0.0, 0, math.nan, "1", b"1", (1,), (True,), (0.0,)]


def test_a_condition_tells_plain_values_apart() -> None:
    for a, b in itertools.product(VALUES, VALUES):
        out = FunctionSource("f", "holder")
        out.return_if(out.differs("holder[0]", b), "True")
        out.line("return False")
        assert out.function("test text")([a]) is (a is not b), (a, b)
    out = FunctionSource("f", "x")
    out.line(f"return {out.differs('x', 1.5)} or {out.differs('x', 1.5)}")
    assert out.function("test text")(float("1.5")) is False


def test_tracebacks_show_the_line_of_the_text() -> None:
    functions = []
    for k in range(2):
        out = FunctionSource("failing", "x")
        out.line(f"return x.attribute_{k}")
        functions.append(out.function("test text"))
    for k, function in enumerate(functions):
        with pytest.raises(AttributeError) as caught:
            function(1)
        shown = "".join(traceback.format_exception(caught.value))
        assert f"return x.attribute_{k}" in shown
        assert "<test text " in shown


def test_a_text_is_forgotten_with_its_function() -> None:
    old = compile_function("def f():\n    return 1\n", "f", {}, "<test forgotten>")
    new = compile_function("def f():\n    return 2\n", "f", {}, "<test forgotten>")
    assert (old(), new()) == (1, 2)
    del old
    gc.collect()
    assert linecache.getline("<test forgotten>", 2) == "    return 2\n"
    del new
    gc.collect()
    assert "<test forgotten>" not in linecache.cache
