"""Options of a parameter group: a dict that keeps numbers as compiled programs read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ops.errors import ArgumentError
from tracer.core.source_lines import located
from tracer.tensors.modes import outside_traces


class Options(dict[str, Any]):
    """A dict of options. An option that is a float stays one, whatever number it is set to.

    An option that is a list of floats (betas) stays the same list. So a new value takes effect in
    compiled programs, which know the place of an option and read a float there.
    """

    def __setitem__(self, name: str, value: Any) -> None:
        outside_traces(f"the option {name} is set")
        old = self.get(name)
        if type(old) is float:
            value = _number(name, value)
        elif type(old) is list and name != "params":
            try:
                numbers = [_number(name, x) for x in value]
            except TypeError:
                numbers = []
            if len(numbers) != len(old):
                raise located(ArgumentError(f"{name} is {len(old)} numbers, got {value!r:.60}"))
            old[:] = numbers
            return
        elif type(old) is bool:
            value = bool(value)
        super().__setitem__(name, value)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several options, each as by itself."""
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The option; set first if there is none of the name."""
        if name not in self:
            self[name] = default
        return self[name]

    def __ior__(self, other: Any) -> Options:  # type: ignore[override, misc]
        self.update(other)
        return self

    def __reduce__(self) -> Any:
        return Options, (), None, None, iter(self.items())


def _number(name: str, value: Any) -> float:
    """A Python float of a number, NumPy's and 0-d arrays included."""
    if isinstance(value, bool | str) or getattr(value, "shape", ()) != ():
        raise located(ArgumentError(f"{name} is a number, got {value!r:.60}"))
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise located(ArgumentError(f"{name} is a number, got {value!r:.60}")) from None


def checked(name: str, value: Any, low: float, below: float = np.inf) -> float:
    """A number from low to below a limit, as a float. Raises `ArgumentError` for another one."""
    number = _number(name, value)
    if not low <= number < below:
        limits = f"at least {low:g}" if below == np.inf else f"from {low:g} to below {below:g}"
        raise located(ArgumentError(f"{name} must be {limits}, got {value}"))
    return number


def plain(options: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of options that does not change with them; what JSON holds."""
    return {k: list(v) if isinstance(v, list | tuple) else v for k, v in options.items()}
