"""Where Python state lies: the way from an object that is there at every call, such as the traced function, to a value.

Knows how Python holds values: as attributes, items, variables of closures, globals and defaults. Must not know which of them
matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from ops.python_values import MISSING, closure_references, default_references, global_names

Step = Literal["root", "attribute", "own", "item", "bound"]
Place = tuple[Any, ...]
"""A way as a key."""
_MOST_STEPS = 200  # in a text, which Python's compiler walks recursively
_LITERALS = frozenset((str, int, bool, bytes, type(None)))  # whose text is what they are


class Source:
    """A value, and how it is reached: from a root, which a guard has, or by a step from another source.

    `step`: "attribute"; "own", an attribute in the object's `__dict__`; "item"; "bound", what a class makes of a function (a
    method), which can be neither read without running code nor compared. `label`: what users call it, where the steps do not
    say it.
    """

    __slots__ = ("base", "key", "label", "step", "value")

    def __init__(
        self,
        value: Any,
        label: str | None = "",
        base: Source | None = None,
        step: Step = "root",
        key: Any = None,
    ) -> None:
        self.value, self.label, self.base, self.step, self.key = value, label, base, step, key

    def attribute(self, name: str, value: Any, label: str | None = None) -> Source:
        """What `object.name` is."""
        return Source(value, label, self, "attribute", name)

    def own(self, name: str, value: Any) -> Source:
        """What `object.__dict__[name]` is."""
        return Source(value, None, self, "own", name)

    def item(self, key: Any, value: Any, label: str | None = None) -> Source:
        """What `container[key]` is."""
        return Source(value, label, self, "item", key)

    def bound(self, name: str, value: Any) -> Source:
        """What the class makes of the function that it has under this name."""
        return Source(value, None, self, "bound", name)

    def steps(self) -> list[Source]:
        """The sources on the way, from the root to this one."""
        found = [self]
        while found[-1].base is not None:
            found.append(found[-1].base)
        return found[::-1]

    @property
    def place(self) -> Place:
        """The way as a key: sources of one place have equal ones, which begin with those of the sources on the way."""
        root, *others = self.steps()
        return id(root.value), *((x.step, x.key) for x in others)

    # ---- as text
    def text(self, constant: Callable[[Any], str]) -> str:
        """An expression that reads it. `constant` gives one for an object that is always there: the root, or a key."""
        root, *others = self.steps()
        if len(others) > _MOST_STEPS:
            return f"{constant(self.now)}()"
        parts = [constant(root.value)]
        for x in others:
            if x.step == "attribute":
                parts.append(f".{x.key}")
            else:
                key = repr(x.key) if type(x.key) in _LITERALS else constant(x.key)
                parts.append(f"[{key}]" if x.step == "item" else f".__dict__[{key}]")
        return "".join(parts)

    @property
    def name(self) -> str:
        """What a user calls it, as it stands in code: `config.sizes[0]`."""
        return self._name("__", "[{!r}]")

    @property
    def dotted_name(self) -> str:
        """What it is called as an input of a program: `model.layers.0.weight`, without the names of private tables."""
        return self._name("_", ".{}")

    def _name(self, private: str, item: str) -> str:
        text = ""
        for x in self.steps():
            if x.label is not None:
                text = x.label
            elif x.step == "item":
                text += item.format(x.key)
            elif not x.key.startswith(private if x.step == "own" else "__"):
                text += f".{x.key}"
        return text.lstrip(".")

    # ---- as a place
    def now(self) -> Any:
        """What is there now. Raises what reading raises where there is nothing."""
        root, *others = self.steps()
        value = root.value
        for x in others:
            if x.step == "item":
                value = value[x.key]
            else:
                value = value.__dict__[x.key] if x.step == "own" else getattr(value, x.key)
        return value

    def assign(self, value: Any) -> None:
        """Put something there. Raises `TypeError` where nothing can be put."""
        holder = self._holder()
        if self.step == "item":
            holder[self.key] = value
        else:
            setattr(holder, self.key, value)

    def delete(self) -> None:
        """Take away what is there."""
        holder = self._holder()
        if self.step == "item":
            del holder[self.key]
        else:
            delattr(holder, self.key)

    def _holder(self) -> Any:
        if self.base is None:
            raise TypeError("an object is no place")
        return self.base.now()


# ---- what a function refers to -------------------------------------------------------------------


def references_of(function: Source) -> Iterator[Source]:
    """What a function brings along: variables of the functions around it, defaults of its parameters, under their names."""
    cells = function.attribute("__closure__", None)
    for found in (*closure_references(function.value), *default_references(function.value)):
        if found.value is MISSING:
            continue
        if found.kind == "closure":
            cell = cells.item(found.key, None)
            yield cell.attribute("cell_contents", found.value, found.name)
        else:
            table = "__kwdefaults__" if isinstance(found.key, str) else "__defaults__"
            yield function.attribute(table, None).item(found.key, found.value, found.name)


def globals_of(function: Source) -> Source:
    """The table of a function's globals."""
    return function.attribute("__globals__", function.value.__globals__)


def named_globals_of(function: Source) -> Iterator[Source]:
    """The globals that the code of a function names, in the order of their names."""
    table = globals_of(function)
    for name in sorted(global_names(function.value.__code__)):
        if name in table.value:
            yield table.item(name, table.value[name], name)
