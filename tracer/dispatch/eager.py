"""Eager execution: operators compute at once, on memory that Tensors share; Python state is what it says.

Knows NumPy's memory, the operators' references and, for operators with one body for all, their compiled kernels. Must not know
traces.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ops.operator import TABLE, Attributes, Operator, run_reference
from ops.reference import HALF
from ops.types import Type, dtype_name, is_floating
from tracer.core.config import CONFIG
from tracer.dispatch import view_updates
from tracer.ir.graph import GraphBuilder
from tracer.runtime.executable import Executable
from tracer.tensors.anomaly_mode import AnomalyMode
from tracer.tensors.interpreter import Interpreter
from tracer.tensors.modes import MODES, Flag, set_default_interpreter
from tracer.tensors.tensor import Tensor, intern
from tracer.tensors.view import link, not_writable_error

Array = np.ndarray[Any, Any]


class Eager(Interpreter):
    """Computes at once."""

    __slots__ = ()

    # ---- operators
    def operands(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """The same Tensors."""
        for x in inputs:
            view = x._view
            if view is not None and x._seen != view.base._generation:
                self.refresh(x)
        return inputs

    def apply(self, op: Operator, inputs: tuple[Tensor, ...], attrs: Attributes) -> Any:
        """The operator's reference, at once; random operators and those that call functions of the user's run their kernel."""
        types, by_kernel, is_view, reference = _found(op, inputs, attrs)
        if by_kernel:
            outputs = run_kernel(op, inputs, attrs)
        elif is_view:
            outputs = _view(op, inputs, attrs, types)
        else:
            arrays = [self.elements(x) if x._array is None else x._array for x in inputs]
            given = _quietly(op, reference, arrays, attrs)
            if type(given) is tuple:
                outputs = tuple([_result(a, t, arrays) for a, t in zip(given, types, strict=True)])
            else:
                outputs = (_result(given, types[0], arrays),)
        if MODES.anomaly is not None:
            MODES.anomaly.look_at(op.name, inputs, outputs)
        if is_view:
            for number, y in enumerate(outputs):
                if y._changes is not None and not _link(inputs[0], y, op, attrs, number):
                    # memory that is not row-major: what is no view in a trace is none here
                    y._array, y._changes = np.array(y._data(), order="C"), None
        return outputs

    def constant(self, value: Any, dtype: str, weak: bool = False) -> Tensor:
        """A 0-d or larger Tensor in memory of its own."""
        if isinstance(value, int) and is_floating(dtype):
            value = float(value)  # large ones have no type of NumPy's
        type_ = Type(dtype)
        array = np.asarray(value)
        if isinstance(value, float) and -60_000 < value < 60_000:  # fits any type
            array = array.astype(type_.numpy)
        else:
            with np.errstate(over="ignore"):  # an infinity, as in conversions
                array = array.astype(type_.numpy)
        return Tensor.of_array(array, Type(dtype, array.shape) if array.shape else type_)

    def from_array(self, array: Array) -> Tensor:
        """A Tensor on the array's memory."""
        dtype_name(array.dtype)
        native = array.dtype.isnative
        return Tensor.of_array(array if native else array.astype(array.dtype.newbyteorder("=")))

    # ---- elements
    def elements(self, x: Tensor) -> Array:
        """The array, made of its block when it is first asked for."""
        array = x._array
        if array is None:
            if x._block is None:
                raise x.over()
            array = x._array = x._block.array(x.type.shape, x.type.numpy)
        return array

    def known_elements(self, x: Tensor) -> Array | None:
        """All are known."""
        return self.elements(x)

    def answer(self, x: Tensor, query: str) -> Any:
        """What NumPy answers."""
        array = self.elements(x)
        if query == "bool(t)":
            return bool(array)
        return array.tolist() if query == "t.tolist()" else array.item()

    def guards(self, x: Tensor) -> bool:
        """There is no program."""
        return False

    # ---- which Tensor is meant
    def shadow_of(self, x: Tensor) -> Tensor:
        """x."""
        return x

    def writable(self, x: Tensor) -> Tensor:
        """x."""
        return x

    def argument_of(self, x: Tensor) -> Tensor | None:
        """There are no stand-ins."""
        return None

    def note_recorded_change(self, x: Tensor) -> Tensor | None:
        """There are no stand-ins."""
        return None

    def current(self, x: Tensor) -> Tensor:
        """x, whose history follows its base's."""
        view = x._view
        if view is not None and x._seen != view.base._generation:
            self.refresh(x)
        return x

    def refresh(self, x: Tensor) -> None:
        """Memory is shared, so only the history is derived anew."""
        view = x._view
        assert view is not None
        if x._seen == view.base._generation:
            return
        x._seen = view.base._generation
        if x._changes is not view.base._changes:
            x._view = None  # the base has other memory now (`_start_again`)
        elif view.recorded and view.base._requires_grad is not False:
            view_updates.give_history(x, view_updates.history_of(view))

    def frozen(self, x: Tensor) -> Tensor:
        """A Tensor on x's memory; a change of the memory is counted for both."""
        return x._frozen()

    def detach(self, x: Tensor) -> Tensor:
        """The same."""
        return x._frozen()

    def version_of(self, x: Tensor) -> Any:
        """How often its memory was changed."""
        return x._version

    def at_version(self, x: Tensor, version: Any) -> Tensor | None:
        """x while nothing has changed it."""
        return x if not isinstance(version, int) or x._version == version else None

    # ---- changes in place
    def write(self, x: Tensor, new: Tensor, recorded: bool, fresh: bool = False) -> None:
        """Into x's memory at once, where all views of it see it; histories follow."""
        history = view_updates.new_history(x, new, recorded, fresh, view_updates.HISTORY)
        target = x._data()
        target[...] = new._data()
        x.count_change()
        if recorded:
            view_updates.write_history(x, history, view_updates.HISTORY)

    def set_history(self, x: Tensor, node: Any, number: int) -> None:
        """See `Interpreter`."""
        made = Tensor.without_elements(x.type)
        made._requires_grad, made._grad_fn, made.output_number = True, node, number
        view_updates.write_history(x, made, view_updates.HISTORY)

    def change_begins(self, x: Tensor) -> None:
        """Nothing waits for it."""

    def require_writeable(self, x: Tensor) -> None:
        """See `Interpreter`."""
        if not self.elements(x).flags.writeable:
            raise not_writable_error(x)

    def keep_elements(self, x: Tensor) -> None:
        """A copy of them: the memory is overwritten now."""
        x._changes = [x._version, ""]
        x._array, x._block, x._pointer = x._data().copy(), None, 0

    def own_memory(self, x: Tensor) -> None:
        """See `Interpreter`."""
        if x._array is not None:
            x._array = np.array(x._array, order="C")
            x._pointer, x._changes = 0, None

    def index_picked(self, part: Tensor, x: Tensor) -> None:
        """A gathered part is a copy, as NumPy's."""

    def value_assigned(self, value: object) -> None:
        """Nothing waits for it."""

    def assign_elements(self, x: Tensor, put: Any) -> bool:
        """At once."""
        put()
        return True

    # ---- gradients
    def without_base(self, x: Tensor) -> Tensor:
        """x as it is now."""
        return view_updates.snapshot(x)

    def run_graph(self, graph: Any, inputs: list[Tensor], compiled: Any) -> Sequence[Tensor]:
        """The program's results."""
        results: Sequence[Tensor] = compiled()(inputs)
        return results

    def set_flag(self, x: Tensor, flag: Flag) -> None:
        """At once."""
        x._set_flag(flag)

    def grad_of(self, x: Tensor) -> Tensor | None:
        """What is there."""
        return x._grad

    def set_grad(self, x: Tensor, value: Tensor | None) -> None:
        """At once."""
        x._grad = value

    def is_unshared_gradient(self, gradient: Tensor, leaf: Tensor, known: set[int]) -> bool:
        """See `Interpreter`."""
        array = gradient._array
        alone = array is None or (array.flags.owndata and array.flags.writeable)
        return alone and id(gradient) not in known and id(array) not in known

    def computing_gradient_of(self, node: Any) -> AbstractContextManager[None]:
        """Anomaly mode names it."""
        return nullcontext() if MODES.anomaly is None else MODES.anomaly.within(node)

    def require_inside(self, node: Any) -> None:
        """All history is eager's."""

    def anomaly_mode(self) -> AnomalyMode | None:
        """The thread's."""
        return MODES.anomaly

    def runs_programs(self) -> bool:
        """It does."""
        return True

    def begin_call(self, inputs: list[Tensor]) -> Any:
        """Nobody keeps calls."""

    def end_call(self, begun: Any, name: str, results: list[Tensor], described: Any) -> None:
        """Nobody keeps calls."""

    # ---- Python state
    def scalar(self, container: Any, key: Any) -> Any:
        """The number."""
        return container[key]

    def is_nonzero(self, container: Any, key: str) -> bool:
        """See `Interpreter`."""
        return bool(container[key] != 0)

    def rebind(self, members: dict[str, Any], name: str, new: Tensor) -> bool:
        """At once, whatever the type."""
        members[name] = new
        return True

    def set_attribute_begins(self, members: dict[str, Any], name: str) -> None:
        """Nothing is put back."""

    def module_begins(self, module: Any) -> bool:
        """There are no nodes to carry a path."""
        return False

    def hook_registered(self, handle: Any) -> None:
        """It stays."""

    def hook_removable(self, handle: Any) -> bool:
        """Any is."""
        return True

    def require_repeatable(self, what: str, advice: str = "") -> None:
        """Everything happens now."""


