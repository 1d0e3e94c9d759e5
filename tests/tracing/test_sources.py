"""Ways to Python's state: as text, as a key, as a place, and what users call them."""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any

import pytest

from tracer.tracing.state.sources import Source, globals_of, named_globals_of, references_of

level = 3
other = [1, 2]


class Color(enum.IntEnum):
    RED = 1


def sample() -> tuple[Any, Any]:
    first: Any = 1
    later: Any

    def function(x: Any, y: Any = 2.5, *, scale: Any = 4) -> Any:
        return first + level + y + scale + len(other) + x.attribute_only + later

    def set_later(value: Any) -> None:
        nonlocal later
        later = value

    if False:
        later = 0
    return function, set_later


def text(source: Source, known: dict[str, Any]) -> str:
    """The text with names for what is always there, which are noted."""

    def constant(value: Any) -> str:
        known.setdefault(f"k{len(known)}", value)
        return next(name for name, x in known.items() if x is value)

    return source.text(constant)


# ---- steps ---------------------------------------------------------------------------------------


def chain() -> tuple[Any, Source]:
    """An object, and a source that goes through it by every kind of step."""
    value = SimpleNamespace(table={"a": [SimpleNamespace(leaf=7)]})
    root = Source(value, "config")
    table = root.own("table", value.table)
    item = table.item("a", value.table["a"]).item(0, value.table["a"][0])
    return value, item.attribute("leaf", 7)


def test_the_text_of_a_source_reads_it() -> None:
    value, source = chain()
    known: dict[str, Any] = {}
    assert text(source, known) == "k0.__dict__['table']['a'][0].leaf"
    assert eval(text(source, known), known) == 7
    assert source.now() == 7
    value.table["a"][0].leaf = 8
    assert (source.now(), source.value) == (8, 7)


@pytest.mark.parametrize(
    "key", [Color.RED, 1.5, float("inf"), (1, 2), "it's", b"x", None, True, -3]
)
def test_keys_are_read_whatever_their_text(key: Any) -> None:
    table = {key: "found"}
    known: dict[str, Any] = {}
    assert eval(text(Source(table).item(key, "found"), known), known) == "found"


def test_names_are_as_in_code_or_with_dots() -> None:
    _, source = chain()
    assert source.name == "config.table['a'][0].leaf"
    assert source.dotted_name == "config.table.a.0.leaf"
    module = SimpleNamespace(_modules={"fc": SimpleNamespace(_parameters={"weight": 1})})
    own = Source(module, "model").own("_modules", module._modules).item("fc", module._modules["fc"])
    weight = own.own("_parameters", own.value._parameters).item("weight", 1)
    assert weight.dotted_name == "model.fc.weight"  # without the tables
    assert weight.name == "model._modules['fc']._parameters['weight']"
    assert (
        Source(0).attribute("__closure__", 0).item(0, 0).attribute("x", 0, "label").name == "label"
    )
    assert Source(module).own("a", 0).name == "a"  # of what has no name


def test_places_are_equal_and_begin_with_those_on_the_way() -> None:
    value, source = chain()
    again = Source(value, "another name").own("table", value.table)
    assert source.place[: len(again.place)] == again.place
    assert source.place != again.place
    assert Source(value).place != Source(SimpleNamespace()).place


def test_long_ways_need_no_recursion() -> None:
    value: Any = "end"
    for _ in range(50_000):
        value = [value]
    source, inner = Source(value), value
    for _ in range(50_000):
        inner = inner[0]
        source = source.item(0, inner)
    assert len(source.steps()) == len(source.place) == 50_001
    assert source.dotted_name.count(".") == 49_999
    known: dict[str, Any] = {}
    assert source.now() == eval(text(source, known), known) == "end"  # Python compiles no such text


# ---- places --------------------------------------------------------------------------------------


def test_sources_are_places() -> None:
    value, source = chain()
    source.assign(9)
    assert value.table["a"][0].leaf == 9
    source.delete()
    assert not hasattr(value.table["a"][0], "leaf")
    item = Source(value.table).item("b", None)
    item.assign(1)
    assert value.table["b"] == 1
    item.delete()
    with pytest.raises(KeyError):
        item.now()


@pytest.mark.parametrize("source", [Source(3), Source((1, 2)).item(0, 1)])
def test_nothing_is_put_into_what_is_no_place(source: Source) -> None:
    with pytest.raises(TypeError):
        source.assign(4)
    with pytest.raises(TypeError):
        source.delete()


# ---- what a function refers to -------------------------------------------------------------------


def test_what_a_function_refers_to_reads_what_it_says() -> None:
    function, set_later = sample()
    fn = Source(function)
    names = [x.name for x in references_of(fn)]
    assert names == ["first", "y", "scale"]  # the other one has no value yet
    set_later(6)
    assert globals_of(fn).value is globals()
    found = [*references_of(fn), *named_globals_of(fn)]
    assert {x.name: x.value for x in found} == {
        "first": 1,
        "later": 6,
        "y": 2.5,
        "scale": 4,
        "level": 3,
        "other": other,
    }
    for source in found:
        known: dict[str, Any] = {}
        assert eval(text(source, known), known) is source.value is source.now()


def test_variables_of_closures_are_places() -> None:
    function, set_later = sample()
    set_later(6)
    later = list(references_of(Source(function)))[1]
    later.assign(10)
    assert function.__closure__[1].cell_contents == later.now() == 10
    set_later(11)
    assert later.now() == 11


def test_defaults_that_lie_in_a_tuple_are_no_places() -> None:
    function, _ = sample()
    _, positional, keyword = references_of(Source(function))
    with pytest.raises(TypeError):
        positional.assign(0)
    keyword.assign(5)
    assert function.__kwdefaults__ == {"scale": 5}
