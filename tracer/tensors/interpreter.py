"""Who computes: the one interface that eager execution and recording implement.

`MODES.interpreter` is what runs in a thread: `tracer.dispatch.eager.EAGER`, or the recorder of a trace. Code above asks it to do
things and does not ask which one it is. What only one of the two can do (reading elements now; setting state when a program has
run) is a method of both that says what becomes of it. Forward-mode derivatives, batching and devices are further interpreters.

Knows Tensors. Must not know any interpreter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from ops.operator import Attributes, Operator

if TYPE_CHECKING:
    from tracer.tensors.anomaly_mode import AnomalyMode
    from tracer.tensors.modes import Flag
    from tracer.tensors.tensor import Tensor

Array = np.ndarray[Any, Any]


class Interpreter(ABC):
    """What applying an operator, asking for elements and changing a Tensor mean."""

    __slots__ = ()

    # ---- operators
    @abstractmethod
    def operands(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The operands of an operator, each as `current` has it."""

    @abstractmethod
    def apply(self, op: Operator, inputs: tuple[Tensor, ...], attrs: Attributes) -> Any:
        """The results of an operator, a tuple, without history. Results of views know what they are views of."""

    @abstractmethod
    def constant(self, value: Any, dtype: str, weak: bool = False) -> Tensor:
        """A Tensor of a number or array that nothing else knows. `weak`: it came from a Python number; eager that is not kept, as
        promotion has used it."""

    @abstractmethod
    def from_array(self, array: Array) -> Tensor:
        """A Tensor of the user's array, which it shares memory with."""

    # ---- elements
    @abstractmethod
    def elements(self, x: Tensor) -> Array:
        """x's elements, in its memory. Raises `TraceError` where they are not known."""

    @abstractmethod
    def known_elements(self, x: Tensor) -> Array | None:
        """x's elements where they are known before a program runs, to be checked; else None."""

    @abstractmethod
    def answer(self, x: Tensor, query: str) -> Any:
        """What Python asks of x, such as "bool(t)". While recording, the program is guarded by the answer."""

    @abstractmethod
    def guards(self, x: Tensor) -> bool:
        """Whether answers about x guard the program that is being recorded."""

    # ---- which Tensor is meant, and in which state it is
    @abstractmethod
    def shadow_of(self, x: Tensor) -> Tensor:
        """What stands for x while it is changed for later; else x."""

    @abstractmethod
    def writable(self, x: Tensor) -> Tensor:
        """The Tensor that takes changes of x."""

    @abstractmethod
    def argument_of(self, x: Tensor) -> Tensor | None:
        """The argument of the call that x stands for; None for others."""

    @abstractmethod
    def note_recorded_change(self, x: Tensor) -> Tensor | None:
        """Note that a change of x is recorded for gradients; the argument that x stands for, None for others."""

    @abstractmethod
    def current(self, x: Tensor) -> Tensor:
        """x with its value and history brought up to date. Leaves stay themselves, so that gradients find them."""

    @abstractmethod
    def refresh(self, x: Tensor) -> None:
        """Derive a view anew if its base has changed since."""

    @abstractmethod
    def frozen(self, x: Tensor) -> Tensor:
        """x's elements without history. Eager they are in x's memory, so that a later change has to be looked for (`at_version`);
        in a trace they are the value of now."""

    @abstractmethod
    def detach(self, x: Tensor) -> Tensor:
        """The same, where a change of one shows in the other."""

    @abstractmethod
    def version_of(self, x: Tensor) -> Any:
        """A token that is another one after every change of x in place; compare it with `at_version` only."""

    @abstractmethod
    def at_version(self, x: Tensor, version: Any) -> Tensor | None:
        """x with the elements that it had: x itself, another Tensor without history, None where they are gone."""

    # ---- changes in place
    @abstractmethod
    def write(self, x: Tensor, new: Tensor, recorded: bool, fresh: bool = False) -> None:
        """x's elements become new's, of the same type; what shares x's memory sees it.

        `recorded`: the history follows too, or the flag of a volatile value. `fresh`: new was made for this, and nobody else has
        it.
        """

    @abstractmethod
    def set_history(self, x: Tensor, node: Any, number: int) -> None:
        """x's elements were changed by what a history node stands for; its base and other views follow."""

    @abstractmethod
    def change_begins(self, x: Tensor) -> None:
        """x is about to be changed in place."""

    @abstractmethod
    def require_writeable(self, x: Tensor) -> None:
        """Raise `ArgumentError` where x's memory must not be written to."""

    @abstractmethod
    def keep_elements(self, x: Tensor) -> None:
        """x's elements are needed after its memory is overwritten."""

    @abstractmethod
    def own_memory(self, x: Tensor) -> None:
        """Give a new Tensor memory that nothing else shares."""

    @abstractmethod
    def index_picked(self, part: Tensor, x: Tensor) -> None:
        """Told that a part is x[i] with a Tensor i: a view of x if i is known."""

    @abstractmethod
    def value_assigned(self, value: object) -> None:
        """Told that a value is assigned to a part of a Tensor."""

    @abstractmethod
    def assign_elements(self, x: Tensor, put: Any) -> bool:
        """Whether a change without history was done at once, by `put()`, which writes to x's memory."""

    # ---- gradients
    @abstractmethod
    def without_base(self, x: Tensor) -> Tensor:
        """A view as history keeps it: without its base, whose history may come to lead to it."""

    @abstractmethod
    def run_graph(self, graph: Any, inputs: list[Tensor], compiled: Any) -> Sequence[Tensor]:
        """The results of a graph; `compiled()` gives it as a program."""

    @abstractmethod
    def set_flag(self, x: Tensor, flag: Flag) -> None:
        """Change whether x requires gradients."""

    @abstractmethod
    def grad_of(self, x: Tensor) -> Tensor | None:
        """x.grad."""

    @abstractmethod
    def set_grad(self, x: Tensor, value: Tensor | None) -> None:
        """x.grad = value."""

    @abstractmethod
    def is_unshared_gradient(self, gradient: Tensor, leaf: Tensor, known: set[int]) -> bool:
        """Whether a gradient shares neither object nor memory with those that are known, by identity."""

    @abstractmethod
    def computing_gradient_of(self, node: Any) -> AbstractContextManager[None]:
        """What is applied inside computes the gradient of a recorded operation."""

    @abstractmethod
    def require_inside(self, node: Any) -> None:
        """Raise `TraceError` for a history node that a backward of what runs now must not reach."""

    @abstractmethod
    def anomaly_mode(self) -> AnomalyMode | None:
        """What looks at elements as they are computed, where it is on."""

    @abstractmethod
    def runs_programs(self) -> bool:
        """Whether a traced function that is called now runs its program, and not its code."""

    @abstractmethod
    def begin_call(self, inputs: list[Tensor]) -> Any:
        """A user's Function is called: what `end_call` wants."""

    @abstractmethod
    def end_call(self, begun: Any, name: str, results: list[Tensor], described: Any) -> None:
        """What was applied since `begin_call` is one call of a Function; `described()` gives its form and how to repeat it."""

    # ---- Python state
    @abstractmethod
    def scalar(self, container: Any, key: Any) -> Any:
        """container[key], a Python number; while recording a float is a value that follows later changes."""

    @abstractmethod
    def is_nonzero(self, container: Any, key: str) -> bool:
        """Whether container[key] is not 0."""

    @abstractmethod
    def rebind(self, members: dict[str, Any], name: str, new: Tensor) -> bool:
        """members[name] = new, a Tensor of the same type; False if the types differ and programs could not do it."""

    @abstractmethod
    def set_attribute_begins(self, members: dict[str, Any], name: str) -> None:
        """An attribute of a module is about to be set."""

    @abstractmethod
    def module_begins(self, module: Any) -> bool:
        """A module is called; whether what runs inside carries its path."""

    @abstractmethod
    def hook_registered(self, handle: Any) -> None:
        """A hook was registered on something that outlives what runs now."""

    @abstractmethod
    def hook_removable(self, handle: Any) -> bool:
        """Whether a hook on such a thing may be removed now."""

    @abstractmethod
    def require_repeatable(self, what: str, advice: str = "") -> None:
        """Raise `TraceError` for something that a program would not repeat, with what to do instead."""