EAGER = Eager()
set_default_interpreter(EAGER)


# ---- what operators compute ----------------------------------------------------------------------

_Found = tuple[tuple[Type, ...], bool, bool, Callable[..., Any]]
_KNOWN: dict[tuple[Any, ...], tuple[tuple[Type, ...], _Found]] = {}
_MOST_KNOWN = 4096


def _found(op: Operator, inputs: tuple[Tensor, ...], attrs: Attributes) -> _Found:
    """The types of an eager operation's results, interned; whether its kernel runs; whether they are views; the reference.

    Kept where nothing but the operands' types decides, under their identity: to find all this takes longer than a small sum.
    """
    if attrs:
        return _find(op, tuple([x.type for x in inputs]), attrs)
    if len(inputs) == 2:  # the same as below, in a third of the time
        x, y = inputs
        key: tuple[Any, ...] = (op, id(x.type), id(y.type))
    else:
        key = (op, *[id(x.type) for x in inputs])
    known = _KNOWN.get(key)
    if known is not None:
        return known[1]
    types = tuple([x.type for x in inputs])
    found = _find(op, types, attrs)
    if op.name in TABLE:  # a user's operator is not kept alive
        if len(_KNOWN) > _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = types, found  # the types stay alive, so their identities are theirs
    return found


