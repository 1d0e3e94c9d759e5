"""Places that a traced function assigns to (names, attributes, items), and what it uses up.

A counter, a flag or a Tensor that the function puts somewhere is taken away when the trace is over, and put there when the
program has run. An iterator and generators of random numbers cannot be treated so: errors.

Knows names as `reads` finds them, and of Tensors that they are one object or another.
"""

from __future__ import annotations

import functools
import operator
import pickle
import random
import threading
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ops.errors import TraceError
from tracer.core.source_lines import warn
from tracer.tracing.state.code_reads import Found, reads
from tracer.tracing.state.side_effects import ABSENT, At, Before, Change, SetAt
from tracer.tracing.state.value_kinds import is_changeable, is_generator, is_plain, same

_GONE = (KeyError, AttributeError, IndexError, TypeError, ValueError, NameError)


def is_used_up(value: Any) -> bool:
    """Whether a value gives its elements once: a generator, or an iterator of Python's own."""
    if isinstance(value, types.GeneratorType):
        return True
    return isinstance(value, Iterator) and type(value).__module__ in ("builtins", "itertools")


class Named:
    """What the code of a function names, as it is before the function is traced. `objects`: those among its arguments."""

    def __init__(self, function: Any, objects: Mapping[str, Any]) -> None:
        self.function = function
        self.kept: list[Any] = []
        known = {name: Found(x, self._keep(x), name) for name, x in objects.items()}
        self.found = list(reads([(Found(function, "fn", ""), known)], self._keep))
        for found in self.found:
            if is_used_up(found.value):
                raise TraceError(
                    f"{found.name} is a {type(found.value).__name__}, whose elements are used up while the function is traced; "
                    "a compiled program would not take the next one. Pass the element as an argument, or name a list"
                )

    def expressions_of(self, value: Any) -> set[str]:
        """The expressions by which the code names an object."""
        return {f.expression for f in self.found if f.value is value and not f.written}

    def _keep(self, value: Any) -> str:
        self.kept.append(value)
        return f"kept[{len(self.kept) - 1}]"


class Places:
    """Where the function's code reads plain values, or assigns, with what was there before it is traced."""

    def __init__(self, named: Named) -> None:
        self._scope = {"fn": named.function, "kept": named.kept}
        plain = [f for f in named.found if not f.content and is_plain(f.value)]
        written = [f for f in named.found if f.written]
        # what is replaced as a whole comes before its elements, which it takes with it
        outer_first = sorted((*written, *plain), key=lambda f: len(f.expression))
        self._before = {f.expression: Before(f.name, self._at(f.expression)) for f in outer_first}
        self.unmoved: list[Before] = []  # places that hold what they held
        self.objects: list[tuple[str, Any]] = []  # by name, what else has been put into places
        # what the code itself empties holds things for as long as it runs
        self._emptied = {id(f.value) for f in named.found if f.cleared}
        self._containers = [
            (f.expression, Before(f.name, f.value))
            for f in named.found
            if is_changeable(f.value) and not f.content and not f.cleared
        ]

    def _at(self, place: str) -> Any:
        try:
            return eval(place, self._scope)
        except _GONE:
            return ABSENT

    def restore(self, is_computed: Callable[[Any], bool]) -> list[Change]:
        """Put back what was there, where the trace has left something else."""
        changed: list[Change] = []
        for place, held in self._before.items():
            before, now = held.value, self._at(place)
            if now is before:
                self.unmoved.append(held)
                continue
            if now is ABSENT:
                continue
            if is_plain(now) and same(now, before):
                continue
            if not is_computed(now):
                self.objects.append((held.name, now))
            assign = _Assignment(place, self._scope)
            try:
                if before is ABSENT:
                    exec(f"del {place}", self._scope)
                else:
                    assign(before)
            except TypeError:
                continue  # an item of a tuple, and the whole of it was replaced
            changed.append(Change(assign, functools.partial(self._at, place), before, now))
        for container, held in self._containers:  # under keys that the code computes
            if id(held.value) not in self._emptied:
                self.unmoved.append(held)
            for key, before, now in held.put_back(is_computed):
                read = functools.partial(self._at, container)
                changed.append(
                    Change(SetAt(read, key), At(read, operator.itemgetter(key)), before, now)
                )
        return changed


class _Assignment:
    __slots__ = ("_code", "_scope")

    def __init__(self, place: str, scope: dict[str, Any]) -> None:
        self._code = compile(f"{place} = value", "<tracer assignment>", "exec")
        self._scope = scope

    def __call__(self, value: Any) -> None:
        exec(self._code, {**self._scope, "value": value})


_DRAWN = (
    "numbers were drawn from {} while a function is traced, and are constants of its compiled program; use tracer.random, or "
    "pass the numbers as arguments"
)


class NamedGenerators:
    """The states of generators of random numbers that a function names, before it is traced."""

    def __init__(self, named: Named) -> None:
        found = [f for f in named.found if is_generator(f.value)]
        found = [f for f in found if not isinstance(f.value, random.SystemRandom)]  # has no state
        self._before = [(f, pickle.dumps(_state(f.value))) for f in found]

    def check(self) -> None:
        """Raise `TraceError` if the trace has drawn from one; its state is as it was then."""
        for found, before in self._before:
            if pickle.dumps(_state(found.value)) != before:
                state = pickle.loads(before)
                if isinstance(found.value, np.random.Generator):
                    found.value.bit_generator.state = state
                elif isinstance(found.value, np.random.RandomState):
                    found.value.set_state(state)
                else:
                    found.value.setstate(state)
                raise TraceError(_DRAWN.format(found.name))


def _state(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.getstate()


class GlobalGenerators:
    """The states of Python's and NumPy's global generators of random numbers before a trace."""

    def __init__(self) -> None:
        self._python, self._numpy = random.getstate(), np.random.get_state(legacy=False)

    def check(self) -> None:
        """Raise `TraceError` if the trace has drawn from one; its state is as it was then.

        Where other threads run, which may have drawn meanwhile, it is a warning.
        """
        name = ""
        if _key(np.random.get_state(legacy=False)) != _key(self._numpy):
            name = "numpy.random"
        elif random.getstate() != self._python:
            name = "random"
        if not name:
            return
        text = _DRAWN.format(name)
        if any(_may_draw(thread) for thread in threading.enumerate()):
            warn(f"{text} (or another thread drew them)")
            return
        np.random.set_state(self._numpy)
        random.setstate(self._python)
        raise TraceError(text)


def _key(state: Any) -> tuple[Any, ...]:
    values = state["state"]
    rest = [state[name] for name in ("bit_generator", "has_gauss", "gauss")]
    return (*rest, *(x.tobytes() if isinstance(x, np.ndarray) else x for x in values.values()))


def _may_draw(thread: threading.Thread) -> bool:
    """Whether it is another thread than this one, and not the one that watches progress bars."""
    return thread is not threading.current_thread() and not type(thread).__module__.startswith(
        "tqdm."
    )
