"""What Python asks of the values of a running trace: `if t`, `int(t)`, `t.item()`; each query is a guard of the program.

A query is answered by the value's elements on the actual arguments, or by what a program has already observed, which is imposed.
Knows the recorder's graph. Must not know programs and how they are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ops.errors import TraceError, TracerError
from ops.types import is_floating, short
from tracer.core.source_lines import located, user_line
from tracer.ir.graph import Value

if TYPE_CHECKING:
    from tracer.tracing.recording.recorder import Recorder

Array = np.ndarray[Any, Any]
MOST_ELEMENTS = 1024  # that `t.tolist()` asks for


@dataclass(frozen=True, slots=True)
class ValueGuard:
    """A query of Python's (such as "bool(t)"), at which line, of which value of the graph, and the bytes that were observed."""

    query: str
    line: str
    value: Value
    observed: bytes

    @property
    def elements(self) -> Array:
        """What was observed as an array of the value's type."""
        type_ = self.value.type
        return np.frombuffer(self.observed, type_.numpy).reshape(type_.shape)

    @property
    def answer(self) -> Any:
        """What Python was told."""
        return _answer(self.query, self.elements)

    def __str__(self) -> str:
        return f"{self.query} at {self.line or 'an unknown line'}"


def _answer(query: str, elements: Array) -> Any:
    if query == "t.tolist()":
        return elements.tolist()
    number = elements.item()
    if query == "bool(t)":
        return bool(number)
    if query == "int(t)":
        return int(number)
    return float(number) if query == "float(t)" else number


class ValueGuards:
    """The value guards of one trace in order. `known`: what the first ones must observe; None where one path is wanted, so that
    only what nothing can change may be asked.

    Attributes: `many`, whether there may be several paths; `found`; `closed`, whether the function has returned; `failure`, an
    error of a value that was asked for, which ends the trace even if the function catches it: a program has no handler.
    """

    def __init__(
        self,
        recorder: Recorder,
        evaluate: Callable[[Value], Array],
        known: Sequence[ValueGuard] | None,
    ) -> None:
        self._recorder, self._evaluate, self._imposed = recorder, evaluate, list(known or ())
        self.many = known is not None
        self._answered: dict[tuple[Value, str], ValueGuard] = {}
        self.found: list[ValueGuard] = []
        self.closed = False
        self.failure: Exception | None = None

    def check(self) -> None:
        """Raise what a query has raised, even if the function has caught it."""
        if self.failure is not None:
            raise self.failure

    def ask(self, value: Value, query: str, fixed: bool) -> Any:
        """The answer. `fixed`: the value depends on nothing that another call could change, and needs no guard."""
        self._refuse_size(value, query)
        if self.closed:
            raise located(
                TraceError(
                    f"{query} while gradients of a traced function's results are prepared: its path is decided when it runs, "
                    "and their values come later. Call backward() inside the traced function"
                )
            )
        test = self._test(value, query)
        guard = self._answered.get((value, test))
        if guard is None:
            compared = self._compared(value, test)
            observed = None if fixed else self._imposed_on(compared, query)
            if observed is None:
                observed = self._elements(compared).tobytes()
            guard = ValueGuard(query, user_line(), compared, observed)
            self._answered[value, test] = guard
            if not fixed:
                self.found.append(guard)
        return _answer(query, guard.elements)

    @staticmethod
    def _refuse_size(value: Value, query: str) -> None:
        """Raise what NumPy raises where not one element is there."""
        type_ = value.type
        if query == "t.tolist()":
            if int(type_.size) > MOST_ELEMENTS:
                raise located(
                    TraceError(
                        f"t.tolist() of {short(type_)} in a traced function: each list would be a program of its own; "
                        f"at most {MOST_ELEMENTS} are asked for. Compute with tracer's functions, or return the Tensor"
                    )
                )
        elif int(type_.size) != 1:
            stand_in = np.broadcast_to(np.zeros((), type_.numpy), tuple(map(int, type_.shape)))
            _ = bool(stand_in) if query == "bool(t)" else stand_in.item()

    @staticmethod
    def _test(value: Value, query: str) -> str:
        """What is compared: the truth, the whole number, or all bits."""
        if query == "bool(t)":
            return "truth"
        return "whole" if query == "int(t)" and is_floating(value.type.dtype) else "elements"

    def _compared(self, value: Value, test: str) -> Value:
        """The value of the graph that is compared."""
        recorder = self._recorder
        if test == "truth":
            return (
                value if value.type.dtype == "bool" else recorder.derive("Cast", value, to="bool")
            )
        return recorder.derive("Trunc", value) if test == "whole" else value

    def _imposed_on(self, compared: Value, query: str) -> bytes | None:
        """What the next guard must observe; None if nothing is imposed or another query comes than before."""
        number = len(self.found)
        if number >= len(self._imposed):
            return None
        known = self._imposed[number]
        same = known.query == query and known.line == user_line()
        if not same or known.value.type.strong() != compared.type.strong():
            del self._imposed[number:]
            return None
        return known.observed

    def _elements(self, value: Value) -> Array:
        try:
            return self._evaluate(value)
        except Exception as error:
            self.failure = located(error) if isinstance(error, TracerError) else error
            raise self.failure from None
