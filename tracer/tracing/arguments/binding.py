"""One form for calls that mean the same: `f(x=a)`, `f(a, True)` and `f(a)` where the default is True are one signature.

Arguments by keyword go to their positions, and plain values that are the defaults are left out. Knows functions and their
parameters, nothing of what arguments are.
"""

from __future__ import annotations

import inspect
import types
from typing import Any

from ops.python_values import same_value

_PLAIN = frozenset((bool, int, str, bytes, type(None)))  # compared by value; a float is an input
_By = inspect.Parameter
_NOTHING: dict[str, Any] = {}

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Binding:
    """The parameters of a function. Calls of what is no Python function, and of one with *args, keep their form.

    `parameters`: their names, none if they are not known. `least`: a call of no keywords and no more arguments has its one form
    already.
    """

    __slots__ = ("_function", "_names", "_signature", "least", "parameters")

    def __init__(self, function: Any) -> None:
        self._function: types.FunctionType | None = None
        self._names: tuple[str, ...] = ()
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self._signature = None
        self.parameters = () if self._signature is None else tuple(self._signature.parameters)
        bound = isinstance(function, types.MethodType)
        plain = function.__func__ if bound else function
        if isinstance(plain, types.FunctionType):
            parameters = list(inspect.signature(function, follow_wrapped=False).parameters.values())
            if all(p.kind is not _By.VAR_POSITIONAL for p in parameters):
                self._function = plain
                self._names = tuple(
                    p.name if p.kind is _By.POSITIONAL_OR_KEYWORD else ""
                    for p in parameters
                    if p.kind in (_By.POSITIONAL_ONLY, _By.POSITIONAL_OR_KEYWORD)
                )
        self.least = len(self._names) - len(self._defaults)

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise `TypeError` for a call that Python would refuse."""
        if self.parameters and self._signature is not None:
            self._signature.bind(*args, **kwargs)

    @property
    def needs_arguments(self) -> bool:
        """Whether it cannot be called without any."""
        try:
            self.check((), {})
        except TypeError:
            return True
        return False

    @property
    def _defaults(self) -> tuple[Any, ...]:
        """Those of the last parameters, as they are now."""
        return (self._function.__defaults__ or ()) if self._function is not None else ()

    def canonical(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """The call in its one form."""
        if self._function is None or len(args) > len(self._names):
            return args, kwargs
        if kwargs:
            args, kwargs = self._by_position(args, kwargs)
        defaults = self._defaults
        first = len(self._names) - len(defaults)
        count = len(args)
        while count > first and _same(args[count - 1], defaults[count - 1 - first]):
            count -= 1
        return args[:count], kwargs

    def _by_position(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        assert self._function is not None
        defaults, known = self._defaults, self._function.__kwdefaults__ or _NOTHING
        kwargs = {k: v for k, v in kwargs.items() if k not in known or not _same(v, known[k])}
        first = len(self._names) - len(defaults)
        placed = list(args)
        for position in range(len(args), len(self._names)):
            name = self._names[position]
            if name and name in kwargs:
                placed.append(kwargs.pop(name))
            elif position >= first and type(defaults[position - first]) in _PLAIN:
                placed.append(defaults[position - first])  # a later one may be given
            else:
                break
        return tuple(placed), kwargs


def _same(value: Any, default: Any) -> bool:
    return type(value) in _PLAIN and same_value(value, default)
