"""The Tensor: an array in memory, or a value of the trace that is being recorded, with its flags for gradients.

Knows how data is held and nothing of operators: methods are attached from above, see `tracer.tensors.methods`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ops.dims import Dim
from ops.errors import GradError, ShapeError, TraceError, TracerError
from ops.types import Type, dtype_name, numpy_dtype, short
from tracer.core.source_lines import located, user_line
from tracer.tensors.from_data import array_of
from tracer.tensors.gradient_flags import GradientFlags
from tracer.tensors.methods import Methods
from tracer.tensors.modes import INFERENCE, MODES, Flag, untracked

if TYPE_CHECKING:
    from tracer.ir.graph import Value
    from tracer.tensors.interpreter import Interpreter
    from tracer.tensors.view import View

Array = np.ndarray[Any, Any]
_INTERNED: dict[Type, Type] = {}


def intern(type_: Type) -> Type:
    """One object for each type, so that signatures compare by identity."""
    found = _INTERNED.get(type_)
    if found is None:
        if len(_INTERNED) > 20_000:  # bounded: 2,000 shapes in a loop must not grow memory for ever
            _INTERNED.clear()
        found = _INTERNED.setdefault(type_, type_)
    return found


def is_plain(array: Array) -> bool:
    """Whether an array lies as programs read it: row-major, aligned, in the machine's byte order."""
    flags = array.flags
    return bool(flags.c_contiguous and flags.aligned and array.dtype.isnative)


