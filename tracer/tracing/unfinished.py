"""Results of a traced function that are no Tensors and would not work when the trace is over: code that has not run, and objects
that hold Tensors of the trace.

Knows Python's objects. Must not know how results are given back.
"""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Callable, Iterator
from typing import Any

from ops.errors import TraceError
from tracer.tensor import Tensor

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type, types.ModuleType)
_CONTAINERS = (list, tuple, dict, set, frozenset)
_MOST = 256  # objects that are looked at


def refuse_unfinished(x: Any, is_computed: Callable[[Any], bool]) -> None:
    """Raise `TraceError` for a result whose code has not run yet, or that holds Tensors of the trace where nobody looks."""
    if isinstance(x, types.GeneratorType | types.CoroutineType | types.AsyncGeneratorType):
        raise TraceError(
            f"a traced function returns its results, got a {type(x).__name__}, whose code would run after the trace; "
            "return a list or a tuple, and trace the function that the loop or `await` calls"
        )
    where = _place_of_computed(x, is_computed)
    if where is not None:
        raise TraceError(
            f"a traced function returns a {type(x).__name__}{where} a Tensor that it computes; return "
            "Tensors by themselves, or in tuples, lists, dicts and other trees (optree.register_pytree_node)"
        )


def _place_of_computed(x: Any, is_computed: Callable[[Any], bool]) -> str | None:
    """Where an object holds a Tensor of the trace, as words of a message; None if it does not."""
    if isinstance(x, _PLAIN):
        return None
    waiting = [(f" whose attribute {name} is", value) for name, value in _attributes(x)]
    waiting += [(" that holds", value) for value in _held(x)]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST:
        words, value = waiting.pop()
        if id(value) in seen or isinstance(value, _PLAIN):
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            if is_computed(value):
                return words
        else:
            words = words.replace(" is", " holds")
            waiting += [(words, inner) for inner in _held(value)]
    return None


def _attributes(x: Any) -> Iterator[tuple[str, Any]]:
    own = getattr(x, "__dict__", None)
    if isinstance(own, dict) and not callable(x):
        yield from own.items()
    for kind in type(x).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, types.MemberDescriptorType) and not name.startswith("__"):
                try:
                    yield name, member.__get__(x)
                except AttributeError:
                    continue  # a slot that is not filled


def _held(x: Any) -> Iterator[Any]:
    """What containers, functions and Python's own iterators and views refer to."""
    if isinstance(x, dict):
        yield from x.values()
    elif isinstance(x, _CONTAINERS):
        yield from x
    elif isinstance(x, types.FunctionType):
        for cell in x.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:
                continue  # it is not filled
        yield from x.__defaults__ or ()
        yield from (x.__kwdefaults__ or {}).values()
    elif isinstance(x, types.MethodType):
        yield x.__self__
    elif isinstance(x, functools.partial):
        yield from (x.func, x.args, x.keywords)
    elif type(x).__module__ in ("builtins", "itertools", "collections") and not callable(x):
        yield from gc.get_referents(x)