def _find(op: Operator, types: tuple[Type, ...], attrs: Attributes) -> _Found:
    results = tuple(map(intern, op.infer(types, attrs)))
    reference = op.reference
    if types and types[0].dtype not in HALF:
        reference = getattr(reference, "of_other_types", reference)
    return results, _by_kernel(op, results), op.is_view, reference


def _view(
    op: Operator, inputs: tuple[Tensor, ...], attrs: Attributes, types: Sequence[Type]
) -> tuple[Tensor, ...]:
    """The results of an operator that rearranges, in the operand's memory where NumPy takes no copy."""
    arrays = [EAGER.elements(x) for x in inputs]
    results = run_reference(op, arrays, attrs)
    outputs = tuple([Tensor.of_array(a, t) for a, t in zip(results, types, strict=True)])
    operand = arrays[0]
    for y in outputs:
        array = y._data()  # what a NumPy scalar became is nobody else's
        # the first question is the second one's answer nearly always
        if array.base is operand or np.may_share_memory(array, operand):
            y._changes = inputs[0].changes()
    return outputs


def _link(x: Tensor, y: Tensor, op: Operator, attrs: Attributes, number: int) -> bool:
    """Note that y lies in x's memory, which is known here where that is row-major."""
    view = x._view
    base = x if view is None or view.op is None else view.base
    array = base._array
    return link(x, y, op, attrs, number, array is None or array.flags.c_contiguous)