class Tensor(Methods, GradientFlags):
    """An n-dimensional array that records what is done to it.

    Made by `tracer.tensor` and by operators. `np.asarray(t)` gives its array, NumPy arrays go in wherever a Tensor does.
    Attributes: `shape`, `dtype` (NumPy's), `ndim`, `size`, `requires_grad`, `grad`, `grad_fn`, `is_leaf`.

    >>> t = tracer.Tensor([[1.0, 2.0]])
    >>> t.shape, t.dtype, t.ndim, t.is_leaf
    ((1, 2), dtype('float32'), 2, True)
    >>> (t @ t.T).item()
    5.0
    """

    __slots__ = (
        "__weakref__",
        "_accumulator",
        "_array",
        "_block",
        "_changes",
        "_generation",
        "_grad",
        "_grad_fn",
        "_pointer",
        "_recorder",
        "_requires_grad",
        "_seen",
        "_value",
        "_view",
        "output_number",
        "retains_grad",
        "type",
    )
    __array_priority__ = 1000
    type: Type
    _accumulator: Any  # where the history ends in a leaf, a node of `tracer.autograd`
    _changes: list[Any] | None
    _view: View | None  # how it lies in another Tensor's memory
    _generation: int  # how often its value or history was replaced
    _seen: int  # the base's generation that a view is derived from
    _grad_fn: Any  # the history node of `tracer.autograd` that made this
    output_number: int
    retains_grad: bool
    _requires_grad: Flag
    _array: Array | None
    _block: Any
    _pointer: int
    _value: Value | None
    _recorder: Interpreter | None  # whose value it stands for
    _grad: Tensor | None

    def __init__(self, data: Any = None, dtype: Any = None, requires_grad: bool = False) -> None:
        array = array_of(data.array if isinstance(data, Tensor) else data, dtype)
        made = MODES.interpreter.constant(array, dtype_name(array.dtype))
        if MODES.grad_enabled is INFERENCE:
            made._requires_grad = INFERENCE
        self._start(intern(made.type))
        self._array, self._value, self._recorder = made._array, made._value, made._recorder
        if requires_grad:
            self.requires_grad = True

    def _start(self, type_: Type) -> None:
        self.type = type_
        self._requires_grad = False
        self._view = None

    if not TYPE_CHECKING:  # to type checkers, any name would be there

        def __getattr__(self, name: str) -> Any:
            # Slots that were never set have these values, so that a program's results cost four assignments.
            try:
                return _UNSET[name]
            except KeyError:
                raise AttributeError(
                    f"{type(self).__name__!r} object has no attribute {name!r}"
                ) from None

    @staticmethod
    def of_array(array: Any, type_: Type | None = None) -> Tensor:
        """A Tensor that shares an array's memory."""
        result = Tensor.__new__(Tensor)
        array = np.asarray(array)
        result._start(intern(type_ or Type.of(array)))
        result._array = array
        return result

    @staticmethod
    def of_own(array: Array, type_: Type) -> Tensor:
        """A Tensor of a row-major array that nothing else knows; `type_` is interned."""
        result = _new(Tensor)
        result.type = type_
        result._array = array
        result._requires_grad = False
        result._view = None
        return result

    @staticmethod
    def without_elements(type_: Type) -> Tensor:
        """A Tensor with a type and, soon, a history, whose elements nobody asks for."""
        result = _new(Tensor)
        result._start(type_)
        return result

    @staticmethod
    def of_block(block: Any, type_: Type) -> Tensor:
        """A Tensor of a block of memory, row-major; `type_` is interned."""
        result = _new(Tensor)
        result.type = type_  # the other slots have their defaults, see __getattr__
        result._block = block
        result._pointer = block.pointer
        result._requires_grad = False
        result._view = None
        return result

    @staticmethod
    def of_value(value: Value, recorder: Interpreter) -> Tensor:
        """A Tensor that stands for a value of a trace."""
        result = Tensor.__new__(Tensor)
        result._start(value.type)
        result._value, result._recorder = value, recorder
        return result

    # ---- data
    @property
    def is_symbolic(self) -> bool:
        """Whether this stands for a value of a trace and has no data."""
        return self._value is not None

    @property
    def array(self) -> Array:
        """The data as a NumPy array that shares the Tensor's memory. Raises `TraceError` in a trace."""
        return MODES.interpreter.elements(self)

    def over(self) -> TracerError:
        """The error for the use of a Tensor whose trace is over."""
        return located(
            TraceError(
                f"a Tensor {short(self.type)} of a trace that is over is used; it has no data: return it from the "
                "traced function instead of keeping it in a variable, an attribute or a cache"
            )
        )

    def numpy(self) -> Array:
        """The data as a NumPy array that shares the Tensor's memory. Raises `GradError` if it requires a gradient.

        >>> tracer.tensor([1.0, 2.0]).numpy()
        array([1., 2.], dtype=float32)
        """
        if self.requires_grad:
            raise located(GradError("this Tensor requires a gradient; use t.detach().numpy()"))
        return self.array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.array
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    @property
    def pointer(self) -> int:
        """The address of the first element. Kept where programs may read and write all elements as they lie."""
        if self._pointer:
            return self._pointer
        array = self.array
        pointer: int = array.__array_interface__["data"][0]
        if array.flags.writeable and is_plain(array):
            self._pointer = pointer
        return pointer

    # ---- what NumPy and PyTorch users ask first
    @property
    def shape(self) -> tuple[Any, ...]:
        """Sizes of the axes."""
        return self.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type, NumPy's."""
        return numpy_dtype(self.type.dtype)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.type.shape)

    def dim(self) -> int:
        """The number of axes.

        >>> tracer.zeros((2, 3)).dim()
        2
        """
        return len(self.type.shape)

    def numel(self) -> Any:
        """The number of elements.

        >>> tracer.zeros((2, 3)).numel()
        6
        """
        return self.type.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.type.itemsize

    @property
    def nbytes(self) -> Any:
        """Bytes of all elements."""
        return self.type.size * self.type.itemsize

    def item(self) -> Any:
        """The only element as a Python number. Raises `ValueError` if there is more than one.

        >>> tracer.tensor([2.5]).item()
        2.5
        """
        return MODES.interpreter.answer(self, "t.item()")

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers.

        >>> tracer.tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        return MODES.interpreter.answer(self, "t.tolist()")

    def __float__(self) -> float:
        return float(MODES.interpreter.answer(self, "float(t)"))

    def __int__(self) -> int:
        return int(MODES.interpreter.answer(self, "int(t)"))

    def __index__(self) -> int:
        if "int" not in self.type.dtype:
            raise TypeError(f"only integer Tensors index, got {short(self.type)}")
        return int(self)

    def __bool__(self) -> bool:
        return bool(MODES.interpreter.answer(self, "bool(t)"))

    def __len__(self) -> int:
        if not self.type.shape:
            raise TypeError("a 0-d Tensor has no length")
        length = self.type.shape[0]
        if isinstance(length, Dim):
            raise located(
                ShapeError(
                    f"len(x) is a number, but the size {length} is symbolic; x.shape[0] is the size"
                )
            )
        return int(length)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        flags = ", requires_grad=True" if self.requires_grad else ", volatile=True" * self.volatile
        if self._value is not None:
            return f"Tensor({short(self.type)}, traced{flags})"
        text = np.array2string(self._data(), separator=", ", prefix="tensor(")
        dtype = (
            "" if self.type.dtype in ("float32", "int64", "bool") else f", dtype={self.type.dtype}"
        )
        return f"tensor({text}{dtype}{flags})"

    def _data(self) -> Array:
        """The array, whoever computes."""
        if self._array is None:
            self._array = self._block.array(self.type.shape, self.type.numpy)
        return self._array

    def _start_again(self, other: Tensor) -> None:
        """Take over another Tensor's data, keeping identity and flags."""
        self.type, self._array, self._block, self._pointer = (
            other.type,
            other._array,
            other._block,
            other._pointer,
        )
        self._grad = self._view = None
        # other memory with a count of its own, which is another one than before
        self._changes = [self._version, ""]
        self._generation += 1
        self.count_change()

    # ---- changes in place
    def changes(self) -> list[Any]:
        """How often its memory was changed, and where last: a count that all Tensors on this memory share."""
        if self._changes is None:
            self._changes = [0, ""]
        return self._changes

    def count_change(self, where: str | None = None) -> None:
        """Its memory has changed, at the user's line unless told where."""
        changes = self.changes()
        changes[0] += 1
        changes[1] = user_line() if where is None else where

    @property
    def _version(self) -> int:
        return 0 if self._changes is None else int(self._changes[0])

    # ---- copies
    def detach(self) -> Tensor:
        """The same data without history and without requiring a gradient: a change of one shows in the other.

        Volatile if this is.

        >>> x = tracer.tensor([1.0, 2.0], requires_grad=True)
        >>> x.detach().requires_grad
        False
        """
        result = MODES.interpreter.detach(self)
        if self._requires_grad is not True:
            result._requires_grad = self._requires_grad
        return result

    def _frozen(self) -> Tensor:
        """Another Tensor on this memory, without history; a change of the memory is counted for both."""
        result = _new(Tensor)
        result.type, result._requires_grad, result._view = self.type, False, None
        array = self._array
        if array is not None:  # which keeps its block
            result._array = array
        elif self._block is not None:
            result._block, result._pointer = self._block, self._pointer
        else:
            result._value, result._recorder = self._value, self._recorder
        result._changes = self.changes()
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if self.grad_fn is not None:
            raise located(GradError("only leaves can be deep-copied; use t.detach()"))
        result = type(self).__new__(type(self))
        result._start(self.type)
        result._array = self.array.copy()
        result._requires_grad = self._requires_grad is True or untracked(self.volatile, False)
        result._grad = None if self._grad is None else self._grad.__deepcopy__(memo)
        memo[id(self)] = result
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        if self.grad_fn is not None:
            raise located(GradError("only leaves can be pickled; use t.detach()"))
        flag = self._requires_grad is True or untracked(self.volatile, False)
        return _restore, (type(self), np.array(self.array, order="C"), flag)


def _restore(kind: type[Tensor], array: Array, requires_grad: Flag) -> Tensor:
    result = kind.__new__(kind)
    result._start(intern(Type.of(array)))
    result._array, result._requires_grad = array, requires_grad
    return result


_new = object.__new__
_UNSET: dict[str, Any] = {
    "_accumulator": None,
    "_array": None,
    "_block": None,
    "_changes": None,
    "_generation": 0,
    "_grad": None,
    "_grad_fn": None,
    "_pointer": 0,
    "_recorder": None,
    "_requires_grad": False,
    "_seen": 0,
    "_value": None,
    "_view": None,
    "output_number": 0,
    "retains_grad": False,
}
