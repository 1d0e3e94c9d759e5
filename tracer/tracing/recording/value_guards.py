"""What Python asks of the values of a running trace: `if t`, `int(t)`, `t.item()`; each question is a guard of the program.

A question is answered by the value's elements on the actual arguments, or by an outcome that is imposed because a program has
already seen it. Knows the recorder's graph. Must not know programs and how they are chosen.
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
class Question:
    """What was asked (such as "bool(t)"), at which line, of which value of the graph, and the bytes of its outcome."""

    asked: str
    line: str
    value: Value
    outcome: bytes

    @property
    def elements(self) -> Array:
        """The outcome as an array of the value's type."""
        type_ = self.value.type
        return np.frombuffer(self.outcome, type_.numpy).reshape(type_.shape)

    @property
    def answer(self) -> Any:
        """What Python was told."""
        return _answer(self.asked, self.elements)

    def with_outcome(self, outcome: bytes) -> Question:
        """The same question with another outcome."""
        return Question(self.asked, self.line, self.value, outcome)

    def __str__(self) -> str:
        return f"{self.asked} at {self.line or 'an unknown line'}"


def _answer(asked: str, elements: Array) -> Any:
    if asked == "t.tolist()":
        return elements.tolist()
    number = elements.item()
    if asked == "bool(t)":
        return bool(number)
    if asked == "int(t)":
        return int(number)
    return float(number) if asked == "float(t)" else number


class Questions:
    """The questions of one trace in order. `known`: imposed outcomes of the first ones; None where one path is wanted, so that
    only what nothing can change may be asked.

    Attributes: `many`, whether there may be several paths; `asked`; `closed`, whether the function has returned; `failure`, an
    error of a value that was asked for, which ends the trace even if the function catches it: a program has no handler.
    """

    def __init__(
        self,
        recorder: Recorder,
        evaluate: Callable[[Value], Array],
        known: Sequence[Question] | None,
    ) -> None:
        self._recorder, self._evaluate, self._imposed = recorder, evaluate, list(known or ())
        self.many = known is not None
        self._answered: dict[tuple[Value, str], Question] = {}
        self.asked: list[Question] = []
        self.closed = False
        self.failure: Exception | None = None

    def ask(self, value: Value, asked: str, fixed: bool) -> Any:
        """The answer. `fixed`: the value depends on nothing that another call could change, and needs no guard."""
        self._refuse_size(value, asked)
        if self.closed:
            raise located(
                TraceError(
                    f"{asked} while gradients of a traced function's results are prepared: its path is decided when it runs, "
                    "and their values come later. Call backward() inside the traced function"
                )
            )
        test = self._test(value, asked)
        question = self._answered.get((value, test))
        if question is None:
            guard = self._guard(value, test)
            outcome = None if fixed else self._known_outcome(guard, asked)
            if outcome is None:
                outcome = self._elements(guard).tobytes()
            question = Question(asked, user_line(), guard, outcome)
            self._answered[value, test] = question
            if not fixed:
                self.asked.append(question)
        return _answer(asked, question.elements)

    @staticmethod
    def _refuse_size(value: Value, asked: str) -> None:
        """Raise what NumPy raises where not one element is there."""
        type_ = value.type
        if asked == "t.tolist()":
            if int(type_.size) > MOST_ELEMENTS:
                raise located(
                    TraceError(
                        f"t.tolist() of {short(type_)} in a traced function: each list would be a program of its own; "
                        f"at most {MOST_ELEMENTS} are asked for. Compute with tracer's functions, or return the Tensor"
                    )
                )
        elif int(type_.size) != 1:
            stand_in = np.broadcast_to(np.zeros((), type_.numpy), tuple(map(int, type_.shape)))
            _ = bool(stand_in) if asked == "bool(t)" else stand_in.item()

    @staticmethod
    def _test(value: Value, asked: str) -> str:
        """What is compared: the truth, the whole number, or all bits."""
        if asked == "bool(t)":
            return "truth"
        return "whole" if asked == "int(t)" and is_floating(value.type.dtype) else "elements"

    def _guard(self, value: Value, test: str) -> Value:
        """The value of the graph that is compared."""
        recorder = self._recorder
        if test == "truth":
            return (
                value if value.type.dtype == "bool" else recorder.derive("Cast", value, to="bool")
            )
        return recorder.derive("Trunc", value) if test == "whole" else value

    def _known_outcome(self, guard: Value, asked: str) -> bytes | None:
        """The imposed outcome of the next question, None if there is none or another question comes than before."""
        number = len(self.asked)
        if number >= len(self._imposed):
            return None
        known = self._imposed[number]
        same = known.asked == asked and known.line == user_line()
        if not same or known.value.type.strong() != guard.type.strong():
            del self._imposed[number:]
            return None
        return known.outcome

    def _elements(self, guard: Value) -> Array:
        try:
            return self._evaluate(guard)
        except Exception as error:
            self.failure = located(error) if isinstance(error, TracerError) else error
            raise self.failure from None
