"""Methods of Tensor that work element by element, and conversions, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from ops.errors import ArgumentError
from ops.types import dtype_name, is_floating
from tracer.functions import activation, arithmetic, creation, logic, reductions, transcendental
from tracer.functions.creation import Shape, as_tensor, cast, copied
from tracer.functions.in_place import change
from tracer.functions.promotion import prepare
from tracer.functions.public import public
from tracer.tensors.modes import MODES
from tracer.tensors.tensor import Tensor

DEVICES = ("cpu", "cuda", "meta", "mps")
_TRUTH = (bool, np.bool_)
P = ParamSpec("P")
_change = public(change)


def in_place(function: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """The method that changes its Tensor to function(Tensor, *operands)."""

    def method(*operands: P.args, **options: P.kwargs) -> Tensor:
        changed: Any = operands[0]
        return _change(changed, function, *operands[1:], **options)

    summary = (function.__doc__ or "").partition("\n")[0].partition(" See `")[0]
    where = "Tensor" if "." in function.__qualname__ else "tracer"
    method.__doc__ = f"In place: {summary} See `{where}.{function.__name__}`."
    method.__name__ = f"{function.__name__}_"
    return method


def both(function: Callable[P, Tensor]) -> tuple[Callable[P, Tensor], Callable[P, Tensor]]:
    """A function as a method, and the method that changes its Tensor to the result."""
    return function, in_place(function)


class Elementwise:
    """Arithmetic, comparison, logic and the functions of one element."""

    __slots__ = ()

    abs, abs_ = absolute, absolute_ = both(arithmetic.abs)
    acos, acos_ = arccos, arccos_ = both(transcendental.acos)
    acosh, acosh_ = arccosh, arccosh_ = both(transcendental.acosh)
    asin, asin_ = arcsin, arcsin_ = both(transcendental.asin)
    asinh, asinh_ = arcsinh, arcsinh_ = both(transcendental.asinh)
    atan, atan_ = arctan, arctan_ = both(transcendental.atan)
    atan2, atan2_ = arctan2, arctan2_ = both(transcendental.atan2)
    atanh, atanh_ = arctanh, arctanh_ = both(transcendental.atanh)
    bitwise_and, bitwise_and_ = both(logic.bitwise_and)
    bitwise_left_shift, bitwise_left_shift_ = both(logic.bitwise_left_shift)
    bitwise_not, bitwise_not_ = both(logic.bitwise_invert)
    bitwise_or, bitwise_or_ = both(logic.bitwise_or)
    bitwise_right_shift, bitwise_right_shift_ = both(logic.bitwise_right_shift)
    bitwise_xor, bitwise_xor_ = both(logic.bitwise_xor)
    ceil, ceil_ = both(arithmetic.ceil)
    clamp, clamp_ = clip, clip_ = both(arithmetic.clip)
    copysign, copysign_ = both(arithmetic.copysign)
    cos, cos_ = both(transcendental.cos)
    cosh, cosh_ = both(transcendental.cosh)
    eq, eq_ = both(logic.equal)
    erf, erf_ = both(transcendental.erf)
    erfc, erfc_ = both(transcendental.erfc)
    exp, exp_ = both(transcendental.exp)
    exp2, exp2_ = both(transcendental.exp2)
    expm1, expm1_ = both(transcendental.expm1)
    floor, floor_ = both(arithmetic.floor)
    floor_divide, floor_divide_ = both(arithmetic.floor_divide)
    fmod, fmod_ = both(arithmetic.fmod)
    ge, ge_ = greater_equal, greater_equal_ = both(logic.greater_equal)
    gt, gt_ = greater, greater_ = both(logic.greater)
    hypot, hypot_ = both(arithmetic.hypot)
    isclose = logic.isclose
    isfinite = logic.isfinite
    isinf = logic.isinf
    isnan = logic.isnan
    le, le_ = less_equal, less_equal_ = both(logic.less_equal)
    lerp, lerp_ = both(arithmetic.lerp)
    log, log_ = both(transcendental.log)
    log10, log10_ = both(transcendental.log10)
    log1p, log1p_ = both(transcendental.log1p)
    log2, log2_ = both(transcendental.log2)
    logaddexp = transcendental.logaddexp
    xlogy = transcendental.xlogy
    logical_and, logical_and_ = both(logic.logical_and)
    logical_not, logical_not_ = both(logic.logical_not)
    logical_or, logical_or_ = both(logic.logical_or)
    logical_xor, logical_xor_ = both(logic.logical_xor)
    lt, lt_ = less, less_ = both(logic.less)
    maximum = arithmetic.maximum
    minimum = arithmetic.minimum
    mul, mul_ = multiply, multiply_ = both(arithmetic.multiply)
    nan_to_num, nan_to_num_ = both(logic.nan_to_num)
    ne, ne_ = not_equal, not_equal_ = both(logic.not_equal)
    neg, neg_ = negative, negative_ = both(arithmetic.negative)
    positive = arithmetic.positive
    pow, pow_ = both(arithmetic.pow)
    reciprocal, reciprocal_ = both(arithmetic.reciprocal)
    relu, relu_ = both(activation.relu)
    remainder, remainder_ = both(arithmetic.remainder)
    round, round_ = both(arithmetic.round)
    rsqrt, rsqrt_ = both(arithmetic.rsqrt)
    sigmoid, sigmoid_ = both(activation.sigmoid)
    sign, sign_ = both(arithmetic.sign)
    signbit = logic.signbit
    sin, sin_ = both(transcendental.sin)
    sinh, sinh_ = both(transcendental.sinh)
    sqrt, sqrt_ = both(arithmetic.sqrt)
    square, square_ = both(arithmetic.square)
    tan, tan_ = both(transcendental.tan)
    tanh, tanh_ = both(transcendental.tanh)
    trunc, trunc_ = fix, fix_ = both(arithmetic.trunc)

    def add(self, other: Any, *, alpha: Any = 1) -> Tensor:
        """self + alpha * other. See `tracer.add`.

        >>> tracer.tensor([1, 2]).add(10, alpha=2)
        tensor([21, 22])
        """
        return arithmetic.add(self, times(alpha, other))

    def sub(self, other: Any, *, alpha: Any = 1) -> Tensor:
        """self - alpha * other. See `tracer.subtract`.

        >>> tracer.tensor([1, 2]).sub(10, alpha=2)
        tensor([-19, -18])
        """
        return arithmetic.subtract(self, times(alpha, other))

    subtract = sub

    @public
    def div(self, other: Any, *, rounding_mode: str | None = None) -> Tensor:
        """self / other, broadcast; integers give float32.

        rounding_mode "floor" or "trunc" rounds the quotient and keeps integers; another one raises
        `ArgumentError`. See `tracer.divide`.

        >>> tracer.tensor([7, -7]).div(2, rounding_mode="trunc")
        tensor([ 3, -3])
        """
        if rounding_mode is None:
            return arithmetic.divide(self, other)
        if rounding_mode == "floor":
            return arithmetic.floor_divide(self, other)
        if rounding_mode == "trunc":
            a, b = prepare(self, other)
            if is_floating(a.type.dtype):
                return arithmetic.trunc(arithmetic.divide(a, b))
            return arithmetic.floor_divide(arithmetic.subtract(a, arithmetic.fmod(a, b)), b)
        raise ArgumentError(
            f'rounding_mode must be None, "floor" or "trunc", got {rounding_mode!r}'
        )

    divide = true_divide = div

    def addcmul(self, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
        """self + value * tensor1 * tensor2, broadcast, in the promoted type.

        >>> tracer.tensor([1, 2]).addcmul([3, 4], 10, value=2)
        tensor([61, 82])
        """
        return arithmetic.add(self, times(value, arithmetic.multiply(tensor1, tensor2)))

    def addcdiv(self, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
        """self + value * tensor1 / tensor2, broadcast; integers give float32.

        >>> tracer.tensor([1.0, 2.0]).addcdiv([3.0, 4.0], 2.0)
        tensor([2.5, 4. ])
        """
        return arithmetic.add(self, times(value, arithmetic.divide(tensor1, tensor2)))

    def clamp_min(self, min: Any) -> Tensor:
        """Elements below `min` replaced by it. See `tracer.clip`."""
        return arithmetic.clip(self, min, None)

    def clamp_max(self, max: Any) -> Tensor:
        """Elements above `max` replaced by it. See `tracer.clip`."""
        return arithmetic.clip(self, None, max)

    def where(self, condition: Any, other: Any) -> Tensor:
        """Self where the condition holds, else other. See `tracer.where`, which takes the condition first.

        >>> tracer.tensor([1, -2]).where([True, False], 0)
        tensor([1, 0])
        """
        return logic.where(condition, self, other)

    @public
    def masked_fill(self: Any, mask: Any, value: Any) -> Tensor:
        """Self with `value`, a number or 0-d Tensor, where the mask holds; broadcast.

        The value is converted to self's element type. Raises `ArgumentError` for a value with axes.

        >>> tracer.tensor([1, 2, 3]).masked_fill([True, False, True], 0)
        tensor([0, 2, 0])
        """
        filling = cast(as_tensor(value), as_tensor(self).type.dtype)
        if filling.ndim:
            raise ArgumentError(
                f"masked_fill takes a number or a 0-d Tensor, got shape {filling.shape}; use "
                "tracer.where"
            )
        return logic.where(mask, filling, self)

    def allclose(
        self, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
    ) -> bool:
        """Whether all elements are close: a Python bool. See `tracer.allclose`."""
        return logic.allclose(self, other, rtol, atol, equal_nan)

    def equal(self: Any, other: Any) -> bool:
        """Whether both have one shape and equal elements: a Python bool, unlike `eq`.

        >>> tracer.tensor([1, 2]).equal([1, 2])
        True
        """
        other = as_tensor(other)
        return bool(
            self.type.shape == other.type.shape and bool(reductions.all(logic.equal(self, other)))
        )


def times(scale: Any, x: Any) -> Any:
    """Scale * x; x itself for the number 1."""
    return x if isinstance(scale, int | float) and scale == 1 else arithmetic.multiply(x, scale)


def _as(dtype: str) -> Callable[[Any], Tensor]:
    def converted(self: Any) -> Tensor:
        return cast(self, dtype)

    converted.__doc__ = f"As {dtype}; see `tracer.astype`."
    return converted


class Conversions:
    """Element types, devices, copies."""

    __slots__ = ()

    astype = creation.astype

    float = _as("float32")
    double = _as("float64")
    half = _as("float16")
    bfloat16 = _as("bfloat16")
    char = _as("int8")
    short = _as("int16")
    int = _as("int32")
    long = _as("int64")
    byte = _as("uint8")
    bool = _as("bool")

    @public
    def to(
        self: Any, *args: Any, dtype: Any = None, device: Any = None, copy: Any = False, **_: Any
    ) -> Tensor:
        """Self with an element type (or another Tensor's), on a device: "cpu" is the only one.

        Self itself if nothing changes, unless `copy`. Raises `ArgumentError` for another device. See
        `tracer.astype`.

        >>> tracer.tensor([1.5]).to("int64"), tracer.tensor([1.5]).to("cpu", tracer.float16)
        (tensor([1]), tensor([1.5], dtype=float16))
        """
        for argument in args:  # what kind of thing each one is decides
            if isinstance(argument, Tensor):
                dtype = argument.type.dtype
            elif isinstance(argument, str) and argument.split(":")[0] in DEVICES:
                device = argument
            elif not isinstance(argument, _TRUTH):  # non_blocking, copy
                dtype = argument
        if device is not None and str(device).split(":")[0] != "cpu":
            raise ArgumentError(f'the only device is "cpu", got {device!r}')
        result: Tensor = self if dtype is None else cast(self, dtype_name(dtype))
        return copied(result) if copy and result is self else result

    def type_as(self: Any, other: Any) -> Tensor:
        """Self with the element type of another Tensor. See `tracer.astype`."""
        return cast(self, as_tensor(other).type.dtype)

    def clone(self: Any) -> Tensor:
        """A copy in memory of its own, of the same shape and type; gradients go through.

        >>> x = tracer.tensor([1.0, 2.0])
        >>> y = x.clone()
        >>> y[0] = 5.0
        >>> x
        tensor([1., 2.])
        """
        return copied(self)

    def contiguous(self: Any) -> Tensor:
        """Self with elements in row-major order in memory; itself if they are.

        >>> x = tracer.zeros((2, 3)).T
        >>> x.is_contiguous(), x.contiguous().is_contiguous()
        (False, True)
        """
        return self if self.is_contiguous() else copied(self)

    def is_contiguous(self: Any) -> Any:
        """Whether elements lie in row-major order in memory, in a trace as they would lie without it.

        >>> tracer.zeros((2, 3)).is_contiguous()
        True
        """
        if self._value is not None:
            view = self._view
            return view is None or view.layout is None or view.layout.is_row_major
        return self._array is None or self._array.flags.c_contiguous

    def __dlpack__(self: Any, **options: Any) -> Any:
        """The memory as DLPack's capsule, which other libraries take; as of NumPy's arrays. Raises `GradError` as `numpy()`."""
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self: Any) -> Any:
        """Where it lies, as DLPack says it: on the CPU."""
        return (1, 0)

    def is_floating_point(self: Any) -> Any:
        """Whether elements are floats.

        >>> tracer.ones(2).is_floating_point()
        True
        """
        return is_floating(self.type.dtype)

    def element_size(self: Any) -> Any:
        """Bytes of one element.

        >>> tracer.ones(2).element_size()
        4
        """
        return self.type.itemsize

    def cpu(self: Any) -> Tensor:
        """Self: Tensors are on the CPU.

        >>> x = tracer.ones(2)
        >>> x.cpu() is x
        True
        """
        return self  # type: ignore[no-any-return]

    @property
    def device(self) -> str:
        """Where the elements are: "cpu"."""
        block = self._block  # type: ignore[attr-defined]
        return "cpu" if block is None else str(block.device)

    def new_zeros(self: Any, *size: Shape, dtype: Any = None) -> Tensor:
        """Zeros of a shape, with self's element type unless told otherwise.

        >>> tracer.ones(2, dtype="int8").new_zeros(2, 2)
        tensor([[0, 0],
                [0, 0]], dtype=int8)
        """
        return creation.full(_one(size), 0, dtype=dtype or self.type.dtype)

    def new_ones(self: Any, *size: Shape, dtype: Any = None) -> Tensor:
        """Ones of a shape, with self's element type unless told otherwise.

        >>> tracer.zeros(2, dtype="int8").new_ones(3)
        tensor([1, 1, 1], dtype=int8)
        """
        return creation.full(_one(size), 1, dtype=dtype or self.type.dtype)

    def new_empty(self: Any, *size: Shape, dtype: Any = None) -> Tensor:
        """Zeros of a shape, the same as `new_zeros`.

        >>> tracer.ones(2, dtype="int8").new_empty(3)
        tensor([0, 0, 0], dtype=int8)
        """
        return creation.full(_one(size), 0, dtype=dtype or self.type.dtype)

    def new_full(self: Any, size: Shape, fill_value: Any, dtype: Any = None) -> Tensor:
        """A Tensor of a shape, every element fill_value, in self's type unless told otherwise.

        >>> tracer.zeros(2).new_full((2,), 7)
        tensor([7., 7.])
        """
        return creation.full(size, fill_value, dtype=dtype or self.type.dtype)

    def new_tensor(self: Any, data: Any, dtype: Any = None) -> Tensor:
        """A Tensor of data, with self's element type unless told otherwise.

        >>> tracer.zeros(2, dtype="float16").new_tensor([1, 2])
        tensor([1., 2.], dtype=float16)
        """
        return creation.tensor(data, dtype=dtype or self.type.dtype)

    @property
    def data(self: Any) -> Tensor:
        """The same memory without history and without being volatile. Assigning writes into it."""
        result: Tensor = self.detach()
        result.volatile = False
        return result

    @data.setter
    @public
    def data(self: Any, value: Any) -> None:
        new = as_tensor(value)
        if new.type.strong() != self.type.strong():
            raise ArgumentError(f"x.data takes a Tensor of x's type {self.type}, got {new.type}")
        MODES.interpreter.require_writeable(self)
        MODES.interpreter.write(self, new.data, recorded=False)


def _one(sizes: tuple[Any, ...]) -> Any:
    """Sizes given one by one or as one sequence."""
    return sizes[0] if len(sizes) == 1 else sizes
