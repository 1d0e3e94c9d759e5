"""Places that a traced function assigns to (names, attributes, items), and what it uses up.

A counter, a flag or a Tensor that the function puts somewhere is taken away when the trace is over, and put there when the
program has run. An iterator and generators of random numbers cannot be treated so: errors.

Knows names as `uses` finds them, and of Tensors that they are one object or another.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from codegen.runtime.pool import WorkerThread
from ops.errors import TraceError
from ops.python_values import same_value
from tracer.core.source_lines import warn
from tracer.tracing.state.code_reads import uses
from tracer.tracing.state.side_effects import ABSENT, SideEffect, Snapshot
from tracer.tracing.state.sources import Place, Source
from tracer.tracing.state.value_kinds import is_changeable, is_generator, is_plain, is_used_up

_GONE = (KeyError, AttributeError, IndexError, TypeError, ValueError, NameError)


class NamedObjects:
    """What the code of a function names, as it is before the function is traced. `objects`: those among its arguments."""

    def __init__(self, function: Any, objects: Mapping[str, Any]) -> None:
        self.function = function
        known = {name: Source(x, name) for name, x in objects.items()}
        self.uses = list(uses([(Source(function), known)]))
        self.read = [use.source for use in self.uses if use.kind == "read"]
        for source in self.read:
            if is_used_up(source.value):
                raise TraceError(
                    f"{source.name} is a {type(source.value).__name__}, whose elements are used up while the function is "
                    "traced; a compiled program would not take the next one. Pass the element as an argument, or name a list"
                )

    def places_of(self, value: Any) -> set[Place]:
        """The places in which the code finds an object."""
        return {
            use.source.place
            for use in self.uses
            if use.kind != "write" and use.source.value is value
        }


class AssignedPlaces:
    """Where the function's code reads plain values, or assigns, with what was there before it is traced."""

    def __init__(self, named: NamedObjects) -> None:
        places = [use.source for use in named.uses if use.kind == "write"]
        places += [source for source in named.read if is_plain(source.value)]
        # what is replaced as a whole comes before its elements, which it takes with it
        outer_first = sorted(places, key=lambda source: len(source.place))
        self._before = {
            source.place: (source, Snapshot(source.name, _now(source))) for source in outer_first
        }
        self.unmoved: list[Snapshot] = []  # places that hold what they held
        self.objects: list[tuple[str, Any]] = []  # by name, what else has been put into places
        # what the code itself empties holds things for as long as it runs
        self._emptied = {id(use.source.value) for use in named.uses if use.kind == "clear"}
        self._containers = [
            (source, Snapshot(source.name, source.value))
            for source in named.read
            if is_changeable(source.value)
        ]

    def restore(self, is_computed: Callable[[Any], bool]) -> list[SideEffect]:
        """Put back what was there, where the trace has left something else."""
        effects: list[SideEffect] = []
        for source, held in self._before.values():
            before, now = held.value, _now(source)
            if now is before:
                self.unmoved.append(held)
                continue
            if now is ABSENT or same_value(now, before):
                continue
            if not is_computed(now):
                self.objects.append((held.name, now))
            try:
                if before is ABSENT:
                    source.delete()
                else:
                    source.assign(before)
            except TypeError:
                continue  # an item of a tuple, and the whole of it was replaced
            effects.append(SideEffect(source.assign, source.now, before, now))
        for source, held in self._containers:  # under keys that the code computes
            if id(held.value) not in self._emptied:
                self.unmoved.append(held)
            for key, before, now in held.put_back(is_computed):
                item = source.item(key, before)
                effects.append(SideEffect(item.assign, item.now, before, now))
        return effects


def _now(source: Source) -> Any:
    try:
        return source.now()
    except _GONE:
        return ABSENT


class Generators:
    """The states of Python's and NumPy's global generators of random numbers, and of those that a function names, before it is
    traced.
    """

    def __init__(self, named: NamedObjects) -> None:
        shared: list[Any] = [np.random.get_state, random.getstate]  # methods of the global ones
        found = [(f.__self__, x) for f, x in zip(shared, ("numpy.random", "random"), strict=True)]
        self._shared = [generator for generator, _ in found]
        found += [(s.value, s.name) for s in named.read if is_generator(s.value)]
        found = [x for x in found if not isinstance(x[0], random.SystemRandom)]  # has no state
        self._before = [(generator, name, _state(generator)) for generator, name in found]

    def check(self) -> None:
        """Raise `TraceError` if the trace has drawn from one; their states are as they were then.

        Where other threads run, which may have drawn from a global one meanwhile, it is a warning.
        """
        drawn = ""
        for generator, name, before in self._before:
            if _is_same(_state(generator), before):
                continue
            text = (
                f"numbers were drawn from {name} while a function is traced, and are constants of its compiled program; use "
                "tracer.random, or pass the numbers as arguments"
            )
            if generator in self._shared and any(map(_may_draw, threading.enumerate())):
                warn(f"{text} (or another thread drew them)")
            else:
                drawn = drawn or text
                _set_state(generator, before)
        if drawn:
            raise TraceError(drawn)


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.bit_generator.state


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state


def _is_same(a: Any, b: Any) -> bool:
    """Whether two states are equal, which may be dicts with arrays."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_is_same(a[k], b[k]) for k in a)
    return a.tobytes() == b.tobytes() if isinstance(a, np.ndarray) else bool(a == b)


def _may_draw(thread: threading.Thread) -> bool:
    """Whether it is another thread than this one that runs Python: not one of a program's workers, nor one that watches progress
    bars."""
    if thread is threading.current_thread() or isinstance(thread, WorkerThread):
        return False
    return not type(thread).__module__.startswith("tqdm.")