class _Quiet(threading.local):
    """A context in which NumPy warns of nothing; None while it is entered. To run in it costs a tenth of `np.errstate`."""

    def __init__(self) -> None:
        self.context: contextvars.Context | None = contextvars.Context()
        self.context.run(np.seterr, all="ignore")


_QUIET = _Quiet()


def _quietly(op: Operator, reference: Callable[..., Any], arrays: list[Array], attrs: Any) -> Any:
    """What a reference gives, without NumPy's warnings."""
    context = _QUIET.context
    if (
        context is None or op.calls_user
    ):  # code of the user's: it may apply operators, and has a context of its own
        with np.errstate(all="ignore"):
            return reference(*arrays, **attrs)
    _QUIET.context = None
    try:
        return context.run(reference, *arrays, **attrs)
    finally:
        _QUIET.context = context


def _result(array: Any, type_: Type, operands: list[Array]) -> Tensor:
    """A Tensor of what a reference gave, in row-major memory of its own: a maximum over no axes is its operand, and a change of
    the one must not change the other; and a reshape must be a view of it or not whatever the order of its operands was, as in a
    compiled program."""
    if type(array) is not np.ndarray:
        return Tensor.of_array(array, type_)
    flags = array.flags
    if flags.c_contiguous and flags.writeable:
        owns = flags.owndata
        for x in operands:
            if x is array or (not owns and np.may_share_memory(x, array)):
                break
        else:
            return Tensor.of_own(array, type_)
    return Tensor.of_own(np.array(array, order="C"), type_)


def _by_kernel(op: Operator, types: Sequence[Type]) -> bool:
    """Whether an eager operation runs its kernel. Random operators and those that call functions of the user's have one body for
    all: its bits, also here."""
    if op.calls_user:
        return CONFIG.jit
    return op.random and (bool(op.ulp) or int(types[0].size) > _FEW)


def compute(
    op: Operator, arrays: list[Array], types: Sequence[Type], attrs: Attributes
) -> tuple[Any, ...]:
    """What an eager operation computes, from arrays to arrays."""
    if not (op.random or op.calls_user) or not _by_kernel(op, op.infer(list(types), attrs)):
        return run_reference(op, arrays, attrs)
    tensors = tuple(Tensor.of_array(a, t) for a, t in zip(arrays, types, strict=True))
    return tuple(y._data() for y in run_kernel(op, tensors, attrs))


_KERNELS: dict[Any, Any] = {}
_FEW = 1 << 16  # random elements that NumPy draws sooner than a kernel is loaded; same bits


def run_kernel(op: Operator, inputs: tuple[Tensor, ...], attrs: Attributes) -> tuple[Tensor, ...]:
    """The operator as a compiled program of its own."""
    key = (op, tuple(x.type for x in inputs), attrs.key, CONFIG.compile)
    executable = _KERNELS.get(key)
    if executable is None:
        builder = GraphBuilder(op.name)
        result = builder.emit(op, [builder.input(x.type) for x in inputs], attrs)
        executable = Executable(
            builder.build(result if isinstance(result, tuple) else (result,)), {}
        )
        executable.examined = False  # its results are looked at, at the user's line
        if len(_KERNELS) > 256:
            _KERNELS.clear()
        _KERNELS[key] = executable
    return tuple(executable(inputs))
